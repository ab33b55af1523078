"""Command line of a script: errors are one line with exit status 2, as in specmodel."""

import sys
from collections.abc import Sequence

import click

from specmodel.cli.settings import flag
from specmodel.core.base.errors import InputError, in_one_line


def carry_out(command: click.Command, words: Sequence[str] | None = None) -> int:
    """Run a command on some words, by default the process's, and return its exit status."""
    typed = {option for parameter in command.params for option in parameter.opts}
    try:
        command.main(words, standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        option = flag(error.argument)
        argument = option if option in typed else error.argument
        message = str(InputError(argument, error.value, error.expected))
    except click.ClickException as error:
        message = error.format_message()
    except (KeyboardInterrupt, click.Abort):
        return 130
    else:
        return 0
    click.echo(f"{command.name}: error: {in_one_line(message)}", err=True)
    return 2
