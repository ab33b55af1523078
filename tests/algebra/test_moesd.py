"""MoESD's published model: its equations by hand, and its limits."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from printed import refused

from specmodel import InputError
from specmodel.core.algebra import experts, moesd
from specmodel.core.algebra.moesd import MoESDParameters

PARAMETERS = MoESDParameters(
    bias=3.0, k1=0.01, k2=0.2, k3=0.02, draft_bias=0.4, draft_k=0.01, reject_bias=0.1,
    reject_k=0.002, lam=0.5, s=1.01,
)  # fmt: skip
QWEN2 = {"num_experts": 64, "experts_per_token": 8}


@given(st.floats(1, 300), st.floats(1, 1.2))
def test_growth_and_its_slope_are_continuous_at_the_threshold(threshold, base):
    h = 1e-6 * threshold
    t = threshold + h * np.array([-2, -1, 0, 1, 2])
    g = moesd.growth(t, threshold, base)
    assert g[2] == pytest.approx(base**threshold, rel=1e-12)
    left, right = (g[2] - g[1]) / h, (g[3] - g[2]) / h
    assert left == pytest.approx(right, rel=1e-3, abs=1e-6 * g[2])


def test_forward_time_is_the_sum_of_its_terms():
    t, ridge_point = 20.0, 150.0
    G = 1.01**20
    T_exp = experts.tokens_per_expert(t, 64, 8)
    expected = 3 + 0.01 * G + 0.2 * experts.active_experts(t, 64, 8) + 0.02 * 1.01**T_exp
    actual = moesd.forward_time(t, PARAMETERS, ridge_point=ridge_point, **QWEN2)
    assert actual == pytest.approx(expected, rel=1e-12)


def test_draft_and_reject_times_are_the_sums_of_their_terms():
    draft = moesd.draft_pass_time([8, 100], PARAMETERS, ridge_point=150.0)
    beyond = 1.01**75 * (1 + np.log(1.01) * 25)
    np.testing.assert_allclose(draft, [0.4 + 0.01 * 1.01**8, 0.4 + 0.01 * beyond], rtol=1e-12)
    assert moesd.reject_time(8, PARAMETERS) == pytest.approx(0.1 + 0.016, rel=1e-12)


def test_speedup_is_equation_4_not_line_11():
    B, gamma, sigma, ridge_point = 8.0, 4.0, 0.9, 150.0
    how = {"ridge_point": ridge_point, **QWEN2}
    ar, verify = (moesd.forward_time(t, PARAMETERS, **how) for t in (B, B * gamma))
    draft = moesd.draft_pass_time(B, PARAMETERS, ridge_point=ridge_point)
    reject = moesd.reject_time(B, PARAMETERS)
    expected = sigma * (gamma + 1) * ar / (gamma * draft + verify + reject)
    actual = moesd.speedup(B, gamma, sigma, PARAMETERS, ridge_point=ridge_point, **QWEN2)
    assert actual == pytest.approx(expected, rel=1e-12)


def test_free_drafts_and_free_verification_give_tokens_per_step():
    free = replace(PARAMETERS, k1=0, k2=0, k3=0, draft_bias=0, draft_k=0, reject_bias=0, reject_k=0)
    gain = moesd.speedup([1, 64], 4, 0.9, free, ridge_point=150, **QWEN2)
    np.testing.assert_allclose(gain, 4.5, rtol=1e-12)


def test_bad_input_names_the_argument():
    refused(r"^base: got", moesd.growth, 1, 2000, 2)
    refused(r"^s: got", replace, PARAMETERS, s=0.9)
    with pytest.raises(InputError, match=r"^step_efficiency: got"):
        moesd.speedup(1, 4, 1.2, PARAMETERS, ridge_point=150, **QWEN2)
