"""Kernels of llama.cpp: limits of vector kernels, experts on the host, what a card takes."""

import numpy as np
import pytest
from printed import refused
from rows import each_listed

from specmodel import deploy, predict
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.cost.latency import step_times, target_pass
from specmodel.core.layers.batch import SequenceGroup
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.machines.llama_cpp import OFFLOADED, backend_of, llama_cpp_kernels


@each_listed
def test_vector_kernels_end_where_the_engine_has_them_end(gpu, kind, dtype, rows):
    kernels = llama_cpp_kernels(load_hardware(gpu))
    assert kernels.parameters(kind, dtype, "bf16").vector_rows == rows


@each_listed
def test_each_device_has_its_back_end(gpu, backend):
    assert backend_of(load_hardware(gpu)) == backend


def test_few_rows_take_the_rates_of_vector_kernels():
    k = KernelParameters(
        memory_efficiency=0.5,
        compute_efficiency=0.25,
        vector_rows=8.0,
        vector_memory_efficiency=1.0,
        vector_compute_efficiency=0.5,
        vector_rereads=1.0,
    )
    rows = np.array([4.0, 8.0, 9.0])
    assert k.streamed(1.0, 1.0, rows, np.array([4.0, 4.0, 4.0])) == pytest.approx([1, 2, 2])
    assert k.computed(1.0, 1.0, rows, 1.0) == pytest.approx([2, 2, 4])


def test_a_verify_pass_is_longer_by_a_jump_beyond_the_vector_kernels():
    where = {"target": "qwen3-8b", "hardware": "strix_halo", "weight_dtype": "q4_k_m"}
    deployment, _ = deploy(**where)
    group = SequenceGroup(batch_size=np.arange(1.0, 11.0), context_length=np.array(100.0))
    time = target_pass(deployment, group).total_time
    steps = np.diff(time) / time[:-1]
    assert deployment.engine.name == "llama.cpp"
    assert steps.argmax() == 7  # from 8 tokens to 9, where matrix kernels begin
    assert steps[8] < 0.05  # which take 10 as long as 9


def test_the_drafter_reads_the_verified_batch_again():
    where = {"target": "qwen3-32b", "hardware": "rtx_5090", "weight_dtype": "q4_k_m"}
    deployment, _ = deploy(**where, drafter="qwen3-0.6b")
    times = step_times(
        deployment, batch_size=2, draft_length=3, verify_tokens=4, context_length=100
    )
    counts = {part.passes.name: float(part.passes.count) for part in times.drafting}
    assert counts == {"draft pass that reads again": 1.0, "draft pass": 3.0}
    each = {part.passes.name: float(part.each.total_time) for part in times.drafting}
    drafting = 3 * each["draft pass"] + each["draft pass that reads again"]
    assert float(times.draft_time) == pytest.approx(drafting, rel=1e-12)


def on_host(layers, tokens):
    where = {"target": "qwen3-30b-a3b", "hardware": "rtx_3090", "weight_dtype": "q4_k_m"}
    deployment, _ = deploy(**where, host_expert_layers=layers)
    group = SequenceGroup(batch_size=np.array(float(tokens)), context_length=np.array(100.0))
    return target_pass(deployment, group)


def test_experts_on_the_host_are_read_at_its_bandwidth_until_they_are_copied():
    gpu = load_hardware("rtx_3090")
    time = on_host("all", 1)
    assert "routed_experts" not in time.components
    read = time.work().components["host_experts"].weight_bytes / gpu.usual_host_bytes_per_s
    assert float(time.components["host_experts"].total_time) > float(read)
    few, many = on_host("all", OFFLOADED - 1), on_host("all", OFFLOADED)
    copied = many.work().components["host_experts"].weight_bytes / gpu.link.peak_bytes_per_s
    assert float(many.components["host_experts"].total_time) > float(copied)
    assert float(many.components["host_experts"].total_time) != pytest.approx(
        float(few.components["host_experts"].total_time), rel=0.05
    )
    half = on_host(24, 1)
    total = sum(float(on_host(n, 1).total_time) for n in (0, "all"))
    assert 2 * float(half.total_time) == pytest.approx(total, rel=0.02)


def test_what_is_on_the_host_takes_no_memory_of_the_gpu():
    where = {"target": "qwen3.6-35b-a3b", "hardware": "1xrtx_3090", "weight_dtype": "q8_0"}
    assert not predict(**where, batch_size=1).fits.any()
    assert predict(**where, batch_size=1, host_expert_layers=30).fits.all()


TWO = {"target": "qwen3-32b", "weight_dtype": "q8_0", "batch_size": 2, "context_length": 4096}


def test_cards_that_split_layers_take_turns_and_share_what_they_hold():
    one, two = (predict(**TWO, hardware=f"{n}xrtx_3090") for n in (1, 2))
    assert two.deployment.layout.num_gpus == 2
    assert float(two.forward_time) == pytest.approx(float(one.forward_time), rel=1e-12)
    assert not one.fits.any()
    assert two.fits.all()
    free, each = two.evaluation.memory.free_bytes, two.evaluation.memory.bytes_per_request
    lacking = one.evaluation.memory.free_bytes
    assert float(free - lacking) == pytest.approx(
        0.9 * one.deployment.hardware.memory.capacity_bytes
    )
    assert float(two.max_batch_size) == float(free // each)


def test_rows_and_tensors_are_cut():
    layers, rows = (predict(**TWO, hardware="2xrtx_3090", split_mode=m) for m in ("layer", "row"))
    assert rows.deployment.tensor_parallel == 2
    assert rows.deployment.layer_split == 1
    assert 1.5 < float(layers.forward_time / rows.forward_time) < 2


@each_listed
def test_what_the_engine_does_not_do_is_refused(changes, message):
    where = {"target": "qwen3-30b-a3b", "hardware": "rtx_3090", "weight_dtype": "q4_k_m"}
    refused(message.replace("(", r"\("), deploy, **(where | changes))
