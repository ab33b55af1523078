"""Print help: options in groups, and lists of commands with their whole first paragraph."""

import re
from collections import deque
from pathlib import Path

import click

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.files import toml_tables
from specmodel.core.base.naming import SETTABLE, SWITCHES

NAMES: dict[str, dict[str, str]] = toml_tables(Path(__file__).with_name("names.toml"))
"""Groups of options, and other names of our options and commands that people type."""
GROUPS: dict[str, list[str]] = {group: names.split() for group, names in NAMES["groups"].items()}
"""Parameters by their group in help; other parameters are in a group of the command."""
_LAST = "Output"
_WHOLE = "\N{NON-BREAKING HYPHEN}"
"""Replaces hyphens while lines are wrapped, so that options stay whole."""


class GroupedCommand(click.Command):
    """A command whose help shows its options in groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept names of --set as options too, such as --temperature 0.7 or --enforce-eager.

        If the command accepts launch flags of engines, they are collected in ``ctx.obj``.
        """
        options = {word for parameter in self.get_params(ctx) for word in parameter.opts}
        found, words, ctx.obj = list[str](), deque(args), {}
        while words:
            word = words.popleft()
            name, has_value, value = word.partition("=")
            key = name.removeprefix("--").replace("-", "_").removesuffix("_size")
            if not name.startswith("-") or name.replace("_", "-") in options:
                found.append(word)
            elif name.startswith("--") and "--set" in options and key in SETTABLE:
                is_bare = not has_value and key not in SWITCHES
                value = value or ("true" if not is_bare else words.popleft() if words else "")
                found += ["--set", f"{key}={value}"]
            elif "--from-command" in options:
                from specmodel.core.cost.launch_lines import typed_flag  # slow to import

                flag = typed_flag(word, words)
                ctx.obj.update([flag] if flag else [])
                found += [] if flag else [word]
            else:
                found.append(word)
        return super().parse_args(ctx, found)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section for each group."""
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        own = rows.setdefault(f"For {self.name}", [])
        place = {name: group for group, names in GROUPS.items() for name in names}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and record[1]:
                name = "help" if "--help" in parameter.opts else parameter.name or ""
                first = re.sub(r"(--[\w-]+)(, --[\w-]+)+", r"\1", record[0])
                whole = first, record[1].replace("-", _WHOLE)
                rows.get(place.get(name, ""), own).append(whole)
        rows |= {_LAST: rows.pop(_LAST)}
        for name, own in rows.items():
            if own:
                with formatter.section(name):
                    formatter.write_dl(own, col_max=24)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help with its hyphens."""
        return super().get_help(ctx).replace(_WHOLE, "-")


class WholeList(click.Group):
    """A group whose help shows the whole first paragraph of each command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the user typed; an InputError names others if it is unknown."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            expected = NAMES["commands"].get(name) or nearest(name, known)
            raise InputError("command", name, expected)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their descriptions."""
        first = {name: text.strip().partition("\n\n")[0] for name, text in self.helps(ctx).items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(text.split())) for name, text in first.items()])

    def helps(self, ctx: click.Context) -> dict[str, str]:
        """Return the help of each command; this imports all of them."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {name: str(command.help) for name, command in found.items() if command}
