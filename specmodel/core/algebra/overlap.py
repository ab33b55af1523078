"""Compute times of parallel work: host and GPU, and two streams of kernels on one GPU."""

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

    The step time follows from the GPU's time g and the host's time h. If g and h differ, it is
    close to the longer one. If they are similar, it is slightly longer, because each sometimes
    waits for the other. The part beyond the GPU's time is ``h^2 / (step + g)``. The exponent 2 was
    chosen from 1 (the sum), 1.25, 1.5, 2, 3 and 4, on published speedups and step times of seven
    serving hosts, each left out in turn. The mean errors were 14.9, 13.1, 10.9, 9.6, 11.7 and
    12.9 % (2026-11-22).

    `launch_time` is the time to launch kernels one by one, in addition to `host_time`; the share is
    then a share of both. Launches run in advance of both. A step takes the longest of three times:
    the time above, the root of the sum of squares of GPU time and launch time, and the sum of both
    host times. If launches were added to the host's time in the square, steps with piecewise
    drafters would be 11 % too long (23 pairs with MTP, vLLM 0.28).
    """
    # np.hypot takes five times as long, and no square of these times overflows
    square, gpu = gpu_time * gpu_time, gpu_time + _TINY
    step = np.sqrt(square + host_time * host_time)
    if isinstance(launch_time, float) and launch_time == 0:
        return np.asarray(host_time / (step + gpu))
    host = host_time + launch_time
    launched = np.sqrt(square + launch_time * launch_time)
    beyond = host_time * host_time / (step + gpu)  # step - gpu_time, without cancellation
    shown = np.maximum(beyond, launch_time * launch_time / (launched + gpu))
    return np.asarray(np.maximum(shown, host - gpu_time) / (host + _TINY))


class Demand(NamedTuple):
    """Time of a stream of kernels that runs alone, and the parts for reads and arithmetic [s].

    Both parts are at the achieved rates, without launches, latencies and tails.
    """

    time: FloatArray
    reading: FloatArray
    computing: FloatArray


def two_streams_time(first: Demand, second: Demand) -> FloatArray:
    r"""Return the time of two streams of kernels that share a GPU [s].

    .. math:: T = L + \frac{\max(m_1 m_2,\; c_1 c_2)}{L}, \qquad L = \max(T_1, T_2)

    A stream that runs alone takes T, of which m for reads and c for arithmetic. Reads of two
    streams share the bandwidth. Time that is neither for reads nor for arithmetic overlaps with the
    other stream, as long as it runs.

    The model is a closed network with two customers, which share each resource equally. When one
    stream starts to read, the other is reading with the probability ``m / T`` of running alone (the
    arrival theorem). Both streams therefore take ``1 + m1 m2 / (T1 T2)`` times as long until the
    shorter one ends, and the longer one continues alone. The resource with the larger product,
    memory or arithmetic, decides. The result is at least each T, the sum of both reads, and the sum
    of both arithmetic times. It is at most T1 + T2, and never falls if an argument rises.

    Parameters
    ----------
    first, second
        Times of each stream if it runs alone [s].

    Returns
    -------
    FloatArray
        Time until both streams end [s].

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
