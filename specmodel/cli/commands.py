"""The commands by name, imported on use, and the text of their errors."""

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
from specmodel.core.base.errors import InputError, cut, in_one_line, with_advice
from specmodel.core.base.naming import SETTABLE

_COMMANDS = [
    *("acceptance", "break-even", "calibrate", "compare", "explore", "fit", "list", "load"),
    *("plot", "predict", "schedule", "sensitivity", "simulate", "sweep", "trace"),
]
_HOMES = {"list": "catalog", "break-even": "break_even"}
"""Modules of commands; other modules have the name of their command."""

_OTHER_OPTIONS = {
    **{name: ours for ours, names in NAMES["options"].items() for name in names.split()},
    **{flag(name): f"--set {name}=" for name in (*SETTABLE, *chain(*SETTABLE_OF.values()))},
}
"""Our options by their names in engines and other tools."""

_MARKED = re.compile(r"`([\w()]+)=?([^`]*)`")
"""An argument as errors name it in Python, with or without a value: ``acceptance='typical'``."""


class _Commands(WholeList):
    """A group of commands, each imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _COMMANDS

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _COMMANDS and name not in self.commands:
            module = import_module(f"specmodel.cli.{_HOMES.get(name, name)}")
            for command in vars(module).values():
                if isinstance(command, click.Command) and command.name == name:
                    self.add_command(command)
        return super().get_command(ctx, name)


@click.group(cls=_Commands, context_settings=SETTINGS, invoke_without_command=True)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.option("--verbose", is_flag=True, help="With --version, show data and library versions too.")
@click.pass_context
def main_group(context: click.Context, version: bool, verbose: bool) -> None:
    """Predict whether speculative decoding pays for a model on a GPU.

    Five questions that specmodel answers:

    \b
      specmodel predict qwen3.5-397b h200
          Does speculation pay, at which batch sizes, with which draft length?
      specmodel predict qwen3.5-397b h200 --tpot-target 20ms
          What is the largest batch with at most 20 ms per output token?
      specmodel compare qwen3.5-397b h200,b200 --drafter mtp,ngram \\
          --acceptance-rate 0.7,0.4
          Which GPU, drafter, dtype, engine or parallel layout is best?
      specmodel break-even qwen3-235b h200 --drafter eagle3
          What acceptance does speculation need to pay?
      specmodel schedule qwen3.5-397b h200
          Which draft length should the engine use at each batch size?

    \b
    specmodel --help lists all commands; each command has its own --help.
    To list what ships with the package, run specmodel list KIND. KIND is
    hardware, architectures, drafters, engines, acceptance, policies, presets
    or words.

    \b
    For shell completion, run this line (for zsh or fish, replace the word bash):
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
    """Return an argument that an error names as an option, with or without its value."""
    name, value = marked.groups()
    return " ".join([NAMES["here"].get(name) or flag(name), value.strip("[]'")]).rstrip()


def _error_line(error: InputError, words: Sequence[str]) -> str:
    """Return the text of an error with options as the user typed them."""
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
        return in_one_line(with_advice(f"{argument}: none given", expected))
    value = True if error.value is False and argument.startswith("--no-") else error.value
    return str(InputError(argument, value, expected))


def _usage(error: click.ClickException) -> str:
    """Return click's message, with the help command if a parameter is missing."""
    text = error.format_message()
    if not (isinstance(error, click.MissingParameter) and error.ctx):
        return text
    return f"{text.removesuffix('.')} ({error.ctx.command_path} --help)"


def _with_remedy(message: str, words: Sequence[str]) -> str:
    """Add a hint at `compare` to an error about a list where one value is expected."""
    found = re.match(r"(?:Invalid value for )?'?(--[a-z-]+)[^:']*'?: (?:got )?'[^']*,", message)
    named = ("target", "drafter", "hardware", "engine", "set", *COMPARED)
    takes_lists = words[0] in ("compare", "sweep")
    is_listed = found is not None and found[1] in map(flag, named) and not takes_lists
    return f"{message} (lists: specmodel compare)" if is_listed else message


def _no_option(error: click.NoSuchOption, words: Sequence[str]) -> str:
    """Return the error about an unknown option, with our names for it and for other options."""
    known = [word for option in _command(words).params for word in option.opts]
    names = (word.partition("=")[0].replace("_", "-") for word in words if word.startswith("-"))
    typed = [name for name in names if name not in known]
    called = {name: _OTHER_OPTIONS[name] for name in typed if name in _OTHER_OPTIONS}
    called = {name: ours for name, ours in called.items() if ours.partition(" ")[0] in known}
    first = next((name for name in typed if name.startswith(error.option_name)), "")
    others = "".join(f" For {name}, use {own}." for name, own in called.items() if name != first)
    if first in called:
        return f"No such option '{first}'. Use {called[first]}.{others}"
    if first in NAMES["elsewhere"] and "--target" in known:
        return f"{error.message} {NAMES['elsewhere'][first]}.{others}"
    return error.format_message() + others


def _command(words: Sequence[str]) -> click.Command:
    """Return the command or subcommand that the user typed."""
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
        message = _with_remedy(_usage(error), words)
    except MemoryError:
        message = "memory: too little for this; expected fewer points or requests, or more memory"
    except click.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:  # drop the output, which Python would try to write again at exit
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
