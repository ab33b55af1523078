"""The best length of each point, and the question turned round: against whole grids."""

import numpy as np
import pytest

from specmodel import Acceptance, predict
from specmodel.core.drafters.measured_heads import typical_heads

WHERE = {"target": "mixtral-8x7b", "hardware": "h100_sxm", "tensor_parallel": 2}
SIZES = np.array([1, 4, 16, 64, 256])


@pytest.mark.parametrize("drafter", ["eagle3", "dflash"])
def test_a_head_of_the_tokens_needed_gains_nothing_and_of_more_pays(drafter):
    lengths = range(1, typical_heads(drafter).max_draft_length + 1)
    found = predict(**WHERE, drafter=drafter, batch_size=SIZES, draft_length=[*lengths])
    turned = found.turned
    each = zip(SIZES, found.draft_length, turned.tokens_needed, strict=True)
    for size, length, needed in each:
        at = {"batch_size": int(size), "draft_length": int(length)}
        acceptance = Acceptance(tokens_per_step=float(needed), measured_draft_length=int(length))
        even = predict(**WHERE, drafter=drafter, **at, acceptance=acceptance)
        assert float(even.speedup) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("tree", [{"tree_width": 10, "verify_tokens": 32}, {}])
def test_trees_and_long_drafts_are_turned_round_without_heads(tree):
    where = {**WHERE, "drafter": "eagle3", "draft_length": 12, **tree}
    turned = predict(**where, batch_size=[1, 4096]).turned
    assert turned.heads is None
    assert np.isnan(turned.tokens_needed).tolist() == [False, bool(tree)]
    assert np.isnan(turned.rate_needed[0]) == bool(tree)
    tokens = {"tokens_per_step": float(turned.tokens_needed[0])}
    assert float(predict(**where, batch_size=1, **tokens).speedup) == pytest.approx(1, rel=1e-9)


def test_speedups_are_those_of_the_heads():
    heads = typical_heads("eagle3")
    found = predict(**WHERE, drafter="eagle3", batch_size=SIZES, draft_length=[*range(1, 6)])
    turned = found.turned
    assert [*turned.speedups] == ["lower quartile", "median", "upper quartile"]
    asked = {**WHERE, "drafter": "eagle3", "batch_size": SIZES, "draft_length": found.draft_length}
    for level, acceptance in zip(heads.levels, heads.acceptance, strict=True):
        p = predict(**asked, acceptance=acceptance)
        np.testing.assert_allclose(turned.speedups[level], p.speedup, rtol=1e-9)
    low, _, high = turned.speedups.values()
    assert (low < high).all()


@pytest.mark.parametrize("drafter", ["ngram", "eagle3"])
@pytest.mark.parametrize("lengths", [[1, 2, 3, 4], [3, 2]])
def test_what_is_needed_is_at_the_best_length_or_without_heads_the_least(drafter, lengths):
    heads = typical_heads(drafter)
    found = predict(**WHERE, drafter=drafter, batch_size=SIZES, draft_length=lengths)
    turned = found.turned
    point = {"batch_size": SIZES, "draft_length": np.array(lengths)[:, None], "acceptance": 0.5}
    grid = predict(**WHERE, drafter=drafter, **point)
    rates = np.nan_to_num(grid.break_even_acceptance_rate, nan=np.inf)
    told = np.nan_to_num(turned.rate_needed, nan=np.inf)
    assert np.isfinite(told).any()
    places = [lengths.index(length) for length in found.draft_length]
    np.testing.assert_allclose(told, rates[places, range(len(SIZES))], rtol=1e-9)
    assert (heads is None) == (turned.speedups == {})
    if heads is None:
        np.testing.assert_array_equal(told, rates.min(axis=0))
    else:
        median = heads.acceptance[1].expected_tokens_per_step(np.array(lengths))[:, None]
        gains = median / grid.relative_step_time
        assert places == gains.argmax(axis=0).tolist()
