"""Seconds of a draft-and-verify step: its passes on a deployment, drafting and rejection."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import log2
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.algebra.acceptance import proposals
from specmodel.algebra.overlap import exposed_share
from specmodel.algebra.roofline import Value
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.attention import attention_walk
from specmodel.cost.deployment import Deployment
from specmodel.cost.forward import pass_components
from specmodel.cost.passes import PassTime, growth_by_cause, time_by_cause
from specmodel.cost.programs import Only, PassProgram
from specmodel.drafters.passes import DraftPasses, Part
from specmodel.layers.batch import Layout, Routing, SequenceGroup, carried_by
from specmodel.machines.engine import Hiding, Overheads
from specmodel.models.architecture import Architecture


class DraftTime(Struct, frozen=True, eq=False):
    """Draft passes that are alike, and the time of each of them."""

    passes: DraftPasses
    each: PassTime


class Step(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What decides the times of a step beside its passes and the engine's overheads.

    Parameters
    ----------
    draft_length, is_tree
        Tokens drafted for each sequence, and whether drafts are trees [token].
    proposing, chance
        Sequences of a replica that have a proposal, and the chance that any has: below 1 for n-gram
        look-up [-].
    lookup_time
        Host time of looking up drafts [s].
    hides_host, runs_idle_drafter
        Which steps have the host work beside the GPU, as in `EngineProfile`; whether the drafter
        runs in steps without drafts.
    """

    draft_length: FloatArray
    is_tree: np.ndarray
    proposing: FloatArray
    chance: FloatArray
    lookup_time: FloatArray
    hides_host: Hiding = "none"
    runs_idle_drafter: bool = False

    @cached_property
    def drafts(self) -> np.ndarray:
        """Whether anything is drafted."""
        return np.asarray(self.draft_length > 0)


class StepTimes(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Times of one draft-and-verify step, and of the decode step it is compared with.

    Parameters
    ----------
    plain_pass, verify_pass, draft_passes
        Decode step, verify pass of a batch in which some sequence has a proposal, passes of each
        part of the drafter (none for a look-up), with all of the host's time.
    step
        What else decides the times.
    forward, speculating, drafting
        The same passes with the host time that they wait for.
    speculating_chance
        Chance that any sequence has a proposal, 0 without a draft [-].
    undrafted_time, verify_time
        Target pass of a step in which nothing is proposed, and the mean of all target passes [s].
    draft_time
        All drafting [s].
    rejection_time, reject_time
        Rejection sampling, and whatever else the host does once a draft: all of it, and what the
        step waits for [s].
    """

    plain_pass: PassTime
    verify_pass: PassTime
    draft_passes: tuple[DraftTime, ...]
    step: Step
    forward: PassTime
    speculating: PassTime
    drafting: tuple[DraftTime, ...]
    speculating_chance: FloatArray
    undrafted_time: FloatArray
    verify_time: FloatArray
    draft_time: FloatArray
    rejection_time: FloatArray
    reject_time: FloatArray

    @property
    def forward_time(self) -> FloatArray:
        """Decode step [s]."""
        return self.forward.total_time

    @cached_property
    def step_time(self) -> FloatArray:
        """Drafting, verification and rejection [s]."""
        return self.draft_time + self.verify_time + self.reject_time

    @property
    def active_experts(self) -> FloatArray:
        """Distinct experts per layer in a decode step [-]."""
        return self.forward.active_experts

    @property
    def active_experts_verify(self) -> FloatArray:
        """Distinct experts per layer in the mean target pass of a step [-]."""
        plain = self.forward.active_experts
        return plain + self.speculating_chance * (self.speculating.active_experts - plain)

    @property
    def passes(self) -> dict[str, PassTime]:
        """Each kind of pass by its name in tables."""
        drafting = {part.passes.name: part.each for part in self.drafting}
        return {"forward": self.forward, "verify": self.speculating} | drafting

    def growth_by_cause(self) -> dict[str, FloatArray]:
        """Return what the step takes beyond a decode step, by cause; sums exactly [s]."""
        growth = growth_by_cause(self.forward, self.speculating)
        growth = {cause: time * self.speculating_chance for cause, time in growth.items()}
        waited = (1 - self.speculating_chance) * (self.undrafted_time - self.forward_time)
        growth["overhead"] = growth["overhead"] + self.reject_time + waited
        return growth | {"drafting": self.draft_time}

    def plain_by_cause(self) -> dict[str, FloatArray]:
        """Return what a decode step takes, by cause [s]."""
        return time_by_cause(self.forward)


def step_of(
    plain: PassTime, verify: PassTime, drafts: tuple[DraftTime, ...], step: Step, engine: Overheads
) -> StepTimes:
    r"""Return the times of a step from its passes, of which each waits for the host in its way.

    .. math:: T_\mathrm{step} = \sum_j n_j T_{D,j} + T_T(B, \gamma + 1) + T_\mathrm{reject}

    Where host work of steps with a draft is beside the GPU, one share of it shows in all
    passes of the step and in the rejection (`algebra.overlap.exposed_share`). Where the next step
    is scheduled only after this one for its draft, even an empty one, all of it does.
    """
    hides = step.hides_host
    waits = step.drafts & (hides in ("plain", "drafts"))
    tree_time = np.asarray(step.is_tree * engine.tree_time * engine.gpu_time_factor)
    chance = np.where(waits, 1.0, step.chance)
    rejection = engine.rejection_time(step.draft_length, step.proposing, chance)
    runs = step.drafts | step.runs_idle_drafter
    rejection = rejection if runs.all() else np.where(runs, rejection, 0.0)
    share = _share_shown(verify, drafts, tree_time, rejection, hides)
    forward = plain.taking_turns() if hides == "none" else plain.waiting()
    speculating = verify.waiting(share) if hides == "all" else verify.taking_turns()
    is_beside = hides in ("all", "drafts")
    drafting = tuple(
        replace(p, each=p.each.waiting(share) if is_beside else p.each.taking_turns())
        for p in drafts
    )
    undrafted = forward.total_time
    undrafted = undrafted + waits * (plain.taking_turns().total_time - undrafted)
    proposed = step.chance if step.drafts.all() else np.where(step.drafts, step.chance, 0.0)
    of_drafts = (part.passes.count * part.each.total_time for part in drafting)
    return StepTimes(
        plain_pass=plain,
        verify_pass=verify,
        draft_passes=drafts,
        step=step,
        forward=forward,
        speculating=speculating,
        drafting=drafting,
        speculating_chance=proposed,
        undrafted_time=undrafted,
        verify_time=undrafted + proposed * (speculating.total_time - undrafted),
        draft_time=np.asarray(sum(of_drafts, step.lookup_time + tree_time)),
        rejection_time=rejection,
        reject_time=rejection * share if hides == "all" else rejection,
    )


def _share_shown(
    verify: PassTime,
    drafts: tuple[DraftTime, ...],
    tree_time: FloatArray,
    rejection: FloatArray,
    hides: Hiding,
) -> FloatArray | float:
    """Return the share of the host's time beside the GPU that a step with a draft waits for [-]."""
    if hides not in ("all", "drafts"):
        return 1.0
    gpu, is_all = verify.gpu_time + tree_time, float(hides == "all")
    host, launches = is_all * (verify.host_time + rejection), is_all * verify.launch_time
    for part in drafts:
        gpu = gpu + part.passes.count * part.each.gpu_time
        host = host + part.passes.count * part.each.host_time
        launches = launches + part.passes.count * part.each.launch_time
    return exposed_share(gpu, host, launches)


class KnownPasses(NamedTuple):
    """Passes of a step that were timed before: a decode step, and those of the drafter."""

    plain_pass: PassTime
    draft_passes: tuple[DraftTime, ...] = ()


class KernelErrors(Struct, frozen=True, eq=False):
    """Factors on kernels by kind and on `MESSAGES`, and one of the deployment on all of it [-]."""

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
    r"""Return the times of a draft-and-verify step.

    .. math:: T_\mathrm{step} = \sum_j n_j T_{D,j} + T_T(B, \gamma + 1) + T_\mathrm{reject}

    Eq. 2 of MoESD, with each kind of the drafter's own passes in place of γ alike ones.
    The host looks up drafts one sequence after another, on each replica its own. Where only a share
    r of the sequences has a proposal, some sequence has one with chance ``1 - (1 - r)^B``; the
    others then carry one token in the same pass.

    A step has four terms: what the GPU takes; what the host launches kernel by kernel, where no
    graph holds a pass; what it takes by pass, step and request for scheduling and sampling; and
    look-ups. Where the engine schedules the next step beside the GPU, launches and scheduling are
    hidden but for a share (`algebra.overlap`) that is the same for all host work of a step; where
    it waits (`EngineProfile.waits_for`), scheduling adds, in steps without a proposal too,
    and launches are hidden by the GPU's work of their own pass. Look-ups are never hidden: they
    need the tokens of the step before.

    Parameters
    ----------
    deployment, batch_size
        What runs where, and sequences decoded together [request].
    draft_length, verify_tokens, context_length
        Tokens drafted for each sequence and verified (1 without a draft), and its KV entries
        before the step [token].
    known
        Passes of the same deployment, batch sizes and contexts at other draft lengths, of which
        those are taken that do not depend on the length.
    errors, only
        Factors on the time of kernels and of passes; which components of the passes are timed.

    Returns
    -------
    StepTimes
        Arrays that broadcast with the arguments; axes that a time does not depend on stay short.
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
    is_idle, parts = gamma == 0, [*drafter.passes(gamma, verify_tokens)]
    if d.runs_idle_drafter and is_idle.any():
        parts.append(replace(drafter.idle_pass, count=np.asarray(is_idle, dtype=float)))
    before, drafting = list(known.draft_passes) if known else [], []
    for place, part in enumerate(parts):
        tokens, same = part.tokens_per_sequence, before[place] if place < len(before) else None
        if same and np.array_equal(tokens, same.passes.tokens_per_sequence):
            drafting.append(DraftTime(part, same.each))
            continue
        model, sequences = part.architecture, drafting_sequences(part, plain)
        each = draft_pass(d, model, sequences, part.part, part.host_passes, only)
        has_layers = part.part == "layers"
        pieces = model if has_layers and drafter.drafting in d.engine.in_pieces else None
        is_eager = has_layers and drafter.drafting in d.engine.one_by_one
        each = launched(d, each, B, B * tokens, in_pieces=pieces, is_eager=is_eager)
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

    Layers of a model `in_pieces` run from piecewise graphs, without attention, as far as graphs go.
    All-reduces of prompts show no further launches, which their work hides.
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
    launch_time = deployment.engine_seconds.eager_time(launches)
    return replace(time, launch_time=np.asarray(launch_time))


def decode_pass(
    deployment: Deployment, sequences: SequenceGroup, tokens: FloatArray, only: Only = "all"
) -> PassTime:
    """Return a decode step or a verify pass of so many tokens, with the host's launches.

    It is padded to the next graph where their sizes were given. Padding has no context: what does
    not depend on contexts takes as long as that of the graph.
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


def drafting_sequences(passes: DraftPasses, plain: SequenceGroup) -> SequenceGroup:
    """Return the sequences of a draft pass, from those of a decode step."""
    return replace(
        plain,
        tokens_per_sequence=passes.tokens_per_sequence,
        logits_per_sequence=passes.logits_per_sequence,
        is_causal=passes.is_causal,
    )


def _check_chain(deployment: Deployment, gamma: FloatArray, verify_tokens: Numeric) -> None:
    """Refuse trees where cache entries pool several tokens, or where states cannot branch."""
    model = None if deployment.states.takes_trees else deployment.recurrent_model
    why = "recurrent layers of {} carry one state from token to token; of engines only SGLang"
    why += " verifies branches of a tree on them"
    if model is None:
        model = deployment.compressed_model
        why = "entries of {} are made of tokens in a row, so that branches of a tree"
        why += " cannot share one"
    if model is None:
        return
    is_tree = np.asarray(verify_tokens != gamma + 1)
    if is_tree.any():
        bad = np.broadcast_to(verify_tokens, is_tree.shape)[is_tree].item(0)
        bad = int(bad) if bad == int(bad) else bad
        expected = f"draft_length + 1, a chain: {why.format(model.name)}"
        raise InputError("verify_tokens", bad, expected)
    if deployment.tree_width > 1:
        expected = f"1, a chain: {why.format(model.name)}"
        raise InputError("tree_width", deployment.tree_width, expected)


def target_pass(
    deployment: Deployment, sequences: SequenceGroup | Sequence[SequenceGroup], only: Only = "all"
) -> PassTime:
    """Return the time of one pass of the target; its `work()` returns the work.

    Parameters
    ----------
    deployment, sequences
        What runs where, and the sequences of the pass, in one group or several.
    only
        "all" components, "contexts" for those that depend on contexts alone, "free" for the others.
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
        d.programs[key] = model, program  # which keeps the model, and so its id
    time: PassTime = d.programs[key][1].time(carried, seconds, only)
    factor = d.engine_seconds.gpu_time_factor
    return time if isinstance(factor, float) and factor == 1 else time.scaled({}, factor)
