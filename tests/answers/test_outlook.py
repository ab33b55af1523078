"""The best length of each point, and the question turned round: against whole grids."""

import numpy as np
import pytest

from specmodel import Acceptance, deploy, predict
from specmodel.answers.outlook import at_best_lengths, turned_round
from specmodel.drafters.typical import typical_heads

WHERE = {"target": "mixtral-8x7b", "hardware": "h100_sxm", "tensor_parallel": 2}
SIZES = np.array([1, 4, 16, 64, 256])


@pytest.mark.parametrize("rate", [0.6, 0.3, 0.15])
def test_the_best_length_of_each_batch_is_that_of_the_grid(rate):
    """None included, whose step a loaded drafter makes longer: where all lose, the least loss."""
    deployment = deploy(**WHERE, drafter="eagle3")
    acceptance = Acceptance(acceptance_rate=rate)
    found = at_best_lengths(*deployment, acceptance, 6, {"batch_size": SIZES})
    lengths = np.arange(7)[:, None]
    grid = predict(
        **WHERE, drafter="eagle3", batch_size=SIZES, draft_length=lengths, acceptance=rate
    )
    assert (grid.speedup[0] < 1).all()
    assert (found.draft_length == grid.speedup.argmax(axis=0)).all()
    np.testing.assert_allclose(found.speedup, grid.speedup.max(axis=0), rtol=1e-12)


def test_where_none_pays_the_length_is_0():
    deployment = deploy(**WHERE, drafter="eagle3")
    acceptance = Acceptance(acceptance_rate=0.01)
    found = at_best_lengths(*deployment, acceptance, 4, {"batch_size": SIZES})
    assert (found.draft_length == 0).all()
    assert (found.speedup <= 1).all()


@pytest.mark.parametrize("drafter", ["eagle3", "dflash"])
def test_a_head_of_the_tokens_needed_gains_nothing_and_of_more_pays(drafter):
    deployment, heads = deploy(**WHERE, drafter=drafter), typical_heads(drafter)
    turned = turned_round(*deployment, heads, heads.max_draft_length, {"batch_size": SIZES})
    p = turned.prediction
    for size, length, needed in zip(SIZES, p.draft_length, turned.tokens_needed, strict=True):
        at = {"batch_size": int(size), "draft_length": int(length)}
        acceptance = Acceptance(tokens_per_step=float(needed), measured_draft_length=int(length))
        even = predict(**WHERE, drafter=drafter, **at, acceptance=acceptance)
        assert float(even.speedup) == pytest.approx(1, rel=1e-9)


def test_speedups_are_those_of_the_heads():
    deployment, heads = deploy(**WHERE, drafter="eagle3"), typical_heads("eagle3")
    turned = turned_round(*deployment, heads, 5, {"batch_size": SIZES})
    assert [*turned.speedups] == ["lower quartile", "median", "upper quartile"]
    for level, acceptance in zip(heads.levels, heads.acceptance, strict=True):
        lengths = turned.prediction.draft_length
        p = predict(
            **WHERE, drafter="eagle3", batch_size=SIZES, draft_length=lengths, acceptance=acceptance
        )
        np.testing.assert_allclose(turned.speedups[level], p.speedup, rtol=1e-9)
    low, _, high = turned.speedups.values()
    assert (low < high).all()


def test_without_heads_the_length_that_asks_for_least_is_taken():
    deployment = deploy(**WHERE, drafter="ngram")
    turned = turned_round(*deployment, None, 4, {"batch_size": SIZES})
    assert turned.speedups == {}
    lengths = np.arange(1, 5)[:, None]
    grid = predict(**WHERE, drafter="ngram", batch_size=SIZES, draft_length=lengths, acceptance=0.5)
    least = np.nanmin(grid.break_even_acceptance_rate, axis=0)
    np.testing.assert_allclose(turned.prediction.break_even_acceptance_rate, least, rtol=1e-9)
