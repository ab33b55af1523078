"""What attention does with keys and values once they are there: of decoding, and of prompts.

A sequence with a few tokens is decoded, by kernels that stream its cache; one with many is a
prompt, by kernels that compute whole blocks of queries and keys. In between, both do a share.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from specmodel.algebra.roofline import Value
from specmodel.base.units import FloatArray
from specmodel.layers import blocks
from specmodel.layers.batch import NO_SEQUENCE, Batch, Pass, SequenceGroup
from specmodel.layers.work import Kind, Work

BLOCK = 128
"""Queries, and keys, that a kernel for prompts computes together [token]."""


def prompt_arithmetic(kv_dtype: str) -> str:
    """Return the dtype whose peak kernels for prompts are measured by.

    Parameters
    ----------
    kv_dtype
        Dtype of the KV cache.

    Returns
    -------
    str
        fp8 where the cache holds that, which kernels of Hopper and later compute in, or are less
        efficient for not doing so; else bf16.
    """
    return "fp8" if kv_dtype == "fp8" else "bf16"


def prompt_attention(  # noqa: PLR0913 - all keyword-only
    *,
    batch_size: Value,
    num_tokens: Value,
    pairs: Value,
    entries: Value,
    num_heads: Value,
    sizes: tuple[Value, Value],
    kv_elements: Value,
    layers: int,
    residual_bytes: float,
    kv_dtype: str,
    kind: Kind = "prompt_attention",
    is_written: bool = True,
) -> Work:
    """Return the work of attention of prompts.

    Parameters
    ----------
    batch_size, num_tokens
        Sequences and their query tokens in all [request] [token].
    pairs, entries
        Query-key pairs of a sequence, half of a square where they are causal, and KV entries it
        reads, over all layers [-].
    num_heads
        Query heads on this GPU [-].
    sizes
        Of a key and of a value [-].
    kv_elements
        Of one entry [-].
    layers
        Layers [-].
    residual_bytes
        Size of an activation between layers [B].
    kv_dtype
        Of the cache.
    kind
        Kernels that do it.
    is_written
        Whether the tokens' own entries are written, which those of an earlier layer are not.

    Returns
    -------
    Work
        On one GPU. Its rows are the blocks of queries of a layer, which processors of the GPU take
        one each: where there are fewer than processors, it takes as long as a whole round of them.
        Its groups are blocks of query-key pairs, whose exponentials take a time of their own,
        whatever the size of a head. Beside queries and results, keys and values of its own tokens
        are activations, which are brought into the form of the cache.
    """
    work = blocks.attention(
        batch_size=batch_size,
        num_tokens=num_tokens,
        pairs=pairs,
        entries=entries,
        num_heads=num_heads,
        num_groups=num_heads,
        sizes=sizes,
        kv_elements=kv_elements,
        layers=layers,
        residual_bytes=residual_bytes,
        dtype=prompt_arithmetic(kv_dtype),
        kv_dtype=kv_dtype,
        kind=kind,
        is_written=is_written,
    )
    made = num_tokens * (layers * kv_elements * residual_bytes) if is_written else 0.0
    return replace(
        work,
        activation_bytes=work.activation_bytes + made,
        rows=num_tokens * (num_heads / BLOCK),
        groups=batch_size * pairs * (num_heads / BLOCK**2),
    )


def core(
    run: Pass, layers: int, window: int | None, batch: Batch | None = None, **heads: Any
) -> Work:
    """Return the work of scores and weighted values over the KV cache, or a window of it.

    Parameters
    ----------
    run
        The pass.
    layers
        Layers [-].
    window
        Last entries that a query sees; all of them if None [token].
    batch
        Sequences of the pass; all of them if None.
    heads
        Arguments of `blocks.attention` that say what a GPU has of one layer.

    Returns
    -------
    Work
        Of kernels for decoding.
    """
    batch = batch or run.replica
    work = blocks.attention(
        **heads,
        **_carried(run, layers, window, batch),
        batch_size=batch.num_sequences,
    )
    return work if batch.is_all else replace(work, kernels=layers * batch.share)


def prompt_core(run: Pass, layers: int, window: int | None, batch: Batch, **heads: Any) -> Work:
    """Return the work of prompts, whose kernels compute whole blocks of queries and keys.

    Parameters
    ----------
    run
        The pass.
    layers
        Layers [-].
    window
        Last entries that a query sees; all of them if None [token].
    batch
        Prompts of the pass.
    heads
        Arguments of `prompt_attention` that say what a GPU has of one layer.

    Returns
    -------
    Work
        Of kernels for prompts.
    """
    work = prompt_attention(
        **heads,
        **_carried(run, layers, window, batch),
        batch_size=batch.num_sequences,
    )
    if batch.is_all:
        return work
    rows = work.rows / np.maximum(batch.share, NO_SEQUENCE)
    return replace(work, kernels=layers * batch.share, rows=rows)


def _carried(run: Pass, layers: int, window: int | None, batch: Batch) -> dict[str, Any]:
    """Return what the core of some sequences is given of the pass."""
    return {
        "num_tokens": batch.num_tokens,
        "pairs": layers * batch.mean(lambda group: query_key_pairs(group, window)),
        "entries": layers * batch.mean(lambda group: distinct_entries(group, window)),
        "layers": layers,
        "residual_bytes": run.stream.residual_bytes,
        "kv_dtype": run.stream.kv_dtype,
    }


def causal_pairs(query_tokens: FloatArray, context: FloatArray) -> FloatArray:
    """Return query-key pairs of a sequence whose queries see its context and those before them."""
    return query_tokens * (context + (query_tokens + 1) / 2)


def with_keys_and_values(
    work: Work, entries: Value, head_elements: Value, value_bytes: float
) -> Work:
    """Return attention to keys and values that were made of latents: written once, read once.

    Parameters
    ----------
    work
        The attention.
    entries
        Latents they are made of, of all sequences [-].
    head_elements
        Keys and values of one, of all heads and layers [-].
    value_bytes
        Size of a key or value [B].

    Returns
    -------
    Work
        With these activations.
    """
    made = entries * (head_elements * (2 * value_bytes))
    return replace(work, activation_bytes=work.activation_bytes + made)


def query_key_pairs(group: SequenceGroup, window: int | None) -> FloatArray:
    """Return query-key pairs of a mean sequence: causal queries, each seeing its window."""
    context = group.context_length
    if not group.is_causal:  # queries of a block see all that any of them does
        reach = np.inf if window is None else float(window)
        return group.mean(lambda q: q * np.minimum(context + q, reach))
    if window is None:
        return group.mean(lambda q: causal_pairs(q, context))

    def of(q: FloatArray) -> FloatArray:
        growing = np.clip(window - context, 0, q)  # queries that see all there is
        return causal_pairs(growing, context) + (q - growing) * window

    return group.mean(of)


def distinct_entries(group: SequenceGroup, window: int | None) -> FloatArray:
    """Return the distinct keys that the queries of a mean sequence read."""
    context = group.context_length
    if window is None:
        return group.mean(lambda q: context + q)
    return group.mean(lambda q: np.minimum(context + q, window + q - 1))
