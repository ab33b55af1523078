"""Compute the load of the busiest GPU (rank) of a group, and the messages between ranks."""

from functools import cache
from math import erfc, exp, pi, sqrt

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray


class Message(Struct, frozen=True):
    """Bytes that one GPU sends in a collective operation, and the hops for which it waits.

    Parameters
    ----------
    link_share, network_share
        Bytes sent per byte of the tensor, or per byte for one other GPU [-].
    link_hops, network_hops
        Messages that follow one another [-].
    """

    link_share: float
    network_share: float
    link_hops: int
    network_hops: int


def busiest_experts(active_experts: FloatArray, num_experts: int, ranks: int) -> FloatArray:
    """Return the expected experts that the busiest rank loads; experts are placed at random.

    A rank has E/r of the E experts, drawn at random. The number of loaded experts among them has a
    hypergeometric distribution. For N loaded experts, its mean is N/r, its variance
    ``N/r (1 - 1/r) (E - N)/(E - 1)``, and its third central moment
    ``variance (1 - 2/r) (E - 2N)/(E - 2)`` (N. L. Johnson, A. W. Kemp and S. Kotz, *Univariate
    Discrete Distributions*, 3rd ed., Wiley, 2005, ch. 6). `_maximum` computes the busiest rank from
    these moments.

    Parameters
    ----------
    active_experts, num_experts, ranks
        Distinct experts that the pass loads on all ranks, routed experts of the layer, and ranks
        over which they are evenly spread [-].

    Returns
    -------
    FloatArray
        Experts of the busiest rank, at most ``num_experts / ranks`` [-].
    """
    N, E, r = active_experts, float(num_experts), float(ranks)
    variance = N / r * (1 - 1 / r) * np.maximum(E - N, 0) / max(E - 1, 1)
    third = (1 - 2 / r) * np.maximum(E - 2 * N, 0) / max(E - 2, 1)
    largest = _maximum(N / r, variance, third, ranks)
    return np.clip(largest, np.minimum(N, 1), np.minimum(N, E / r))


def busiest_tokens(
    mean: FloatArray, variance: FloatArray, third: FloatArray, num_experts: int, ranks: int
) -> FloatArray:
    """Return the expected token-expert pairs of the busiest rank; experts are placed at random.

    A rank has n = E/r of the E experts, drawn at random without replacement. The sum of their
    tokens has mean ``n mean`` and variance ``n (1 - n/E) E/(E - 1) variance``. The factor
    ``1 - n/E = 1 - 1/r`` is 0 if a rank has all experts. The ratio of the third moment to the
    variance is the ratio of one expert times ``1 - 2n/E = 1 - 2/r``, as for the hypergeometric
    count; a factor ``E/(E - 2)`` is left out.

    Parameters
    ----------
    mean, variance, third
        Mean, variance and third central moment of an expert's tokens, over experts and passes
        [token].
    num_experts, ranks
        Routed experts of the layer, and ranks over which they are evenly spread [-].

    Returns
    -------
    FloatArray
        Pairs of the busiest rank, at most the pairs of all ranks [token].
    """
    E, r = float(num_experts), float(ranks)
    rank_mean = mean * E / r
    rank_variance = E / r * (1 - 1 / r) * E / max(E - 1, 1) * variance
    rank_third = (1 - 2 / r) * third / np.maximum(variance, np.finfo(float).tiny)
    largest = _maximum(rank_mean, rank_variance, rank_third, ranks)
    return np.clip(largest, np.minimum(rank_mean * r, 1), rank_mean * r)


def busiest_share(
    size: FloatArray, share: FloatArray, chance: FloatArray, ranks: int
) -> FloatArray:
    """Return the share of marked members on the rank with most marked members.

    With p = `share` `chance`, the number of marked members of a rank has a binomial distribution:
    its mean is n p, its variance ``n p (1 - p)``, and its third central moment ``1 - 2p`` times the
    variance. The maximum is computed as in `_maximum`, but without the factor for the spread, as
    ranks are independent here. If any member is marked, the busiest rank has at least one.

    Parameters
    ----------
    size, ranks
        Members of each rank, the same number for all, and ranks [-].
    share, chance
        Mean share of marked members, given that any is marked, and the probability that any is;
        members are marked independently [-].

    Returns
    -------
    FloatArray
        The share, at least `share` and at least one member [-].
    """
    p, z = share * chance, _normal_maximum(ranks)
    largest = size * p + z * np.sqrt(size * p * (1 - p)) + (1 - 2 * p) * (z**2 - 1) / 6
    return np.asarray(np.clip(largest / size, np.maximum(share, 1 / size), 1))


def all_reduce(ranks: int, gpus_per_node: int) -> Message:
    """Return the message of a GPU in a ring all-reduce: inside the node, then across nodes.

    Parameters
    ----------
    ranks, gpus_per_node
        Participating GPUs, and the number of them that the fast link connects [-].

    Returns
    -------
    Message
        Shares of the reduced tensor, and hops.
    """
    inside = min(ranks, gpus_per_node)
    nodes = -(-ranks // inside)
    within, between = 2 * (inside - 1), 2 * (nodes - 1)
    return Message(within / inside, between / nodes / inside, within, between)


def all_to_all(ranks: int, gpus_per_node: int) -> Message:
    """Return the message of a GPU if each GPU sends the same bytes to every other GPU.

    Parameters
    ----------
    ranks, gpus_per_node
        Participating GPUs, and the number of them that the fast link connects [-].

    Returns
    -------
    Message
        Multiples of the bytes for one other GPU, and hops.
    """
    inside = min(ranks, gpus_per_node)
    return Message(inside - 1.0, float(ranks - inside), 2, 2 if ranks > inside else 0)


def rank_share(
    num_experts: int,
    experts_per_token: int,
    ranks: int,
    num_zero_experts: int = 0,
    groups: tuple[int, int] = (1, 1),
) -> float:
    r"""Return the probability that a token uses any of a rank's experts.

    .. math:: 1 - \frac{\binom{E - E/r}{k}}{\binom{E}{k}}

    If routing is limited to some groups of experts, ranks have experts in their order. A token then
    uses at least one expert of each group that it chooses, because it chooses groups by their best
    experts. The other experts are drawn from all of these groups. Routing drawn at random visits at
    most 1.2 % fewer ranks (for DeepSeek-V3, on 2 to 64 ranks).

    Parameters
    ----------
    num_experts, experts_per_token, ranks
        Routed experts of the layer, number that each token uses, and ranks with these experts [-].
    num_zero_experts
        Experts that compute nothing and are on no rank, but that a token may also choose [-].
    groups
        Groups of experts, and the number of groups that a token chooses [-].

    Returns
    -------
    float
        The probability; E counts all experts from which a token chooses [-].
    """
    (count, chosen), choices = groups, num_experts + num_zero_experts
    if count <= 1:
        return 1 - _missed(choices, num_experts // ranks, experts_per_token)
    if ranks <= count:
        return 1 - _missed(count, count // ranks, chosen)
    of_group, own = num_experts // count, num_experts // ranks
    rest = _missed(chosen * of_group - chosen, own, experts_per_token - chosen)
    return chosen / count * (1 - (1 - own / of_group) * rest)


def _missed(choices: int, own: int, drawn: int) -> float:
    """Return the probability that `drawn` members of `choices` include none of `own` [-]."""
    missed = 1.0
    for i in range(drawn):
        missed *= max(choices - own - i, 0) / (choices - i)
    return missed


def _maximum(mean: FloatArray, variance: FloatArray, third: FloatArray, ranks: int) -> FloatArray:
    r"""Return the expected maximum over ranks, from the moments of one rank.

    .. math:: \mu + z \sqrt{\frac{v\, r}{r - 1}} + \frac{z^2 - 1}{6} \frac{\mu_3}{v}

    `third` is the third central moment divided by the variance: standard deviation times skewness.
    The counts of r ranks have a fixed sum, so the correlation between two of them is -1/(r - 1).
    Equally correlated normal variables vary around their own mean like independent variables of
    variance ``v (1 + 1/(r - 1)) = v r/(r - 1)``. Here this mean is fixed, which gives the factor
    for the spread. To first order in its skewness s, a quantile of a skewed variable is
    ``mean + deviation (z + s (z² - 1)/6)`` at the normal quantile z (Cornish and Fisher, 1938).
    """
    if ranks == 1:
        return np.asarray(mean)
    z = _normal_maximum(ranks)
    spread = np.sqrt(variance * ranks / (ranks - 1))
    return np.asarray(mean + spread * z + third * (z**2 - 1) / 6)


@cache
def _normal_maximum(count: int) -> float:
    """Return the expected largest of n standard normal variables.

    G. Blom (*Statistical Estimates and Transformed Beta-Variables*, 1958) approximates the expected
    i-th smallest by the quantile at ``(i - 3/8) / (n + 1/4)``, here with i = n. The distribution is
    concave above 0, so Newton's method from 0 approaches the quantile from below.
    """
    z, above = 0.0, 0.625 / (count + 0.25)
    for _ in range(20):
        z += (erfc(z / sqrt(2)) / 2 - above) * sqrt(2 * pi) * exp(z**2 / 2)
    return z
