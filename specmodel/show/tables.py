"""Checks of the tables that figures draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeAlias

import pandas as pd

from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import as_numbers, need_columns
from specmodel.show.labels import plain, words

ARGUMENT = "table"
"""Name that errors carry, a column after a dot."""

MEMORY = "max_batch_size"
"""Column of the batch size up to which a row's requests fit in memory."""

SPREAD = "spread"
"""Column of the standard deviation of what was measured."""

LARGEST_DRAWN = 1e100
"""Magnitude from which the arithmetic of axes overflows [-]."""

SMALLEST_DRAWN = 1e-100
"""Least number that a logarithmic axis can show [-]."""

Names: TypeAlias = Sequence[str]

_NEVER_NEGATIVE = (SPREAD, "time")
"""Columns of numbers from 0: others may fall below, or have axes that say so themselves."""


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
        expected = "one row: choose rows with --where, or add the column in which they differ"
        refuse(f"several rows at {place}", expected)
