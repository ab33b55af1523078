"""Heads as they are published, not as derived from their targets."""

import pytest
from rows import each_row

from specmodel import deploy, eagle3_drafter, load_architecture, load_drafter
from specmodel.cost import MemoryUse
from specmodel.drafters.by_name import drafter_kind

PUBLISHED = [  # billions of parameters as published, and how near is reached
    ("minimax-m3", "eagle3", 3.075, 0.02),
    ("kimi-k2.6", "eagle3", 3.0, 0.05),
    ("glm-5.2", "dspark", 3.807, 0.02),
    ("gemma-4-31b", "dspark", 2.959, 0.02),
    ("gemma-4-26b-a4b", "mtp", 0.420, 0.02),
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
    """The first layer of a head has the heads and width that are told of it."""
    drafter = load_drafter("dflash", load_architecture("deepseek-v4-flash"))
    (head,) = drafter.architectures
    (group,) = head.layers
    assert (group.count, group.feed_forward.ffn_size) == (5, 2048)
    assert (group.mixer.num_heads, group.mixer.num_kv_heads, group.mixer.head_dim) == (64, 1, 256)
    assert head.input_projection_size == 81_920
    assert drafter.block_size == 8 - 1
    (head,) = load_drafter("eagle3", load_architecture("kimi-k2.6")).architectures
    mixer = head.layers[0].mixer
    assert (mixer.kind, mixer.input_size) == ("latent_attention", 2 * 7168)


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
    """It keeps no cache and shares no weight; the 31B, whose assistant is not known, has none."""
    target = load_architecture("gemma-4-26b-a4b")
    drafter = load_drafter("mtp", target)
    assert drafter_kind(drafter, target) == "assistant"
    deployment, _ = deploy(target=target, drafter=drafter, hardware="h200_sxm")
    use = MemoryUse(deployment, context_length=1000.0, verify_tokens=4.0)
    (head,) = drafter.architectures
    assert use.draft_weight_bytes == 2 * head.total_parameters
    other = load_drafter("mtp", load_architecture("gemma-4-31b"))
    assert dict(other.assumed).keys() == {"mtp_block"}


def test_a_reduced_vocabulary_leaves_the_embedding_whole_but_shared():
    """Weights of a head beside its target: fc, layer, norms and the LM head of 32,000 tokens."""
    target = load_architecture("mixtral-8x7b")
    drafter = eagle3_drafter(target, vocabulary_size=1000)
    (head,) = drafter.architectures
    assert head.outer_parameters == (32_000 + 1000) * 4096
    deployment, _ = deploy(target=target, drafter=drafter, hardware="h200_sxm")
    kept = MemoryUse(deployment, context_length=1000.0, verify_tokens=4.0).draft_weight_bytes
    assert kept == 2 * (head.total_parameters - 32_000 * 4096)
