"""Compressed attention (DeepSeek-V4): tensors by name, caches, rings and work by hand."""

import numpy as np
import pytest
from strategies import pass_of

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.base.errors import InputError
from specmodel.base.records import as_table, build
from specmodel.cost.deploying import deploy
from specmodel.cost.latency import draft_pass
from specmodel.cost.memory import MemoryUse
from specmodel.drafters import mtp_drafter
from specmodel.layers.batch import Layout, sequence_group
from specmodel.layers.compressed import CompressedAttention
from specmodel.models.architecture import load_architecture

FLASH, PRO = map(load_architecture, ("deepseek-v4-flash", "deepseek-v4-pro"))
SIZES = {
    "deepseek-v4-flash": (4096, 64, 1024, 8, 256, 2048, [0, 0] + [4, 128] * 20 + [4]),
    "deepseek-v4-pro": (7168, 128, 1536, 16, 384, 3072, [128, 128] + [4, 128] * 29 + [4]),
}
"""Width, heads, latent of queries, output groups, experts, their width, and ratios."""

MIXERS = {mixer.ratio: mixer for mixer in FLASH.mixers}
ENTRY, INDEX = 448 + 2 * 64 + 8, 128 + 4
RINGS = {0: 0, 4: 2 * 2 * 512 * 4 + 2 * 2 * 128 * 4, 128: 2 * 512 * 4}
"""What compressors keep of a token: values and weights in 32 bits, twice as wide where entries
overlap, and of the index."""


def compressor(h, ratio, dim):
    wide = dim * (2 if ratio == 4 else 1)
    return {"wkv": h * wide, "wgate": h * wide, "ape": ratio * wide, "norm": dim}


def attention_tensors(h, heads, q, groups, ratio):
    """Return the tensors of a layer as vLLM 0.33 names them (``models/deepseek_v4``)."""
    found = {
        "wq_a": h * q, "wkv": h * 512, "q_norm": q, "kv_norm": 512, "attn_sink": heads,
        "wq_b": q * heads * 512, "wo_a": heads * 512 // groups * groups * 1024,
        "wo_b": groups * 1024 * h,
    }  # fmt: skip
    if ratio:
        found |= {f"compressor.{n}": size for n, size in compressor(h, ratio, 512).items()}
    if ratio == 4:
        found |= {"indexer.wq_b": q * 64 * 128, "indexer.weights_proj": h * 64}
        found |= {f"indexer.{n}": size for n, size in compressor(h, 4, 128).items()}
    return found


def unquantised(tensors):
    """Return the names of what compressors and index heads are made of."""
    return [name for name in tensors if "." in name and name != "indexer.wq_b"]


@pytest.mark.parametrize(("name", "total", "active"), [
    ("deepseek-v4-flash", 284.332, 13.270), ("deepseek-v4-pro", 1572.997, 48.852),
])  # fmt: skip
def test_parameters_are_the_sum_of_tensors(name, total, active):
    """Published as 284B-A13B and 1.6T-A49B."""
    h, heads, q, groups, experts, width, ratios = SIZES[name]
    mixed = {"attn.fn": 24 * 4 * h, "attn.base": 24, "attn.scale": 3}
    whole = used = 0
    for ratio in ratios:
        own = sum(attention_tensors(h, heads, q, groups, ratio).values()) + 2 * h
        own += 2 * sum(mixed.values()) + h * experts
        whole += own + (experts + 1) * 3 * h * width
        used += own + (6 + 1) * 3 * h * width
    head = 129280 * h + h + 4 * 4 * h + 4 + 1
    model = load_architecture(name)
    assert model.total_parameters == whole + head + 129280 * h
    assert model.active_parameters == used + head
    assert model.total_parameters / 1e9 == pytest.approx(total, abs=5e-4)
    assert model.active_parameters / 1e9 == pytest.approx(active, abs=5e-4)


@pytest.mark.parametrize(("model", "counts", "token"), [
    (FLASH, {0: 2, 4: 21, 128: 20}, 3850), (PRO, {4: 30, 128: 31}, 5511),
])  # fmt: skip
def test_cache_of_a_token_and_of_a_sequence(model, counts, token):
    """Beyond windows and rings only entries grow; 3.21 and 4.56 MB are windows."""
    assert {mixer.ratio: n for mixer, n in model.mixers.items()} == counts
    long, longer = (float(model.sequence_bytes(np.array(n))) for n in (8192.0, 8192.0 + 128))
    grown = counts[4] * (ENTRY + INDEX) / 4 + counts[128] * ENTRY / 128
    assert (longer - long) / 128 == pytest.approx(grown)
    assert grown == pytest.approx(token, abs=1)
    windows = sum(counts.values()) * 128 * ENTRY
    rings = counts[4] * 8 * RINGS[4] + counts[128] * 128 * RINGS[128]
    assert long - 8192 * grown == pytest.approx(windows + rings)
    assert windows / 1e6 == pytest.approx({FLASH: 3.21, PRO: 4.56}[model], abs=0.005)
    assert float(model.sequence_bytes(np.array(8192.0), 8)) == long


def test_entries_in_other_dtypes():
    """vLLM's rows of bf16, and V4.1's records in 8 and 4 bits throughout."""
    assert [MIXERS[4].entry_bytes(dtype) for dtype in ("fp8", "bf16", "mxfp8", "fp4")] == [
        584, 1024, 528, 288
    ]  # fmt: skip


def test_drafted_tokens_widen_windows_and_rings():
    """Nothing is copied to get back: what was rejected is written over."""
    deployment, _ = deploy(target="deepseek-v4-flash", hardware="b300")
    one, four = (
        float(MemoryUse(deployment, 4096 - tokens, tokens).bytes_per_request) for tokens in (1, 4)
    )
    more = 3 * (43 * ENTRY + 21 * RINGS[4] + 20 * RINGS[128])
    assert four - one == pytest.approx(more)
    passes = [pass_of(FLASH, batch_size=8, tokens_per_sequence=n).components for n in (1, 4)]
    assert "state" not in {part.memory_cause for found in passes for part in found.values()}


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_weights_that_are_cut_and_copied(ratio):
    tensors = attention_tensors(4096, 64, 1024, 8, ratio)
    cut = sum(tensors[name] for name in ("wq_b", "wo_a", "wo_b", "attn_sink"))
    mixer = MIXERS[ratio]
    assert mixer.weights(4096) == sum(tensors.values())
    assert mixer.weights(4096, 4) == sum(tensors.values()) - cut * 3 / 4
    assert [n for n in range(1, 17) if mixer.cuts(n)] == [1, 2, 4, 8]
    stream = FLASH.stream
    more = sum(map(tensors.get, unquantised(tensors))) * (2 - BYTES_PER_ELEMENT["fp8_block"])
    assert mixer.widened_bytes(stream, 4) == pytest.approx(more)


def test_bytes_of_the_checkpoint():
    """Experts in 4 bits with a scale for each 32, attention in 8, routers and ends in 16."""
    h, heads, q, groups, experts, width, ratios = SIZES["deepseek-v4-flash"]
    block, total = 1 + 4 / 128**2, 2 * 2 * 129280 * h
    for ratio in ratios:
        tensors = attention_tensors(h, heads, q, groups, ratio)
        wide = sum(size for name, size in tensors.items() if name in unquantised(tensors))
        total += 2 * wide + block * (sum(tensors.values()) - wide)
        total += experts * 3 * h * width * 4.25 / 8 + 3 * h * width * block + 2 * h * experts
        total += 4 * 2 * (24 * 4 * h + 24 + 3) + 2 * 2 * h
    total += 4 * (4 * 4 * h + 5) + 2 * h
    assert FLASH.weight_bytes(Layout()) == pytest.approx(total, rel=1e-9)
    assert total / 1e9 == pytest.approx(156.0, abs=0.05)


# Work of a pass


def parts(ratio, **point):
    model = FLASH.with_changes("target", {"layers": [layer_of(ratio)], "mtp_layer": None})
    return pass_of(model, **point).components


def layer_of(ratio):
    found = next(group for group in FLASH.layers if group.mixer.ratio == ratio)
    return as_table(found) | {"count": 10}


@pytest.mark.parametrize("tokens", [1, 4])
def test_entries_of_hca_are_read_once_for_all_tokens(tokens):
    core = parts(128, batch_size=5, tokens_per_sequence=tokens, context_length=12_800)[
        "attention_core"
    ]
    read = 127 + tokens + (12_800 + tokens) / 128
    assert core.cache_bytes == pytest.approx(5 * 10 * ENTRY * (read + tokens * (1 + 1 / 128)))
    pairs = tokens * 128 + tokens * (12_800 + (tokens + 1) / 2) / 128
    assert core.flop == pytest.approx(5 * 10 * 2 * 64 * (512 + 512) * pairs)
    assert (core.kind, core.memory_cause) == ("compressed_attention", "KV")


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("context", [1000, 40_000])
def test_each_token_of_csa_gathers_for_itself(tokens, context):
    point = {"batch_size": 5, "tokens_per_sequence": tokens, "context_length": context}
    found = parts(4, **point, compute_capability=10.0)
    entries = [min((context + i) / 4, 512) for i in range(1, tokens + 1)]
    read = 127 + tokens + sum(entries)
    core = found["attention_core"]
    assert core.cache_bytes == pytest.approx(5 * 10 * ENTRY * (read + tokens * 1.25))
    keys = (context + tokens) / 4 + tokens / 4
    assert found["indexer"].cache_bytes == pytest.approx(5 * 10 * INDEX * keys)
    scores = sum((context + i) / 4 for i in range(1, tokens + 1))
    assert found["indexer"].flop == pytest.approx(5 * 10 * 2 * 64 * 128 * scores)
    assert found["indexer"].memory_cause == "index"
    kinds = {name: part.kind for name, part in found.items()}
    assert kinds["indexer"] == kinds["index_selection"] == "compressed_indexer"


def test_index_keys_are_read_anew_where_kernels_do_not_share_them():
    """Hopper's kernel takes 1, 2 or 4 tokens of a sequence, Blackwell's any number."""
    point = {"batch_size": 1, "tokens_per_sequence": 3, "context_length": 40_000}
    hopper, blackwell = (
        parts(4, **point, compute_capability=number)["indexer"].cache_bytes for number in (9, 10)
    )
    assert hopper / blackwell == pytest.approx(3, rel=1e-4)


def test_a_window_alone():
    found = parts(0, batch_size=3, context_length=10_000)
    assert not {"compressor", "indexer", "index_selection"} & found.keys()
    assert found["attention_core"].cache_bytes == 3 * 10 * ENTRY * (128 + 1)


def test_matrices_and_what_is_copied_to_each_gpu():
    tensors = attention_tensors(4096, 64, 1024, 8, 4)
    cut = sum(tensors[name] for name in ("wq_b", "wo_a", "wo_b"))
    copied = sum(tensors[name] for name in ("wq_a", "wkv", "indexer.wq_b"))
    found = parts(4, batch_size=2, layout=Layout(4))
    size = BYTES_PER_ELEMENT["fp8_block"]
    weights = cut / 4 + copied
    assert found["attention_projections"].weight_bytes == pytest.approx(10 * weights * size)
    assert found["attention_projections"].flop == 2 * 10 * 2 * weights
    wide = sum(map(tensors.get, unquantised(tensors)))
    assert found["compressor"].weight_bytes == 10 * 2 * wide
    assert (found["compressor"].dtype, found["attention_projections"].dtype) == ("bf16", "fp8")


@pytest.mark.parametrize("degree", [1, 4])
@pytest.mark.parametrize(("ratio", "index_queries"), [(0, 0), (4, 64 * 128), (128, 0)])
def test_values_between_the_matrices(ratio, index_queries, degree):
    """Each matrix reads what it is given and writes what it makes, in 16 bits."""
    found = parts(ratio, batch_size=3, layout=Layout(degree))["attention_projections"]
    heads, groups = 64 * 512 // degree, 8 * 1024 // degree
    read_and_written = {
        "wq_a and wkv": 4096 + (1024 + 512),
        "wq_b and that of the indexer": 1024 + (heads + index_queries),
        "wo_a": heads + groups,
        "wo_b": groups + 4096,
    }
    moved = sum(read_and_written.values())
    assert found.activation_bytes == pytest.approx(3 * 10 * 2 * moved, rel=1e-12)


def test_prompts_do_the_same_work_for_each_token():
    found = parts(4, batch_size=1, tokens_per_sequence=4096)["attention_core"]
    pairs = sum(min(i, 128) + min(i / 4, 512) for i in range(1, 4097))
    assert found.flop == pytest.approx(10 * 2 * 64 * 1024 * pairs)


# Drafting


def test_module_has_a_window_and_four_streams():
    head = mtp_drafter(FLASH).architectures[0]
    assert head.layers[0].mixer == MIXERS[0]
    assert head.layers[0].feed_forward == FLASH.layers[0].feed_forward
    assert head.residuals == FLASH.residuals
    assert head.input_projection_size == 2 * 4096
    deployment, _ = deploy(target="deepseek-v4-flash", hardware="b300", drafter="mtp")
    near, far = (
        draft_pass(deployment, head, sequence_group(batch_size=4, context_length=n)).total_time
        for n in (200, 100_000)
    )
    assert near == far


@pytest.mark.parametrize(("changes", "message"), [
    ({"output_groups": 7}, "output_groups: got 7; .*divisor of num_heads = 64"),
    ({"rotary_dim": 600}, "rotary_dim: got 600"),
    ({"ratio": 0}, "index_topk: got 512; expected 0"),
    ({"index_num_heads": 0}, "index_num_heads: got 0; expected at least 1"),
    ({"index_topk": 0}, "index_num_heads: got 64; expected 0"),
])  # fmt: skip
def test_sizes_that_do_not_fit_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        build(CompressedAttention, as_table(MIXERS[4]) | changes, "mixer")
