"""A replay of draft-length policies in all forms."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from specmodel.base.text import align, wrap
from specmodel.base.units import format_si
from specmodel.prediction.table import Form, Row, columns_of, fitted
from specmodel.show.forms import Answer, plain_fields, records
from specmodel.show.report import assumed_text

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.replay import ReplayTimes

_HINDSIGHT = ("best-fixed", "greedy", "oracle")
_CELLS: dict[str, Form] = {
    "speedup": "{speedup:.3f}",
    "95 %": "{speedup_low:.2f}-{speedup_high:.2f}",
    "slow-\ndown": "{slowdown:.0%}",
    "tokens\na step": "{tokens_per_step:.2f}",
    "drafted\na step": "{drafted_tokens_per_step:.2f}",
    "in\ntests": "{test_share:.0%}",
    "TPOT\nmedian": lambda row: format_si(row["tpot_p50"], "s"),
    "95th": lambda row: format_si(row["tpot_p95"], "s"),
    "regret": "{regret:.0%}",
}
"""Columns of the table for people."""
_SPARE = ("95th", "drafted\na step", "TPOT\nmedian", "slow-\ndown", "in\ntests", "tokens\na step")
"""Columns that are dropped where the table is too wide, in this order."""


def answer(said: dict[str, Any], times: ReplayTimes, summary: pd.DataFrame) -> Answer:
    """Return a replay in all forms; `said` are its heading, assumptions and warnings."""
    rows = records(summary)
    return Answer(
        page=lambda: _page(said, times, rows),
        fields=lambda: said | {"step_times": plain_fields(times), "policies": rows},
        rows=lambda: rows,
    )


def _page(said: dict[str, Any], times: ReplayTimes, rows: list[Row]) -> str:
    """Return the page for people: first the relative step times, which decide."""
    costs = ", ".join(f"{cost:.2f}" for cost in times.step_time / times.forward_time)
    plain = format_si(times.forward_time, "s")
    line = f"A plain pass takes {plain}; steps that verify 0, 1, ... draft tokens: {costs} of it."
    sections = ["\n".join([_fill(said["heading"]), wrap(line), _verdict(rows)]), _table(rows)]
    values = said["assumptions"].items()
    assumed = {name: f"{v:g}" if isinstance(v, float) else v for name, v in values}
    return "\n\n".join([*sections, assumed_text(assumed)])


def _verdict(rows: list[Row]) -> str:
    """Say which policy did best, and how Cascade did if it was there."""
    rows = [row for row in rows if row["policy"].split(":")[0] not in _HINDSIGHT]
    if not rows:
        return "Policies that know the trace only: bounds, nothing to deploy."
    best = max(rows, key=lambda row: row["speedup"])
    text = f"Best: {best['policy']}, {best['speedup']:.2f}x."
    if best["speedup"] <= 1:
        text = "Speculation does not pay under any of these policies."
    for row in rows:
        if row["policy"] == "cascade":
            told = " Cascade: {speedup:.2f}x, {test_share:.0%} of its steps in tests."
            text += told.format_map(row)
    return _fill(text)


def _table(rows: list[Row]) -> str:
    """Return a row for each policy, in at most 80 columns."""
    labels = _labels(row["policy"] for row in rows)
    forms: dict[str, Form] = {"policy": lambda row: labels[row["policy"]], **_CELLS}
    if all(row["regret"] is None for row in rows):
        del forms["regret"]
    columns, _ = fitted(columns_of(rows, forms.items()), _SPARE)
    notes = [_fill(f"{label}: {name}") for name, label in labels.items() if label != name]
    return "\n".join([align(columns, left=("policy",)), *notes])


def _labels(names: Iterable[str], width: int = 20) -> dict[str, str]:
    """Return the labels of policies; long names get a number that a note explains."""
    labels = {name: name for name in names}
    for number, name in enumerate((name for name in labels if len(name) > width), start=1):
        mark = f" [{number}]"
        labels[name] = name.split(":")[0][: width - len(mark)] + mark
    return labels


def _fill(text: str) -> str:
    """Wrap text with names that the user typed; longer words than a line are cut."""
    return textwrap.fill(text, 80, break_on_hyphens=False)
