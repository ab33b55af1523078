"""Pages of answers as HTML: their words as paragraphs, their tables as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from specmodel.base.text import LAYOUT, SCREEN, TABLE, Columns
from specmodel.show.forms import Answer

if TYPE_CHECKING:
    from jinja2 import Template

_WIDE = 100_000
"""Columns of a screen on which no line is broken [-]."""
_TABLE = 160
"""Columns of a table that a page has room for, which scrolls where it has not [-]."""
_HELD = re.compile("\x00([0-9]+)\x00")
"""What stands in a text for a table."""
_PASTE = re.compile(r"(.*Paste into [^:(]*(?:\([^)]*\))?): (.+)")
_TYPED = re.compile(r"specmodel [a-z]+(?: --[a-z-]+ [^\s)]+)?|--([a-z][a-z-]+)")
"""Commands, which are for elsewhere, and options alone, of which the page has many."""
_NUMBER = re.compile("[0-9.]+")
_BEST = "speedup"
_SIZES = "batch size"

Link = Callable[[str], str]
"""The address of a batch size."""


@cache
def template(name: str) -> Template:
    """Return a template of the page."""
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("specmodel.show.web", "static")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals["code"] = code
    return environment.get_template(name)


def labels() -> dict[str, str]:
    """Return the labels of the page's fields, by name."""
    found: dict[str, str] = vars(template("labels.html").module)["labels"]
    return found


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


def in_words_of_page(text: str) -> Markup:
    """Return a text that names controls of the page where it names options of a command."""

    def shown(typed: re.Match[str]) -> str:
        name = (typed[1] or "").replace("-", "_")
        label = labels().get(name)
        return f"“{label}”" if label else f"<code>{typed[0]}</code>"

    return Markup(_TYPED.sub(shown, escape(text)))


@contextmanager
def _tables() -> Iterator[list[tuple[Columns, Collection[str]]]]:
    """Yield a list that collects the tables laid out meanwhile; no line is broken.

    In the text the index of each table stands between two NULs.
    """
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
    pasted: list[str] = []
    for i, line in enumerate(lines):
        held = _HELD.fullmatch(line)
        follows = lines[i + 1 : i + 2]
        if line.endswith("\\") or line[:1] in (" ", "{") or (follows and follows[0][:1] == "{"):
            pasted.append(line)
            continue
        found += code("\n".join(pasted))
        pasted = []
        if held:
            found += _table(*tables[int(held[1])], link)
        elif paste := _PASTE.fullmatch(line):
            found += Markup("<p>{}:</p>").format(in_words_of_page(paste[1])) + code(paste[2])
        elif line:
            kind = "warning" if line.startswith("Warning: ") else "said"
            found += Markup('<p class="{}">{}</p>').format(kind, in_words_of_page(line))
    return found + code("\n".join(pasted))


def code(text: str) -> Markup:
    """Return a text as a block with a copy button; empty for ""."""
    button = Markup('<button type="button" class="copy">Copy</button>')
    return button + Markup('<pre tabindex="0">{}</pre>').format(text) if text else Markup()


def _table(columns: Columns, left: Collection[str], link: Link | None) -> Markup:
    """Return a table as HTML; the best cell of each row, or the best speedup, is marked."""
    titles = [" ".join(title.replace("-\n", "-").split()) for title, _ in columns]
    words = [Markup(' class="words"' if title in left else "") for title, _ in columns]
    best = _best({title: cells for title, (_, cells) in zip(titles, columns, strict=True)})

    def shown(i: int, j: int, cell: str) -> Markup:
        if cell.startswith("*") or (i == best and titles[j] == _BEST):
            return Markup("<strong>{}<span> best</span></strong>").format(cell.lstrip("*"))
        if link and titles[j] == _SIZES and cell.isdigit():
            return Markup('<a href="{}">{}</a>').format(link(cell), cell)
        return escape(cell)

    rows = [
        _row([Markup('<th scope="col"') if t else Markup("<td") for t in titles], words, titles)
    ]
    starts = [Markup('<th scope="row"'), *[Markup("<td")] * (len(titles) - 1)]
    for i, cells in enumerate(zip(*(cells for _, cells in columns), strict=True)):
        rows.append(_row(starts, words, [shown(i, j, cell) for j, cell in enumerate(cells)]))
    whole = Markup("<table><thead>{}</thead><tbody>{}</tbody></table>")
    whole = whole.format(rows[0], Markup().join(rows[1:]))
    return Markup('<div class="wide" tabindex="0">{}</div>').format(whole)


def _row(starts: Iterable[Markup], ends: Iterable[Markup], cells: Iterable[str]) -> Markup:
    """Return a row of a table; a tag without an end is closed by the next."""
    told = (Markup("{}{}>{}").format(*each) for each in zip(starts, ends, cells, strict=True))
    return Markup("<tr>{}").format(Markup().join(told))


def _best(cells: dict[str, list[str]]) -> int | None:
    """Return the index of the row with the best speedup above 1 that fits, None for none."""
    numbers = [float(cell) if _NUMBER.fullmatch(cell) else 0.0 for cell in cells.get(_BEST, [])]
    fits = cells.get("fits", ["yes"] * len(numbers))
    able = [i for i, number in enumerate(numbers) if number > 1 and fits[i] == "yes"]
    return max(able, key=lambda i: numbers[i], default=None)
