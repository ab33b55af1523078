"""How a model is spread over GPUs: degrees, the busiest rank, and what they send each other."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.records.architecture import Architecture


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism of one model.

    Parameters
    ----------
    tensor_parallel
        GPUs that every matrix is cut over [-].
    expert_parallel
        GPUs that whole routed experts are spread over, instead of being cut; a multiple of
        `tensor_parallel`, or 1. Where it is larger, attention is data-parallel over
        ``expert_parallel / tensor_parallel`` replicas, each with its share of the batch [-].
    gpus_per_node
        GPUs that the fast link joins; beyond them messages take the network [-].
    data_parallel
        Replicas where they do not follow from the two degrees, as for a draft model [-].
    """

    tensor_parallel: int = 1
    expert_parallel: int = 1
    gpus_per_node: int = 8
    data_parallel: int | None = None

    @property
    def replicas(self) -> int:
        """Copies of the attention, each with its share of the batch [-]."""
        return self.data_parallel or max(self.expert_parallel // self.tensor_parallel, 1)

    @property
    def num_gpus(self) -> int:
        """GPUs in all [-]."""
        return self.tensor_parallel * self.replicas


SINGLE_GPU = Layout()
"""No parallelism."""


@dataclass(frozen=True)
class Message:
    """What one GPU sends in a collective, and the hops that it waits for.

    Parameters
    ----------
    link_share, network_share
        Bytes over each link for each byte of the tensor, or of what one other GPU gets [-].
    link_hops, network_hops
        Messages that follow one another [-].
    """

    link_share: float
    network_share: float
    link_hops: int
    network_hops: int


def check_layout(layout: Layout, architecture: Architecture, prefix: str = "") -> None:
    """Say in one line if an architecture cannot be spread so.

    Parameters
    ----------
    layout
        The degrees.
    architecture
        The model.
    prefix
        Put before the names of arguments in errors.

    Raises
    ------
    InputError
        If a degree does not divide what it cuts.
    """
    a = architecture
    n = int(check(f"{prefix}tensor_parallel", layout.tensor_parallel, minimum=1, whole=True))
    if not _cuts_heads(a, n):
        fitting = [str(i) for i in range(1, a.num_heads + 1) if _cuts_heads(a, i)]
        expected = f"a divisor of the {a.num_heads} heads of {a.name}: {', '.join(fitting)}"
        raise InputError(f"{prefix}tensor_parallel", n, expected)
    e = int(check(f"{prefix}expert_parallel", layout.expert_parallel, minimum=1, whole=True))
    if e == 1 or not a.is_moe:
        return
    if e > a.num_experts or a.num_experts % e:
        expected = f"a divisor of the {a.num_experts} experts of {a.name}"
        raise InputError(f"{prefix}expert_parallel", e, expected)
    if e % n:
        raise InputError(f"{prefix}expert_parallel", e, f"a multiple of tensor_parallel = {n}")


def busiest_experts(active_experts: FloatArray, num_experts: int, ranks: int) -> FloatArray:
    """Return the expected experts that the busiest rank loads, experts placed at random.

    Parameters
    ----------
    active_experts
        Distinct experts that the pass loads on all ranks, any shape [-].
    num_experts, ranks
        Routed experts of the layer, and ranks they are spread over evenly [-].

    Returns
    -------
    FloatArray
        Experts of the busiest rank, at most ``num_experts / ranks`` [-].

    Notes
    -----
    A rank's count is hypergeometric; the maximum over ranks is that of as many exchangeable
    variables of a fixed sum, by Blom's normal scores and the Cornish-Fisher term in their skewness.

    Examples
    --------
    >>> float(busiest_experts(np.float64(256), 256, 8))
    32.0
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

    Parameters
    ----------
    mean, variance, third
        Mean, variance and third central moment of the tokens of an expert, over experts and
        passes, any shape [token].
    num_experts, ranks
        Routed experts of the layer, and ranks they are spread over evenly [-].

    Returns
    -------
    FloatArray
        Pairs of the busiest rank, at most those of all ranks [token].

    Notes
    -----
    A rank holds ``E / ranks`` experts drawn without replacement, which carries the moments over;
    the maximum as in `busiest_experts`.
    """
    E, r = float(num_experts), float(ranks)
    rank_mean = mean * E / r
    rank_variance = E / r * (1 - 1 / r) * E / max(E - 1, 1) * variance
    rank_third = (1 - 2 / r) * third / np.maximum(variance, np.finfo(float).tiny)
    largest = _maximum(rank_mean, rank_variance, rank_third, ranks)
    return np.clip(largest, np.minimum(rank_mean * r, 1), rank_mean * r)


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

    Examples
    --------
    >>> all_reduce(8, 8).link_share
    1.75
    """
    inside = min(ranks, gpus_per_node)
    nodes = -(-ranks // inside)
    return Message(
        2 * (inside - 1) / inside,
        2 * (nodes - 1) / nodes / inside,
        2 * (inside - 1),
        2 * (nodes - 1),
    )


def all_to_all(ranks: int, gpus_per_node: int) -> Message:
    """Return what a GPU sends when each has as much for every other.

    Parameters
    ----------
    ranks, gpus_per_node
        GPUs that take part, and how many of them the fast link joins [-].

    Returns
    -------
    Message
        Shares of what one other GPU gets, and hops.

    Examples
    --------
    >>> all_to_all(16, 8).network_share
    8.0
    """
    inside = min(ranks, gpus_per_node)
    return Message(inside - 1.0, float(ranks - inside), 2, 2 if ranks > inside else 0)


def rank_share(num_experts: int, experts_per_token: int, ranks: int) -> float:
    """Return the chance that a token uses any of a rank's experts.

    Parameters
    ----------
    num_experts, experts_per_token
        Routed experts of the layer and how many each token uses [-].
    ranks
        Ranks that the experts are spread over evenly [-].

    Returns
    -------
    float
        ``1 - C(E - E/r, k) / C(E, k)`` [-].

    Examples
    --------
    >>> round(rank_share(128, 8, 8), 3)
    0.667
    """
    others = num_experts - num_experts // ranks
    missed = 1.0
    for i in range(experts_per_token):
        missed *= max(others - i, 0) / (num_experts - i)
    return 1 - missed


def _cuts_heads(architecture: Architecture, degree: int) -> bool:
    """Return whether query heads divide evenly, and key heads do or are copied evenly."""
    kv_heads = architecture.num_kv_heads
    divides = not architecture.num_heads % degree
    if architecture.latent:
        return divides
    return divides and (not kv_heads % degree or not degree % kv_heads)


def _maximum(mean: FloatArray, variance: FloatArray, third: FloatArray, ranks: int) -> FloatArray:
    """Return the expected maximum over ranks; `third` is third moment over variance."""
    z = _normal_maximum(ranks)
    spread = np.sqrt(variance * ranks / (ranks - 1))
    return np.asarray(mean + spread * z + third * (z**2 - 1) / 6)


@cache
def _normal_maximum(count: int) -> float:
    """Return the expected largest of `count` standard normal variables, by Blom."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
