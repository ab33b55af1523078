"""The core of attention, scores and weighted values: of decoding, and of prompts.

A sequence with few tokens is decoded, by kernels that stream its cache; one with many is a prompt,
by kernels that compute whole blocks of queries and keys. In between, both do a share.
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
    """Return the dtype whose peak kernels for prompts are measured by."""
    # fp8 caches: kernels of Hopper and later compute in fp8, or lose efficiency by not doing so
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
    """Return the work of attention of prompts; arguments as `blocks.attention` has them."""
    # Pairs are half of a square where queries are causal. Rows are the blocks of queries of a
    # layer: processors take one each, and fewer blocks than processors take as long as a whole
    # round. Groups are blocks of query-key pairs, whose exponentials take a time of their own,
    # whatever the size of a head. Keys and values of the pass's own tokens are activations too:
    # they are brought into the form of the cache.
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


def core(run: Pass, layers: int, window: int | None, batch: Batch, **heads: Any) -> Work:
    """Return the work of decoding over the KV cache; `heads` goes to `blocks.attention`."""
    work = blocks.attention(**heads, **_carried(run, layers, window, batch))
    return work if batch.is_all else replace(work, kernels=layers * batch.share)


def prompt_core(run: Pass, layers: int, window: int | None, batch: Batch, **heads: Any) -> Work:
    """Return the work of prompts over the KV cache; `heads` goes to `prompt_attention`."""
    work = prompt_attention(**heads, **_carried(run, layers, window, batch))
    if batch.is_all:
        return work
    rows = work.rows / np.maximum(batch.share, NO_SEQUENCE)
    return replace(work, kernels=layers * batch.share, rows=rows)


def _carried(run: Pass, layers: int, window: int | None, batch: Batch) -> dict[str, Any]:
    """Return the arguments of a core that follow from the pass."""
    return {
        "batch_size": batch.num_sequences,
        "num_tokens": batch.num_tokens,
        "pairs": layers * batch.mean(lambda group: query_key_pairs(group, window)),
        "entries": layers * batch.mean(lambda group: distinct_entries(group, window)),
        "layers": layers,
        "residual_bytes": run.stream.residual_bytes,
        "kv_dtype": run.stream.kv_dtype,
    }


def causal_pairs(query_tokens: FloatArray, context: FloatArray) -> FloatArray:
    """Return query-key pairs of a sequence whose queries see its context and those before [-]."""
    return query_tokens * (context + (query_tokens + 1) / 2)


def with_keys_and_values(
    work: Work, entries: Value, head_elements: Value, value_bytes: float
) -> Work:
    """Return attention with keys and values made from latents added: written once, read once."""
    made = entries * (head_elements * (2 * value_bytes))
    return replace(work, activation_bytes=work.activation_bytes + made)


def query_key_pairs(group: SequenceGroup, window: int | None) -> FloatArray:
    """Return query-key pairs of a mean sequence, each causal query seeing at most a window [-]."""
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
    """Return the distinct keys that the queries of a mean sequence read [-]."""
    context = group.context_length
    if window is None:
        return group.mean(lambda q: context + q)
    return group.mean(lambda q: np.minimum(context + q, window + q - 1))
