"""Typical kernels, from those fitted on several devices, and how wrong they are on one left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specmodel.algebra.roofline import KernelParameters
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.calibrate.fitting.kernels import (
    PARAMETERS,
    normal_spreads,
    predicted_time,
    shape_errors,
)
from specmodel.calibrate.fitting.result import rounded
from specmodel.calibrate.measurements import groups
from specmodel.records.hardware import HardwareProfile
from specmodel.records.kernels import FITTED_DTYPE, FittedStack, KernelFit

SHARPNESS = 4.0
"""Exponent of typical kernels [-]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedTable:
    """A table of measurements and what was fitted to it.

    Parameters
    ----------
    hardware
        The device.
    table
        As `measurements.check_measurements` returns it.
    stack
        Its fits.
    """

    hardware: HardwareProfile
    table: pd.DataFrame
    stack: FittedStack


def typical_stack(fitted: Sequence[FittedTable], *, version: str, date: str) -> FittedStack:
    """Return kernels with the geometric means of fitted parameters.

    Parameters
    ----------
    fitted
        Tables of at least three devices.
    version
        What to call it.
    date
        Day, as 2026-11-21.

    Returns
    -------
    FittedStack
        Errors and spreads are those on the rows of each device by the mean of the others.

    Raises
    ------
    InputError
        If there are fewer than three devices.
    """
    devices = {entry.hardware.name for entry in fitted}
    if len(devices) < 3:
        raise InputError("fitted", sorted(devices), "at least three devices")
    gemm = _typical("gemm", fitted)
    source = f"geometric means of fits on {', '.join(sorted(devices))}; errors leave one device out"
    return FittedStack(
        version=version,
        source=source,
        date=date,
        experts={FITTED_DTYPE: _typical("experts", fitted)},
        gemm={FITTED_DTYPE: gemm},
        attention={FITTED_DTYPE: _typical("attention", fitted, gemm.compute_efficiency)},
    )


def _typical(
    kind: str, fitted: Sequence[FittedTable], compute_efficiency: float = 1.0
) -> KernelFit:
    judged = pd.concat([_left_out(kind, entry, fitted) for entry in fitted], ignore_index=True)
    errors = -np.log1p(judged["error"])
    common, row = normal_spreads(errors, judged["device"] + "/" + judged["shape"])
    names = list(PARAMETERS[kind])
    means = dict(zip(names, _means(kind, fitted).tolist(), strict=True))
    return KernelFit(
        **{"compute_efficiency": compute_efficiency, **means},
        sharpness=SHARPNESS,
        arithmetic_dtype=FITTED_DTYPE,
        num_points=0,
        num_judged=len(judged),
        is_held_out=True,
        **shape_errors(judged.assign(shape=judged["device"] + "/" + judged["shape"])),
        shape_spread=common,
        row_spread=row,
        varied=[],
        covariance=[],
    )


def _left_out(kind: str, entry: FittedTable, fitted: Sequence[FittedTable]) -> pd.DataFrame:
    """Judge the rows of one table by the mean of the fits on other devices."""
    others = [other for other in fitted if other.hardware.name != entry.hardware.name]
    names = list(PARAMETERS[kind])
    values = dict(zip(names, _means(kind, others).tolist(), strict=True))
    parameters = KernelParameters(**values, sharpness=SHARPNESS)
    parts = [rows for k, dtype, rows in groups(entry.table) if (k, dtype) == (kind, FITTED_DTYPE)]
    rows = parts[0][parts[0]["role"] == "judge"]
    predicted = predicted_time(kind, rows, entry.hardware, parameters)
    name = f"{entry.hardware.name} {rows['stack'].iloc[0]}"
    return rows.assign(error=predicted / rows["latency"] - 1, device=name)


def _means(kind: str, fitted: Sequence[FittedTable]) -> FloatArray:
    """Return geometric means: over the stacks of a device, then over devices."""
    logs: dict[str, list[FloatArray]] = {}
    for entry in fitted:
        fit = getattr(entry.stack, kind)[FITTED_DTYPE]
        values = np.log([getattr(fit, name) for name in PARAMETERS[kind]])
        logs.setdefault(entry.hardware.name, []).append(values)
    means = np.exp(np.mean([np.mean(rows, axis=0) for rows in logs.values()], axis=0))
    return np.array([rounded(value, 4) for value in means])
