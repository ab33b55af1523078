"""The core of attention, scores and weighted values: of decoding, and of prompts.

A sequence with few tokens is decoded, by kernels that stream its cache; one with many is a prompt,
by kernels that compute whole blocks of queries and keys. In between, both do a share.
"""

from dataclasses import replace
from typing import Any

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.layers import blocks
from specmodel.layers.forms import Quantity
from specmodel.layers.run import Pass, Sequences
from specmodel.layers.work import Kind, Work

BLOCK = 128
"""Queries, and keys, that a kernel for prompts computes together [token]."""


def prompt_arithmetic(kv_dtype: str) -> str:
    """Return the dtype whose peak kernels for prompts are measured by."""
    # fp8 caches: kernels of Hopper and later compute in fp8, or lose efficiency by not doing so
    return "fp8" if kv_dtype == "fp8" else "bf16"


def prompt_attention(  # noqa: PLR0913 - all keyword-only
    *,
    num_tokens: Quantity,
    whole_tokens: Quantity,
    pairs: Quantity,
    entries: Quantity,
    num_heads: Quantity,
    sizes: tuple[Quantity, Quantity],
    kv_elements: Quantity,
    layers: int,
    residual_bytes: float,
    kv_dtype: str,
    kind: Kind = "prompt_attention",
    is_written: bool = True,
) -> Work:
    """Return the work of attention of prompts; arguments as `blocks.attention` has them."""
    # Pairs are half of a square where queries are causal. Rows are the blocks of queries of a
    # layer, of `whole_tokens` if kernels for decoding take a share: processors take one each, and
    # fewer blocks than processors take as long as a whole round. Groups are blocks of query-key
    # pairs, whose exponentials take a time of their own, whatever the size of a head. Keys and
    # values of the pass's own tokens are activations too: they are brought into the form of the
    # cache.
    work = blocks.attention(
        num_sequences=0.0,  # groups and rows are others than those of decoding
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
        rows=whole_tokens * (num_heads / BLOCK),
        groups=pairs * (layers * num_heads / BLOCK**2),
    )


def core(run: Pass, layers: int, window: int | None, taken: Sequences, **heads: Any) -> Work:
    """Return the work of decoding over the KV cache; `heads` goes to `blocks.attention`.

    Its depth is what one block of threads reads of a head, where kernels do not spread it [B].
    """
    work = blocks.attention(
        **heads,
        **_carried(run, layers, window, taken),
        num_sequences=taken.num_sequences,
    )
    work = replace(work, kernels=layers * taken.share)
    if run.split_tokens is None:
        return work
    entry = heads["kv_elements"] / heads["num_groups"] * BYTES_PER_ELEMENT[run.stream.kv_dtype]
    return replace(work, depth=taken.walked(window, run.split_tokens) * (layers * entry))


def prompt_core(run: Pass, layers: int, window: int | None, taken: Sequences, **heads: Any) -> Work:
    """Return the work of prompts over the KV cache; `heads` goes to `prompt_attention`."""
    work = prompt_attention(
        **heads,
        **_carried(run, layers, window, taken),
        whole_tokens=taken.counted("tokens_of_whole"),
    )
    return replace(work, kernels=layers * taken.share)


def _carried(run: Pass, layers: int, window: int | None, taken: Sequences) -> dict[str, Any]:
    """Return the arguments of a core that follow from the pass."""
    return {
        "num_tokens": taken.num_tokens,
        "pairs": taken.pairs(window),
        "entries": taken.entries(window),
        "layers": layers,
        "residual_bytes": run.stream.residual_bytes,
        "kv_dtype": run.stream.kv_dtype,
    }


def with_keys_and_values(
    work: Work, entries: Quantity, head_elements: Quantity, value_bytes: float
) -> Work:
    """Return attention with keys and values made from latents added: written once, read once."""
    made = entries * (head_elements * (2 * value_bytes))
    return replace(work, activation_bytes=work.activation_bytes + made)
