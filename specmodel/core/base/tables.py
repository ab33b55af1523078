"""Read tables of measurements from files, and check the numbers of their columns."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from specmodel.core.base.errors import InputError, import_extra
from specmodel.core.base.files import check_readable, refusing
from specmodel.core.base.units import LARGEST_NUMBER, FloatArray

if TYPE_CHECKING:
    import pandas as pd

ARGUMENT = "measurements"
"""Default name of a table in errors; the name of a column follows after a dot."""

MOST_BYTES = 4_000_000_000
"""Maximum memory of a Parquet table, at 8 bytes per value [B]."""
MAX_COLUMNS = 1000
"""Maximum columns of a table [-]."""


_WELL_FORMED = "a well-formed CSV or Parquet table"
_LONGEST_HEADER = 1_000_000
"""Maximum length of the line with column names [B]."""


def read_table(
    path: str | Path,
    text_columns: Sequence[str],
    argument: str = ARGUMENT,
    *,
    comments: bool = True,
    most: int | None = None,
) -> pd.DataFrame:
    """Return the unchecked rows of a CSV or Parquet file; the suffix decides which.

    `text_columns` are text even if they look like numbers, such as a version 1.10. With `comments`,
    text after # in a CSV is ignored. `most` is the maximum number of rows to read, None for all.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(argument, str(path), "a .csv or .parquet file")
    check_readable(path, argument, "CSV or Parquet")
    with refusing(path, argument, "a readable CSV or Parquet file"), path.open("rb") as file:
        if path.suffix == ".csv":
            return parse_csv(file, text_columns, str(path), argument, comments=comments, most=most)
        with refusing(path, argument, _WELL_FORMED):
            return _read_parquet(file, path, argument)[:most]


def parse_csv(
    stream: IO[bytes],
    text_columns: Sequence[str],
    name: str,
    argument: str = ARGUMENT,
    *,
    comments: bool = True,
    most: int | None = None,
) -> pd.DataFrame:
    """Return the first `most` rows of a stream of CSV; errors show `name` as the value."""
    import pandas as pd

    with refusing(name, argument, _WELL_FORMED):
        if not stream.seekable():
            stream = io.BytesIO(stream.read())
        _check_header(stream, name, argument)
        stream.seek(0)
        return pd.read_csv(
            stream,
            comment="#" if comments else None,
            dtype=dict.fromkeys(text_columns, str),
            low_memory=False,
            compression=None,
            nrows=most,
        )


def _read_parquet(file: IO[bytes], path: Path, argument: str) -> pd.DataFrame:
    """Return a table if it needs at most `MOST_BYTES`, according to its metadata."""
    import pandas as pd

    expected = "CSV, or pyarrow to be installed:"
    parquet = import_extra("pyarrow.parquet", "datasets", argument, str(path), expected)
    found = parquet.read_metadata(file)  # Arrow accepts only paths in UTF-8
    size = 8 * found.num_rows * found.num_columns
    if size > MOST_BYTES:
        shape = f"{found.num_rows:,} rows of {found.num_columns} columns"
        expected = f"at most {MOST_BYTES / 1e9:.0f} GB in memory, not {shape}"
        raise InputError(argument, str(path), expected)
    return pd.read_parquet(file)


def _check_header(stream: IO[bytes], name: str, argument: str) -> None:
    """Refuse duplicate or too many names, which pandas would take hours to number."""
    while line := stream.readline(_LONGEST_HEADER):
        if len(line) == _LONGEST_HEADER:
            raise ValueError(f"a line of more than {_LONGEST_HEADER:,} bytes before any row")
        text = line.decode("utf-8-sig").partition("#")[0].strip()
        if text:
            try:
                columns = next(csv.reader([text]))
            except csv.Error as error:
                raise ValueError(str(error)) from None
            if len(columns) > MAX_COLUMNS:
                raise InputError(argument, name, f"a table of at most {MAX_COLUMNS} columns")
            for column, count in Counter(columns).items():
                if count > 1 and column:
                    raise InputError(argument, column, "each column once")
            return


def need_columns(
    table: pd.DataFrame, names: Sequence[str], of: str = "", argument: str = ARGUMENT
) -> None:
    """Refuse a table with missing or duplicate columns; errors show `of` or all columns."""
    doubled = table.columns[table.columns.duplicated()]
    if len(doubled):
        raise InputError(argument, str(doubled[0]), "each column once")
    missing = [name for name in names if name not in table]
    if missing:
        expected = f"columns {', '.join(missing)} as well"
        raise InputError(argument, of or list(table.columns), expected)


def as_number(value: Any) -> float:
    """Return the number in a cell, NaN if it is not a number."""
    try:
        return float(value.encode("ascii") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def as_numbers(column: pd.Series[Any]) -> pd.Series[float]:
    """Return a column as numbers, with NaN for other values."""
    import pandas as pd

    try:
        return pd.to_numeric(column, errors="coerce").astype(float)
    except (TypeError, OverflowError):  # a list, or an integer beyond all floats
        return pd.to_numeric(column.astype(str), errors="coerce").astype(float)


def numbers(
    table: pd.DataFrame,
    name: str,
    *,
    above: float = 0.0,
    minimum: float = -np.inf,
    maximum: float = LARGEST_NUMBER,
    whole: bool = False,
    of: str = "",
    argument: str = ARGUMENT,
) -> FloatArray:
    """Return a column as finite numbers within bounds, of which `above` is open [-].

    An error names the column and the first invalid value; `of` names the owner of the bounds.
    """
    values: FloatArray = np.asarray(as_numbers(table[name]), np.float64)
    usable = np.isfinite(values) & (values > above) & (values >= minimum) & (values <= maximum)
    if whole:
        usable &= values == np.floor(values)
    if usable.all():
        return values
    culprit = table[name].to_numpy()[~usable][0]
    culprit = culprit.item() if isinstance(culprit, np.generic) else culprit
    kind = "a whole number" if whole else "a number"
    low = f"above {above:g}" if above > minimum else f"of at least {minimum:g}"
    bounds = f"{kind} {low} and at most {maximum:g}"
    raise InputError(f"{argument}.{name}", culprit, f"{bounds}{of and f' in {of}'}")
