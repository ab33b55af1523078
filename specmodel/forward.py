"""Work of one forward pass, by component: FLOPs, bytes and kernels on each GPU.

One function of tokens: a pass carries `tokens_per_sequence` tokens of each sequence; decoding is
verification with a draft length of 0. The KV cache is read once per sequence and pass, whatever
the number of tokens verified. Kernel counts are those of a serving stack with fused norms, fused
gate and up projections and one attention kernel. All numbers are real-valued, so that time is
continuous in them.
"""

from dataclasses import dataclass

import numpy as np

from specmodel import experts
from specmodel.architecture import Architecture
from specmodel.errors import InputError
from specmodel.units import BYTES_PER_ELEMENT, FloatArray, Numeric, check

ROUTED_EXPERTS = "routed_experts"
ATTENTION_CORE = "attention_core"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Work:
    """What one component of a pass does on each GPU.

    Parameters
    ----------
    flop
        Arithmetic [FLOP].
    weight_bytes, activation_bytes, kv_bytes
        Traffic to device memory [B].
    link_bytes
        Traffic sent to other GPUs [B].
    kernels
        Kernels launched [-].
    """

    flop: FloatArray | float = 0.0
    weight_bytes: FloatArray | float = 0.0
    activation_bytes: FloatArray | float = 0.0
    kv_bytes: FloatArray | float = 0.0
    link_bytes: FloatArray | float = 0.0
    kernels: float = 0.0

    @property
    def memory_bytes(self) -> FloatArray:
        """All traffic to device memory [B]."""
        return np.asarray(self.weight_bytes + self.activation_bytes + self.kv_bytes)

    def times(self, count: float) -> "Work":
        """Return the work of `count` such components."""
        return Work(**{name: value * count for name, value in vars(self).items()})


@dataclass(frozen=True, eq=False, repr=False)
class PassWork:
    """Work of one pass by component, and the distinct experts it loads per layer [-]."""

    components: dict[str, Work]
    active_experts: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class _Tokens:
    """What the pass carries: all of it in expectation over which sequences speculate."""

    batch_size: FloatArray
    per_sequence: FloatArray
    context_length: FloatArray
    speculating_share: FloatArray

    @property
    def total(self) -> FloatArray:
        extra = self.speculating_share * (self.per_sequence - 1)
        return self.batch_size * (1 + extra)

    def mix(self, speculating: FloatArray, plain: FloatArray) -> FloatArray:
        """Mean over sequences of a quantity of speculating and of plain ones."""
        share = self.speculating_share
        return share * speculating + (1 - share) * plain


def pass_work(
    architecture: Architecture,
    *,
    batch_size: Numeric,
    tokens_per_sequence: Numeric,
    context_length: Numeric,
    routing_correlation: Numeric = 0.0,
    speculating_share: Numeric = 1.0,
    tensor_parallel: int = 1,
) -> PassWork:
    """Return the work of one pass on each GPU, by component.

    Parameters
    ----------
    architecture
        The model.
    batch_size
        Sequences decoded together, real-valued, above 0, any shape [request].
    tokens_per_sequence
        Tokens of each sequence in the pass, 1 to decode [token].
    context_length
        KV entries of each sequence before the pass [token].
    routing_correlation
        How far tokens of one sequence share experts, from 0 to 1 [-].
    speculating_share
        Share of the sequences that carry `tokens_per_sequence`; the others carry one [-].
    tensor_parallel
        GPUs that each layer is cut over; it divides the heads [-].

    Returns
    -------
    PassWork
        Components in the order of the pass; each field broadcasts with the arguments.

    Raises
    ------
    InputError
        If an argument is out of range or `tensor_parallel` does not divide the heads.

    Notes
    -----
    Each GPU holds ``1 / tensor_parallel`` of every matrix, but for keys and values where there
    are fewer heads than GPUs, and routers and norms, which are replicated.

    Examples
    --------
    >>> from specmodel.architecture import load_architecture
    >>> work = pass_work(load_architecture("mixtral-8x7b"), batch_size=1, tokens_per_sequence=1,
    ...                  context_length=1000)
    >>> float(work.active_experts.round(9))
    2.0
    """
    check_tensor_parallel("tensor_parallel", tensor_parallel, architecture)
    tokens = _Tokens(
        check("batch_size", batch_size, above=0),
        check("tokens_per_sequence", tokens_per_sequence, minimum=1),
        check("context_length", context_length, minimum=0),
        check("speculating_share", speculating_share, minimum=0, maximum=1),
    )
    active = _active_experts(architecture, tokens, routing_correlation)
    a, t, n = architecture, tokens.total, tensor_parallel
    layers, moe_layers = float(a.num_layers), float(a.num_moe_layers)
    components = {
        "embedding": _embedding(a, t),
        "input_projection": _linear(a, t, a.input_projection_size * a.hidden_size / n)
        if a.input_projection_size
        else Work(),
        "norms": _norm(a, t).times(2 * layers + 1),
        "attention_projections": _attention_projections(a, t, n).times(layers),
        ATTENTION_CORE: _attention_core(a, tokens, n),
        "router": _router(a, t).times(moe_layers),
        ROUTED_EXPERTS: _routed_experts(a, t, active, n).times(moe_layers),
        "shared_experts": _ffn(a, t, a.num_shared_experts * a.shared_expert_size / n).times(
            moe_layers
        ),
        "dense_ffn": _ffn(a, t, a.dense_ffn_size / n).times(float(a.num_dense_layers)),
        "lm_head": _linear(a, t, a.head_parameters / n, outputs=a.vocabulary_size / n),
        "all_reduce": _all_reduce(a, t, n),
    }
    return PassWork({name: work for name, work in components.items() if work.kernels}, active)


def check_tensor_parallel(
    argument: str, tensor_parallel: object, architecture: Architecture
) -> int:
    """Return a tensor-parallel degree that an architecture can be cut by, else raise.

    Parameters
    ----------
    argument
        Name that an error should carry.
    tensor_parallel
        GPUs that each layer is cut over [-].
    architecture
        The model.

    Returns
    -------
    int
        The degree [-].

    Raises
    ------
    InputError
        If it does not divide the query heads, or neither divides the key-value heads nor is a
        multiple of them.
    """
    n = int(check(argument, tensor_parallel, minimum=1, whole=True))
    heads, kv_heads = architecture.num_heads, architecture.num_kv_heads
    if heads % n or (kv_heads % n and n % kv_heads):
        fitting = [
            str(i)
            for i in range(1, heads + 1)
            if not heads % i and not (kv_heads % i and i % kv_heads)
        ]
        expected = f"a divisor of the {heads} heads of {architecture.name}: {', '.join(fitting)}"
        raise InputError(argument, n, expected)
    return n


def _active_experts(
    architecture: Architecture, tokens: _Tokens, routing_correlation: Numeric
) -> FloatArray:
    E, k = architecture.num_experts, architecture.experts_per_token
    u = experts.sequence_active_experts(tokens.per_sequence, E, k, routing_correlation)
    return experts.batch_active_experts(tokens.batch_size, tokens.mix(u, np.asarray(float(k))), E)


def _weight_bytes(a: Architecture) -> float:
    return BYTES_PER_ELEMENT[a.weight_dtype]


def _activation_bytes(a: Architecture) -> float:
    return BYTES_PER_ELEMENT[a.activation_dtype]


def _linear(a: Architecture, t: FloatArray, weights: float, outputs: float = 0.0) -> Work:
    """Multiply all tokens by one matrix that is read once."""
    return Work(
        flop=2 * t * weights,
        weight_bytes=weights * _weight_bytes(a),
        activation_bytes=t * (a.hidden_size + (outputs or a.hidden_size)) * _activation_bytes(a),
        kernels=1,
    )


def _embedding(a: Architecture, t: FloatArray) -> Work:
    width = a.embedding_size or a.hidden_size
    row_bytes = width * _weight_bytes(a) + a.hidden_size * _activation_bytes(a)
    return Work(activation_bytes=t * row_bytes, kernels=1)


def _norm(a: Architecture, t: FloatArray) -> Work:
    """Fused residual addition and norm: two tensors read, two written."""
    return Work(
        flop=6 * t * a.hidden_size,
        weight_bytes=a.hidden_size * _weight_bytes(a),
        activation_bytes=4 * t * a.hidden_size * _activation_bytes(a),
        kernels=1,
    )


def _attention_projections(a: Architecture, t: FloatArray, n: int) -> Work:
    """Query-key-value and output projections, and the rotary embedding between them."""
    kv_size = 2 * a.kv_size / min(n, a.num_kv_heads)
    weights = a.hidden_size * (2 * a.query_size / n + kv_size)
    values = 2 * a.hidden_size + 2 * a.query_size / n + kv_size
    return Work(
        flop=2 * t * weights,
        weight_bytes=weights * _weight_bytes(a),
        activation_bytes=t * values * _activation_bytes(a),
        kernels=3,
    )


def _attention_core(a: Architecture, tokens: _Tokens, n: int) -> Work:
    """Scores and weighted values over the KV cache; windowed layers see only their window."""
    windowed = a.num_sliding_layers
    pairs = entries = np.zeros(())
    for layers, window in ((a.num_layers - windowed, np.inf), (windowed, a.sliding_window)):
        if layers and window is not None:
            q_pairs, q_entries = _attended(tokens.per_sequence, tokens.context_length, window)
            one_pair, one_entry = _attended(np.ones(()), tokens.context_length, window)
            pairs = pairs + layers * tokens.mix(q_pairs, one_pair)
            entries = entries + layers * tokens.mix(q_entries, one_entry)
    kv_size = 2 * a.kv_size / min(n, a.num_kv_heads)
    written = a.num_layers * tokens.total
    return Work(
        flop=4 * a.query_size / n * tokens.batch_size * pairs,
        activation_bytes=2 * a.query_size / n * a.num_layers * tokens.total * _activation_bytes(a),
        kv_bytes=(tokens.batch_size * entries + written) * kv_size * BYTES_PER_ELEMENT[a.kv_dtype],
        kernels=a.num_layers,
    )


def _attended(
    q: FloatArray, context_length: FloatArray, window: float
) -> tuple[FloatArray, FloatArray]:
    """Query-key pairs of q causal queries, and the distinct keys that they read."""
    if np.isinf(window):
        return q * (context_length + (q + 1) / 2), context_length + q
    growing = np.clip(window - context_length, 0, q)
    pairs = growing * (context_length + (growing + 1) / 2) + (q - growing) * window
    return pairs, np.minimum(context_length + q, window + q - 1)


def _router(a: Architecture, t: FloatArray) -> Work:
    """Scores of all experts and the choice of the top k, replicated on every GPU."""
    if a.num_experts == 1:
        return Work()
    return Work(
        flop=2 * t * a.router_parameters,
        weight_bytes=a.router_parameters * _weight_bytes(a),
        activation_bytes=t * (a.hidden_size + 3 * a.num_experts) * _activation_bytes(a),
        kernels=2,
    )


def _ffn(a: Architecture, t: FloatArray, width: float, loaded: FloatArray | float = 1.0) -> Work:
    """Feed-forward block of `t` tokens that reads the weights of `loaded` blocks."""
    if not width:
        return Work()
    matrices = 3 if a.has_gated_ffn else 2
    weights = matrices * a.hidden_size * width
    return Work(
        flop=2 * t * weights,
        weight_bytes=loaded * weights * _weight_bytes(a),
        activation_bytes=t * (2 * a.hidden_size + 2 * matrices * width) * _activation_bytes(a),
        kernels=3,
    )


def _routed_experts(a: Architecture, t: FloatArray, active: FloatArray, n: int) -> Work:
    """Add permutation and combination to the grouped blocks where there are several experts."""
    work = _ffn(a, t * a.experts_per_token, a.expert_size / n, loaded=active)
    if a.num_experts == 1:
        return work
    moved = t * (a.experts_per_token + 1) * 2 * a.hidden_size * _activation_bytes(a)
    return Work(
        flop=work.flop,
        weight_bytes=work.weight_bytes,
        activation_bytes=work.activation_bytes + moved,
        kernels=work.kernels + 2,
    )


def _all_reduce(a: Architecture, t: FloatArray, n: int) -> Work:
    """Two ring all-reduces a layer and one after the embedding; logits are gathered."""
    if n == 1:
        return Work()
    reductions = 2 * a.num_layers + 1
    values = reductions * 2 * a.hidden_size + a.vocabulary_size
    sent = t * values * _activation_bytes(a) * (n - 1) / n
    return Work(link_bytes=sent, kernels=reductions + 1)
