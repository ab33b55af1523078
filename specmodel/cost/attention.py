"""Work of attention in one pass: projections, and the core over the KV cache.

The KV cache is read once per sequence and pass, whatever the number of tokens verified.
"""

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.cost import blocks
from specmodel.cost.work import Tokens, Work, activation_bytes, arithmetic_dtype, residual_bytes
from specmodel.records.architecture import Architecture


def kv_elements(architecture: Architecture, tensor_parallel: int) -> float:
    """Return the elements that one token has in the KV cache of a layer on each GPU.

    Parameters
    ----------
    architecture
        The model.
    tensor_parallel
        GPUs that the key-value heads are spread over; a latent is on all of them [-].

    Returns
    -------
    float
        Keys and values, or the latent and the rotary key [-].
    """
    if architecture.latent:
        return float(architecture.latent.cache_size)
    return 2 * architecture.kv_size / min(tensor_parallel, architecture.num_kv_heads)


def attention_weights(architecture: Architecture, tensor_parallel: int) -> float:
    """Return the weights of the attention of one layer on each GPU.

    Parameters
    ----------
    architecture
        The model.
    tensor_parallel
        GPUs that the heads are spread over; what is not of a head is on all of them [-].

    Returns
    -------
    float
        Weights [-].
    """
    by_head, by_kv_head, replicated = architecture.attention_matrices
    kv_ranks = min(tensor_parallel, architecture.num_kv_heads)
    return by_head / tensor_parallel + by_kv_head / kv_ranks + replicated


def attention_projections(a: Architecture, t: FloatArray, n: int) -> Work:
    """Multiply by query, key, value and output matrices; a latent's are absorbed, at equal FLOP."""
    weights = a.num_layers * attention_weights(a, n)
    if a.latent:
        m = a.latent
        head = m.qk_nope_head_dim + m.qk_rope_head_dim + 2 * m.kv_lora_rank + m.v_head_dim
        inner = m.q_lora_rank + m.cache_size + a.num_heads * head / n
    else:
        inner = 2 * a.query_size / n + kv_elements(a, n)
    return blocks.linear(
        t,
        weights=weights,
        values=a.num_layers * (2 * a.hidden_size + inner),
        value_bytes=activation_bytes(a),
        kernels=a.num_layers * (8 if a.latent else 3),
        dtype=arithmetic_dtype(a, a.weight_dtype),
        stored_dtype=a.weight_dtype,
    )


def attention_core(a: Architecture, tokens: Tokens, n: int) -> Work:
    """Scores and weighted values over the KV cache; windowed layers see only their window."""
    windowed = a.num_sliding_layers
    pairs = entries = np.zeros(())
    for layers, window in ((a.num_layers - windowed, np.inf), (windowed, a.sliding_window)):
        if layers and window is not None:
            new_pairs, new_entries = _attended(tokens, window)
            pairs, entries = pairs + layers * new_pairs, entries + layers * new_entries
    sizes = (a.latent.cache_size, a.latent.kv_lora_rank) if a.latent else (a.head_dim, a.head_dim)
    return blocks.attention(
        batch_size=tokens.batch_size,
        num_tokens=tokens.total,
        pairs=pairs,
        entries=entries,
        num_heads=a.num_heads / n,
        num_groups=1 if a.latent else a.num_kv_heads / min(n, a.num_kv_heads),
        sizes=sizes,
        kv_elements=kv_elements(a, n),
        layers=a.num_layers,
        residual_bytes=residual_bytes(a),
        dtype=arithmetic_dtype(a, a.kv_dtype),
        kv_dtype=a.kv_dtype,
    )


def _attended(tokens: Tokens, window: float) -> tuple[FloatArray, FloatArray]:
    """Return query-key pairs of a mean sequence in a layer, and the distinct keys it reads."""
    pairs, entries = _attended_by(tokens.per_sequence, tokens.context_length, window)
    if tokens.all_speculate:
        return pairs, entries
    plain_pairs, plain_entries = _attended_by(np.ones(()), tokens.context_length, window)
    return tokens.mix(pairs, plain_pairs), tokens.mix(entries, plain_entries)


def _attended_by(
    q: FloatArray, context_length: FloatArray, window: float
) -> tuple[FloatArray, FloatArray]:
    """Return query-key pairs of q causal queries, and the distinct keys that they read."""
    if np.isinf(window):
        return q * (context_length + (q + 1) / 2), context_length + q
    growing = np.clip(window - context_length, 0, q)
    pairs = growing * (context_length + (growing + 1) / 2) + (q - growing) * window
    return pairs, np.minimum(context_length + q, window + q - 1)
