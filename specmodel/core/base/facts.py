"""Represent an answer as data: named facts, the same in JSON, in Python and on pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct


class Fact(Struct, frozen=True):
    """One thing that an answer tells.

    Parameters
    ----------
    value
        A number, a text, a list of these or of first and last values, or a dict; None for none.
    unit
        Unit of the value, "-" without one.
    low, high
        Ends of its central 80 % interval, None where it has none.
    """

    value: Any
    unit: str = "-"
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fact for JSON, its interval where it has one."""
        ends = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"value": self.value, "unit": self.unit, **ends}


Facts = Mapping[str, Fact]


def with_ends(row: Mapping[str, Any], column: str, unit: str = "-") -> Fact:
    """Return what a row says of a column, with the ends of its interval as far as it has them."""
    return Fact(row.get(column), unit, row.get(f"{column}_low"), row.get(f"{column}_high"))


def as_fields(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return facts for JSON, by name."""
    return {name: fact.to_dict() for name, fact in facts.items()}


def known(facts: Iterable[tuple[str, Fact]]) -> dict[str, Fact]:
    """Return facts by name, without those that have no value."""
    empty = (str, list, tuple, dict)
    has_value = ((name, fact) for name, fact in facts if fact.value is not None)
    return {n: fact for n, fact in has_value if not isinstance(fact.value, empty) or fact.value}
