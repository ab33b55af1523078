"""Commands by name, each imported when it is typed, and what becomes of their errors."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from specmodel import __version__
from specmodel.base.errors import InputError, cut, in_one_line, nearest
from specmodel.cli.settings import SETTINGS, flag

_COMMANDS = (
    *("acceptance", "best-draft-length", "break-even", "calibrate", "compare", "cost-table"),
    *("decode", "explain", "fit", "measure-engine", "plot", "predict", "schedule", "sensitivity"),
    *("simulate", "sweep"),
    *("sweet-spot", "trace", "validate"),
)
"""Commands in a module of their name."""
_HOME = {name: name.replace("-", "_") for name in _COMMANDS} | dict.fromkeys(
    ("list", "show"), "catalog"
)

_MOVED = {"dataset": "python calibration/dataset.py of a checkout, where it is now"}
"""Commands that were here, and what to type instead."""


class _Commands(click.Group):
    """Commands that are imported when they are typed."""

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
            raise InputError("command", args[0], _MOVED.get(args[0]) or nearest(args[0], _HOME))
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings=SETTINGS, no_args_is_help=True)
@click.version_option(__version__, prog_name="specmodel")
def main_group() -> None:
    """Tell whether speculative decoding pays for a model, on a GPU, at a batch size.

    \b
    Examples:
      specmodel predict --target qwen3-30b-a3b --drafter eagle \\
          --hardware h200_sxm --batch-size 1:128:x2 --draft-length 3 \\
          --acceptance-rate 0.7
      specmodel list hardware
      specmodel show h200_sxm

    \b
    Shell completion (bash; zsh and fish likewise):
      eval "$(_SPECMODEL_COMPLETE=bash_source specmodel)"
    """


def _error_line(error: InputError, words: Sequence[str]) -> str:
    """Name the option as typed: ``--batch-size``, ``--hardware memory.peak_bytes_per_s``."""
    name, rest = re.split(r"[. ]|$", error.argument, maxsplit=1)
    for parameter in _command(words).params:
        is_option = isinstance(parameter, click.Option)
        if is_option and (name == parameter.name or flag(name) in parameter.opts):
            typed = f"{parameter.opts[0]} {rest}".strip()
            return str(InputError(typed, error.value, error.expected))
    return str(error)


def _command(words: Sequence[str]) -> click.Command:
    """Return the command that was typed."""
    command: click.Command = main_group
    context = click.Context(main_group)
    for word in words:
        if isinstance(command, click.Group):
            default = command.get_command(context, getattr(command, "default", ""))
            command = command.get_command(context, word) or default or command
    return command


def carry_out(words: Sequence[str]) -> int:
    """Run a command and return the exit status; what cannot be used is said in one line."""
    try:
        return _status(words)
    except InputError as error:
        message = _error_line(error, words)
    except click.ClickException as error:
        message = error.format_message()
    except click.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        _let_go()
        if error.errno == errno.EPIPE:
            return 1
        message = f"output: {error.strerror}"
    click.echo(f"specmodel: error: {_short(message, words)}", err=True)
    return 2


def _status(words: Sequence[str]) -> int:
    """Run a command and return its status; one without any of its words explains itself."""
    try:
        status = main_group.main(words, prog_name="specmodel", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        status = 2
    sys.stdout.flush()
    return int(status or 0)


def _let_go() -> None:
    """Drop what standard output cannot take, which would be tried again at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _short(message: str, words: Sequence[str]) -> str:
    """Return a message in one line, in which what was typed at length is cut, but for paths."""
    line = in_one_line(message)
    for part in (part for word in words for part in (word, *word.split("="))):
        if len(part) > 80 and not os.path.lexists(part):
            line = line.replace(in_one_line(part), cut(in_one_line(part)))
    return " ".join(cut(word, most=400) for word in line.split(" "))
