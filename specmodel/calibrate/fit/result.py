"""Fit parameters by least squares, and return values, their uncertainty and residuals."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from specmodel.core.base.units import FloatArray
from specmodel.core.machines.kernels import limited_covariance

ROBUST_SCALE = 0.05  # above this error, a point counts less in fits with a soft-L1 loss [-]
_ASIDE = 0.3  # log distance of the second start from the first, alternately down and up [-]

_LOOSE = 3e-3
_LOOSE_SHARE = 0.02


class FitResult(Struct, frozen=True, kw_only=True, eq=False):
    """Result of a fit: parameters, their uncertainty, and residuals.

    Parameters
    ----------
    parameters, covariance
        Fitted values by name, in the units of the model. Their covariance in the subspace that the
        data determine, shape (n, n) [-] [s].
    residuals
        Predicted over measured, minus one, for each point [-].
    at_bound, undetermined, warnings
        Parameters at a bound. Parameters that the points do not determine: any value fits. A
        sentence for each parameter of either kind.
    """

    parameters: dict[str, float]
    covariance: FloatArray
    residuals: FloatArray
    at_bound: tuple[str, ...]
    undetermined: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def mean_error(self) -> float:
        """Mean of the absolute residuals [-]."""
        return float(np.abs(self.residuals).mean())

    @property
    def record(self) -> dict[str, Any]:
        """Names of the fitted parameters and their covariance, as a profile records them."""
        return {"varied": list(self.parameters), "covariance": rounded_rows(self.covariance)}


def best_of_starts(
    residuals: Callable[..., FloatArray], starts: Iterable[FloatArray], **options: Any
) -> Any:
    """Return the best least-squares fit from several starts, because the cost has local minima."""
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

    Each sharpness is tried from two starts: the start in `bounds` (lower, upper, start), and a
    point next to it.
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
    """Return the result of a soft-L1 fit of logarithms, with the covariance of the logarithms.

    `best` is the result of `best_of_starts` with ``loss="soft_l1"`` and ``f_scale=ROBUST_SCALE``.
    `errors` are unweighted logarithms of predicted over measured at the solution [-]. Points with
    the same number in `clusters` have correlated errors.

    Soft-L1 (B. Triggs et al., "Bundle adjustment - a modern synthesis," in Vision Algorithms, 2000)
    counts an error f as ``2 (sqrt(1 + z) - 1)`` with ``z = (f / scale)^2``. The cost of small
    errors grows with their square, and the cost of large errors in proportion. A few points that
    the model cannot explain therefore hardly change the fit.

    The covariance is the cluster-robust sandwich ``H^-1 (sum of g g') H^-1`` (K.-Y. Liang and S. L.
    Zeger, "Longitudinal data analysis using generalized linear models," Biometrika, vol. 73, no. 1,
    1986), where g is the gradient of the cost of a cluster. Points of one measured shape are not
    independent: if they counted as independent, every parameter would seem known to a fraction of a
    percent. scipy returns a Jacobian J scaled by ``(1 + z)^(-3/4)``, so that ``H = J'J``. The
    gradient of a point is f times the unscaled Jacobian times ``(1 + z)^(-1/2)``, which is J times
    ``f (1 + z)^(1/4)``. The factor G / (G - p) for G clusters and p parameters corrects for
    residuals that the fit has reduced. Parameters at a bound count as known. Directions whose
    singular value is below 3e-3 of the largest are left out. Parameters that lie mostly along them
    are reported as undetermined.
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
    """Return a number rounded to significant digits, as profiles record it."""
    return float(f"{value:.{digits}g}")


def rounded_rows(covariance: FloatArray) -> list[list[float]]:
    """Return the rows of a matrix with rounded numbers, as profiles record them."""
    return [[rounded(value) for value in row] for row in covariance.tolist()]


def fit_result(
    parameters: dict[str, float],
    sides: FloatArray,
    loose: FloatArray,
    *,
    covariance: FloatArray,
    residuals: FloatArray,
) -> FitResult:
    """Return the result of a fit, with a warning for each parameter that it does not determine.

    `sides` is negative for parameters at their lower bound and positive for parameters at their
    upper bound. `loose` is the share of each parameter outside the determined subspace [-].
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
