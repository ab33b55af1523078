"""Triton's attention in vLLM: who runs it, and what one block of threads walks in a verify pass."""

import numpy as np
import pytest

from specmodel import load_engine, predict
from specmodel.base.errors import InputError
from specmodel.fit.measured.aliases import profile_of
from specmodel.layers.kinds import WALKED_BYTES_PER_S

GEMMA = {"target": "gemma-4-26b-a4b", "drafter": "ngram", "hardware": "a100_sxm_80gb"}


def times(**changes):
    point = {"batch_size": 1, "draft_length": 3, "context_length": 100_000, "acceptance": 0.7}
    return predict(**(GEMMA | point | changes)).evaluation.times


def core(passed):
    return float(passed.components["attention_core"].busy_time)


@pytest.mark.parametrize(("changes", "tokens"), [
    ({}, 8),
    ({"hardware": "rtx_pro_6000"}, 8),  # 12.0, for which there is no FlashAttention 4
    ({"target": "gemma-4-31b"}, 8),
    ({"hardware": "h100_sxm"}, None),
    ({"hardware": "b200"}, None),
    ({"target": "qwen3-30b-a3b"}, None),  # heads of 128
    ({"target": "deepseek-v4-flash", "tensor_parallel": 8}, None),  # entries of 512, no such heads
    ({"engine": "sglang"}, None),
])  # fmt: skip
def test_wide_heads_without_flash_attention_4_are_triton_s(changes, tokens):
    given = GEMMA | {"batch_size": 1, "draft_length": 1, "acceptance": 0.7} | changes
    assert predict(**given).deployment.split_tokens == tokens


def test_a_block_walks_all_keys_of_a_head_beyond_what_is_spread():
    """Five layers walk the context, 25 a window of 1,024; keys and values of 512 and 256, 16 bits.

    Eight tokens are spread over sixteen blocks, nine over none.
    """
    context, window = 100_000, 1024
    spread, walked = (times(draft_length=length).speculating for length in (7, 8))
    full, windowed = 5 * (context + 9) * 2 * 512 * 2, 25 * (window + 8) * 2 * 256 * 2
    seconds = (full + windowed) / WALKED_BYTES_PER_S
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


def test_explanations_still_sum():
    found = times(draft_length=8)
    growth = sum(found.growth_by_cause().values())
    assert growth == pytest.approx(found.step_time - found.forward_time, rel=1e-9)
    assert found.growth_by_cause()["KV"] > 0.5 * growth


@pytest.mark.parametrize(("version", "tokens"), [
    ("0.28", 1), ("0.14 (main 2026-01)", 1), ("0.33", None), ("0.33.1", None), ("0.34", None),
])  # fmt: skip
def test_the_version_of_a_measurement_tells(version, tokens):
    _, changes = profile_of("vllm", version)
    assert changes.get("engine.split_tokens") == tokens


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", np.inf])
def test_what_is_no_number_of_tokens_is_refused(value):
    with pytest.raises(InputError, match="split_tokens"):
        load_engine("vllm").with_changes("engine", {"split_tokens": value})
