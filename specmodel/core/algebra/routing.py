"""Describe which experts tokens use: the popularity of experts, and routing drawn at random.

The popularity of an expert is the probability that one token uses it. The popularities of a layer
sum to the number of experts that each token uses.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.core.algebra.experts import check_experts, union
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, check

MAX_POPULARITY_EXPONENT = 5.0
"""Largest exponent that `zipf_popularity` accepts [-]."""

_LEAST_VARIANCE = 1e-12
"""Smallest variance, which stands for equal popularity in arrays of spreads [-]."""


def zipf_popularity(num_experts: int, experts_per_token: float, exponent: Numeric) -> FloatArray:
    r"""Return popularities that fall as a power of the rank, at most 1.

    .. math:: p_i = \min(1,\; \lambda\, i^{-a})

    If the first m experts are clipped at 1, the others share the rest, ``k - m``, in proportion to
    their weights, which gives λ. The result uses the smallest m for which no other is above 1.

    Parameters
    ----------
    num_experts, experts_per_token, exponent
        Routed experts of the layer, the mean number that each token uses, and the exponent: 0 for
        equally popular experts, larger values for more unequal ones [-].

    Returns
    -------
    FloatArray
        Popularities on a new last axis; their sum is `experts_per_token` [-].

    Examples
    --------
    >>> zipf_popularity(4, 2, 1.0).round(3).tolist()
    [0.96, 0.48, 0.32, 0.24]
    """
    experts, mean = check_experts(num_experts, experts_per_token)
    E, k = int(experts), float(mean)
    a = check("popularity_exponent", exponent, minimum=0, maximum=MAX_POPULARITY_EXPONENT)
    weight = np.arange(1.0, E + 1) ** -a[..., None]
    clipped = np.arange(min(int(k), E - 1) + 1)
    tail = weight[..., ::-1].cumsum(axis=-1)[..., ::-1]
    scale = (k - clipped) / tail[..., clipped]
    first = np.argmax(scale * weight[..., clipped] <= 1 + 1e-12, axis=-1)[..., None]
    scaled = np.take_along_axis(scale, first, axis=-1) * weight
    return np.where(np.arange(E) < first, 1.0, np.minimum(scaled, 1.0))


def check_popularity(popularity: Numeric, num_experts: int, experts_per_token: float) -> FloatArray:
    """Check popularities, and return them as an array.

    Parameters
    ----------
    popularity
        Probability that a token uses each expert; experts on the last axis, layers before it [-].
    num_experts, experts_per_token
        Routed experts of the layer, and the mean number that each token uses [-].

    Returns
    -------
    FloatArray
        The probabilities [-].
    """
    p = check("popularity", popularity, minimum=0, maximum=1)
    if p.shape[-1:] != (num_experts,):
        shape = " x ".join(map(str, p.shape)) or "1"
        expected = f"{num_experts} numbers, one for each expert, or such a row for each layer"
        raise InputError("popularity", f"{shape} numbers", expected)
    sums = p.sum(axis=-1)
    farthest = sums.flat[np.abs(sums - experts_per_token).argmax()]
    if abs(farthest - experts_per_token) > 1e-6 * experts_per_token:
        expected = f"probabilities that sum to experts_per_token = {experts_per_token:g}"
        raise InputError("popularity", f"a sum of {farthest:.6g}", expected)
    return p


def rate_of(use: FloatArray, spread: FloatArray | float | None) -> FloatArray:
    r"""Return the mean rate of use of experts, from the probability that a sequence uses one.

    .. math:: \lambda = \frac{(1 - u)^{-v} - 1}{v}

    Rates of experts differ by a factor with a Gamma distribution of mean 1 and variance v, the
    square of the `spread`. An expert with rate r is not used with probability ``exp(-r)``. The mean
    of this probability over experts is ``(1 + v λ)^(-1/v)``. If all experts are equally popular, λ
    is ``-ln(1 - u)``.

    Parameters
    ----------
    use, spread
        Mean probability, over experts, that an expert is used; and the standard deviation of
        popularity over its mean, None for equal popularity [-].

    Returns
    -------
    FloatArray
        λ, infinite if the probability is 1 [-].
    """
    with np.errstate(divide="ignore"):
        rate = -np.log1p(-use)
    if spread is None:
        return np.asarray(rate)
    v = np.maximum(np.square(spread), _LEAST_VARIANCE)
    return np.asarray(np.expm1(v * rate) / v)


def use_of(rate: FloatArray, spread: FloatArray | float | None) -> FloatArray:
    r"""Return the probability that an expert is used, from the mean rate: the inverse of `rate_of`.

    .. math:: 1 - (1 + v\, \lambda)^{-1/v}

    Rates of independent sequences add up. If one sequence uses a share u of the experts, the share
    of B sequences is ``use_of(B * rate_of(u, spread), spread)``.

    Parameters
    ----------
    rate, spread
        A rate from `rate_of`, and its spread [-].

    Returns
    -------
    FloatArray
        Mean probability over experts [-].

    Examples
    --------
    >>> rate = rate_of(np.array(1 / 16), np.array(1.3))
    >>> use_of(rate * [1, 4, 64], np.array(1.3)).round(3).tolist()
    [0.062, 0.201, 0.716]
    """
    if spread is not None:
        v = np.maximum(np.square(spread), _LEAST_VARIANCE)
        rate = np.log1p(v * rate) / v
    return np.asarray(-np.expm1(-rate))


def moments_of(use: float, spread: FloatArray | float) -> tuple[Any, Any]:
    """Return the variance and the third central moment of the popularities of experts.

    Parameters
    ----------
    use, spread
        Mean popularity, and the spread as for `rate_of` [-].
    """
    return _kept_moments(use, spread) if isinstance(spread, float) else _moments(use, spread)


def _moments(use: float, spread: FloatArray | float) -> tuple[Any, Any]:
    rate = rate_of(np.asarray(use), spread)
    one, two, three = (1 - use_of(count * rate, spread) for count in (1, 2, 3))
    return two - one**2, 3 * one * two - three - 2 * one**3


_kept_moments = lru_cache(maxsize=256)(_moments)
"""Moments for numbers, of which few models have others."""


def union_by_expert(batch_size: FloatArray, use: FloatArray) -> FloatArray:
    r"""Return the expected distinct experts of a batch whose sequences are independent.

    .. math:: \sum_e 1 - (1 - \mathrm{use}_e)^B

    Large arrays of points are split, so that intermediate arrays need only some megabytes. The sum
    over experts of a point does not depend on the split, to the last digit.

    Parameters
    ----------
    batch_size, use
        Sequences in the batch [request], and the probability that a sequence uses each expert, from
        `experts.expert_use`, experts on the last axis [-].

    Returns
    -------
    FloatArray
        Expected distinct experts, without the last axis [-].
    """
    shape, size = np.broadcast_shapes(batch_size.shape, use.shape[:-1]), use.shape[-1]
    axis = int(np.argmax(shape)) if shape else 0
    batch, use = np.broadcast_to(batch_size, shape), np.broadcast_to(use, (*shape, size))
    parts = min(math.prod(shape) * size // 10**6, max(shape, default=1))
    if parts <= 1:
        return np.asarray(union(batch[..., None], use, np.ones(())).sum(axis=-1))
    halves = zip(*(np.array_split(array, 2, axis=axis) for array in (batch, use)), strict=True)
    return np.concatenate([union_by_expert(*half) for half in halves], axis=axis)


def sample_routing(
    batch_size: int,
    tokens_per_sequence: int,
    num_experts: int,
    experts_per_token: int,
    routing_correlation: float,
    generator: np.random.Generator,
    popularity: FloatArray | None = None,
) -> NDArray[np.int64]:
    """Draw the experts of every token; tokens of one sequence share experts, sequences do not.

    The expected number of distinct experts is exactly `experts.correlated_active_experts`, so a
    measurement or a simulation can use the law that the model assumes.

    Each pair of sequence and expert is a Pólya urn. After i tokens, of which n used the expert, the
    next token uses it with probability ``((1 - c) k/E + n c) / ((1 - c) + i c)``. Over the experts,
    these probabilities sum to k. Systematic sampling in random order therefore draws exactly k
    distinct experts with exactly these probabilities. The law of one expert is the beta-binomial
    law of `experts.expert_use`.

    Parameters
    ----------
    batch_size, tokens_per_sequence, num_experts, experts_per_token, routing_correlation
        As for `experts.correlated_active_experts` [request] [token] [-].
    generator
        Source of the draws.
    popularity
        Popularities such as those of `zipf_popularity`; None for equally popular experts [-].

    Returns
    -------
    ndarray of int
        Distinct experts of each token, shape (batch_size, tokens_per_sequence, experts_per_token).
    """
    counts = {
        "batch_size": batch_size,
        "tokens_per_sequence": tokens_per_sequence,
        "num_experts": num_experts,
        "experts_per_token": experts_per_token,
    }
    B, s, E, k = (int(check(n, count, minimum=1, whole=True)) for n, count in counts.items())
    check_experts(E, k)
    c = float(check("routing_correlation", routing_correlation, minimum=0, maximum=1))
    if popularity is not None:
        popularity = check_popularity(popularity, E, k)
    used = np.zeros((B, E))
    chosen = np.empty((B, s, k), dtype=np.int64)
    rows = np.arange(B)[:, None]
    mean = np.full(E, k / E) if popularity is None else popularity
    chance = np.tile(mean, (B, 1))
    for i in range(s):
        chosen[:, i] = _systematic(chance, k, generator)
        used[rows, chosen[:, i]] += 1
        chance = ((1 - c) * mean + c * used) / (1 - c + (i + 1) * c)
    return chosen


def _systematic(
    chance: NDArray[np.float64], k: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw k distinct members of each row with given probabilities, which sum to k in each row.

    The probabilities form a row of intervals in random order. Of these, k points at distances of 1
    hit k different intervals, as no interval is longer than 1.
    """
    order = np.argsort(generator.random(chance.shape), axis=1)
    upper = np.cumsum(np.take_along_axis(chance, order, axis=1), axis=1)
    upper[:, -1] = k
    points = generator.random((len(chance), 1)) + np.arange(k)
    place = (upper[:, None, :] <= points[:, :, None]).sum(axis=2)
    return np.take_along_axis(order, np.minimum(place, chance.shape[1] - 1), axis=1)
