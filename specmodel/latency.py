"""Seconds of a pass and of a draft-and-verify step: work on hardware plus overheads."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specmodel.deployment import Deployment
from specmodel.forward import ATTENTION_CORE, ROUTED_EXPERTS, pass_work
from specmodel.hardware import HardwareProfile
from specmodel.kernels import DATA_SHEET_KERNELS, Kernels
from specmodel.roofline import KernelParameters, smooth_maximum
from specmodel.units import FloatArray, Numeric, check
from specmodel.work import PassWork, Work

CAUSES = ("bandwidth", "compute", "experts", "KV", "communication", "overhead", "drafting")
"""What can lengthen a step beyond a plain pass."""

_MEMORY_CAUSE = {ROUTED_EXPERTS: "experts", ATTENTION_CORE: "KV"}


@dataclass(frozen=True, eq=False, repr=False)
class ComponentTime:
    """Time of one component; computing and streaming overlap, the rest adds up [s]."""

    compute_time: FloatArray
    memory_time: FloatArray
    activation_time: FloatArray | float
    link_time: FloatArray
    launch_time: FloatArray | float
    sharpness: float

    def overlapped(self, compute_time: FloatArray, memory_time: FloatArray) -> FloatArray:
        """Return the time of computing and streaming together [s]."""
        return smooth_maximum(compute_time, memory_time, self.sharpness)

    @cached_property
    def busy_time(self) -> FloatArray:
        """Time on the GPU, communication and launches left out [s]."""
        busy = self.overlapped(self.compute_time, self.memory_time)
        return np.asarray(busy + self.activation_time)

    @property
    def waiting_time(self) -> FloatArray:
        """Time of communication and launches [s]."""
        return np.asarray(self.link_time + self.launch_time)

    @property
    def total_time(self) -> FloatArray:
        """Time of the component [s]."""
        return self.busy_time + self.waiting_time


@dataclass(frozen=True, eq=False, repr=False)
class PassTime:
    """Time of one pass by component and on the host [s], and the experts it loads per layer [-]."""

    components: dict[str, ComponentTime]
    overhead_time: float
    active_experts: FloatArray

    @cached_property
    def total_time(self) -> FloatArray:
        """Time of the pass [s]."""
        parts = self.components.values()
        waiting = sum((part.waiting_time for part in parts), np.asarray(self.overhead_time))
        return np.asarray(sum((part.busy_time for part in parts), waiting))


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
    drafter, engine = deployment.drafter, deployment.engine
    B = check("batch_size", batch_size, above=0)
    gamma = check("draft_length", draft_length, minimum=0)
    chance, share = _proposals(drafter.proposal_rate, B)
    forward = known.forward if known else target_pass(deployment, B, 1.0, context_length)
    speculating = target_pass(deployment, B, verify_tokens, context_length, share, chance)
    if known is None or drafter.is_parallel:
        drafting = draft_pass(deployment, B, gamma, verify_tokens, context_length)
    else:
        drafting = known.draft_pass
    pass_seconds = drafting.total_time if drafting else np.zeros(())
    draft_seconds = drafter.lookup_time + drafter.passes(gamma) * pass_seconds
    rejection = engine.reject_time + engine.reject_time_per_request * B
    return StepTimes(
        forward=forward,
        speculating=speculating,
        draft_pass=drafting,
        speculating_chance=chance,
        verify_time=_mix(chance, speculating.total_time, forward.total_time),
        draft_time=np.where(gamma > 0, draft_seconds, 0.0),
        reject_time=np.where(gamma > 0, chance * rejection, 0.0),
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
    work = pass_work(
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
    engine = deployment.engine
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
    model, engine = deployment.drafter.architecture, deployment.engine
    if model is None:
        return None
    gamma = check("draft_length", draft_length, minimum=0)
    drafted = np.maximum(check("verify_tokens", verify_tokens, minimum=1) - 1, 1.0)
    is_chain = bool((drafted == np.maximum(gamma, 1.0)).all())
    width = np.ones(()) if is_chain else np.maximum(drafted / np.maximum(gamma, 1.0), 1.0)
    work = pass_work(
        model,
        batch_size=batch_size,
        tokens_per_sequence=drafted if deployment.drafter.is_parallel else width,
        context_length=context_length,
        routing_correlation=deployment.routing_correlation,
        popularity=deployment.draft_popularity,
        layout=deployment.draft_layout,
    )
    return pass_time(
        work,
        deployment.hardware,
        deployment.kernels,
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
        more_memory = old.overlapped(old.compute_time, new.memory_time)
        more_compute = old.overlapped(new.compute_time, old.memory_time)
        moved = new.activation_time - old.activation_time
        grown = new.busy_time - old.busy_time - moved
        crossed = more_memory - more_compute
        by_memory, by_compute = (grown + crossed) / 2, (grown - crossed) / 2
        cause = _MEMORY_CAUSE.get(name, "bandwidth")
        growth[cause] = growth[cause] + by_memory
        growth["bandwidth"] = growth["bandwidth"] + moved
        growth["compute"] = growth["compute"] + by_compute
        growth["communication"] = growth["communication"] + new.link_time - old.link_time
    return growth


def pass_time(
    work: PassWork,
    hardware: HardwareProfile,
    kernels: Kernels = DATA_SHEET_KERNELS,
    *,
    kernel_time: float = 0.0,
    pass_time: float = 0.0,
) -> PassTime:
    """Return the time of a pass from its work.

    Parameters
    ----------
    work
        Work of the pass on each GPU.
    hardware
        The GPU.
    kernels
        How kernels use it, by kind and dtype.
    kernel_time, pass_time
        Overhead of each kernel and of the pass, beyond the kernels' own [s].

    Returns
    -------
    PassTime
        Time by component.
    """
    components = {
        name: component_time(
            part, hardware, kernels.parameters(part.kind, part.stored_dtype), kernel_time
        )
        for name, part in work.components.items()
    }
    return PassTime(components, pass_time, work.active_experts)


def component_time(
    part: Work,
    hardware: HardwareProfile,
    parameters: KernelParameters,
    kernel_time: FloatArray | float = 0.0,
) -> ComponentTime:
    """Return the time of one component, or of measured kernels, from its work.

    Parameters
    ----------
    part
        What it does on each GPU.
    hardware
        The GPU.
    parameters
        How its kernels use the GPU.
    kernel_time
        Overhead of each kernel beyond its own [s].

    Returns
    -------
    ComponentTime
        Arrays of the shape of the work.
    """
    k = parameters
    bytes_per_s = hardware.memory.peak_bytes_per_s
    flops_per_s = k.compute_efficiency * hardware.peak_flops_per_s(part.dtype)
    streamed = k.tiled_weights(part.weight_bytes, part.width) + part.kv_bytes
    activation_time: FloatArray | float = 0.0
    if k.activation_efficiency is None:
        streamed = streamed + part.activation_bytes
    else:
        activation_time = part.activation_bytes / (k.activation_efficiency * bytes_per_s)
    streaming = k.ramped(streamed / (k.memory_efficiency * bytes_per_s), part.kernels)
    computed = k.tiled_arithmetic(part.flop / flops_per_s, part.rows, part.spread)
    computed = k.grouped(computed, part.groups)
    return ComponentTime(
        compute_time=np.asarray(computed),
        memory_time=np.asarray(streaming),
        activation_time=activation_time,
        link_time=_communication(part, hardware),
        launch_time=part.kernels * (k.launch_time + kernel_time),
        sharpness=k.sharpness,
    )


def _communication(part: Work, hardware: HardwareProfile) -> FloatArray:
    """Latency and bytes of what a component sends; latency does not grow with the tokens."""
    seconds: FloatArray | float = 0.0
    if part.collectives and hardware.link:
        link = hardware.link
        seconds = part.collectives * link.collective_latency + part.link_hops * link.hop_latency
        seconds = seconds + part.link_bytes / link.peak_bytes_per_s
    if part.network_hops and hardware.network:
        network = hardware.network
        seconds = seconds + part.network_hops * network.hop_latency
        seconds = seconds + part.network_bytes / network.peak_bytes_per_s
    return np.asarray(seconds)


def _proposals(rate: float, batch_size: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Chance that any sequence has a proposal, and the share that has one when any does."""
    if rate == 1:
        return np.ones(()), np.ones(())
    chance = -np.expm1(batch_size * np.log1p(-rate))
    share = np.divide(rate, chance, out=np.zeros_like(chance), where=chance > 0)
    return chance, np.minimum(share, 1.0)


def _mix(chance: FloatArray, value: FloatArray, otherwise: FloatArray) -> FloatArray:
    return otherwise + chance * (value - otherwise)
