"""Device memory of a deployment: weights, KV cache and drafter against capacity."""

from dataclasses import dataclass

import numpy as np

from specmodel.architecture import Architecture
from specmodel.deployment import Deployment
from specmodel.drafters import Drafter
from specmodel.units import BYTES_PER_ELEMENT, FloatArray, Numeric, check


@dataclass(frozen=True, eq=False, repr=False)
class MemoryUse:
    """Memory of the fullest GPU; activations and the engine's own buffers come on top.

    Parameters
    ----------
    weight_bytes, draft_weight_bytes
        Weights of the target and of the drafter [B].
    kv_bytes_per_request
        KV cache of one sequence, the drafter's included [B].
    capacity_bytes
        Memory of the GPU [B].
    """

    weight_bytes: float
    draft_weight_bytes: float
    kv_bytes_per_request: FloatArray
    capacity_bytes: float

    def total_bytes(self, batch_size: Numeric) -> FloatArray:
        """Return the memory that a batch needs [B]."""
        B = check("batch_size", batch_size, minimum=0)
        return self.weight_bytes + self.draft_weight_bytes + B * self.kv_bytes_per_request

    @property
    def max_batch_size(self) -> FloatArray:
        """Largest batch that fits, 0 if not even the weights do [request]."""
        free = self.capacity_bytes - self.weight_bytes - self.draft_weight_bytes
        return np.maximum(np.floor(free / self.kv_bytes_per_request), 0.0)


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
    kv_bytes = kv_cache_bytes(target, entries, deployment.tensor_parallel)
    if drafter.architecture:
        kv_bytes = kv_bytes + kv_cache_bytes(drafter.architecture, entries, deployment.draft_degree)
    element = BYTES_PER_ELEMENT[target.weight_dtype]
    return MemoryUse(
        target.total_parameters * element / deployment.tensor_parallel,
        _draft_weight_bytes(drafter, target) / deployment.draft_degree,
        kv_bytes,
        deployment.hardware.memory.capacity_bytes,
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
    kv_size = 2 * a.kv_size / min(tensor_parallel, a.num_kv_heads)
    return np.asarray(tokens * kv_size * BYTES_PER_ELEMENT[a.kv_dtype])


def _draft_weight_bytes(drafter: Drafter, target: Architecture) -> float:
    head = drafter.architecture
    if head is None:
        return 0.0
    parameters = head.total_parameters
    if drafter.is_head:
        parameters -= head.embedding_parameters
        if head.vocabulary_size == target.vocabulary_size:
            parameters -= head.head_parameters
    return parameters * BYTES_PER_ELEMENT[head.weight_dtype]
