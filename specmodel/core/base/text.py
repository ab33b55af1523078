"""Lay out text for at most 80 columns, or a narrower screen: paragraphs and tables."""

import textwrap
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar

from specmodel.core.base.fronts import SHOWN

Columns = list[tuple[str, list[str]]]
"""Titles and cells."""
SCREEN: ContextVar[int] = ContextVar("screen", default=80)
"""Width of the screen for paragraphs and blocks of a table [-]."""
TABLE: ContextVar[int] = ContextVar("table", default=80)
"""Maximum width of a table that may leave columns out [-]."""

VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)
"""Whether a page shows everything on which its answer is based."""


class Printed:
    """Base of objects that a notebook shows like printed text; their `repr` is one line."""

    is_brief: ClassVar[Any] = True

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": str(SHOWN["html"](self))}

    def __repr__(self) -> str:
        opening = textwrap.shorten(str(self).partition("\n\n")[0], 100, placeholder=" ...")
        return f"<{type(self).__name__}: {opening}>"


class Viewed(Printed):
    """Base of answers that print like the command; `room` is the package that shows them."""

    room: ClassVar[str]

    def view(self) -> Any:
        """Return the answer in all forms: ``print(x.view())``, ``.to_frame()``, ``.to_dict()``."""
        return SHOWN["answer"](self.room, self)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the page by name, each with its value, unit and interval."""
        return dict(self.view().facts)

    def __str__(self) -> str:
        return str(self.view())


def wrap(text: str, indent: str = "") -> str:
    """Return a paragraph wrapped to the width of the screen, with later lines indented.

    Lines do not break at no-break spaces, which become spaces.
    """
    lines = textwrap.fill(
        text, SCREEN.get(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return lines.replace("\xa0", " ")


def command_lines(words: Iterable[str]) -> str:
    """Return a shell command in lines of at most 79 characters; each word stays in one line."""
    first, *others = words
    lines = [first]
    for word in others:
        if len(lines[-1]) + len(word) > 77:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def listed(words: Sequence[str]) -> str:
    """Return words as a list for a sentence, "" without words.

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
    """Lay columns next to the first one, in several blocks if the screen is too narrow."""
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

    Columns are right-aligned, except those with a title in `left`. A title may have several lines.
    """
    depth = max(title.count("\n") for title, _ in columns) + 1
    aligned = []
    for title, cells in columns:
        width = column_width((title, cells))
        lines = [*([""] * depth + title.split("\n"))[-depth:], *cells]
        justify = str.ljust if title in left else str.rjust
        aligned.append([justify(line, width) for line in lines])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))
