"""Compute the work, on one GPU, of blocks that models and measured kernels share.

Sizes are numbers, arrays or forms, for one layer on one GPU [-]; the stream gives dtypes. Decode
kernels of attention process sequences with few tokens and stream their caches. Prompt kernels
process sequences with many tokens and compute whole blocks of queries and keys. In between, each
kind of kernel processes a share.
"""

from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.run import Attended, Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Kind, Work


class Tokens(NamedTuple):
    """Tokens that a block processes, if they differ from the tokens of a pass."""

    stream: Stream
    num_tokens: Quantity


def linear(
    tokens: Pass | Tokens,
    layers: float,
    weights: Quantity,
    values: Quantity,
    depth: Quantity,
    *,
    kernels: float = 1,
    dtype: str | None = None,
    value_bytes: float | None = None,
) -> Work:
    """Return the work of multiplying tokens by matrices that are read once.

    For each token, `values` elements of `value_bytes` are read or written; by default, an element
    has its size between layers. `depth` is the sum of the matrices' input widths. `dtype` is the
    weights' dtype, by default the stream's.
    """
    stream, num_tokens = tokens.stream, tokens.num_tokens
    stored = dtype or stream.weight_dtype
    moved = layers * values * (value_bytes or stream.residual_bytes)
    return Work(
        flop=num_tokens * (2 * layers * weights),
        weight_bytes=layers * weights * BYTES_PER_ELEMENT[stored],
        activation_bytes=num_tokens * moved,
        rows=num_tokens,
        depth=layers * depth,
        kernels=layers * kernels,
        dtype=stream.arithmetic_dtype(stored),
        stored_dtype=stored,
    )


def between(tokens: Pass | Tokens, layers: int, values: Quantity, *, kernels: float) -> Work:
    """Return the work of small kernels that read or write `values` elements per token."""
    stream = tokens.stream
    return Work(
        activation_bytes=tokens.num_tokens * (layers * values * stream.residual_bytes),
        kernels=layers * kernels,
        kind="elementwise",
        dtype=stream.activation_dtype,
    )


def norms(tokens: Pass | Tokens, count: int, hidden_size: Quantity | None = None) -> Work:
    """Return the work of residual additions fused with norms: read and write two tensors each."""
    # a block of threads reads a row step by step to compute its norm, which gives the depth
    stream, size = tokens.stream, tokens.stream.hidden_size if hidden_size is None else hidden_size
    row_bytes = size * stream.residual_bytes
    return Work(
        flop=tokens.num_tokens * (6 * size * count),
        weight_bytes=row_bytes * count,
        activation_bytes=tokens.num_tokens * (4 * row_bytes * count),
        depth=size * count,
        kernels=count,
        kind="elementwise",
        dtype=stream.activation_dtype,
    )


DRAWN = {"sampling": (5, 48.0), "rejection": (11, 40.0)}
"""Number of kernels that draw or judge a token, and bytes moved per word of the vocabulary [-] [B].

Sampling: logits in fp32 are scaled, turned into probabilities, divided by random numbers, and
searched for the largest (``v1/sample/ops`` and ``v1/sample/rejection_sampler.py`` in vLLM 0.24).
Rejection reads two rows of probabilities, then divides and searches their difference."""


def drawn(rows: Quantity, vocabulary_size: Quantity, dtype: str, kind: Kind = "sampling") -> Work:
    """Return the work of drawing a token from each row of logits, or judging a drafted token."""
    kernels, of_word = DRAWN[kind]
    moved = rows * (of_word * vocabulary_size)
    return Work(activation_bytes=moved, kernels=kernels, kind=kind, dtype=dtype)


class BlockSizes(NamedTuple):
    """Sizes of a feed-forward block: outer width, inner width, number of matrices [-]."""

    hidden_size: Quantity
    width: Quantity
    matrices: Quantity

    @property
    def acted(self) -> Quantity:
        """Values of a token that the activation function reads and writes [-]."""
        # it reads the outputs of all matrices except the last, and writes the last one's input
        return self.matrices * self.width


def feed_forward(tokens: Pass | Tokens, layers: float, sizes: BlockSizes, **stored: Any) -> Work:
    """Return the work of matrices in feed-forward blocks; gate and up are one product."""
    h, width, matrices = sizes
    weights, values = matrices * h * width, 2 * h + matrices * width
    return linear(tokens, layers, weights, values, h + width, kernels=2, **stored)


def routed(
    pairs: Tokens,
    layers: float,
    sizes: BlockSizes,
    *,
    loaded: Quantity,
    experts: Quantity,
    experts_per_token: Quantity,
) -> Work:
    """Return the work of routed experts with selection, permutation, activation and combination.

    `pairs` are the pairs of token and expert, `loaded` the number of experts that they use.
    """
    # Kernels may go through the list of all `experts` of the GPU step by step: the depth.
    # Permutation reads a row of the model's width for each token and writes a row for each pair.
    # Combination does the reverse. With k pairs per token, this is 2 (1 + 1/k) rows per pair.
    stream, size = pairs.stream, pairs.stream.activation_bytes
    block = feed_forward(pairs, layers, sizes, dtype=stream.expert_dtype, value_bytes=size)
    rows = layers * 2 * (1 + 1 / experts_per_token)
    moved = pairs.num_tokens * (rows * sizes.hidden_size * stream.residual_bytes)
    acted = pairs.num_tokens * (layers * sizes.acted * size)
    return replace(
        block,
        weight_bytes=loaded * block.weight_bytes,
        activation_bytes=block.activation_bytes + acted + moved,
        spread=loaded,
        rows_per_token=experts_per_token,
        groups=layers * loaded,
        depth=layers * experts,
        width=sizes.width,
        kernels=6 * layers,
        kind="experts",
        memory_cause="experts",
    )


BLOCK = 128
"""Queries, or keys, that a prompt kernel computes together [token]."""


class Heads(Struct, frozen=True, kw_only=True):
    """Heads of attention on one GPU.

    `queries` share `groups` of keys and values. `sizes` has the width of a key and of a value, and
    `entry` the cached elements of a token [-]. `is_written` is False for layers that read the
    entries of an earlier layer. `holders` is the number of GPUs that split the entries of a
    sequence; each of them has the queries of all.
    """

    queries: Quantity
    groups: Quantity
    sizes: tuple[Quantity, Quantity]
    entry: Quantity
    is_written: bool = True
    holders: int = 1


def prompt_arithmetic(kv_dtype: str) -> str:
    """Return the dtype whose peak is the reference for prompt kernels."""
    # With fp8 caches, kernels on Hopper and later compute in fp8. Otherwise, their efficiency
    # relative to the fp8 peak is lower.
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

    If kernels do not spread heads over processors, `depth` counts the bytes that one processor
    reads of heads one after another [B].
    """
    # A group is a pair of sequence and KV head. Its fixed time is in addition to its arithmetic. A
    # head of size 128 counts as one group, and half of that does not depend on the size d: a group
    # counts 1/2 + 1/2 · d/128. Rows are the queries of one token that share a KV head. Only torch's
    # kernel is fitted with tiles; it processes tokens one by one.
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
    """Return the work of attention of prompts; with latents, it moves their keys and values."""
    # With causal queries, the pairs are half of a square. Rows are the blocks of queries in a
    # layer: a processor computes one block at a time, so fewer blocks than processors take as long
    # as one block each. If decode kernels process a share, `whole_tokens` counts both shares.
    # Groups are blocks of query-key pairs, whose exponentials need extra time for any head size.
    # Keys and values of the pass's tokens count as activations, as a kernel converts them to the
    # cache's format. Keys and values from latents are written once and read once.
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


class StateHeads(NamedTuple):
    """Number of key heads and value heads of a recurrence, and sizes of a head's state [-]."""

    keys: Quantity
    values: Quantity
    sizes: tuple[Quantity, Quantity]


class Updates(Struct, frozen=True, kw_only=True):
    """Updates of recurrent states in one layer, over all sequences.

    Sequences, and states read or written [-]; bytes of token records read or written [B]; and, if
    kernels are timed by it, the tokens of a sequence that follow one another [token].
    """

    num_sequences: Quantity
    states_moved: Quantity
    recorded_bytes: Quantity = 0.0
    steps: Quantity = 0.0


def recurrence(
    tokens: Pass | Tokens,
    layers: int,
    heads: StateHeads,
    updates: Updates,
    state_dtype: str,
    *,
    gates: Quantity = 2.0,
    kind: Kind = "recurrence",
) -> Work:
    """Return the work of a gated delta rule, which reads a state once and writes it several times.

    `gates` is the count of numbers for each value head and token.
    """
    # A value head has a state of key size by value size. A token needs about 8 FLOP for each
    # element of the state: decay, multiplication by a key, addition of an outer product, and
    # multiplication by a query. Arithmetic has 16 bits or more for all dtypes of weights and
    # activations. A group is a pair of sequence and value head. Depth counts the tokens, which a
    # kernel processes one after another.
    key, value = heads.sizes
    state = layers * heads.values * key * value
    values = layers * (2 * heads.keys * key + heads.values * (2 * value + gates))
    return Work(
        flop=tokens.num_tokens * ((6 if kind == "state_space" else 8) * state),
        activation_bytes=tokens.num_tokens * (values * tokens.stream.residual_bytes),
        cache_bytes=updates.states_moved * (state * BYTES_PER_ELEMENT[state_dtype])
        + updates.recorded_bytes * layers,
        groups=updates.num_sequences * (layers * heads.values),
        depth=layers * updates.steps,
        kernels=layers,
        kind=kind,
        dtype="bf16",
        stored_dtype=state_dtype,
        memory_cause="state",
    )
