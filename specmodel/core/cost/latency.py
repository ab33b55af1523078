"""Compute the passes of a draft-and-verify step on a deployment, and their times."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import log2
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.acceptance import proposals
from specmodel.core.algebra.roofline import Value
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.core.cost.attention import attention_walk
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.forward import pass_components
from specmodel.core.cost.passes import PassTime
from specmodel.core.cost.programs import Only, PassProgram
from specmodel.core.cost.steps import DraftTime, Step, StepTimes, step_of
from specmodel.core.drafters.passes import DraftPasses, Part, refuse_tokens
from specmodel.core.layers.batch import Layout, Routing, SequenceGroup, carried_by
from specmodel.core.models.architecture import Architecture


class KnownPasses(NamedTuple):
    """Passes that were timed before: a decode step, and passes of the drafter."""

    plain_pass: PassTime
    draft_passes: tuple[DraftTime, ...] = ()


class KernelErrors(Struct, frozen=True, eq=False):
    """Factors on kernels by kind and on `MESSAGES`, and one factor on the whole deployment [-]."""

    forward: Mapping[str, FloatArray]
    verify: Mapping[str, FloatArray]
    draft: Mapping[str, FloatArray]
    deployment: FloatArray | float = 1.0


def step_times(
    deployment: Deployment,
    *,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
    known: KnownPasses | None = None,
    errors: KernelErrors | None = None,
    only: Only = "all",
) -> StepTimes:
    """Return the times of a draft-and-verify step, which `step_of` computes from its passes.

    On each replica, the host looks up drafts for one sequence after another. If each sequence has a
    proposal with chance r, at least one of B has a proposal with chance ``1 - (1 - r)^B``. The
    others then have one token in the same pass.

    Parameters
    ----------
    deployment, batch_size
        What runs where, and sequences decoded together [request].
    draft_length, verify_tokens, context_length
        Tokens drafted and verified for each sequence (1 without a draft), and its KV entries before
        the step [token].
    known
        Passes of the same deployment, batch sizes and contexts at other draft lengths. Those that
        do not depend on the length are reused.
    errors, only
        Factors on the time of kernels and of passes; the components of the passes to time.

    Returns
    -------
    StepTimes
        Arrays that broadcast with the arguments. An axis that does not affect a time stays short.
    """
    d, drafter = deployment, deployment.drafter
    B = check("batch_size", batch_size, above=0)
    gamma = check("draft_length", draft_length, minimum=0)
    context = check("context_length", context_length, minimum=0)
    drafter.check_draft(gamma, verify_tokens)
    _check_chain(deployment, gamma, verify_tokens)
    tokens = check("verify_tokens", verify_tokens, minimum=1)
    plain, verified = sequences_of(d, B, tokens, context)
    forward = known.plain_pass if known else decode_pass(d, plain, B, only)
    is_tree = (gamma > 0) & ((verify_tokens != gamma + 1) | (deployment.tree_width > 1))
    speculating = decode_pass(d, verified, B * tokens, only)
    if d.engine.splits_lengths and drafter.proposal_rate < 1:
        speculating = split_by_length(d, forward, speculating, verified)
    is_idle, parts = gamma == 0, [*drafter.passes(gamma, verify_tokens)]
    if d.runs_idle_drafter and is_idle.any():
        parts.append(replace(drafter.idle_pass, count=np.asarray(is_idle, dtype=float)))
    before, drafting = known.draft_passes if known else (), []
    for part, same in zip_longest(parts, before[: len(parts)]):
        if same and np.array_equal(part.tokens_per_sequence, same.passes.tokens_per_sequence):
            drafting.append(DraftTime(part, same.each))
            continue
        way = drafter.drafting if part.part == "layers" else None
        pieces = part.architecture if way in d.engine.in_pieces else None
        is_eager, rows = way in d.engine.one_by_one, B * part.tokens_per_sequence
        each = drafting_pass(d, part, plain, only)
        each = launched(d, each, B, rows, in_pieces=pieces, is_eager=is_eager)
        drafting.append(DraftTime(part, each))
    if errors:
        common = errors.deployment
        forward = forward.scaled(errors.forward, common)
        speculating = speculating.scaled(errors.verify, common)
        drafting = [replace(part, each=part.each.scaled(errors.draft, common)) for part in drafting]
    own = d.layout.requests_of_replica(B)
    step = Step(
        draft_length=gamma,
        is_tree=is_tree,
        proposing=own * drafter.proposal_rate,
        chance=verified.speculating_chance,
        lookup_time=np.where(gamma > 0, drafter.lookup_time * own, 0.0),
        hides_host=d.hides_host,
        runs_idle_drafter=d.runs_idle_drafter,
    )
    return step_of(forward, speculating, tuple(drafting), step, d.engine_seconds)


def split_by_length(
    deployment: Deployment, plain: PassTime, whole: PassTime, verified: SequenceGroup
) -> PassTime:
    """Return the passes over a batch in which some sequences have a draft.

    If all sequences have a draft, one pass (`whole`) verifies them. Otherwise, a pass as long as
    `plain` verifies one token of each sequence. A further pass for each run of neighbouring
    sequences with a draft verifies the rest.
    """
    B, rate = verified.batch_size, deployment.drafter.proposal_rate
    tokens, chance = verified.tokens_per_sequence, np.maximum(verified.speculating_chance, 1e-300)
    runs, are_all = runs_of_proposing(B, rate), np.minimum(rate**B / chance, 1.0)
    rest = target_pass(
        deployment,
        SequenceGroup(
            batch_size=B * rate / runs,
            context_length=verified.context_length + 1,
            tokens_per_sequence=np.maximum(tokens - 1, 1.0),
        ),
    )
    passes = np.where(tokens > 1, runs / chance, 0.0)
    gpu = plain.gpu_time + passes * rest.gpu_time
    more = (1 - are_all) * (gpu - whole.gpu_time)
    host = (1 - are_all) * passes * rest.host_time
    return replace(whole, beside=whole.beside + more, host_time=whole.host_time + host)


def runs_of_proposing(slots: FloatArray, share: float) -> FloatArray:
    """Return the mean number of runs of neighbouring slots with a proposal, above 0 [-].

    Each of the `slots` has a proposal with chance `share`, independently of the others [-].
    """
    return np.maximum(share + (slots - 1) * share * (1 - share), np.finfo(float).tiny)


LAUNCHES_OF_PIECES = 4.0
"""What the host launches of a layer in pieces: a graph of what is not attention, the write of keys
and values, attention and its plan [-]."""

LAUNCHES_OF_MESSAGES = 3.0
"""How many times as long the host takes for an all-reduce of a pass without prompts, in no graph:
Python decides how (`CudaCommunicator.all_reduce`), and copies to a buffer that all ranks know first
(`CustomAllreduce.custom_all_reduce`, vLLM 0.24). With so many, steps at TP 2 err as those at TP 1
(48 layers of experts, GB200). Small passes of a draft model wait for the slowest rank each time: as
many again whenever ranks double (PARD at TP 4, GB200) [-].
"""

UNCOMPILED = 1.5
"""How many times as long the host takes for a kernel of an engine that compiles nothing either: 71
to 77 ms for a step of Qwen3-30B-A3B on H200 (vLLM 0.24), 14.4 for 16 layers of GLM-OCR on A100 [-].
"""


def launched(
    deployment: Deployment,
    time: PassTime,
    requests: FloatArray,
    tokens: FloatArray,
    *,
    in_pieces: Architecture | None = None,
    is_eager: bool = False,
    is_prompt: bool = False,
) -> PassTime:
    """Return a pass with the host's time for launches outside the engine's CUDA graphs.

    Layers of a model `in_pieces` run from piecewise graphs, without attention, up to the largest
    graph. Launches of all-reduces of prompts add no time, as the work of prompts hides them.
    """
    limit = deployment.graph_limit
    if limit is None:
        return time
    is_beyond = limit.is_beyond(requests, tokens, deployment.layout.replicas) | is_eager
    pieces = in_pieces.num_layers * LAUNCHES_OF_PIECES if in_pieces else 0.0
    if not (pieces or is_beyond.any()):
        return time
    more: Value = 0.0
    for work in time.work().components.values() if not is_prompt else ():
        if work.kind == "message":
            doubled = log2(max(work.ranks, 2)) if is_eager else 1.0
            more = more + work.kernels * (LAUNCHES_OF_MESSAGES * doubled - 1)
    each = (time.launches() + more) * (UNCOMPILED if limit.count == 0 else 1.0)
    launches = np.where(is_beyond, each, pieces)
    launch_time = deployment.engine_seconds.eager_kernel_time * launches
    return replace(time, launch_time=np.asarray(launch_time))


def decode_pass(
    deployment: Deployment, sequences: SequenceGroup, tokens: FloatArray, only: Only = "all"
) -> PassTime:
    """Return a decode step or a verify pass over `tokens` tokens, with the host's launches.

    If sizes of graphs were given, the pass is padded to the next size. Padding has no context, so
    only components that do not depend on contexts take the time of the padded size.
    """
    B, limit = sequences.batch_size, deployment.graph_limit
    time = target_pass(deployment, sequences, only)
    if limit and limit.sizes and only != "contexts":
        size = limit.padded(B, tokens, deployment.layout.replicas)
        wider = replace(sequences, batch_size=np.where(np.isinf(size), B, size))
        free = target_pass(deployment, wider, "free")
        own = target_pass(deployment, sequences, "contexts").timed if only == "all" else ()
        time = replace(time if own else free, timed=(*free.timed, *own))
    return launched(deployment, time, B, tokens)


def sequences_of(
    deployment: Deployment, batch_size: FloatArray, tokens: FloatArray, context: FloatArray
) -> tuple[SequenceGroup, SequenceGroup]:
    """Return the sequences of a decode step and of a verify pass."""
    chance, share = proposals(deployment.drafter.proposal_rate, batch_size)
    plain = SequenceGroup(batch_size=batch_size, context_length=context)
    verified = replace(
        plain, tokens_per_sequence=tokens, speculating_share=share, speculating_chance=chance
    )
    return plain, verified


def drafting_pass(
    deployment: Deployment, passes: DraftPasses, plain: SequenceGroup, only: Only = "all"
) -> PassTime:
    """Return the time of one draft pass over the sequences of a decode step."""
    sequences = replace(
        plain,
        tokens_per_sequence=passes.tokens_per_sequence,
        logits_per_sequence=passes.logits_per_sequence,
        is_causal=passes.is_causal,
    )
    model, host_passes = passes.architecture, passes.host_passes
    return draft_pass(deployment, model, sequences, passes.part, host_passes, only)


def _check_chain(deployment: Deployment, gamma: FloatArray, verify_tokens: Numeric) -> None:
    """Refuse trees where cache entries pool several tokens, or where states cannot branch."""
    model = None if deployment.states.takes_trees else deployment.recurrent_model
    why = "recurrent layers of {} carry one state from token to token. Only SGLang"
    why += " can verify trees on them"
    if model is None:
        model = deployment.compressed_model
        why = "a cache entry of {} combines consecutive tokens, so branches of a tree"
        why += " cannot share it"
    if model is None:
        return
    why = why.format(model.name)
    refuse_tokens(verify_tokens, verify_tokens != gamma + 1, f"draft_length + 1 (a chain): {why}")
    if deployment.tree_width > 1:
        raise InputError("tree_width", deployment.tree_width, f"1 (a chain): {why}")


def target_pass(
    deployment: Deployment, sequences: SequenceGroup | Sequence[SequenceGroup], only: Only = "all"
) -> PassTime:
    """Return the time of one target pass; `PassTime.work` returns its work.

    Parameters
    ----------
    deployment, sequences
        What runs where, and the sequences of the pass, in one group or several.
    only
        Components to time: "all", "contexts" for components that depend on contexts, "free" for
        the others.
    """
    d = deployment
    part: Part = "drawing" if d.temperature > 0 else "layers"
    routing = Routing(np.asarray(d.routing_correlation, float), d.popularity, d.popularity_spread)
    engine = d.engine_seconds
    seconds = engine.kernel_time, engine.host_time(1.0)
    return _timed(d, d.target, sequences, routing, d.layout, seconds, part, only)


def draft_pass(
    deployment: Deployment,
    model: Architecture,
    sequences: SequenceGroup | Sequence[SequenceGroup],
    part: Part = "layers",
    host_passes: float = 1.0,
    only: Only = "all",
) -> PassTime:
    """Return the time of one pass of the drafter, counted on the host as `host_passes` passes."""
    d, engine = deployment, deployment.engine_seconds
    popularity, spread = d.popularity, d.popularity_spread
    is_told = popularity is not None or spread is not None
    if is_told and not (d.drafter.is_head and d.target.routes_as(model)):
        popularity = spread = None
    seconds = engine.kernel_time + engine.draft_kernel_time, engine.host_time(0.0, host_passes)
    routing = Routing(np.asarray(d.routing_correlation, float), popularity, spread)
    return _timed(d, model, sequences, routing, d.draft_layout, seconds, part, only)


def _timed(
    deployment: Deployment,
    model: Architecture,
    sequences: SequenceGroup | Sequence[SequenceGroup],
    routing: Routing,
    layout: Layout,
    seconds: tuple[Value, Value],
    part: Part = "layers",
    only: Only = "all",
) -> PassTime:
    """Time a pass by the program of its model, which the deployment keeps."""
    d = deployment
    carried = carried_by(sequences, layout, routing)
    key = id(model), layout, carried.taken_by, part
    if key not in d.programs:
        gpu, taken, walk = d.hardware, carried.taken_by, attention_walk(d, model)
        how = (d.states, gpu.compute_capability, taken, part, walk, d.code)
        works = pass_components(model, layout, *how)
        program = PassProgram.of(works, gpu, d.kernels, model.experts)
        d.programs[key] = model, program  # the reference to the model keeps its id valid
    time: PassTime = d.programs[key][1].time(carried, seconds, only)
    factor = d.engine_seconds.gpu_time_factor
    return time if isinstance(factor, float) and factor == 1 else time.scaled({}, factor)
