"""Work, on one GPU, of blocks that models and measured kernels have in common; numbers or arrays.

Numbers are those of a layer on the GPU [-]; the stream of the tokens says sizes and dtypes. A
sequence with few tokens is decoded, by kernels of attention that stream its cache; one with many is
a prompt, by kernels that compute whole blocks of queries and keys. In between, both do a share.
"""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.run import Attended, Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Kind, Work


class Tokens(NamedTuple):
    """Tokens that a block processes, where they differ from the tokens of a pass."""

    stream: Stream
    num_tokens: Quantity


def linear(
    tokens: Pass | Tokens,
    layers: float,
    *,
    weights: Quantity,
    values: Quantity,
    depth: Quantity,
    kernels: float = 1,
    dtype: str | None = None,
    value_bytes: float | None = None,
) -> Work:
    """Return the work of multiplying tokens by matrices that are read once.

    `values` are read and written for each token, `value_bytes` each, by default as between layers;
    `depth` sums the inputs of the matrices; `dtype` is that of weights, by default the stream's.
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
    """Return the work of small kernels between matrices, which read and write `values` a token."""
    stream = tokens.stream
    return Work(
        activation_bytes=tokens.num_tokens * (layers * values * stream.residual_bytes),
        kernels=layers * kernels,
        kind="elementwise",
        dtype=stream.activation_dtype,
    )


def norms(tokens: Pass | Tokens, count: int, hidden_size: Quantity | None = None) -> Work:
    """Return the work of residual additions fused with norms: two tensors read, two written."""
    # one block of threads walks a row to find its norm: hence the depth
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
"""Kernels that draw tokens, and what they move for each word of the vocabulary [-] [B].

A token drawn: logits in fp32, scaled, made probabilities, divided by random numbers, and
searched for the largest (``v1/sample/ops`` and ``v1/sample/rejection_sampler.py`` in vLLM 0.24). A
drafted one judged: two rows of probabilities, and their difference divided and searched alike."""


def drawn(rows: Quantity, vocabulary_size: Quantity, dtype: str, kind: Kind = "sampling") -> Work:
    """Return the work of drawing a token for each row of logits, or of judging a drafted one."""
    kernels, of_word = DRAWN[kind]
    moved = rows * (of_word * vocabulary_size)
    return Work(activation_bytes=moved, kernels=kernels, kind=kind, dtype=dtype)


class BlockSizes(NamedTuple):
    """Sizes of a feed-forward block: widths around it and inside, and its matrices [-]."""

    hidden_size: Quantity
    width: Quantity
    matrices: Quantity

    @property
    def acted(self) -> Quantity:
        """Values of a token that its activation function reads and writes [-]."""
        # all matrices but the last made what it reads, and it writes what the last reads
        return self.matrices * self.width


def feed_forward(
    tokens: Pass | Tokens, layers: float, sizes: BlockSizes, dtype: str, value_bytes: float
) -> Work:
    """Return the work of the matrices of feed-forward blocks; gate and up are one product."""
    h, width, matrices = sizes
    weights, values = matrices * h * width, 2 * h + matrices * width
    how = {"depth": h + width, "kernels": 2, "dtype": dtype, "value_bytes": value_bytes}
    return linear(tokens, layers, weights=weights, values=values, **how)


def routed(
    pairs: Tokens,
    layers: float,
    sizes: BlockSizes,
    *,
    loaded: Quantity,
    experts: Quantity,
    experts_per_token: Quantity,
) -> Work:
    """Return the work of routed experts with choice, permutation, activation and combination.

    `pairs` are those of tokens and experts, `loaded` the experts that these use.
    """
    # What kernels may walk step by step is the list of all `experts` that the GPU has.
    # Permuting reads a row of the model's width for each token and writes one for each pair, and
    # combining does the reverse: with k pairs a token, 2 (1 + 1/k) rows for each pair.
    stream, size = pairs.stream, pairs.stream.activation_bytes
    block = feed_forward(pairs, layers, sizes, stream.expert_dtype, size)
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
"""Queries, and keys, that a kernel for prompts computes together [token]."""


class Heads(Struct, frozen=True, kw_only=True):
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


class StateHeads(NamedTuple):
    """Heads of a recurrence: of keys, of values, and the sizes of a value head's state [-]."""

    keys: Quantity
    values: Quantity
    sizes: tuple[Quantity, Quantity]


class Updates(Struct, frozen=True, kw_only=True):
    """Updates of recurrent states in one layer, over all sequences.

    Sequences, states read or written [-], bytes of token records moved [B], and, where they are
    timed apart, the tokens of a sequence one after another [token].
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
    """Return the work of a gated delta rule, which reads a state once and writes it often.

    `gates` are numbers of a value head and token.
    """
    # A value head has a state of key size by value size. A token takes about 8 FLOP for each
    # element of it: it decays, is multiplied by a key, gets an outer product added, and is
    # multiplied by a query. Arithmetic runs in 16 bits or wider, whatever weights and activations
    # have. Groups are pairs of a sequence and a value head; depth is what a kernel walks step by
    # step, the tokens.
    key, value = heads.sizes
    state = layers * heads.values * key * value
    values = layers * (2 * heads.keys * key + heads.values * (2 * value + gates))
    return Work(
        flop=tokens.num_tokens * (8 * state),
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
