"""Seconds of a draft-and-verify step: its passes on a deployment, drafting and rejection."""

from dataclasses import dataclass

import numpy as np

from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.deployment import Deployment
from specmodel.cost.forward import pass_work
from specmodel.cost.passes import PassTime, growth_by_cause, pass_time
from specmodel.cost.work import PassWork


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepTimes:
    """Times of one draft-and-verify step, and of the plain pass it is compared with.

    Parameters
    ----------
    forward, speculating
        Plain pass, and verify pass of a batch in which some sequence has a proposal.
    draft_pass
        One pass of the drafter; None for a look-up on the host.
    speculating_chance
        Chance that any sequence has one; below 1 only for n-gram look-up [-].
    verify_time, draft_time, reject_time
        Mean target pass of a step, all drafting, rejection sampling [s].
    """

    forward: PassTime
    speculating: PassTime
    draft_pass: PassTime | None
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

    @property
    def step_time(self) -> FloatArray:
        """Drafting, verification and rejection [s]."""
        return self.draft_time + self.verify_time + self.reject_time

    def growth_by_cause(self) -> dict[str, FloatArray]:
        """Return what the step takes beyond a plain pass, by cause; sums exactly [s]."""
        growth = growth_by_cause(self.forward, self.speculating)
        growth = {cause: time * self.speculating_chance for cause, time in growth.items()}
        growth["overhead"] = growth["overhead"] + self.reject_time
        return growth | {"drafting": self.draft_time}


def step_times(
    deployment: Deployment,
    *,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
    known: StepTimes | None = None,
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
    drafter = deployment.drafter
    B = check("batch_size", batch_size, above=0)
    gamma = check("draft_length", draft_length, minimum=0)
    chance, share = _proposals(drafter.proposal_rate, B)
    forward = known.forward if known else target_pass(deployment, B, 1.0, context_length)
    speculating = target_pass(deployment, B, verify_tokens, context_length, share, chance)
    if known is None or drafter.is_parallel:
        drafting = draft_pass(deployment, B, gamma, verify_tokens, context_length)
    else:
        drafting = known.draft_pass
    return combine_passes(deployment, B, gamma, (forward, speculating, drafting))


def combine_passes(
    deployment: Deployment,
    batch_size: FloatArray,
    draft_length: FloatArray,
    passes: tuple[PassTime, PassTime, PassTime | None],
) -> StepTimes:
    """Return the times of a step from those of its passes.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size, draft_length
        As for `step_times` [request] [token].
    passes
        Plain, speculating and draft pass.

    Returns
    -------
    StepTimes
        With all drafting and rejection sampling of the step.
    """
    drafter, engine = deployment.drafter, deployment.engine_seconds
    B, gamma, (forward, speculating, drafting) = batch_size, draft_length, passes
    chance, _ = _proposals(drafter.proposal_rate, B)
    pass_seconds = drafting.total_time if drafting else np.zeros(())
    draft_seconds = drafter.lookup_time + drafter.passes(gamma) * pass_seconds
    by_request = engine.reject_time_per_request + engine.reject_time_per_token * gamma
    drafted = B * drafter.proposal_rate / deployment.layout.replicas
    rejection = chance * engine.reject_time + by_request * drafted
    return StepTimes(
        forward=forward,
        speculating=speculating,
        draft_pass=drafting,
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
        batch_size,
        tokens_per_sequence,
        context_length,
        speculating_share,
        speculating_chance,
    )
    engine = deployment.engine_seconds
    return pass_time(
        work,
        deployment.hardware,
        deployment.kernels,
        kernel_time=engine.kernel_time,
        pass_time=engine.pass_time,
    )


def draft_pass(
    deployment: Deployment,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
) -> PassTime | None:
    """Return the time of one pass of the drafter; None where nothing runs on the GPU.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size, draft_length, verify_tokens, context_length
        As in `step_times`; a pass carries one token of each sequence, the width of a tree, or
        all that a parallel head drafts [request] [token] [token] [token].

    Returns
    -------
    PassTime or None
        Time by component.
    """
    work = _draft_work(deployment, batch_size, draft_length, verify_tokens, context_length)
    if work is None:
        return None
    engine = deployment.engine_seconds
    return pass_time(
        work,
        deployment.hardware,
        deployment.kernels,
        kernel_time=engine.kernel_time + engine.draft_kernel_time,
        pass_time=engine.draft_pass_time,
    )


def step_work(
    deployment: Deployment,
    *,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
) -> dict[str, PassWork | None]:
    """Return the work of the passes whose times `step_times` returns.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size, draft_length, verify_tokens, context_length
        As for `step_times` [request] [token] [token] [token].

    Returns
    -------
    dict
        By the names of the passes in `StepTimes`: forward, speculating and draft_pass.
    """
    B = check("batch_size", batch_size, above=0)
    chance, share = _proposals(deployment.drafter.proposal_rate, B)
    return {
        "forward": _target_work(deployment, B, 1.0, context_length),
        "speculating": _target_work(deployment, B, verify_tokens, context_length, share, chance),
        "draft_pass": _draft_work(deployment, B, draft_length, verify_tokens, context_length),
    }


def _target_work(
    deployment: Deployment,
    batch_size: Numeric,
    tokens_per_sequence: Numeric,
    context_length: Numeric,
    speculating_share: Numeric = 1.0,
    speculating_chance: Numeric = 1.0,
) -> PassWork:
    return pass_work(
        deployment.target,
        batch_size=batch_size,
        tokens_per_sequence=tokens_per_sequence,
        context_length=context_length,
        routing_correlation=deployment.routing_correlation,
        popularity=deployment.popularity,
        speculating_share=speculating_share,
        speculating_chance=speculating_chance,
        layout=deployment.layout,
    )


def _draft_work(
    deployment: Deployment,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
) -> PassWork | None:
    model = deployment.drafter.architecture
    if model is None:
        return None
    gamma = check("draft_length", draft_length, minimum=0)
    drafted = np.maximum(check("verify_tokens", verify_tokens, minimum=1) - 1, 1.0)
    is_chain = bool((drafted == np.maximum(gamma, 1.0)).all())
    width = np.ones(()) if is_chain else np.maximum(drafted / np.maximum(gamma, 1.0), 1.0)
    return pass_work(
        model,
        batch_size=batch_size,
        tokens_per_sequence=drafted if deployment.drafter.is_parallel else width,
        context_length=context_length,
        routing_correlation=deployment.routing_correlation,
        popularity=deployment.draft_popularity,
        layout=deployment.draft_layout,
    )


def _proposals(rate: FloatArray | float, batch_size: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Chance that any sequence has a proposal, and the share that has one when any does."""
    if np.ndim(rate) == 0 and rate == 1:
        return np.ones(()), np.ones(())
    with np.errstate(divide="ignore"):
        chance = -np.expm1(batch_size * np.log1p(-rate))
    share = np.divide(rate, chance, out=np.zeros_like(chance), where=chance > 0)
    return chance, np.minimum(share, 1.0)


def _mix(chance: FloatArray, value: FloatArray, otherwise: FloatArray) -> FloatArray:
    return otherwise + chance * (value - otherwise)
