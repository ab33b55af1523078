"""Checks of the tables that figures draw, and the lines that a table holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pandas as pd

from specmodel.core.base.errors import InputError, in_one_line
from specmodel.core.base.tables import as_numbers, need_columns
from specmodel.core.prediction.columns import COLUMN_UNITS, with_interval
from specmodel.show.columns import by_name
from specmodel.show.glossary import TABLES
from specmodel.show.plots.style import MOST_LINES

ARGUMENT = "table"
"""Name that errors carry, a column after a dot."""

POINT = ("batch_size", "draft_length", "context_length")
"""Columns that tell points of a prediction apart."""

GRAPHS = "max_graph_batch_size"
"""Column of the batch size up to which CUDA graphs hold a row's steps."""

_MEMORY = "max_batch_size"
"""Column of the batch size up to which a row's requests fit in memory."""

MEASURED = "measured"
"""Column of what was measured of the quantity of a figure."""

SPREAD = "spread"
"""Column of the standard deviation of what was measured."""

LARGEST_DRAWN = 1e100
"""Magnitude from which the arithmetic of axes overflows [-]."""

SMALLEST_DRAWN = 1e-100
"""Least number that a logarithmic axis can show [-]."""

TEXT = (
    *("alternative", "target", "drafter", "hardware", "engine", "stack", "model", "policy"),
    *("analysis", "input", "output", "quantity", "term", "pass", "component", "kind", "dtype"),
    *("phase", "limited_by"),
)
"""Columns that are read as text even if they look like numbers."""

Names: TypeAlias = Sequence[str]
Lines: TypeAlias = list[tuple[str, pd.DataFrame]]
"""Names of lines with their points."""

AXES = TABLES["axes"]
_UNITS = {"token": "tokens", "request": "requests", "s": "ms", "token/s": "tokens/s", "B": "B"}
_NEVER_NEGATIVE = (SPREAD, "time")
"""Columns of numbers from 0: others may fall below, or have axes that say so themselves."""
RATIOS = {"speedup": "×", "utility": "×", "target_efficiency": ""}
_LAST = ("draft_length", "verify_tokens", "tokens_per_step")
"""Columns that tell lines apart only if nothing else does."""
_RESULTS = {
    *COLUMN_UNITS,
    *("prefill_time", "fits", "tpot_plain", "throughput_plain", "throughput_per_gpu"),
    *("best_speedup", "num_tokens", MEASURED, SPREAD),
} - {"context_length"}


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
    memory = [_MEMORY] if _MEMORY in table and "fits" not in table else []
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
    """Refuse more lines, bars or rows than a reader can tell apart."""
    if found > most:
        refuse(f"{found} {what}", f"at most {most}: choose rows (--where)")


def need_single(table: pd.DataFrame, *names: str) -> None:
    """Refuse a table with several values of a column of which a figure shows one."""
    for name in names:
        if name in table and table[name].nunique(dropna=False) > 1:
            values = ", ".join(map(plain, table[name].unique()[:4]))
            refuse(values, "one value: choose its rows (--where)", name)


def need_distinct(table: pd.DataFrame, names: Names) -> None:
    """Refuse rows that are alike in all columns `names`, and rows that lack one of them."""
    for name in names:
        if table[name].isna().any():
            refuse("no value", "one in each row", name)
    doubled = table[table.duplicated(list(names))]
    if len(doubled):
        row = doubled.iloc[0]
        place = ", ".join(f"{words(name)} {plain(row[name])}" for name in names)
        expected = "one row: choose rows (--where), or add a column in which these rows differ"
        refuse(f"several rows at {place}", expected)


def parts(table: pd.DataFrame, names: Names, x: str, what: str) -> list[tuple[Any, pd.DataFrame]]:
    """Return for each line its values of `names`, and its points by rising `x`; at most six.

    `what` is the noun for lines in the error about too many.
    """
    groups = list(table.groupby(list(names), sort=False, dropna=False)) if names else [((), table)]
    need_at_most(MOST_LINES, len(groups), what)
    for _, part in groups:
        need_distinct(part, [x])
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
    """Return what was measured of a quantity over the batch size, as its column ``value``."""
    name = MEASURED if MEASURED in table else quantity
    need_columns(table, ["batch_size", name], argument=MEASURED)
    rows = table.assign(batch_size=as_numbers(table["batch_size"]), value=as_numbers(table[name]))
    is_finite = np.isfinite(rows[["batch_size", "value"]].to_numpy()).all(axis=1)
    wrong = ~is_finite | (rows["batch_size"] <= 0)
    if rows.empty or wrong.any():
        value = "no rows" if rows.empty else rows.loc[wrong, ["batch_size", name]].iloc[0].tolist()
        raise InputError(MEASURED, value, "rows with a batch size above 0 and a number")
    return rows


def fits(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which points fit in memory, as far as the table says."""
    if "fits" in rows:
        return rows["fits"].astype(str).str.lower() != "false"
    return pd.Series(rows.get("batch_size", 0.0) <= rows.get(_MEMORY, np.inf), index=rows.index)


def targets(table: pd.DataFrame) -> dict[str, float]:
    """Return the targets in the columns of a table, by "TPOT" and "TTFT" [s]."""
    told = {"TPOT": "tpot_target", "TTFT": "ttft_target"}
    columns = {words: table[name] for words, name in told.items() if name in table}
    return {words: float(c.iloc[0]) for words, c in columns.items() if c.notna().all()}


def titled(names: Names) -> str:
    """Return columns as an axis or a legend's title says them, with their units."""
    units = {name: RATIOS.get(name, _UNITS.get(unit(name), "")) for name in names}
    ends = {name: f" ({unit})" if unit and unit not in name else "" for name, unit in units.items()}
    return ", ".join(f"{words(name)}{end}" for name, end in ends.items())


def unit(name: str) -> str:
    """Return the unit of a column, "-" for one that no answer has."""
    known = by_name()
    return known[name].unit if name in known else "-"


def words(name: str) -> str:
    """Return the field's name of a column or input, else its own: blanks for "_", ": " for "."."""
    return AXES.get(name) or in_one_line(name.replace("_", " ").replace(".", ": "))


def plain(value: object) -> str:
    """Return a number or text as a label shows it."""
    return f"{value:.6g}" if isinstance(value, float) else in_one_line(str(value))


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
