"""Work of single components, counted by hand or from what engines and checkpoints publish."""

import numpy as np
import pytest
from msgspec.structs import replace
from rows import each_row, values_of
from strategies import pass_of

from specmodel import decode, load_architecture
from specmodel.core.layers import Layout
from specmodel.core.layers.blocks import Tokens
from specmodel.core.layers.dense import dense_block

TOKENS = 7


def part(name, component, **changes):
    model = load_architecture(name)
    point = {"batch_size": TOKENS, "tokens_per_sequence": 1, "context_length": 100} | changes
    return model, pass_of(model, **point).components[component]


def test_norms_read_and_write_two_tensors():
    """Input and residual in, sum and normed value out, each in 16 bits; weights once.

    An element takes 5 operations fused with the residual (add, square, sum, two products); a layer
    norm 8, which subtracts a mean and adds a bias as well.
    """
    model, norms = part("qwen3-30b-a3b", "norms")
    rows = (2 * model.num_layers + 1) * model.hidden_size
    assert (norms.activation_bytes, norms.weight_bytes) == (TOKENS * 4 * rows * 2, rows * 2)
    assert 5 * TOKENS * rows <= norms.flop <= 8 * TOKENS * rows


def test_int4_has_the_size_of_a_published_checkpoint():
    """Llama-2-7B in AWQ, groups of 128, is 3.89 GB (the card of TheBloke/Llama-2-7B-AWQ); a
    scale and a zero point for each 64 or 256 weights would make it 4.02 or 3.83."""
    mixer = {"kind": "attention", "num_heads": 32, "num_kv_heads": 32, "head_dim": 128}
    layer = {"count": 32, "mixer": mixer, "feed_forward": {"kind": "dense", "ffn_size": 11008}}
    shape = {"hidden_size": 4096, "vocabulary_size": 32000, "layers": [layer]}
    dtypes = {"weight_dtype": "int4", "embedding_dtype": "fp16"}
    llama = load_architecture("llama-3.1-8b").with_changes("target", shape | dtypes)
    assert llama.weight_bytes(Layout()) == pytest.approx(3.89e9, abs=0.005e9)


def test_permuting_tokens_to_experts_moves_each_row_there_and_back():
    """A token's row is read once and written k times, and the reverse when outputs are added."""
    model, experts = part("mixtral-8x7b", "routed_experts")
    layers, h, k = 32, model.hidden_size, 2
    width, matrices = 14336, 3
    inside = TOKENS * k * layers * (2 * h + 2 * matrices * width) * 2
    moved = layers * TOKENS * 2 * (1 + k) * h * 2
    assert experts.activation_bytes == pytest.approx(inside + moved, rel=1e-12)
    assert experts.kernels == layers * (3 + 3)  # gate and up, activation, down; sort, gather, sum


VLLM_MLA = {
    "attention_projections": ("fused_qkv_a_proj", "q_b_proj", "o_proj"),
    "absorbed_projections": ("W_UK_T", "W_UV"),
    "elementwise": ("q_a_layernorm", "kv_a_layernorm", "rotary_emb"),
}
"""What a decode step of `MultiHeadLatentAttentionWrapper` runs around attention itself."""


def test_latent_attention_launches_what_vllm_does():
    parts = pass_of(load_architecture("deepseek-v3"), batch_size=TOKENS).components
    for name, kernels in VLLM_MLA.items():
        acted = 61 if name == "elementwise" else 0  # activations of dense and shared blocks
        assert parts[name].kernels == 61 * len(kernels) + acted
    assert parts["attention_core"].kernels == 61


def test_latent_attention_passes_on_latents_and_heads():
    """Between its matrices a token of DeepSeek-V3 has in one layer: its input and output; the
    latents of query (1536) and of keys and values (512 + 64); for each of 128 heads a query of
    128 + 64, its absorbed form and the weighted latent of 512 each, and a value of 128. Matrices
    read them in 16 bits, and quantise them themselves. In the core a head's query meets the cache
    of 576, and gives a latent of 512."""
    parts = pass_of(load_architecture("deepseek-v3"), batch_size=TOKENS).components
    each = {
        "attention_projections": 2 * 7168 + 1536 + 576 + 128 * (192 + 128),
        "absorbed_projections": 128 * 2 * 512,
        "attention_core": 128 * (576 + 512),
    }
    moved = {name: parts[name].activation_bytes for name in each}
    assert moved == {name: TOKENS * 61 * values * 2 for name, values in each.items()}
    assert parts["attention_projections"].depth == 61 * (7168 + 1536 + 128 * 128)
    assert parts["absorbed_projections"].depth == 61 * (128 + 512)


@pytest.mark.parametrize(("name", "row"), [("opt-30b", 2 * 7168), ("opt-350m", 512 + 1024)])
def test_embedding_reads_a_row_and_writes_one_for_each_token(name, row):
    _, embedding = part(name, "embedding")
    assert (embedding.activation_bytes, embedding.weight_bytes) == (TOKENS * row * 2, 0)


def test_dense_blocks_read_and_write_what_their_three_kernels_hand_on():
    """Input, gate and up out; these in and their product out; that in and the output."""
    h, width = 64.0, 256.0
    model = load_architecture("llama-3.1-8b")
    run = Tokens(replace(model.stream, hidden_size=h), np.float64(TOKENS))
    products, acted = dense_block("dense_ffn", run, width, 1, is_gated=True).values()
    assert products.activation_bytes == TOKENS * ((h + 2 * width) + (width + h)) * 2
    assert acted.activation_bytes == TOKENS * (2 * width + width) * 2
    assert (products.kernels, acted.kernels, products.depth) == (2, 1, h + width)


# What engines keep in memory beside or beyond a checkpoint: absorbed matrices, and padding

LATENTS = 128 * 512 * (128 + 128)
"""Weights of `kv_b_proj` of DeepSeek-V3 and V3.2 [-]."""


@each_row("name", ["deepseek-v3", "deepseek-v3.2"])
@each_row("cut", [1, 8])
def test_absorbed_matrices_have_16_bits_beside_those_of_the_checkpoint(name, cut):
    model, wide = load_architecture(name), load_architecture(name, weight_dtype="bf16")
    (mixer,) = model.mixers
    assert mixer.widened_bytes(model.stream, cut) == 2 * LATENTS / cut
    assert mixer.widened_bytes(wide.stream, cut) == 0  # views of what the checkpoint holds


@each_row(("engine", "hardware", "cut", "sides"), values_of("engines.txt", "padded experts"))
def test_experts_of_mxfp4_are_padded_in_memory(engine, hardware, cut, sides):
    """gpt-oss-120b: 36 layers of 128 experts of 2,880 by 2,880, in 4.25 bits."""
    where = {"target": "gpt-oss-120b", "hardware": hardware, "engine": engine}
    held = decode(**where, tensor_parallel=cut, batch_size=1).memory_bytes
    told = load_architecture("gpt-oss-120b").weight_bytes(Layout(cut))
    more = 36 * 128 * 3 * (sides[0] * sides[1] - 2880 * 2880 / cut) * 4.25 / 8
    kept = held - told - more
    assert 0 < kept < 0.1e9  # the cache of one request
