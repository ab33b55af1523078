"""Busiest ranks: their moments by enumeration, the maximum by plain arithmetic and Monte Carlo."""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from rows import cases, each_listed, each_row

from specmodel.core.algebra.ranks import (
    all_reduce,
    all_to_all,
    busiest_experts,
    busiest_share,
    busiest_tokens,
    rank_share,
)


def normal_maximum(count):
    """Expected largest of so many normal variables, by Blom's quantile."""
    return NormalDist().inv_cdf((count - 3 / 8) / (count + 1 / 4))


def moments(values, chances):
    """Mean, variance and third central moment of a law given by its values and their chances."""
    mean = float((values * chances).sum())
    second, third = (float(((values - mean) ** n * chances).sum()) for n in (2, 3))
    return mean, second, third


def largest(mean, variance, third, ranks, *, fixed_sum):
    """Largest of ranks whose counts have these moments: a normal quantile, corrected for skewness.

    Cornish and Fisher: mean + deviation (z + skewness (z^2 - 1) / 6). Where the sum of all is
    fixed, deviations from the mean of all are those of independent ones of a variance that is
    r / (r - 1) as large.
    """
    z, skewness = normal_maximum(ranks), third / variance**1.5
    wider = ranks / (ranks - 1) if fixed_sum else 1.0
    corrected = skewness * (z**2 - 1) / 6
    return mean + math.sqrt(variance * wider) * z + math.sqrt(variance) * corrected


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
@each_listed
def test_tokens_of_the_busiest_rank_by_all_ways_to_place_experts(tokens, ranks):
    """Twelve experts, every set of those that one rank may hold: exact moments of its tokens.

    Of the third one the library leaves out the factor E / (E - 2), 12/10.
    """
    E, each = len(tokens), len(tokens) // ranks
    sums = np.array([sum(held) for held in itertools.combinations(tokens, each)], dtype=float)
    mean, variance, third = moments(sums, 1 / sums.size)
    expected = largest(mean, variance, third * (E - 2) / E, ranks, fixed_sum=True)
    own = moments(np.array(tokens, dtype=float), 1 / E)
    assert mean < expected < sum(tokens), "neither bound decides"
    estimate = busiest_tokens(*map(np.float64, own), E, ranks)
    assert estimate == pytest.approx(expected, rel=1e-12)


@each_row(("E", "ranks"), [(64, 8), (128, 4), (60, 6), (256, 16), (8, 2)])
@each_row("share", [0.125, 0.25, 0.5, 0.75])
def test_experts_of_the_busiest_rank_by_the_hypergeometric_law(E, ranks, share):
    N, each = int(share * E), E // ranks
    held = np.arange(max(0, N - E + each), min(N, each) + 1)
    ways = [math.comb(N, n) * math.comb(E - N, each - n) for n in held]
    chances = np.array([float(Fraction(way, math.comb(E, each))) for way in ways])
    mean, variance, third = moments(held.astype(float), chances)
    third = third if share <= 0.5 else 0.0  # of a law skewed to the left nothing is taken off
    expected = largest(mean, variance, third, ranks, fixed_sum=True)
    expected = min(max(expected, min(N, 1)), N, each)
    assert busiest_experts(np.float64(N), E, ranks) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("E", "N", "ranks"), [(256, 40, 16), (256, 24, 16), (512, 60, 32)])
def test_skewness_brings_the_busiest_rank_nearer_to_what_is_drawn(E, N, ranks):
    """Few of many experts are loaded: within 2 %, where a normal law alone is 3 % below."""
    rng = np.random.default_rng(5)
    loaded = rng.random((20_000, E)).argsort(axis=1) < N
    most = loaded.reshape(-1, ranks, E // ranks).sum(axis=2).max(axis=1)
    error = 4 * most.std() / math.sqrt(most.size)
    assert abs(busiest_experts(np.float64(N), E, ranks) - most.mean()) <= error + 0.02 * most.mean()
    variance = N / ranks * (1 - 1 / ranks) * (E - N) / (E - 1)
    normal = largest(N / ranks, variance, 0.0, ranks, fixed_sum=True)
    assert normal < 0.97 * most.mean() - error


@pytest.mark.parametrize(("size", "p"), [(16, 0.3), (32, 0.1), (100, 0.44), (12, 0.7)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_share_of_the_busiest_rank_by_the_binomial_law(size, p, ranks):
    marked = np.arange(size + 1)
    ways = np.array([math.comb(size, n) for n in marked], dtype=float)
    chances = ways * p**marked * (1 - p) ** marked[::-1]
    mean, variance, third = moments(marked.astype(float), chances)
    expected = largest(mean, variance, third, ranks, fixed_sum=False) / size
    assert max(p, 1 / size) < expected < 1, "no bound decides"
    for chance in (1.0, 0.8):
        estimate = busiest_share(*map(np.float64, (size, p / chance, chance)), ranks)
        if expected > p / chance:
            assert estimate == pytest.approx(expected, rel=1e-9)


def test_bounds_of_the_busiest_rank():
    share = busiest_share(np.array([1.0, 4.0, 1000.0]), np.array([0.1, 0.01, 0.999]), np.ones(3), 2)
    assert share[:2].tolist() == [1.0, 0.25]
    assert 0.999 <= share[2] <= 1
    assert busiest_experts(np.array([0.5, 1.0, 60.0, 64.0]), 64, 8).tolist() == [0.5, 1.0, 8.0, 8.0]
    nothing = np.zeros(())
    assert busiest_tokens(np.float64(0.5), nothing, nothing, 64, 8) == 4
    assert busiest_tokens(np.float64(1 / 64), nothing, nothing, 64, 8) == 1
    assert busiest_tokens(np.float64(2 / 64), nothing, nothing, 64, 8) == 1


@cases(
    "ranks per_node all_reduced exchanged",
    (8, 8, (2 * 7 / 8, 0, 14, 0), (7, 0, 2, 0)),
    (4, 8, (2 * 3 / 4, 0, 6, 0), (3, 0, 2, 0)),
    (16, 8, (2 * 7 / 8, 2 * 1 / 2 / 8, 14, 2), (7, 8, 2, 2)),
    (32, 8, (2 * 7 / 8, 2 * 3 / 4 / 8, 14, 6), (7, 24, 2, 2)),
    (9, 1, (0, 2 * 8 / 9, 0, 16), (0, 8, 2, 2)),
)
def test_messages_counted(ranks, per_node, all_reduced, exchanged):
    """A ring reduces and gathers, n - 1 messages each of a part of n; all to all waits twice."""
    for count, expected in ((all_reduce, all_reduced), (all_to_all, exchanged)):
        message = count(ranks, per_node)
        got = message.link_share, message.network_share, message.link_hops, message.network_hops
        assert got == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("E", "k", "ranks", "zero"), [(8, 2, 4, 0), (4, 4, 2, 0), (6, 2, 3, 3)])
def test_chance_to_use_a_rank_by_all_ways_to_choose(E, k, ranks, zero):
    """Experts 0, 1, ... up to E/r are on the rank; those from E on compute nothing."""
    ways = list(itertools.combinations(range(E + zero), k))
    using = sum(min(chosen) < E // ranks for chosen in ways)
    assert rank_share(E, k, ranks, zero) == pytest.approx(using / len(ways), rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_routing_limited_to_groups_visits_fewer_ranks_and_loads_as_many_experts(ranks, law):
    """DeepSeek-V3's: the 4 of 8 groups whose two best experts sum to most, then the 8 best."""
    draws, generator = 6000, np.random.default_rng(42)
    scores = getattr(generator, law)(size=(draws, 8, 32))
    of_groups = np.sort(scores)[..., -2:].sum(axis=-1)
    taken = of_groups >= np.sort(of_groups)[:, [-4]]
    allowed = np.where(taken[..., None], scores, -np.inf).reshape(draws, 256)
    chosen = np.argsort(-allowed)[:, :8]
    visited = np.mean([len(set(experts // (256 // ranks))) for experts in chosen])
    share = rank_share(256, 8, ranks, groups=(8, 4))
    assert ranks * share == pytest.approx(visited, rel=0.015)
    assert share < rank_share(256, 8, ranks)
    unions = [len(set(experts.ravel())) for experts in chosen.reshape(-1, 24, 8)]
    assert np.mean(unions) == pytest.approx(256 * (1 - (1 - 8 / 256) ** 24), rel=0.01)
