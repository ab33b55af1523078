"""Experts of two matrices, which no fit has seen: Nemotron's, also behind a narrower width."""

import numpy as np
import pytest
from rows import slow

from published import datasets
from published.roles import cold_rows, fastest_kernels, stored_bytes
from specmodel import load_hardware
from specmodel.calibrate.fit import predicted_time
from specmodel.core.machines import choose_kernels

GPUS = ("h100_sxm", "b200", "b300", "gb200", "rtx_pro_6000")
MOST_TOKENS = 4096


def timed(hardware, stack):
    """Timings of balanced experts of two matrices that were read from memory."""
    device = load_hardware(hardware)
    raw = datasets.read_timings("moe", hardware, stack, device.fitted[stack].version)
    usable = ~raw["is_gated"] & (raw["expert_parallel"] == 1) & raw["active_experts"].notna()
    usable &= (raw["num_tokens"] <= MOST_TOKENS) & (raw["distribution"] == "balanced")
    rows = fastest_kernels(raw[usable]).assign(num_matrices=2)
    elements = rows["active_experts"] * 2 * rows["hidden_size"] * rows["expert_size"]
    is_cold = cold_rows(stored_bytes(elements, rows["weight_dtype"]), device)
    return rows[is_cold].reset_index(drop=True)


def error(rows, hardware, stack):
    """Median error of the fit of experts of three matrices."""
    device = load_hardware(hardware)
    (dtypes,) = set(zip(rows["weight_dtype"], rows["activation_dtype"], strict=True))
    parameters = choose_kernels(device, stack).parameters("experts", *dtypes)
    times = predicted_time("experts", rows.reset_index(drop=True), device, parameters)
    return float(np.median(np.abs(times / rows["latency"].to_numpy() - 1)))


@pytest.mark.dataset
@pytest.mark.parametrize("hardware", ["h200_sxm", *slow(*GPUS)])
def test_a_fit_of_three_matrices_holds_for_two(hardware):
    """TensorRT-LLM's kernels in 16 and 8 bits; latents of 2,048 among the widths."""
    rows = timed(hardware, "trtllm")
    for dtype in ("bf16", "fp8"):
        own = rows[rows["weight_dtype"] == dtype]
        assert {2048, 8192} <= set(own["hidden_size"])
        assert len(own) > 200
        assert error(own, hardware, "trtllm") <= 0.07
        for _, part in own.groupby(["hidden_size", "num_experts"]):
            assert error(part, hardware, "trtllm") <= 0.10


@pytest.mark.dataset
@pytest.mark.parametrize("hardware", ["b200", *slow("b300", "gb200")])
def test_so_does_that_of_other_engines_on_blackwell(hardware):
    for stack in ("vllm", "sglang"):
        rows = timed(hardware, stack)
        assert error(rows[rows["weight_dtype"] == "bf16"], hardware, stack) <= 0.10
