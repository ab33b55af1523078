"""Unions of experts: closed forms, generative models by Monte Carlo, and measured unions."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from printed import refused
from published_tables import read_table
from rows import each_listed
from scipy import stats

from specmodel import load_architecture
from specmodel.core.algebra import experts, routing
from specmodel.core.cost import pass_work
from specmodel.core.layers.batch import SequenceGroup

EXPERTS = st.sampled_from([(8, 2), (16, 2), (60, 4), (64, 8), (128, 8), (256, 8), (256, 10)])
CORRELATIONS = st.floats(0, 1)


@pytest.mark.parametrize("row", read_table("saturation_tokens.csv"), ids=lambda row: row["model"])
def test_published_saturation_points(row):
    names = ("num_experts", "experts_per_token", "saturation_tokens")
    E, k, expected = (int(row[name]) for name in names)
    assert experts.saturation_tokens(E, k) == expected
    assert experts.active_experts(expected, E, k) >= 0.95 * E
    assert experts.active_experts(expected - 1, E, k) < 0.95 * E


def test_limits_of_the_union():
    assert experts.active_experts(0, 64, 8) == 0
    assert experts.active_experts(1, 64, 8) == pytest.approx(8, rel=1e-12)
    assert experts.active_experts(1e9, 64, 8) == 64
    assert experts.active_experts([0.5, 3], 4, 4).tolist() == [4, 4]
    assert experts.tokens_per_expert(1, 256, 8) == pytest.approx(1, rel=1e-12)
    assert experts.tokens_per_expert(1e9, 64, 8) == pytest.approx(1e9 / 8, rel=1e-12)
    assert experts.saturation_tokens(4, 4) == 1


@given(EXPERTS, st.floats(0.1, 1e6))
def test_union_rises_and_is_concave(shape, tokens):
    t = tokens * np.array([1.0, 1.01, 1.02])
    n = experts.active_experts(t, *shape)
    assert (np.diff(n) >= 0).all()
    assert np.diff(n, 2) <= 1e-9 * n[0]


def test_routing_correlation_is_the_correlation_of_use():
    rng = np.random.default_rng(5)
    rho, c, trials = 8 / 128, 0.3, 200_000
    p = rng.beta(rho * (1 - c) / c, (1 - rho) * (1 - c) / c, trials)
    first, second = rng.random((2, trials)) < p
    measured = np.corrcoef(first, second)[0, 1]
    assert measured == pytest.approx(c, abs=4 * 3 / np.sqrt(trials * rho))
    union_of_two = experts.correlated_active_experts(1, 2, 128, 8, c)
    assert union_of_two == pytest.approx(128 * (2 * rho - rho**2 - c * rho * (1 - rho)), rel=1e-12)


@given(EXPERTS, st.integers(1, 300), st.integers(1, 40))
def test_correlation_is_between_all_tokens_and_the_first_of_each_sequence(shape, batch, tokens):
    for c, alone in ((0, batch * tokens), (1, batch)):
        correlated = experts.correlated_active_experts(batch, tokens, *shape, c)
        assert correlated == pytest.approx(experts.active_experts(alone, *shape), rel=1e-12)


@given(EXPERTS, st.floats(1, 1000), st.floats(1, 40), CORRELATIONS)
def test_correlated_union_is_monotone(shape, batch, tokens, c):
    here = experts.correlated_active_experts(batch, tokens, *shape, c)
    slack = 1e-9 * here
    more_tokens = experts.correlated_active_experts(batch, tokens * 1.001, *shape, c)
    more_batch = experts.correlated_active_experts(batch * 1.001, tokens, *shape, c)
    less_shared = experts.correlated_active_experts(batch, tokens, *shape, c * 0.99)
    assert here - slack <= min(more_tokens, more_batch, less_shared)
    assert max(more_tokens, more_batch) <= here * 1.01


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.3])
def test_rates_of_popular_experts_are_those_of_a_gamma_law(spread):
    """Drawn: chances of missing an expert, and the moments of popularity over experts."""
    shape = 1 / max(spread, 1e-4) ** 2
    use = np.array(1 / 16)
    rate = routing.rate_of(use, spread)
    draws = stats.gamma(shape, scale=rate / shape).ppf((np.arange(200_000) + 0.5) / 200_000)
    chances = -np.expm1(-draws)
    for batch in (1, 8, 64):
        many = 1 - np.exp(-batch * draws).mean()
        assert routing.use_of(batch * rate, spread) == pytest.approx(many, rel=2e-3)
    moments = stats.moment(chances, 2), stats.moment(chances, 3)
    assert routing.moments_of(1 / 16, spread) == pytest.approx(moments, rel=0.02, abs=1e-9)
    assert routing.use_of(rate, spread) == pytest.approx(1 / 16, rel=1e-9)


@pytest.mark.parametrize("spread", [0.0, 1.3])
def test_unequal_popularity_is_part_of_the_correlation(spread):
    """One sequence loads what its tokens do, a batch fewer experts; two tokens share at least c."""
    model = load_architecture("qwen3-30b-a3b").with_changes("m", {"popularity_spread": spread})

    def union(batch, tokens, c):
        counts = {"batch_size": batch, "tokens_per_sequence": tokens, "context_length": 0.0}
        group = SequenceGroup(**{name: np.array(count) for name, count in counts.items()})
        return float(pass_work(model, group, routing_correlation=c).active_experts)

    law = experts.correlated_active_experts
    assert union(1, 4, 0.18) == pytest.approx(law(1, 4, 128, 8, 0.18))
    share = union(16, 4, 0.18) / law(16, 4, 128, 8, 0.18)
    assert share == pytest.approx(0.724 if spread else 1.0, abs=1e-3)
    assert union(2, 1, 0.0) == pytest.approx(union(1, 2, 0.0))


def test_measured_overlaps_alone_predict_the_cohere_union():
    """Shares of experts reused after 1 to 4 tokens give c; nothing is fitted to the union."""
    overlaps = np.array([0.381, 0.329, 0.301, 0.299])
    rho = 8 / 128
    correlation = (overlaps - rho) / (1 - rho)
    for c in (correlation.mean(), np.average(correlation[:3], weights=[3, 2, 1])):
        assert experts.correlated_active_experts(1, 4, 128, 8, c) == pytest.approx(20.36, rel=0.025)


@pytest.mark.parametrize("exponent", [0, 0.3, 1, 3, 5])
@given(EXPERTS)
def test_zipf_popularity_is_a_clipped_power(exponent, shape):
    E, k = shape
    p = routing.zipf_popularity(E, k, exponent)
    assert p.sum() == pytest.approx(k, rel=1e-9)
    assert (p <= 1).all()
    free = p < 1 - 1e-12
    scale = p[free] * np.arange(1, E + 1)[free] ** exponent
    np.testing.assert_allclose(scale, scale[0], rtol=1e-9)
    routing.check_popularity(p, E, k)


@each_listed
def test_correlated_and_skewed_unions_against_their_generative_form(batch, s, exponent, c):
    """Each sequence draws every expert's probability of use from a Beta law; tokens follow it."""
    rng, trials = np.random.default_rng(8), 3000
    p = routing.zipf_popularity(128, 8, exponent)
    use = np.broadcast_to(p, (trials, batch, 128))
    if c:
        ends = (np.maximum(x, 1e-12) * (1 - c) / c for x in (p, 1 - p))
        use = rng.beta(*ends, (trials, batch, 128))
    distinct = (rng.random((s, trials, batch, 128)) < use).any(axis=(0, 2)).sum(axis=-1)
    expected = routing.union_by_expert(np.array(batch), experts.expert_use(s, p, c))
    assert abs(distinct.mean() - expected) < 4 * distinct.std() / np.sqrt(trials)
    if not exponent:
        alike = experts.correlated_active_experts(batch, s, 128, 8, c)
        assert alike == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("popularity", "given"),
    [([0.5] * 3, "3 numbers"), ([0.5] * 4, "a sum of 2"), ([1.5, -0.5, 0, 0], "1.5")],
)
def test_popularity_that_cannot_be(popularity, given):
    refused(rf"^popularity: got '?{given}", routing.check_popularity, popularity, 4, 1)
