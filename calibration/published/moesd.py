"""Fit the ten parameters of MoESD within their bounds; the paper fits every 11th of 228 points."""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import fields

from specmodel.calibrate.fit.result import FitResult, best_of_starts, fit_result
from specmodel.core.algebra import moesd
from specmodel.core.algebra.moesd import MoESDParameters
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture

MOESD_COLUMNS = (
    "batch_size", "draft_length", "step_efficiency", "num_experts", "experts_per_token", "speedup",
)  # fmt: skip
"""Columns that `fit_moesd` needs."""

_NAMES = [field.name for field in fields(MoESDParameters)]
_STEP = 1.5e-8  # square root of the machine epsilon: rounding and curvature err alike
_UNDETERMINED = 1e-7


def moesd_bounds(
    target: Architecture,
    drafter: Architecture,
    hardware: HardwareProfile,
    *,
    num_gpus: int = 1,
    max_reject_time: float = 0.01,
) -> dict[str, tuple[float, float]]:
    """Return the lower and upper bounds that MoESD sets for its ten parameters, times in seconds.

    Parameters
    ----------
    target, drafter, hardware
        The models measured, and one GPU.
    num_gpus, max_reject_time
        GPUs whose bandwidths add up [-]; largest rejection time that was measured [s].

    Notes
    -----
    Appendix C.2: ``bias`` from one read of the weights outside the feed-forward blocks to five,
    ``k2`` likewise of one expert over all layers, ``draft_bias`` of the drafter.

    Examples
    --------
    >>> from specmodel import load_architecture, load_hardware
    >>> bounds = moesd_bounds(load_architecture("qwen2-57b-a14b"), load_architecture("qwen2-0.5b"),
    ...                       load_hardware("a800_sxm_80gb"), num_gpus=2)
    >>> bounds["lam"], bounds["s"]
    ((0.2, 1.0), (1.0, 2.0))
    """
    bytes_per_s = hardware.memory.peak_bytes_per_s * check("num_gpus", num_gpus, minimum=1).item()
    reject = check("max_reject_time", max_reject_time, above=0).item()
    element, draft_element = (BYTES_PER_ELEMENT[a.weight_dtype] for a in (target, drafter))
    h, routed = target.hidden_size, target.experts
    layers = target.feed_forwards[routed] if routed else 0
    expert = layers * routed.expert_parameters(h) if routed else 0
    attention = sum(mixer.weights(h) * count for mixer, count in target.mixers.items())
    dense = target.outer_parameters + attention
    reads = {
        "bias": dense * element / bytes_per_s,
        "k2": expert * element / bytes_per_s,
        "draft_bias": drafter.total_parameters * draft_element / bytes_per_s,
    }
    free = dict.fromkeys(("k1", "k3", "draft_k"), (0.0, np.inf))
    return {
        **{name: (read, 5 * read) for name, read in reads.items()},
        **free,
        **dict.fromkeys(("reject_bias", "reject_k"), (0.0, reject)),
        "lam": (0.2, 1.0),
        "s": (1.0, 2.0),
    }


def fit_moesd(
    table: Mapping[str, Numeric], bounds: Mapping[str, tuple[float, float]], *, ridge_point: float
) -> FitResult:
    """Fit MoESD's ten parameters to measured speedups.

    Parameters
    ----------
    table
        Columns of `MOESD_COLUMNS`, a DataFrame or any mapping of arrays of one length, no fewer
        points than parameters [-].
    bounds, ridge_point
        Lower and upper bound by parameter, as `moesd_bounds` gives them [-] [s]; RP of the
        hardware [FLOP/B].

    Returns
    -------
    FitResult
        The better of two starts. A speedup is a ratio: judge it by its predictions.

    Notes
    -----
    Algorithm 1 and Appendix C.2: least squares within bounds, trust region reflective, with
    Eq. 4 for the speedup (`moesd.speedup` says why). The covariance is the usual ``s^2 (J'J)^-1``,
    with s^2 the squared residuals over the degrees of freedom, on the subspace that the points
    determine: scaling all times alike leaves every speedup as it is.
    """
    columns = _columns(table)
    low, high = np.array([bounds[name] for name in _NAMES]).T
    unit = low[_NAMES.index("bias")]
    scale = np.array([1.0 if name in ("lam", "s") else unit for name in _NAMES])

    def residuals(x: FloatArray) -> FloatArray:
        return moesd_speedup(columns, x * scale, ridge_point) - columns["speedup"]

    def jacobian(x: FloatArray) -> FloatArray:
        """Return forward differences, all parameters in one broadcast evaluation."""
        step = _STEP * np.maximum(np.abs(x), 1e-3)
        moved = (x[:, None] + np.column_stack([np.zeros_like(x), np.diag(step)])) * scale[:, None]
        predicted = moesd_speedup(columns, moved[..., None], ridge_point)
        return np.asarray(((predicted[1:] - predicted[0]) / step[:, None]).T)

    starts = [_start(share, low, high, unit) / scale for share in (0.1, 0.3)]
    best = best_of_starts(residuals, starts, jac=jacobian, bounds=(low / scale, high / scale))
    _, singular, directions = np.linalg.svd(best.jac, full_matrices=False)
    kept = singular > _UNDETERMINED * singular[0]
    degrees = max(best.jac.shape[0] - kept.sum(), 1)
    scaled = directions[kept] / singular[kept, None] * scale
    values = best.x * scale
    return fit_result(
        dict(zip(_NAMES, values.tolist(), strict=True)),
        best.active_mask,
        (directions[~kept] ** 2).sum(axis=0),
        covariance=2 * best.cost / degrees * scaled.T @ scaled,
        residuals=moesd_speedup(columns, values, ridge_point) / columns["speedup"] - 1,
    )


def moesd_speedup(
    columns: Mapping[str, FloatArray], values: FloatArray, ridge_point: float
) -> FloatArray:
    """Return the speedups that ten parameter values give.

    Parameters
    ----------
    columns, ridge_point
        As for `fit_moesd` [-] [FLOP/B].
    values
        Parameters in the order of `MoESDParameters` on the first axis, whose other axes
        broadcast with the points [-] [s].

    Returns
    -------
    FloatArray
        Speedups [-].
    """
    points = {name: columns[name] for name in MOESD_COLUMNS if name != "speedup"}
    parameters = MoESDParameters(**dict(zip(_NAMES, values, strict=True)))
    return moesd.speedup(**points, parameters=parameters, ridge_point=ridge_point)


def _columns(table: Mapping[str, Numeric]) -> dict[str, FloatArray]:
    """Check columns one by one, so that an error names the one at fault."""
    missing = [name for name in MOESD_COLUMNS if name not in table]
    if missing:
        raise InputError("table", list(table), f"columns {', '.join(missing)} as well")
    columns = {
        name: np.atleast_1d(check(name, np.asarray(table[name]), above=0)) for name in MOESD_COLUMNS
    }
    sizes = {name: column.size for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InputError("table", sizes, "columns of one length")
    points = columns["speedup"].size
    if points < len(_NAMES):
        raise InputError("table", f"{points} points", f"at least {len(_NAMES)}, one a parameter")
    return columns


def _start(share: float, low: FloatArray, high: FloatArray, unit: float) -> FloatArray:
    """Return a start within the bounds: near one read of everything or, for 0.3, near two."""
    finite = low + share * np.where(np.isinf(high), unit, high - low)
    start = dict(zip(_NAMES, finite, strict=True))
    start |= {"s": 1 + 0.02 * share, "lam": 0.2 + 0.8 * (1 - share)}
    return np.array(list(start.values()))
