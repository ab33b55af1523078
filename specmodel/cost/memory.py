"""Device memory of a deployment: weights, KV cache and drafter against capacity."""

from dataclasses import dataclass

import numpy as np

from specmodel.base.units import BYTES_PER_ELEMENT, FloatArray, Numeric, check, format_si
from specmodel.cost.attention import attention_weights, kv_elements
from specmodel.cost.deployment import Deployment
from specmodel.cost.parallel import Layout
from specmodel.cost.work import residual_bytes
from specmodel.records.architecture import Architecture
from specmodel.records.drafters import Drafter


@dataclass(frozen=True, eq=False, repr=False)
class MemoryUse:
    """Memory of the fullest GPU; activations and the engine's own buffers come on top.

    Parameters
    ----------
    weight_bytes, draft_weight_bytes
        Weights of the target and of the drafter [B].
    kv_bytes_per_request
        KV cache of one sequence, the drafter's included [B].
    replicas
        Copies of the attention that the batch is spread over [-].
    capacity_bytes
        Memory of the GPU [B].
    """

    weight_bytes: float
    draft_weight_bytes: float
    kv_bytes_per_request: FloatArray
    replicas: int
    capacity_bytes: float

    def total_bytes(self, batch_size: Numeric) -> FloatArray:
        """Return the memory that a batch needs [B]."""
        sequences = np.ceil(check("batch_size", batch_size, minimum=0) / self.replicas)
        return self.weight_bytes + self.draft_weight_bytes + sequences * self.kv_bytes_per_request

    @property
    def max_batch_size(self) -> FloatArray:
        """Largest batch that fits, 0 if not one request does [request]."""
        free = self.capacity_bytes - self.weight_bytes - self.draft_weight_bytes
        return self.replicas * np.maximum(np.floor(free / self.kv_bytes_per_request), 0.0)


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
    kv_bytes = kv_cache_bytes(target, entries, layout.tensor_parallel)
    if drafter.architecture:
        kept = kv_cache_bytes(drafter.architecture, entries, draft_layout.tensor_parallel)
        kv_bytes = kv_bytes + kept
    return MemoryUse(
        weight_bytes(target, layout),
        _draft_weight_bytes(drafter, target, draft_layout),
        kv_bytes,
        layout.replicas,
        deployment.hardware.memory.capacity_bytes,
    )


def weight_bytes(architecture: Architecture, layout: Layout) -> float:
    """Return the weights that each GPU holds.

    Parameters
    ----------
    architecture
        The model.
    layout
        How it is spread over GPUs.

    Returns
    -------
    float
        Bytes of all groups, each in its dtype [B].
    """
    a, n = architecture, layout.tensor_parallel
    weight, expert, outer = (
        BYTES_PER_ELEMENT[dtype]
        for dtype in (a.weight_dtype, a.expert_dtype or a.weight_dtype, a.outer_dtype)
    )
    routed = a.num_moe_layers * a.num_experts * a.ffn_parameters(a.expert_size)
    cut = (
        a.num_moe_layers * a.shared_parameters
        + a.num_dense_layers * a.ffn_parameters(a.dense_ffn_size)
        + a.input_projection_size * a.hidden_size
    )
    return (
        a.num_layers * attention_weights(a, n) * weight
        + cut * weight / n
        + routed * expert / max(layout.expert_parallel, n)
        + a.num_moe_layers * a.router_parameters * outer
        + a.outer_parameters * outer / n
        + (2 * a.num_layers + 1) * a.hidden_size * residual_bytes(a)
    )


def kv_cache_bytes(
    architecture: Architecture, entries: Numeric, tensor_parallel: int = 1
) -> FloatArray:
    """Return the KV cache of one sequence on each GPU; windowed layers keep their window.

    Parameters
    ----------
    architecture
        The model.
    entries
        Tokens in the cache, any shape [token].
    tensor_parallel
        GPUs that the heads are spread over [-].

    Returns
    -------
    FloatArray
        Bytes of keys and values over all layers [B].
    """
    a = architecture
    kept = check("entries", entries, minimum=0)
    windowed = np.minimum(kept, a.sliding_window or np.inf)
    tokens = (a.num_layers - a.num_sliding_layers) * kept + a.num_sliding_layers * windowed
    elements = kv_elements(a, tensor_parallel)
    return np.asarray(tokens * elements * BYTES_PER_ELEMENT[a.kv_dtype])


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
    head = drafter.architecture
    if head is None:
        return 0.0
    size = weight_bytes(head, layout)
    if drafter.is_head:
        shared = head.embedding_parameters
        if head.vocabulary_size == target.vocabulary_size:
            shared = head.outer_parameters
        size -= shared * BYTES_PER_ELEMENT[head.outer_dtype] / (layout.tensor_parallel)
    return size
