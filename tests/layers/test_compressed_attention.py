"""Compressed attention (DeepSeek-V4): tensors by name, caches, rings and work by hand."""

import numpy as np
import pytest
from printed import refused
from rows import each_row, faults, listed
from strategies import pass_of

from specmodel import deploy, load_architecture, mtp_drafter
from specmodel.core.base import BYTES_PER_ELEMENT, as_table, build
from specmodel.core.cost import MemoryUse
from specmodel.core.layers import CompressedAttention, Layout

FLASH = load_architecture("deepseek-v4-flash")
H, HEADS, LATENT, GROUPS = 4096, 64, 1024, 8
MIXERS = {mixer.ratio: mixer for mixer in FLASH.mixers}
ENTRY, INDEX = 448 + 2 * 64 + 8, 128 + 4
RINGS = {0: 0, 4: 9 / 8 * (2 * 2 * 512 * 4 + 2 * 2 * 128 * 4), 128: 9 / 8 * 2 * 512 * 4}
"""What compressors keep of a token: values and weights in 32 bits, twice as wide where entries
overlap, and of the index, in pages an eighth larger."""


def compressor(h, ratio, dim):
    wide = dim * (2 if ratio == 4 else 1)
    return {"wkv": h * wide, "wgate": h * wide, "ape": ratio * wide, "norm": dim}


def attention_tensors(ratio):
    """Return the tensors of a layer as vLLM 0.33 names them (``models/deepseek_v4``)."""
    h, heads, q, groups = H, HEADS, LATENT, GROUPS
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


def test_cache_of_a_token_and_of_a_sequence():
    """Beyond windows and rings only entries grow, in pages of 256 tokens; 3.21 MB are windows."""
    counts = {0: 2, 4: 21, 128: 20}
    assert {mixer.ratio: n for mixer, n in FLASH.mixers.items()} == counts
    long, longer = (float(FLASH.sequence_bytes(np.array(n))) for n in (8192.0, 8192.0 + 128))
    grown = (counts[4] * (37_440 + 8_640) + counts[128] * 1_728) / 256
    assert (longer - long) / 128 == pytest.approx(grown)
    without_pages = counts[4] * (ENTRY + INDEX) / 4 + counts[128] * ENTRY / 128
    assert without_pages == pytest.approx(3850, abs=1)
    windows = sum(counts.values()) * 128 * ENTRY
    rings = counts[4] * 8 * RINGS[4] + counts[128] * 128 * RINGS[128]
    assert long - 8192 * grown == pytest.approx(windows + rings)
    assert windows / 1e6 == pytest.approx(3.21, abs=0.005)
    assert float(FLASH.sequence_bytes(np.array(8192.0), 8)) == long


def test_entries_in_other_dtypes():
    """vLLM's rows of bf16, and V4.1's records in 8 and 4 bits throughout."""
    sizes = [MIXERS[4].entry_bytes(dtype) for dtype in ("fp8", "bf16", "mxfp8", "fp4")]
    assert sizes == [584, 1024, 528, 288]


def test_drafted_tokens_widen_windows_and_rings():
    """Nothing is copied to get back: what was rejected is written over."""
    deployment, _ = deploy(target="deepseek-v4-flash", hardware="b300")
    one, four = (float(MemoryUse(deployment, 4096 - n, n).bytes_per_request) for n in (1, 4))
    more = 3 * (43 * ENTRY + 21 * RINGS[4] + 20 * RINGS[128])
    assert four - one == pytest.approx(more)
    passes = [pass_of(FLASH, batch_size=8, tokens_per_sequence=n).components for n in (1, 4)]
    assert "state" not in {part.memory_cause for found in passes for part in found.values()}


NODE = {"hardware": "b200", "kv_dtype": "fp8", "expert_parallel": 8}


@listed
def test_requests_that_run_at_once_and_those_that_vllm_logs(layout, context, running, logged):
    """vLLM 0.25's log of two layouts (vllm#51454), and requests that its block manager then runs.

    It was fed requests of that length until it took no more, in a pool of the logged size, in which
    the log has room for 20.43 of the longest whatever their length.
    """
    deployment, _ = deploy(target="deepseek-v4-flash", **NODE, **layout)
    memory = MemoryUse(deployment, float(context), 1)
    assert float(memory.max_batch_size) == pytest.approx(running, rel=0.1 if logged else 0.35)
    rooms = [note.values["room"] for note in memory.warnings(np.array(1.0))]
    assert rooms == ([pytest.approx(logged, rel=0.08)] if logged else [])


@listed
def test_what_vllm_counts_for_a_request(target, hardware, context, tokens, published):
    """Cache available over requests there is room for [GiB]: what is in flight counts in each."""
    of_v4 = {"tensor_parallel": 2} if "v4" in target else {"kv_dtype": "fp8"}
    memory = MemoryUse(deploy(target=target, hardware=hardware, **of_v4)[0], context - 1.0, 1)
    counted = float(memory.bytes_per_request + memory.in_flight_bytes(tokens))
    assert counted / 2**30 == pytest.approx(published, rel=0.16)


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_weights_that_are_cut_and_copied(ratio):
    tensors = attention_tensors(ratio)
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
    h, experts, width = H, 256, 2048
    block, total = 1 + 4 / 128**2, 2 * 2 * 129280 * h
    for ratio in [0, 0] + [4, 128] * 20 + [4]:
        tensors = attention_tensors(ratio)
        wide = sum(size for name, size in tensors.items() if name in unquantised(tensors))
        total += 2 * wide + block * (sum(tensors.values()) - wide)
        total += experts * 3 * h * width * 4.25 / 8 + 3 * h * width * block + 2 * h * experts
        total += 4 * 2 * (24 * 4 * h + 24 + 3) + 2 * 2 * h
    total += 4 * (4 * 4 * h + 5) + 2 * h
    assert FLASH.weight_bytes(Layout()) == pytest.approx(total, rel=1e-9)
    assert total / 1e9 == pytest.approx(156.0, abs=0.05)


# Work of a pass


def components(ratio, **point):
    model = FLASH.with_changes("target", {"layers": [layer_of(ratio)], "mtp_layer": None})
    return pass_of(model, **point).components


def layer_of(ratio):
    found = next(group for group in FLASH.layers if group.mixer.ratio == ratio)
    return as_table(found) | {"count": 10}


@pytest.mark.parametrize("tokens", [1, 4])
def test_entries_of_hca_are_read_once_for_all_tokens(tokens):
    point = {"batch_size": 5, "tokens_per_sequence": tokens, "context_length": 12_800}
    core = components(128, **point)["attention_core"]
    read = 127 + tokens + (12_800 + tokens) / 128
    assert core.cache_bytes == pytest.approx(5 * 10 * ENTRY * (read + tokens * (1 + 1 / 128)))
    pairs = tokens * 128 + tokens * (12_800 + (tokens + 1) / 2) / 128
    assert core.flop == pytest.approx(5 * 10 * 2 * 64 * (512 + 512) * pairs)
    assert (core.kind, core.memory_cause) == ("compressed_attention", "KV")


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("context", [1000, 40_000])
def test_each_token_of_csa_gathers_for_itself(tokens, context):
    point = {"batch_size": 5, "tokens_per_sequence": tokens, "context_length": context}
    found = components(4, **point, compute_capability=10.0)
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
    both = (components(4, **point, compute_capability=number) for number in (9, 10))
    hopper, blackwell = (found["indexer"].cache_bytes for found in both)
    assert hopper / blackwell == pytest.approx(3, rel=1e-4)


def test_a_window_alone():
    found = components(0, batch_size=3, context_length=10_000)
    assert not {"compressor", "indexer", "index_selection"} & found.keys()
    assert found["attention_core"].cache_bytes == 3 * 10 * ENTRY * (128 + 1)


@pytest.mark.parametrize("degree", [1, 4])
@pytest.mark.parametrize(("ratio", "index_queries"), [(0, 0), (4, 64 * 128), (128, 0)])
def test_matrices_and_values_between_them(ratio, index_queries, degree):
    """Each matrix reads what it is given and writes what it makes, in 16 bits."""
    parts = components(ratio, batch_size=3, layout=Layout(degree))
    tensors, found = attention_tensors(ratio), parts["attention_projections"]
    weights = sum(tensors[name] for name in ("wq_b", "wo_a", "wo_b")) / degree
    weights += sum(tensors.get(name, 0) for name in ("wq_a", "wkv", "indexer.wq_b"))
    stored = weights * BYTES_PER_ELEMENT["fp8_block"]
    assert found.weight_bytes == pytest.approx(10 * stored)
    assert (found.flop, found.dtype) == (3 * 10 * 2 * weights, "fp8")
    if ratio:
        wide = sum(map(tensors.get, unquantised(tensors)))
        assert parts["compressor"].weight_bytes == 10 * 2 * wide
        assert parts["compressor"].dtype == "bf16"
    heads, groups = 64 * 512 // degree, 8 * 1024 // degree
    moved = 4096 + (1024 + 512)  # wq_a and wkv
    moved += 1024 + (heads + index_queries)  # wq_b and that of the indexer
    moved += (heads + groups) + (groups + 4096)  # wo_a, wo_b
    assert found.activation_bytes == pytest.approx(3 * 10 * 2 * moved, rel=1e-12)


def test_prompts_do_the_same_work_for_each_token():
    found = components(4, batch_size=1, tokens_per_sequence=4096)["attention_core"]
    pairs = sum(min(i, 128) + min(i / 4, 512) for i in range(1, 4097))
    assert found.flop == pytest.approx(10 * 2 * 64 * 1024 * pairs)


# Drafting


def test_module_has_a_window_and_four_streams():
    head = mtp_drafter(FLASH).architectures[0]
    assert head.layers[0].mixer == MIXERS[0]
    assert head.layers[0].feed_forward == FLASH.layers[0].feed_forward
    assert (head.residuals, head.input_projection_size) == (FLASH.residuals, 2 * 4096)


@each_row(("changes", "message"), faults("compressed attention"))
def test_sizes_that_do_not_fit_are_named(changes, message):
    refused(message, build, CompressedAttention, as_table(MIXERS[4]) | changes, "mixer")
