"""Kinds of kernels that a model runs, their fits, and the usual dtypes of their inputs."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT, check_activations, kernel_dtype
from specmodel.core.cost.deployment import Deployment
from specmodel.core.layers.batch import SINGLE_GPU
from specmodel.core.layers.engines import engine_code
from specmodel.core.layers.group import Stored
from specmodel.core.layers.kinds import MAIN_KINDS
from specmodel.core.layers.run import Pass
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import FITTED_DTYPE, KernelFit, Kernels
from specmodel.core.models.architecture import Architecture


def kernels_of(model: Architecture) -> dict[str, tuple[str, str]]:
    """Return the kernel kinds of a model, each with the stored and arithmetic dtype of one use."""
    of_norms: tuple[str, str] = (FITTED_DTYPE, model.activation_dtype)
    found = {"elementwise": of_norms}
    if model.residuals:
        found[model.residuals.kernel_kind] = of_norms
    for part in model.parts:
        for kind, stored, arithmetic in _kernels_of_part(part):
            found.setdefault(kind, (stored, arithmetic))
    return found


def places_taken(kernels: Kernels, model: Architecture) -> list[tuple[str, str]]:
    """Return the kind and dtype of each fit that a model uses; [] on the data sheet."""
    dtypes = [run for part in model.parts for run in _kernels_of_part(part)]
    if model.residuals and model.residuals.kernel_kind in MAIN_KINDS:
        dtypes.append((model.residuals.kernel_kind, FITTED_DTYPE, FITTED_DTYPE))
    places = [kernels.place(*run) for run in dtypes]
    return list(dict.fromkeys(place for place in places if place))


def fits_taken(deployment: Deployment, model: Architecture) -> dict[str, KernelFit]:
    """Return the fits a model uses, by `Kernels.kind_of_errors`; {} on the data sheet."""
    kernels, found = deployment.kernels, dict[str, KernelFit]()
    for kind, dtypes in kernels_of(model).items():
        fit = kernels.fit(kind, *dtypes)
        if fit and kind in MAIN_KINDS:
            found.setdefault(kernels.kind_of_errors(kind), fit)
    return found


@lru_cache(maxsize=1024)
def _kernels_of_part(part: Stored) -> tuple[tuple[str, str, str], ...]:
    works = part.work(Pass(part.stream, SINGLE_GPU), 1).values()
    return tuple((work.kind, work.stored_dtype, work.dtype) for work in works if work.kernels)


def with_usual_activations(
    target: Architecture, hardware: HardwareProfile, stack: str | None, given: Mapping[str, str]
) -> Architecture:
    """Return a target with the activation dtype that kernels use for its weights.

    `stack` is the stack of the kernels, and `given` contains dtypes that the user named. A named
    activation dtype stays; an InputError refuses it if no kernel multiplies it with the weights.
    Otherwise, the dtype of the checkpoint stays unless the weights need another one.
    """
    if "activation_dtype" in given:
        for name in ("weight_dtype", "expert_dtype"):
            check_activations("activation_dtype", given["activation_dtype"], given.get(name, ""))
        return target
    usual = partial(_usual, own=target.activation_dtype, hardware=hardware, stack=stack)
    dtype: Any = usual(target.weight_dtype, is_given="weight_dtype" in given)
    target = replace(target, activation_dtype=dtype)
    if not target.is_moe or target.expert_dtype is None:
        return target
    is_given = not given.keys().isdisjoint(("weight_dtype", "expert_dtype"))
    inside: Any = usual(target.expert_dtype, is_given=is_given)
    is_own = inside != target.activation_dtype
    return replace(target, expert_activation_dtype=inside if is_own else None)


def with_usual_cache(
    target: Architecture, hardware: HardwareProfile, stack: str | None, given: Mapping[str, Any]
) -> Architecture:
    """Return a target with the cache dtype that its engine uses for sparse attention."""
    if "kv_dtype" in given or BYTES_PER_ELEMENT[target.kv_dtype] < 2:
        return target
    return replace(target, kv_dtype="fp8") if narrows_cache(target, hardware, stack) else target


def narrows_cache(target: Architecture, hardware: HardwareProfile, stack: str | None) -> bool:
    """Return whether an engine keeps the target's cache in 8 bits on a GPU by default."""
    least = engine_code(stack).sparse_cache_capability
    is_new = (hardware.compute_capability or 0.0) >= least
    return is_new and "sparse_attention" in kernels_of(target)


def _usual(
    weights: str, *, own: str, hardware: HardwareProfile, stack: str | None, is_given: bool
) -> str:
    """Return the usual dtype of the activations that are multiplied with weights on a GPU.

    Weights given as fp8 have fp8 activations if the GPU computes in fp8. If it computes in four
    bits, NVFP4 has NVFP4 activations, and mxfp4 has fp8 (mxfp8) activations (TensorRT-LLM; SGLang
    0.5.23, ``quantization/mxfp4.py``). vLLM 0.33 uses 16 bits for mxfp4 unless the model's `own`
    activations are narrow (``fused_moe/oracle/mxfp4.py``). On older GPUs, both have 16 bits. So do
    checkpoints of NVFP4 that state 16 bits for activations.
    """
    kernels, is_wide = kernel_dtype(weights), BYTES_PER_ELEMENT[own] >= 2
    if kernels == "fp8":
        return "fp8" if is_given and "fp8" in hardware.dtype else own
    if kernels not in ("fp4", "mxfp4") or (kernels == "fp4" and is_wide and not is_given):
        return own
    if not hardware.computes_in_fp4:
        return own if is_wide else "bf16"
    if kernels == "mxfp4":
        return own if is_wide and stack == "vllm" else "fp8"
    return "fp4"
