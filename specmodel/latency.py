"""Seconds of a pass and of a draft-and-verify step: work on hardware plus overheads."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specmodel.deployment import Deployment
from specmodel.forward import (
    ATTENTION_CORE,
    ROUTED_EXPERTS,
    PassWork,
    pass_work,
)
from specmodel.hardware import HardwareProfile
from specmodel.roofline import SHARPNESS, smooth_maximum
from specmodel.units import FloatArray, Numeric, check

CAUSES = ("bandwidth", "compute", "experts", "KV", "communication", "overhead", "drafting")
"""What can lengthen a step beyond a plain pass."""

_MEMORY_CAUSE = {ROUTED_EXPERTS: "experts", ATTENTION_CORE: "KV"}


@dataclass(frozen=True, eq=False, repr=False)
class ComponentTime:
    """Time of one component; computing and reading memory overlap, the rest adds up [s]."""

    compute_time: FloatArray
    memory_time: FloatArray
    link_time: FloatArray
    launch_time: float

    @cached_property
    def total_time(self) -> FloatArray:
        """Time of the component [s]."""
        busy = smooth_maximum(self.compute_time, self.memory_time, SHARPNESS)
        return busy + self.link_time + self.launch_time


@dataclass(frozen=True, eq=False, repr=False)
class PassTime:
    """Time of one pass by component, and the host overhead of the pass [s]."""

    components: dict[str, ComponentTime]
    overhead_time: float

    @cached_property
    def total_time(self) -> FloatArray:
        """Time of the pass [s]."""
        total = sum((part.total_time for part in self.components.values()), np.zeros(()))
        return np.asarray(total + self.overhead_time)


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
    active_experts, active_experts_verify
        Distinct experts per layer in a plain pass and in the mean target pass of a step [-].
    """

    forward: PassTime
    speculating: PassTime
    draft_pass: PassTime | None
    speculating_chance: FloatArray
    verify_time: FloatArray
    draft_time: FloatArray
    reject_time: FloatArray
    active_experts: FloatArray
    active_experts_verify: FloatArray

    @property
    def forward_time(self) -> FloatArray:
        """Plain pass [s]."""
        return self.forward.total_time

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


def pass_time(
    work: PassWork, hardware: HardwareProfile, dtype: str, *, kernel_time: float, pass_time: float
) -> PassTime:
    """Return the time of a pass from its work.

    Parameters
    ----------
    work
        Work of the pass on each GPU.
    hardware
        The GPU.
    dtype
        Dtype of the activations; arithmetic runs in it or in the next wider one.
    kernel_time, pass_time
        Overhead of each kernel and of the pass [s].

    Returns
    -------
    PassTime
        Time by component.
    """
    peak_flops_per_s = hardware.dtype[hardware.compute_dtype(dtype)].peak_flops_per_s  # type: ignore[index]  # a str is a Dtype here
    link_bytes_per_s = hardware.link.peak_bytes_per_s if hardware.link else np.inf
    components = {
        name: ComponentTime(
            np.asarray(part.flop / peak_flops_per_s),
            part.memory_bytes / hardware.memory.peak_bytes_per_s,
            np.asarray(part.link_bytes / link_bytes_per_s),
            part.kernels * kernel_time,
        )
        for name, part in work.components.items()
    }
    return PassTime(components, pass_time)


def step_times(
    deployment: Deployment,
    *,
    batch_size: Numeric,
    draft_length: Numeric,
    verify_tokens: Numeric,
    context_length: Numeric,
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
    d, engine = deployment, deployment.engine
    B = check("batch_size", batch_size, above=0)
    gamma = check("draft_length", draft_length, minimum=0)
    context = check("context_length", context_length, minimum=0)
    chance, share = _proposals(d.drafter.proposal_rate, B)

    def run(q: Numeric, share: Numeric) -> tuple[PassTime, FloatArray]:
        work = pass_work(
            d.target,
            batch_size=B,
            tokens_per_sequence=q,
            context_length=context,
            routing_correlation=d.routing_correlation,
            speculating_share=share,
            tensor_parallel=d.tensor_parallel,
        )
        time = pass_time(
            work,
            d.hardware,
            d.target.activation_dtype,
            kernel_time=engine.kernel_time,
            pass_time=engine.pass_time,
        )
        return time, work.active_experts

    forward, active = run(1.0, 1.0)
    speculating, active_speculating = run(verify_tokens, share)
    drafting = draft_pass(d, B, gamma, context)
    pass_seconds = drafting.total_time if drafting else np.zeros(())
    draft_seconds = d.drafter.lookup_time + d.drafter.passes(gamma) * pass_seconds
    is_speculating = gamma > 0
    rejection = engine.reject_time + engine.reject_time_per_request * B
    return StepTimes(
        forward=forward,
        speculating=speculating,
        draft_pass=drafting,
        speculating_chance=chance,
        verify_time=_mix(chance, speculating.total_time, forward.total_time),
        draft_time=np.where(is_speculating, draft_seconds, 0.0),
        reject_time=np.where(is_speculating, chance * rejection, 0.0),
        active_experts=active,
        active_experts_verify=_mix(chance, active_speculating, active),
    )


def draft_pass(
    deployment: Deployment, batch_size: Numeric, draft_length: Numeric, context_length: Numeric
) -> PassTime | None:
    """Return the time of one pass of the drafter; None where nothing runs on the GPU.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size, draft_length, context_length
        As in `step_times`; the length matters to a parallel head only.

    Returns
    -------
    PassTime or None
        Time by component.
    """
    drafter, engine = deployment.drafter, deployment.engine
    if drafter.architecture is None:
        return None
    gamma = np.maximum(np.asarray(draft_length, dtype=float), 1.0)
    work = pass_work(
        drafter.architecture,
        batch_size=batch_size,
        tokens_per_sequence=gamma if drafter.is_parallel else 1.0,
        context_length=context_length,
        routing_correlation=deployment.routing_correlation,
        tensor_parallel=deployment.draft_degree,
    )
    return pass_time(
        work,
        deployment.hardware,
        drafter.architecture.activation_dtype,
        kernel_time=engine.kernel_time,
        pass_time=engine.draft_pass_time,
    )


def growth_by_cause(before: PassTime, after: PassTime) -> dict[str, FloatArray]:
    """Return by cause how much longer one pass takes than another; the causes sum exactly.

    Parameters
    ----------
    before, after
        Two passes of one model.

    Returns
    -------
    dict
        Seconds for each of `CAUSES` but drafting [s].

    Notes
    -----
    The Shapley value of the causes. A pass is a sum over components, and in each only two causes
    act on the same time, its traffic and its arithmetic, so that the mean over the two orders of
    changing them is exact.
    """
    growth = {cause: np.zeros(()) for cause in CAUSES if cause != "drafting"}
    for name, old in before.components.items():
        new = after.components[name]
        busy = {
            (memory, compute): smooth_maximum(
                (old, new)[compute].compute_time, (old, new)[memory].memory_time, SHARPNESS
            )
            for memory in (0, 1)
            for compute in (0, 1)
        }
        by_memory = (busy[1, 0] - busy[0, 0] + busy[1, 1] - busy[0, 1]) / 2
        by_compute = (busy[0, 1] - busy[0, 0] + busy[1, 1] - busy[1, 0]) / 2
        cause = _MEMORY_CAUSE.get(name, "bandwidth")
        growth[cause] = growth[cause] + by_memory
        growth["compute"] = growth["compute"] + by_compute
        growth["communication"] = growth["communication"] + new.link_time - old.link_time
    return growth


def _proposals(rate: float, batch_size: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Chance that any sequence has a proposal, and the share that has one when any does."""
    if rate == 1:
        return np.ones(()), np.ones(())
    chance = -np.expm1(batch_size * np.log1p(-rate))
    share = np.divide(rate, chance, out=np.zeros_like(chance), where=chance > 0)
    return chance, np.minimum(share, 1.0)


def _mix(chance: FloatArray, value: FloatArray, otherwise: FloatArray) -> FloatArray:
    return otherwise + chance * (value - otherwise)
