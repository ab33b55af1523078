"""Fit of an engine's overheads to measured speedups or times, and errors on what is left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError, nearest
from specmodel.base.tables import ARGUMENT, need_columns, numbers, read_table
from specmodel.base.units import FloatArray, check
from specmodel.calibrate.fitting.result import (
    ROBUST_SCALE,
    FitResult,
    clustered_covariance,
    fit_result,
    rounded,
)
from specmodel.cost.deploy import deploy
from specmodel.cost.latency import step_times
from specmodel.records.engine import EngineProfile, Overheads

COLUMNS = (
    "target", "drafter", "hardware", "batch_size", "draft_length", "context_length", "quantity",
    "value",
)  # fmt: skip
"""Columns of a table of measured serving; ``tensor_parallel`` and ``step_efficiency`` optional."""

QUANTITIES = ("speedup", "relative_step_time", "forward_time", "step_time", "target_efficiency")
"""What ``value`` may be [-] [s]; a speedup over several batch sizes is the largest."""

BOUNDS = {
    "kernel_time": (1e-8, 1e-4),
    "pass_time": (1e-6, 5e-2),
    "draft_kernel_time": (1e-8, 1e-4),
    "draft_pass_time": (1e-6, 5e-2),
    "reject_time": (1e-6, 5e-2),
    "reject_time_per_request": (1e-7, 5e-3),
    "reject_time_per_token": (1e-7, 5e-3),
}
"""Least and largest overhead tried [s]."""

PLAUSIBLE = (0.05, 20.0)
"""Median of predicted over measured that is taken, after the fit [-]."""

_PARALLEL = ("tensor_parallel", "expert_parallel")
_STARTS = (0.3, 0.5, 0.65, 0.8)


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineFitting:
    """Fitted engine.

    Parameters
    ----------
    profile
        The engine, with what it was fitted to.
    result
        Parameters, covariance and residuals.
    predicted
        One a row of the table, in its unit [-] [s].
    left_out
        For each column whose values were left out in turn, the predictions of the rows left out
        [-] [s].
    """

    profile: EngineProfile
    result: FitResult
    predicted: FloatArray
    left_out: dict[str, FloatArray]


def fit_engine(
    table: pd.DataFrame,
    base: EngineProfile,
    vary: Sequence[str],
    *,
    date: str,
    leave_out: Sequence[str] = (),
) -> EngineFitting:
    """Fit overheads of an engine to measured serving.

    Parameters
    ----------
    table
        With `COLUMNS`; further ones may serve to leave out.
    base
        Name, source, stack and the overheads that are held.
    vary
        Overheads that are fitted.
    date
        Day of the fit, as 2026-11-21.
    leave_out
        Columns whose values are left out in turn, the fit judged on them.

    Returns
    -------
    EngineFitting
        Least squares of log ratios with a soft-L1 loss, the best of several starts.

    Raises
    ------
    InputError
        If a column is missing, a value is not positive or there are too few rows.

    Notes
    -----
    Times are linear in the overheads, so that a pass is computed once for each of them.
    """
    for name in vary:
        if name not in BOUNDS:
            raise InputError("vary", name, f"one of {nearest(name, BOUNDS)}")
    if len(set(vary)) < len(vary):
        raise InputError("vary", list(vary), "each overhead once")
    table = _checked(table, vary, leave_out)
    rows = [_linear(row, base, vary) for _, row in table.iterrows()]
    measured = table["value"].to_numpy(float)
    everything = np.ones(len(rows), dtype=bool)
    best = _solve(rows, measured, vary, everything)
    values = np.exp(best.x)
    predicted = _predicted(rows, values)
    error = np.log(predicted / measured)
    ratio = float(np.exp(np.median(error)))
    if not PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]:
        expected = "times in seconds and ratios; is it in another unit?"
        value = f"values {1 / ratio:.3g} times what any fit gives"
        raise InputError(f"{ARGUMENT}.value", value, expected)
    at_bound, clusters = best.active_mask, np.arange(len(rows))
    covariance, undetermined = clustered_covariance(best.jac, error, clusters, at_bound)
    result = fit_result(list(vary), values, at_bound, covariance, undetermined, np.expm1(error))
    left_out = {
        column: _leave_out(rows, measured, vary, table[column].to_numpy()) for column in leave_out
    }
    judged = list(left_out.values()) or [predicted]
    missed = np.concatenate([np.log(measured / p) for p in judged])
    spread = float(np.sqrt(np.mean(missed**2)))
    record: dict[str, Any] = {
        "date": date,
        "num_points": len(rows),
        "mean_error": rounded(result.mean_error),
        "left_out_error": {
            column: rounded(float(np.abs(p / measured - 1).mean()))
            for column, p in left_out.items()
        },
        "spread": rounded(spread),
        "varied": list(vary),
        "covariance": [[rounded(value) for value in row] for row in covariance.tolist()],
    }
    fitted = zip(vary, values.tolist(), strict=True)
    seconds: dict[str, object] = {name: rounded(value) for name, value in fitted}
    profile = base.with_changes("engine", seconds | {"fit": record})
    return EngineFitting(profile=profile, result=result, predicted=predicted, left_out=left_out)


def _checked(table: pd.DataFrame, vary: Sequence[str], leave_out: Sequence[str]) -> pd.DataFrame:
    """Return the table with checked numbers; every fault names its column."""
    need_columns(table, COLUMNS)
    for column in leave_out:
        if column not in table or table[column].isna().any():
            others = [str(name) for name in table.columns if name != column]
            expected = f"a column without blank cells: {nearest(column, others)}"
            raise InputError("leave_out", column, expected)
        if table[column].nunique() < 2:
            raise InputError("leave_out", column, "a column with several values")
    if len(table) <= len(vary):
        expected = f"more than {len(vary)}, one an overhead"
        raise InputError(ARGUMENT, f"{len(table)} rows", expected)
    for quantity in table["quantity"].unique():
        if quantity not in QUANTITIES:
            expected = f"one of {', '.join(QUANTITIES)}"
            raise InputError(f"{ARGUMENT}.quantity", quantity, expected)
    checked = {
        "value": numbers(table, "value", maximum=1e6),
        "draft_length": numbers(table, "draft_length", above=-1, minimum=0, whole=True),
        "context_length": numbers(table, "context_length", above=-1, minimum=0),
    }
    for name in _PARALLEL:
        filled = table.assign(**{name: table[name].fillna(1) if name in table else 1})
        checked[name] = numbers(filled, name, whole=True)
    is_speedup = table["quantity"] == "speedup"
    if is_speedup.any():
        need_columns(table, ["step_efficiency"], "rows of speedup")
        for gamma, rows in table[is_speedup].groupby("draft_length"):
            least = 1 / (float(str(gamma)) + 1)
            numbers(rows, "step_efficiency", minimum=least, maximum=1, of="rows of speedup")
        share = pd.to_numeric(table["step_efficiency"], errors="coerce")
        checked["step_efficiency"] = share.to_numpy(float)
    return table.assign(**checked)


@dataclass(frozen=True, eq=False)
class _Linear:
    """One measurement: times without the overheads varied, and by how much each adds to them."""

    quantity: str
    tokens: float
    forward: FloatArray
    step: FloatArray
    verify: FloatArray
    forward_slopes: FloatArray
    step_slopes: FloatArray
    verify_slopes: FloatArray

    def value(self, seconds: FloatArray) -> float:
        forward = self.forward + seconds @ self.forward_slopes
        step = self.step + seconds @ self.step_slopes
        if self.quantity == "forward_time":
            return float(forward.mean())
        if self.quantity == "step_time":
            return float(step.mean())
        if self.quantity == "relative_step_time":
            return float((step / forward).mean())
        if self.quantity == "target_efficiency":
            return float((forward / (self.verify + seconds @ self.verify_slopes)).mean())
        return float((self.tokens * forward / step).max())


def _linear(row: pd.Series, base: EngineProfile, vary: Sequence[str]) -> _Linear:
    held = base.with_changes("engine", dict.fromkeys(vary, 0.0))
    try:
        deployment, _ = deploy(
            target=str(row["target"]),
            hardware=str(row["hardware"]),
            drafter=str(row["drafter"]),
            engine=held,
            tensor_parallel=int(row["tensor_parallel"]),
            expert_parallel=int(row["expert_parallel"]),
        )
    except InputError as error:
        raise InputError(f"{ARGUMENT}.{error.argument}", error.value, error.expected) from None
    gamma = np.asarray(float(row["draft_length"]))
    points: dict[str, Any] = {
        "batch_size": _batch_sizes(row["batch_size"]),
        "draft_length": gamma,
        "verify_tokens": gamma + 1,
        "context_length": np.asarray(float(row["context_length"])),
    }
    zero = held.overheads
    runs = []
    for name in (None, *vary):
        seconds: Overheads = replace(zero, **{name: 1.0}) if name else zero
        times = step_times(replace(deployment, overheads=seconds), **points)
        shape = np.shape(points["batch_size"])
        parts = (times.forward_time, times.step_time, times.verify_time)
        runs.append([np.broadcast_to(part, shape) for part in parts])
    (forward, step, verify), *moved = runs
    slopes = [np.array([run[i] - runs[0][i] for run in moved]) for i in range(3)]
    tokens = float(row.get("step_efficiency", np.nan)) * float(gamma + 1)
    return _Linear(str(row["quantity"]), tokens, forward, step, verify, *slopes)


def _batch_sizes(text: object) -> FloatArray:
    sizes = str(text).split()
    try:
        values = [float(size) for size in sizes]
    except ValueError:
        values = []
    return check("measurements.batch_size", values or text, minimum=1)


def _predicted(rows: Sequence[_Linear], seconds: FloatArray) -> FloatArray:
    return np.array([row.value(seconds) for row in rows])


def _solve(
    rows: Sequence[_Linear], measured: FloatArray, vary: Sequence[str], chosen: FloatArray
) -> Any:
    from scipy.optimize import least_squares

    some = [row for row, is_chosen in zip(rows, chosen, strict=True) if is_chosen]
    target = np.log(measured[chosen.astype(bool)])
    low, high = np.log(np.array([BOUNDS[name] for name in vary])).T

    def residuals(x: FloatArray) -> FloatArray:
        return np.asarray(np.log(_predicted(some, np.exp(x))) - target)

    fits = [
        least_squares(
            residuals,
            low + share * (high - low),
            bounds=(low, high),
            loss="soft_l1",
            f_scale=ROBUST_SCALE,
            diff_step=1e-4,
        )
        for share in _STARTS
    ]
    return min(fits, key=lambda fit: float(fit.cost))


def _leave_out(
    rows: Sequence[_Linear], measured: FloatArray, vary: Sequence[str], column: FloatArray
) -> FloatArray:
    """Predict each row from a fit to the rows whose value in the column is another."""
    predicted = np.empty(len(rows))
    for value in pd.unique(column):
        is_left = column == value
        seconds = np.exp(_solve(rows, measured, vary, ~is_left).x)
        predicted[is_left] = _predicted(rows, seconds)[is_left]
    return predicted


def read_serving(path: str | Path) -> pd.DataFrame:
    """Return a table of measured serving from a CSV or Parquet file.

    Parameters
    ----------
    path
        The file; lines that start with # are comments.

    Returns
    -------
    pandas.DataFrame
        As `fit_engine` takes it.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    return read_table(path, ("target", "drafter", "hardware", "batch_size"))
