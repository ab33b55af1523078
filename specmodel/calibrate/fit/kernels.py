"""Fit the parameters of the roofline to measured kernels, one kind and dtype at a time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from specmodel.calibrate.fit import timed_work
from specmodel.calibrate.fit.result import FitResult, best_of_sharpnesses, log_fit_result, rounded
from specmodel.calibrate.measure.kernels.operators import TORCH
from specmodel.calibrate.measure.measurements import groups, judged_rows
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import build, read_mapping
from specmodel.core.base.units import NORMAL_80, FloatArray
from specmodel.core.cost.passes import component_time
from specmodel.core.layers.work import Work
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import FITTED_DTYPE, FittedStack, KernelFit

Bounds = Mapping[str, Sequence[float]]
"""Lower bound, upper bound and start of parameters [s] [-]."""


class KindFit(Struct, frozen=True, kw_only=True):
    """How the kernels of one kind are fitted.

    Parameters
    ----------
    bounds
        Bounds and starts of the fitted parameters, without the sharpness.
    on_cpu, not_on_cpu
        Bounds and starts that differ on a CPU, and parameters that are not fitted on a CPU.
    dense
        How the compute efficiency of GEMMs with the same arithmetic limits this kind. "most": it
        is the upper bound. "taken": it is used, unless several query tokens were timed. Empty: no
        limit.
    needed
        Column whose rows with the largest value are in every fit, because the other rows do not
        show how fast these kernels compute. Empty: no such column.
    least_gain
        `depth_time` is left out if the error without it is at most this multiple of the error with
        it. With 0, leaving it out is tried only if the points do not determine it [-].
    """

    bounds: Bounds
    on_cpu: Bounds = field(default_factory=dict)
    not_on_cpu: Sequence[str] = ()
    dense: Literal["most", "taken", ""] = ""
    needed: str = ""
    least_gain: float = 0.0


_KINDS = read_mapping(Path(__file__).parent / "data/kind_fits.toml", "kind_fits")
KIND_FITS = {kind: KindFit(**row) for kind, row in _KINDS.items()}
"""The kinds that are fitted."""

ATTENTION_ARITHMETIC = {"gpu": (0.005, 1.0, 0.1), "cpu": (0.005, 100.0, 0.1)}
"""Bounds and start of attention's compute efficiency if several query tokens were timed. A CPU
without 16-bit instructions computes attention in 32 bits, faster than GEMMs in 16 bits [-]."""

FLASH_ROWS = 64.0
"""Rows to which torch's kernel pads the query heads of a KV head, separately for each token:
``kBlockM`` of FlashAttention-2 for split caches (``run_mha_fwd_splitkv_dispatch``) [-]."""

SHARPNESSES = (1.0, 2.0, 4.0, 8.0, 16.0)  # exponents to try: powers of two are cheap to compute [-]
_ALWAYS = ("memory_efficiency", "compute_efficiency", "tile_rows")  # recorded even if not fitted
_OF_DEPTHS = ("depth_time", "depth_limit", "result_terms")
_OF_CPUS = ("reread_rows", "result_terms")
_NESTED = ("depth_limit", "depth_time", *_OF_CPUS)
"""Parameters that a fit may leave out, in the order in which this is tried: some kernels have no
limit of depth, or no cost of depth; some products read a matrix only once, or their results cost
nothing."""
_FEWEST_DEPTHS = 3  # fewer depths do not determine the launch time and both parameters of depth
_NO_WORSE = 1.01  # largest accepted ratio of errors without and with an undetermined parameter
_FOLDS = 4


class KernelFitting(Struct, frozen=True, kw_only=True, eq=False):
    """Fit of one kind of kernel at one dtype.

    Parameters
    ----------
    fit
        Record for a profile. Its errors are those of judged rows, or of fitted rows if none judge.
    result
        Parameters, covariance and residuals of the fitted points.
    """

    fit: KernelFit
    result: FitResult


Fittings: TypeAlias = dict[tuple[str, str], KernelFitting]
"""Fits by kind and dtype of weights or KV."""


def fit_kernels(
    table: pd.DataFrame,
    hardware: HardwareProfile,
    refused: dict[tuple[str, str], InputError] | None = None,
) -> Fittings:
    """Fit launch times, efficiencies, sharpness and tiles to measured kernels.

    Parameters
    ----------
    table
        Table from `measurements.check_measurements`.
    hardware
        The device. Its peaks stay, and the fit finds the share that kernels achieve.
    refused
        If given, kinds that cannot be fitted are left out, and their errors are added here.

    Returns
    -------
    dict
        Fits by kind and dtype of weights or KV. Raise an InputError if times are in another unit,
        or if there are fewer points than parameters.

    Notes
    -----
    The fit is a bounded least-squares fit of log ratios with a soft-L1 loss
    (`result.log_fit_result`), from two starts for each sharpness. An error of 10 % counts the same
    in a kernel of a microsecond and in a kernel of a second. Only rows with role "fit" are used,
    but the 20th percentile of all GEMM times bounds the launch time.

    Some points do not determine a parameter:

    - A single query token does not show how fast attention computes. Unless several were timed,
      attention is assumed to compute as fast as GEMMs.
    - Experts that stream for as long as they compute do not show how fast they compute. They are
      assumed to be at most as fast as GEMMs with the same arithmetic, as a grouped product splits
      a GEMM into parts.
    - GEMMs of fewer than three depths, or only of long depths, do not show a cost of depth. Its
      parameters are left out.
    - Experts get a cost for reading the list of all experts of a GPU only if the error without it
      is more than 1.5 times as large. This is the case for TensorRT-LLM's experts in fp8 blocks.

    If a CPU has no data sheet, its peak is the rate of the fastest measured product. On a CPU,
    compute efficiencies may exceed 1: memory and compute times add up, so each is shorter than the
    measured sum, and attention may compute in a wider dtype than GEMMs.
    """
    found, computed = Fittings(), dict[str, float]()
    for kind, dtype, rows in sorted(groups(table), key=lambda group: group[0] != "gemm"):
        try:
            timed_work.check_plausible(kind, dtype, rows, hardware)
            fitting = _fitting(kind, rows, hardware, computed)
        except InputError as error:
            if refused is None:
                raise
            refused[kind, dtype] = error
            continue
        found[kind, dtype] = fitting
        unsure = fitting.result.at_bound + fitting.result.undetermined
        if kind == "gemm" and "compute_efficiency" not in unsure:
            arithmetic = timed_work.work_of(kind, rows).dtype
            computed.setdefault(arithmetic, fitting.fit.compute_efficiency)
    return found


def _fitting(
    kind: str, rows: pd.DataFrame, hardware: HardwareProfile, computed: Mapping[str, float]
) -> KernelFitting:
    """Return the fit of one kind and dtype; `computed` has the efficiency of GEMMs by dtype [-]."""
    arithmetic, held = timed_work.work_of(kind, rows).dtype, KernelParameters()
    bounds = _bounds(kind, rows, hardware, computed.get(arithmetic, 1.0))
    if KIND_FITS[kind].dense == "taken":
        held = replace(held, compute_efficiency=computed.get(FITTED_DTYPE, 1.0))
        if hardware.kind == "gpu" and (rows["stack"] == TORCH).all():
            held = replace(held, tile_rows=FLASH_ROWS)
    return _fit(_Problem(kind, hardware, held, bounds), rows)


def fitted_stack(fits: Fittings, *, version: str, source: str, date: str) -> FittedStack:
    """Return the fits of `fit_kernels` in the form in which a profile records them.

    Parameters
    ----------
    fits
        Fits from `fit_kernels`.
    version, source, date
        Version of the stack, description of the measurements, and day of the fit, such as
        2026-11-21.
    """
    tables: dict[str, dict[str, object]] = {}
    for (kind, dtype), fitting in fits.items():
        tables.setdefault(kind, {})[dtype] = fitting.fit
    data = {"version": version, "source": source, "date": date, **tables}
    return build(FittedStack, data, "fitted")


class _Problem(Struct, frozen=True, eq=False):
    """A fit of one kind: bounds of the free parameters, and values of the others in `held`."""

    kind: str
    hardware: HardwareProfile
    held: KernelParameters
    bounds: Bounds

    def parameters(self, x: FloatArray, sharpness: float) -> KernelParameters:
        named: dict[str, Any] = dict(zip(self.bounds, np.exp(x).tolist(), strict=True))
        return replace(self.held, **named, sharpness=sharpness)

    def errors(
        self, x: FloatArray, work: Work, log_time: FloatArray, sharpness: float
    ) -> FloatArray:
        """Return logarithms of predicted over measured times [-]."""
        times = component_time(work, self.hardware, self.parameters(x, sharpness))
        return np.asarray(np.log(times.total_time) - log_time)

    def solve(
        self, rows: pd.DataFrame, sharpnesses: Sequence[float] = SHARPNESSES
    ) -> tuple[FitResult, KernelParameters]:
        """Return the best fit to rows over the sharpnesses, and its parameters."""
        measured = timed_work.work_of(self.kind, rows), np.log(rows["latency"].to_numpy())
        best, sharpness = best_of_sharpnesses(self.errors, self.bounds, sharpnesses, *measured)
        errors = self.errors(best.x, *measured, sharpness)
        result = log_fit_result(list(self.bounds), best, errors, _series(rows))
        return result, self.parameters(best.x, sharpness)


def _fit(problem: _Problem, rows: pd.DataFrame) -> KernelFitting:
    """Return the fit of one kind and dtype, with its errors on the judged rows."""
    kind, hardware, fitted = problem.kind, problem.hardware, rows[rows["role"] == "fit"]
    if len(fitted) <= len(problem.bounds):
        expected = f"more rows with role 'fit' than the {len(problem.bounds)} parameters"
        raise InputError("measurements", f"{len(fitted)} points of {kind}", expected)
    problem, result, parameters = _simplest(problem, fitted)
    if fitted["shape"].nunique() == 1:
        note = "one shape was fitted: errors and intervals do not apply to other shapes"
        result = replace(result, warnings=(*result.warnings, note))
    judged = timed_work.judge(kind, judged_rows(rows), hardware, parameters)
    known = rows[rows["role"].isin(["fit", "spread"])]
    shape_spread, row_spread = _spreads(problem, known, float(parameters.sharpness))
    record = {
        **{name: rounded(value) for name, value in result.parameters.items()},
        **{n: rounded(value) for n in _ALWAYS if (value := float(getattr(parameters, n)))},
        "sharpness": parameters.sharpness,
        "arithmetic_dtype": timed_work.work_of(kind, fitted).dtype,
        "num_points": len(fitted),
        "num_judged": len(judged),
        "is_held_out": bool((rows["role"] == "judge").any()),
        **timed_work.shape_errors(judged),
        "shape_spread": shape_spread,
        "row_spread": row_spread,
        "at_bound": list(result.at_bound),
        **result.record,
    }
    fit = build(KernelFit, record, f"measurements.{kind}")
    return KernelFitting(fit=fit, result=result)


def _simplest(
    problem: _Problem, rows: pd.DataFrame
) -> tuple[_Problem, FitResult, KernelParameters]:
    """Return the fit with the fewest parameters that is hardly worse, and its problem.

    A parameter of `_NESTED` is left out if it is at a bound. `depth_time` is also left out if the
    points do not determine it, and parameters of a CPU's products if they hardly reduce the error.
    """
    result, parameters = problem.solve(rows)
    for name in _NESTED:
        most = np.inf if name in result.at_bound else 0.0
        if not most and name == "depth_time" and name in problem.bounds:
            unsure = _NO_WORSE if name in result.undetermined else 0.0
            most = KIND_FITS[problem.kind].least_gain or unsure
        elif not most and name in _OF_CPUS and name in problem.bounds:
            most = _NO_WORSE
        if most:
            left_out = {name, "depth_limit"} if name == "depth_time" else {name}
            bounds = {n: bound for n, bound in problem.bounds.items() if n not in left_out}
            simpler = replace(problem, bounds=bounds)
            found = simpler.solve(rows)
            if found[0].mean_error <= most * result.mean_error:
                problem, (result, parameters) = simpler, found
    return problem, result, parameters


def _bounds(kind: str, rows: pd.DataFrame, hardware: HardwareProfile, computed: float) -> Bounds:
    """Return bounds and starts of the parameters fitted to these rows.

    The launch time of a GEMM is at most the 20th percentile of all measured times, because large
    products do not separate it from other constant costs. `computed` is the compute efficiency of
    GEMMs [-].
    """
    how, bounds = KIND_FITS[kind], {**KIND_FITS[kind].bounds}
    if hardware.kind == "cpu":  # a CPU needs longer to launch a kernel
        own = {**bounds, "launch_time": (1e-7, 1e-3, 4e-5), **how.on_cpu}
        bounds = {name: bound for name, bound in own.items() if name not in how.not_on_cpu}
    if kind == "gemm":
        low, high, start = bounds["launch_time"]
        shortest = float(rows["latency"].quantile(0.2))
        bounds["launch_time"] = (low, min(max(shortest, low * 1.001), high), start)
        if rows.loc[rows["role"] == "fit", "input_size"].nunique() < _FEWEST_DEPTHS:
            return {n: bound for n, bound in bounds.items() if n not in _OF_DEPTHS}
    if how.dense == "most":
        low, high, start = bounds["compute_efficiency"]
        high = max(min(high, computed), low * 1.001)
        bounds["compute_efficiency"] = (low, high, min(start, high))
    if how.dense == "taken" and "query_tokens" in rows and (rows["query_tokens"] > 1).any():
        bounds["compute_efficiency"] = ATTENTION_ARITHMETIC[hardware.kind]
    return bounds


def _spreads(problem: _Problem, known: pd.DataFrame, sharpness: float) -> tuple[float, float]:
    """Return the common spread of a series and the spread of its points, on unseen shapes [-].

    Errors of fitted points are too small, and errors of points with one shape are alike. Whole
    shapes are therefore left out in turn, in up to four parts, and predicted by a fit to the
    others. Rows that every fit needs (`KindFit.needed`) stay in: only latent attention with the
    most heads computes for as long as it streams.
    """
    needed = KIND_FITS[problem.kind].needed
    is_needed = known[needed] == known[needed].max() if needed else np.zeros(len(known), bool)
    if is_needed.all():
        is_needed = ~is_needed
    known, kept_always = known[~is_needed], known[is_needed]
    shapes = np.sort(known["shape"].unique())
    part = known["shape"].map({shape: i % _FOLDS for i, shape in enumerate(shapes)}).to_numpy()
    missed, is_fitted = np.empty(len(known)), (known["role"] == "fit").to_numpy()
    for fold in np.unique(part):
        left = known[part == fold]
        kept = pd.concat([kept_always, known[(part != fold) & is_fitted]])
        kept = kept if len(kept) > len(problem.bounds) else known[is_fitted]
        _, parameters = problem.solve(kept, (sharpness,))
        predicted = timed_work.predicted_time(problem.kind, left, problem.hardware, parameters)
        missed[part == fold] = np.log(left["latency"] / predicted)
    return normal_spreads(pd.Series(missed), pd.Series(_series(known)))


def normal_spreads(errors: pd.Series, series: pd.Series) -> tuple[float, float]:
    """Return the common spread of a series, and the spread of points around its mean [-].

    Both are standard deviations of normal distributions with the same central 80 % as the log
    errors, so that a few outliers do not widen them. The variance of a series is the total variance
    less the variance of its points.
    """
    within = errors - errors.groupby(series).transform("mean")
    ends = (part.quantile([0.9, 0.1]) for part in (within, errors))
    row, total = (float(np.subtract(*each)) / (2 * NORMAL_80) for each in ends)
    return rounded(np.sqrt(max(total**2 - row**2, 0.0))), rounded(row)


def _series(table: pd.DataFrame) -> NDArray[np.intp]:
    """Return a number for each series: points that differ only in their tokens."""
    names = ["shape", "expert_size", "distribution"]
    parts = table.reindex(columns=names).groupby(names, sort=False, dropna=False)
    return np.asarray(parts.ngroup())
