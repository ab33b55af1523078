"""Passes of batches, as counted on llama.cpp 0.7.0 (Debian build 11669)."""

import numpy as np
import pytest
from rows import each_row

from specmodel.core.cost.latency import passes_of_batch, runs_of_proposing

COUNTED = (
    ([4, 4], {}, 1),
    ([4, 0, 4], {}, 2),
    ([4, 3], {}, 2),
    ([4, 1], {}, 2),
    ([1, 1], {}, 1),
    ([1, 0, 1], {}, 2),
    ([4, 4, 4, 4], {}, 1),
    ([4, 1, 1, 1], {}, 2),
    ([4, 3, 2, 1], {}, 4),
    *(
        (tokens, {"is_unified": True}, 1)
        for tokens in ([4, 4], [4, 0, 4], [4, 3], [1, 0, 1], [4, 3, 2, 1])
    ),
    ([4, 4, 4, 4], {"is_unified": True, "is_recurrent": True, "snapshots": 3}, 1),
    ([4, 3], {"is_unified": True, "is_recurrent": True, "snapshots": 3}, 2),
    ([4, 3, 2, 1], {"is_unified": True, "is_recurrent": True, "snapshots": 3}, 4),
    ([4, 4, 4, 1], {"is_unified": True, "is_recurrent": True, "snapshots": 3}, 4),
    ([4, 4, 4, 1], {"is_unified": True, "is_recurrent": True}, 2),
)


@each_row(("tokens", "kind", "passes"), COUNTED)
def test_a_batch_falls_into_as_many_passes_as_were_counted(tokens, kind, passes):
    assert passes_of_batch(tokens, **kind) == passes


def test_runs_of_slots_that_propose_are_those_of_coin_flips():
    rng = np.random.default_rng(1)
    flips = rng.random((20_000, 8)) < 0.4
    runs = flips[:, 0] + (flips[:, 1:] & ~flips[:, :-1]).sum(axis=1)
    error = runs.std() / np.sqrt(len(runs))
    assert runs_of_proposing(np.array(8.0), 0.4) == pytest.approx(runs.mean(), abs=4 * error)
