"""Readers of the published tables: the peculiarities of the tables, on the installed package."""

import numpy as np
import pandas as pd
import pytest
from printed import refused
from rows import cases, each_listed, slow

from published import datasets, rivals, tables as published

CALIBRATED = list(published.STACKS)
FEW = [stack for stack in CALIBRATED if stack[0] in ("a100_sxm_80gb", "h200_sxm")]
LONG = slow(*(stack for stack in CALIBRATED if stack not in FEW))


pytestmark = [pytest.mark.dataset]


@cases("hardware framework version", *FEW, *LONG)
def test_skewed_tokens_reach_as_many_experts_as_their_power_law(hardware, framework, version):
    table = datasets.read_timings("moe", hardware, framework, version)
    is_skewed = table.distribution.str.startswith("power_law_")
    is_alone = table.expert_parallel == 1
    skewed = table[is_skewed & is_alone]
    assert len(skewed) > 0
    dealt = np.minimum(skewed.num_experts, skewed.num_tokens * skewed.experts_per_token)
    assert ((skewed.active_experts >= 1) & (skewed.active_experts <= dealt)).all()
    assert (skewed.active_experts < dealt).any()
    names = ["num_tokens", "num_experts", "experts_per_token", "distribution", "active_experts"]
    for tokens, count, k, distribution, active in (
        skewed[names].drop_duplicates().itertuples(index=False, name=None)
    ):
        exponent = float(distribution.removeprefix("power_law_"))
        assert active == datasets.power_law_active_experts(tokens, count, k, exponent)
    known = is_alone & (is_skewed | (table.distribution == "balanced"))
    assert (table.active_experts.notna() == known).all()


def test_repeats_become_their_median_in_seconds():
    """A key of the raw table repeats; its median is computed by hand."""
    folder = datasets._data_folder() / "h200_sxm/moe/vllm/0.19.0/moe_perf.parquet"
    raw = pd.read_parquet(folder)
    key = [name for name in raw.columns if name != "latency"]
    first = raw[raw.duplicated(key)].iloc[0]
    same = raw[(raw[key] == first[key]).all(axis=1)]
    assert len(same) > 1
    table = datasets.read_timings("moe", "h200_sxm", "vllm", "0.19.0")
    named = {
        "num_tokens": first.num_tokens, "hidden_size": first.hidden_size,
        "expert_size": first.inter_size / first.moe_tp_size, "tensor_parallel": first.moe_tp_size,
        "expert_parallel": first.moe_ep_size, "num_experts": first.num_experts,
        "experts_per_token": first.topk, "distribution": first.distribution,
        "quantization": first.moe_dtype, "kernel_source": first.kernel_source,
    }  # fmt: skip
    found = table[(table[list(named)] == pd.Series(named)).all(axis=1)]
    assert found.latency.item() == pytest.approx(np.median(same.latency) * 1e-3, rel=1e-12)


def test_tables_that_another_engine_beats_by_far_are_not_taken():
    slow = rivals.slow_quantizations
    assert slow("moe", "h200_sxm", "vllm", "0.24.0") == {"fp8"}
    assert slow("gemm", "h200_sxm", "vllm", "0.24.0") == {"fp8_block"}
    for gpu in ("h100_sxm", "h200_sxm"):  # whose Triton kernels are the same
        assert slow("moe", gpu, "sglang", "0.5.14") == {"w4a16_mxfp4"}
    assert slow("gemm", "b200", "trtllm", "1.3.0rc20") == {"nvfp4"}
    assert not slow("moe", "h200_sxm", "trtllm", "1.3.0rc20")
    assert not slow("moe", "h200_sxm", "vllm", "0.19.0")  # an older one is compared with nothing


def test_weights_that_a_cache_holds_are_skipped():
    """Two tokens of a small MoE read at most 75 MB, which fit in the 96 MB cache of an L40S."""
    table = published.published_measurements("l40s", "vllm", "0.24.0")
    experts = table[(table.component == "experts") & (table.weight_dtype == "bf16")]
    read = 3.0 * 2 * experts.active_experts * experts.hidden_size * experts.expert_size
    assert set(experts.role[read < 96e6]) == {"skip"}
    assert "skip" not in set(experts.role[read > 2e8])


@each_listed
def test_unknown_tables_are_refused(arguments, argument):
    refused(rf"^{argument}: got", datasets.read_timings, "moe", *arguments)


def test_a_stack_that_is_not_calibrated_is_refused(monkeypatch):
    monkeypatch.setattr(datasets, "read_timings", lambda *_names: pd.DataFrame())
    told = "h200_sxm", "new", "1.0"
    refused("^stack: got 'new'; expected a stack .*vllm", published.published_measurements, *told)
