"""Compose a draft-and-verify step from its passes, and explain its time by causes."""

from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.overlap import exposed_share
from specmodel.core.algebra.roofline import smooth_maximum
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.passes import ComponentTime, PassTime
from specmodel.core.drafters.passes import DraftPasses
from specmodel.core.layers.work import CAUSES
from specmodel.core.machines.engine import Hiding, Overheads


class DraftTime(Struct, frozen=True, eq=False):
    """Equal draft passes, and the time of each."""

    passes: DraftPasses
    each: PassTime


class Step(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Inputs of the times of a step other than its passes and the engine's overheads.

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
        Steps in which host and GPU work at the same time, as in `EngineProfile`. Whether the
        drafter runs in steps without drafts.
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
    """Times of one draft-and-verify step, and of the decode step for comparison.

    Parameters
    ----------
    plain_pass, verify_pass, draft_passes
        Decode step; verify pass of a batch in which a sequence has a proposal; passes of each part
        of the drafter (none for a look-up). All include the whole host time.
    step, engine
        Other inputs of the times, and the overheads of the engine.
    forward, speculating, drafting
        The same passes, with only the host time for which they wait.
    speculating_chance
        Chance that any sequence has a proposal, 0 without a draft [-].
    undrafted_time, verify_time
        Target pass of a step without proposals, and the mean of all target passes [s].
    draft_time
        Time of all drafting [s].
    rejection_time, reject_time
        Rejection sampling, and other host work once per draft: all of it, and the part for which
        the step waits [s].
    """

    plain_pass: PassTime
    verify_pass: PassTime
    draft_passes: tuple[DraftTime, ...]
    step: Step
    engine: Overheads
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
        """Time of a decode step [s]."""
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

    def with_passes(self, plain: PassTime, verify: PassTime) -> "StepTimes":
        """Return the step with other passes of the target."""
        return step_of(plain, verify, self.draft_passes, self.step, self.engine)

    @property
    def passes(self) -> dict[str, PassTime]:
        """Each kind of pass by its name in tables."""
        drafting = {part.passes.name: part.each for part in self.drafting}
        return {"forward": self.forward, "verify": self.speculating} | drafting

    def growth_by_cause(self) -> dict[str, FloatArray]:
        """Return the time beyond a decode step, by cause, with an exact sum [s]."""
        growth = growth_by_cause(self.forward, self.speculating)
        growth = {cause: time * self.speculating_chance for cause, time in growth.items()}
        waited = (1 - self.speculating_chance) * (self.undrafted_time - self.forward_time)
        growth["overhead"] = growth["overhead"] + self.reject_time + waited
        return growth | {"drafting": self.draft_time}

    def plain_by_cause(self) -> dict[str, FloatArray]:
        """Return the time of a decode step, by cause [s]."""
        return time_by_cause(self.forward)


def step_of(
    plain: PassTime, verify: PassTime, drafts: tuple[DraftTime, ...], step: Step, engine: Overheads
) -> StepTimes:
    r"""Return the times of a draft-and-verify step from its passes.

    .. math:: T_\mathrm{step} = \sum_j n_j T_{D,j} + T_T(B, \gamma + 1) + T_\mathrm{reject}

    Eq. 2 of MoESD, with the passes of each kind that the drafter makes instead of γ equal ones.

    A step has four terms: the time of the GPU; launches by the host of kernels that no graph
    contains; the host's time for scheduling and sampling; and look-ups. If the engine schedules the
    next step while the GPU works, the GPU hides launches and scheduling except for a share
    (`algebra.overlap`), which is the same for all host work of a step. If the engine waits
    (`EngineProfile.waits_for`), scheduling adds to the step, even without a proposal, and the GPU's
    work of each pass hides its launches. Look-ups are never hidden, as they need the tokens of the
    step before.
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
        engine=engine,
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
    """Return the share of overlapping host time for which a step with a draft waits [-]."""
    if hides not in ("all", "drafts"):
        return 1.0
    gpu, is_all = verify.gpu_time + tree_time, float(hides == "all")
    host, launches = is_all * (verify.host_time + rejection), is_all * verify.launch_time
    for part in drafts:
        gpu = gpu + part.passes.count * part.each.gpu_time
        host = host + part.passes.count * part.each.host_time
        launches = launches + part.passes.count * part.each.launch_time
    return exposed_share(gpu, host, launches)


def growth_by_cause(before: PassTime, after: PassTime) -> dict[str, FloatArray]:
    """Return by cause how much longer one pass takes than another; the causes sum exactly [s].

    This is the Shapley value of all `CAUSES` but drafting. A pass is a sum over components. In each
    component, only traffic and arithmetic act on the same time. The mean over the two orders in
    which they can change is therefore exact.
    """
    growth = {cause: np.zeros(()) for cause in CAUSES if cause != "drafting"}
    causes = after.causes | before.causes
    for name in dict.fromkeys((*before.components, *after.components)):
        old, new = _component(name, before, after), _component(name, after, before)
        more_memory = smooth_maximum(old.compute_time, new.memory_time, old.sharpness)
        more_compute = smooth_maximum(new.compute_time, old.memory_time, old.sharpness)
        moved = new.activation_time - old.activation_time
        grown = new.busy_time - old.busy_time - moved
        crossed = more_memory - more_compute
        by_memory, by_compute = (grown + crossed) / 2, (grown - crossed) / 2
        cause = causes[name]
        growth[cause] = growth[cause] + by_memory
        growth["bandwidth"] = growth["bandwidth"] + moved
        growth["compute"] = growth["compute"] + by_compute
        growth["communication"] = growth["communication"] + new.link_time - old.link_time
        growth["overhead"] = growth["overhead"] + new.launch_time - old.launch_time
    growth["overhead"] = growth["overhead"] + (after.host_time - before.host_time)
    growth["bandwidth"] = growth["bandwidth"] + (after.beside - before.beside)
    return growth


def _component(name: str, time: PassTime, other: PassTime) -> ComponentTime:
    """Return a component of a pass, with times of 0 if the pass does not run it."""
    return time.components.get(name) or other.components[name].scaled(0.0, 0.0)


def time_by_cause(time: PassTime) -> dict[str, FloatArray]:
    """Return the time of a pass by cause; the host's time is overhead [s]."""
    nothing = replace(time, names=(), timed=())
    causes = growth_by_cause(nothing, time)
    return causes | {"overhead": causes["overhead"] + time.host_time}
