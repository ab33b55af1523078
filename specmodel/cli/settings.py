"""Options: those that several commands share, and how a command declares its own."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

import specmodel
from specmodel.cli.helping import NAMES, GroupedCommand
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables
from specmodel.core.base.naming import SETTABLE

SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 80,
    "token_normalize_func": lambda typed: typed.replace("_", "-"),  # as engines read options
}


class _Share(click.types.FloatParamType):
    """A share of 1, which may be typed in per cent [-]."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the share of what was typed."""
        if str(value).endswith("%"):
            with suppress(ValueError):
                return float(str(value)[:-1]) / 100
        return super().convert(value, param, ctx)


class _Sizes(click.types.StringParamType):
    """Sizes of CUDA graphs: a number, a list, or vLLM's configuration that has one."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number or the list of what was typed."""
        keys, typed = ("cudagraph_capture_sizes", "max_cudagraph_capture_size"), value
        try:
            if str(value).strip().startswith("{"):
                told = json.loads(value)
                typed = next(told.pop(key) for key in keys if key in told)
            whole = [int(size) for size in str(typed).strip(" []()").replace(",", " ").split()]
        except (ValueError, StopIteration):
            expected = f"sizes such as 512 or 1,2,4,8, or JSON with {' or '.join(keys)}"
            raise InputError("graph_limit", value, expected) from None
        return whole[0] if len(whole) == 1 and not str(typed).startswith("[") else whole


TABLES: dict[str, dict[str, Any]] = toml_tables(Path(__file__).with_name("options.toml"))
"""By table of ``options.toml``: of each option the kind of value, the help, other settings."""
OPTIONS = TABLES["case"] | TABLES["acceptance"] | TABLES["detail"]
"""Those that say what runs where, and how drafts fare."""
SHARED = OPTIONS | TABLES["shared"]
"""Options of several commands."""
_TYPES = {"int": int, "float": float, "text": str, "share": _Share(), "sizes": _Sizes()}

COMPARED: tuple[str, ...] = (*TABLES["compare"]["[detail]"]["lists"],)
"""Options of detail that may be lists where alternatives are compared."""
Add = Callable[[Any], Any]
"""A decorator that adds options to a command."""

command = partial(click.command, context_settings=SETTINGS, cls=GroupedCommand)


SETTABLE_OF = {command: names.split() for command, names in NAMES["settable"].items()}
"""What commands take by ``--set`` besides `SETTABLE`."""


def flag(name: str) -> str:
    """Return an option as it is typed: ``--batch-size`` of batch_size."""
    return "--" + name.replace("_", "-")


def own(name: str, kind: str | list[str], words: str, *, to: str = "", **changes: Any) -> Add:
    """Add an option of one command.

    `kind` is a type, a list of choices, or a metavar for text, as in ``options.toml``; `words` are
    the help; `to` is the name of the argument, if another, or other flags for it. Other settings
    are those of `click.option`.
    """
    settings: dict[str, Any] = {"help": words, "show_default": changes.get("default") is not None}
    typed = flag(name)
    if kind == "flag":
        settings = {"help": words, "is_flag": True, "default": None}
    elif kind == "switch":
        typed, to = f"{typed}/--no-{name}", to or name
        settings |= {"default": None}
    elif isinstance(kind, list):
        settings["type"] = click.Choice(kind)
    elif kind in _TYPES:
        settings["type"] = _TYPES[kind]
    else:
        settings["metavar"] = kind
    return click.option(typed, *to.split(), **settings | changes)


def option(name: str, more: str = "", **changes: Any) -> Add:
    """Add a shared option; `more` is added to its help."""
    kind, words, *settings = SHARED[name]
    lists = NAMES["completed"].get(name, "").split()

    def complete(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
        names = (each for listed in lists for each in getattr(specmodel, listed)())
        return sorted(each for each in names if each.startswith(start))

    if lists:
        changes["shell_complete"] = complete
    return own(name, kind, words + more, **dict(*settings) | changes)


def options(*names: str | Add, **changes: Any) -> Add:
    """Add options in this order; those given by name are shared, with changes as in `own`."""
    adding = [option(name, **changes) if isinstance(name, str) else name for name in names]

    def add(command: Any) -> Any:
        """Add all of them to a command."""
        for decorate in reversed(adding):
            command = decorate(command)
        return command

    return add


def options_of(*tables: str, **more: str) -> Add:
    """Add all options of tables, with `more` help by name.

    A text in place of an option is a shared one, to whose help it is added; in brackets stands
    another table.
    """
    declared = (entry for table in tables for entry in TABLES[table].items())
    return options(*(_declared(name, how, more.get(name, "")) for name, how in declared))


def _declared(name: str, how: Any, more: str) -> Add:
    if name == "[detail]":
        return detail_options(**how)
    if name.startswith("["):
        return options_of(name.strip("[]"), **how)
    if isinstance(how, str):
        return option(name, how)
    kind, words, *settings = how
    return own(name, kind, words + more, **dict(*settings))


def changed(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Add:
    """Return a decorator that passes a command's options through `change` first."""

    def add(command: Any) -> Any:
        @wraps(command)
        def run(**options: Any) -> Any:
            return command(**change(options))

        return run

    return add


def ignore_option(*names: str) -> Add:
    """Add the option that leaves keys out of the ``config.json`` files that some options name."""

    def add(command: Any) -> Any:
        @wraps(command)
        def run(*, ignore_config_key: tuple[str, ...], **options: Any) -> Any:
            if not ignore_config_key:
                return command(**options)
            from specmodel.core.models.hf.files import check_ignored, ignoring

            models = [(n, path) for n in names for path in (options.get(n) or "").split(",")]
            check_ignored("ignore_config_key", ignore_config_key, models)
            with ignoring(ignore_config_key):
                return command(**options)

        return option("ignore_config_key")(run)

    return add


def detail_options(*, lists: Iterable[str] = (), of: str = "") -> Add:
    """Add what says how the target runs: parallelism, dtypes, routing, --set.

    `lists` names those that take a list, as text; `of` is a command that --set has settings of.
    """
    listed: dict[str, Any] = {name: {"type": str, "metavar": "LIST"} for name in lists}
    words = (
        "Change a field of hardware, engine, target or drafter (specmodel list NAME shows them),"
        " such as hardware.memory.peak_bytes_per_s=6e12 or target.experts_per_token=4"
        + (",8, each an alternative" if listed else "")
        + f". Also {', '.join([*SETTABLE, *SETTABLE_OF.get(of, ())])}."
    )
    changes = own("set", "KEY=VALUE", words, to="changes", multiple=True)
    detail = [option(name, **listed.get(name, {})) for name in TABLES["detail"]]
    apart = [changed(partial(_set_apart, SETTABLE_OF[of]))] if of else []
    return options(*detail, changes, *apart)


def _set_apart(names: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return options with what --set says of these settings as options by name."""
    from specmodel.core.cost.where import literal

    pairs = {text: text.partition("=") for text in options["changes"]}
    own = {text: key.strip() for text, (key, _, _) in pairs.items() if key.strip() in names}
    options |= {key: literal(pairs[text][2].strip()) for text, key in own.items()}
    return options | {"changes": tuple(t for t in options["changes"] if t not in own)}


def check_free(output: str, *, overwrite: bool) -> None:
    """Refuse, before anything is computed, a file that cannot be written, or that is there."""
    from specmodel.core.base.files import check_writable

    check_writable(output, "output")
    if os.path.isfile(output) and not overwrite:  # noqa: PTH113 - pathlib is slow to import
        raise InputError("output", output, "a new name, or --overwrite to replace this file")


def refuse_inputs(argument: str, output: str, *typed: str | None) -> None:
    """Refuse to write a file that is read, under another name or by a link too.

    `typed` are paths, or words that end in one, such as table:FILE and KEY=FILE.
    """
    for text in filter(None, typed):
        if any(_is_same(path, output) for path in (text, *re.split("[:=]", text, maxsplit=1)[1:])):
            raise InputError(argument, output, f"another file than the input {text}")


def _is_same(one: str, other: str) -> bool:
    with suppress(OSError, ValueError):  # one is not there yet, a link to itself, or no name
        return os.path.samefile(one, other)  # noqa: PTH121 - pathlib is slow to import
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - likewise
