"""Compute the time of all-reduces inside a node, with the faster of two algorithms."""

import numpy as np
from msgspec import Struct

from specmodel.core.algebra.roofline import Value
from specmodel.core.base.units import FloatArray


class AllReduceParameters(Struct, frozen=True, kw_only=True, eq=False):
    """Speed of the all-reduces of a serving stack on one kind of GPU.

    Parameters
    ----------
    one_shot_latency, two_shot_latency, one_shot_hop_latency, two_shot_hop_latency
        Minimum time of each algorithm, and the time that each further GPU adds [s].
    one_shot_efficiency, two_shot_efficiency
        Achieved over peak bandwidth of the link [-].
    contention
        Exponent of the fall of bandwidth if more than two GPUs share the link: 0 for a switch that
        serves all GPUs at once, 1 for a bus [-].
    """

    one_shot_latency: Value
    one_shot_hop_latency: Value
    one_shot_efficiency: Value
    two_shot_latency: Value
    two_shot_hop_latency: Value
    two_shot_efficiency: Value
    contention: Value = 0.0


def all_reduce_time(
    reduced_bytes: Value,
    num_gpus: Value,
    peak_bytes_per_s: Value,
    parameters: AllReduceParameters,
    count: Value = 1.0,
) -> FloatArray:
    r"""Return the time of all-reduces of equal tensors, one after the other.

    .. math:: \min\left(l_1 + (n - 1)\left(h_1 + \frac{b}{e_1\, \mathrm{peak}}\right),\;
              l_2 + (n - 1)\left(h_2 + \frac{2 b}{n\, e_2\, \mathrm{peak}}\right)\right)

    There are n GPUs and b bytes; l is the latency of an algorithm, h the time that each further GPU
    adds, and e the share of the peak. Engines choose between two algorithms (R. Thakur et al.,
    "Optimization of collective communication operations in MPICH," Int. J. High Performance
    Computing Applications, vol. 19, no. 1, 2005). One-shot is faster for small tensors: each GPU
    reads the whole tensor of every other GPU, ``n - 1`` times its bytes, and waits once. Two-shot:
    each GPU reduces a part and gathers the other parts, ``2 (n - 1) / n`` times its bytes (as in a
    ring), and waits more often.

    Parameters
    ----------
    reduced_bytes, peak_bytes_per_s
        Total size of the tensors [B], and peak of the link, one direction of a GPU [B/s].
    num_gpus, count
        Participating GPUs, and number of all-reduces [-].
    parameters
        Latencies and efficiencies.

    Returns
    -------
    FloatArray
        The smaller of both times; it rises with bytes and GPUs [s].

    Examples
    --------
    >>> p = AllReduceParameters(
    ...     one_shot_latency=3e-6, one_shot_hop_latency=0.0, one_shot_efficiency=0.5,
    ...     two_shot_latency=10e-6, two_shot_hop_latency=0.0, two_shot_efficiency=0.5,
    ... )
    >>> (1e6 * all_reduce_time(np.array([1e4, 1e8]), 8, 450e9, p)).round(2).tolist()
    [3.31, 787.78]
    """
    p, others = parameters, num_gpus - 1
    peak_time = np.power(num_gpus / 2, p.contention) / peak_bytes_per_s
    one_fixed = count * (p.one_shot_latency + others * p.one_shot_hop_latency)
    two_fixed = count * (p.two_shot_latency + others * p.two_shot_hop_latency)
    one_slope = others * peak_time / p.one_shot_efficiency
    two_slope = 2 * others / num_gpus * peak_time / p.two_shot_efficiency
    one = one_fixed + reduced_bytes * one_slope
    two = two_fixed + reduced_bytes * two_slope
    return np.asarray(np.minimum(one, two))
