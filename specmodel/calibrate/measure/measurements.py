"""Read and check tables of measured kernels.

A row is a point or one of its repeats. Every table has ``component``, ``hardware``, ``stack``,
``version``, ``latency`` [s] and the columns of its components in `COLUMNS`; ``role`` is optional.

Repeats are replaced by their median. Disturbances only make repeats longer, and a few long repeats
change a mean but not a median. A table may also have a ``reference_latency`` for each repeat of a
``point``. This is the time of the reference of its ``group``, measured right before and after the
repeat. If the machine slows down, both become longer by the same factor. In such tables, the median
of the ratios is multiplied by the median reference of the group, which gives seconds again.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specmodel.calibrate.measure.kernels.suite import OTHERS
from specmodel.core.base.dtypes import check_dtype, names_of_fits
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import read_mapping
from specmodel.core.base.tables import ARGUMENT, need_columns, numbers, read_table
from specmodel.core.layers.kinds import kernel_kind

COMMON = ("component", "hardware", "stack", "version", "latency")  # columns of every table

_TABLES = read_mapping(Path(__file__).parent / "data/components.toml", "components")
_COMPONENTS, _DTYPE_OF = _TABLES["components"], _TABLES["dtype_of"]
DTYPES = tuple(_DTYPE_OF.values())
"""Columns that contain a dtype."""
STORED: dict[str, str] = {kind: _DTYPE_OF[kernel_kind(kind).follows] for kind in _COMPONENTS}
"""Column of the dtype that each component reads."""
COLUMNS = {
    kind: (*row["sizes"], *dict.fromkeys((STORED[kind], "activation_dtype")))
    for kind, row in _COMPONENTS.items()
}
"""Columns of each component: its sizes, the dtype of what it reads (weights, KV or state), and the
dtype of activations. Each dtype that is read has its own fit."""

DEFAULTS: dict[str, dict[str, int]] = {k: row.get("defaults", {}) for k, row in _COMPONENTS.items()}
"""Optional columns with their defaults."""

SHAPE = {kind: tuple(row["shape"]) for kind, row in _COMPONENTS.items()}
"""Columns that make a shape. All points of a shape are either fitted or judged."""

ROLES = ("fit", "spread", "judge", "fallback", "skip")
"""Roles of rows. "fit": fitted. "spread": the same shapes under another load, which only show how
far errors spread. "judge": other shapes, which judge the fit. "fallback": fallback kernels, which
are judged on request. "skip": rows that do not measure the kernel alone."""

COLD_SHARE = 1.5  # below this multiple of the last-level cache, weights or KV may stay in it [-]

_SIZE: dict[str, Any] = {"maximum": 1e12, "whole": True}
_BOUNDS: dict[str, dict[str, Any]] = _TABLES["bounds"]
"""Bounds of some columns; the others have the bounds `_SIZE`. With these bounds, products of sizes
do not overflow, and every kernel needs more than a picosecond [s] [-]."""


def read_measurements(path: str | Path) -> pd.DataFrame:
    """Return a checked table of measurements from a file.

    Parameters
    ----------
    path
        A CSV or Parquet file.
    """
    return check_measurements(read_table(path, (*COMMON[:-1], *DTYPES, "role")))


def check_measurements(table: pd.DataFrame) -> pd.DataFrame:
    """Check a table, replace repeats by their median, and add roles.

    Parameters
    ----------
    table
        Any number of components of one stack on one device.

    Returns
    -------
    pandas.DataFrame
        One row for each point, with ``role`` (by default "fit") and ``shape``: the sizes of its
        matrices as text, such as ``4096x1024``.
    """
    need_columns(table, COMMON)
    if table.empty:
        raise InputError("measurements", "0 rows", "at least one measured point")
    for name in ("hardware", "stack", "version"):
        values = sorted(map(str, table[name].unique()))
        if len(values) > 1:
            raise InputError(f"measurements.{name}", values, "the same value in all rows")
    need_known(table, "component", COLUMNS, also=OTHERS)
    count = int(table.duplicated().sum())
    if count:
        expected = "each measurement once; repeats of a measurement must differ in latency"
        raise InputError("measurements", f"{count} rows twice", expected)
    timed = table[table["note"].isna()] if "note" in table else table
    table = timed[~timed["component"].isin(OTHERS)]
    if table.empty:
        raise InputError("measurements", "0 rows of kernels", "at least one measured point")
    table = table if "role" in table else table.assign(role="fit")
    need_known(table, "role", ROLES)
    parts = table.groupby("component", sort=False)
    return pd.concat([_checked(str(kind), part) for kind, part in parts], ignore_index=True)


def need_known(
    table: pd.DataFrame, name: str, known: Iterable[str], *, also: Iterable[str] = ()
) -> None:
    """Raise an InputError if column `name` has values outside `known` and `also`.

    The error lists only `known`.
    """
    unknown = table[name][~table[name].isin([*known, *also])].to_numpy()
    if len(unknown):
        culprit = unknown[0].item() if isinstance(unknown[0], np.generic) else unknown[0]
        raise InputError(f"{ARGUMENT}.{name}", culprit, f"one of {', '.join(known)}")


def groups(table: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Return the kind, the name of the fit and the rows of each part that has its own fit."""
    return [
        (str(kind), str(name), rows)
        for kind, part in table.groupby("component", sort=True)
        for name, rows in part.groupby(_fitted_as(str(kind), part), sort=True)
    ]


def _fitted_as(kind: str, part: pd.DataFrame) -> pd.Series:
    """Return the name of the fit of each row: by its stored dtype and, for weights, activations."""
    stored, activation = part[STORED[kind]], part["activation_dtype"]
    if STORED[kind] != "weight_dtype":
        return stored
    names = [names_of_fits(*dtypes)[0] for dtypes in zip(stored, activation, strict=True)]
    return pd.Series(names, part.index)


def judged_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the role "judge", or the fitted rows if there are none."""
    judged = rows[rows["role"] == "judge"]
    return judged if len(judged) else rows[rows["role"] == "fit"]


def _checked(kind: str, part: pd.DataFrame) -> pd.DataFrame:
    """Check the columns of one component, and return medians of its repeats with their shapes."""
    of = f"rows of {kind}"
    need_columns(part, COLUMNS[kind], of)
    if kind == "experts" and "model_expert_size" not in part:
        part = part.assign(model_expert_size=part["expert_size"])
    part, optional = with_defaults(kind, part), DEFAULTS[kind]
    names = sorted({*COLUMNS[kind], *SHAPE[kind], *optional, "latency"} - {*DTYPES})
    found = {name: numbers(part, name, **_BOUNDS.get(name, _SIZE), of=of) for name in names}
    part = part.assign(**found)
    _check_rows(part[names])
    _check_dtypes(kind, part)
    key = ["component", "hardware", "stack", "version", "role", *COLUMNS[kind]]
    others = [name for name in (*optional, "model_expert_size", "distribution") if name in part]
    medians = _medians_of_repeats(part, key + others)
    sizes = medians[list(SHAPE[kind])].astype(int).astype(str).itertuples(index=False)
    return medians.assign(shape=["x".join(row) for row in sizes])


def with_defaults(kind: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a component with defaults in its optional columns."""
    filled = {
        name: table[name].where(table[name].notna(), value) if name in table else value
        for name, value in DEFAULTS[kind].items()
    }
    return table.assign(**filled)


def _check_rows(part: pd.DataFrame) -> None:
    """Raise an InputError if numbers of a component contradict each other."""
    for few, many in _TABLES["at_most"].items():
        over = part[part[few] > part[many]] if few in part and many in part else part.head(0)
        if len(over):
            culprit = float(over[few].iloc[0])
            raise InputError(f"{ARGUMENT}.{few}", culprit, f"at most {many} in the same row")
    if "includes_router" in part and part["includes_router"].nunique() > 1:
        raise InputError(f"{ARGUMENT}.includes_router", "0 and 1", "the same value in all rows")


def _medians_of_repeats(part: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Return one row for each point: medians of times or, with references, of ratios."""
    if "reference_latency" not in part:
        return part.groupby(key, dropna=False, sort=False)["latency"].median().reset_index()
    need_columns(part, ("point", "group"), "rows with reference_latency")
    for name in ("point", "group"):
        if part[name].isna().any():
            raise InputError(
                f"{ARGUMENT}.{name}", None, "a name in each row with reference_latency"
            )
    reference = pd.Series(numbers(part, "reference_latency"), part.index)
    part = part.assign(latency=part["latency"] / reference)
    same = ["point", "group", *(name for name in key if name != "active_experts")]
    middle: dict[str, str] = {"latency": "median"}
    if "active_experts" in key:
        middle["active_experts"] = "mean"
    medians = part.groupby(same, dropna=False, sort=False).agg(middle).reset_index()
    of_group = reference.groupby(part["group"]).median()
    return medians.assign(latency=medians["latency"] * medians["group"].map(of_group))


def _check_dtypes(kind: str, part: pd.DataFrame) -> None:
    """Check dtypes, and that all rows of one fit have the same dtype of activations."""
    for name in (column for column in COLUMNS[kind] if column in DTYPES):
        for dtype in part[name].unique():
            try:
                known = check_dtype(name, dtype)
            except InputError as error:
                raise InputError(f"{ARGUMENT}.{name}", dtype, error.expected) from None
            if dtype != known:
                raise InputError(f"{ARGUMENT}.{name}", dtype, f"{known}, as specmodel names it")
    stored = STORED[kind]
    for dtype, rows in part.groupby(_fitted_as(kind, part)):
        activations = sorted(rows["activation_dtype"].unique())
        if len(activations) > 1:
            expected = f"one dtype of activations for each {stored}, but {dtype!s} has several"
            raise InputError(f"{ARGUMENT}.activation_dtype", activations, expected)
