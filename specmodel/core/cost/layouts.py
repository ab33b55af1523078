"""Find the fewest GPUs with room for a deployment and some requests, as parallel degrees."""

import math
from typing import Any

from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import format_si
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.layers.batch import SINGLE_GPU

HELD = (32, 1024)
"""Requests for which a layout needs room after weights and drafter, and their tokens [token]."""
_VERIFIED = 4
"""Tokens of a step whose recurrent states are counted too [token]."""
_SIZES = (1, 2, 4, 8)
_COUNTS = (*_SIZES, *(8 * nodes for nodes in (2, 3, 4, 6, 8, 12, 16)))
"""Numbers of GPUs to try: in one node, then in several nodes of eight [-]."""

Degrees = dict[str, Any]


def smallest_layout(deployment: Deployment, held: tuple[int, int] = HELD) -> Degrees:
    """Return the degrees of the fewest GPUs with room for weights, drafter and requests.

    One, 2, 4 or 8 GPUs split all matrices. With more, each node of eight has a replica of all
    weights but the experts, which are spread over as many GPUs as possible. An engine that splits
    layers puts some layers on each GPU. `held` contains the number of requests and the tokens of
    each. If no layout has room, an InputError states how many GPUs would be enough.

    Examples
    --------
    >>> from specmodel import deploy
    >>> smallest_layout(deploy(target="mixtral-8x7b", hardware="h100_sxm")[0])
    {'tensor_parallel': 2}
    """
    requests, tokens = held
    memory = MemoryUse(deployment, tokens, _VERIFIED)
    weights = deployment.target.weight_bytes(SINGLE_GPU)
    for count in _COUNTS:
        degrees = _degrees(deployment, count)
        laid = None if weights > count * memory.capacity_bytes else _laid(deployment, degrees)
        if laid and replace(memory, deployment=laid).max_batch_size >= requests:
            return degrees
    raise _too_small(deployment, held)


def layout_of(deployment: Deployment, num_gpus: int) -> Degrees:
    """Return the parallel degrees of `num_gpus` GPUs; an InputError if the model forbids them.

    >>> from specmodel import deploy
    >>> layout_of(deploy(target="deepseek-v3", hardware="h100_sxm")[0], 16)
    {'tensor_parallel': 8, 'data_parallel': 2, 'expert_parallel': 16}
    """
    degrees = _degrees(deployment, num_gpus)
    replace(deployment, **(_ONE_GPU | degrees))  # raises an InputError if invalid
    return degrees


def layouts_of(deployment: Deployment) -> list[Degrees]:
    """Return the possible layouts of the GPUs of a deployment, with or without enough memory.

    Some GPUs of a node split the matrices; the others have replicas of all weights but the experts.
    Experts are split over all GPUs, or whole experts are spread over them.

    Examples
    --------
    >>> from specmodel import deploy
    >>> for degrees in layouts_of(deploy(target="mixtral-8x7b", hardware="h100_sxm",
    ...                                  tensor_parallel=2)[0]):
    ...     print(*degrees.values())
    2 1 1
    2 1 2
    1 2 1
    1 2 2
    """
    if deployment.engine.splits_layers:  # and no matrices
        return []
    count, found = deployment.layout.num_gpus, []
    groups = (1, count) if deployment.target.is_moe and count > 1 else (1,)
    for tensor in (size for size in reversed(_SIZES) if count % size == 0):
        for expert in groups:
            cut = {"tensor_parallel": tensor, "data_parallel": count // tensor}
            degrees = cut | {"expert_parallel": expert}
            found += [degrees] if _laid(deployment, degrees) else []
    return found


def holds(deployment: Deployment, tokens: int = HELD[1]) -> bool:
    """Return whether weights, drafter and a request of `tokens` tokens fit in memory [token]."""
    return bool(MemoryUse(deployment, tokens, _VERIFIED).max_batch_size >= 1)


def num_gpus(degrees: Degrees) -> int:
    """Return the number of GPUs of some parallel degrees; no degrees mean 1 [-]."""
    cut = degrees.get("tensor_parallel", 1) * degrees.get("layer_split", 1)
    return int(cut * (degrees.get("data_parallel") or 1))


_ONE_GPU: Degrees = {
    "tensor_parallel": 1, "data_parallel": None, "expert_parallel": 1, "layer_split": 1,
}  # fmt: skip


def _degrees(deployment: Deployment, num_gpus: int) -> Degrees:
    """Return the parallel degrees of `num_gpus` GPUs, {} for one."""
    if deployment.engine.splits_layers:
        return {"layer_split": num_gpus} if num_gpus > 1 else {}
    if num_gpus <= 8 or num_gpus % 8 or not deployment.target.is_moe:
        return {"tensor_parallel": num_gpus} if num_gpus > 1 else {}
    groups = math.gcd(num_gpus, deployment.target.num_experts)
    return {"tensor_parallel": 8, "data_parallel": num_gpus // 8, "expert_parallel": groups}


def _laid(deployment: Deployment, degrees: Degrees) -> Deployment | None:
    """Return the deployment with some degrees, None if the model or the links forbid them."""
    try:
        return replace(deployment, **(_ONE_GPU | degrees))
    except InputError:
        return None


def _too_small(deployment: Deployment, held: tuple[int, int]) -> InputError:
    """Return the error for a model and requests that fit on no number of GPUs.

    Its message contains the memory needed, the GPUs that have so much, and the most that can share
    the model.
    """
    requests, tokens = held
    memory = MemoryUse(replace(deployment, **_ONE_GPU), tokens, _VERIFIED)
    needed = float(memory.total_bytes(requests))
    gpu, usable = deployment.hardware, memory.capacity_bytes
    sizes = [count for count in _COUNTS if _laid(deployment, _degrees(deployment, count))]
    most = f" (at most {max(sizes)} can share the model)" if sizes else ""
    expected = (
        f"One {gpu.name} has {format_si(usable, 'B')} of usable memory. {deployment.target.name},"
        f" its drafter and {requests} requests of {tokens:,} tokens need {format_si(needed, 'B')}:"
        f" {math.ceil(needed / usable)} GPUs{most}."
    )
    return InputError("hardware", gpu.name, expected)
