"""Pasted settings of popular deployments, judged at every batch size up to the largest."""

from pathlib import Path
from shlex import split

import numpy as np
import pytest

from specmodel import predict
from specmodel.core.prediction.predicting import predicted
from specmodel.plan import decide
from specmodel.plan.decision import LOSS

POPULAR = (Path(__file__).parents[1] / "data" / "popular.txt").read_text().splitlines()


def arguments(words):
    """Return the arguments in a line of words and options."""
    target, hardware, *options = split(words, comments=True)
    pairs = zip(options[::2], options[1::2], strict=True)
    named = {name[2:].replace("-", "_"): value for name, value in pairs}
    if sizes := named.get("batch_size"):
        named["batch_size"] = [*map(int, sizes.split(","))]
    return {"target": target, "hardware": hardware, **named}


@pytest.fixture(scope="module")
def decided(pytestconfig):
    """Decisions on popular deployments by their line, half of them or all with --slow."""
    popular = POPULAR[:: 1 if pytestconfig.getoption("slow") else 2]
    asked = {line: arguments(line) for line in popular if split(line, comments=True)}
    predictions = {line: predict(**given) for line, given in asked.items()}
    # without a known acceptance, the median head's: these settings are pasted for a measurement
    known = {line: predicted(p.case.with_typical()) for line, p in predictions.items()}
    asked = {
        line: given | ({"acceptance": "typical"} if predictions[line].turned else {})
        for line, given in asked.items()
    }
    found = {line: decide(p) for line, p in known.items() if not p.turned}
    assert len(found) > 0.85 * len(asked)
    return {line: (asked[line], decision) for line, decision in found.items() if decision}


def typed(given, decision):
    """Return the arguments that predict the pasted settings anew."""
    graphs = int(decision.graphs.option.split()[-1]) if decision.graphs else None
    return {**given, "graph_limit": graphs}


def test_nothing_pasted_loses_at_any_batch_size_asked_or_not(decided):
    """Predicted anew with the pasted length, or schedule, and CUDA graphs."""
    for line, (given, decision) in decided.items():
        every = np.arange(1, int(np.max(decision.prediction.batch_size)) + 1)
        length = decision.plan.schedule.draft_length if decision.plan else decision.length
        p = predict(**typed(given, decision) | {"batch_size": every, "draft_length": length})
        fits = p.fits if p.fits.any() else True
        assert p.speedup.min(where=fits, initial=9) >= LOSS, line
        judged = decision.prediction
        sizes = np.ravel(judged.batch_size).astype(int)
        assert judged.speedup.ravel() == pytest.approx(p.speedup[sizes - 1], rel=1e-9), line


def test_what_is_pasted_is_near_the_best_of_each_batch_size(decided):
    """From 1 to 64 of the judged requests: behind the best by at most 3 % on average."""
    lost = []
    for given, decision in decided.values():
        sizes = 2 ** np.arange(7)
        few, length = {"batch_size": sizes}, {"draft_length": decision.length}
        best = predict(**typed(given, decision) | few)
        if decision.plan:
            length = {"draft_length": decision.plan.schedule.draft_length[sizes - 1]}
        pasted = predict(**typed(given, decision) | few | length)
        share = np.exp(np.log(pasted.speedup / best.speedup).mean())
        lost.append(1 - share)
    assert np.mean(lost) < 0.03


def test_a_typed_size_of_graphs_stays():
    """Shorter drafts, or a schedule, then stay within the size."""
    asked = {"target": "glm-4.6", "hardware": "8xh200", "batch_size": [1, 256]}
    free, held = decide(predict(**asked)), decide(predict(**asked, graph_limit=512))
    assert free.graphs
    assert not held.graphs
    assert (256 * (held.prediction.draft_length + 1)).flat[-1] <= 512
    assert held.prediction.speedup.min() >= LOSS


def test_where_memory_ends_the_batch_others_wait():
    """If drafts leave room for fewer requests, tokens/s are those of the most that fit."""
    decision = decide(predict("qwen3.5-397b", "h200"))
    assert decision.no_room_at == [256]
    assert not decision.prediction.fits.all()


def test_nothing_is_decided_where_more_than_the_batch_size_varies_or_lengths_are_given():
    asked = {"target": "qwen3-30b-a3b", "hardware": "h100", "acceptance": 0.7}
    assert decide(predict(**asked, batch_size=[1, 8])) is not None
    assert decide(predict(**asked, batch_size=[1, 8], context_length=[1024, 2048])) is None
    assert decide(predict(**asked, batch_size=[1, 8], draft_length=3)) is None
    assert decide(predict(**asked | {"acceptance": 0.01}, batch_size=[1, 8])) is None
    assert decide(predict("mixtral-8x7b", "h100", drafter="eagle3")) is None
