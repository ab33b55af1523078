"""The commands by name, imported when they are typed, and how their errors are printed."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from inspect import cleandoc
from itertools import chain, pairwise
from pathlib import Path

import click

from specmodel import __version__
from specmodel.cli.helping import NAMES, WholeList
from specmodel.cli.settings import COMPARED, SETTABLE_OF, SETTINGS, flag
from specmodel.core.base.errors import InputError, cut, in_one_line, nearest
from specmodel.core.base.naming import SETTABLE

_COMMANDS = (
    "acceptance calibrate compare explore fit load plot predict schedule sensitivity"
    " simulate sweep trace"
)
"""Commands that have a module of their own name."""
_HOME = {name: name for name in _COMMANDS.split()}
_HOME |= {"list": "catalog", "break-even": "break_even"}

_OTHER_OPTIONS = {
    **{name: ours for ours, names in NAMES["options"].items() for name in names.split()},
    **{flag(name): f"--set {name}=" for name in (*SETTABLE, *chain(*SETTABLE_OF.values()))},
}
"""Our options by what engines and other tools call them."""

_MARKED = re.compile(r"`([\w()]+)=?([^`]*)`")
"""An argument as errors name it for Python, with its value or without: ``acceptance='typical'``."""


class _Commands(WholeList):
    """A group of commands, each imported when it is typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_HOME)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _HOME and name not in self.commands:
            module = import_module(f"specmodel.cli.{_HOME[name]}")
            for command in vars(module).values():
                if isinstance(command, click.Command) and command.name == name:
                    self.add_command(command)
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _HOME and not args[0].startswith("-"):
            expected = NAMES["commands"].get(args[0]) or nearest(args[0], _HOME)
            raise InputError("command", args[0], expected)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings=SETTINGS, invoke_without_command=True)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.option("--verbose", is_flag=True, help="With --version, show those of data and libraries.")
@click.pass_context
def main_group(context: click.Context, version: bool, verbose: bool) -> None:
    """Predict whether speculative decoding pays for a model on a GPU.

    Five questions:

    \b
      specmodel predict qwen3.5-397b h200
          Does it pay, at which batch sizes, with which draft length?
      specmodel predict qwen3.5-397b h200 --tpot-target 20ms
          What is the largest batch within a time per token?
      specmodel compare qwen3.5-397b h200,b200 --drafter mtp,ngram \\
          --acceptance-rate 0.7,0.4
          Which GPU, layout, dtype, engine or drafter is best?
      specmodel break-even qwen3-235b h200 --drafter eagle3
          What acceptance does it need, and what is 0.1 tokens more worth?
      specmodel schedule qwen3.5-397b h200
          Which draft length at which batch size, as a setting of the engine?

    \b
    specmodel --help lists all commands; each command has its own --help.
    What ships: specmodel list hardware, architectures, drafters, engines,
    acceptance, policies, presets, words.

    \b
    Shell completion (bash; for zsh and fish, replace the word bash):
      eval "$(_SPECMODEL_COMPLETE=bash_source specmodel)"
    """
    if version:
        click.echo(f"specmodel, version {__version__}" + (_versions() if verbose else ""))
        context.exit()
    if context.invoked_subcommand is None:
        click.echo(cleandoc(context.command.help or "").replace("\b\n", ""))


def _versions() -> str:
    """Return as text a hash of the data files, and the versions of installed packages."""
    from hashlib import sha256
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    from specmodel.core.machines.hardware import FOLDER

    files = {*Path(__file__).parents[1].glob("**/data/**/*.*"), *FOLDER.glob("*.toml")}
    data = sorted(sha256(f.read_bytes()).digest() for f in files if f.suffix in (".csv", ".toml"))
    lines = [f"data {sha256(b''.join(data)).hexdigest()[:12]} ({len(data)} files)"]
    lines += [f"python {python_version()}"]
    for name in ("numpy", "pandas", "scipy", "msgspec", "click", "numba", "pyarrow", "torch"):
        with suppress(PackageNotFoundError):
            lines += [f"{name} {version(name)}"]
    return "\n" + "\n".join(lines)


def _as_option(marked: re.Match[str]) -> str:
    """Return an argument that an error names, with its value or without, as it is typed."""
    name, value = marked.groups()
    return " ".join([NAMES["here"].get(name) or flag(name), value.strip("[]'")]).rstrip()


def _error_line(error: InputError, words: Sequence[str]) -> str:
    """Return the text of an error with options as typed; "none given" where no value was."""
    from specmodel.core.cost.launch_lines import flags_for

    name, rest = re.split(r"[. ]|$", error.argument, maxsplit=1)
    is_set = name in (*SETTABLE, *SETTABLE_OF.get(words[0], ()))
    argument = f"--set {error.argument}" if is_set else error.argument
    typed = [word.partition("=")[0].replace("_", "-") for word in words]
    own = [
        word
        for option in _command(words).params
        if isinstance(option, click.Option) and (name == option.name or flag(name) in option.opts)
        for word in (*option.opts, *option.secondary_opts)
    ]
    filled = (*NAMES["filled_by"].get(name, "").split(), *flags_for(name))
    spelt = [word for word in (*own, *filled) if word in typed]
    if ("--set", error.argument.replace("_", "-")) in pairwise(typed):
        argument = f"--set {error.argument}"
    elif spelt or own:
        argument = f"{[*spelt, *own][0]} {rest}".strip()
    expected = _MARKED.sub(_as_option, error.expected)
    if error.value is None:
        return in_one_line(f"{argument}: none given; expected {expected}")
    value = True if error.value is False and argument.startswith("--no-") else error.value
    return str(InputError(argument, value, expected))


def _usage(error: click.ClickException, words: Sequence[str]) -> str:
    """Return click's message on a command line, with the help command if a parameter is missing."""
    told = error.format_message()
    group = _command(words)
    if told.startswith("No such command") and isinstance(group, click.Group):
        return f"{told} Commands: {', '.join(group.list_commands(click.Context(group)))}"
    if not (isinstance(error, click.MissingParameter) and error.ctx):
        return told
    return f"{told.removesuffix('.')} ({error.ctx.command_path} --help)"


def _with_remedy(message: str, words: Sequence[str]) -> str:
    """Add a hint at `compare` to an error about a list where one value is expected."""
    found = re.match(r"(?:Invalid value for )?'?(--[a-z-]+)[^:']*'?: (?:got )?'[^']*,", message)
    named = ("target", "drafter", "hardware", "engine", "set", *COMPARED)
    takes_lists = words[0] in ("compare", "sweep")
    is_listed = found is not None and found[1] in map(flag, named) and not takes_lists
    return f"{message} (lists: specmodel compare)" if is_listed else message


def _no_option(error: click.NoSuchOption, words: Sequence[str]) -> str:
    """Return the error about an unknown option, with this program's name for it and for others."""
    known = [word for option in _command(words).params for word in option.opts]
    names = (word.partition("=")[0].replace("_", "-") for word in words if word.startswith("-"))
    typed = [name for name in names if name not in known]
    called = {name: _OTHER_OPTIONS[name] for name in typed if name in _OTHER_OPTIONS}
    called = {name: ours for name, ours in called.items() if ours.partition(" ")[0] in known}
    first = next((name for name in typed if name.startswith(error.option_name)), "")
    others = "".join(f" {name} is {ours}." for name, ours in called.items() if name != first)
    if first in called:
        return f"{error.message} It is {called[first]} here.{others}"
    if first in NAMES["elsewhere"] and "--target" in known:
        return f"{error.message} {NAMES['elsewhere'][first]}.{others}"
    return error.format_message() + others


def _command(words: Sequence[str]) -> click.Command:
    """Return the command or subcommand that was typed."""
    command: click.Command = main_group
    context = click.Context(main_group)
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(context, word) or command
    return command


def carry_out(words: Sequence[str]) -> int:
    """Run a command and return its exit status; an error is printed in one line."""
    try:
        status = main_group.main(words, prog_name="specmodel", standalone_mode=False)
        sys.stdout.flush()
        return int(status or 0)
    except click.exceptions.NoArgsIsHelpError:
        return carry_out([*words, "--help"]) or 2
    except InputError as error:
        message = _with_remedy(_error_line(error, words), words)
    except click.NoSuchOption as error:
        message = _no_option(error, words)
    except click.ClickException as error:
        message = _with_remedy(_usage(error, words), words)
    except MemoryError:
        message = "memory: too little for this; expected fewer points or requests, or more memory"
    except click.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:  # drop what it cannot take; Python would try to write it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return 1
        message = f"output: {error.strerror}"
    click.echo(f"specmodel: error: {_short(message, words)}", err=True)
    return 2


def _short(message: str, words: Sequence[str]) -> str:
    """Return a message in one line, with long arguments and words cut unless they are paths."""
    line = in_one_line(message)
    for part in (part for word in words for part in (word, *word.split("="))):
        if len(part) > 80 and not os.path.lexists(part):
            line = line.replace(in_one_line(part), cut(in_one_line(part)))
    words = line.split(" ")
    return " ".join(w if os.path.lexists(w.strip("'(),;:")) else cut(w, most=120) for w in words)
