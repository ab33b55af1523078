"""What every fit returns: values, how well they are known, and what is left unexplained."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray

ROBUST_SCALE = 0.05
"""Relative error from which a point counts less, in fits with a soft-L1 loss [-]."""

_UNDETERMINED = 1e-7
_LOOSE = 3e-3
_LOOSE_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class FitResult:
    """A fit: parameters, how well they are known, and what is left unexplained.

    Parameters
    ----------
    parameters
        Fitted values by name, in the units of the model [-] [s].
    covariance
        Covariance of the parameters on the subspace that the data determine, shape (n, n).
    residuals
        Predicted over measured, less one, one for each point [-].
    mean_error, median_error, percentile_90_error
        Of the absolute residuals [-].
    num_points
        Points fitted [-].
    warnings
        A sentence for each parameter at a bound or not determined.
    """

    parameters: dict[str, float]
    covariance: FloatArray
    residuals: FloatArray
    mean_error: float
    median_error: float
    percentile_90_error: float
    num_points: int
    warnings: tuple[str, ...]


def covariance_of(jacobian: FloatArray, cost: float) -> tuple[FloatArray, FloatArray]:
    """Return the covariance on the determined subspace, and how far each parameter leaves it.

    Parameters
    ----------
    jacobian
        Of the residuals, shape (points, parameters) [-].
    cost
        Half the sum of squares [-].

    Returns
    -------
    tuple of FloatArray
        Covariance, and for each parameter its share outside the determined subspace [-].
    """
    _, singular, directions = np.linalg.svd(jacobian, full_matrices=False)
    kept = singular > _UNDETERMINED * singular[0]
    degrees = max(jacobian.shape[0] - kept.sum(), 1)
    scaled = directions[kept] / singular[kept, None]
    undetermined = (directions[~kept] ** 2).sum(axis=0)
    return 2 * cost / degrees * scaled.T @ scaled, undetermined


def clustered_covariance(
    jacobian: FloatArray,
    errors: FloatArray,
    clusters: NDArray[np.intp],
    at_bound: NDArray[np.intp],
) -> tuple[FloatArray, FloatArray]:
    """Return the covariance where points of a cluster err together, and what is undetermined.

    Parameters
    ----------
    jacobian
        At the solution, weighted as the soft-L1 loss does, shape (points, parameters) [-].
    errors
        Residuals at the solution, not weighted [-].
    clusters
        Number of the cluster of each point [-].
    at_bound
        Not 0 for parameters at a bound, which are taken as known [-].

    Returns
    -------
    tuple of FloatArray
        As for `covariance_of` [-].

    Notes
    -----
    The sandwich estimator: points of one measured shape are far from independent, and counting
    them as such would make every parameter look known to a fraction of a percent.
    """
    free = jacobian * (at_bound == 0)
    _, singular, directions = np.linalg.svd(free, full_matrices=False)
    kept = singular > _LOOSE * singular[0]
    inverse = (directions[kept].T / singular[kept] ** 2) @ directions[kept]
    count = int(clusters.max()) + 1
    weighted = errors * (1 + (errors / ROBUST_SCALE) ** 2) ** 0.25  # free * weighted = gradient
    scores = np.zeros((count, free.shape[1]))
    np.add.at(scores, clusters, free * weighted[:, None])
    meat = scores.T @ scores * count / max(count - int(kept.sum()), 1)
    undetermined = (directions[~kept] ** 2).sum(axis=0) * (at_bound == 0)
    return inverse @ meat @ inverse, undetermined


def rounded(value: float | np.floating[Any], digits: int = 5) -> float:
    """Return a number with so many significant digits, as profiles record it.

    Parameters
    ----------
    value
        The number [-].
    digits
        Digits kept [-].

    Returns
    -------
    float
        The nearest such number [-].
    """
    return float(f"{value:.{digits}g}")


def fit_result(
    names: list[str],
    values: FloatArray,
    at_bound: FloatArray,
    covariance: FloatArray,
    undetermined: FloatArray,
    residuals: FloatArray,
) -> FitResult:
    """Return the result of a fit, with a warning for each parameter that is not pinned down.

    Parameters
    ----------
    names, values
        The parameters, in the units of the model [-] [s].
    at_bound
        Negative at a lower bound, positive at an upper one, else 0 [-].
    covariance, undetermined
        As `covariance_of` gives them [-].
    residuals
        Predicted over measured, less one [-].

    Returns
    -------
    FitResult
        With errors of the residuals.
    """
    notes = []
    for name, value, side, loose in zip(names, values, at_bound, undetermined, strict=True):
        if side:
            bound = "lower" if side < 0 else "upper"
            notes.append(f"{name} is at its {bound} bound, {value:.4g}")
        elif loose > _LOOSE_SHARE:
            notes.append(f"{name} is not determined by the points")
    error = np.abs(residuals)
    return FitResult(
        parameters=dict(zip(names, values.tolist(), strict=True)),
        covariance=covariance,
        residuals=residuals,
        mean_error=float(error.mean()),
        median_error=float(np.median(error)),
        percentile_90_error=float(np.quantile(error, 0.9)),
        num_points=error.size,
        warnings=tuple(notes),
    )
