"""Runs of slots that have a proposal, where a pass needs equal lengths."""

import numpy as np
import pytest

from specmodel.core.cost.latency import runs_of_proposing


def test_runs_of_slots_that_propose_are_those_of_coin_flips():
    rng = np.random.default_rng(1)
    flips = rng.random((20_000, 8)) < 0.4
    runs = flips[:, 0] + (flips[:, 1:] & ~flips[:, :-1]).sum(axis=1)
    error = runs.std() / np.sqrt(len(runs))
    assert runs_of_proposing(np.array(8.0), 0.4) == pytest.approx(runs.mean(), abs=4 * error)
