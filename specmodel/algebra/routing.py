"""Random routing with a known law: which experts the tokens of a batch use, token by token.

The union of what is drawn has exactly the expectation of `experts.correlated_active_experts`, so
that a measurement, or a simulation, can be run under the law that the model assumes.
"""

import numpy as np
from numpy.typing import NDArray

from specmodel.algebra.experts import check_experts
from specmodel.base.errors import InputError
from specmodel.base.units import check


def sample_routing(
    batch_size: int,
    tokens_per_sequence: int,
    num_experts: int,
    experts_per_token: int,
    routing_correlation: float,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the experts of every token; tokens of one sequence share, sequences do not.

    Parameters
    ----------
    batch_size
        Sequences [request].
    tokens_per_sequence
        Tokens of each [token].
    num_experts, experts_per_token
        Routed experts of the layer and how many each token uses [-].
    routing_correlation
        Between two tokens of a sequence in the use of an expert: 0 independent, 1 all as the
        first [-].
    generator
        Source of the draws.

    Returns
    -------
    ndarray of int
        Distinct experts of each token, shape (batch_size, tokens_per_sequence,
        experts_per_token).

    Raises
    ------
    InputError
        If an argument is out of range or a count is not whole.

    Notes
    -----
    A Pólya urn for each sequence and expert: after i tokens, n of which used the expert, the next
    one does with chance ``((1 - c) k/E + n c) / ((1 - c) + i c)``. These sum to k over the
    experts, so that systematic sampling in random order draws exactly k distinct ones with
    exactly these chances; the law of one expert is the beta-binomial one of `experts.expert_use`.

    Examples
    --------
    >>> sample_routing(2, 3, 8, 2, 1.0, np.random.default_rng(0)).shape
    (2, 3, 2)
    """
    B, s = _count("batch_size", batch_size), _count("tokens_per_sequence", tokens_per_sequence)
    E, k = _count("num_experts", num_experts), _count("experts_per_token", experts_per_token)
    check_experts(E, k)
    c = float(check("routing_correlation", routing_correlation, minimum=0, maximum=1))
    used = np.zeros((B, E))
    chosen = np.empty((B, s, k), dtype=np.int64)
    rows = np.arange(B)[:, None]
    chance = np.full((B, E), k / E)
    for i in range(s):
        chosen[:, i] = _systematic(chance, k, generator)
        used[rows, chosen[:, i]] += 1
        chance = ((1 - c) * k / E + c * used) / (1 - c + (i + 1) * c)
    return chosen


def _systematic(
    chance: NDArray[np.float64], k: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw k distinct members of each row, each with its own chance; rows of these sum to k."""
    order = np.argsort(generator.random(chance.shape), axis=1)
    upper = np.cumsum(np.take_along_axis(chance, order, axis=1), axis=1)
    upper[:, -1] = k
    points = generator.random((len(chance), 1)) + np.arange(k)
    place = (upper[:, None, :] <= points[:, :, None]).sum(axis=2)
    return np.take_along_axis(order, np.minimum(place, chance.shape[1] - 1), axis=1)


def _count(name: str, value: int) -> int:
    number = float(check(name, value, minimum=1))
    if number != int(number):
        raise InputError(name, value, "a whole number")
    return int(number)
