"""Work of one forward pass, by component: FLOPs, bytes and kernels on each GPU.

One function of tokens: a pass carries `tokens_per_sequence` tokens of each sequence; decoding is
verification with a draft length of 0. The KV cache is read once per sequence and pass, whatever
the number of tokens verified. Kernel counts are those of a serving stack with fused norms, fused
gate and up projections and one attention kernel. All numbers are real-valued, so that time is
continuous in them.
"""

import numpy as np

from specmodel.algebra import experts
from specmodel.algebra.popularity import check_popularity, union_by_expert
from specmodel.base.units import BYTES_PER_ELEMENT, FloatArray, Numeric, check
from specmodel.cost import blocks, parallel
from specmodel.cost.attention import attention_core, attention_projections
from specmodel.cost.parallel import SINGLE_GPU, Layout
from specmodel.cost.work import (
    ATTENTION_CORE,
    ROUTED_EXPERTS,
    PassWork,
    Tokens,
    Work,
    activation_bytes,
    arithmetic_dtype,
    residual_bytes,
)
from specmodel.records.architecture import Architecture


def pass_work(  # noqa: PLR0913 - all but the model keyword-only
    architecture: Architecture,
    *,
    batch_size: Numeric,
    tokens_per_sequence: Numeric,
    context_length: Numeric,
    routing_correlation: Numeric = 0.0,
    popularity: FloatArray | None = None,
    speculating_share: Numeric = 1.0,
    speculating_chance: Numeric = 1.0,
    layout: Layout = SINGLE_GPU,
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
    popularity
        Probability that a token uses each expert, shape (num_experts,); equal if None [-].
    speculating_share
        Share of the sequences that carry `tokens_per_sequence`; the others carry one [-].
    speculating_chance
        Chance that any sequence does, where the share is a mean given that some do [-].
    layout
        How the model is spread over GPUs.

    Returns
    -------
    PassWork
        Components in the order of the pass; each field broadcasts with the arguments.

    Raises
    ------
    InputError
        If an argument is out of range or the layout does not cut the model evenly.

    Notes
    -----
    Under tensor parallelism each GPU holds its share of every matrix, but for keys and values
    where there are fewer heads than GPUs, latents, routers and norms, which are replicated; all
    ranks load the union of experts. Under expert parallelism the work is that of the busiest
    rank, which is taken to have both the most experts and the most tokens.

    Examples
    --------
    >>> from specmodel.records.architecture import load_architecture
    >>> work = pass_work(load_architecture("mixtral-8x7b"), batch_size=1, tokens_per_sequence=1,
    ...                  context_length=1000)
    >>> float(work.active_experts.round(9))
    2.0
    """
    parallel.check_layout(layout, architecture)
    batch = Tokens(
        check("batch_size", batch_size, above=0),
        check("tokens_per_sequence", tokens_per_sequence, minimum=1),
        check("context_length", context_length, minimum=0),
        check("speculating_share", speculating_share, minimum=0, maximum=1),
        check("speculating_chance", speculating_chance, minimum=0, maximum=1),
    )
    a, n = architecture, layout.tensor_parallel
    tokens = batch.of_replica(layout.replicas)
    t = tokens.total
    active, routed = _routing(a, batch, routing_correlation, popularity, layout)
    shared_size = a.num_shared_experts * a.shared_expert_size / n
    h, wide, vocabulary = a.hidden_size, a.input_projection_size, a.vocabulary_size / n
    components = {
        "embedding": _embedding(a, t),
        "input_projection": _linear(a, t, wide * h / n, a.weight_dtype, wide, h / n),
        "norms": _norms(a, t),
        "attention_projections": attention_projections(a, t, n),
        ATTENTION_CORE: attention_core(a, tokens, n),
        "router": _router(a, t),
        ROUTED_EXPERTS: routed,
        "shared_experts": _ffn(a, t, shared_size, a.num_moe_layers),
        "dense_ffn": _ffn(a, t, a.dense_ffn_size / n, a.num_dense_layers),
        "lm_head": _linear(a, t, a.head_parameters / n, a.outer_dtype, h, vocabulary),
        "all_reduce": _all_reduce(a, t, layout),
        "all_to_all": _all_to_all(a, t, layout),
    }
    return PassWork({name: work for name, work in components.items() if work.kernels}, active)


def _linear(
    a: Architecture, t: FloatArray, weights: float, dtype: str, inputs: float, outputs: float
) -> Work:
    """Multiply all tokens by one matrix that is read once."""
    if not weights:
        return Work()
    arithmetic = arithmetic_dtype(a, dtype)
    return blocks.linear(
        t,
        weights=weights,
        values=inputs + outputs,
        value_bytes=BYTES_PER_ELEMENT[arithmetic],
        kernels=1,
        dtype=arithmetic,
        stored_dtype=dtype,
    )


def _embedding(a: Architecture, t: FloatArray) -> Work:
    width = a.embedding_size or a.hidden_size
    row_bytes = width * BYTES_PER_ELEMENT[a.outer_dtype] + a.hidden_size * residual_bytes(a)
    return Work(
        activation_bytes=t * row_bytes, kernels=1, kind="elementwise", dtype=a.activation_dtype
    )


def _norms(a: Architecture, t: FloatArray) -> Work:
    """Fused residual additions and norms: two tensors read, two written by each."""
    return blocks.norms(
        t,
        hidden_size=a.hidden_size,
        norms=2 * a.num_layers + 1,
        residual_bytes=residual_bytes(a),
        dtype=a.activation_dtype,
    )


def _router(a: Architecture, t: FloatArray) -> Work:
    """Scores of all experts and the choice of the top k, replicated on every GPU."""
    if not a.is_moe:
        return Work()
    return blocks.linear(
        t,
        weights=a.num_moe_layers * a.router_parameters,
        values=a.num_moe_layers * (a.hidden_size + 3 * a.num_experts),
        value_bytes=residual_bytes(a),
        kernels=a.num_moe_layers,
        dtype=arithmetic_dtype(a, a.outer_dtype),
        stored_dtype=a.outer_dtype,
    )


def _ffn(
    a: Architecture, t: FloatArray, width: float, layers: int, dtype: str | None = None
) -> Work:
    """Feed-forward blocks of `t` tokens."""
    if not width or not layers:
        return Work()
    stored = dtype or a.weight_dtype
    return blocks.feed_forward(
        t,
        hidden_size=a.hidden_size,
        width=width,
        matrices=3 if a.has_gated_ffn else 2,
        layers=layers,
        value_bytes=activation_bytes(a),
        dtype=arithmetic_dtype(a, stored),
        stored_dtype=stored,
    )


def _routing(
    a: Architecture,
    batch: Tokens,
    routing_correlation: Numeric,
    popularity: FloatArray | None,
    layout: Layout,
) -> tuple[FloatArray, Work]:
    """Return the experts that the pass loads in a layer, and their work on one GPU."""
    E, k, c = a.num_experts, a.experts_per_token, np.asarray(routing_correlation, dtype=float)
    inclusion = np.asarray(k / E) if popularity is None else check_popularity(popularity, E, k)
    q, active = batch.per_sequence, _active_experts(batch, inclusion, c, E)
    if layout.expert_parallel == 1 or not a.is_moe:
        work = _routed_experts(a, batch.total * k, active, a.expert_size / layout.tensor_parallel)
        return active, work
    ranks, T = layout.expert_parallel, batch.total
    clumping = batch.mix(q * (1 + (q - 1) * c), np.ones(())) / batch.mix(q, np.ones(()))
    within = T * clumping * (inclusion * (1 - inclusion)).mean()
    between = inclusion - inclusion.mean()
    uneven = T**2 * (between**2).mean()
    third = clumping * (within + 3 * uneven) + T**3 * (between**3).mean()
    pairs = parallel.busiest_tokens(T * k / E, within + uneven, third, E, ranks)
    loaded = parallel.busiest_experts(active, E, ranks)
    return active, _routed_experts(a, pairs, loaded, float(a.expert_size))


def _active_experts(
    batch: Tokens, inclusion: FloatArray, c: FloatArray, num_experts: int
) -> FloatArray:
    """Return the expected union of a pass in which some sequence speculates.

    The share of sequences that do is known given that any does; before that it is `share` times
    the chance, sequences are independent, and a pass in which none does is a plain one.
    """
    B, q, by_expert = batch.batch_size, batch.per_sequence, inclusion.ndim > 0
    if by_expert:
        use = experts.expert_use(q[..., None], inclusion, c[..., None])
    else:
        use = experts.expert_use(q, inclusion, c)

    def union_of(share: FloatArray) -> FloatArray:
        share = share[..., None] if by_expert else share
        mixed = inclusion + share * (use - inclusion)
        if by_expert:
            return union_by_expert(B, mixed)
        return experts.batch_active_experts(B, num_experts * mixed, num_experts)

    if batch.always_speculates:
        return union_of(batch.speculating_share)
    chance = batch.speculating_chance
    some = union_of(batch.speculating_share * chance) - (1 - chance) * union_of(np.zeros(()))
    return np.where(chance > 0, some / np.maximum(chance, 1e-300), 0.0)


def _routed_experts(a: Architecture, pairs: FloatArray, loaded: FloatArray, width: float) -> Work:
    """Add permutation and combination to the blocks where there are several experts."""
    block = _ffn(a, pairs, width, a.num_moe_layers, a.expert_dtype)
    if not a.is_moe:
        return block
    return blocks.routed(
        block,
        pairs=pairs,
        loaded=loaded,
        hidden_size=a.hidden_size,
        width=width,
        experts_per_token=a.experts_per_token,
        layers=a.num_moe_layers,
        residual_bytes=residual_bytes(a),
    )


def _all_reduce(a: Architecture, t: FloatArray, layout: Layout) -> Work:
    """Two all-reduces a layer and one after the embedding; logits are gathered.

    Where attention is data-parallel, the second of an MoE layer is part of its all-to-all, but
    for shared experts, which are cut.
    """
    n = layout.tensor_parallel
    if n == 1:
        return Work()
    message = parallel.all_reduce(n, layout.gpus_per_node)
    is_apart = layout.replicas > 1 and a.is_moe and not a.num_shared_experts
    routed_apart = a.num_moe_layers if is_apart else 0
    reductions = 2 * a.num_layers + 1 - routed_apart
    values = reductions * a.hidden_size + a.vocabulary_size / 2
    reduced = t * values * residual_bytes(a)
    return Work(
        kind="message",
        link_bytes=reduced * message.link_share,
        network_bytes=reduced * message.network_share,
        kernels=reductions + 1,
        collectives=reductions + 1,
        link_hops=(reductions + 0.5) * message.link_hops,
        network_hops=(reductions + 0.5) * message.network_hops,
    )


def _all_to_all(a: Architecture, t: FloatArray, layout: Layout) -> Work:
    """Send each token to the ranks of its experts and back, if attention is data-parallel."""
    if layout.replicas == 1 or layout.expert_parallel == 1 or not a.is_moe:
        return Work()
    ranks, layers = layout.expert_parallel, a.num_moe_layers
    message = parallel.all_to_all(ranks, layout.gpus_per_node)
    copies = layers * parallel.rank_share(a.num_experts, a.experts_per_token, ranks)
    row_bytes = a.hidden_size * (activation_bytes(a) + residual_bytes(a))
    sent = t * (copies * row_bytes / layout.tensor_parallel)
    return Work(
        kind="message",
        link_bytes=sent * message.link_share,
        network_bytes=sent * message.network_share,
        kernels=2 * layers,
        collectives=2 * layers,
        link_hops=2 * layers * message.link_hops,
        network_hops=2 * layers * message.network_hops,
    )
