"""Where memory ends drafts, and what a loaded drafter costs: against each length alone."""

import numpy as np
import pytest
from msgspec.structs import replace

from specmodel import Acceptance, deploy, predict
from specmodel.core.prediction.cautions import notes_at_best
from specmodel.core.prediction.predicting import predict_deployed

WHERE = {"target": "qwen3.5-397b-a17b", "drafter": "mtp", "hardware": "h200_sxm"}
LAYOUT = {"tensor_parallel": 1, "data_parallel": 8}
SIZES, CONTEXTS, LONGEST = np.array([8, 128, 256, 2000]), np.array([[512], [8192]]), 6


def each_length(rate):
    """Return speedups, whether they fit and bytes at lengths of 0 to the longest, one by one."""
    asked = WHERE | LAYOUT | {"batch_size": SIZES, "context_length": CONTEXTS, "acceptance": rate}
    found = [predict(**asked, draft_length=length) for length in range(LONGEST + 1)]
    return [np.stack([getattr(p, n) for p in found]) for n in ("speedup", "fits", "memory_bytes")]


@pytest.mark.parametrize("rate", [0.8, 0.3, 0.02])
@pytest.mark.parametrize("is_grid", [True, False])
def test_the_shortest_draft_that_would_gain_more_is_found(rate, is_grid):
    """Of the points of a grid of lengths, and of one at the best length of each."""
    deployment, acceptance = deploy(**WHERE, **LAYOUT), Acceptance(acceptance_rate=rate)
    points = {"batch_size": SIZES, "context_length": CONTEXTS}
    if is_grid:
        told = {**points, "max_draft_length": LONGEST, "acceptance": acceptance}
        lengths = np.arange(1, LONGEST + 1)[:, None, None]
        p = predict(**WHERE, **LAYOUT, draft_length=lengths, **told)
    else:
        p = predict_deployed(
            *deployment,
            acceptance=acceptance,
            draft_length=None,
            max_draft_length=LONGEST,
            **points,
        )
    held = p.evaluation.held
    gain, fits, needed = each_length(rate)
    memory = replace(p.evaluation.memory, verify_tokens=held.draft_length + 1).total_bytes(SIZES)
    taken = np.where(fits, gain, 0).max(axis=0)
    running, plain = p.evaluation.at_lengths(np.arange(LONGEST + 1.0)[:, None, None]).at_once
    would = ~fits & (gain * plain / running > np.maximum(1.01 * taken, 1)) & (taken > 0)
    first = would.argmax(axis=0)  # length 0 is never one
    assert held.draft_length.tolist() == first.tolist()
    for place in np.argwhere(first):
        at = (first[tuple(place)], *place)
        assert held.speedup[tuple(place)] == pytest.approx(gain[at], rel=1e-12)
        assert memory[tuple(place)] == pytest.approx(needed[at], rel=1e-12)
    assert (rate == 0.02) == (not first.any())
    told = p.notes[0] if not is_grid else notes_at_best(p.evaluation, {})[0]
    assert (told.kind == "memory_ends_drafts") == bool(first.any())
    if not is_grid:
        is_idle = p.draft_length == 0
        is_told = (p.limited_by == "memory") == (is_idle & (first > 0))
        assert (is_told | ~fits.any(axis=0)).all()  # where all must wait, it is memory too


def test_without_states_memory_ends_no_drafts():
    deployment = deploy(target="mixtral-8x7b", drafter="eagle3", hardware="h100_sxm")
    p = predict_deployed(
        *deployment, acceptance=0.7, draft_length=None, max_draft_length=4, batch_size=SIZES
    )
    assert p.evaluation.held is None
    assert "memory" not in p.limited_by


def test_what_a_loaded_drafter_costs_is_all_that_the_step_is_longer():
    deployment = deploy(target="mixtral-8x7b", drafter="eagle3", hardware="h200_sxm")
    points = {"batch_size": 64}
    p = predict_deployed(
        *deployment, acceptance=0.01, draft_length=None, max_draft_length=4, **points
    )
    draft, host = float(p.draft_time), float(p.reject_time)
    assert float(p.step_time - p.forward_time) == pytest.approx(draft + host, rel=1e-9)
    assert p.draft_length == 0
    note = p.notes[0]
    assert note.kind == "loaded_drafter"
    spent = {"draft_time": draft, "host_time": host, "speedup": float(p.speedup)}
    assert {name: note.values[name] for name in spent} == pytest.approx(spent, rel=1e-9)
