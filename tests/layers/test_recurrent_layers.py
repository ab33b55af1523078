"""Gated delta nets and lightning attention: weights, states and work, counted by hand."""

import numpy as np
import pytest
from hybrids import hybrid
from printed import refused
from rows import cases, each_listed
from strategies import pass_of

from specmodel import deploy, load_architecture
from specmodel.core.cost import pass_work
from specmodel.core.layers import GatedDeltaNet, Layout, sequence_group
from specmodel.core.layers.linear_attention import LightningAttention
from specmodel.core.layers.states import StateKeeping

SIZES = {"num_key_heads": 16, "num_value_heads": 64, "key_head_dim": 128, "value_head_dim": 128}
NET = GatedDeltaNet(**SIZES, conv_kernel=4)


def test_weights_of_a_layer_by_hand():
    """Qwen3.5-397B: 16 key and 64 value heads of 128, 4096 wide."""
    qkv = 2 * 16 * 128 + 64 * 128
    by_head = 4096 * (qkv + 64 * 128 + 64 + 64) + qkv * 4 + 64 + 64 + 64 * 128 * 4096
    assert (NET.weights(4096), NET.weights(4096, 8)) == (by_head + 128, by_head / 8 + 128)


@each_listed
def test_heads_are_cut_evenly_or_not_at_all(name, degree, expected):
    model = load_architecture(name)
    refused(f"tensor_parallel: got {degree}; .*{expected}$", model.check_layout, Layout(degree))


@cases("tokens logits written", (1, None, 1), (4, None, 4), (512, 1, 1), (512, 0, 1), (8, 3, 3))
def test_state_is_read_once_and_written_for_each_token_with_logits(tokens, logits, written):
    given = {"tokens_per_sequence": tokens, "logits_per_sequence": logits}
    work = pass_of(hybrid("Qwen3.5-397B-A17B"), batch_size=5, context_length=100, **given)
    part = work.components["recurrence"]
    assert part.cache_bytes == 5 * 45 * (1 + written) * 64 * 128 * 128 * 4


def test_only_sequences_with_a_proposal_write_several_states():
    group = sequence_group(batch_size=8, tokens_per_sequence=4, speculating_share=0.25)
    model = hybrid("Qwen3.5-397B-A17B")
    recurrence = pass_work(model, group).components["recurrence"]
    assert recurrence.cache_bytes == 8 * 45 * (1 + 1 + 0.25 * 3) * 64 * 128 * 128 * 4


@cases(
    "name layers channels kernel tokens gpus",
    ("Qwen3.5-397B-A17B", 45, 2 * 2048 + 8192, 4, 4, 1),
    ("nemotron-3-super-120b-a12b", 40, 128 * 64 + 2 * 8 * 128, 4, 1, 2),
    ("kimi-k3", 69, 3 * 96 * 128, 4, 4, 2),  # queries, keys and values
    *(("lfm2-8b-a1b", 18, 2048, 3, tokens, gpus) for tokens, gpus in ((1, 1), (4, 1), (4, 8))),
)
def test_convolutions_by_hand(name, layers, channels, kernel, tokens, gpus):
    """Each reads its window and writes it with one more for each state beyond the first."""
    model = hybrid(name) if name.startswith("Qwen") else load_architecture(name)
    work = pass_of(model, batch_size=5, tokens_per_sequence=tokens, layout=Layout(gpus)).components
    part, width = work["short_convolution"], layers * channels / gpus
    assert part.cache_bytes == 5 * width * (2 * (kernel - 1) + tokens - 1) * 2
    assert part.activation_bytes == 5 * tokens * width * 2 * 2
    assert (part.weight_bytes, part.flop) == (width * kernel * 2, 5 * tokens * 2 * kernel * width)
    assert (part.kind, part.kernels) == ("elementwise", layers)


# Lightning attention of MiniMax-Text-01

TEXT_01 = load_architecture("minimax-text-01")
LAYER = next(mixer for mixer in TEXT_01.mixers if isinstance(mixer, LightningAttention))
H, HEADS, WIDTH = 6144, 64, 128
STATE = HEADS * WIDTH * WIDTH


@pytest.mark.parametrize("degree", [1, 64])
def test_a_gpu_has_its_heads(degree):
    """Queries, keys, values, gate and output by head, and the norm between them."""
    assert LAYER.weights(H, degree) == (5 * H * HEADS * WIDTH + HEADS * WIDTH) / degree
    assert LAYER.state_bytes(degree) == STATE * 4 / degree
    assert LAYER.cuts(degree)
    assert not LAYER.cuts(3)


def test_no_convolution_keeps_anything():
    states = StateKeeping(slots="scratch")
    reserved = LAYER.reserved_bytes(np.array(4.0), states, TEXT_01.stream, 1)
    assert reserved == float(states.states(np.array(4.0))) * STATE * 4
    assert "short_convolution" not in pass_of(TEXT_01, batch_size=1).components


def test_nobody_timed_it_so_that_errors_are_larger():
    point = {"target": "minimax-text-01", "hardware": "h200_sxm", "drafter": "ngram"}
    deployment, said = deploy(**point, tensor_parallel=8, stack="vllm")
    own = deployment.kernels.fit("recurrence", "fp32")
    taken = deployment.kernels.fit("state_space", "fp32")
    assert taken.parameters.launch_time == own.parameters.launch_time
    assert taken.mean_error > own.mean_error
    assert "state_space" in said
