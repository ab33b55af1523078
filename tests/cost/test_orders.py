"""Orders that look wrong and are right, as kernels were timed and engines read; and an ideal's."""

import numpy as np
from msgspec.structs import replace
from random_points import random_names, random_points
from rows import listed

from specmodel import InputError, deploy, list_architectures, load_engine, load_hardware
from specmodel.core.cost import component_time, resolve
from specmodel.core.cost.latency import target_pass
from specmodel.core.layers import Work, sequence_group
from specmodel.core.machines import choose_kernels
from specmodel.core.prediction import predict_deployed


def target_time(deployment, batch_size, context_length, tokens=1.0):
    point = {"context_length": context_length, "tokens_per_sequence": tokens}
    return target_pass(deployment, sequence_group(batch_size=batch_size, **point))


# 8-bit weights at one request


@listed
def test_small_products_of_one_row_are_slower_in_8_bits(width, depth, bf16, fp8):
    """On a B200 with SGLang 0.5.14 [us], 8 bits with quantising: 323 of the 483 products timed.

    So are whole steps of small models: DeepSeek-V2-Lite takes 8.4 ms for 7.5 on an H100
    (sglang#11045), Qwen3-4B 12.5 for 10.2 on an RTX 4090 (vllm#48035).
    """
    gpu, predicted = load_hardware("b200"), []
    kernels = choose_kernels(gpu, "sglang")
    for dtype, size in (("bf16", 2), ("fp8", 1)):
        product = Work(
            weight_bytes=width * depth * size, flop=2 * width * depth, kernels=1, rows=1,
            depth=depth, width=width, kind="gemm", dtype=dtype, stored_dtype=dtype,
        )  # fmt: skip
        parameters = kernels.parameters("gemm", dtype, dtype)
        predicted.append(float(component_time(product, gpu, parameters).total_time))
    assert (predicted[1] > predicted[0]) == (fp8 > bf16)


def test_8_bits_cost_one_request_nothing_but_launches():
    """What quantising adds is by kernel; reading half as much is never slower."""
    rng, seen = np.random.default_rng(10), []
    drawn = {"target": sorted(list_architectures()), "tensor_parallel": (1, 2, 4, 8)}
    drawn |= {"hardware": ("h100_sxm", "h200_sxm", "b200", "gb200")}
    drawn |= {"engine": ("sglang", "vllm", "tensorrt-llm")}
    while len(seen) < 30:
        names = {name: own[rng.integers(len(own))] for name, own in drawn.items()}
        try:
            found = [deploy(**names, weight_dtype=w, kv_dtype="bf16")[0] for w in ("bf16", "fp8")]
        except InputError:
            continue
        wide, narrow = (target_time(deployment, 1, 1024) for deployment in found)
        launched = [sum(c.launch_time for c in time.components.values()) for time in (wide, narrow)]
        assert narrow.gpu_time - launched[1] <= (wide.gpu_time - launched[0]) * (1 + 1e-9), names
        seen.append(bool(narrow.gpu_time > wide.gpu_time))
    assert any(seen)
    assert not all(seen)


# The ideal engine


def test_no_engine_is_faster_than_the_ideal_one_with_its_kernels_and_messages():
    rng, compared = np.random.default_rng(11), 0
    while compared < 40:
        try:
            real = resolve({"engine": "vllm"} | random_names(rng))[0]
            ideal = replace(real, engine=load_engine("ideal"))
            points = random_points(rng)
            times = [predict_deployed(d, {}, **points) for d in (ideal, real)]
        except InputError:
            continue
        if ideal.code.exchange != real.code.exchange or ideal.states != real.states:
            continue
        compared += 1
        for name in ("forward_time", "verify_time", "step_time"):
            least, most = (time.values[name] for time in times)
            assert (least <= most * (1 + 1e-9)).all(), (real.engine.name, real.target.name, name)


# A longer verify pass


@listed
def test_a_longer_verify_pass_is_shorter_only_where_an_indexer_shares_keys(target, hardware, falls):
    """On Hopper DeepGEMM takes 1, 2 or 4 tokens of a sequence to its index keys, and vLLM makes
    sequences of others' tokens, each of which reads all keys (`native_next_n_supported`)."""
    rng = np.random.default_rng(12)
    deployment, _ = deploy(target=target, hardware=hardware, engine="vllm", tensor_parallel=8)
    point = int(2 ** rng.uniform(6, 9.5)), int(2 ** rng.uniform(14, 17))
    times = [target_time(deployment, *point, tokens) for tokens in range(1, 10)]
    for name in times[0].components:
        took = np.array([float(time.components[name].own_time) for time in times])
        shorter = (np.flatnonzero(np.diff(took) < -1e-12 * took[:-1]) + 2).tolist()
        assert shorter == (falls if name == "indexer" else []), name
