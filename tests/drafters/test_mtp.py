"""Heads for multi-token prediction: what they weigh, which passes they make, in which dtypes."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import each_row
from strategies import draft_bytes

from specmodel import deploy, load_architecture, predict
from specmodel.core.base import BYTES_PER_ELEMENT
from specmodel.core.cost import MemoryUse, pass_work
from specmodel.core.drafters import eagle3_drafter, eagle_drafter, mtp_drafter
from specmodel.core.layers import LayerGroup, sequence_group
from specmodel.core.layers.batch import SINGLE_GPU

V3 = load_architecture("deepseek-v3")
QWEN = load_architecture("qwen3.5-35b-a3b")
GLM = load_architecture("glm-5.2")
SPARSE = next(mixer for mixer in GLM.mixers if mixer.has_indexer)


def head_of(target):
    (head,) = mtp_drafter(target).architectures
    return head


def inner(head):
    """Weights of the head itself, embedding and LM head aside."""
    return head.total_parameters - head.outer_parameters


def test_weights_of_the_head_of_deepseek_v3():
    """11.5 billion unique ones, says the README of its weights."""
    assert inner(head_of(V3)) == pytest.approx(11.5e9, rel=0.01)


def test_weights_of_the_head_of_a_hybrid_by_hand():
    """A layer with gated attention, though three of four layers of Qwen3.5 have none."""
    h, head = 2048, head_of(QWEN)
    attention = h * 2 * 16 * 256 + 2 * h * 2 * 256 + 16 * 256 * h
    experts, norms = h * 256 + (256 + 1) * 3 * h * 512, 3 * h
    assert inner(head) == attention + experts + 2 * h * h + norms
    (mixer,) = head.mixers
    assert (mixer.kind, mixer.has_output_gate) == ("attention", True)
    assert head.head_parameters == h * 248_320  # in every pass


def test_no_head_is_recurrent_nor_has_parts_that_only_its_target_has():
    for build in (eagle_drafter, eagle3_drafter, mtp_drafter):
        (head,) = build(QWEN).architectures
        assert [mixer.kind for mixer in head.mixers] == ["attention"]
    (mixer,) = eagle_drafter(QWEN).architectures[0].mixers
    assert mixer.weights(2048) == 2048 * (2 * 16 + 2 * 2) * 256


# Dtypes


@pytest.mark.parametrize(("dtype", "size"), [("fp8", 1.0), ("fp4", 4.5 / 8)])
def test_the_projection_is_never_quantised(dtype, size):
    """`mtp.fc` is left out by vLLM and by the checkpoints; `eh_proj` is a plain matrix there."""
    whole, head = head_of(QWEN), head_of(QWEN.with_changes("target", {"weight_dtype": dtype}))
    fc, h = 2 * 2048 * 2048, 2048
    outer = 2 * h * 248_320 * 2 + 3 * h * 2 + h * 256 * 2  # ends, norms and router stay as well
    rest = whole.weight_bytes(SINGLE_GPU) - outer - 2 * fc
    assert head.weight_bytes(SINGLE_GPU) == pytest.approx(rest * size / 2 + outer + 2 * fc)
    work = pass_work(head, sequence_group(batch_size=1, context_length=10))
    assert work.components["input_projection"].weight_bytes == 2 * fc
    assert work.components["attention_projections"].stored_dtype == dtype


def test_a_layer_that_a_checkpoint_leaves_unquantised():
    quantised = {"weight_dtype": "fp4", "activation_dtype": "fp4"}
    head = head_of(QWEN.with_changes("target", quantised | {"mtp_dtype": "bf16"}))
    assert head.weight_bytes(SINGLE_GPU) == head_of(QWEN).weight_bytes(SINGLE_GPU)
    group = sequence_group(batch_size=3, context_length=100)
    as_plain = pass_work(head_of(QWEN), group).components
    for name, part in pass_work(head, group).components.items():
        assert (part.flop, part.weight_bytes) == (as_plain[name].flop, as_plain[name].weight_bytes)
    narrow = head_of(QWEN.with_changes("target", quantised | {"mtp_dtype": "fp8"}))
    assert narrow.weight_dtype == narrow.stream.expert_dtype == "fp8"
    refused(r"^target.mtp_dtype: got 'fp3'", QWEN.with_changes, "target", {"mtp_dtype": "fp3"})


def test_the_layer_is_stored_as_those_that_it_is_like():
    """Qwen's FP8 checkpoints and mixtures say dtypes by layer, which the MTP layer shares."""
    plain = QWEN
    recurrent, attending = plain.layers
    dtypes = {"mixer_dtype": "fp8", "output_dtype": "bf16", "ffn_dtype": "fp8"}
    layers = (recurrent, replace(attending, **dtypes))
    target = replace(plain, layers=layers)
    (layer,) = head_of(target).layers
    assert (layer.mixer_dtype, layer.output_dtype, layer.ffn_dtype) == ("fp8", "bf16", None)
    left = replace(target, mtp_dtype="bf16", attention_activation_dtype="fp8")
    assert head_of(left).weight_bytes(SINGLE_GPU) == head_of(plain).weight_bytes(SINGLE_GPU)
    assert {dtype for _, _, dtype in head_of(left).arithmetic_dtypes} == {"bf16"}


# Passes


def test_a_selection_that_passes_share_is_made_once():
    """GLM-5.2's `index_share_for_mtp_iteration`: later passes have no indexer, and no weights."""
    both = []
    for shares in (False, True):
        target = replace(GLM, shares_mtp_index=shares)
        first, rest = mtp_drafter(target).passes(4)
        assert rest.count == 3
        assert [mixer.has_indexer for mixer in first.architecture.mixers] == [True]
        group = sequence_group(batch_size=2, context_length=32_768)
        both.append(pass_work(rest.architecture, group).components)
    own, shared = both
    assert "indexer" in own
    assert "indexer" not in shared
    saved = own["attention_projections"].weight_bytes - shared["attention_projections"].weight_bytes
    weights = 2048 * 32 * 128 + 6144 * (128 + 32) + 2 * 128
    assert saved == weights * BYTES_PER_ELEMENT["bf16"]


def test_the_head_has_an_indexer_though_the_targets_layers_may_share_one():
    second = replace(SPARSE, has_indexer=False)
    layers = [LayerGroup(count=1, mixer=m, feed_forward=None) for m in (second, SPARSE)]
    head = head_of(replace(V3, layers=(*layers, *V3.layers)))
    assert [mixer.has_indexer for mixer in head.mixers] == [True]


def passes_by_module(draft_length, modules):
    """Passes of each, one after another until the draft is full."""
    order = [step % modules for step in range(draft_length)]
    return [order.count(module) for module in range(modules)]


@each_row("modules", [2, 7])
def test_modules_draft_in_turn_and_all_see_what_was_verified(modules):
    drafter = mtp_drafter(V3.with_changes("target", {"num_mtp_modules": modules}))
    lengths = np.arange(16.0)
    passes = drafter.passes(lengths)
    counts = np.array([part.count for part in passes]).T
    assert counts.tolist() == [passes_by_module(int(k), modules) for k in lengths]
    for part in passes:
        np.testing.assert_array_equal(part.tokens_per_sequence[1:], lengths[1:] + 1)
        assert part.logits_per_sequence == 1
    between = np.array([part.count for part in drafter.passes(2.25)])
    assert (between.sum(), drafter.trained_positions) == (pytest.approx(2.25), modules)


def test_modules_have_weights_and_caches_of_their_own():
    names = {"hardware": "b200", "drafter": "mtp", "tensor_parallel": 8}
    targets = (V3.with_changes("target", {"num_mtp_modules": n}) for n in (1, 3))
    one, three = (deploy(target=target, **names)[0] for target in targets)
    single, several = (MemoryUse(d, 1000, 4) for d in (one, three))
    assert draft_bytes(three) == pytest.approx(3 * draft_bytes(one))
    head = one.drafter.architectures[0]
    more = several.bytes_per_request - single.bytes_per_request
    assert more == pytest.approx(2 * head.sequence_bytes(1004, 8))


@each_row(("length", "told"), [(6, None), (1, None), ([2, 3, 5, 7], [5, 7])])
def test_lengths_that_no_engine_takes_are_told(length, told):
    """`num_speculative_tokens ... must be divisible by n_predict`, says vLLM beyond the modules."""
    target = V3.with_changes("target", {"num_mtp_modules": 3})
    names = {"target": target, "hardware": "b200", "drafter": "mtp", "tensor_parallel": 8}
    point = {"batch_size": 1, "draft_length": length, "acceptance": 0.01, "max_draft_length": 1}
    notes = [n.values for n in predict(**names, **point).notes if n.kind == "between_modules"]
    assert notes == ([{"modules": 3, "draft_lengths": told}] if told else [])


# A checkpoint without a block


def test_a_block_that_the_checkpoint_lacks_is_told():
    own = ("kimi-k2.6", "mtp"), ("kimi-k2.6", "eagle"), ("deepseek-v3", "mtp")
    where = {"hardware": "b200", "tensor_parallel": 8}
    told = [deploy(target=t, drafter=d, **where)[1].get("mtp_block") for t, d in own]
    assert told == ["none in the checkpoint, as if it had one", None, None]


# A head belongs to its target


@pytest.mark.parametrize("build", [eagle_drafter, eagle3_drafter, mtp_drafter])
def test_a_head_for_another_target_is_refused(build):
    drafter = build(load_architecture("qwen3-30b-a3b"))
    wide = "qwen3-235b-a22b", "hidden_size 2048", "hidden_size of Qwen3-235B-A22B, 4096"
    other = "olmoe-1b-7b", "vocabulary_size 151936", "vocabulary_size of OLMoE.*, 50304"
    for target, size, own in (wide, other):
        message = f"^drafter: got '.*for a target of {size}'; .*{own}"
        refused(message, deploy, target=target, hardware="b200", drafter=drafter)
    deploy(target="qwen3-30b-a3b", hardware="b200", drafter=drafter)
