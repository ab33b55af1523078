"""Text of at most 80 columns, or of a narrower screen: paragraphs and aligned tables."""

import textwrap
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar

from specmodel.core.base.fronts import SHOWN

Columns = list[tuple[str, list[str]]]
"""Titles and cells."""
SCREEN: ContextVar[int] = ContextVar("screen", default=80)
"""Columns that paragraphs and blocks of a table are laid out for [-]."""
TABLE: ContextVar[int] = ContextVar("table", default=80)
"""Columns that a table which leaves some out may have [-]."""

VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)
"""Whether a page tells all that its answer rests on."""


class Printed:
    """What a notebook shows as it prints, with its facts; its `repr` is one line."""

    is_brief: ClassVar[Any] = True

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": str(SHOWN["html"](self))}

    def __repr__(self) -> str:
        opening = textwrap.shorten(str(self).partition("\n\n")[0], 100, placeholder=" ...")
        return f"<{type(self).__name__}: {opening}>"


class Viewed(Printed):
    """What prints as the command does; `room` says who shows it."""

    room: ClassVar[str]

    def view(self) -> Any:
        """Return the answer in all forms: ``print(x.view())``, ``.to_frame()``, ``.to_dict()``."""
        return SHOWN["answer"](self.room, self)

    @property
    def facts(self) -> dict[str, Any]:
        """What the page tells, by name, each with its value, unit and interval."""
        return dict(self.view().facts)

    def __str__(self) -> str:
        return str(self.view())


def wrap(text: str, indent: str = "") -> str:
    """Return a paragraph wrapped to the columns of the screen, its later lines indented.

    It is not broken at no-break spaces, which become spaces.
    """
    lines = textwrap.fill(
        text, SCREEN.get(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return lines.replace("\xa0", " ")


def command_lines(words: Iterable[str]) -> str:
    """Return a shell command in lines of at most 79 characters; options stay with their values."""
    first, *others = words
    lines = [first]
    for word in others:
        if len(lines[-1]) + len(word) > 77:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence; "" for none.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = words or [""]
    return f"{', '.join(first)} and {last}" if first else last


def column_width(column: tuple[str, list[str]]) -> int:
    """Return the characters that a column needs."""
    title, cells = column
    return max(map(len, [*title.split("\n"), *cells]))


def align_blocks(first: tuple[str, list[str]], rest: Columns, left: Collection[str] = ()) -> str:
    """Lay columns beside a first one, in as many blocks as the screen needs."""
    blocks, block = [], [first]
    for column in rest:
        if len(block) > 1 and table_width([*block, column]) > SCREEN.get():
            blocks.append(block)
            block = [first]
        block.append(column)
    return "\n\n".join(align(block, left) for block in [*blocks, block])


def table_width(columns: Columns) -> int:
    """Return the characters that a table needs."""
    return sum(map(column_width, columns)) + 2 * (len(columns) - 1)


def align(columns: Columns, left: Collection[str] = ("limited\nby",)) -> str:
    """Lay columns side by side in lines of text.

    They are right-aligned but for those titled in `left`; a title may have several lines.
    """
    depth = max(title.count("\n") for title, _ in columns) + 1
    aligned = []
    for title, cells in columns:
        width = column_width((title, cells))
        lines = [*([""] * depth + title.split("\n"))[-depth:], *cells]
        justify = str.ljust if title in left else str.rjust
        aligned.append([justify(line, width) for line in lines])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))
