"""Acceptance falls with context: published one warns of it, and one's own is taken by context."""

import numpy as np
import pytest
from printed import refused
from rows import one_case

import specmodel

WORDS = ("qwen3-30b-a3b", "h100")
EAGLE = {"drafter": "eagle3", "batch_size": 1}
REPORTED = {2048: 2.87, 32_768: 1.57}
"""Tokens a step of three drafted, the later ones as SGLang issue 30763 reports them."""
BY_CONTEXT = {"acceptance_by_context": REPORTED, "measured_draft_length": 3}


def noted(kind, **more):
    """Values of the notes of a kind."""
    found = specmodel.predict(*WORDS, **EAGLE, **more)
    return [note.values for note in found.notes if note.kind == kind]


def test_published_acceptance_at_long_context_warns_and_ones_own_does_not():
    kind = "measured_at_short_context"
    assert noted(kind, context_length=131_072) == [{"context": 131_072}]
    assert not noted(kind, context_length=8192)
    assert not noted(kind, context_length=131_072, acceptance=0.7)
    assert not noted(kind, context_length=131_072, **BY_CONTEXT)


@pytest.mark.parametrize("drafter", ["eagle3", "ngram"])
def test_each_context_has_what_its_own_tokens_give(drafter):
    """8,192 is the middle of both by its logarithm; outside, the nearest holds."""
    tokens = {1: 1.5, 2048: 1.5, 8192: 1.35, 32_768: 1.2, 131_072: 1.2}
    contexts = np.array([*tokens])[:, None]
    where = {"drafter": drafter, "batch_size": [1, 16], "tensor_parallel": 2}
    own = {"acceptance_by_context": {2048: 1.5, 32_768: 1.2}, "measured_draft_length": 3}
    for length in (None, 3):
        asked = {**where, "draft_length": length}
        found = specmodel.predict(*WORDS, **asked, **own, context_length=contexts)
        for place, (context, mean) in enumerate(tokens.items()):
            alike = {"tokens_per_step": mean, "measured_draft_length": 3}
            alone = specmodel.predict(*WORDS, **asked, **alike, context_length=context)
            for name in ("draft_length", "tokens_per_step", "speedup"):
                expected = np.broadcast_to(alone.value(name), 2)
                of_context = np.broadcast_to(found.value(name), (5, 2))[place]
                assert of_context == pytest.approx(expected, rel=1e-12)


def test_contexts_outside_those_measured_are_named():
    kind = "beyond_contexts"
    (note,) = noted(kind, context_length=[512, 4096, 131_072], **BY_CONTEXT)
    assert (note["first"], note["last"], note["outside"]) == (2048, 32_768, "512 and 131,072")
    assert not noted(kind, context_length=[2048, 32_768], **BY_CONTEXT)


@one_case(
    "given expected",
    ({32_768: 1.57, 2048: 2.87}, "rising contexts from 0, each with tokens per step from 1 to 4"),
    ({-1: 2.87}, "rising contexts from 0,"), ({2048: 0.9}, "tokens per step from 1 to 4"),
    ({}, "at least one number"), ("2048:2.87,32768", "such as 2048:3.2,32768:2.1"),
    ({2048: float("nan")}, "finite numbers"),
)  # fmt: skip
def test_what_is_no_acceptance_by_context_is_said_in_one_line(given, expected):
    asked = EAGLE | BY_CONTEXT | {"acceptance_by_context": given}
    assert expected in refused("acceptance_by_context: got", specmodel.predict, *WORDS, **asked)


def test_the_draft_length_it_was_measured_at_is_needed():
    asked = EAGLE | {"acceptance_by_context": REPORTED}
    refused("at which acceptance_by_context was measured", specmodel.predict, *WORDS, **asked)
    alone = specmodel.predict(*WORDS, **asked, draft_length=3)
    assert alone.tokens_per_step == pytest.approx(2.87)


def test_a_context_beyond_the_model_s_own_is_said_once_with_both():
    where = {"target": "qwen3-8b", "hardware": "h200", "batch_size": 1, "draft_length": 1}
    beyond = specmodel.predict(**where, context_length=[1000, 40_961], acceptance=0.7)
    (note,) = (note for note in beyond.notes if note.kind == "beyond_context")
    assert note.values == {"context": 40_961, "longest": 40_960, "model": "Qwen3-8B"}
    within = specmodel.predict(**where, context_length=40_960, acceptance=0.7)
    assert not any(note.kind == "beyond_context" for note in within.notes)
