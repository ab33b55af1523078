"""A schedule as an engine runs it: up to where drafting pays or memory ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from specmodel.answers.config_formats import ConfigFormat
from specmodel.answers.plan import AS_ASKED, Plan
from specmodel.answers.schedule import DEFAULT_TOLERANCE, Schedule, draft_length_schedule
from specmodel.base.errors import refuse_given
from specmodel.base.ranges import MAX_VALUES, check_points
from specmodel.base.units import check, single
from specmodel.cost.deploying import state_slots
from specmodel.cost.deployment import state_slots_of
from specmodel.cost.memory import MemoryUse
from specmodel.prediction.case import Case, case_of
from specmodel.prediction.predicting import plain_points, predict_deployed

_IN_MEMORY, _MORE_FIT = "the largest that fits in memory", "though more fit in memory"
_STOPS = "where speculation stops paying"
DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""


def with_engine(name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return arguments with an engine unless they name one, and what was assumed."""
    if arguments.get("engine") is not None:
        return {**arguments}, {}
    return {**arguments, "engine": name}, {"engine": f"{name} (fit engine takes your own runs)"}


def engine_case(config: ConfigFormat, arguments: Mapping[str, Any]) -> Case:
    """Return the question of an engine: its times unless another is named, and its states.

    States are kept as it does, whatever the times are of, unless an engine's record says how.
    """
    name = config.name.lower()
    arguments, told = with_engine(name, arguments)
    case, slots = case_of(arguments), state_slots_of(name)
    d, kept = case.deployment, {}
    if d.recurrent_model and not d.engine.state_slots and d.states.slots != slots:
        case = case_of({**arguments, "engine.state_slots": slots})
        kept = {"state_slots": state_slots(case.deployment.states)}
    return replace(case, assumed={**told, **case.assumed, **kept})


def plan_schedule(
    case: Case,
    config: ConfigFormat,
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
    config
        How the engine takes a schedule, as `config_format` gives it.
    max_batch_size
        Last batch size; that which fits in memory if None, 512 at most [request].
    tolerance, ends
        Share of the best speedup that may be lost for fewer changes, 0.01 if None [-]; whether the
        schedule ends where speculation stops paying, unless it has a last batch size.
    """
    config.check_drafter(case)
    refuse_given(case.given, ("draft_length", "batch_size"), "none, as a schedule has all")
    load = {
        name: single(name, case.points.get(name), "one, as a schedule is for one load")
        for name in ("prompt_length", "output_length", "lockstep")
    }
    typed, longest = case.points.get("context_length"), case.longest_draft()
    contexts = plain_points(1, typed, **load)[0]["context_length"].ravel()
    has_longest = "max_draft_length" in case.given
    assumed: dict[str, Any] = {} if has_longest else {"max_draft_length": longest}
    if tolerance is None:
        tolerance = assumed["tolerance"] = DEFAULT_TOLERANCE
    points = {**load} if typed is None else {"context_length": contexts[:, None, None], **load}
    case = replace(case, assumed={**case.assumed, **assumed}, points=points)
    last, end = _last_batch(case, contexts.max(), longest, max_batch_size)
    most = max(last, _last_batch(case, contexts.min(), longest, max_batch_size)[0])
    sizes = {"--max-batch-size": most, "--max-draft-length": longest, "contexts": contexts.size}
    check_points("max_batch_size", sizes, of="")
    how: dict[str, Any] = {"max_batch_size": max_batch_size, "tolerance": tolerance, "ends": False}
    alone = [
        plan_schedule(case.at(context_length=context), config, **how)
        for context in (contexts if contexts.size > 1 else ())
    ]
    make = partial(_planned, case, config, tolerance)
    plan = _with_room(make, make(last, end, longest))
    plan = replace(plan, freed=_freed(case, config, tolerance, plan), alone=alone)
    if not ends or max_batch_size is not None or plan.paying == plan.schedule.batch_size.size:
        return plan
    ended = make(plan.paying, _STOPS, longest)
    return replace(ended, whole=plan.schedule, freed=plan.freed, alone=alone)


def _planned(
    case: Case, config: ConfigFormat, tolerance: float, last: int, end: str, longest: int
) -> Plan:
    """Return the plan up to a batch size [request] with drafts up to a length [token]."""
    points: dict[str, Any] = {**case.points}
    predicted = predict_deployed(
        case.deployment,
        case.assumed,
        acceptance=case.known_acceptance,
        draft_length=np.arange(longest + 1)[:, None],
        batch_size=np.arange(1, last + 1)[None, None],
        max_draft_length=longest,
        **points,
    )
    gain = predicted.speedup.swapaxes(1, 2)
    schedule = partial(
        draft_length_schedule, gain[..., 1:], idle_speedup=gain[..., 0], tolerance=tolerance
    )
    unbound = schedule()
    return Plan(
        config=config,
        prediction=predicted,
        gain=gain,
        schedule=schedule(longest_first=True) if config.longest_first else unbound,
        unbound=unbound,
        end=end,
    )


def _with_room(make: Callable[[int, str, int], Plan], plan: Plan) -> Plan:
    """Return a plan up to what fits with the longest draft that it makes, not one considered."""
    room, last = plan.largest, plan.schedule.batch_size.size
    if plan.end != _IN_MEMORY or plan.deployment.recurrent_model is None or room <= last:
        return plan
    end = _IN_MEMORY if room <= DEFAULT_MAX_BATCH_SIZE else _MORE_FIT
    more = make(min(room, DEFAULT_MAX_BATCH_SIZE), end, plan.gain.shape[-1] - 1)
    is_longer = more.schedule.max_draft_length > plan.schedule.max_draft_length
    return plan if is_longer else more


def _freed(case: Case, config: ConfigFormat, tolerance: float, plan: Plan) -> Schedule | None:
    """Return the schedule, with no longer drafts, if graphs held all steps; None if as good."""
    deployment, chosen = case.deployment, plan.schedule
    if deployment.graph_limit is None:
        return None
    longest, last = max(chosen.max_draft_length, 1), chosen.batch_size.size
    engine = deployment.engine.with_graphs_of(last * (longest + 1))
    free = replace(case, deployment=replace(deployment, engine=engine))
    freed = _planned(free, config, tolerance, last, plan.end, longest).schedule
    return freed if (freed.speedup > (1 + tolerance) * chosen.speedup).any() else None


def _last_batch(case: Case, context: float, longest: int, asked: int | None) -> tuple[int, str]:
    """Return the last batch size of the schedule [request], and why it ends there."""
    if asked is not None:
        most = check("max_batch_size", asked, minimum=1, maximum=MAX_VALUES, whole=True)
        return int(most), AS_ASKED
    fits = int(MemoryUse(case.deployment, context, longest + 1).max_batch_size)
    if 1 <= fits <= DEFAULT_MAX_BATCH_SIZE:
        return fits, _IN_MEMORY
    return DEFAULT_MAX_BATCH_SIZE, _MORE_FIT if fits else "as if they fitted"
