"""Rules for the roles of published timings (fitted, judged or skipped) that all kinds share."""

from collections.abc import Collection

import pandas as pd

from specmodel.calibrate.measure.measurements import COLD_SHARE, SHAPE
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.machines.hardware import HardwareProfile

EVERY = 3
"""All kinds but experts are fitted on every third of their sorted shapes."""


MAX_TOKENS = 4096
"""Longest pass that is used [token]."""


def stored_bytes(elements: pd.Series, dtypes: pd.Series) -> pd.Series:
    """Return the bytes of elements [-] of some dtypes [B]."""
    return elements * dtypes.map(BYTES_PER_ELEMENT)


def cold_rows(read_bytes: pd.Series, device: HardwareProfile) -> pd.Series:
    """Return whether each row reads too much for a cache to keep it between two calls."""
    return read_bytes > COLD_SHARE * device.memory.l2_bytes


def short_rows(
    read_bytes: pd.Series, latency: pd.Series, device: HardwareProfile, share: float = 0.05
) -> pd.Series:
    """Return which rows read for less than a share of their time [-]: something else decides it."""
    return read_bytes / device.memory.peak_bytes_per_s < share * latency


def fastest_kernels(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the fastest of the kernels that a point was timed with, as an engine would."""
    marks = {"kernel_source", "latency"}
    key = [name for name in table.columns if name not in marks]
    return table.sort_values("latency").drop_duplicates(key).sort_index()


def every_third(table: pd.DataFrame, kind: str, *, from_largest: bool = False) -> pd.Series:
    """Return the rows of every third shape, in the order of their sizes or from the largest."""
    sizes = table[list(SHAPE[kind])]
    shapes = sizes.drop_duplicates().sort_values(list(sizes.columns), ascending=not from_largest)
    return rows_in(sizes, set(shapes.iloc[::EVERY].itertuples(index=False, name=None)))


def mixed_third(table: pd.DataFrame, names: Collection[str], every: int = EVERY) -> pd.Series:
    """Return the rows of a third of the shapes (or of one in `every`) that has each size.

    These are shapes where the ranks of their sizes add up to a multiple of `every`. In an order by
    sizes, every third shape could be one with heads of 64.
    """
    places = table[list(names)].rank(method="dense").sum(axis=1)
    return pd.Series(places % every == 0)


def rows_in(sizes: pd.DataFrame, shapes: Collection[tuple[int, ...]]) -> pd.Series:
    """Return which rows of a table of sizes are among some shapes."""
    is_in = pd.MultiIndex.from_frame(sizes).isin(list(shapes)) if shapes else False
    return pd.Series(is_in, sizes.index, dtype=bool)


def roles_of(
    is_fitted: pd.Series, is_timed: pd.Series, is_fallback: pd.Series | None = None
) -> pd.Series:
    """Return the role of each row: "fit", "judge", "fallback", or "skip" (no information)."""
    roles = pd.Series("judge", is_fitted.index).mask(is_fitted, "fit")
    if is_fallback is not None:
        roles = roles.mask(is_fallback, "fallback")
    return roles.mask(~is_timed, "skip")
