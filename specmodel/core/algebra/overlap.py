"""Time of what works side by side: host and GPU, and two streams of kernels on one GPU."""

from typing import NamedTuple

import numpy as np

from specmodel.core.base.units import FloatArray

_TINY = float(np.finfo(float).tiny)


def exposed_share(
    gpu_time: FloatArray, host_time: FloatArray | float, launch_time: FloatArray | float = 0.0
) -> FloatArray:
    r"""Return the share of the host's time that a step waits for, from 0 (hidden) to 1 [-].

    .. math:: \frac{T_\mathrm{step} - g}{h} = \frac{h}{g + T_\mathrm{step}}, \qquad
              T_\mathrm{step} = \sqrt{g^2 + h^2}

    A step takes so long of the GPU's time g and the host's time h: nearly the longer of the
    two where they differ, a little more where they do not, as each waits for the other now and
    then. Beyond the GPU's time it therefore takes ``h^2 / (step + g)``. The exponent 2 was chosen
    among 1 (the sum), 1.25, 1.5, 2, 3 and 4 on published speedups and step times of seven serving
    hosts, each left out in turn: mean errors of 14.9, 13.1, 10.9, 9.6, 11.7 and 12.9 %
    (2026-11-22).

    `launch_time`, of kernels one by one, is not in `host_time`; with it, the share is of their sum.
    Launches run ahead of both: a step takes the longest of three, the time above, the root of the
    squares of the GPU's time and launches, and all that the host does. With launches beside the
    host's time in the square, steps with drafters in pieces were 11 % too long (23 pairs with MTP,
    vLLM 0.28).
    """
    # NumPy's hypot takes five times as long, for times that no square overflows
    square, gpu = gpu_time * gpu_time, gpu_time + _TINY
    step = np.sqrt(square + host_time * host_time)
    if isinstance(launch_time, float) and launch_time == 0:
        return np.asarray(host_time / (step + gpu))
    host = host_time + launch_time
    launched = np.sqrt(square + launch_time * launch_time)
    beyond = host_time * host_time / (step + gpu)  # what is left of a difference
    shown = np.maximum(beyond, launch_time * launch_time / (launched + gpu))
    return np.asarray(np.maximum(shown, host - gpu_time) / (host + _TINY))


class Demand(NamedTuple):
    """Time of a stream of kernels alone, and its parts that are reading and arithmetic [s].

    Both are at the rates achieved, without launches, latencies and tails.
    """

    time: FloatArray
    reading: FloatArray
    computing: FloatArray


def two_streams_time(first: Demand, second: Demand) -> FloatArray:
    r"""Return the time of two streams of kernels that share a GPU [s].

    .. math:: T = L + \frac{\max(m_1 m_2,\; c_1 c_2)}{L}, \qquad L = \max(T_1, T_2)

    Times alone are T, readings m and arithmetic c. Streams cannot read at once: whatever both read
    takes its bytes over the bandwidth. What is neither reading nor arithmetic hides behind the
    other stream, as far as that is there.

    Two customers in a closed network have each resource between them, shared equally. One that
    comes to read finds the other reading as often as that does alone, ``m / T`` (the arrival
    theorem), so that both take ``1 + m1 m2 / (T1 T2)`` times as long until the shorter ends, and
    the longer goes on alone. Of memory and arithmetic, the one with the larger product decides.
    The result is at least each T, both readings together and both arithmetics together, at most
    T1 + T2, and falls with none of its arguments.

    Parameters
    ----------
    first, second
        What each stream takes alone [s].

    Returns
    -------
    FloatArray
        Time until both are done [s].

    References
    ----------
    M. Reiser and S. S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks,"
    J. ACM 27(2), 1980, pp. 313-322.

    Examples
    --------
    >>> read, half, compute = Demand(4.0, 4.0, 0.0), Demand(4.0, 2.0, 0.0), Demand(4.0, 0.0, 4.0)
    >>> [float(two_streams_time(read, other)) for other in (read, half, compute)]
    [8.0, 6.0, 4.0]
    """
    longer = np.maximum(first.time, second.time)
    reading = np.multiply(first.reading, second.reading)
    computing = np.multiply(first.computing, second.computing)
    return np.asarray(longer + np.maximum(reading, computing) / np.maximum(longer, _TINY))
