"""Device memory of a deployment: weights, KV cache and drafter against capacity."""

from dataclasses import dataclass

import numpy as np

from specmodel.base.units import BYTES_PER_ELEMENT, FloatArray, Numeric, check, format_si
from specmodel.cost.deployment import Deployment
from specmodel.records.architecture import Architecture
from specmodel.records.drafters import Drafter
from specmodel.records.layers.batch import Layout


@dataclass(frozen=True, eq=False, repr=False)
class MemoryUse:
    """Memory of the fullest GPU; activations and the engine's own buffers come on top.

    Parameters
    ----------
    weight_bytes, draft_weight_bytes
        Weights of the target and of the drafter [B].
    bytes_per_request
        KV cache and state of one sequence, the drafter's included [B].
    replicas
        Copies of the attention that the batch is spread over [-].
    capacity_bytes
        Memory of the GPU [B].
    """

    weight_bytes: float
    draft_weight_bytes: float
    bytes_per_request: FloatArray
    replicas: int
    capacity_bytes: float

    def total_bytes(self, batch_size: Numeric) -> FloatArray:
        """Return the memory that a batch needs [B]."""
        sequences = np.ceil(check("batch_size", batch_size, minimum=0) / self.replicas)
        return self.weight_bytes + self.draft_weight_bytes + sequences * self.bytes_per_request

    @property
    def max_batch_size(self) -> FloatArray:
        """Largest batch that fits, 0 if not one request does [request]."""
        free = self.capacity_bytes - self.weight_bytes - self.draft_weight_bytes
        return self.replicas * np.maximum(np.floor(free / self.bytes_per_request), 0.0)


def memory_use(
    deployment: Deployment, context_length: Numeric, verify_tokens: Numeric
) -> MemoryUse:
    """Return the memory of a deployment on its fullest GPU.

    Parameters
    ----------
    deployment
        What runs where; a drafter cut over fewer GPUs than the target fills those most.
    context_length
        KV entries of each sequence before the step, any shape [token].
    verify_tokens
        Tokens that a step adds at most [token].

    Returns
    -------
    MemoryUse
        Weights, KV cache per request and capacity.
    """
    entries = check("context_length", context_length, minimum=0) + check(
        "verify_tokens", verify_tokens, minimum=1
    )
    target, drafter = deployment.target, deployment.drafter
    layout, draft_layout = deployment.layout, deployment.draft_layout
    kept = target.sequence_bytes(entries, layout.tensor_parallel)
    for model in drafter.architectures:
        kept = kept + model.sequence_bytes(entries, draft_layout.tensor_parallel)
    return MemoryUse(
        target.weight_bytes(layout),
        _draft_weight_bytes(drafter, target, draft_layout),
        kept,
        layout.replicas,
        deployment.hardware.memory.capacity_bytes,
    )


def memory_warnings(
    deployment: Deployment, memory: MemoryUse, batch_size: FloatArray
) -> tuple[str, ...]:
    """Return a sentence with figures if some batch does not fit.

    Parameters
    ----------
    deployment
        What runs where.
    memory
        Its use of memory.
    batch_size
        Batch sizes asked for, broadcasting with `memory` [request].

    Returns
    -------
    tuple of str
        Nothing if all fit.
    """
    if (batch_size <= memory.max_batch_size).all():
        return ()
    needed = format_si(float(memory.total_bytes(batch_size).max()), "B")
    capacity = format_si(memory.capacity_bytes, "B")
    fits = int(np.min(memory.max_batch_size))
    if fits:
        largest = f"the largest batch that fits is {fits}"
    elif memory.weight_bytes + memory.draft_weight_bytes > memory.capacity_bytes:
        largest = "not even the weights fit"
    else:
        largest = "the weights fit, but not one request"
    return (
        f"batch size {int(batch_size.max())} needs {needed} on a GPU of {capacity} "
        f"({deployment.hardware.name}); {largest}",
    )


def _draft_weight_bytes(drafter: Drafter, target: Architecture, layout: Layout) -> float:
    size = sum(model.weight_bytes(layout) for model in drafter.architectures)
    for head in drafter.architectures if drafter.is_head else ():
        shared = head.embedding_parameters
        if head.vocabulary_size == target.vocabulary_size:
            shared = head.outer_parameters
        size -= shared * BYTES_PER_ELEMENT[head.outer_dtype] / layout.tensor_parallel
    return float(size)
