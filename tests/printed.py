"""Read the output of commands strictly, and check the one line of an error."""

import contextlib
import io
import json
import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import pytest
from rows import rows_of

from specmodel import InputError

TOLD = re.compile(
    "; expected |(?:got .*|none given)\\. [A-Z].*\\.$"
    "|Invalid value|unexpected extra|No such|Missing|does not take a value|requires an argument"
)
"""Texts in which an error says what would work; the last ones are click's."""


def parse(text: str) -> Any:
    """Read JSON that contains neither NaN nor infinity."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def filled(file: str, section: str, words: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return the commands of a section in `data` and their other cells; fill in words in braces."""
    rows = []
    for command, *parts in rows_of(file, section):
        for word, text in words.items():
            command = command.replace(f"{{{word}}}", text)
        rows.append((command, parts))
    return rows


def typed_wrong(section: str, **words: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a section of `data/typed_wrong.txt` and texts of their errors."""
    return filled("typed_wrong.txt", section, words)


def commands(section: str, **words: str) -> list[str]:
    """Return the commands of a section of `data/commands.txt`."""
    return [command for command, _ in filled("commands.txt", section, words)]


def output_of(command: str) -> str:
    """Run a command line that must succeed, without the fixture `run`; return its output."""
    from specmodel import cli  # which the core's tests run without

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(shlex.split(command)) == 0, command
    return out.getvalue()


def widest(text: str) -> str:
    return max(text.splitlines(), key=len)


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def refused(message: str, call: Callable[..., Any], *values: Any, **named: Any) -> str:
    """Check that a call fails with one line that matches a regular expression; return the line."""
    with pytest.raises(InputError, match=message) as caught:
        call(*values, **named)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def check_one_line(status: int, out: str, err: str, fragments: Iterable[str]) -> None:
    """Check that a command failed with one line that contains these fragments, and no output."""
    assert (status, out) == (2, ""), err
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    assert err.startswith("specmodel: error: ")
    assert TOLD.search(err), err
    assert err.count("; expected ") <= 1, "one message inside another"
    assert "array(" not in err
    for fragment in fragments:
        assert fragment in err, err
