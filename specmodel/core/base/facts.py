"""Represent an answer as named facts, which JSON, Python and pages share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct


class Fact(Struct, frozen=True):
    """One value of an answer.

    Parameters
    ----------
    value
        A number, a text, a list of these or of pairs of first and last, or a dict; None without a
        value.
    unit
        Unit of the value, "-" without one.
    low, high
        Ends of the central 80 % interval, None without an interval.
    """

    value: Any
    unit: str = "-"
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fact for JSON, with its interval if there is one."""
        ends = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"value": self.value, "unit": self.unit, **ends}


Facts = Mapping[str, Fact]


def with_ends(row: Mapping[str, Any], column: str, unit: str = "-") -> Fact:
    """Return a column of a row as a fact, with the ends of its interval if the row has them."""
    return Fact(row.get(column), unit, row.get(f"{column}_low"), row.get(f"{column}_high"))


def as_fields(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return facts by name, for JSON."""
    return {name: fact.to_dict() for name, fact in facts.items()}


def known(facts: Iterable[tuple[str, Fact]]) -> dict[str, Fact]:
    """Return facts by name, without facts that have no value."""
    empty = (str, list, tuple, dict)
    has_value = ((name, fact) for name, fact in facts if fact.value is not None)
    return {n: fact for n, fact in has_value if not isinstance(fact.value, empty) or fact.value}
