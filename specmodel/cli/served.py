"""What a measured server did, as text: a line a load, beside the same load without speculation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from specmodel.base.text import Columns, align, wrap
from specmodel.show.report import seconds

if TYPE_CHECKING:
    import pandas as pd

_MOST_NOTES = 5


def served_text(table: pd.DataFrame) -> str:
    """Return the summary of a measured server for people, with what speaks against it."""
    rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
    plain = {_load(row): row["tpot_ms"] for row in rows if not row["draft_length"]}
    columns: Columns = [(title, list(map(show, rows))) for title, show in _COLUMNS]
    ratios = [plain.get(_load(row), float("nan")) / row["tpot_ms"] for row in rows]
    columns.append(("\nspeedup", ["-" if ratio != ratio else f"{ratio:.2f}" for ratio in ratios]))
    notes = [wrap(f"Warning: {row['id']}: {row['notes']}.") for row in rows if row["notes"]]
    return "\n\n".join(filter(None, [align(columns), "\n".join(_few(notes))]))


def _load(row: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return what two rows with and without speculation have in common."""
    return row["concurrency"], round(row["prompt_length"]), row["output_length"]


def _few(notes: list[str]) -> Iterator[str]:
    """Yield the first notes, and how many more there are."""
    yield from notes[:_MOST_NOTES]
    if len(notes) > _MOST_NOTES:
        yield f"({len(notes) - _MOST_NOTES} more in the column notes)"


def _time(milliseconds: float) -> str:
    return "-" if milliseconds != milliseconds else seconds(milliseconds / 1e3)


_COLUMNS: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
    ("draft\nlength", lambda row: f"{row['draft_length']}"),
    ("requests\nat once", lambda row: f"{row['concurrency']}"),
    ("tokens\nin/out", lambda row: "{1}/{2}".format(*_load(row))),
    ("first\ntoken", lambda row: _time(row["ttft_ms"])),
    ("\nTPOT", lambda row: _time(row["tpot_ms"])),
    ("tokens\na step", lambda row: f"{row['tokens_per_step']:.3g}"),
    ("\nstep", lambda row: _time(row["step_ms"])),
    ("repeats\ndiffer", lambda row: f"{row['step_spread']:.1%}"),
]
"""Titles of columns, and what stands in them."""
