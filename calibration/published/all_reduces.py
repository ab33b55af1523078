"""Fit all-reduces inside a node to published times, and judge sizes left out."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import fields

from specmodel.calibrate.fit.result import (
    ROBUST_SCALE,
    FitResult,
    best_of_starts,
    log_fit_result,
    rounded,
)
from specmodel.core.algebra.collectives import AllReduceParameters, all_reduce_time
from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import ARGUMENT, need_columns, numbers
from specmodel.core.base.units import FloatArray, check

COLUMNS = ("num_gpus", "message_bytes", "latency")
"""Columns of a table of all-reduces, as `datasets.read_timings` gives "comm" [-] [B] [s]."""

PARAMETERS = tuple(field.name for field in fields(AllReduceParameters))

BOUNDS = {
    "one_shot_latency": (1e-7, 1e-3),
    "one_shot_hop_latency": (1e-9, 1e-4),
    "one_shot_efficiency": (1e-3, 1.5),
    "two_shot_latency": (1e-7, 1e-3),
    "two_shot_hop_latency": (1e-9, 1e-4),
    "two_shot_efficiency": (1e-3, 1.5),
    "contention": (1e-3, 3.0),
}
"""Least and largest value tried [s] [-]; NVLink's switch adds up, which saves some of the bytes."""

NUM_FOLDS = 3
"""Every third size is left out together [-]."""

_SLOWER_STARTS = (1.5, 3.0, 6.0)
_CONTENTIONS = (0.01, 1.0)


class LinkFitting(NamedTuple):
    """Fitted all-reduces; ``left_out`` are errors (predicted / measured - 1) of sizes left out."""

    parameters: AllReduceParameters
    result: FitResult
    left_out: FloatArray


def fit_all_reduces(table: pd.DataFrame, peak_bytes_per_s: float | FloatArray = 1.0) -> LinkFitting:
    """Fit `all_reduce_time` to measured all-reduces.

    The table has `COLUMNS`, a row a size and number of GPUs. The peak is that of the link, or of
    each row's: rows of several GPUs then fit what these have in common [B/s]. Least squares of log
    ratios with a soft-L1 loss, the best of several starts.
    """
    num_gpus, size, latency = _checked(table)
    peak = np.broadcast_to(check("peak_bytes_per_s", peak_bytes_per_s, above=0), size.shape)
    clusters = np.unique(size, return_inverse=True)[1]
    rows = (size, num_gpus, peak, latency)
    best = _solve(*rows)
    errors = _missed(best.x, *rows)
    left_out = np.empty(len(size))
    for fold in range(NUM_FOLDS):
        is_out = clusters % NUM_FOLDS == fold
        trained = _solve(*(values[~is_out] for values in rows))
        left_out[is_out] = np.expm1(_missed(trained.x, *(values[is_out] for values in rows)))
    result = log_fit_result(PARAMETERS, best, errors, clusters)
    found = {name: rounded(value, 4) for name, value in result.parameters.items()}
    if "contention" in result.at_bound:
        found["contention"] = 0.0
    return LinkFitting(AllReduceParameters(**found), result, left_out)


def errors_of(
    table: pd.DataFrame, peak_bytes_per_s: float | FloatArray, parameters: AllReduceParameters
) -> FloatArray:
    """Return predicted over measured less one for each row of a table of all-reduces [-]."""
    num_gpus, size, latency = (table[name].to_numpy(float) for name in COLUMNS)
    return np.asarray(all_reduce_time(size, num_gpus, peak_bytes_per_s, parameters) / latency - 1)


def _checked(table: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
    need_columns(table, COLUMNS)
    num_gpus = numbers(table, "num_gpus", minimum=2, whole=True)
    size, latency = numbers(table, "message_bytes"), numbers(table, "latency")
    if len(np.unique(size)) < len(PARAMETERS) + NUM_FOLDS:
        expected = f"at least {len(PARAMETERS) + NUM_FOLDS} sizes"
        raise InputError(f"{ARGUMENT}.message_bytes", sorted(set(size.tolist())), expected)
    return num_gpus, size, latency


def _missed(
    logs: FloatArray, size: FloatArray, num_gpus: FloatArray, peak: FloatArray, latency: FloatArray
) -> FloatArray:
    """Return the logarithm of predicted over measured."""
    p = AllReduceParameters(**dict(zip(PARAMETERS, np.exp(logs), strict=True)))
    return np.log(all_reduce_time(size, num_gpus, peak, p) / latency)


def _solve(size: FloatArray, num_gpus: FloatArray, peak: FloatArray, latency: FloatArray) -> Any:
    shortest = float(latency.min())
    low, high = np.log(list(BOUNDS.values())).T
    starts = [
        np.log([shortest, shortest / 20, 0.5, slower * shortest, shortest / 5, 0.5, contention])
        for slower, contention in product(_SLOWER_STARTS, _CONTENTIONS)
    ]
    return best_of_starts(
        lambda logs: _missed(logs, size, num_gpus, peak, latency),
        [np.clip(start, low + 1e-6, high - 1e-6) for start in starts],
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
    )
