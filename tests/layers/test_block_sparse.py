"""Block-sparse attention: sizes of MiniMax-M3 by hand, what a pass reads, and what tokens share."""

import itertools

import configs
import pytest
from configs import CONFIGS
from msgspec.structs import replace
from printed import refused
from rows import listed
from strategies import pass_of

from specmodel import decode, load_architecture
from specmodel.core.layers import BlockSparseAttention, GroupedAttention, Layout
from specmodel.core.layers.block_sparse import FROM_CACHE, TOGETHER

M3 = load_architecture("minimax-m3")
FULL, SPARSE = M3.mixers
H, REACH, LAYERS = 6144, 16 * 128, 57
CONFIG = CONFIGS["MiniMaxAI--MiniMax-M3"]


def components(model=M3, capability=9.0, **point):
    return pass_of(model, compute_capability=capability, **point).components


# Sizes


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_weights_of_a_layer(degree):
    """Query heads are cut, key-value and index heads as far as there are any, the key is not."""
    kv = 4 // min(degree, 4)
    grouped = H * (2 * 64 * 128 // degree + 2 * kv * 128)
    assert FULL.weights(H, degree) == grouped
    assert SPARSE.weights(H, degree) == grouped + H * (kv * 128 + 128)
    assert SPARSE.cuts(degree)
    assert not SPARSE.cuts(6)


@pytest.mark.parametrize(("degree", "entries"), [(1, 122_880), (4, 30_720), (8, 30_720)])
def test_cache_of_the_model(degree, entries):
    """2,048 B a token and layer in 16 bits over 60 layers, and 256 of index in each of 57."""
    index = LAYERS * 256
    for kv_dtype, size in (("bf16", entries), ("fp8", entries // 2)):
        kept = replace(M3, kv_dtype=kv_dtype)
        assert kept.sequence_bytes(1.0, degree) == size + index
        assert kept.sequence_bytes(1000.0, degree) == 1000 * (size + index)


# Passes


@pytest.mark.parametrize("degree", [1, 4])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_values_between_the_matrices(dtype, degree):
    """Made: queries, keys and values, queries and the key of the index. All but values are normed.

    What two matrices read is quantised by kernels of their own: 16 bits in, 8 out.
    """
    model = of_layers(SPARSE).with_changes("target", {"weight_dtype": dtype})
    part = components(model, layout=Layout(degree), batch_size=7)["block_sparse_projections"]
    queries, keys, index = 64 * 128 / degree, 4 * 128 / degree, 4 * 128 / degree + 128
    handed_on = H + queries + 2 * keys + index + queries + H
    normed_and_turned = 2 * (queries + keys + index)
    quantised = (H + queries) * (2 + 1) if dtype == "fp8" else 0
    moved = 2 * (handed_on + normed_and_turned) + quantised
    assert part.activation_bytes == pytest.approx(7 * LAYERS * moved, rel=1e-12)
    assert part.kernels == LAYERS * (5 if dtype == "fp8" else 3)
    assert part.depth == LAYERS * (H + queries)


def test_decoding_reads_all_index_keys_and_the_best_blocks():
    found = components(batch_size=4, context_length=100_000)
    assert found["indexer"].memory_cause == "index"
    read = 4 * (100_001 + 1)
    assert found["indexer"].cache_bytes == pytest.approx(read * LAYERS * 256, rel=1e-12)
    assert found["indexer"].flop == pytest.approx(4 * 100_001 * 2 * 512 * LAYERS, rel=1e-12)
    full = components(batch_size=4, context_length=100_000, model=of_layers(FULL))
    dense = full["attention_core"].cache_bytes / LAYERS
    core = components(batch_size=4, context_length=100_000, model=of_layers(SPARSE))
    own = core["block_sparse_core"].cache_bytes / LAYERS
    assert dense == pytest.approx(4 * (100_001 + 1) * 2048, rel=1e-12)
    assert own == pytest.approx(4 * (REACH + 1) * 2048, rel=1e-12)
    assert core["block_sparse_core"].flop == pytest.approx(4 * REACH * 64 * 4 * 128 * LAYERS, 1e-12)


def of_layers(mixer):
    """The model with sparse layers alone, all of which have one mixer."""
    return replace(M3, layers=(replace(M3.layers[1], mixer=mixer),))


@pytest.mark.parametrize(("degree", "heads"), [(1, 4), (2, 2), (8, 1)])
def test_scores_are_kept_of_blocks(degree, heads):
    """Of 32 bits for each index head and 128 entries, written by one kernel, read by another."""
    point = {"batch_size": 4, "tokens_per_sequence": 2, "context_length": 12_798}
    found = components(layout=Layout(degree), **point)
    scores, queries = 4 * heads * (12_799 + 12_800) / 128 * 4, 4 * 2 * heads * 128 * 2
    assert found["index_selection"].activation_bytes == pytest.approx(LAYERS * scores)
    assert found["indexer"].activation_bytes == pytest.approx(LAYERS * (scores + queries))
    read = 4 * (12_800 + 2) * LAYERS * 256  # all keys on each GPU, once for both tokens
    assert found["indexer"].cache_bytes == pytest.approx(read)
    own = 4 * ((1 + FROM_CACHE) * REACH + 2) * LAYERS * 2048 / min(degree, 4)
    assert found["block_sparse_core"].cache_bytes == pytest.approx(own)


def test_pooled_keys_are_one_a_block_and_on_all_gpus():
    """As in Qwen3.8-Flash-Next: 64 B of index a token and layer, blocks of 4 for all heads."""
    sizes = {"num_heads": 24, "num_kv_heads": 2, "head_dim": 256, "has_output_gate": True}
    index = {"index_num_heads": 4, "index_head_dim": 128, "block_size": 4, "topk_blocks": 512}
    pooled = BlockSparseAttention(**sizes, **index, is_pooled=True)
    grouped = GroupedAttention(**sizes)
    assert pooled.index_bytes == 64
    for degree in (1, 2, 4):
        of_index = pooled.weights(H, degree) - grouped.weights(H, degree)
        assert of_index == H * (4 + 1) * 128
    found = components(model=of_layers(pooled), batch_size=4, context_length=100_000)
    scores = 4 * 100_001 / 4
    assert found["indexer"].flop == pytest.approx(scores * 2 * 512 * LAYERS, rel=1e-12)
    assert found["index_selection"].activation_bytes == pytest.approx(scores * 4 * LAYERS)


def test_prompts_are_read_together_on_blackwell_alone():
    point = {"batch_size": 1, "context_length": 10_000, "model": of_layers(SPARSE)}
    for capability, tokens in itertools.product((9.0, 10.0), (100, 300)):
        again = TOGETHER if (capability, tokens) == (10.0, 300) else FROM_CACHE
        found = components(capability=capability, tokens_per_sequence=tokens, **point)
        read = REACH * (1 + again * (tokens - 1)) + tokens
        cache_bytes = found["block_sparse_core"].cache_bytes
        assert cache_bytes == pytest.approx(read * LAYERS * 2048, rel=1e-12)


def test_short_contexts_are_read_as_dense_attention_reads_them():
    """Up to the reach there is nothing to select."""
    short = components(batch_size=3, context_length=500, model=of_layers(SPARSE))
    dense = components(batch_size=3, context_length=500, model=of_layers(FULL))
    expected = pytest.approx(dense["attention_core"].cache_bytes, rel=1e-12)
    assert short["block_sparse_core"].cache_bytes == expected


# Answers


def test_index_is_a_cause_where_it_is_most_of_a_pass():
    where = {"target": "minimax-m3", "hardware": "h200_sxm", "tensor_parallel": 8, "stack": "vllm"}
    forward = decode(**where, batch_size=64, context_length=200_000).times.forward
    parts = {name: float(part.total_time) for name, part in forward.components.items()}
    assert parts["indexer"] > max(parts["block_sparse_core"], parts["block_sparse_projections"])
    assert forward.causes["indexer"] == "index"


# Configurations


def read(sparse=(), **changes):
    sparse = {"sparse_attention_config": CONFIG["sparse_attention_config"] | dict(sparse)}
    return configs.read(CONFIG | sparse | changes)


def test_dense_layers_may_be_anywhere():
    pattern = [0, 1] * 30
    model = read(sparse={"sparse_attention_freq": pattern, "sparse_disable_index_value": pattern})
    assert configs.kinds(model) == {"attention": 30, "block_sparse_attention": 30}
    unlike = ["full_attention"] * 60
    refused("layer_types: got .*sparse_attention_freq", read, layer_types=unlike)


@listed
def test_what_is_not_known_is_refused(sparse, changes, match):
    refused(match, read, sparse=sparse, **changes)
