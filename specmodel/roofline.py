"""Time from FLOPs and bytes. Knows no GPU and no model."""

import math

import numpy as np

from specmodel.units import FloatArray

SHARPNESS = 8.0
"""Exponent p of the smooth roofline when none was fitted [-]: 9 % above the textbook kink."""

_TINY = float(np.finfo(float).tiny)
_NEGLIGIBLE = float(np.finfo(float).eps) / 4


def smooth_maximum(first: FloatArray, second: FloatArray, sharpness: float) -> FloatArray:
    """Return ``(a^p + b^p)^(1/p)``, a maximum without a kink, safe from overflow.

    Compute and memory traffic overlap, so that the larger time decides; near the ridge point
    they overlap imperfectly, and the norm is up to ``2^(1/p)`` above the larger of the two.

    Parameters
    ----------
    first, second
        Times that overlap, not negative, any shapes [s].
    sharpness
        Exponent p; infinity gives the textbook roofline [-].

    Returns
    -------
    FloatArray
        Time of both together [s].

    Examples
    --------
    >>> float(smooth_maximum(np.float64(3.0), np.float64(4.0), 2.0))
    5.0
    """
    larger = np.asarray(np.maximum(first, second))
    ratio = np.asarray(np.minimum(first, second) / (larger + _TINY))
    if np.isinf(sharpness) or ratio.max(initial=0.0) ** sharpness < _NEGLIGIBLE:
        return larger
    # larger (1 + ratio^p)^(1/p), in place and by squaring where p allows: half the time of a pow
    squarings = math.log2(sharpness)
    if squarings.is_integer():
        for _ in range(int(squarings)):
            ratio *= ratio
        ratio += 1
        for _ in range(int(squarings)):
            np.sqrt(ratio, out=ratio)
    else:
        np.power(1 + ratio**sharpness, 1 / sharpness, out=ratio)
    return np.asarray(np.multiply(ratio, larger, out=ratio))
