"""Draw the rooms of the package in one picture, and which room imports from which.

The rooms and their imports are read from the sources.
"""

import ast
from html import escape
from pathlib import Path
from textwrap import wrap

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import specmodel

PACKAGE = Path(specmodel.__file__).parent
FOLDERS = ("core", "calibrate")
"""Folders that contain several rooms; each other folder is one room."""
ROOMS = sorted(
    path.parent.relative_to(PACKAGE).as_posix()
    for path in (*PACKAGE.glob("*/__init__.py"), *PACKAGE.glob("*/*/__init__.py"))
    if path.parent.name not in FOLDERS and path.parent.parent.name in (PACKAGE.name, *FOLDERS)
)
ROW, WORDS, CELL, LETTERS = 38, 470, 26, 60
"""Height of a row, width of its text and width of a column of dots [pixels]; letters per line."""


def imported() -> dict[str, set[str]]:
    """Return the rooms by name, each with the other rooms from which it imports."""
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for room in ROOMS:
        for path in (PACKAGE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                place = str(getattr(node, "module", "")).replace(".", "/") + "/"
                found[room] |= {other for other in ROOMS if place.startswith(f"specmodel/{other}/")}
        found[room] -= {room}
    return found


def from_the_top(uses: dict[str, set[str]]) -> list[str]:
    """Return the rooms in an order in which each stands above all rooms from which it imports.

    If several rooms may come next, the room with the fewest users comes first.
    """
    left, order = dict(uses), []
    while left:
        free = [room for room in left if not any(room in uses[other] for other in left)]
        if not free:
            raise ValueError(f"imports go round among {sorted(left)}")
        users = {room: sum(room in others for others in uses.values()) for room in free}
        room = min(free, key=lambda one: (users[one], one))
        order.append(room)
        del left[room]
    return order


def drawing() -> str:
    """Return the picture as SVG: one row per room, with dots for the rooms that it imports."""
    uses = imported()
    order = from_the_top(uses)
    width, height = WORDS + CELL * len(order), ROW * (len(order) + 1)
    out = [
        f'<svg class="house" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'role="img" aria-label="Rooms of the package and what each imports from">'
    ]
    for row, room in enumerate(order):
        y, texts = ROW * row, (PACKAGE / room / "__init__.py").read_text(encoding="utf-8")
        told = (ast.get_docstring(ast.parse(texts)) or "").partition("\n\n")[0]
        told = told.replace("\n", " ").replace("`", "")
        out.append(f'<rect x="1" y="{y + 1}" width="{WORDS - 12}" height="{ROW - 4}" rx="3"/>')
        out.append(f'<text x="10" y="{y + 22}"><tspan class="room">{room}</tspan></text>')
        lines = wrap(told, LETTERS)
        for number, line in enumerate(lines):
            place = y + 29 - 7 * len(lines) + 14 * number
            out.append(f'<text x="150" y="{place}">{escape(line)}</text>')
        for column, other in enumerate(order):
            x = WORDS + CELL * column + CELL // 2
            if other == room:
                out.append(f'<text x="{x}" y="{y + 22}" class="own">{column + 1}</text>')
            elif other in uses[room]:
                out.append(f'<circle cx="{x}" cy="{y + 18}" r="5"/>')
    foot = f"{len(order)} rooms; a dot: the room of its row imports from the one numbered below it"
    out.append(f'<text x="10" y="{height - 8}">{foot}</text></svg>')
    return "\n".join(out)


class House(SphinxDirective):
    """Directive that puts the picture into a page."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", f'<div class="wide">{drawing()}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("house", House)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
