"""Runs of slots that have a proposal, where a pass needs equal lengths."""

import numpy as np
import pytest
from rows import each_row

from specmodel.core.cost.latency import runs_of_proposing


@each_row(("slots", "share"), [(8, 0.4), (2, 0.2), (1, 0.01)])
def test_runs_of_slots_that_propose_are_those_of_coin_flips(slots, share):
    rng = np.random.default_rng(1)
    flips = rng.random((20_000, slots)) < share
    runs = flips[:, 0] + (flips[:, 1:] & ~flips[:, :-1]).sum(axis=1)
    error = runs.std() / np.sqrt(len(runs))
    mean = runs_of_proposing(np.array(float(slots)), share)
    assert mean == pytest.approx(runs.mean(), abs=4 * error)
