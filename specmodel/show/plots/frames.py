"""Check the tables that figures draw, and find the lines in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pandas as pd

from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import as_numbers, need_columns
from specmodel.core.prediction.columns import COLUMN_UNITS, with_interval
from specmodel.show.labels import plain, titled, words
from specmodel.show.plots.style import MOST_LINES

ARGUMENT = "table"
"""Argument that errors name; the name of a column follows after a dot."""

POINT = ("batch_size", "draft_length", "context_length")
"""Columns that identify a point of a prediction."""

MEMORY = "max_batch_size"
"""Column of the largest batch size that fits in memory at a row."""

GRAPHS, PLAIN_GRAPHS = "max_graph_batch_size", "max_graph_batch_size_plain"
"""Columns of the largest batch size that CUDA graphs cover, with drafts and without."""

MEASURED, SPREAD = "measured", "spread"
"""Columns of measured values of a figure's quantity, and of their standard deviation."""

TEXT = (
    *("alternative", "target", "drafter", "hardware", "engine", "stack", "model", "policy"),
    *("analysis", "input", "output", "quantity", "term", "pass", "component", "kind", "dtype"),
    *("phase", "limited_by"),
)
"""Columns that are read as text even if they look like numbers."""

LARGEST_DRAWN = 1e100
"""Magnitude from which the arithmetic of axes overflows [-]."""

SMALLEST_DRAWN = 1e-100
"""Smallest number that a logarithmic axis can show [-]."""

Names: TypeAlias = Sequence[str]
Lines: TypeAlias = list[tuple[str, pd.DataFrame]]
"""Names of lines with their points."""

_LAST = ("draft_length", "verify_tokens", "tokens_per_step")
"""Columns that separate lines only if no other column does."""
_RESULTS = {
    *COLUMN_UNITS,
    *("prefill_time", "fits", "tpot_plain", "throughput_plain", "throughput_per_gpu"),
    *("best_speedup", "num_tokens", MEASURED, SPREAD),
} - {"context_length"}
_NEVER_NEGATIVE = (SPREAD, "time")
"""Columns that must not be negative; other columns may be, or have axes that check it."""


def refuse(found: object, expected: str, column: str = "") -> NoReturn:
    """Refuse a table, or one of its columns."""
    raise InputError(f"{ARGUMENT}.{column}" if column else ARGUMENT, found, expected)


def checked(
    table: pd.DataFrame, numbers: Names, texts: Names = (), may_lack: Names = ()
) -> pd.DataFrame:
    """Return a table with `numbers` as floats; refuse missing columns, no rows and bad numbers."""
    need_columns(table, [*numbers, *texts], argument=ARGUMENT)
    if table.empty:
        refuse("no rows", "at least one row")
    found = {}
    memory = [MEMORY] if MEMORY in table and "fits" not in table else []
    for name in dict.fromkeys([*numbers, *memory]):
        values = as_numbers(table[name])
        least = 0 if name in _NEVER_NEGATIVE else -LARGEST_DRAWN
        wrong = ~((values >= least) & (values < LARGEST_DRAWN))
        if name in may_lack:
            wrong &= table[name].notna()
        if wrong.any():
            low = " of at least 0" if least == 0 else ""
            refuse(table[name][wrong].tolist()[0], f"a number{low} below {LARGEST_DRAWN:g}", name)
        found[name] = values
    return table.assign(**found).reset_index(drop=True)


def need_positive(table: pd.DataFrame, *names: str) -> None:
    """Refuse numbers that a logarithmic axis cannot show."""
    for name in names:
        wrong = table[name] < SMALLEST_DRAWN
        if wrong.any():
            refuse(float(table[name][wrong].iloc[0]), f"above 0, {SMALLEST_DRAWN:g} or more", name)


def need_at_most(most: int, found: int, what: str) -> None:
    """Refuse more lines, bars or rows than a reader can distinguish."""
    if found > most:
        refuse(f"{found} {what}", f"at most {most}: choose rows (--where)")


def need_single(table: pd.DataFrame, *names: str) -> None:
    """Refuse several values in a column of which a figure shows one value."""
    for name in names:
        if name in table and table[name].nunique(dropna=False) > 1:
            values = ", ".join(map(plain, table[name].unique()[:4]))
            refuse(values, "one value: choose its rows (--where)", name)


def need_distinct(table: pd.DataFrame, names: Names) -> None:
    """Refuse rows that agree in all columns `names`, and rows without a value in one of them."""
    for name in names:
        if table[name].isna().any():
            refuse("no value", "one in each row", name)
    doubled = table[table.duplicated(list(names))]
    if len(doubled):
        row = doubled.iloc[0]
        place = ", ".join(f"{words(name)} {plain(row[name])}" for name in names)
        expected = "one row: choose rows with --where, or add the column in which they differ"
        refuse(f"several rows at {place}", expected)


def parts(table: pd.DataFrame, names: Names, x: str, what: str) -> list[tuple[Any, pd.DataFrame]]:
    """Return the values of `names` of each line, and its points in order of `x`; at most six.

    `what` names the lines in the error about too many lines.
    """
    groups = list(table.groupby(list(names), sort=False, dropna=False)) if names else [((), table)]
    need_at_most(MOST_LINES, len(groups), what)
    for _, part in groups:
        need_distinct(part, [x])
    return [(key, part.sort_values(x, kind="stable")) for key, part in groups]


def lines(table: pd.DataFrame, x: str, quantity: str) -> tuple[str, list[str], Lines]:
    """Return the title of the lines, the columns that separate them, and the lines.

    The points of a line are in order of `x`. If all names have the form "experts_per_token=8", the
    part before "=" becomes the title, and the values become the names.
    """
    names = _coordinates(table, x, quantity)
    found = parts(table, names, x, f"lines, by {', '.join(map(words, names))}")
    told, title = [", ".join(map(plain, key)) for key, _ in found], titled(names)
    starts = {name.partition("=")[0] for name in told}
    if len(starts) == 1 < len(told) and all("=" in name for name in told):
        title, told = words(*starts), [name.partition("=")[2] for name in told]
    return title, names, [(name, part) for name, (_, part) in zip(told, found, strict=True)]


def measured(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the measured values of a quantity as column ``value``, by batch size.

    An unknown batch size is missing.
    """
    name = MEASURED if MEASURED in table else quantity
    need_columns(table, ["batch_size", name], argument=MEASURED)
    rows = table.assign(batch_size=as_numbers(table["batch_size"]), value=as_numbers(table[name]))
    is_size = np.isfinite(rows["batch_size"]) & (rows["batch_size"] > 0)
    wrong = ~np.isfinite(rows["value"]) | ~(is_size | table["batch_size"].isna())
    if rows.empty or wrong.any():
        value = "no rows" if rows.empty else rows.loc[wrong, ["batch_size", name]].iloc[0].tolist()
        raise InputError(MEASURED, value, "rows with a batch size above 0 and a measured number")
    return rows


def holds(rows: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Return which rows are not false in a column; True for all if there is no such column."""
    return rows.get(name, pd.Series(True, rows.index)).astype(str).str.lower() != "false"


def fits(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which points fit in memory; True where the table has no such information."""
    is_above = rows.get("batch_size", 0.0) > rows.get(MEMORY, np.inf)
    return holds(rows.assign(fits=rows.get("fits", np.logical_not(is_above))), "fits")


def targets(table: pd.DataFrame) -> dict[str, float]:
    """Return the latency targets of a table by "TPOT" and "TTFT" [s]."""
    told = {"TPOT": "tpot_target", "TTFT": "ttft_target"}
    columns = {words: table[name] for words, name in told.items() if name in table}
    return {words: float(c.iloc[0]) for words, c in columns.items() if c.notna().all()}


def _coordinates(table: pd.DataFrame, x: str, quantity: str) -> list[str]:
    """Return the columns whose values separate lines, without columns that follow from others.

    Columns of `_LAST` separate lines only if points would coincide otherwise: the best draft
    lengths by batch size make one line.
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
