"""Models spread over GPUs (ranks): the load of the busiest rank, and what ranks send each other."""

from functools import cache
from math import erfc, exp, pi, sqrt

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray


class Message(Struct, frozen=True):
    """What one GPU sends in a collective operation, and the hops it waits for.

    Parameters
    ----------
    link_share, network_share
        Bytes sent per byte of the tensor, or of what one other GPU gets [-].
    link_hops, network_hops
        Messages that follow one another [-].
    """

    link_share: float
    network_share: float
    link_hops: int
    network_hops: int


def busiest_experts(active_experts: FloatArray, num_experts: int, ranks: int) -> FloatArray:
    """Return the expected experts that the busiest rank loads, experts placed at random.

    A rank holds E/r of the E experts, drawn at random. How many of the N loaded ones are among them
    is hypergeometric, with mean N/r, variance ``N/r (1 - 1/r) (E - N)/(E - 1)`` and third central
    moment ``variance (1 - 2/r) (E - 2N)/(E - 2)`` (N. L. Johnson, A. W. Kemp and S. Kotz,
    *Univariate Discrete Distributions*, 3rd ed., Wiley, 2005, ch. 6). `_maximum` takes the busiest
    rank from these three.

    Parameters
    ----------
    active_experts, num_experts, ranks
        Distinct experts that the pass loads on all ranks, routed experts of the layer, and ranks
        they are spread over evenly [-].

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
    """Return the expected token-expert pairs of the busiest rank, experts placed at random.

    A rank holds n = E/r of the E experts, drawn at random without replacement. The sum of their
    tokens has mean ``n mean`` and variance ``n (1 - n/E) E/(E - 1) variance``: the factor
    ``1 - n/E = 1 - 1/r`` says that drawing all experts leaves nothing to chance. Its third moment
    over its variance is that of one expert times ``1 - 2n/E = 1 - 2/r``, as for the hypergeometric
    count; a factor ``E/(E - 2)`` is left out.

    Parameters
    ----------
    mean, variance, third
        Mean, variance and third central moment of an expert's tokens, over experts and passes
        [token].
    num_experts, ranks
        Routed experts of the layer, and ranks they are spread over evenly [-].

    Returns
    -------
    FloatArray
        Pairs of the busiest rank, at most those of all ranks [token].
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
    """Return the share of marked members on the rank that has most of them.

    With p = `share` `chance`, the marked members of a rank are binomial: mean n p, variance
    ``n p (1 - p)``, third central moment over the variance ``1 - 2p``. The maximum is that of
    `_maximum`, but without its wider spread, as ranks are independent here. Where some members are
    marked, the busiest rank has at least one.

    Parameters
    ----------
    size, ranks
        Members of each rank, the same for all, and ranks [-].
    share, chance
        Mean share of all members that are marked, given that some are, and the chance that any is;
        members are marked independently [-].

    Returns
    -------
    FloatArray
        At least `share`, and one member [-].
    """
    p, z = share * chance, _normal_maximum(ranks)
    largest = size * p + z * np.sqrt(size * p * (1 - p)) + (1 - 2 * p) * (z**2 - 1) / 6
    return np.asarray(np.clip(largest / size, np.maximum(share, 1 / size), 1))


def all_reduce(ranks: int, gpus_per_node: int) -> Message:
    """Return what a GPU sends in a ring all-reduce: inside the node, then across nodes.

    Parameters
    ----------
    ranks, gpus_per_node
        GPUs that take part, and how many of them the fast link joins [-].

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
    """Return what a GPU sends when each has as much for every other one.

    Parameters
    ----------
    ranks, gpus_per_node
        GPUs that take part, and how many of them the fast link joins [-].

    Returns
    -------
    Message
        Shares of what one other GPU gets, and hops.
    """
    inside = min(ranks, gpus_per_node)
    return Message(inside - 1.0, float(ranks - inside), 2, 2 if ranks > inside else 0)


def beside_network(message: Message, network_hops: int) -> Message:
    """Return the part of a message for other nodes, which outlasts the rest sent meanwhile.

    Parameters
    ----------
    message, network_hops
        What a GPU sends, and the hops that it waits for if any of it goes to other nodes [-].

    Returns
    -------
    Message
        The part for other nodes if there is any, else `message` itself.
    """
    if not message.network_hops:
        return message
    return Message(0.0, message.network_share, 0, network_hops)


def rank_share(
    num_experts: int,
    experts_per_token: int,
    ranks: int,
    num_zero_experts: int = 0,
    groups: tuple[int, int] = (1, 1),
) -> float:
    r"""Return the chance that a token uses any of a rank's experts.

    .. math:: 1 - \frac{\binom{E - E/r}{k}}{\binom{E}{k}}

    Where routing is limited to some groups of experts, ranks hold experts in their order. A token
    then uses one expert of each group that it takes for sure, as groups are chosen by their best
    ones, and the others are drawn from all of these groups: routing drawn at random visits at most
    1.2 % fewer ranks (DeepSeek-V3's, on 2 to 64).

    Parameters
    ----------
    num_experts, experts_per_token, ranks
        Routed experts of the layer, how many each token uses, and ranks they are spread over [-].
    num_zero_experts
        Experts that compute nothing and are on no rank, but that a token may choose as well [-].
    groups
        Groups of experts, and how many of them a token takes [-].

    Returns
    -------
    float
        The chance; E counts all experts that there are to choose from [-].
    """
    (count, taken), choices = groups, num_experts + num_zero_experts
    if count <= 1:
        return 1 - _missed(choices, num_experts // ranks, experts_per_token)
    if ranks <= count:
        return 1 - _missed(count, count // ranks, taken)
    of_group, own = num_experts // count, num_experts // ranks
    rest = _missed(taken * of_group - taken, own, experts_per_token - taken)
    return taken / count * (1 - (1 - own / of_group) * rest)


def _missed(choices: int, own: int, drawn: int) -> float:
    """Return the chance that `drawn` distinct members of `choices` include none of `own` [-]."""
    missed = 1.0
    for i in range(drawn):
        missed *= max(choices - own - i, 0) / (choices - i)
    return missed


def _maximum(mean: FloatArray, variance: FloatArray, third: FloatArray, ranks: int) -> FloatArray:
    r"""Return the expected maximum over ranks, from the moments of one rank.

    .. math:: \mu + z \sqrt{\frac{v\, r}{r - 1}} + \frac{z^2 - 1}{6} \frac{\mu_3}{v}

    `third` is the third central moment over the variance, which is standard deviation times
    skewness. The counts of r ranks have a fixed sum, so that two of them correlate by -1/(r - 1).
    Equally correlated normal variables spread about their own mean like independent ones of
    variance ``v (1 + 1/(r - 1)) = v r/(r - 1)``, and that mean is fixed here: hence the wider
    spread. A quantile of a skewed variable is, to first order in its skewness s (Cornish and
    Fisher, 1938), ``mean + deviation (z + s (z² - 1)/6)`` at the normal quantile z.
    """
    z = _normal_maximum(ranks)
    spread = np.sqrt(variance * ranks / (ranks - 1))
    return np.asarray(mean + spread * z + third * (z**2 - 1) / 6)


@cache
def _normal_maximum(count: int) -> float:
    """Return the expected largest of n standard normal variables.

    G. Blom (*Statistical Estimates and Transformed Beta-Variables*, 1958) approximates the expected
    i-th smallest by the quantile at ``(i - 3/8) / (n + 1/4)``, here with i = n. Newton's steps
    from 0, right of which the distribution is concave, come to it from below.
    """
    z, above = 0.0, 0.625 / (count + 0.25)
    for _ in range(20):
        z += (erfc(z / sqrt(2)) / 2 - above) * sqrt(2 * pi) * exp(z**2 / 2)
    return z
