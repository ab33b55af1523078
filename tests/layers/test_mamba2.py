"""State spaces of Mamba-2: weights, states and work, counted by hand on Nemotron's shapes."""

import numpy as np
import pytest
from strategies import pass_of

from specmodel import load_architecture
from specmodel.base.errors import InputError
from specmodel.cost.deploying import deploy
from specmodel.cost.memory import MemoryUse
from specmodel.drafters import mtp_drafter
from specmodel.layers import Mamba2
from specmodel.layers.batch import Layout
from specmodel.layers.states import StateKeeping

SUPER = load_architecture("nemotron-3-super-120b-a12b")
H, HEADS, WIDTH, GROUPS, STATE, LAYERS = 4096, 128, 64, 8, 128, 40
INNER = HEADS * WIDTH
LAYER = next(mixer for mixer in SUPER.mixers if isinstance(mixer, Mamba2))
ONE_GROUP = Mamba2(
    num_state_heads=HEADS, state_head_dim=WIDTH, num_state_groups=1, state_dim=256, conv_kernel=4
)


@pytest.mark.parametrize(
    ("name", "total", "active", "per_token", "states", "windows"),
    [
        ("nemotron-3-nano-30b-a3b", 31.578, 3.228, 6144, 48.23, 0.85),
        ("nemotron-3-super-120b-a12b", 120.669, 12.233, 8192, 167.77, 2.46),
        ("nemotron-3-ultra-550b-a55b", 549.309, 54.985, 12288, 402.65, 5.31),
    ],
)
def test_sizes_are_those_of_the_published_models(name, total, active, per_token, states, windows):
    """Parameters of transformers' models [1e9], KV of a token [B], states and windows [1e6 B]."""
    model = load_architecture(name)
    assert model.total_parameters / 1e9 == pytest.approx(total, rel=1e-4)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=2e-4)
    empty, one = model.sequence_bytes(np.array([0.0, 1.0]))
    assert one - empty == per_token
    layer, count = next((m, n) for m, n in model.mixers.items() if isinstance(m, Mamba2))
    assert count * layer.state_bytes() / 1e6 == pytest.approx(states, abs=0.005)
    kept = count * 3 * layer.past_token_bytes(model.stream)
    assert kept / 1e6 == pytest.approx(windows, abs=0.005)
    assert empty == count * layer.state_bytes() + kept


def test_weights_of_a_layer_by_hand():
    channels = INNER + 2 * GROUPS * STATE
    matrices = H * (INNER + channels + HEADS) + INNER * H
    by_head = matrices + channels * 4 + 3 * HEADS + INNER
    assert LAYER.weights(H) == by_head
    assert LAYER.weights(H, 8) == by_head / 8


def test_layers_have_one_purpose_and_one_norm():
    assert SUPER.num_layers == 88
    assert SUPER.num_norms == 88 + 1
    pairs = [(bool(group.mixer), bool(group.feed_forward)) for group in SUPER.layers]
    assert all(mixer != block for mixer, block in pairs)
    reductions = pass_of(SUPER, batch_size=1, layout=Layout(8)).components["all_reduce"].reductions
    assert reductions == 88 + 1  # one a layer, and the embedding


# Cutting


def test_groups_are_cut_with_their_heads():
    assert [n for n in range(1, 200) if LAYER.cuts(n)] == [1, 2, 4, 8]
    with pytest.raises(InputError, match=r"tensor_parallel: got 16; .*mamba2 .*: 1, 2, 4, 8$"):
        SUPER.check_layout(Layout(16))


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


def test_heads_that_groups_do_not_divide_are_refused():
    with pytest.raises(InputError, match=r"num_state_groups: got 3; .*num_state_heads = 128"):
        SUPER.with_changes("target", {"num_state_groups": 3})


# Work


@pytest.mark.parametrize(("rollback", "tokens", "moved"), [
    ("native", 1, 2), ("native", 4, 1 + 4), ("replay", 1, 2), ("replay", 4, 2),
])  # fmt: skip
def test_states_are_read_once_and_written_for_each_token(rollback, tokens, moved):
    given = {"batch_size": 3, "tokens_per_sequence": tokens, "layout": Layout(8)}
    part = pass_of(SUPER, states=StateKeeping(rollback), **given).components["recurrence"]
    records = 2 * (tokens - 1) * (rollback == "replay")
    record = (INNER + GROUPS * STATE) / 8 * 2 + HEADS / 8 * 4
    each = moved * INNER * STATE * 4 / 8 + records * record
    assert part.cache_bytes == pytest.approx(3 * LAYERS * each, rel=1e-12)
    assert part.flop == 3 * tokens * LAYERS * 6 * INNER * STATE / 8
    values = (2 * INNER + HEADS + 2 * GROUPS * STATE) / 8
    assert part.activation_bytes == 3 * tokens * LAYERS * values * 2
    assert part.memory_cause == "state"


def test_states_of_16_bits_move_half_as_much():
    half = SUPER.with_changes("target", {"state_dtype": "bf16"})
    one, other = (pass_of(m, batch_size=3).components["recurrence"] for m in (SUPER, half))
    assert other.cache_bytes == one.cache_bytes / 2
    assert float(SUPER.sequence_bytes(np.zeros(())) - half.sequence_bytes(np.zeros(()))) == (
        LAYERS * INNER * STATE * 2
    )


def test_projections_and_convolution_by_hand():
    parts = pass_of(SUPER, batch_size=5, layout=Layout(2)).components
    channels = INNER + 2 * GROUPS * STATE
    matrices = H * (INNER + channels + HEADS) + INNER * (H + 1) + 3 * HEADS
    into = parts["recurrent_projections"]
    assert into.weight_bytes == LAYERS * matrices / 2 * 2
    assert into.activation_bytes == 5 * LAYERS * (2 * H + (channels + 2 * INNER + HEADS) / 2) * 2
    assert (into.kernels, into.depth) == (2 * LAYERS, LAYERS * (H + INNER / 2))
    past = parts["short_convolution"]
    assert past.weight_bytes == LAYERS * channels / 2 * 4 * 2
    assert past.cache_bytes == 5 * LAYERS * channels / 2 * (3 + 3) * 2


def test_experts_have_two_matrices():
    experts = pass_of(SUPER, batch_size=1).components["routed_experts"]
    assert experts.weight_bytes == pytest.approx(40 * 22 * 2 * 1024 * 2688 * 2, rel=1e-9)


# Memory, and the module that drafts


def test_states_reserved_for_drafted_tokens():
    target = deploy(target=SUPER, hardware="b200", drafter="ngram", tensor_parallel=8)[0]
    kept = [float(MemoryUse(target, 0.0, tokens).bytes_per_request) for tokens in (1.0, 4.0)]
    channels = INNER + 2 * GROUPS * STATE
    states = LAYERS * INNER * STATE * 4 / 8
    entries = 3 * 8 * 2 * 128 * 2  # of eight layers, one of two KV heads on each GPU
    windows = LAYERS * channels / 8 * 2 * (5 * 6 - 2 * 3)
    assert kept[1] - kept[0] == pytest.approx(3 * states + windows + entries, rel=1e-12)


@pytest.mark.parametrize("name", ["nemotron-3-super-120b-a12b", "nemotron-3-ultra-550b-a55b"])
def test_the_module_has_attention_and_experts(name):
    target = load_architecture(name)
    (head,) = mtp_drafter(target).architectures
    (mixer,), (block,) = head.mixers, head.feed_forwards
    assert mixer.kind == "attention"
    assert mixer in target.mixers
    assert block in target.feed_forwards
    h = target.hidden_size
    own = mixer.weights(h) + block.parameters(h) + 2 * h * h + 3 * h
    assert head.total_parameters - head.outer_parameters == own
    assert mtp_drafter(target).assumed == ()


def test_a_model_without_a_module_says_so():
    nano = load_architecture("nemotron-3-nano-30b-a3b")
    assert dict(mtp_drafter(nano).assumed).keys() == {"mtp_block"}
