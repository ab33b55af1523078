"""Closed forms, limits and identities of one draft-and-verify step."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, strategies as st
from printed import refused
from rows import each_row, faults, listed

from specmodel import Acceptance
from specmodel.core.algebra import acceptance as forms, speculation

RATES = st.floats(0, 1)
LENGTHS = st.integers(0, 200)


def geometric_sum(rate, length):
    """The definition: 1 + α + α² + … + α^γ, added from the small end."""
    return float(sum(rate**i for i in range(length, -1, -1)))


@given(RATES, LENGTHS)
def test_expected_tokens_are_the_geometric_sum(rate, length):
    expected = geometric_sum(rate, length)
    tokens = speculation.expected_tokens_per_step(rate, length)
    assert tokens == pytest.approx(expected, rel=1e-12)
    assert tokens >= 1
    assert speculation.expected_tokens_per_step(rate, 0) == 1


def test_three_numbers_called_acceptance_rate():
    """α = 0.8, γ = 4: 0.800, 0.590, 0.672 and 3.36 tokens per step (published, rounded)."""
    assert round(float(speculation.accepted_fraction(0.8, 4)), 3) == 0.590
    assert round(float(speculation.step_efficiency(0.8, 4)), 3) == 0.672
    assert round(float(speculation.expected_tokens_per_step(0.8, 4)), 2) == 3.36


@given(RATES, st.integers(1, 200))
def test_every_form_gives_the_rate_back(rate, length):
    tokens = speculation.expected_tokens_per_step(rate, length)
    given = {"tokens_per_step": tokens, "accepted_fraction": (tokens - 1) / length}
    given["step_efficiency"] = tokens / (length + 1)
    for form, value in given.items():
        found = Acceptance(**{form: value}, measured_draft_length=length).rate()
        assert found == pytest.approx(rate, abs=1e-12 * (length + 1))


def test_solved_rate_is_exact_to_rounding_everywhere():
    rng = np.random.default_rng(1)
    near_one = 1 - 10.0 ** rng.uniform(-16, 0, 2000)
    rate = np.concatenate([rng.random(2000), near_one, 1 - near_one, [0.0, 1.0]])
    length = np.floor(10 ** rng.uniform(0, 3, rate.size))
    tokens = speculation.expected_tokens_per_step(rate, length)
    found = speculation.solve_acceptance_rate(tokens, length)
    np.testing.assert_allclose(found, rate, rtol=0, atol=1e-12)


def test_the_least_bound_is_named_where_several_lengths_were_measured():
    """Half of the steps have a proposal of at most 2 or 4 tokens: 2 or 3 tokens a step."""
    given = Acceptance(tokens_per_step=[2.5, 2.5], measured_draft_length=[2, 4])
    refused(r"at most 2, as only 0\.5 of the steps", given.where_proposed, 0.5)
    share = Acceptance(step_efficiency=[0.9, 0.9], measured_draft_length=[2, 4])
    refused(r"at most 0\.6, as only 0\.5 of the steps", share.where_proposed, 0.5)


def test_mean_by_position_against_monte_carlo():
    rng = np.random.default_rng(2)
    rates = np.array([0.9, 0.7, 0.4, 0.6])
    accepted = np.cumprod(rng.random((200_000, rates.size)) < rates, axis=1).sum(axis=1)
    mean = forms.expected_tokens_per_step_by_position(rates, 4)
    assert abs(1 + accepted.mean() - mean) < 4 * accepted.std() / np.sqrt(accepted.size)


@given(st.lists(RATES, min_size=1, max_size=12))
def test_equal_rates_by_position_are_one_rate(rates):
    length = len(rates)
    by_position = forms.expected_tokens_per_step_by_position([rates[0]] * length, length)
    expected = speculation.expected_tokens_per_step(rates[0], length)
    assert by_position == pytest.approx(expected, rel=1e-12)
    cumulative = np.cumprod(rates)
    back = forms.conditional_acceptance(cumulative)
    np.testing.assert_allclose(np.cumprod(back), cumulative, rtol=1e-12, atol=0)


@given(st.floats(0.2, 12), st.integers(0, 10))
def test_break_even_rate_breaks_even(cost, length):
    rate = speculation.break_even_acceptance_rate(cost, length)
    if length == 0 or cost > length + 1:
        assert np.isnan(rate)
    elif cost <= 1:
        assert rate == 0
    else:
        tokens = speculation.expected_tokens_per_step(rate, length)
        assert speculation.utility(tokens, cost) == pytest.approx(1, rel=1e-12)


def test_best_draft_length_prefers_none_and_the_shortest_of_equals():
    gains = [[0.9, 0.99, 0.5], [1.2, 1.2, 1.1], [1.0, 1.3, 1.2]]
    assert speculation.best_draft_length(gains, [1, 2, 3]).tolist() == [0, 1, 2]
    across = speculation.best_draft_length(np.transpose(gains), [1, 2, 3], axis=0)
    assert across.tolist() == [0, 1, 2]


@each_row(("function", "given", "argument"), faults("algebra"))
def test_bad_input_names_the_argument(function, given, argument):
    module, _, name = function.partition(".")
    call = getattr(import_module(f"specmodel.core.algebra.{module}"), name)
    refused(f"^{argument}: got", call, *given)


@listed
def test_what_is_no_acceptance_names_the_argument(form, argument):
    refused(f"^{argument}: got", lambda: Acceptance(**form).rate())
