"""Rows that ranks send for experts, routers, and gates of mixers, all counted by hand."""

import math

import pytest
from msgspec.structs import replace
from rows import each_row, one_case, values_of
from strategies import pass_of

from specmodel import load_architecture
from specmodel.core import layers
from specmodel.core.layers import GroupedAttention, LatentAttention, Layout, sequence_group
from specmodel.core.layers.attention import latent_arithmetic
from specmodel.core.layers.batch import Batch, Carried
from specmodel.core.layers.run import Pass
from specmodel.core.layers.states import NATIVE, StateKeeping
from specmodel.core.layers.stream import Stream

H, TOKENS, LAYERS = 4096, 6, 5

SHAPES = {name: own for name, *own in values_of("cases/layers.txt", "rows of experts")}
"""As published; the scales of 8-bit rows, 4 B for each 128 values, are left out (1 %)."""


# Rows of experts


@each_row(("cut", "replicas"), [(1, 8), (4, 4), (1, 32)])
@each_row("name", SHAPES)
def test_rows_go_to_the_ranks_of_a_token_and_back(name, cut, replicas):
    """A token goes to a rank unless all its k experts are others: C(n - E/r, k) of C(n, k) draws.

    The GPUs that share a replica send a part of each row.
    """
    layers, h, experts, choices, k, out, back = SHAPES[name]
    ranks = cut * replicas
    layout = Layout(cut, ranks, 8, replicas)
    point = {"batch_size": 64, "tokens_per_sequence": 3, "context_length": 100}
    sent = pass_of(load_architecture(name), **point, layout=layout).components["all_to_all"]
    chance = 1 - math.comb(choices - experts // ranks, k) / math.comb(choices, k)
    if name == "deepseek-v3":  # 4 of 8 groups of 32: one expert of each, and 4 of the other 124
        own = experts // ranks
        rest = math.comb(124 - own, 4) / math.comb(124, 4)
        chance = 1 / 2 if own == 32 else 1 / 2 * (1 - (1 - own / 32) * rest)
    tokens = 64 * 3 / replicas
    to_one = layers * tokens * chance * h * (out + back) / cut
    near = min(ranks, 8) - 1
    assert sent.link_bytes == pytest.approx(near * to_one, rel=1e-12)
    assert sent.network_bytes == pytest.approx((ranks - 1 - near) * to_one, rel=1e-12)
    assert sent.collectives == sent.kernels == 2 * layers
    assert sent.link_hops == 2 * layers * 2
    assert sent.network_hops == (2 * layers * 2 if ranks > 8 else 0)
    assert (sent.flop, sent.weight_bytes, sent.reduced_bytes) == (0, 0, 0)


# Routers


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("name", SHAPES)
def test_every_gpu_routes_all_tokens_in_16_bits(name, gpus):
    """A row in and scores out; to choose, scores are read, and written as probabilities."""
    layers, h, _, choices, *_ = SHAPES[name]
    work = pass_of(load_architecture(name), batch_size=TOKENS, layout=Layout(gpus))
    router = work.components["router"]
    assert router.flop == layers * TOKENS * 2 * h * choices
    assert router.weight_bytes == layers * h * choices * 2
    assert router.activation_bytes == layers * TOKENS * (h + choices + 2 * choices) * 2
    assert (router.kernels, router.depth, router.rows) == (layers, layers * h, TOKENS)
    assert (router.kind, router.dtype, router.stored_dtype) == ("gemm", "bf16", "bf16")


# Gates of mixers

SIZES = {"num_key_heads": 16, "num_value_heads": 32, "key_head_dim": 128, "value_head_dim": 128}
DELTA_NET = layers.GatedDeltaNet(**SIZES, conv_kernel=4)
KIMI_DELTA = layers.KimiDeltaAttention(num_heads=32, head_dim=128, conv_kernel=4)
SIZES = {"num_state_heads": 64, "state_head_dim": 64, "num_state_groups": 8, "state_dim": 128}
MAMBA = layers.Mamba2(**SIZES, conv_kernel=4)
LIGHTNING = layers.LightningAttention(num_heads=32, head_dim=128)
CONVOLUTION = layers.ShortConvolution(num_channels=32 * 128, conv_kernel=3)


def work_of(mixer, gpus, *, tokens=1, states=NATIVE, weights="bf16"):
    """Six sequences in five layers; weights, if not told, and activations have 16 bits."""
    stream = replace(Stream(H, *("bf16",) * 5), weight_dtype=weights)
    group = sequence_group(batch_size=TOKENS, tokens_per_sequence=tokens, context_length=100.0)
    run, carried = Pass(stream, Layout(gpus), states), Carried(Batch((group,)))
    return {name: work.at(carried) for name, work in mixer.work(run, LAYERS).items()}


def assert_moved(part, values, kernels):
    """So many values of 16 bits a token and layer, so many kernels a layer."""
    assert part.activation_bytes == pytest.approx(TOKENS * LAYERS * values * 2, rel=1e-12)
    assert part.kernels == LAYERS * kernels


GATED_PRODUCT = 3
"""What a gate times a value moves: both are read, the product is written."""


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("has_gate", [False, True])
def test_output_gate_of_grouped_attention(has_gate, gpus):
    """Queries and new entries are rotated and stored: each read and written once."""
    mixer = GroupedAttention(num_heads=32, num_kv_heads=4, head_dim=128, has_output_gate=has_gate)
    parts = work_of(mixer, gpus)
    queries, entry = 32 * 128 / gpus, 2 * 4 * 128 / min(gpus, 4)
    gate = queries * has_gate
    into, out = H + queries + gate + entry, queries + H
    assert_moved(parts["attention_projections"], into + out, 2)
    assert_moved(parts["elementwise"], 2 * (queries + entry) + GATED_PRODUCT * gate, 1 + has_gate)
    weights = LAYERS * (H * (2 * queries + gate) + H * entry)
    assert parts["attention_projections"].flop == pytest.approx(2 * TOKENS * weights, rel=1e-12)
    assert parts["attention_projections"].depth == LAYERS * (H + queries)
    assert LAYERS * mixer.weights(H, gpus) == weights


@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize("gate", [0, 1, 128])
def test_gate_of_latent_attention(gate, gpus):
    """Norms read and write both latents, rotation each rotary part, gating the values of a head."""
    mixer = LatentAttention(
        num_heads=32, kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, gate_size=gate,
    )  # fmt: skip
    parts, heads = work_of(mixer, gpus), 32 / gpus
    gated = heads * (128 + gate + 128) if gate else 0
    between = 2 * (1536 + 512) + 2 * 64 * (heads + 1) + gated
    assert_moved(parts["elementwise"], between, 4 if gate else 3)
    plain = replace(mixer, gate_size=0)
    assert mixer.weights(H, gpus) - plain.weights(H, gpus) == H * heads * gate
    made = 1536 + 512 + 64 + heads * (128 + 64 + gate)
    assert_moved(parts["attention_projections"], H + made + heads * 128 + H, 3)


def test_only_data_center_blackwell_computes_on_latents_of_8_bits():
    """H200 and RTX PRO 6000 do not, B300 does; a cache of 32 bits is computed on as it is."""
    for capability, dtype in ((9.0, "bf16"), (10.3, "fp8"), (12.0, "bf16"), (None, "bf16")):
        assert latent_arithmetic("fp8", capability) == dtype
    assert [latent_arithmetic(dtype, 10.0) for dtype in ("fp32", "bf16")] == ["fp32", "bf16"]


@pytest.mark.parametrize("gpus", [1, 4])
def test_gates_of_recurrent_mixers(gpus):
    """A norm with a gate follows each recurrence; Lightning's has a kernel on q, k, v before it.

    A short convolution has a gate before it and another after it.
    """
    size, in_and_out = 32 * 128, 2
    moved = {
        DELTA_NET: (GATED_PRODUCT, 1), KIMI_DELTA: (GATED_PRODUCT, 1), MAMBA: (GATED_PRODUCT, 1),
        LIGHTNING: (in_and_out * 3 + GATED_PRODUCT, 2), CONVOLUTION: (2 * GATED_PRODUCT, 2),
    }  # fmt: skip
    for mixer, (times, kernels) in moved.items():
        assert_moved(work_of(mixer, gpus)["elementwise"], times * size / gpus, kernels)


STATE_BYTES = 32 * 128 * 128 * 4
RECURRENCES = [
    # values a token, operations for each element of the state, bytes of the record of a token
    # queries and keys, values and results, two gates
    (DELTA_NET, 2 * 16 * 128 + 2 * 32 * 128 + 2 * 32, 8, (16 * 128 + 32 * 128 + 32) * 4),
    # and a gate for each element of a key
    (KIMI_DELTA, 4 * 32 * 128 + 32 * 128 + 32, 8, 32 * 128 * (4 + 2 + 2)),
    (LIGHTNING, 4 * 32 * 128, 6, 2 * 32 * 128 * 4),
    (MAMBA, 2 * 64 * 64 + 2 * 8 * 128 + 64, 6, (64 * 64 + 8 * 128) * 2 + 64 * 4),
]


@each_row("gpus", [1, 4])
@one_case(
    "states moved recorded",
    (StateKeeping(), 1 + 4, 0),  # read, and written after each of four tokens
    (StateKeeping("replay", "aligned"), 1 + 1, 3),  # a record of all but the first
    (StateKeeping("native", "scratch"), 1 + 4 + 2, 0),  # the accepted one is copied
)
@each_row(("mixer", "values", "operations", "record"), RECURRENCES)
def test_recurrences_of_a_gpu(mixer, values, operations, record, states, moved, recorded, gpus):
    part = work_of(mixer, gpus, tokens=4, states=states)["recurrence"]
    state = STATE_BYTES / 4
    assert part.flop == TOKENS * 4 * LAYERS * operations * state / gpus
    assert part.activation_bytes == TOKENS * 4 * LAYERS * values * 2 / gpus
    each = moved * STATE_BYTES + recorded * 2 * record  # written, and read
    assert part.cache_bytes == TOKENS * LAYERS * each / gpus
    assert part.groups == TOKENS * LAYERS * (64 if mixer is MAMBA else 32) / gpus
    assert part.memory_cause == "state"


@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize(("decay", "gate"), [(True, True), (True, False), (False, True)])
def test_matrices_of_kimi_deltas_gates(decay, gate, gpus):
    """Of hidden values one product makes queries, keys and values, a number a head, and gates.

    A gate of low rank is first as wide as a head, which each GPU has, and widened by a second.
    """
    mixer = replace(KIMI_DELTA, has_low_rank_decay=decay, has_low_rank_gate=gate)
    size, low = 32 * 128 / gpus, decay + gate
    first = H + 3 * size + 32 / gpus + low * 128 + (2 - low) * size
    widened, last = low * (128 + size), size + H
    found = work_of(mixer, gpus)["recurrent_projections"]
    assert_moved(found, first + widened + last, 1 + low + 1)
    assert found.depth == LAYERS * (H + low * 128 + size)
    assert found.weight_bytes == LAYERS * 2 * (mixer.weights(H, gpus) - 3 * size * 4)


@pytest.mark.parametrize("gpus", [1, 4])
def test_matrices_of_other_recurrent_mixers(gpus):
    """Each reads hidden values and writes them; in between is what one matrix hands to another."""
    size, groups, heads = 32 * 128 / gpus, 8 * 128 / gpus, 64 / gpus
    mixers = (DELTA_NET, MAMBA, LIGHTNING, CONVOLUTION)
    made = [work_of(mixer, gpus)["recurrent_projections"] for mixer in mixers]
    of_net, of_mamba, of_lightning, of_convolution = made
    made = 2 * groups * 2 + 2 * size + 2 * 32 / gpus  # queries and keys, values, gates
    assert_moved(of_net, H + made + size + H, of_net.kernels / LAYERS)
    made = size + (size + 2 * groups) + heads  # gate, what is convolved, steps
    assert_moved(of_mamba, H + made + size + H, 2)
    assert of_mamba.depth == LAYERS * (H + size)
    assert_moved(of_lightning, H + 4 * size + size + H, 3)
    assert of_lightning.depth == LAYERS * (H + H + size)
    assert of_lightning.weight_bytes == LAYERS * 2 * LIGHTNING.weights(H, gpus)
    assert_moved(of_convolution, H + 3 * size + size + H, 2)
    assert of_convolution.depth == LAYERS * (H + size)
    for part, mixer, taps in (
        (of_mamba, MAMBA, 4 * (size + 2 * groups)),
        (of_net, DELTA_NET, 4 * (size + 2 * 2 * groups)),
        (of_convolution, CONVOLUTION, 3 * size),
    ):
        assert part.weight_bytes == LAYERS * 2 * (mixer.weights(H, gpus) - taps)
        assert part.flop == TOKENS * part.weight_bytes


@pytest.mark.parametrize(("dtype", "quantisations"), [("bf16", 0), ("fp8", 3)])
@pytest.mark.parametrize(("ratio", "matrices"), [(0, 4), (4, 5), (128, 4)])
def test_kernels_of_compressed_projections(ratio, matrices, dtype, quantisations):
    """Four products, one more for the indexer's queries; three quantise what 8-bit ones read."""
    mixers = load_architecture("deepseek-v4-flash").mixers
    mixer = next(one for one in mixers if one.ratio == ratio)
    parts = work_of(mixer, 1, weights=dtype)
    assert parts["attention_projections"].kernels == LAYERS * (matrices + quantisations)
