"""Check the tables that figures draw, and find the lines in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import as_numbers, need_columns
from specmodel.core.prediction.columns import COLUMN_UNITS, with_interval
from specmodel.show import tables
from specmodel.show.labels import plain, titled, words
from specmodel.show.plots.style import MOST_LINES

POINT = ("batch_size", "draft_length", "context_length")
"""Columns that tell points of a prediction apart."""

GRAPHS, PLAIN_GRAPHS = "max_graph_batch_size", "max_graph_batch_size_plain"
"""Columns of the batch size up to which CUDA graphs hold a row's steps, and plain decoding's."""

MEASURED = "measured"
"""Column of what was measured of the quantity of a figure."""

TEXT = (
    *("alternative", "target", "drafter", "hardware", "engine", "stack", "model", "policy"),
    *("analysis", "input", "output", "quantity", "term", "pass", "component", "kind", "dtype"),
    *("phase", "limited_by"),
)
"""Columns that are read as text even if they look like numbers."""

Names: TypeAlias = Sequence[str]
Lines: TypeAlias = list[tuple[str, pd.DataFrame]]
"""Names of lines with their points."""

_LAST = ("draft_length", "verify_tokens", "tokens_per_step")
"""Columns that tell lines apart only if nothing else does."""
_RESULTS = {
    *COLUMN_UNITS,
    *("prefill_time", "fits", "tpot_plain", "throughput_plain", "throughput_per_gpu"),
    *("best_speedup", "num_tokens", MEASURED, tables.SPREAD),
} - {"context_length"}


def parts(table: pd.DataFrame, names: Names, x: str, what: str) -> list[tuple[Any, pd.DataFrame]]:
    """Return for each line its values of `names`, and its points by rising `x`; at most six.

    `what` is the noun for lines in the error about too many.
    """
    groups = list(table.groupby(list(names), sort=False, dropna=False)) if names else [((), table)]
    tables.need_at_most(MOST_LINES, len(groups), what)
    for _, part in groups:
        tables.need_distinct(part, [x])
    return [(key, part.sort_values(x, kind="stable")) for key, part in groups]


def lines(table: pd.DataFrame, x: str, quantity: str) -> tuple[str, list[str], Lines]:
    """Return what tells lines apart: a title, the columns, and each name with its points.

    Points are by rising `x`. Names such as "experts_per_token=8" that all start alike are values of
    one thing, which is then the title.
    """
    names = _coordinates(table, x, quantity)
    found = parts(table, names, x, f"lines, by {', '.join(map(words, names))}")
    told, title = [", ".join(map(plain, key)) for key, _ in found], titled(names)
    starts = {name.partition("=")[0] for name in told}
    if len(starts) == 1 < len(told) and all("=" in name for name in told):
        title, told = words(*starts), [name.partition("=")[2] for name in told]
    return title, names, [(name, part) for name, (_, part) in zip(told, found, strict=True)]


def measured(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return what was measured of a quantity over the batch size, as its column ``value``.

    The batch size is missing where it is not known.
    """
    name = MEASURED if MEASURED in table else quantity
    need_columns(table, ["batch_size", name], argument=MEASURED)
    rows = table.assign(batch_size=as_numbers(table["batch_size"]), value=as_numbers(table[name]))
    is_size = np.isfinite(rows["batch_size"]) & (rows["batch_size"] > 0)
    wrong = ~np.isfinite(rows["value"]) | ~(is_size | table["batch_size"].isna())
    if rows.empty or wrong.any():
        value = "no rows" if rows.empty else rows.loc[wrong, ["batch_size", name]].iloc[0].tolist()
        raise InputError(MEASURED, value, "rows with a batch size above 0 and a number")
    return rows


def holds(rows: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Return of which rows a column of truths does not say that it is false."""
    return rows.get(name, pd.Series(True, rows.index)).astype(str).str.lower() != "false"


def fits(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which points fit in memory, as far as the table says."""
    is_above = rows.get("batch_size", 0.0) > rows.get(tables.MEMORY, np.inf)
    return holds(rows.assign(fits=rows.get("fits", np.logical_not(is_above))), "fits")


def targets(table: pd.DataFrame) -> dict[str, float]:
    """Return the targets in the columns of a table, by "TPOT" and "TTFT" [s]."""
    told = {"TPOT": "tpot_target", "TTFT": "ttft_target"}
    columns = {words: table[name] for words, name in told.items() if name in table}
    return {words: float(c.iloc[0]) for words, c in columns.items() if c.notna().all()}


def _coordinates(table: pd.DataFrame, x: str, quantity: str) -> list[str]:
    """Return the columns whose values separate lines, without those that follow from others.

    Columns of `_LAST`, such as the draft length, count only if points would else coincide: the best
    draft lengths by batch size are one line. The same holds for tokens per step, where acceptance
    was not given as a rate.
    """
    results = {part for name in _RESULTS for part in with_interval(name)}
    inputs = [name for name in map(str, table) if name not in {x, quantity, *results}]
    chosen: list[str] = []
    num_lines = 1
    for name in [*inputs, *(name for name in _LAST if name in table)]:
        if name in _LAST and not table.duplicated([*chosen, x]).any():
            break
        if len(table.drop_duplicates([*chosen, name])) > num_lines:
            chosen.append(name)
            num_lines = len(table.drop_duplicates(chosen))
    return sorted(chosen, key=[*table].index)
