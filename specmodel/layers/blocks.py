"""Work, on one GPU, of blocks that models and measured kernels have in common; numbers or arrays.

`value_bytes` and `residual_bytes` are sizes of an activation inside a block and between layers [B],
`dtype` that of the arithmetic, `stored_dtype` that of weights; counts are those of the GPU [-].
"""

from dataclasses import replace

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.layers.forms import Quantity
from specmodel.layers.work import Kind, Work


def linear(
    num_tokens: Quantity,
    *,
    weights: Quantity,
    values: Quantity,
    value_bytes: float,
    depth: Quantity,
    kernels: float,
    dtype: str,
    stored_dtype: str,
) -> Work:
    """Return the work of multiplying tokens by matrices that are read once."""
    # `values` are read and written for each token; `depth` sums the inputs of the matrices
    return Work(
        flop=num_tokens * (2 * weights),
        weight_bytes=weights * BYTES_PER_ELEMENT[stored_dtype],
        activation_bytes=num_tokens * (values * value_bytes),
        rows=num_tokens,
        depth=depth,
        kernels=kernels,
        dtype=dtype,
        stored_dtype=stored_dtype,
    )


def between(
    num_tokens: Quantity, *, values: Quantity, value_bytes: float, kernels: float, dtype: str
) -> Work:
    """Return the work of small kernels between matrices, such as activation functions."""
    return Work(
        activation_bytes=num_tokens * (values * value_bytes),
        kernels=kernels,
        kind="elementwise",
        dtype=dtype,
    )


def feed_forward(
    num_tokens: Quantity,
    *,
    hidden_size: Quantity,
    width: Quantity,
    matrices: Quantity,
    layers: int,
    value_bytes: float,
    dtype: str,
    stored_dtype: str,
) -> Work:
    """Return the work of the matrices of feed-forward blocks; gate and up are one product."""
    return linear(
        num_tokens,
        weights=layers * matrices * hidden_size * width,
        values=layers * (2 * hidden_size + matrices * width),
        value_bytes=value_bytes,
        depth=layers * (hidden_size + width),
        kernels=2 * layers,
        dtype=dtype,
        stored_dtype=stored_dtype,
    )


def activation_function(
    num_tokens: Quantity,
    *,
    width: Quantity,
    matrices: Quantity,
    layers: int,
    value_bytes: float,
    dtype: str,
) -> Work:
    """Return the work of the activation functions of feed-forward blocks."""
    # all matrices but the last made what it reads, and it writes what the last reads
    values = layers * matrices * width
    return between(num_tokens, values=values, value_bytes=value_bytes, kernels=layers, dtype=dtype)


def routed(  # noqa: PLR0913 - all keyword-only
    block: Work,
    *,
    pairs: Quantity,
    loaded: Quantity,
    hidden_size: Quantity,
    width: Quantity,
    matrices: Quantity,
    experts_per_token: Quantity,
    layers: int,
    value_bytes: float,
    residual_bytes: float,
) -> Work:
    """Return the work of routed experts with choice, permutation, activation and combination."""
    # Permuting reads a row of the model's width for each token and writes one for each pair, and
    # combining does the reverse: with k pairs a token, 2 (1 + 1/k) rows for each pair.
    rows = layers * 2 * (1 + 1 / experts_per_token)
    moved = pairs * (rows * hidden_size * residual_bytes)
    acted = activation_function(
        pairs,
        width=width,
        matrices=matrices,
        layers=layers,
        value_bytes=value_bytes,
        dtype=block.dtype,
    )
    return replace(
        block,
        weight_bytes=loaded * block.weight_bytes,
        activation_bytes=block.activation_bytes + acted.activation_bytes + moved,
        spread=loaded,
        groups=layers * loaded,
        width=width,
        kernels=block.kernels + acted.kernels + 3 * layers,
        kind="experts",
        memory_cause="experts",
    )


def attention(  # noqa: PLR0913 - all keyword-only
    *,
    num_sequences: Quantity,
    num_tokens: Quantity,
    pairs: Quantity,
    entries: Quantity,
    num_heads: Quantity,
    num_groups: Quantity,
    sizes: tuple[Quantity, Quantity],
    kv_elements: Quantity,
    layers: int,
    residual_bytes: float,
    dtype: str,
    kv_dtype: str,
    kind: Kind = "attention",
    is_written: bool = True,
) -> Work:
    """Return the work of scores and weighted values over the KV cache."""
    # Pairs and entries are those of all sequences, in one layer; `sizes` of a key and of a value;
    # `is_written` is False for layers that read the entries of an earlier one.
    # Groups are pairs of a sequence and a KV head. A group takes a time of its own beside its
    # arithmetic; a head of 128 counts as one group, and half of that is there whatever the size d
    # of a head: a group counts 1/2 + 1/2 · d/128. Rows are the queries of one token that
    # share a KV head: torch's kernel, alone, is fitted with tiles, and takes tokens one by one.
    values = num_heads * (sizes[0] + sizes[1])
    cached = entries + num_tokens if is_written else entries
    return Work(
        flop=pairs * (2 * values * layers),
        activation_bytes=num_tokens * (values * layers * residual_bytes),
        cache_bytes=cached * (kv_elements * layers * BYTES_PER_ELEMENT[kv_dtype]),
        groups=num_sequences * (layers * num_groups * (0.5 + 0.5 * sizes[0] / 128)),
        rows=num_heads / num_groups,
        kernels=layers,
        kind=kind,
        dtype=dtype,
        stored_dtype=kv_dtype,
        memory_cause="KV",
    )


def short_convolution(
    *,
    num_tokens: Quantity,
    windows_moved: Quantity,
    rows_moved: Quantity,
    channels: Quantity,
    width: int,
    layers: int,
    value_bytes: float,
    dtype: str,
) -> Work:
    """Return the work of a convolution over the last tokens of sequences, channel by channel."""
    # Windows of all but the newest token are read or written `windows_moved` times, and single
    # rows of them `rows_moved` times more.
    row_bytes = layers * channels * value_bytes
    return Work(
        flop=num_tokens * (2 * width * layers * channels),
        weight_bytes=row_bytes * width,
        activation_bytes=num_tokens * (2 * row_bytes),
        cache_bytes=windows_moved * ((width - 1) * row_bytes) + rows_moved * row_bytes,
        kernels=layers,
        kind="elementwise",
        dtype=dtype,
    )


def recurrence(  # noqa: PLR0913 - all keyword-only
    *,
    num_sequences: Quantity,
    num_tokens: Quantity,
    states_moved: Quantity,
    num_key_heads: Quantity,
    num_value_heads: Quantity,
    sizes: tuple[Quantity, Quantity],
    layers: int,
    value_bytes: float,
    state_dtype: str,
    recorded_bytes: Quantity = 0.0,
    gates: Quantity = 2.0,
    steps: Quantity = 0.0,
    kind: Kind = "recurrence",
) -> Work:
    """Return the work of a gated delta rule, which reads a state once and writes it often."""
    # States read or written, and bytes of records, are those of all sequences in a layer; `steps`
    # are tokens of a sequence one after another, where these are timed apart; `gates` are numbers
    # of a value head and token. A value head has a state of key size by value
    # size. A token takes about 8 FLOP for each element of the state: it decays, is multiplied by a
    # key, gets an outer product added, and is multiplied by a query. Arithmetic runs in 16 bits or
    # wider, whatever weights and activations have. Groups are pairs of a sequence and a value head;
    # depth is what a kernel walks step by step, the tokens.
    key, value = sizes
    state = layers * num_value_heads * key * value
    values = layers * (2 * num_key_heads * key + num_value_heads * (2 * value + gates))
    return Work(
        flop=num_tokens * (8 * state),
        activation_bytes=num_tokens * (values * value_bytes),
        cache_bytes=states_moved * (state * BYTES_PER_ELEMENT[state_dtype])
        + recorded_bytes * layers,
        groups=num_sequences * (layers * num_value_heads),
        depth=layers * steps,
        kernels=layers,
        kind=kind,
        dtype="bf16",
        stored_dtype=state_dtype,
        memory_cause="state",
    )
