"""The core of attention, scores and weighted values: of decoding, and of prompts.

A sequence with few tokens is decoded, by kernels that stream its cache; one with many is a prompt,
by kernels that compute whole blocks of queries and keys. In between, both do a share.
"""

from dataclasses import dataclass, replace

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.layers.forms import Quantity
from specmodel.layers.run import Attended
from specmodel.layers.stream import Stream
from specmodel.layers.work import Kind, Work

BLOCK = 128
"""Queries, and keys, that a kernel for prompts computes together [token]."""


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Heads of attention on one GPU.

    `queries` share `groups` of keys and values; `sizes` are those of a key and of a value, and
    `entry` is what the cache holds of a token [-]. `is_written` is False for layers that read the
    entries of an earlier one. `holders` are the GPUs that share the entries of a sequence, each
    with the queries of all of them.
    """

    queries: Quantity
    groups: Quantity
    sizes: tuple[Quantity, Quantity]
    entry: Quantity
    is_written: bool = True
    holders: int = 1


def prompt_arithmetic(kv_dtype: str) -> str:
    """Return the dtype whose peak kernels for prompts are measured by."""
    # fp8 caches: kernels of Hopper and later compute in fp8, or lose efficiency by not doing so
    return "fp8" if kv_dtype == "fp8" else "bf16"


def attention(
    stream: Stream,
    layers: int,
    attended: Attended,
    heads: Heads,
    *,
    dtype: str | None = None,
    kind: Kind = "attention",
) -> Work:
    """Return the work of scores and weighted values over the KV cache, in decoding.

    Its depth is what a processor reads of heads in turn, where kernels do not spread them [B].
    """
    # Groups are pairs of a sequence and a KV head. A group takes a time of its own beside its
    # arithmetic; a head of 128 counts as one group, and half of that is there whatever the size d
    # of a head: a group counts 1/2 + 1/2 · d/128. Rows are the queries of one token that
    # share a KV head: torch's kernel, alone, is fitted with tiles, and takes tokens one by one.
    (key, value), n = heads.sizes, heads.holders
    values = heads.queries * (key + value)
    cached = attended.entries + attended.num_tokens if heads.is_written else attended.entries
    of_cache = BYTES_PER_ELEMENT[stream.kv_dtype]
    work = Work(
        flop=attended.pairs * (2 * values * layers),
        activation_bytes=attended.num_tokens * (values * n * layers * stream.residual_bytes),
        cache_bytes=cached * (heads.entry / n * layers * of_cache),
        groups=attended.num_sequences * (layers * heads.groups * (0.5 + 0.5 * key / 128)),
        rows=heads.queries * n / heads.groups,
        kernels=layers * attended.share,
        kind=kind,
        dtype=dtype or stream.arithmetic_dtype(stream.kv_dtype),
        stored_dtype=stream.kv_dtype,
        memory_cause="KV",
    )
    if attended.walk is None:
        return work
    depth = attended.walked * (layers * (heads.entry / n / heads.groups * of_cache))
    return replace(work, depth=depth, walk=attended.walk)


def prompt_attention(
    stream: Stream, layers: int, attended: Attended, heads: Heads, *, has_latents: bool = False
) -> Work:
    """Return the work of attention of prompts, which make keys and values of any latents."""
    # Pairs are half of a square where queries are causal. Rows are the blocks of queries of a
    # layer, of `whole_tokens` if kernels for decoding take a share: processors take one each, and
    # fewer blocks than processors take as long as a whole round. Groups are blocks of query-key
    # pairs, whose exponentials take a time of their own, whatever the size of a head. Keys and
    # values of the pass's own tokens are activations too: they are brought into the form of the
    # cache. What is made of latents is written once and read once.
    kind = "latent_prompt_attention" if has_latents else "prompt_attention"
    dtype, size = prompt_arithmetic(stream.kv_dtype), stream.residual_bytes
    work = attention(stream, layers, attended, heads, dtype=dtype, kind=kind)
    moved = attended.num_tokens * (layers * heads.entry * size) if heads.is_written else 0.0
    if has_latents:
        moved = moved + attended.entries * (layers * heads.queries * sum(heads.sizes) * (2 * size))
    return replace(
        work,
        activation_bytes=work.activation_bytes + moved,
        rows=attended.whole_tokens * (heads.queries * heads.holders / BLOCK),
        groups=attended.pairs * (layers * heads.queries / BLOCK**2),
    )
