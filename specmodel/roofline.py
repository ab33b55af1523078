"""Time from FLOPs and bytes. Knows no GPU and no model."""

import numpy as np

from specmodel.units import FloatArray

SHARPNESS = 8.0
"""Exponent p of the smooth roofline when none was fitted [-]: 9 % above the textbook kink."""


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
    larger = np.maximum(first, second)
    if np.isinf(sharpness):
        return larger
    ratio = np.minimum(first, second) / np.maximum(larger, np.finfo(float).tiny)
    return larger * (1 + ratio**sharpness) ** (1 / sharpness)
