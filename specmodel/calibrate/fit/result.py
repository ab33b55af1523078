"""Return the result of a fit: values, their uncertainty, and residuals."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from specmodel.core.base.units import FloatArray
from specmodel.core.machines.kernels import limited_covariance

ROBUST_SCALE = 0.05  # error from which a point counts less, in fits with a soft-L1 loss [-]
_ASIDE = 0.3  # distance of a second start from the first, as a logarithm, down and up in turn [-]

_LOOSE = 3e-3
_LOOSE_SHARE = 0.02


class FitResult(Struct, frozen=True, kw_only=True, eq=False):
    """Result of a fit: parameters, their uncertainty, and residuals.

    Parameters
    ----------
    parameters, covariance
        Fitted values by name, in the model's units. Their covariance on the subspace that the data
        determine, shape (n, n) [-] [s].
    residuals
        Predicted over measured, minus one, for each point [-].
    at_bound, undetermined, warnings
        Parameters at a bound of their range. Parameters that the points do not determine, for which
        any value fits. A sentence for each of both.
    """

    parameters: dict[str, float]
    covariance: FloatArray
    residuals: FloatArray
    at_bound: tuple[str, ...]
    undetermined: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def num_points(self) -> int:
        """Number of points fitted [-]."""
        return self.residuals.size

    @property
    def mean_error(self) -> float:
        """Mean of the absolute residuals [-]."""
        return float(np.abs(self.residuals).mean())

    @property
    def record(self) -> dict[str, Any]:
        """Record of the covariance for a profile."""
        return {"varied": list(self.parameters), "covariance": rounded_rows(self.covariance)}


def best_of_starts(
    residuals: Callable[..., FloatArray], starts: Iterable[FloatArray], **options: Any
) -> Any:
    """Return the best least-squares fit over several starts, as the cost has local minima."""
    from scipy.optimize import least_squares

    fits = [least_squares(residuals, start, **options) for start in starts]
    return min(fits, key=lambda fit: float(fit.cost))


def best_of_sharpnesses(
    errors: Callable[..., FloatArray],
    bounds: Mapping[str, Sequence[float]],
    sharpnesses: Sequence[float],
    *measured: Any,
) -> tuple[Any, float]:
    """Return the robust fit of log parameters at the best sharpness, and that sharpness [-].

    Each sharpness is tried from two starts: the one in `bounds` (lower, upper, start), and one
    aside.
    """
    low, high, start = np.log(list(bounds.values())).T
    aside = _ASIDE * np.where(np.arange(len(start)) % 2, 1.0, -1.0)
    starts = [np.clip(x, low + 1e-6, high - 1e-6) for x in (start, start + aside)]
    how = {"bounds": (low, high), "loss": "soft_l1", "f_scale": ROBUST_SCALE}
    fits = [best_of_starts(errors, starts, args=(*measured, x), **how) for x in sharpnesses]
    return min(zip(fits, sharpnesses, strict=True), key=lambda fit: float(fit[0].cost))


def log_fit_result(
    names: Sequence[str], best: Any, errors: FloatArray, clusters: NDArray[np.intp]
) -> FitResult:
    """Return the result of a soft-L1 fit of logarithms; its covariance is that of the logarithms.

    `best` comes from `best_of_starts` with ``loss="soft_l1"`` and ``f_scale=ROBUST_SCALE``.
    `errors` are logarithms of predicted over measured at the solution, not weighted [-]. Points of
    the same number in `clusters` err together.

    Soft-L1 (B. Triggs et al., "Bundle adjustment - a modern synthesis," in Vision Algorithms, 2000)
    counts an error f as ``2 (sqrt(1 + z) - 1)`` with ``z = (f / scale)^2``: squared when small, in
    proportion when large, so that a few points which the model cannot meet do not bend the fit.

    The covariance is the cluster-robust sandwich ``H^-1 (sum of g g') H^-1`` (K.-Y. Liang and S. L.
    Zeger, "Longitudinal data analysis using generalized linear models," Biometrika, vol. 73, no. 1,
    1986), with g the gradient of a cluster's cost: points of one measured shape are far from
    independent, and counting them as such would make every parameter look known to a fraction of a
    percent. scipy returns a Jacobian scaled by ``(1 + z)^(-3/4)``, so that ``H = J'J``; the
    gradient of a point is f times the unscaled Jacobian times ``(1 + z)^(-1/2)``, hence J times ``f
    (1 + z)^(1/4)``. The factor G / (G - p) for G clusters and p parameters makes up for residuals
    that the fit has shrunk. Parameters at a bound are taken as known; directions whose singular
    value is below 3e-3 of the largest are left out, and what lies along them is reported as not
    determined.
    """
    is_free = best.active_mask == 0
    jacobian = best.jac * is_free
    _, singular, directions = np.linalg.svd(jacobian, full_matrices=False)
    kept = singular > _LOOSE * singular[0]
    inverse = (directions[kept].T / singular[kept] ** 2) @ directions[kept]
    count = int(clusters.max()) + 1
    weighted = errors * (1 + (errors / ROBUST_SCALE) ** 2) ** 0.25
    gradients = np.zeros((count, len(names)))
    np.add.at(gradients, clusters, jacobian * weighted[:, None])
    meat = gradients.T @ gradients * count / max(count - int(kept.sum()), 1)
    loose = (directions[~kept] ** 2).sum(axis=0) * is_free
    return fit_result(
        dict(zip(names, np.exp(best.x).tolist(), strict=True)),
        best.active_mask,
        loose,
        covariance=limited_covariance(inverse @ meat @ inverse),
        residuals=np.expm1(errors),
    )


def rounded(value: float | np.floating[Any], digits: int = 5) -> float:
    """Return a number with so many significant digits, as profiles record it."""
    return float(f"{value:.{digits}g}")


def rounded_rows(covariance: FloatArray) -> list[list[float]]:
    """Return a matrix as profiles record it."""
    return [[rounded(value) for value in row] for row in covariance.tolist()]


def fit_result(
    parameters: dict[str, float],
    sides: FloatArray,
    loose: FloatArray,
    *,
    covariance: FloatArray,
    residuals: FloatArray,
) -> FitResult:
    """Return the result of a fit, with a warning for each parameter that it does not pin down.

    `sides` tells parameters at their lower (-) and upper bound (+), `loose` the share of each one
    outside the subspace that the points determine [-].
    """
    at_bound = {name: side for name, side in zip(parameters, sides, strict=True) if side}
    is_open = zip(parameters, loose > _LOOSE_SHARE, strict=True)
    undetermined = [name for name, so in is_open if so and name not in at_bound]
    notes = [
        f"{name} is at its {'lower' if side < 0 else 'upper'} bound, {parameters[name]:.4g}"
        for name, side in at_bound.items()
    ]
    return FitResult(
        parameters=parameters,
        covariance=covariance,
        residuals=residuals,
        at_bound=tuple(at_bound),
        undetermined=tuple(undetermined),
        warnings=(*notes, *(f"{name} is not determined by the points" for name in undetermined)),
    )
