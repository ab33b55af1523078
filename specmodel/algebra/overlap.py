"""A host and a GPU that work side by side: how much of the host's time a step waits for."""

import numpy as np

from specmodel.base.units import FloatArray


def exposed_share(gpu_time: FloatArray, host_time: FloatArray | float) -> FloatArray:
    """Return the share of the host's time that a step waits for, beside what the GPU takes.

    Parameters
    ----------
    gpu_time, host_time
        What a step takes on each of them, any shape that broadcasts; the GPU's is above 0 [s].

    Returns
    -------
    FloatArray
        From 0, all hidden behind the GPU, to 1, where the GPU does nearly nothing [-].

    Notes
    -----
    A step takes ``(gpu^2 + host^2)^(1/2)``: nearly the longer of the two where they differ, and a
    little more where they do not, as each waits for the other now and then. It waits for the host
    for what it takes beyond the GPU, ``host^2 / (step + gpu)``. The exponent was chosen among 1,
    which is the sum of the two, 1.25, 1.5, 2, 3 and 4 on published speedups and step times of seven
    serving hosts, each left out in turn: mean errors of 14.9, 13.1, 10.9, 9.6, 11.7 and 12.9 %
    (2026-11-22).

    Examples
    --------
    >>> share = exposed_share(np.array([12.0, 3.0]), np.array([5.0, 4.0]))
    >>> (np.array([12.0, 3.0]) + share * np.array([5.0, 4.0])).tolist()
    [13.0, 5.0]
    """
    return np.asarray(host_time / (np.hypot(gpu_time, host_time) + gpu_time))
