"""Gated delta nets: weights, states and work, counted by hand and against published sizes."""

import numpy as np
import pytest
from hybrids import LAYERS, hybrid
from strategies import pass_of

from specmodel.base.errors import InputError
from specmodel.cost.forward import pass_work
from specmodel.layers import GatedDeltaNet
from specmodel.layers.batch import Layout, sequence_group
from specmodel.layers.grouped import GroupedAttention

NET = GatedDeltaNet(
    num_key_heads=16, num_value_heads=64, key_head_dim=128, value_head_dim=128, conv_kernel=4
)
PUBLISHED = {
    # total and active parameters of transformers' models of these configurations [1e9], KV of a
    # token [B], states and windows of a sequence [1e6 B]
    "Qwen3.5-35B-A3B": (34.661, 2.946, 20480, 62.91, 1.47),
    "Qwen3.5-122B-A10B": (122.112, 9.008, 24576, 150.99, 2.65),
    "Qwen3.5-397B-A17B": (396.346, 16.332, 30720, 188.74, 3.32),
    "Qwen3.5-27B": (26.896, 25.625, 65536, 150.99, 2.95),
    "Qwen3.8-2.4T-A95B": (2419.805, 93.254, 94208, 578.81, 8.48),
    "Qwen3-Next-80B-A3B": (79.674, 3.564, 24576, 75.50, 1.77),
}


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_are_those_of_the_published_model(name):
    total, active, *_ = PUBLISHED[name]
    model = hybrid(name)
    assert model.total_parameters / 1e9 == pytest.approx(total, rel=5e-4)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=5e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_cache_and_state_are_those_of_the_published_model(name):
    *_, per_token, states, windows = PUBLISHED[name]
    model = hybrid(name)
    empty, one = model.sequence_bytes(np.array([0.0, 1.0]))
    assert one - empty == per_token
    net, count = next((m, n) for m, n in model.mixers.items() if isinstance(m, GatedDeltaNet))
    assert count * net.state_bytes() / 1e6 == pytest.approx(states, abs=0.005)
    window = 3 * net.past_token_bytes(model.stream)
    assert count * window / 1e6 == pytest.approx(windows, abs=0.005)
    assert empty == count * (net.state_bytes() + window)


def test_weights_of_a_layer_by_hand():
    """Qwen3.5-397B: 16 key and 64 value heads of 128, 4096 wide."""
    qkv = 2 * 16 * 128 + 64 * 128
    by_head = 4096 * (qkv + 64 * 128 + 64 + 64) + qkv * 4 + 64 + 64 + 64 * 128 * 4096
    assert NET.weights(4096) == by_head + 128
    assert NET.weights(4096, 8) == by_head / 8 + 128


def test_output_gate_doubles_the_query_projection():
    shape = {"num_heads": 32, "num_kv_heads": 2, "head_dim": 256}
    gated = GroupedAttention(**shape, has_output_gate=True)
    assert gated.weights(4096) - GroupedAttention(**shape).weights(4096) == 4096 * 32 * 256
    assert gated.weights(4096, 2) - GroupedAttention(**shape).weights(4096, 2) == 4096 * 16 * 256


@pytest.mark.parametrize("degree", [1, 2, 4, 8, 16])
def test_heads_are_cut_where_both_kinds_divide(degree):
    assert NET.cuts(degree)
    assert NET.state_bytes(degree) == 64 * 128 * 128 * 4 / degree


def test_key_heads_are_not_copied():
    with pytest.raises(
        InputError, match=r"tensor_parallel: got 32; .*gated delta net .*: 1, 2, 4, 8, 16$"
    ):
        hybrid("Qwen3.5-397B-A17B").check_layout(Layout(32))


def test_value_heads_that_key_heads_do_not_divide_are_refused():
    with pytest.raises(InputError, match=r"^target.num_key_heads: got 3; .*a divisor of .* = 64"):
        hybrid("Qwen3.5-397B-A17B", num_key_heads=3)


@pytest.mark.parametrize(("tokens", "logits", "written"), [
    (1, None, 1), (4, None, 4), (512, 1, 1), (512, 0, 1), (8, 3, 3),
])  # fmt: skip
def test_state_is_read_once_and_written_for_each_token_with_logits(tokens, logits, written):
    given = {"tokens_per_sequence": tokens, "logits_per_sequence": logits}
    work = pass_of(hybrid("Qwen3.5-397B-A17B"), batch_size=5, context_length=100, **given)
    part = work.components["recurrence"]
    assert part.cache_bytes == 5 * 45 * (1 + written) * 64 * 128 * 128 * 4
    assert part.flop == 5 * tokens * 45 * 8 * 64 * 128 * 128
    assert part.activation_bytes == 5 * tokens * 45 * (2 * 2048 + 2 * 8192 + 2 * 64) * 2
    assert (part.kind, part.memory_cause, part.kernels) == ("recurrence", "state", 45)


def test_only_sequences_with_a_proposal_write_several_states():
    group = sequence_group(batch_size=8, tokens_per_sequence=4, speculating_share=0.25)
    model = hybrid("Qwen3.5-397B-A17B")
    recurrence = pass_work(model, group).components["recurrence"]
    assert recurrence.cache_bytes == 8 * 45 * (1 + 1 + 0.25 * 3) * 64 * 128 * 128 * 4


def test_convolution_by_hand():
    """Reads its window of 3 tokens and writes it with one more for each state beyond the first."""
    work = pass_of(hybrid("Qwen3.5-397B-A17B"), batch_size=5, tokens_per_sequence=4)
    part, channels = work.components["short_convolution"], 2 * 2048 + 8192
    assert part.cache_bytes == 5 * 45 * channels * (3 + 3 + 3) * 2
    assert part.activation_bytes == 20 * 45 * channels * 2 * 2
    assert part.weight_bytes == 45 * channels * 4 * 2
    assert (part.kind, part.kernels) == ("elementwise", 45)


def test_projections_by_hand():
    work = pass_of(hybrid("Qwen3.5-397B-A17B"), batch_size=5, layout=Layout(2))
    part, channels, n = work.components["recurrent_projections"], 2 * 2048 + 8192, 2
    matrices = 4096 * (channels + 8192 + 128) + 128 + 8192 * 4096
    assert part.weight_bytes == 45 * (matrices / n + 128) * 2
    assert part.activation_bytes == 5 * 45 * (2 * 4096 + (channels + 2 * 8192 + 128) / n) * 2


def test_tensor_parallelism_cuts_the_state():
    model = hybrid("Qwen3.5-122B-A10B")
    alone, cut = (pass_of(model, batch_size=3, layout=Layout(n)).components for n in (1, 4))
    for name in ("recurrence", "short_convolution"):
        assert cut[name].cache_bytes == alone[name].cache_bytes / 4
    assert cut["recurrence"].flop == alone["recurrence"].flop / 4
