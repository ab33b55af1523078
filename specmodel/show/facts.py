"""What an answer tells, as data: each fact by a name, the same in JSON, in Python and on pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from specmodel.base.classes import dataclass
from specmodel.base.ranges import ranges_text


@dataclass(frozen=True)
class Fact:
    """One thing that an answer tells.

    Parameters
    ----------
    value
        A number, a text, or a list; None where there is none.
    unit
        Unit of the value, "-" without one.
    low, high
        Ends of its central 80 % interval, None where it has none.
    """

    value: Any
    unit: str = "-"
    low: float | None = None
    high: float | None = None

    def __format__(self, form: str) -> str:
        """Return the value as text: of a list its numbers, and spans as ranges."""
        if not isinstance(self.value, list):
            return format(self.value, form)
        return ranges_text(v if isinstance(v, list) else (v, v) for v in self.value)

    @property
    def ends(self) -> str:
        """The interval as text, in brackets; "" where there is none."""
        return "" if self.low is None else f" (80 % interval {self.low:.2f} to {self.high:.2f})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fact for JSON, its interval where it has one."""
        ends = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"value": self.value, "unit": self.unit, **ends}


Facts = Mapping[str, Fact]


def as_fields(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return facts for JSON, by name."""
    return {name: fact.to_dict() for name, fact in facts.items()}


def known(facts: Iterable[tuple[str, Fact]]) -> dict[str, Fact]:
    """Return facts by name, without those that have no value."""
    return {name: fact for name, fact in facts if fact.value not in (None, "", [], ())}


def lines(templates: Iterable[str], facts: Facts) -> list[str]:
    """Return the templates that have all their facts, filled in: ``"Most: {most:.2f}x."``."""
    told = []
    for template in templates:
        with suppress(KeyError):
            told.append(template.format_map(facts))
    return told
