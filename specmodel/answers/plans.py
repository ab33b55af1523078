"""A schedule as an engine runs it: up to where drafting pays or memory ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers.dialects import Dialect, dialect as dialect_of
from specmodel.answers.plan import Plan
from specmodel.answers.schedule import DEFAULT_TOLERANCE, Schedule, draft_length_schedule
from specmodel.base.errors import InputError
from specmodel.base.naming import is_id
from specmodel.base.ranges import MAX_VALUES, check_points
from specmodel.base.units import check, single
from specmodel.cost.deploying import state_slots
from specmodel.cost.deployment import Deployment, state_slots_of
from specmodel.cost.memory import MemoryUse
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture
from specmodel.prediction.case import Case, case_of, kind_of
from specmodel.prediction.predicting import plain_points, predict_deployed

if TYPE_CHECKING:
    pass

_IN_MEMORY, _MORE_FIT = "the largest that fits in memory", "though more fit in memory"
_STOPS = "where speculation stops paying"
DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""


def schedule(
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    dialect: str = "vllm",
    *,
    engine_version: str | None = None,
    max_batch_size: int | None = None,
    tolerance: float | None = None,
    **arguments: Any,
) -> Plan:
    """Schedule draft lengths for an engine, as the command does.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`.
    dialect, engine_version
        Whose configuration is written, one of `DIALECTS`, and its version where that matters.
    max_batch_size, tolerance
        As in `plan_schedule`.
    **arguments
        Those of `specmodel.predict` but for draft lengths and batch sizes.

    Examples
    --------
    >>> plan = schedule("qwen3-30b-a3b", "h200", acceptance=0.7, max_batch_size=8)
    >>> plan.schedule.ranges
    ((1, 4, 3), (5, 8, 5))
    """
    form = dialect_of(dialect, engine_version)
    case = engine_case(form, {**arguments, "target": target, "hardware": hardware})
    plan = plan_schedule(case, form, max_batch_size=max_batch_size, tolerance=tolerance)
    return replace(plan, served=str(target)) if is_id(str(target)) else plan


def with_engine(name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return arguments with an engine unless they name one, and what was assumed."""
    if arguments.get("engine") is not None:
        return {**arguments}, {}
    return {**arguments, "engine": name}, {"engine": f"{name} (fit engine takes your own runs)"}


def engine_case(form: Dialect, arguments: Mapping[str, Any], *, is_drafting: bool = True) -> Case:
    """Return the question of an engine: its times unless another is named, and its states.

    States are kept as it does, whatever the times are of, unless an engine's record says how.
    """
    name = form.name.lower()
    arguments, told = with_engine(name, arguments)
    case, slots = case_of(arguments, is_drafting=is_drafting), state_slots_of(name)
    d, kept = case.deployment, {}
    if d.recurrent_model and not d.engine.state_slots and d.states.slots != slots:
        case = case_of({**arguments, "engine.state_slots": slots}, is_drafting=is_drafting)
        kept = {"state_slots": state_slots(case.deployment.states)}
    return replace(case, assumed={**told, **case.assumed, **kept})


def plan_schedule(
    case: Case,
    dialect: Dialect,
    *,
    max_batch_size: int | None = None,
    tolerance: float | None = None,
    ends: bool = True,
) -> Plan:
    """Return the schedule of draft lengths that gains most, as an engine takes it.

    Parameters
    ----------
    case
        What runs where and how drafts fare; its contexts count alike.
    dialect
        How the engine takes a schedule, as `dialect` gives it.
    max_batch_size
        Last batch size; that which fits in memory if None, 512 at most [request].
    tolerance, ends
        Share of the best speedup that may be lost for fewer changes, 0.01 if None [-]; whether the
        schedule ends where speculation stops paying, unless it has a last batch size.
    """
    deployment, kind = case.deployment, kind_of(case.deployment)
    dialect.check_drafter(kind, kind)
    for name in ("draft_length", "batch_size"):
        if name in case.given:
            raise InputError(name, case.given[name], "none, as a schedule has all")
    load = {
        name: single(name, case.points.get(name), "one, as a schedule is for one load")
        for name in ("prompt_length", "output_length")
    }
    typed = case.points.get("context_length")
    contexts = plain_points(1, typed, **load)[0]["context_length"].ravel()
    longest = case.longest_draft()
    used: dict[str, Any] = {} if "max_draft_length" in case.given else {"max_draft_length": longest}
    used |= {"tolerance": DEFAULT_TOLERANCE} if tolerance is None else {}
    asked = _Asked(
        deployment=deployment,
        assumed={**case.assumed, **used},
        dialect=dialect,
        tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
        has_end=max_batch_size is not None,
        points={
            "acceptance": case.known_acceptance,
            "context_length": None if typed is None else contexts[:, None, None],
            **load,
        },
    )
    most, end = _last_batch(deployment, contexts.max(), longest, max_batch_size)
    check_points(
        "max_batch_size",
        {"--max-batch-size": most, "--max-draft-length": longest, "contexts": contexts.size},
        of="",
    )
    plan = _with_room(asked, asked.plan(most, end, longest))
    plan = replace(plan, freed=_freed(asked, plan))
    if not ends or asked.has_end or plan.paying == plan.schedule.batch_size.size:
        return plan
    ended = asked.plan(plan.paying, _STOPS, longest)
    return replace(ended, whole=plan.schedule, freed=plan.freed)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a plan is asked for, whatever its batch sizes; `has_end` if these are given."""

    deployment: Deployment
    assumed: Mapping[str, Any]
    dialect: Dialect
    tolerance: float
    has_end: bool
    points: dict[str, Any]

    def plan(self, last: int, end: str, longest: int) -> Plan:
        """Return the plan up to a batch size [request] with drafts up to a length [token]."""
        predicted = predict_deployed(
            self.deployment,
            self.assumed,
            draft_length=np.arange(longest + 1)[:, None],
            batch_size=np.arange(1, last + 1)[None, None],
            max_draft_length=longest,
            **self.points,
        )
        if not self.has_end:
            told = predicted.assumptions | {"max_batch_size": last}
            predicted = replace(predicted, assumptions=told)
        gain = predicted.speedup.swapaxes(1, 2)
        schedule = partial(
            draft_length_schedule,
            gain[..., 1:],
            idle_speedup=gain[..., 0],
            tolerance=self.tolerance,
        )
        unbound = schedule()
        return Plan(
            format=self.dialect,
            prediction=predicted,
            gain=gain,
            schedule=schedule(longest_first=True) if self.dialect.longest_first else unbound,
            unbound=unbound,
            end=end,
        )


def _with_room(asked: _Asked, plan: Plan) -> Plan:
    """Return a plan up to what fits with the longest draft that it makes, not one considered."""
    room, last = plan.largest, plan.schedule.batch_size.size
    if plan.end != _IN_MEMORY or plan.deployment.recurrent_model is None or room <= last:
        return plan
    end = _IN_MEMORY if room <= DEFAULT_MAX_BATCH_SIZE else _MORE_FIT
    more = asked.plan(min(room, DEFAULT_MAX_BATCH_SIZE), end, plan.gain.shape[-1] - 1)
    is_longer = more.schedule.max_draft_length > plan.schedule.max_draft_length
    return plan if is_longer else more


def _freed(asked: _Asked, plan: Plan) -> Schedule | None:
    """Return the schedule, with no longer drafts, if graphs held all steps; None if as good."""
    deployment, chosen = asked.deployment, plan.schedule
    if deployment.graph_limit is None:
        return None
    longest, last = max(chosen.max_draft_length, 1), chosen.batch_size.size
    engine = deployment.engine.with_graphs_of(last * (longest + 1))
    free = replace(asked, deployment=replace(deployment, engine=engine))
    freed = free.plan(last, plan.end, longest).schedule
    return freed if (freed.speedup > (1 + asked.tolerance) * chosen.speedup).any() else None


def _last_batch(
    deployment: Deployment, context: float, longest: int, asked: int | None
) -> tuple[int, str]:
    """Return the last batch size of the schedule [request], and why it ends there."""
    if asked is not None:
        most = check("max_batch_size", asked, minimum=1, maximum=MAX_VALUES, whole=True)
        return int(most), "as asked"
    fits = int(MemoryUse(deployment, context, longest + 1).max_batch_size)
    if 1 <= fits <= DEFAULT_MAX_BATCH_SIZE:
        return fits, _IN_MEMORY
    return DEFAULT_MAX_BATCH_SIZE, _MORE_FIT if fits else "as if they fitted"
