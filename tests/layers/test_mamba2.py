"""State spaces of Mamba-2: weights, states and work, counted by hand on Nemotron's shapes."""

import numpy as np
import pytest
from strategies import pass_of

from specmodel import deploy, load_architecture, mtp_drafter
from specmodel.core.cost import MemoryUse
from specmodel.core.layers import Layout, Mamba2

SUPER = load_architecture("nemotron-3-super-120b-a12b")
H, HEADS, WIDTH, GROUPS, STATE, LAYERS = 4096, 128, 64, 8, 128, 40
INNER = HEADS * WIDTH
LAYER = next(mixer for mixer in SUPER.mixers if isinstance(mixer, Mamba2))
OF_HEADS = {"num_state_heads": HEADS, "state_head_dim": WIDTH, "conv_kernel": 4}
ONE_GROUP = Mamba2(**OF_HEADS, num_state_groups=1, state_dim=256)


def test_weights_of_a_layer_by_hand():
    channels = INNER + 2 * GROUPS * STATE
    matrices = H * (INNER + channels + HEADS) + INNER * H
    by_head = matrices + channels * 4 + 3 * HEADS + INNER
    assert (LAYER.weights(H), LAYER.weights(H, 8)) == (by_head, by_head / 8)


def test_layers_have_one_purpose_and_one_norm():
    assert (SUPER.num_layers, SUPER.num_norms) == (88, 88 + 1)
    pairs = [(bool(group.mixer), bool(group.feed_forward)) for group in SUPER.layers]
    assert all(mixer != block for mixer, block in pairs)
    reductions = pass_of(SUPER, batch_size=1, layout=Layout(8)).components["all_reduce"].reductions
    assert reductions == 88 + 1  # one a layer, and the embedding


# Cutting


def test_a_single_group_is_copied():
    assert ONE_GROUP.cuts(16)
    assert not ONE_GROUP.cuts(3)
    assert ONE_GROUP.channels_on(16) == INNER / 16 + 2 * 256
    assert ONE_GROUP.state_bytes(16) == INNER * 256 * 4 / 16
    by_head = H * (2 * INNER + HEADS) + INNER * (H + 1) + INNER * 4 + 3 * HEADS
    assert ONE_GROUP.weights(H, 16) == pytest.approx(by_head / 16 + 2 * 256 * (H + 4), rel=1e-12)
    assert ONE_GROUP.past_token_bytes(SUPER.stream, 16) == (INNER / 16 + 2 * 256) * 2


def test_heads_of_a_single_group_sum_squares_over_gpus():
    own = SUPER.with_changes("target", {"num_state_groups": 1})
    part = pass_of(own, batch_size=5, layout=Layout(4)).components["norm_reduction"]
    assert (part.kind, part.reductions, part.ranks) == ("message", LAYERS, 4)
    assert part.reduced_bytes == 5 * LAYERS * 4
    for model, n in ((own, 1), (SUPER, 4)):
        found = pass_of(model, batch_size=5, layout=Layout(n)).components
        assert "norm_reduction" not in found


# Work


def test_states_of_16_bits_move_half_as_much():
    half = SUPER.with_changes("target", {"state_dtype": "bf16"})
    one, other = (pass_of(m, batch_size=3).components["recurrence"] for m in (SUPER, half))
    assert other.cache_bytes == one.cache_bytes / 2 == 3 * LAYERS * 2 * INNER * STATE * 2
    kept = [float(model.sequence_bytes(np.zeros(()))) for model in (SUPER, half)]
    assert kept[0] - kept[1] == LAYERS * INNER * STATE * 2


# Memory, and the module that drafts


def test_states_reserved_for_drafted_tokens():
    named = {"target": SUPER, "hardware": "b200", "drafter": "ngram", "engine": "ideal"}
    target = deploy(**named, stack="datasheet", tensor_parallel=8)[0]
    kept = [float(MemoryUse(target, 0.0, tokens).bytes_per_request) for tokens in (1.0, 4.0)]
    channels, states = INNER + 2 * GROUPS * STATE, LAYERS * INNER * STATE * 4 / 8
    entries = 3 * 8 * 2 * 128 * 2  # of eight layers, one of two KV heads on each GPU
    windows = LAYERS * channels / 8 * 2 * (5 * 6 - 2 * 3)
    assert kept[1] - kept[0] == pytest.approx(3 * states + windows + entries, rel=1e-12)


def test_the_module_has_attention_and_experts():
    (head,) = mtp_drafter(SUPER).architectures
    (mixer,), (block,) = head.mixers, head.feed_forwards
    assert (mixer.kind, block.kind) == ("attention", "experts")
    assert mixer in SUPER.mixers
    own = mixer.weights(H) + block.parameters(H) + 2 * H * H + 3 * H
    assert head.total_parameters - head.outer_parameters == own
