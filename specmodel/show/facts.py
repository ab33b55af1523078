"""What an answer tells, as data: each fact by a name, the same in JSON, in Python and on pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from specmodel.base.classes import dataclass
from specmodel.base.ranges import ranges_text
from specmodel.prediction.table import Row, seconds
from specmodel.show.columns import duration, units


@dataclass(frozen=True)
class Fact:
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

    def __format__(self, form: str) -> str:
        """Return the value as text: "x" a speedup with its interval, "s" seconds, "at" by place.

        By default a number has three digits.
        """
        if form == "x":
            return f"{self.value:.2f}x{self.ends}"
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


Facts = Mapping[str, Fact]


def _text(value: Any, unit: str, form: str) -> str:
    if isinstance(value, dict):
        each, form = ("{1} at {0}", "") if form == "at" else ("{0} {1}", form)
        return "; ".join(each.format(name, _text(own, unit, form)) for name, own in value.items())
    if isinstance(value, tuple):
        return "-".join(dict.fromkeys(_text(end, unit, form) for end in value))
    if isinstance(value, list):
        between = " / " if isinstance(value[0], str) else ", "
        each = (ranges_text([v]) if isinstance(v, list) else _text(v, unit, form) for v in value)
        return between.join(each)
    if value is not None and (form == "s" or unit == "s"):
        return duration(value) if form != "s" and value >= 1 else seconds(value)
    return format(value, form or ".3g") if isinstance(value, float) else format(value, form)


AT = {"at": "batch_size", "where": "where", "chance": "speedup_chance"}
"""Where a speedup is picked, and how sure it is."""


def picked(name: str, row: Row, column: str, **others: str) -> dict[str, Fact]:
    """Return facts of a row: `name` of a column, with its interval, and `name`_key of others."""
    columns = {name: column} | {f"{name}_{key}": own for key, own in others.items()}
    of = units(columns.values())
    return {
        key: Fact(row.get(own), of.get(own, "-"), row.get(f"{own}_low"), row.get(f"{own}_high"))
        for key, own in columns.items()
    }


def lines(templates: Iterable[str], facts: Facts) -> list[str]:
    """Return the templates that have all their facts, filled in: ``"Most: {most:x}."``."""
    filled, have = [], known(facts.items())
    for template in templates:
        with suppress(KeyError):
            filled.append(template.format_map(have))
    return filled


def as_fields(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return facts for JSON, by name."""
    return {name: fact.to_dict() for name, fact in facts.items()}


def known(facts: Iterable[tuple[str, Fact]]) -> dict[str, Fact]:
    """Return facts by name, without those that have no value."""
    empty = (str, list, tuple, dict)
    return {
        name: fact
        for name, fact in facts
        if fact.value is not None and (fact.value or not isinstance(fact.value, empty))
    }
