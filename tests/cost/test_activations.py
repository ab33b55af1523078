"""Dtypes of activations that nobody named: what kernels of the GPU multiply the weights with.

Sources: vLLM 0.33, ``fused_moe/oracle/mxfp4.py`` and ``nvfp4.py`` (Marlin keeps 16 bits before
Blackwell; gpt-oss has 16 bits on Blackwell too unless ``moe.activation`` is mxfp8, DeepSeek-V4
mxfp8 in any case); SGLang 0.5.23, ``quantization/mxfp4.py`` (mxfp8 on Blackwell, else 16 bits).
"""

import pytest
from printed import refused
from rows import each_listed, each_row, one_case, values_of

import specmodel
from specmodel import deploy
from specmodel.core.cost import resolve


def deployed(target, hardware, **given):
    where = {"target": target, "hardware": hardware, "tensor_parallel": 8, "engine": "ideal"}
    return deploy(**(where | given))[0]


def computed(deployment):
    """Return in which dtype the routed experts and the dense linear layers are computed."""
    found = {field: dtype for field, _, dtype in deployment.target.arithmetic_dtypes}
    gpu = deployment.hardware
    return tuple(gpu.compute_dtype(found[name]) for name in ("expert_dtype", "weight_dtype"))


@one_case("target hardware given experts dense", *values_of("engines.txt", "activations"))
def test_activations_are_what_kernels_take(target, hardware, given, experts, dense):
    assert computed(deployed(target, hardware, **given)) == (experts, dense)


@each_listed
def test_pairs_that_no_kernel_multiplies_are_refused(given):
    message = r"^activation_dtype: got '\w+'; expected one of .* kernel"
    refused(message, deployed, "qwen3-235b-a22b", "b200", **given)


@each_row(("hardware", "stack", "given", "dtype"), values_of("engines.txt", "narrowed caches"))
def test_sglang_narrows_caches_of_sparse_attention(hardware, stack, given, dtype):
    where = {"tensor_parallel": 8, "engine": stack} | given
    deployment, _ = resolve(where | {"target": "glm-5.2", "hardware": hardware})
    assert deployment.target.kv_dtype == dtype
    dense, _ = resolve(where | {"target": "deepseek-v3", "hardware": hardware})
    assert dense.target.kv_dtype == "bf16"


@each_listed
def test_a_benchmark_in_lockstep(hardware, gpus, alone, sixteen, prefill):
    """GLM-5.2 in blocks of fp8 by SGLang 0.5.13, five MTP drafts, TPOT and TTFT published [ms].

    The file ``glm-5.2-benchmarks.jsx`` of its documentation at 00081a0; 8,192 tokens for 1,024.
    """
    decoding = specmodel.predict(
        target="glm-5.2", hardware=hardware, drafter="mtp", engine="sglang",
        weight_dtype="fp8_block", tensor_parallel=gpus, draft_length=5, batch_size=[1, 16],
        tokens_per_step=5.96, prompt_length=8192, output_length=1024, context_length=8704,
        lockstep=True,
    )  # fmt: skip
    assert 1e3 * decoding.tpot == pytest.approx([alone, sixteen], rel=0.16)
    assert 1e3 * decoding.prefill_time.max() == pytest.approx(prefill, rel=0.15)
