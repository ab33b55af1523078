"""Seconds of a draft-and-verify step: its passes on a deployment, drafting and rejection."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from specmodel.algebra.speculation import proposals
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.deployment import Deployment
from specmodel.cost.forward import pass_work
from specmodel.cost.passes import PassTime, growth_by_cause, pass_time
from specmodel.records.drafters import DraftPasses
from specmodel.records.layers.batch import sequence_group
from specmodel.records.layers.work import PassWork

_Part = TypeVar("_Part")


@dataclass(frozen=True, eq=False, repr=False)
class DraftTime:
    """Time of draft passes that are alike, and how many a step has [-]."""

    each: PassTime
    tokens_per_sequence: FloatArray
    count: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepTimes:
    """Times of one draft-and-verify step, and of the plain pass it is compared with.

    Parameters
    ----------
    forward, speculating
        Plain pass, and verify pass of a batch in which some sequence has a proposal.
    drafting
        Passes of the drafter, an entry for each of its parts; none for a look-up on the host.
    speculating_chance
        Chance that any sequence has one; below 1 only for n-gram look-up [-].
    verify_time, draft_time, reject_time
        Mean target pass of a step, all drafting, rejection sampling [s].
    """

    forward: PassTime
    speculating: PassTime
    drafting: tuple[DraftTime, ...]
    speculating_chance: FloatArray
    verify_time: FloatArray
    draft_time: FloatArray
    reject_time: FloatArray

    @property
    def forward_time(self) -> FloatArray:
        """Plain pass [s]."""
        return self.forward.total_time

    @property
    def active_experts_verify(self) -> FloatArray:
        """Distinct experts per layer in the mean target pass of a step [-]."""
        plain, speculating = self.forward.active_experts, self.speculating.active_experts
        return _mix(self.speculating_chance, speculating, plain)

    @cached_property
    def step_time(self) -> FloatArray:
        """Drafting, verification and rejection [s]."""
        return self.draft_time + self.verify_time + self.reject_time

    @property
    def passes(self) -> dict[str, PassTime]:
        """Each kind of pass by what tables call it."""
        drafting = {name: part.each for name, part in _numbered(self.drafting).items()}
        return {"forward": self.forward, "verify": self.speculating} | drafting

    def growth_by_cause(self) -> dict[str, FloatArray]:
        """Return what the step takes beyond a plain pass, by cause; sums exactly [s]."""
        growth = growth_by_cause(self.forward, self.speculating)
        growth = {cause: time * self.speculating_chance for cause, time in growth.items()}
        growth["overhead"] = growth["overhead"] + self.reject_time
        return growth | {"drafting": self.draft_time}


@dataclass(frozen=True, eq=False, repr=False)
class KernelErrors:
    """How many times as long kernels of each kind take in each pass of a step [-]."""

    forward: Mapping[str, FloatArray]
    verify: Mapping[str, FloatArray]
    draft: Mapping[str, FloatArray]


def step_times(
    deployment: Deployment,
    *,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
    known: StepTimes | None = None,
    errors: KernelErrors | None = None,
) -> StepTimes:
    """Return the times of a draft-and-verify step.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size
        Sequences decoded together, any shape [request].
    draft_length
        Tokens drafted per sequence, 0 for none [token].
    verify_tokens
        Tokens of each sequence in the verify pass; 1 where `draft_length` is 0 [token].
    context_length
        KV entries of each sequence before the step [token].
    known
        Times of the same deployment, batch sizes and contexts at other draft lengths: passes
        that do not depend on the length are taken from there.
    errors
        Factors on the time of kernels.

    Returns
    -------
    StepTimes
        Arrays that broadcast with the arguments; axes that a time does not depend on stay short.

    Notes
    -----
    Eq. 2 of MoESD, with ``γ T_D(B, 1)`` for a drafter that makes a pass for each token. Where
    only a share r of the sequences has a proposal, some sequence has one with chance
    ``1 - (1 - r)^B``; the others then carry one token in the same pass.
    """
    drafter, engine = deployment.drafter, deployment.engine_seconds
    B = check("batch_size", batch_size, above=0)
    gamma = check("draft_length", draft_length, minimum=0)
    rate = drafter.proposal_rate
    chance, share = proposals(rate, B)
    forward = known.forward if known else target_pass(deployment, B, 1.0, context_length)
    speculating = target_pass(deployment, B, verify_tokens, context_length, share, chance)
    parts = drafter.passes(gamma, verify_tokens)
    drafting = tuple(
        _draft_time(deployment, part, B, context_length, known.drafting[place] if known else None)
        for place, part in enumerate(parts)
    )
    if errors:
        forward, speculating = forward.scaled(errors.forward), speculating.scaled(errors.verify)
        drafting = tuple(replace(part, each=part.each.scaled(errors.draft)) for part in drafting)
    seconds = (part.count * part.each.total_time for part in drafting)
    draft_seconds = sum(seconds, np.asarray(drafter.lookup_time))
    by_request = engine.reject_time_per_request + engine.reject_time_per_token * gamma
    rejection = chance * engine.reject_time + by_request * (B * rate / deployment.layout.replicas)
    return StepTimes(
        forward=forward,
        speculating=speculating,
        drafting=drafting,
        speculating_chance=chance,
        verify_time=_mix(chance, speculating.total_time, forward.total_time),
        draft_time=np.where(gamma > 0, draft_seconds, 0.0),
        reject_time=np.where(gamma > 0, rejection, 0.0),
    )


def target_pass(
    deployment: Deployment,
    batch_size: Numeric,
    tokens_per_sequence: Numeric,
    context_length: Numeric,
    speculating_share: Numeric = 1.0,
    speculating_chance: Numeric = 1.0,
) -> PassTime:
    """Return the time of one pass of the target.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size, tokens_per_sequence, context_length
        What the pass carries, broadcasting [request] [token] [token].
    speculating_share, speculating_chance
        Share of the sequences that carry `tokens_per_sequence`, the others carry one, and the
        chance that any does [-].

    Returns
    -------
    PassTime
        Time by component.
    """
    work = _target_work(
        deployment,
        batch_size=batch_size,
        tokens_per_sequence=tokens_per_sequence,
        context_length=context_length,
        speculating_share=speculating_share,
        speculating_chance=speculating_chance,
    )
    engine = deployment.engine_seconds
    return pass_time(
        work,
        deployment.hardware,
        deployment.kernels,
        kernel_time=engine.kernel_time,
        pass_time=engine.pass_time,
    )


def step_work(
    deployment: Deployment,
    *,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
) -> dict[str, PassWork]:
    """Return the work of the passes of a step.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size, draft_length, verify_tokens, context_length
        As for `step_times` [request] [token] [token] [token].

    Returns
    -------
    dict
        By the names of `StepTimes.passes`.
    """
    B = check("batch_size", batch_size, above=0)
    chance, share = proposals(deployment.drafter.proposal_rate, B)
    shape = {"batch_size": B, "context_length": context_length}
    verify = shape | {"speculating_share": share, "speculating_chance": chance}
    parts = _numbered(deployment.drafter.passes(draft_length, verify_tokens))
    return {
        "forward": _target_work(deployment, **shape),
        "verify": _target_work(deployment, **verify, tokens_per_sequence=verify_tokens),
    } | {name: _draft_work(deployment, part, B, context_length) for name, part in parts.items()}


def _draft_time(
    deployment: Deployment,
    part: DraftPasses,
    batch_size: FloatArray,
    context_length: Numeric,
    known: DraftTime | None,
) -> DraftTime:
    """Time draft passes that are alike, unless passes of as many tokens are known."""
    tokens = part.tokens_per_sequence
    is_same = known is not None and tokens.ndim == known.tokens_per_sequence.ndim == 0
    if known and is_same and tokens == known.tokens_per_sequence:
        return DraftTime(known.each, tokens, part.count)
    engine = deployment.engine_seconds
    each = pass_time(
        _draft_work(deployment, part, batch_size, context_length),
        deployment.hardware,
        deployment.kernels,
        kernel_time=engine.kernel_time + engine.draft_kernel_time,
        pass_time=engine.draft_pass_time,
    )
    return DraftTime(each, tokens, part.count)


def _target_work(deployment: Deployment, **sequences: Numeric) -> PassWork:
    return pass_work(
        deployment.target,
        sequence_group(**sequences),
        routing_correlation=deployment.routing_correlation,
        popularity=deployment.popularity,
        layout=deployment.layout,
    )


def _draft_work(
    deployment: Deployment, part: DraftPasses, batch_size: FloatArray, context_length: Numeric
) -> PassWork:
    model = part.architecture
    group = sequence_group(
        batch_size=batch_size,
        tokens_per_sequence=part.tokens_per_sequence,
        context_length=context_length,
    )
    has_targets_experts = deployment.drafter.is_head and model.is_moe
    return pass_work(
        model,
        group,
        routing_correlation=deployment.routing_correlation,
        popularity=deployment.popularity if has_targets_experts else None,
        layout=deployment.draft_layout,
    )


def _numbered(parts: tuple[_Part, ...]) -> dict[str, _Part]:
    """Name the parts of a drafter: draft pass, draft pass 2, and so on."""
    return {f"draft pass {i}" if i > 1 else "draft pass": part for i, part in enumerate(parts, 1)}


def _mix(chance: FloatArray, value: FloatArray, otherwise: FloatArray) -> FloatArray:
    return otherwise + chance * (value - otherwise)
