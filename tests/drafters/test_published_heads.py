"""Heads and their acceptance as they are published, not as derived from their targets."""

import re

import numpy as np
import pytest
from rows import each_row
from strategies import draft_bytes

from specmodel import deploy, eagle3_drafter, list_architectures, load_architecture, load_drafter
from specmodel.drafters import drafter_kind
from specmodel.drafters.names import named_drafters
from specmodel.drafters.published import rows_of, taken_drafter, usual_drafter
from specmodel.drafters.typical import (
    QUARTILES_FROM,
    measured_acceptance,
    published_acceptance,
    published_heads,
    typical_heads,
)

PUBLISHED = [  # billions of parameters as published, and how near is reached
    ("minimax-m3", "eagle3", 3.075, 0.02),
    ("kimi-k2.6", "eagle3", 3.0, 0.05),
    ("glm-5.2", "dspark", 3.807, 0.02),
    ("gemma-4-31b", "dspark", 2.959, 0.02),
    ("gemma-4-26b-a4b", "mtp", 0.420, 0.02),
    ("gemma-4-12b", "mtp", 0.423, 0.01),
    ("gemma-4-e4b", "mtp", 0.0788, 0.01),
    ("deepseek-v4-flash", "dflash", 1.804, 0.02),
]


@each_row(("target", "name", "billions", "near"), PUBLISHED)
def test_parameters_are_those_published_and_whose_head_it_is_is_told(target, name, billions, near):
    given = {"tensor_parallel": 8, "draft_tensor_parallel": 1}
    deployment, told = deploy(target=target, drafter=name, hardware="b200", **given)
    (head,) = deployment.drafter.architectures
    assert head.total_parameters == pytest.approx(billions * 1e9, rel=near)
    assert told["draft_head"] == f"as published: {head.source}"
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


def test_a_target_without_a_row_has_a_derived_head():
    deployment, told = deploy(target="minimax-m2.5", drafter="eagle3", hardware="b200")
    assert "draft_head" not in told
    assert told["draft_ffn_size"] == "18432 (6 x hidden_size)"
    assert deployment.drafter.architectures[0].source == "derived from the target"


def test_an_assistant_stands_in_for_mtp_modules():
    """It keeps no cache and shares no weight."""
    target = load_architecture("gemma-4-26b-a4b")
    drafter = load_drafter("mtp", target)
    assert drafter_kind(drafter, target) == "assistant"
    deployment, _ = deploy(target=target, drafter=drafter, hardware="h200_sxm")
    (head,) = drafter.architectures
    assert draft_bytes(deployment) == pytest.approx(2 * head.total_parameters, rel=1e-9)


def test_a_reduced_vocabulary_leaves_the_embedding_whole_but_shared():
    """Weights of a head beside its target: fc, layer, norms and the LM head of 32,000 tokens."""
    target = load_architecture("mixtral-8x7b")
    drafter = eagle3_drafter(target, vocabulary_size=1000)
    (head,) = drafter.architectures
    assert head.outer_parameters == (32_000 + 1000) * 4096
    deployment, _ = deploy(target=target, drafter=drafter, hardware="h200_sxm")
    kept = 2 * (head.total_parameters - 32_000 * 4096)
    assert draft_bytes(deployment) == pytest.approx(kept, rel=1e-9)


# Published acceptance: each met at its own lengths, and quartiles over targets

HEADS = published_heads()
TASKS = {"code", "chat", "maths", "prose", "agents", "random", "mixture", "not named"}
BY_KIND = {kind: [head for head in HEADS if head.drafter == kind] for kind in named_drafters()}


def test_the_table_has_one_entry_for_each_target_and_drafter_with_a_source():
    assert len({(head.target, head.drafter) for head in HEADS}) == len(HEADS) > 50
    for head in HEADS:
        assert re.fullmatch(
            rf"{head.target} with {head.drafter}: .+, 202\d-\d\d\S*, .+", head.source
        )
        assert list(head.lengths) == sorted({*head.lengths})
        assert all(1 <= t <= n + 1 for n, t in zip(head.lengths, head.tokens_per_step, strict=True))


@each_row("table", ["accept_lengths.csv", "typical_lengths.csv"])
def test_every_row_says_what_it_was_measured_on_and_a_head_one_kind_of_it(table):
    rows = rows_of(table)
    assert {row["task"] for row in rows} <= TASKS
    assert len({(row["target"], row["drafter"], row["task"]) for row in rows}) == len(
        {(row["target"], row["drafter"]) for row in rows}
    )


@each_row("head", HEADS)
def test_a_head_gives_the_tokens_that_were_measured(head):
    """Exactly where these rise by less with each length; else by what rising again would take."""
    found = [float(head.acceptance.expected_tokens_per_step(n)) for n in head.lengths]
    off = np.abs(np.array(found) - head.tokens_per_step)
    gains = np.diff(head.tokens_per_step) / np.diff(head.lengths)
    falls = bool((np.diff(gains) <= 1e-9).all() and (gains >= 0).all())
    assert off.max() < (0.02 if falls or len(head.lengths) == 1 else 0.25)


def test_beyond_what_was_measured_tokens_never_fall():
    for head in HEADS:
        if not named_drafters()[head.drafter].is_block:
            tokens = head.tokens_at(12)
            assert (np.diff(tokens) >= -1e-12).all()
            assert tokens[0] <= 2


@each_row("kind", [kind for kind, heads in BY_KIND.items() if len(heads) > 1])
def test_levels_are_the_quartiles_of_targets(kind):
    found = typical_heads(kind)
    longest = found.max_draft_length
    tokens = np.stack([head.tokens_at(longest) for head in BY_KIND[kind]])
    has_quartiles = len(BY_KIND[kind]) >= QUARTILES_FROM
    assert (found.levels[0] == "lower quartile") == has_quartiles
    shares = (0.25, 0.5, 0.75) if has_quartiles else (0, 0.5, 1)
    for share, acceptance in zip(shares, found.acceptance, strict=True):
        ours = [float(acceptance.expected_tokens_per_step(n + 1)) for n in range(longest)]
        # gains that would rise again with length are levelled out
        assert ours == pytest.approx(np.quantile(tokens, share, axis=0), abs=0.06)
    measured = [max(head.lengths) for head in BY_KIND[kind]]
    assert np.mean([most >= longest for most in measured]) >= 0.5


def test_too_few_heads_have_no_levels():
    assert typical_heads("pard") is None
    assert typical_heads("ngram") is None


def test_the_published_acceptance_of_a_target_goes_before_the_table():
    preset = next(one for one in published_acceptance() if one.name == "glm-5.2-mtp")
    assert measured_acceptance("GLM-5.2", "mtp").source == preset.acceptance.source
    assert measured_acceptance("Qwen3-30B-A3B", "eagle3").source.startswith("qwen3-30b-a3b with")
    assert measured_acceptance("Qwen3-30B-A3B", "mtp") is None
    assert measured_acceptance("DeepSeek-V3.1", "mtp") is None, "not that of DeepSeek-V3"


def test_every_target_has_a_drafter_that_can_be_made():
    for name in list_architectures():
        drafter, why = taken_drafter(load_architecture(name))
        assert drafter in named_drafters()
        assert why


@each_row(("name", "drafter"), [
    ("minimax-m2.7", "eagle3"),  # three modules in its file, which no engine loads
    ("step-3.7-flash", "mtp"),
    ("hy4-preview", "mtp"),
    ("inkling-2-small", ""),  # no module in its class: not the eight of Inkling
])  # fmt: skip
def test_a_usual_drafter_is_one_that_engines_run(name, drafter):
    target = load_architecture(name)
    assert usual_drafter(target).partition(",")[0] == drafter
    assert taken_drafter(target)[0] == (drafter or "eagle3")
