"""Replays after refusals, on recurrent layers of which an engine keeps no snapshots."""

import numpy as np
import pytest
from msgspec.structs import replace
from rows import cases, each_listed

from specmodel import deploy, predict
from specmodel.core.algebra.speculation import expected_tokens_per_step
from specmodel.core.cost.latency import draft_pass, target_pass
from specmodel.core.cost.replays import Refusals, passes_of_slots
from specmodel.core.layers.batch import SequenceGroup
from specmodel.core.machines.llama_cpp import state_copy_bytes_per_s
from specmodel.core.models.architecture import load_architecture

HYBRID = {"target": "qwen3.6-35b-a3b", "hardware": "rtx_3090", "weight_dtype": "q4_k_m"}
STATE = 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
"""30 of 40 layers keep 32 heads of 128 by 128 in 32 bits, and three tokens of a convolution."""


def small():
    size = load_architecture("qwen3.6-35b-a3b").vocabulary_size
    return load_architecture("qwen3-0.6b").with_changes("drafter", {"vocabulary_size": size})


@cases(("rate", "drafted"), (0.7, 3), (0.2, 8), (1.0, 2), (0.0, 4))
def test_refusals_are_those_of_coin_flips(rate, drafted):
    tokens = expected_tokens_per_step(rate, [drafted, drafted - 1])
    found = Refusals.of(np.array(float(drafted)), *tokens, rate=0.5)
    refused = [rate**n * (1 - rate) for n in range(drafted)]
    assert float(found.chance) == pytest.approx(sum(refused) / 2, abs=1e-12)
    if rate < 1:
        accepted = np.dot(refused, np.arange(drafted)) / sum(refused)
        assert float(found.tokens) == pytest.approx(accepted + 2)
    assert float(found.per_step) == pytest.approx(1 + (tokens[0] - 1) / 2)


def test_passes_with_drafts_and_replays_are_those_of_slots_that_take_turns():
    rng, slots, chance, steps = np.random.default_rng(1), 4, 0.4, 40_000
    replays, drafts, any_draft, any_replay = np.zeros(slots, bool), 0, [], []
    for _ in range(steps):
        any_draft.append(not replays.all())
        any_replay.append(replays.any())
        drafts += (~replays).sum()
        replays = ~replays & (rng.random(slots) < chance)
    found = passes_of_slots(np.array(float(slots)), np.array(chance))
    each = slots * steps / drafts  # passes for a step of a slot
    for value, seen in zip(found, (any_draft, any_replay), strict=True):
        error = np.std(seen) / np.sqrt(steps) + 1e-3
        assert float(value) == pytest.approx(each * np.mean(seen), abs=8 * error)


def test_a_slot_computes_what_was_accepted_again_and_copies_its_states():
    d = small()
    drafts = {"draft_length": 3, "context_length": 512}
    p = predict(**HYBRID, drafter=d, acceptance=0.6, batch_size=1, **drafts)
    found = Refusals.of(np.array(3.0), *expected_tokens_per_step(0.6, [3, 2]), rate=1.0)
    q, tokens = float(found.chance), float(found.tokens)
    deployment = deploy(**HYBRID, drafter=d)[0]
    again = SequenceGroup(
        batch_size=np.ones(()), context_length=np.array(512.0), tokens_per_sequence=np.array(tokens)
    )
    silent = replace(again, logits_per_sequence=np.zeros(()))
    replay = float(target_pass(deployment, again).total_time)
    replay += float(draft_pass(deployment, d, silent).total_time)
    copies = (1 + q) * STATE / state_copy_bytes_per_s(deployment.hardware)
    step, made = float(p.times.step_time), float(p.tokens_per_step)
    cycle = step + q * replay + copies
    assert float(p.evaluation.step_time) == pytest.approx(cycle * made / (made + q))
    growth = sum(float(part) for part in p.evaluation.growth_by_cause().values())
    assert growth == pytest.approx(float(p.evaluation.step_time - p.forward_time))


@each_listed
def test_heads_have_snapshots_where_the_engine_takes_them(target, drafter, replays):
    told = {"target": target, "hardware": "rtx_3090", "weight_dtype": "q4_k_m"}
    deployment = deploy(**told, drafter=drafter)[0]
    assert deployment.replays == replays
    tokens = np.array([1.0, 4.0])
    assert deployment.states.states(tokens).tolist() == ([1, 1] if replays else [1, 4])
    assert not deploy(**told, drafter=drafter, engine="vllm")[0].replays


def test_whole_drafts_cost_their_copies_alone():
    where = {"batch_size": 1, "draft_length": 3, "context_length": 512}
    p = predict(**HYBRID, drafter=small(), acceptance=1.0, **where)
    copied = STATE / state_copy_bytes_per_s(p.deployment.hardware)
    assert float(p.evaluation.replay_time) == pytest.approx(copied, rel=1e-6)
