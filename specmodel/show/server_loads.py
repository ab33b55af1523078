"""The summary of a measured server: a line for each load, with its speedup over plain decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.base.text import wrap
from specmodel.prediction.table import Form, Row, seconds
from specmodel.show import forms

if TYPE_CHECKING:
    import pandas as pd

_MOST_NOTES = 5


def served_text(table: pd.DataFrame) -> str:
    """Return the summary for people, with warnings from its notes."""
    rows = forms.records(table)
    plain = {_load(row): row["tpot_ms"] for row in rows if not row["draft_length"]}
    for row in rows:
        alone = plain.get(_load(row))
        row["speedup"] = alone and row["tpot_ms"] and alone / row["tpot_ms"]
    notes = [wrap(f"Warning: {row['id']}: {row['notes']}.") for row in rows if row["notes"]]
    more = len(notes) - _MOST_NOTES
    told = [*notes[:_MOST_NOTES], *([f"({more} more in the column notes)"] if more > 0 else [])]
    return "\n\n".join(filter(None, [forms.table(rows, _COLUMNS), "\n".join(told)]))


def _load(row: Row) -> tuple[int, int, int]:
    """Return what identifies a load, with and without speculation."""
    return row["concurrency"], round(row["prompt_length"]), row["output_length"]


def _time(name: str) -> Form:
    """Return the form of a column of milliseconds."""
    return lambda row: "-" if row[name] is None else seconds(row[name] / 1e3)


_COLUMNS: dict[str, Form] = {
    "draft\nlength": "{draft_length}",
    "requests\nat once": "{concurrency}",
    "tokens\nin/out": lambda row: "{1}/{2}".format(*_load(row)),
    "first\ntoken": _time("ttft_ms"),
    "\nTPOT": _time("tpot_ms"),
    "tokens\na step": "{tokens_per_step:.3g}",
    "\nstep": _time("step_ms"),
    "repeats\ndiffer": "{step_spread:.1%}",
    "\nspeedup": "{speedup:.2f}",
}
