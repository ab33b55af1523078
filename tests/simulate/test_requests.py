"""Requests: their laws, files, and what is refused."""

import numpy as np
import pytest
from printed import refused
from rows import each_listed

from specmodel import simulate
from specmodel.simulate.requests import WORKLOADS

MANY = 100_000


@each_listed
def test_arrivals_have_their_rate_and_variation(process, more, variation):
    arrivals = simulate.Arrivals(request_rate=4.0, process=process, **more)
    intervals = np.diff(arrivals.times(MANY, 1), prepend=0.0)
    assert intervals.mean() == pytest.approx(1 / 4, rel=4 * variation / MANY**0.5)
    assert intervals.std() / intervals.mean() == pytest.approx(variation, rel=0.05)


def test_a_rate_only_scales_the_arrivals_of_a_seed():
    slow, fast = (simulate.Arrivals(request_rate=rate).times(100, 7) for rate in (1.0, 5.0))
    np.testing.assert_allclose(slow, 5 * fast, rtol=1e-12)


def test_bursts_come_together_at_the_rate():
    times = simulate.Arrivals(request_rate=10.0, process="bursts", burst=5).times(MANY, 2)
    assert len(np.unique(times)) == MANY / 5
    assert MANY / times[-1] == pytest.approx(10, rel=4 * (5 / MANY) ** 0.5)


@pytest.mark.parametrize("name", WORKLOADS)
def test_lengths_have_their_means_spreads_and_correlation(name):
    law = WORKLOADS[name]
    prompts, outputs = np.log(law.draw(MANY, 3))
    assert prompts.std() == pytest.approx(law.prompt_spread, rel=0.02)
    assert outputs.std() == pytest.approx(law.output_spread, rel=0.02)
    assert np.corrcoef(prompts, outputs)[0, 1] == pytest.approx(law.correlation, abs=0.02)
    assert np.exp(prompts).mean() == pytest.approx(law.prompt_tokens, rel=0.03)
    assert np.exp(outputs).mean() == pytest.approx(law.output_tokens, rel=0.03)


@each_listed
def test_bad_arrivals_are_refused(given, culprit):
    refused(culprit, simulate.Arrivals, **given)
