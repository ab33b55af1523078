"""A GPU with more of everything is not slower, beyond what the fits of both are wrong by."""

import itertools

import numpy as np
import pytest
from rows import each_row, values_of

import specmodel
from specmodel import list_hardware, load_hardware

SIZES = (1, 16, 128)
MODELS = values_of("cases/prediction.txt", "models on every gpu")
GPUS = {name: load_hardware(name) for name in list_hardware()}
GPUS = {n: g for n, g in GPUS.items() if g.fitted and not any(s.lent_by for s in g.fitted.values())}
STACKS = sorted({stack for gpu in GPUS.values() for stack in gpu.fitted})
CASES = [
    (stack, target, degree, dtype)
    for stack in STACKS
    for target, degree, dtypes in MODELS
    for dtype in dtypes
    if stack != "torch" or dtype == "bf16"  # of others it has an engine's, another on each GPU
]

MESSAGE_ERROR = 0.15
"""Mean error of all-reduces on sizes left out, of the worst stack but one (``links.py``) [-]."""


def has_more(gpu, other):
    """Whether a GPU has more bandwidth, and no less arithmetic in any dtype that both have."""
    shared = gpu.dtype.keys() & other.dtype.keys()
    rates = [[each.dtype[name].peak_flops_per_s for name in shared] for each in (gpu, other)]
    is_wider = gpu.memory.peak_bytes_per_s > other.memory.peak_bytes_per_s
    return is_wider and all(own >= 0.999 * rate for own, rate in zip(*rates, strict=True))


def timed(hardware, stack, target, degree, dtype):
    """Times of a pass by batch size [s], and the mean errors of the fits in it, by time [-]."""
    options = {"weight_dtype": dtype} if dtype else {}
    plain = specmodel.decode(
        target=target, hardware=hardware, stack=stack, tensor_parallel=degree, engine="ideal",
        batch_size=SIZES, context_length=1024, **options,
    )  # fmt: skip
    kernels, forward = plain.deployment.kernels, plain.times.forward
    works, error = forward.work().components, np.zeros(len(SIZES))
    for name, time in forward.components.items():
        work = works[name]
        fit = kernels.fit(work.kind, work.stored_dtype, work.dtype)
        error += (fit.mean_error if fit else MESSAGE_ERROR) * time.total_time
    return plain.tpot, error / plain.tpot


@pytest.mark.slow
@each_row(("stack", "target", "degree", "dtype"), CASES)
def test_more_bandwidth_and_arithmetic_is_not_slower(stack, target, degree, dtype):
    names = [name for name, gpu in GPUS.items() if stack in gpu.fitted]
    found = {name: timed(name, stack, target, degree, dtype) for name in names}
    for better, worse in itertools.permutations(names, 2):
        if has_more(GPUS[better], GPUS[worse]):
            (fast, own), (slow, others) = found[better], found[worse]
            allowed = (1 + own) * (1 + others)
            for place, size in enumerate(SIZES):
                assert fast[place] < allowed[place] * slow[place], (better, worse, size)


def test_experts_of_a_gpu_are_walked_whether_loaded_or_not():
    """TensorRT-LLM's in blocks of fp8 on Hopper: 62 us at one token of Qwen3-30B, of which reading
    takes 8; 27 us with 8 or 16 experts and 176 with 512 (published on H200, slices of any width).
    """
    plain = specmodel.decode(
        target="qwen3-30b-a3b", hardware="h200_sxm", stack="trtllm", engine="ideal",
        weight_dtype="fp8_block", batch_size=1, context_length=1024,
    )  # fmt: skip
    a_layer = plain.times.forward.components["routed_experts"].total_time / 48
    assert a_layer == pytest.approx(62.1e-6, rel=0.25)
