"""What an answer tells, as data: each fact by a name, the same in JSON, in Python and on pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from specmodel.base.classes import dataclass
from specmodel.prediction.table import Row, seconds
from specmodel.show.columns import units


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

    def to_dict(self) -> dict[str, Any]:
        """Return the fact for JSON, its interval where it has one."""
        ends = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"value": self.value, "unit": self.unit, **ends}

    def __format__(self, form: str) -> str:
        """Return the value as text: "x" a speedup with its interval, "s" seconds, "at" by place."""
        if form != "x":
            return _text(self.value, form)
        ends = "" if self.low is None else f" (80 % interval {self.low:.2f} to {self.high:.2f})"
        return f"{self.value:.2f}x{ends}"


Facts = Mapping[str, Fact]


def _text(value: Any, form: str) -> str:
    if isinstance(value, dict):
        each, form = ("{1} at {0}", "") if form == "at" else ("{0} {1}", form)
        return "; ".join(each.format(name, _text(own, form)) for name, own in value.items())
    if isinstance(value, list):
        return (" / " if isinstance(value[0], str) else ", ").join(_text(v, form) for v in value)
    if isinstance(value, tuple):
        return "-".join(dict.fromkeys(_text(end, form) for end in value))
    if form == "s":
        return seconds(value)
    return value if isinstance(value, str) else format(value, form)


AT = {"at": "batch_size", "where": "where", "chance": "speedup_chance"}
"""Where a speedup is picked, and how sure it is."""


def picked(name: str, row: Row, column: str, **others: str) -> dict[str, Fact]:
    """Return facts of a row: `name` of a column, with its interval, and `name`_key of others."""
    columns = {name: column} | {f"{name}_{key}": own for key, own in others.items()}
    known = units(columns.values())
    return {
        key: Fact(row.get(own), known.get(own, "-"), row.get(f"{own}_low"), row.get(f"{own}_high"))
        for key, own in columns.items()
    }


def told(templates: Iterable[str], facts: Facts) -> list[str]:
    """Return the templates filled with facts, without those whose facts are not all known."""
    lines, facts = [], known(facts.items())
    for template in templates:
        with suppress(KeyError):
            lines.append(template.format_map(facts))
    return lines


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
