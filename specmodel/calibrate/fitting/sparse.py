"""Fit of the roofline's parameters to whole layers of sparse attention.

All kernels of a layer share one set of parameters for each dtype of the KV cache: of what a layer
takes as a whole, a table does not tell how efficient each of its kernels is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.algebra.roofline import KernelParameters
from specmodel.base.errors import InputError
from specmodel.base.records import build
from specmodel.base.units import FloatArray
from specmodel.calibrate.fitting.kernels import KernelFitting, normal_spreads, shape_errors
from specmodel.calibrate.fitting.result import (
    ROBUST_SCALE,
    best_of_starts,
    log_fit_result,
    rounded,
)
from specmodel.calibrate.sparse_modules import log_latency, modules_work
from specmodel.cost.passes import component_time
from specmodel.records.hardware import HardwareProfile
from specmodel.records.kernels import FITTED_DTYPE, FittedStack, KernelFit
from specmodel.records.layers.work import Work

PARAMETERS = {
    "launch_time": (1e-7, 1e-4, 4e-6),
    "memory_efficiency": (0.2, 1.0, 0.8),
    "compute_efficiency": (0.05, 1.0, 0.5),
    "group_time": (1e-9, 1e-5, 1e-7),
}
"""Lower bound, upper bound and start of what is fitted beside the sharpness [s] [-]."""

SHARPNESSES = (1.0, 2.0, 4.0)
"""Exponents tried [-]."""

_FOLDS = 4

Works = Sequence[tuple[NDArray[np.intp], list[Work]]]


def fit_sparse_modules(table: pd.DataFrame, hardware: HardwareProfile) -> dict[str, KernelFitting]:
    """Fit launches, efficiencies and the time of choosing to layers of sparse attention.

    Parameters
    ----------
    table
        As `sparse_modules.sparse_modules` returns it.
    hardware
        The GPU it was measured on.

    Returns
    -------
    dict
        By dtype of the KV cache; errors are of shapes that were not fitted.

    Raises
    ------
    InputError
        If there are fewer points than parameters.

    Notes
    -----
    Least squares of log ratios with a soft-L1 loss, as kernels are fitted. Spreads are those of
    shapes left out in turn, in four parts.
    """
    found: dict[str, KernelFitting] = {}
    for kv_dtype, rows in table[table["role"] != "fallback"].groupby("kv_dtype"):
        rows = rows.reset_index(drop=True)
        fitted = rows[rows["role"] == "fit"]
        if len(fitted) <= len(PARAMETERS):
            expected = f"more than {len(PARAMETERS)}, one a parameter, with role 'fit'"
            raise InputError("measurements", f"{len(fitted)} layers with {kv_dtype}", expected)
        found[str(kv_dtype)] = _fit(rows, hardware)
    return found


def with_sparse_modules(
    stack: FittedStack, fits: Mapping[str, KernelFitting], source: str
) -> FittedStack:
    """Return a stack with fits of sparse attention, in place of those it had.

    Parameters
    ----------
    stack
        The stack; all else of it is kept.
    fits
        As `fit_sparse_modules` returns them.
    source
        What was measured, which follows the stack's own source.

    Returns
    -------
    FittedStack
        The stack with these fits. Without one at 16 bits, that at 8 bits stands for all dtypes.
    """
    own: dict[Any, KernelFit] = {dtype: fitting.fit for dtype, fitting in fits.items()}
    if own and FITTED_DTYPE not in own:
        own[FITTED_DTYPE] = next(iter(own.values()))
    note = f"; sparse attention of {source}"
    text = stack.source if note in stack.source else stack.source + note
    return stack.model_copy(update={"sparse_attention": own, "source": text})


def predicted_time(
    works: Works, hardware: HardwareProfile, parameters: KernelParameters
) -> FloatArray:
    """Return the time of layers from the works of each shape, in the order of their rows [s]."""
    times = np.empty(sum(len(places) for places, _ in works))
    for places, parts in works:
        each = [component_time(part, hardware, parameters).total_time for part in parts]
        times[places] = sum(each[1:], each[0])
    return times


def _fit(rows: pd.DataFrame, hardware: HardwareProfile) -> KernelFitting:
    is_fitted = rows["role"] == "fit"
    fitted, judged = rows[is_fitted], rows[~is_fitted] if (~is_fitted).any() else rows
    best, sharpness = _solve(fitted, hardware, SHARPNESSES)
    parameters = _parameters(best.x, sharpness)
    errors = _errors(best.x, list(modules_work(fitted, hardware)), hardware, fitted, sharpness)
    clusters = np.asarray(fitted.groupby("shape").ngroup())
    result = log_fit_result(list(PARAMETERS), best, errors, clusters)
    predicted = predicted_time(list(modules_work(judged, hardware)), hardware, parameters)
    judged = judged.assign(error=predicted / judged["latency"].to_numpy() - 1)
    shape_spread, row_spread = _spreads(rows, hardware, sharpness)
    record = {
        **{name: rounded(value) for name, value in result.parameters.items()},
        "sharpness": sharpness,
        "arithmetic_dtype": FITTED_DTYPE,
        "num_points": len(fitted),
        "num_judged": len(judged),
        "is_held_out": bool((~is_fitted).any()),
        **shape_errors(judged),
        "shape_spread": shape_spread,
        "row_spread": row_spread,
        "at_bound": list(result.at_bound),
        **result.record,
    }
    return KernelFitting(fit=build(KernelFit, record, "sparse_attention"), result=result)


def _parameters(x: FloatArray, sharpness: float) -> KernelParameters:
    named: dict[str, Any] = dict(zip(PARAMETERS, np.exp(x).tolist(), strict=True))
    return replace(KernelParameters(**named), sharpness=sharpness)


def _errors(
    x: FloatArray, works: Works, hardware: HardwareProfile, rows: pd.DataFrame, sharpness: float
) -> FloatArray:
    """Return logarithms of predicted over measured [-]."""
    times = predicted_time(works, hardware, _parameters(x, sharpness))
    return np.asarray(np.log(times) - log_latency(rows))


def _solve(
    rows: pd.DataFrame, hardware: HardwareProfile, sharpnesses: Sequence[float]
) -> tuple[Any, float]:
    """Return the best fit over the sharpnesses, and its sharpness."""
    low, high, start = np.log(list(PARAMETERS.values())).T
    aside = 0.3 * np.where(np.arange(len(start)) % 2, 1.0, -1.0)
    starts = [np.clip(x, low + 1e-6, high - 1e-6) for x in (start, start + aside)]
    works = list(modules_work(rows, hardware))
    fits = [
        best_of_starts(
            _errors,
            starts,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=ROBUST_SCALE,
            args=(works, hardware, rows, sharpness),
        )
        for sharpness in sharpnesses
    ]
    return min(zip(fits, sharpnesses, strict=True), key=lambda fit: float(fit[0].cost))


def _spreads(
    rows: pd.DataFrame, hardware: HardwareProfile, sharpness: float
) -> tuple[float, float]:
    """Return the spread of what a shape has in common, and of its points, on shapes left out."""
    shapes = np.sort(rows["shape"].unique())
    part = rows["shape"].map({shape: i % _FOLDS for i, shape in enumerate(shapes)}).to_numpy()
    missed = np.empty(len(rows))
    for fold in np.unique(part):
        left, kept = rows[part == fold], rows[part != fold]
        best, _ = _solve(kept if len(kept) else rows, hardware, (sharpness,))
        works = list(modules_work(left, hardware))
        missed[part == fold] = -_errors(best.x, works, hardware, left, sharpness)
    return normal_spreads(pd.Series(missed), rows["shape"])
