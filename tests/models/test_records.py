"""Records: frozen, built in Python as they are, and checked at the door where users' files come in.

A fault is told in one line that names the table and the key.
"""

import math
import re
import tomllib
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import pytest
from msgspec import Meta, field
from msgspec.structs import replace
from printed import refused
from rows import each_row, faults

from specmodel import InputError
from specmodel.core.base import Record, as_table, build
from specmodel.core.base.bounds import Day, Finite
from specmodel.core.base.records import toml_text, unchecked

Length = Annotated[float, Meta(gt=0, le=10)]


class Square(Record, frozen=True, kw_only=True, tag_field="kind", tag="square"):
    side: Length


class Disc(Record, frozen=True, kw_only=True, tag_field="kind", tag="disc"):
    radius: Length
    hole: Length | None = None

    def __post_init__(self):
        if self.hole and self.hole >= self.radius:
            raise InputError("hole", self.hole, f"less than radius = {self.radius:g}")

    @cached_property
    def area(self):
        return math.pi * (self.radius**2 - (self.hole or 0) ** 2)


Part = Square | Disc


class Drawing(Record, frozen=True, kw_only=True):
    hidden = ("secrets",)

    schema_version: Literal[1] = 1
    name: Annotated[str, Meta(min_length=3)]
    day: Day = "2026-01-31"
    copies: Annotated[int, Meta(ge=1, lt=100)] = 1
    is_filled: bool = False
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]
    origin: tuple[Finite, Finite] = (0.0, 0.0)
    widths: Annotated[list[Length], Meta(min_length=0, max_length=2)] = field(default_factory=list)
    frame: Square | None = None
    pens: dict[Literal["thin", "thick"], Length] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)


TEXT = """
name = "House"
parts = [{kind = "square", side = 3}, {kind = "disc", radius = 1.5, hole = 1.0}]
origin = [1, 2.5]
pens = {thin = 0.5}
secrets = ["a key"]
"""
TABLE = tomllib.loads(TEXT)
HOUSE = Drawing(
    name="House", parts=(Square(side=3.0), Disc(radius=1.5, hole=1.0)), origin=(1.0, 2.5),
    pens={"thin": 0.5}, secrets=["a key"],
)  # fmt: skip


def test_a_table_becomes_the_record_that_code_builds():
    read = build(Drawing, TABLE, "drawing")
    assert read == HOUSE
    assert type(read.parts[0].side) is float  # 3 in the file
    assert build(Drawing, HOUSE, "drawing") is HOUSE
    assert build(Drawing, TABLE | {"parts": HOUSE.parts}, "drawing") == HOUSE


@each_row(("changes", "message"), faults("records"))
def test_a_fault_is_one_line_with_argument_key_and_value(changes, message):
    refused("^" + re.escape(f"drawing{message}"), build, Drawing, TABLE | changes, "drawing")


def test_what_is_missing_or_no_table_is_named():
    for table, argument, message in (
        ({"parts": [{"kind": "disc"}]}, "drawing", r"\.parts\[0\]\.radius: got None; .*this field"),
        ({}, "drawing", r": got {}; .* name, parts too$"),
        ({"nam": "House"}, "drawing", r"\.nam: got 'House'; .* name; missing: name, parts$"),
        ([], "drawing", r": got \[\]; expected a table"),
        (TABLE | {"name": 1}, "", r"name: got 1; "),
    ):
        refused(f"^{argument}{message}", build, Drawing, table, argument)


def test_a_record_cannot_be_changed_but_copied():
    with pytest.raises(AttributeError):
        HOUSE.name = "Mine"
    disc = HOUSE.parts[1]
    assert disc.area == pytest.approx(math.pi * 1.25)
    assert replace(disc, hole=None).area == pytest.approx(math.pi * 2.25)
    refused(r"^hole: got 2\.0; expected less than radius = 1\.5", replace, disc, hole=2.0)


def test_an_unchecked_copy_may_hold_arrays_and_forgets_what_was_computed():
    disc, radii = HOUSE.parts[1], np.array([0.5, 2.0])
    assert disc.area > 0
    drawn = unchecked(disc, {"radius": radii})
    np.testing.assert_allclose(drawn.area, np.pi * (radii**2 - 1))
    assert (disc.radius, drawn.hole) == (1.5, 1.0)


def test_changes_pass_the_door_and_leave_out_what_is_hidden():
    wider = HOUSE.with_changes("drawing", {"pens.thick": 2, "frame": {"side": 9}})
    pens = {"thin": 0.5, "thick": 2.0}
    assert wider == replace(HOUSE, pens=pens, frame=Square(side=9.0), secrets=[])
    assert HOUSE.with_changes("drawing", {}) is HOUSE
    expected = r"^drawing\.pen\.thick: got 2; expected a field like pens"
    refused(expected, HOUSE.with_changes, "drawing", {"pen.thick": 2})


def test_a_record_is_written_as_it_is_read():
    assert "secrets" not in as_table(HOUSE)
    assert build(Drawing, as_table(HOUSE), "drawing") == replace(HOUSE, secrets=[])
    assert build(Drawing, tomllib.loads(toml_text(HOUSE)), "drawing") == replace(HOUSE, secrets=[])
    assert toml_text(HOUSE.parts[1], "a.b") == '\n[a.b]\nkind = "disc"\nradius = 1.5\nhole = 1.0'
    assert toml_text(Drawing(name="Bare", parts=()), "a") == '\n[a]\nname = "Bare"\nparts = []'
