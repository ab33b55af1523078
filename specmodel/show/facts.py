"""Facts as text: lines of a page, each a template that has all its facts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from specmodel.base.facts import (
    Fact as Fact,
    Facts as Facts,
    as_fields as as_fields,
    known as known,
)
from specmodel.base.ranges import ranges_text
from specmodel.prediction.table import seconds
from specmodel.show.columns import duration


class _Told(Fact):
    def __format__(self, form: str) -> str:
        """Return the value as text: by default a time or number with three digits, or ranges."""
        return _text(self.value, self.unit, form)

    @property
    def ends(self) -> str:
        """The interval as text, in brackets; "" where there is none."""
        ends = [_text(end, self.unit, ".2f" * (self.unit == "-")) for end in (self.low, self.high)]
        return "" if self.low is None else " (80 % interval {} to {})".format(*ends)


def _text(value: Any, unit: str, form: str) -> str:
    if isinstance(value, list):
        return ", ".join(
            ranges_text([(v[0], v[1])]) if isinstance(v, list) else f"{v:g}" for v in value
        )
    if unit == "s" and value is not None:
        return duration(value) if value >= 1 else seconds(value)
    return format(value, form or ".3g") if isinstance(value, float) else str(value)


def lines(templates: Iterable[str], facts: Facts) -> list[str]:
    """Return the templates that have all their facts, filled in: ``"Most: {most:.2f}x."``."""
    told, shown = [], {name: _Told(**vars(fact)) for name, fact in facts.items()}
    for template in templates:
        with suppress(KeyError):
            told.append(template.format_map(shown))
    return told
