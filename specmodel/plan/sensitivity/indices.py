"""Estimate Sobol' indices of any vectorised function, with bootstrap confidence intervals."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray

CONFIDENCE = 0.95
"""Share of intervals that should contain the index [-]."""

RESAMPLES = 1000
"""Bootstrap resamples [-]."""

NO_VARIATION = 1e-9
"""Relative variation below which an output counts as constant [-]: slightly above rounding."""

_SAMPLES = [2**power for power in range(6, 17)]
_BATCHES = 256
"""Most batches of rows that are resampled [-]."""


class SobolIndices(Struct, frozen=True, eq=False):
    """Indices and the ends of their confidence intervals; arrays of shape (outputs, inputs).

    Parameters
    ----------
    first_order, first_order_low, first_order_high
        Share of an output's variance that an input explains by itself [-].
    total, total_low, total_high
        Share of the variance that an input explains, by itself or together with others [-].
    """

    first_order: FloatArray
    first_order_low: FloatArray
    first_order_high: FloatArray
    total: FloatArray
    total_low: FloatArray
    total_high: FloatArray


def sobol_indices(
    function: Callable[[FloatArray], FloatArray],
    distributions: Sequence[Any],
    *,
    samples: int,
    generator: np.random.Generator,
    outputs: Sequence[str] = ("output",),
) -> SobolIndices:
    """Return first-order and total Sobol' indices of a function of independent inputs.

    A and B are independent sample matrices, and A_i is A with the column of input i from B. The
    estimators are (b) and (f) of Table 2 in Saltelli et al. [1]_, divided by the variance of f.
    Estimator (f) is due to Jansen::

        first order  mean f(B) (f(A_i) - f(A))      total  mean (f(A) - f(A_i))^2 / 2

    Values are centred first, which reduces the scatter of the first-order index. Draws and
    estimates are the same as in ``scipy.stats.sobol_indices``. The bootstrap differs: SciPy's uses
    NumPy's global state, its time grows with the square of the samples, and it has no interval for
    an input without effect. This function resamples rows by weight; more than 256 rows in random
    batches. A Sobol' sequence covers the space more evenly than independent points. The intervals
    are therefore too wide. Of 100 intervals of each index of Ishigami's function and of a product
    of four inputs, at least 97 covered the truth with 256 samples, and at least 99 with 1024 and
    4096.

    Parameters
    ----------
    function, outputs
        Function of points of shape (inputs, n) that returns values of shape (outputs, n) or (n,);
        names of the outputs, for error messages.
    distributions, generator
        Law of each input, whose ``ppf`` returns quantiles: a frozen distribution of scipy.stats or
        a `Range`; and the generator for scrambling and resampling.
    samples
        Rows of each of the two sample matrices, a power of two; the function is evaluated at
        ``samples * (inputs + 2)`` points [-].

    References
    ----------
    .. [1] A. Saltelli et al., "Variance based sensitivity analysis of model output. Design and
       estimator for the total sensitivity index," Computer Physics Communications, vol. 181,
       no. 2, pp. 259-270, 2010.
    """
    if samples not in _SAMPLES:
        expected = f"a power of two from {_SAMPLES[0]} to {_SAMPLES[-1]}"
        raise InputError("samples", samples, expected)
    n, d = int(samples), len(distributions)
    if not d:
        raise InputError("distributions", [], "at least one distribution")
    first, second = _points(distributions, n, generator)
    mixed = np.tile(first, (d, 1, 1))
    mixed[np.arange(d), np.arange(d)] = second
    f_A, f_B = (np.atleast_2d(function(points)) for points in (first, second))
    f_AB = np.stack([np.atleast_2d(function(points)) for points in mixed])
    centre = (f_A + f_B).mean(axis=-1, keepdims=True) / 2
    spread = np.concatenate([f_A, f_B], axis=-1).std(axis=-1)
    is_constant = spread <= NO_VARIATION * np.abs(centre[:, 0])
    if is_constant.any():
        i = int(is_constant.argmax())
        name = outputs[i] if i < len(outputs) else f"output {i + 1}"
        raise InputError("outputs", name, "an output that varies over the ranges")
    parts = _parts(f_A - centre, f_B - centre, f_AB - centre)
    mixed = parts[:, generator.permutation(n)]
    batches = mixed.reshape(len(parts), min(n, _BATCHES), -1).mean(axis=-1)
    estimate = _shares(parts.mean(axis=-1, keepdims=True), len(f_A), d)[:, 0]
    resampled = _shares(batches @ _weights(batches.shape[1], generator), len(f_A), d)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=1)
    return SobolIndices(*(each[order] for order in (0, 1) for each in (estimate, low, high)))


def _points(
    distributions: Sequence[Any], n: int, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw the two matrices, each of shape (inputs, n), from one sequence."""
    from scipy.stats import qmc

    d = len(distributions)
    uniform = qmc.Sobol(d=2 * d, seed=generator).random(n).T
    inside = np.clip(uniform, np.finfo(float).eps, 1 - np.finfo(float).eps).reshape(2, d, n)
    drawn = np.stack([dist.ppf(inside[:, i]) for i, dist in enumerate(distributions)], axis=1)
    return drawn[0], drawn[1]


def _weights(count: int, generator: np.random.Generator) -> FloatArray:
    """Return the share of each batch in each bootstrap resample, (batches, resamples) [-]."""
    taken = generator.integers(count, size=(RESAMPLES, count))
    taken = taken + count * np.arange(RESAMPLES)[:, None]
    return np.bincount(taken.ravel(), minlength=taken.size).reshape(taken.shape).T / count


def _parts(f_A: FloatArray, f_B: FloatArray, f_AB: FloatArray) -> FloatArray:
    """Return the terms whose means are the parts of indices: variances, then numerators, by row."""
    first, total = f_B * (f_AB - f_A), (f_A - f_AB) ** 2 / 2  # Table 2 (b), (f)
    return np.concatenate([(f_A**2 + f_B**2) / 2, *first, *total])


def _shares(means: FloatArray, outputs: int, inputs: int) -> FloatArray:
    """Return both indices from means of `_parts`; shape (2, resamples, outputs, inputs)."""
    variance = means[:outputs].T[:, :, None]
    sums = means[outputs:].T.reshape(-1, 2, inputs, outputs).transpose(1, 0, 3, 2)
    return np.divide(sums, variance, out=np.zeros(sums.shape), where=variance > 0)
