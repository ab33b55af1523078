"""Compute the work of a forward pass, by component: FLOPs, bytes and kernels on each GPU.

One function serves all passes: decoding is verification with one token per sequence, and groups of
sequences may differ. Kernels are counted as in a serving stack with fused norms, fused gate and up
projections, and one attention kernel. All numbers are real-valued, and time is continuous in them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from specmodel.core.algebra import ranks
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric
from specmodel.core.drafters.passes import OwnWork, Part
from specmodel.core.layers import messages
from specmodel.core.layers.batch import (
    SINGLE_GPU,
    Carried,
    Layout,
    Routing,
    SequenceGroup,
    carried_by,
)
from specmodel.core.layers.blocks import Tokens, between, drawn, linear, norms
from specmodel.core.layers.embeddings import look_up
from specmodel.core.layers.engines import NO_ENGINE, EngineCode
from specmodel.core.layers.feed_forward import RoutedExperts, active_experts_of
from specmodel.core.layers.forms import Form, Quantity, measured
from specmodel.core.layers.residuals import share_apart, tokens_apart
from specmodel.core.layers.run import Pass
from specmodel.core.layers.states import NATIVE, StateKeeping
from specmodel.core.layers.work import PassWork, Walk, Work
from specmodel.core.models.architecture import Architecture


def pass_work(
    architecture: Architecture,
    sequences: SequenceGroup | Sequence[SequenceGroup],
    *,
    routing_correlation: Numeric = 0.0,
    popularity: FloatArray | None = None,
    layout: Layout = SINGLE_GPU,
    states: StateKeeping = NATIVE,
    compute_capability: float | None = None,
    part: Part = "layers",
) -> PassWork:
    """Return the work of one pass on each GPU, by component.

    Under tensor parallelism, each GPU has its share of every matrix. All GPUs have copies of
    latents, routers, norms, a draft head's projection, and of keys and values if there are fewer
    heads than GPUs. All ranks load the union of experts. If groups of GPUs share the experts, this
    is the work of the busiest group. The group is assumed to have both the most experts and the
    most tokens. If attention is data-parallel, all other components have the work of the replica
    with the most tokens. Whole experts receive their tokens by an all-to-all, split experts by
    gathering.

    Parameters
    ----------
    architecture, sequences, layout, states
        The model, one or several groups of sequences in the pass, the layout of the model over
        GPUs, and the handling of recurrent states.
    routing_correlation, popularity
        How much the tokens of one sequence share experts, and the chance that a token uses each
        expert, as in `specmodel.predict` [-].
    compute_capability
        Compute capability of the GPU, which decides its kernels; None for other devices [-].
    part
        The part of the model that runs: its layers with all around them, or a part of a drafter.

    Returns
    -------
    PassWork
        Components in the order of the pass; each field broadcasts with the arguments.
    """
    architecture.check_layout(layout)
    routing = Routing(np.asarray(routing_correlation, dtype=float), popularity)
    carried = carried_by(sequences, layout, routing)
    experts, gpu = architecture.experts, compute_capability
    works = pass_components(architecture, layout, states, gpu, carried.taken_by, part)
    return work_at(works, carried, experts)


def work_at(works: Mapping[str, Work], carried: Carried, experts: RoutedExperts | None) -> PassWork:
    """Return the work of a pass from its forms, without components that do nothing."""
    found = {name: work.at(carried) for name, work in works.items()}
    active = carried[active_experts_of(experts)] if experts else np.ones(())
    done = {name: w for name, w in found.items() if np.any(w.kernels + w.activation_bytes)}
    return PassWork(done, active)


@lru_cache(maxsize=4096)
def pass_components(
    architecture: Architecture,
    layout: Layout,
    states: StateKeeping = NATIVE,
    compute_capability: float | None = None,
    taken_by: tuple[str, ...] = ("decoding",),
    part: Part = "layers",
    walk: Walk | None = None,
    code: EngineCode = NO_ENGINE,
) -> Mapping[str, Work]:
    """Return the work of a pass by component, as sums of measures of its sequences.

    Arguments are described in `pass_work`. `taken_by` names the kernels that process any of the
    sequences. `walk` is the result of `cost.attention.attention_walk`.
    """
    architecture.check_layout(layout)
    run = Pass(architecture.stream, layout, states, compute_capability, taken_by, walk, code)
    work_of = _WORKS[part] if isinstance(part, str) else part
    components = work_of(architecture, run)
    return {n: w for n, w in components.items() if isinstance(w.kernels, Form) or w.kernels}


def _whole(a: Architecture, run: Pass) -> dict[str, Work]:
    """Return the components of all layers, of the embedding and of the LM head."""
    h, n = a.hidden_size, run.layout.tensor_parallel
    components = {
        "embedding": look_up(run, width=a.embedding_size or h, made=h, dtype=a.activation_dtype),
        **_projection(a, run),
        "norms": _norms(a, run),
    }
    for name, work in _of_layers(a, run):
        _add(components, name, work)
    if a.head_clusters is None:
        weights, logits = a.head_parameters / n, a.vocabulary_size / n
        t = run.replica.num_logits
        head_dtype = a.head_dtype or a.outer_dtype
        components["lm_head"] = _linear(run, t, weights, head_dtype, h, logits)
    components["all_reduce"] = _all_reduce(a, run)
    return components


def _projection(a: Architecture, run: Pass) -> dict[str, Work]:
    """Return the product that projects features of the target to the input of a draft head."""
    h, wide, dtype = a.hidden_size, a.input_projection_size, a.input_projection_dtype
    return {"input_projection": _linear(run, run.num_tokens, wide * h, dtype, wide, h)}


def _context(a: Architecture, run: Pass) -> dict[str, Work]:
    """Return the components that compute keys and values of all layers from target features.

    One product serves all layers. If weights of grouped heads are quantised, each layer has its
    own. One kernel normalises and one rotates the keys of all layers. Each layer stores its keys
    with a further kernel (``qwen3_dflash``, ``dspark_mla`` and ``deepseek_v4/nvidia/dspark`` in
    vLLM 0.33).
    """
    h, n = a.hidden_size, run.layout.tensor_parallel
    components = _projection(a, run) | {"norms": norms(run, 1)}
    for stored, layers in a.parts.items():
        if not stored.part.is_mixer:
            continue
        found = stored.part.context_matrices(stored.stream, n)
        if found is None:
            kind = stored.part.kind.replace("_", " ")
            raise InputError("drafter", f"{a.name}, with {kind}", "attention with a cache")
        (weights, made, is_whole), dtype = found, stored.stream.weight_dtype
        product = _linear(run, run.num_tokens, layers * weights, dtype, h, layers * made)
        first = "context_projections" not in components
        count = int(first) if is_whole else layers
        product = replace(product, kernels=count, depth=count * h)
        kept = between(run, layers, _CONTEXT_MOVED * made, kernels=1)
        shared = int(first) * _CONTEXT_KERNELS
        _add(components, "context_projections", product)
        _add(components, "elementwise", replace(kept, kernels=kept.kernels + shared))
    return components


_CONTEXT_MOVED, _CONTEXT_KERNELS = 6, 3
"""How often an element of a new entry is read or written after its product (split, keys normed and
rotated, stored), and kernels that do so for all layers [-]."""


def _of_layers(a: Architecture, run: Pass) -> Iterator[tuple[str, Work]]:
    """Yield the components of all layers by name, each part run in its own dtypes."""
    runs = {a.stream: run}
    for stored, layers in a.parts.items():
        if stored.stream not in runs:
            runs[stored.stream] = replace(run, stream=stored.stream)
        yield from stored.work(runs[stored.stream], layers).items()
    for extra in a.extras:
        yield from extra.work(run, a.around).items()


def _add(components: dict[str, Work], name: str, work: Work) -> None:
    """Add the work of some layers; weights of another dtype make a separate component."""
    same = components.get(name)
    if same is None:
        components[name] = work
    elif (same.dtype, same.stored_dtype) == (work.dtype, work.stored_dtype):
        components[name] = same + work
    else:
        _add(components, f"{name}_{work.stored_dtype}", work)


def _linear(
    run: Pass, t: Quantity, weights: float, dtype: str, inputs: float, outputs: float
) -> Work:
    """Multiply tokens by one matrix that is read once."""
    if not weights:
        return Work()
    tokens, values = Tokens(run.stream, t), inputs + outputs
    return linear(tokens, 1, weights=weights, values=values, depth=inputs, dtype=dtype)


def _drawing(a: Architecture, run: Pass) -> dict[str, Work]:
    """Return all components, and the sampling of tokens, which every GPU repeats."""
    sampling = drawn(run.replica.num_logits, a.vocabulary_size, a.activation_dtype)
    return _whole(a, run) | {"sampling": sampling}


def _norms(a: Architecture, run: Pass) -> Work:
    """Return the work of norms, without the norms that kernels of all-reduces do."""
    work = norms(run, a.num_norms - sum(extra.fused_norms(a.around) for extra in a.extras))
    gpus, row_bytes = run.layout.tensor_parallel, a.stream.residual_bytes * a.hidden_size
    most = run.code.normed_tokens(a.name, run.compute_capability, gpus, row_bytes)
    inside = min(_reductions(a, run.layout), work.kernels) if most else 0
    if not inside:
        return work
    read = run.num_tokens - measured(tokens_apart, most)
    return replace(
        work,
        activation_bytes=work.activation_bytes - read * (inside * row_bytes),
        kernels=work.kernels - (1 - measured(share_apart, most)) * inside,
    )


def _reductions(a: Architecture, layout: Layout) -> int:
    """Return the number of all-reduces of blocks and of the embedding on several GPUs [-]."""
    of_blocks = sum(part.reductions(layout) * n for part, n in a.feed_forwards.items())
    return of_blocks + sum(n for mixer, n in a.mixers.items() if mixer.output_size) + 1


_SQUARES_BYTES = 8
"""Sums of squares of a token's queries and of its keys, in 32 bits [B]."""


def _all_reduce(a: Architecture, run: Pass) -> Work:
    """Return an all-reduce after each mixer, each feed-forward block and the embedding.

    Logits, and the inputs that each layer reads from the embedding, are gathered, which sends half
    the bytes of an all-reduce. Embedding tables of the layers count as one more embedding.
    """
    layout = run.layout
    if layout.tensor_parallel == 1:
        return Work()
    message = ranks.all_reduce(layout.tensor_parallel, layout.gpus_per_node)
    of_extras = [extra.reduced(a.around) for extra in a.extras]
    summed, made = [size for size, _ in of_extras if size], [size for _, size in of_extras if size]
    reductions, size = _reductions(a, layout), a.stream.residual_bytes
    normed = sum(n for mixer, n in a.mixers.items() if mixer.norms_all_heads)
    reduced = messages.all_reduces(
        message,
        run.num_tokens
        * ((reductions * a.hidden_size + sum(summed)) * size + normed * _SQUARES_BYTES),
        count=reductions + len(summed) + normed,
        ranks=min(layout.tensor_parallel, layout.gpus_per_node),
    )
    logits = run.replica.num_logits * (0 if a.head_clusters else a.vocabulary_size / 2 * size)
    gathered = logits + run.num_tokens * (sum(made) / 2 * size)
    count = (a.head_clusters is None) + len(made)
    return reduced + messages.message(message, gathered, collectives=count, rounds=count / 2)


_WORKS: dict[str, OwnWork] = {
    "layers": _whole,
    "drawing": _drawing,
    "projection": _projection,
    "context": _context,
}
"""Components by the part of a model that runs."""
