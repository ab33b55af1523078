"""Heads and their acceptance as they are published, not as derived from their targets."""

import re

import numpy as np
import pytest
from printed import refused
from rows import each_row, listed
from strategies import draft_bytes

from specmodel import deploy, eagle3_drafter, list_architectures, load_architecture, load_drafter
from specmodel.core.drafters import load_acceptance
from specmodel.core.drafters.measured_heads import (
    QUARTILES_FROM,
    acceptance_by_name,
    published_head_of,
    typical_heads,
)
from specmodel.core.drafters.names import named_drafters
from specmodel.core.drafters.published import rows_of, taken_drafter, usual_drafter
from specmodel.core.drafters.tasks import MIXED, MIXTURE, TASKS, shares_of, task_shifts


@listed
def test_parameters_are_those_published_and_whose_head_it_is_is_told(target, name, billions, near):
    given = {"tensor_parallel": 8, "draft_tensor_parallel": 1}
    deployment, told = deploy(target=target, drafter=name, hardware="b200", **given)
    (head,) = deployment.drafter.architectures
    assert head.total_parameters == pytest.approx(billions * 1e9, rel=near)
    assert told["draft_head"] == f"published sizes ({head.source})"
    assert not {"draft_ffn_size", "draft_layers", "mtp_block"} & {*told}


def test_sizes_as_published():
    """The first layer of a head has the heads that are told of it."""
    drafter = load_drafter("dflash", load_architecture("deepseek-v4-flash"))
    mixer = drafter.architectures[0].layers[0].mixer
    assert (mixer.num_heads, mixer.num_kv_heads, mixer.head_dim) == (64, 1, 256)
    assert drafter.block_size == 8 - 1


def test_sizes_that_are_given_go_before_those_published():
    target = load_architecture("minimax-m3")
    drafter = eagle3_drafter(target, ffn_size=1000, vocabulary_size=32_000)
    (head,) = drafter.architectures
    assert head.layers[0].feed_forward.ffn_size == 1000
    assert (head.vocabulary_size, head.input_vocabulary_size) == (32_000, 200_064)


def test_a_reduced_vocabulary_leaves_the_embedding_whole_but_shared():
    """Weights of a head beside its target: fc, layer, norms and the LM head of 32,000 tokens."""
    target = load_architecture("mixtral-8x7b")
    drafter = eagle3_drafter(target, vocabulary_size=1000)
    (head,) = drafter.architectures
    assert head.outer_parameters == (32_000 + 1000) * 4096
    deployment, _ = deploy(target=target, drafter=drafter, hardware="h200_sxm")
    kept = 2 * (head.total_parameters - 32_000 * 4096)
    assert draft_bytes(deployment) == pytest.approx(kept, rel=1e-9)


# Published acceptance: met where it was measured, and quartiles over targets

HEADS = [*acceptance_by_name().values()]
MEASURED = [(head, task) for head in HEADS for task in head.tasks]
TYPICAL = [kind for kind in named_drafters() if typical_heads(kind)]


def test_every_row_says_what_it_was_measured_on_and_where_it_is_from():
    rows = rows_of("acceptance.csv")
    assert {row["task"] for row in rows} <= {*TASKS, MIXTURE, "not named"}
    assert all(row["data_set"] and row["date"] and row["source"] for row in rows)
    assert all(1 <= float(row["tokens_per_step"]) <= int(row["draft_length"]) + 1 for row in rows)
    assert len({(row["target"], row["drafter"]) for row in rows}) > 80


@each_row(("head", "task"), MEASURED)
def test_a_head_gives_the_tokens_that_were_measured(head, task):
    """Exactly where it was measured as the base was, and gains fall with each length."""
    known = head.tasks[task]
    if task == MIXTURE and {*MIXED} <= {*head.tasks}:
        return  # taken from its parts
    found = head.tokens_on(task, max(known.lengths))
    off = np.abs(found[np.array(known.lengths) - 1] - known.tokens_per_step)
    gains = np.diff(known.tokens_per_step) / np.diff(known.lengths)
    falls = bool((np.diff(gains) <= 1e-9).all() and (gains >= 0).all())
    assert off.max() < (0.02 if falls or len(known.lengths) == 1 else 0.25)


def test_beyond_what_was_measured_tokens_never_fall():
    for head in HEADS:
        if not named_drafters()[head.drafter].is_block:
            tokens = head.tokens_on(head.base, 12)
            assert (np.diff(tokens) >= -1e-12).all()
            assert tokens[0] <= 2


@each_row("kind", TYPICAL)
def test_levels_are_the_quartiles_of_targets(kind):
    found = typical_heads(kind)
    longest = found.max_draft_length
    tokens = np.stack([head.tokens_on(MIXTURE, longest) for head in found.heads])
    assert len({head.target for head in found.heads}) == len(found.heads)
    has_quartiles = len(found.heads) >= QUARTILES_FROM
    assert (found.levels[0] == "lower quartile") == has_quartiles
    shares = (0.25, 0.5, 0.75) if has_quartiles else (0, 0.5, 1)
    for share, acceptance in zip(shares, found.acceptance, strict=True):
        ours = [float(acceptance.expected_tokens_per_step(n + 1)) for n in range(longest)]
        # gains that would rise again with length are levelled out
        assert ours == pytest.approx(np.quantile(tokens, share, axis=0), abs=0.06)
    assert np.mean([head.longest >= longest for head in found.heads]) >= 0.5


def test_whose_head_is_meant_and_too_few_have_no_levels():
    assert typical_heads("pard") is typical_heads("ngram") is None
    assert published_head_of("Qwen3-30B-A3B", "eagle3").name == "qwen3-30b-a3b-eagle3"
    assert published_head_of("Qwen3-30B-A3B", "mtp") is None
    assert published_head_of("DeepSeek-V3.1", "mtp") is None, "not that of DeepSeek-V3"


# Kinds of tasks


@each_row("head", HEADS)
def test_mixed_use_lies_between_its_kinds(head):
    if named_drafters()[head.drafter].made_by:
        tokens = [head.tokens_on(task, head.longest)[-1] for task in MIXED]
        assert min(tokens) <= head.tokens_on(MIXTURE, head.longest)[-1] <= max(tokens)


def test_a_mixture_has_the_mean_time_of_a_token():
    """Half of the tokens on each kind: the harmonic mean of tokens a step."""
    head = acceptance_by_name()["glm-5.2-mtp"]
    code, chat = (head.tokens_on(task, 4) for task in ("code", "chat"))
    mixed = head.tokens_on("code=0.5,chat=0.5", 4)
    np.testing.assert_allclose(1 / mixed, (1 / code + 1 / chat) / 2, rtol=1e-12)
    ours = load_acceptance("glm-5.2", "mtp", task={"code": 0.5, "chat": 0.5})
    assert float(ours.expected_tokens_per_step(4)) == pytest.approx(mixed[-1])


def test_a_kind_that_was_not_measured_has_the_logit_of_others():
    """By hand, of SPEED-Bench's coding with one drafted token, where the rate is what is gained."""
    head, shifts = acceptance_by_name()["glm-5.2-mtp"], task_shifts()
    known = shifts["code"].data_sets["speed-coding"]
    logit = np.log(0.84 / 0.16) + shifts["chat"].shift - known
    assert head.tokens_on("chat", 1)[0] == pytest.approx(1 + 1 / (1 + np.exp(-logit)))
    assert "(code: speed-coding; source: Semi" in head.acceptance("chat").source
    assert head.acceptance("chat").source.endswith("; chat: estimated from code)")


def test_a_kind_measured_at_one_length_moves_the_curve_through_it():
    head = acceptance_by_name()["qwen3.5-397b-mtp"]
    (length,), (tokens,) = head.tasks["chat"].lengths, head.tasks["chat"].tokens_per_step
    assert head.tokens_on("chat", 8)[length - 1] == pytest.approx(tokens)
    assert head.acceptance("chat").spread < head.acceptance().spread


@listed
def test_tasks_that_are_none(task, expected):
    refused(rf"^task: got .*{re.escape(expected)}", shares_of, task)


def test_a_look_up_has_no_tasks_but_those_measured():
    head = acceptance_by_name()["llama-4-scout-ngram"]
    assert head.tokens_on(MIXTURE, 3)[-1] == head.tokens_on("chat", 3)[-1]
    refused(r"^task: got 'code'; expected chat: llama-4-scout-ngram", head.acceptance, "code")


def test_every_target_has_a_drafter_that_can_be_made():
    for name in list_architectures():
        drafter, why = taken_drafter(load_architecture(name))
        assert drafter in named_drafters()
        assert why


@listed
def test_a_usual_drafter_is_one_that_engines_run(name, drafter):
    target = load_architecture(name)
    assert usual_drafter(target).partition(",")[0] == drafter
    assert taken_drafter(target)[0] == (drafter or "eagle3")
