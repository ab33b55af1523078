"""Write lines of text: templates filled with facts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from html import escape
from typing import Any

from msgspec.structs import asdict

from specmodel.core.base.facts import Fact, Facts, as_fields, known, with_ends
from specmodel.core.base.ranges import ranges_text
from specmodel.core.prediction.table import Row, seconds
from specmodel.show.columns import duration, units

__all__ = ["AT", "Fact", "Facts", "as_fields", "in_words", "known", "lines", "picked", "with_ends"]


class _Shown(Fact, frozen=True):
    """A fact that templates can format."""

    def __format__(self, form: str) -> str:
        """Return the value as text, by default in three digits.

        The format "x" is a speedup with its interval, "s" seconds, and "at" values by place.
        """
        if form == "x":
            return f"{self.value:.2f}x{self.ends}"
        return _text(self.value, self.unit, form)

    @property
    def ends(self) -> str:
        """The interval as text in brackets; "" without one."""
        if self.low is None:
            return ""
        form = ".2f" * (self.unit == "-")
        low, high = (_text(end, self.unit, form) for end in (self.low, self.high))
        return f" (80 % interval {low} to {high})"


def in_words(fact: Fact, form: str) -> str:
    """Return a fact in a form such as ``{:.2f}x``, with its interval."""
    shown = _Shown(**asdict(fact))
    return form.format(shown) + shown.ends


def html(printed: Any) -> str:
    """Return the HTML of an answer for a notebook: its page, and a table of its facts.

    Parameters
    ----------
    printed
        The answer, such as a prediction.
    """
    facts = printed.facts.items() if printed.is_brief else ()
    rows = [f"<tr><th>{name}</th><td>{escape(in_words(of, '{}'))}</td></tr>" for name, of in facts]
    table = f"<details><summary>Facts</summary><table>{''.join(rows)}</table></details>"
    return f"<pre>{escape(str(printed))}</pre>{table if rows else ''}"


def _text(value: Any, unit: str, form: str) -> str:
    if isinstance(value, dict):
        pair, form = ("{1} at {0}", "") if form == "at" else ("{0} {1}", form)
        return "; ".join(pair.format(name, _text(own, unit, form)) for name, own in value.items())
    if isinstance(value, tuple):
        return "-".join(dict.fromkeys(_text(end, unit, form) for end in value))
    if isinstance(value, list):
        between = " / " if isinstance(value[0], str) else ", "
        ranges = (ranges_text([(v[0], v[1])]) if isinstance(v, list) else None for v in value)
        texts = zip(ranges, value, strict=True)
        return between.join(text or _text(each, unit, form) for text, each in texts)
    if value is not None and (form == "s" or unit == "s"):
        return duration(value) if form != "s" and value >= 1 else seconds(value)
    return format(value, form or ".3g") if isinstance(value, float) else format(value, form)


AT = {"at": "batch_size", "where": "where", "chance": "speedup_chance"}
"""Columns with the place of a speedup and its chance, by suffix of the fact."""


def picked(name: str, row: Row, column: str, **others: str) -> dict[str, Fact]:
    """Return a fact `name` for a column of a row, and facts `name`_key for other columns."""
    columns = {name: column} | {f"{name}_{key}": own for key, own in others.items()}
    of = units(columns.values())
    return {key: with_ends(row, own, of.get(own, "-")) for key, own in columns.items()}


def lines(templates: Iterable[str], facts: Facts) -> list[str]:
    """Return templates such as ``"Most: {most:x}."``, filled in; leave out those without a fact."""
    have = {name: _Shown(**asdict(fact)) for name, fact in known(facts.items()).items()}
    filled = []
    for template in templates:
        with suppress(KeyError):
            filled.append(template.format_map(have))
    return filled
