"""What an answer tells, as data: each fact by a name, the same in JSON, in Python and on pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from specmodel.base.classes import dataclass
from specmodel.base.ranges import ranges_text
from specmodel.prediction.table import seconds
from specmodel.show.columns import duration


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
        """Return the value as text: by default a time or number with three digits, or ranges."""
        return _text(self.value, self.unit, form)

    @property
    def ends(self) -> str:
        """The interval as text, in brackets; "" where there is none."""
        ends = [_text(end, self.unit, ".2f" * (self.unit == "-")) for end in (self.low, self.high)]
        return "" if self.low is None else " (80 % interval {} to {})".format(*ends)

    def to_dict(self) -> dict[str, Any]:
        """Return the fact for JSON, its interval where it has one."""
        ends = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"value": self.value, "unit": self.unit, **ends}


def _text(value: Any, unit: str, form: str) -> str:
    if isinstance(value, list):
        return ", ".join(ranges_text([v]) if isinstance(v, list) else f"{v:g}" for v in value)
    if unit == "s" and value is not None:
        return duration(value) if value >= 1 else seconds(value)
    return format(value, form or ".3g") if isinstance(value, float) else str(value)


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
