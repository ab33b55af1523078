"""Work and time of one pass: hand counts, limits, and properties over random models."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from one_by_one import pass_time
from printed import refused
from rows import cases
from strategies import architectures, hardware, layouts, pass_of, with_windows

from specmodel import load_architecture
from specmodel.core.algebra.routing import zipf_popularity
from specmodel.core.base import BYTES_PER_ELEMENT
from specmodel.core.layers import Layout


def work_of(model, **changes):
    architecture = load_architecture(model) if isinstance(model, str) else model
    point = {"batch_size": 1, "tokens_per_sequence": 1, "context_length": 1000} | changes
    return pass_of(architecture, **point)


def seconds(architecture, gpu, **point):
    work = pass_of(architecture, **point)
    return float(pass_time(work, gpu).total_time)


def total(work, field):
    return float(sum(np.asarray(getattr(part, field)) for part in work.components.values()))


def test_dense_pass_reads_every_active_weight_once():
    """Llama-3.1-8B by hand: 2 FLOP a weight and token, 2 bytes a weight, 128 KiB of KV a token."""
    work = work_of("llama-3.1-8b", batch_size=3)
    active = load_architecture("llama-3.1-8b").active_parameters
    assert total(work, "weight_bytes") == 2 * active
    kv = work.components["attention_core"].cache_bytes
    assert kv == 3 * (1001 + 1) * 32 * 2 * 8 * 128 * 2
    attention = work.components["attention_core"].flop
    assert attention == 3 * 32 * 4 * 32 * 128 * 1001
    norms = work.components["norms"].flop
    matrices = total(work, "flop") - attention - norms
    assert matrices == pytest.approx(2 * 3 * (active - 65 * 4096), rel=1e-12)


def test_moe_pass_reads_the_union():
    work = work_of("mixtral-8x7b", batch_size=4, tokens_per_sequence=3, routing_correlation=0.0)
    part, expert = work.components["routed_experts"], 3 * 4096 * 14336 * 2
    union = 8 * (1 - 0.75**12)
    assert part.weight_bytes == pytest.approx(32 * union * expert, rel=1e-12)
    assert part.flop == pytest.approx(32 * 12 * 2 * expert, rel=1e-12)
    assert work.active_experts == pytest.approx(union, rel=1e-12)


@pytest.mark.parametrize("context", [0, 3, 7, 8, 30])
def test_sliding_window_counts_what_each_query_sees(context):
    model = with_windows(load_architecture("llama-3.1-8b"), 8, 32)
    q = 5
    work = work_of(model, tokens_per_sequence=q, context_length=context)
    part = work.components["attention_core"]
    seen = [set(range(max(0, last - 7), last + 1)) for last in range(context, context + q)]
    assert part.flop == 32 * 4 * 32 * 128 * sum(map(len, seen))
    assert part.cache_bytes == 32 * (len(set().union(*seen)) + q) * 2 * 8 * 128 * 2


MOST = {"batch_size": (1, 1e9), "tokens_per_sequence": (1, 64), "context_length": (0, 1e6)}
MOST |= {"routing_correlation": (0, 1), "speculating_share": (0, 1)}
POINTS = st.fixed_dictionaries({name: st.floats(*ends) for name, ends in MOST.items()})


@given(architectures(), hardware(), POINTS, st.floats(0, 2), st.data())
def test_time_is_continuous_and_monotone(model, gpu, point, exponent, data):
    """0.1 % more work never changes time by more than 1 %, and never the wrong way."""
    popularity = None
    if model.is_moe:
        popularity = zipf_popularity(model.num_experts, model.experts_per_token, exponent)
    point |= {"popularity": data.draw(st.sampled_from([None, popularity]))}
    point |= {"layout": data.draw(layouts(model))}
    here = seconds(model, gpu, **point)
    assert 0 < here < np.inf
    for name in ("batch_size", "tokens_per_sequence", "context_length"):
        more = seconds(model, gpu, **(point | {name: point[name] * 1.001}))
        assert here * (1 - 1e-12) <= more <= here * 1.01, name


def test_tensor_parallel_cuts_the_work_and_adds_communication():
    whole, half = (work_of("qwen2-57b-a14b", layout=Layout(n)) for n in (1, 2))
    for name in ("attention_core", "routed_experts", "shared_experts", "lm_head"):
        assert half.components[name].flop == whole.components[name].flop / 2
        assert half.components[name].weight_bytes == whole.components[name].weight_bytes / 2
    assert "all_reduce" not in whole.components
    # two reductions a layer and one of the embedding; half of the logits are gathered
    messages = half.components["all_reduce"]
    assert (messages.reductions, messages.ranks, messages.collectives) == (57, 2, 1)
    assert (messages.reduced_bytes, messages.link_bytes) == (57 * 3584 * 2, 151936 * 2 / 2)


def test_key_value_heads_are_replicated_beyond_their_number():
    four, eight = (work_of("qwen3-30b-a3b", layout=Layout(n)) for n in (4, 8))
    core = "attention_core"
    assert four.components[core].cache_bytes == eight.components[core].cache_bytes
    assert four.components[core].flop == 2 * eight.components[core].flop


@pytest.mark.parametrize("degree", [3, 5, 8, 0, -1, 1.5])
def test_tensor_parallel_must_divide_the_heads(degree):
    refused("tensor_parallel: got", work_of, "qwen2-57b-a14b", layout=Layout(degree))


@cases("gpus tokens intensity", (1, 1, 242), (1, 4, 967), (8, 1, 242 / 8))
def test_latent_attention_by_hand(gpus, tokens, intensity):
    """Absorbed MLA: 2 heads (2 kv_lora + rope) FLOP a query and entry, kv_lora + rope elements.

    Heads are cut over GPUs; latents are on every rank.
    """
    point = {"tokens_per_sequence": tokens, "context_length": 100_000, "layout": Layout(gpus)}
    part = work_of("deepseek-v3", **point).components["attention_core"]
    pairs = sum(range(100_001, 100_001 + tokens))
    assert part.flop == 61 * 2 * 128 / gpus * (2 * 512 + 64) * pairs
    assert part.cache_bytes == 61 * (100_000 + 2 * tokens) * (512 + 64) * 2
    assert part.flop / part.cache_bytes == pytest.approx(intensity, rel=0.005)


def test_each_group_of_weights_has_its_dtype():
    """gpt-oss-120b: mxfp4 experts at 4.25 bits, everything else bf16, arithmetic in bf16."""
    work = work_of("gpt-oss-120b", batch_size=10_000).components
    experts_read = 36 * 128 * 3 * 2880 * 2880
    assert work["routed_experts"].weight_bytes == pytest.approx(experts_read * 4.25 / 8, rel=1e-12)
    assert work["attention_projections"].weight_bytes == 36 * 2 * 2880 * (4096 + 512) * 2
    assert {part.dtype for part in work.values()} == {"bf16"}


def test_arithmetic_runs_in_the_wider_of_weights_and_activations():
    """DeepSeek-V3: fp8 matrices, but LM head, router and the core over a bf16 cache in bf16."""
    work = work_of("deepseek-v3").components
    for name in ("attention_projections", "routed_experts", "shared_experts", "dense_ffn"):
        assert work[name].dtype == "fp8"
    for name in ("attention_core", "router", "lm_head"):
        assert work[name].dtype == "bf16"
    assert work["lm_head"].weight_bytes == 2 * 7168 * 129280


def test_interleaved_and_leading_dense_layers_count_once():
    maverick = work_of("llama-4-maverick").components
    assert maverick["dense_ffn"].weight_bytes == 2 * 24 * 3 * 5120 * 16384
    assert maverick["shared_experts"].weight_bytes == 2 * 24 * 3 * 5120 * 8192
    deepseek = work_of("deepseek-v3").components
    size = BYTES_PER_ELEMENT["fp8_block"]
    assert deepseek["dense_ffn"].weight_bytes == 3 * 3 * 7168 * 18432 * size
