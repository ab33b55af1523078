"""Intervals with acceptance that differs: beside those with it exact, and by the law itself."""

import numpy as np
import pytest
from scipy import stats

from specmodel import Acceptance, predict

WHERE = {
    "target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h100_sxm", "engine": "vllm",
    "batch_size": 16, "draft_length": 3, "interval": True,
}  # fmt: skip


def ends(acceptance):
    found = predict(**WHERE, acceptance=acceptance).intervals["speedup"]
    return np.array([found.low, found.high])


def test_without_a_spread_acceptance_is_exact():
    exact = ends(0.7)
    assert (ends(Acceptance(acceptance_rate=0.7, spread=0.0)) == exact).all()
    wide = ends(Acceptance(acceptance_rate=0.7, spread=0.095))
    assert wide[0] < exact[0] < exact[1] < wide[1]


def test_a_spread_that_outweighs_times_has_the_quantiles_of_the_rate():
    """Tokens rise with the rate, so that their quantiles are those of the quantiles of rates."""
    spread = 0.3
    nominal = float(predict(**WHERE, acceptance=0.5).speedup)
    rates = np.clip(stats.norm(0.5, spread).ppf([0.1, 0.9]), 0, 1)
    tokens = sum(rates**i for i in range(4)) / sum(0.5**i for i in range(4))
    found = ends(Acceptance(acceptance_rate=0.5, spread=spread)) / nominal
    of_times = ends(0.5) / nominal
    # independent and both nearly lognormal: the squares of the logarithms add
    expected = np.sign(np.log(tokens)) * np.hypot(np.log(tokens), np.log(of_times))
    assert np.log(found) == pytest.approx(expected, abs=0.06)


def test_rates_by_position_move_as_the_one_that_gives_their_tokens():
    by_position = Acceptance(acceptance_by_position=[0.8, 0.7, 0.6], spread=0.1)
    tokens = float(by_position.expected_tokens_per_step(3))
    alike = Acceptance(tokens_per_step=tokens, measured_draft_length=3, spread=0.1)
    assert ends(by_position) == pytest.approx(ends(alike), rel=1e-9)
