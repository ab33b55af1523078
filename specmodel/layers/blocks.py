"""Work, on one GPU, of blocks that models and measured kernels have in common; numbers or arrays.

Numbers are those of a layer on the GPU [-]; the stream of the tokens says sizes and dtypes.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.layers.forms import Quantity
from specmodel.layers.run import Pass
from specmodel.layers.stream import Stream
from specmodel.layers.work import Kind, Work


class Tokens(NamedTuple):
    """Tokens that a block takes, where these are not those of a pass."""

    stream: Stream
    num_tokens: Quantity


def linear(
    tokens: Pass | Tokens,
    layers: int,
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
    tokens: Pass | Tokens, layers: int, sizes: BlockSizes, dtype: str, value_bytes: float
) -> Work:
    """Return the work of the matrices of feed-forward blocks; gate and up are one product."""
    hidden_size, width, matrices = sizes
    return linear(
        tokens,
        layers,
        weights=matrices * hidden_size * width,
        values=2 * hidden_size + matrices * width,
        depth=hidden_size + width,
        kernels=2,
        dtype=dtype,
        value_bytes=value_bytes,
    )


def routed(
    pairs: Tokens,
    layers: int,
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
        groups=layers * loaded,
        depth=layers * experts,
        width=sizes.width,
        kernels=6 * layers,
        kind="experts",
        memory_cause="experts",
    )


class StateHeads(NamedTuple):
    """Heads of a recurrence: of keys, of values, and the sizes of a value head's state [-]."""

    keys: Quantity
    values: Quantity
    sizes: tuple[Quantity, Quantity]


@dataclass(frozen=True, kw_only=True)
class Updates:
    """What all sequences do with their states in a layer.

    States read or written [-], records of tokens that are moved [B], and, where they are timed
    apart, the tokens of a sequence one after another [token].
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
