"""Attention of vLLM that does not split keys: who runs it, and what one block walks in a pass."""

import numpy as np
import pytest
from printed import refused
from rows import each_row, values_of

from specmodel import load_engine, predict
from specmodel.core.cost.attention import attention_walk

GEMMA = {"target": "gemma-4-26b-a4b", "drafter": "ngram", "hardware": "a100_sxm_80gb"}
QWEN = {"target": "qwen3-32b", "hardware": "rtx_4090", "tensor_parallel": 4}
OWN_BUILD = load_engine("vllm").with_changes("engine", {"flash_split_tokens": 64})
QWEN38 = {"target": "qwen3.8-27b", "drafter": "mtp", "batch_size": 1}


def times(**changes):
    point = {"batch_size": 1, "draft_length": 3, "context_length": 100_000, "acceptance": 0.7}
    return predict(**(GEMMA | point | changes)).evaluation.times


def core(passed):
    return float(passed.components["attention_core"].busy_time)


@each_row(("deployed", "tokens"), values_of("engines.txt", "walked keys"))
def test_who_walks_keys_of_more_than_so_many_tokens(deployed, tokens):
    point = {"drafter": "ngram", "batch_size": 1, "draft_length": 1, "acceptance": 0.7}
    deployment = predict(**point, **deployed).deployment
    walk = attention_walk(deployment, deployment.target)
    assert (walk.split_tokens if walk else None) == tokens


def test_a_block_walks_all_keys_of_a_head_beyond_what_is_spread():
    """Five layers walk the context, 25 a window of 1,024; keys and values of 512 and 256, 16 bits.

    Eight tokens are spread over sixteen blocks, nine over none.
    """
    context, window = 100_000, 1024
    spread, walked = (times(draft_length=length).speculating for length in (7, 8))
    full, windowed = 5 * (context + 9) * 2 * 512 * 2, 25 * (window + 8) * 2 * 256 * 2
    seconds = (full + windowed) / 40e9
    assert core(walked) == pytest.approx(seconds, rel=0.02)
    assert core(spread) < core(walked) / 5
    assert core(spread) > seconds / 16


def test_before_vllm_0_33_two_tokens_are_walked_already():
    old = load_engine("vllm").with_changes("engine", {"split_tokens": 1})
    both = [times(engine=engine, draft_length=3) for engine in (old, "vllm")]
    assert core(both[0].speculating) > 5 * core(both[1].speculating)
    assert core(both[0].forward) == core(both[1].forward)


def test_many_requests_fill_the_gpu_so_that_memory_decides():
    old = load_engine("vllm").with_changes("engine", {"split_tokens": 1})
    given = {"batch_size": 256, "context_length": 4096}
    walked, spread = (core(times(engine=e, **given).speculating) for e in (old, "vllm"))
    assert walked == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize(("batch_size", "in_turn"), [(1, 1), (16, 2)])
def test_flash_attention_2_computes_64_rows_of_a_head_beyond_one_token(batch_size, in_turn):
    """Sixteen heads of 128 a GPU have a block each; those of 16 sequences make two rounds of 128.

    A block takes 64 rows times 128 numbers of a key and of a value, 2 FLOP each, at 0.89 of the
    peak of its processor.
    """
    context, layers = 20_000, 64
    found = times(**QWEN, batch_size=batch_size, draft_length=3, context_length=context)
    seconds = layers * (context + 4) * 4 * 64 * 128 / (0.89 * 1.65e14 / 128)
    assert core(found.speculating) == pytest.approx(in_turn * seconds, rel=0.02)
    assert core(found.forward) < core(found.speculating) / 2


@pytest.mark.parametrize(("context", "measured"), [
    (1_400, 95.6 / 52.6), (29_500, 53.3 / 49.9), (88_900, 28.5 / 45.6), (177_400, 19.1 / 39.6),
])  # fmt: skip
def test_long_contexts_lose_on_an_rtx_pro_6000(context, measured):
    """Qwen3.8-27B in fp8, its cache in bf16, MTP of 2, vLLM 0.21 (Deep-AI-Evo, 2026-08-16)."""
    given = QWEN38 | {"hardware": "rtx_pro_6000", "weight_dtype": "fp8", "kv_dtype": "bf16"}
    found = predict(**given, draft_length=2, context_length=context, tokens_per_step=2.0)
    assert found.value("speedup") == pytest.approx(measured, rel=0.16)
    assert (found.value("speedup") > 1) == (measured > 1)


def test_steps_grow_with_context_as_measured_on_two_rtx_3090():
    """Qwen3.6-27B in int4, MTP of 2: 55.2 to 39.7 tokens/s, 2.8 a step (vllm-ampere-optimized)."""
    given = QWEN38 | {"target": "qwen3.6-27b", "hardware": "rtx_3090", "tensor_parallel": 2}
    given |= {"weight_dtype": "int4", "kv_dtype": "bf16", "draft_length": 2, "acceptance": 0.9}
    found = predict(**given, context_length=[16_384, 32_768]).evaluation.times.step_time
    assert np.diff(found) == pytest.approx(2.8 / 39.7 - 2.8 / 55.2, rel=0.2)


def test_8_bit_caches_go_to_flashinfer_which_splits():
    """NVFP4 weights, cache in fp8, MTP of 1 at 148k: 42.1 to 57.8 tokens/s (RTX PRO 5000)."""
    given = QWEN38 | {"hardware": "rtx_pro_6000", "weight_dtype": "fp4", "draft_length": 1}
    given |= {"context_length": 148_000, "tokens_per_step": 1.8}
    gains = [float(predict(**given, kv_dtype=kv).value("speedup")) for kv in ("fp8", "bf16")]
    assert gains[0] > 1.3
    assert gains[1] < 0.6


@pytest.mark.parametrize(("changes", "is_noted"), [
    ({}, True), ({"kv_dtype": "fp8"}, False), ({"engine": OWN_BUILD}, False),
    ({"hardware": "h100_sxm"}, False), ({"context_length": 16_000}, False),
    ({"engine": "sglang"}, False),
])  # fmt: skip
def test_a_note_has_what_spreads_keys(changes, is_noted):
    given = QWEN38 | {"hardware": "rtx_pro_6000", "acceptance": 0.6, "context_length": 90_000}
    notes = [n for n in predict(**given | changes).notes if n.kind == "walked_keys"]
    assert [note.values["cache_helps"] for note in notes] == [True] * is_noted


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", np.inf])
def test_what_is_no_number_of_tokens_is_refused(value):
    for name in ("split_tokens", "flash_split_tokens"):
        refused(name, load_engine("vllm").with_changes, "engine", {name: value})


def test_triton_of_sglang_loses_at_long_context_where_it_was_measured():
    """Qwen3.5-397B in NVFP4 on four RTX PRO 6000, one request, SGLang 0.5.9 told to run Triton.

    Tokens/s without and with MTP at 16k to 128k (voipmonitor/rtx6kpro, March 2026); vLLM on the
    same machine loses nothing. Signs at 32k are open: 58 against 58.
    """
    plain, drafting = np.array([65, 58, 48, 35]), np.array([79, 58, 37, 29])
    where = {"target": "qwen3.5-397b", "hardware": "rtx_pro_6000", "weight_dtype": "nvfp4"}
    where |= {"kv_dtype": "fp8", "tensor_parallel": 4, "drafter": "mtp", "draft_length": 3}
    contexts = np.array([16, 32, 64, 128]) * 1024
    asked = {"batch_size": 1, "context_length": contexts, "tokens_per_step": 2.43}
    p = predict(**where, engine="sglang", attention_backend="triton", **asked)
    gains = drafting / plain
    assert ((p.speedup > 1) == (gains > 1))[[0, 2, 3]].all()
    assert np.abs(np.log(p.speedup / gains)).mean() < 0.15
    assert np.abs(np.log(1 / p.forward_time / plain)).mean() < 0.1
    spread = predict(**where, engine="sglang", **asked)
    assert (spread.speedup > 1.5).all()
