"""What tokens cost, by hand, and beside throughputs."""

import numpy as np
import pytest
from printed import refused

import specmodel
from specmodel.core.algebra.money import cost_per_million_tokens
from specmodel.core.prediction.predicting import priced

CASE = {"target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h100", "tensor_parallel": 2}


def test_a_million_tokens_cost_the_hours_that_they_take_on_all_gpus():
    """1,000 tokens/s take 1,000 s for a million: 1,000/3,600 hours of 4 GPUs at 3.6."""
    assert cost_per_million_tokens(3.6, 4, 1000.0) == pytest.approx(4.0)
    assert cost_per_million_tokens(0.0, 4, 1000.0) == 0


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_prices_that_mean_nothing_are_refused(price):
    refused("gpu_hour_price", cost_per_million_tokens, price, 1, 1.0)


def test_a_priced_prediction_has_the_cost_and_is_the_same_otherwise():
    found = specmodel.predict(**CASE, batch_size=[1, 16], draft_length=3, acceptance=0.7)
    with_cost = priced(found, 2.5)
    assert priced(found, None) is found
    by_hand = 2.5 * 2 / 3600 * 1e6 / found.throughput
    assert with_cost.cost_per_million_tokens == pytest.approx(by_hand)
    assert np.array_equal(with_cost.tpot, found.tpot)
    assert list(with_cost.units()) == [*found.units(), "cost_per_million_tokens"]
