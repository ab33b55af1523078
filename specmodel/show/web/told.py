"""Pages of answers as HTML: their words as paragraphs, their tables as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from markupsafe import Markup

from specmodel.base.text import LAYOUT, SCREEN, TABLE, Columns
from specmodel.show.forms import Answer

_WIDE = 100_000
"""Columns of a screen on which no line is broken [-]."""
_TABLE = 160
"""Columns of a table that a page has room for, which scrolls where it has not [-]."""
_HELD = re.compile("\x00([0-9]+)\x00")
"""What stands in a text for a table."""
_NUMBER = re.compile("[0-9.]+")
_BEST = "speedup"
_SIZES = "batch size"

Link = Callable[[str], str]
"""The address of a batch size."""


def told(answer: Answer, link: Link | None = None) -> tuple[Markup, Markup]:
    """Return the page of an answer before its first table, and from there on.

    Batch sizes in tables lead to their addresses by `link`.
    """
    with _tables() as tables:
        blocks = answer.report().split("\n\n")
    first = next((i for i, block in enumerate(blocks) if _HELD.search(block)), len(blocks))
    parts = (blocks[:first], blocks[first:])
    before, after = (Markup().join(_block(b, tables, link) for b in each) for each in parts)
    return before, after


@contextmanager
def _tables() -> Iterator[list[tuple[Columns, Collection[str]]]]:
    """Keep tables that are laid out meanwhile; each is a number in the text. No line is broken."""
    found: list[tuple[Columns, Collection[str]]] = []

    def kept(columns: Columns, left: Collection[str]) -> str:
        found.append((columns, left))
        return f"\x00{len(found) - 1}\x00"

    layout, screen, width = LAYOUT.set(kept), SCREEN.set(_WIDE), TABLE.set(_TABLE)
    try:
        yield found
    finally:
        LAYOUT.reset(layout)
        SCREEN.reset(screen)
        TABLE.reset(width)


def _block(block: str, tables: list[tuple[Columns, Collection[str]]], link: Link | None) -> Markup:
    """Return a block of text: its tables, what an engine reads as it stands, or paragraphs."""
    lines, found = block.split("\n"), Markup()
    code: list[str] = []
    for i, line in enumerate(lines):
        held = _HELD.fullmatch(line)
        follows = lines[i + 1 : i + 2]
        if line.endswith("\\") or line[:1] in (" ", "{") or (follows and follows[0][:1] == "{"):
            code.append(line)
            continue
        found += _code(code)
        code = []
        if held:
            found += table(*tables[int(held[1])], link)
        elif line.startswith("Paste into ") and ": " in line:
            what, _, typed = line.partition(": ")
            found += Markup("<p>{}:</p>").format(what) + _code([typed])
        elif line:
            kind = "warning" if line.startswith("Warning: ") else "said"
            found += Markup('<p class="{}">{}</p>').format(kind, line)
    return found + _code(code)


def _code(lines: list[str]) -> Markup:
    """Return lines that are pasted as they stand."""
    return Markup('<pre tabindex="0">{}</pre>').format("\n".join(lines)) if lines else Markup()


def table(columns: Columns, left: Collection[str], link: Link | None) -> Markup:
    """Return a table; the best cell of each row, or the best speedup of all, is marked."""
    sides = [Markup(' class="words"') if title in left else "" for title, _ in columns]
    titles = [" ".join(title.replace("-\n", "-").split()) for title, _ in columns]
    rows = zip(*(cells for _, cells in columns), strict=True)
    heads = (
        Markup('<th scope="col"{}>{}</th>').format(*each)
        for each in zip(sides, titles, strict=True)
    )
    head = Markup().join(heads)
    best = _best(dict(zip(titles, (cells for _, cells in columns), strict=True)))
    body = Markup()
    for i, row in enumerate(rows):
        body += Markup("<tr>")
        for j, (title, cell) in enumerate(zip(titles, row, strict=True)):
            is_best = cell.startswith("*") or (i == best and title == _BEST)
            shown = Markup("<strong>{}<span> best</span></strong>").format(cell.lstrip("*"))
            shown = shown if is_best else Markup("{}").format(cell)
            if link and title == _SIZES and cell.isdigit():
                shown = Markup('<a href="{}">{}</a>').format(link(cell), cell)
            name = "th" if j == 0 else "td"
            scope = Markup(' scope="row"') if j == 0 else ""
            body += Markup("<{0}{1}{2}>{3}</{0}>").format(Markup(name), scope, sides[j], shown)
        body += Markup("</tr>")
    whole = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>")
    held = Markup('<div class="wide" tabindex="0" role="region" aria-label="Table">{}</div>')
    return held.format(whole.format(head, body))


def _best(cells: dict[str, list[str]]) -> int | None:
    """Return the row of the best speedup of what fits, None where there is none."""
    numbers = [float(cell) if _NUMBER.fullmatch(cell) else 0.0 for cell in cells.get(_BEST, [])]
    fits = cells.get("fits", ["yes"] * len(numbers))
    able = [i for i, number in enumerate(numbers) if number > 1 and fits[i] == "yes"]
    return max(able, key=lambda i: numbers[i], default=None)
