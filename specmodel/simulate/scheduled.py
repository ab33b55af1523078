"""Schedule draft lengths for an engine, and find the schedule with the highest capacity."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Unpack

from msgspec.structs import asdict, replace

from specmodel.core.base.errors import given, refuse_given
from specmodel.core.base.naming import is_id
from specmodel.core.cost.assumptions import state_slots
from specmodel.core.cost.deployment import state_slots_of
from specmodel.core.cost.where import USUAL, Manner
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.case import Case, case_of
from specmodel.plan.config_formats import ConfigFormat, config_format as format_of, format_of_engine
from specmodel.plan.plans import OF_ALL, Plan, plan_schedule
from specmodel.simulate.arguments import ScheduleArguments
from specmodel.simulate.compared import Searching

_OF_NO_SEARCH = ("policy", "for_rate", "gpu_hour_price")
_TOLD = ("workload", "ttft_target", "attainment", "requests")
"""Assumptions about a load that the answer lists."""


def schedule(
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    config_format: str | None = None,
    *,
    workers: int = 1,
    client: Any = None,
    **arguments: Unpack[ScheduleArguments],
) -> Plan:
    """Schedule the draft length by batch size, for an engine to run.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`.
    config_format
        Format of the configuration, one of `plan.CONFIG_FORMATS`; if None, that of the predicted
        engine.
    workers, client
        Where the search for capacities runs, as in `capacities` [-].
    **arguments
        Arguments of `simulate.arguments.ScheduleArguments`. With `for_load` and targets, as in
        `specmodel.load`, the answer is the policy that sustains the highest rate: the schedule, a
        single length, or no draft.

    Examples
    --------
    >>> plan = schedule("qwen3-30b-a3b", "h200", acceptance=0.7, max_batch_size=16)
    >>> plan.schedule.ranges
    ((1, 5, 4), (6, 16, 5))
    """
    config = format_of(config_format or format_of_engine(arguments.get("engine")))
    where, how = {"target": target, "hardware": hardware}, {"workers": workers, "client": client}
    plan = scheduled(config, {**arguments, **where}, lambda _: nullcontext(how))
    return replace(plan, served=str(target)) if is_id(str(target)) else plan


def scheduled(
    config: ConfigFormat, arguments: Mapping[str, Any], searching: Searching, manner: Manner = USUAL
) -> Plan:
    """Return the schedule with the largest gain or, under a load, with the largest capacity.

    Parameters
    ----------
    config, arguments
        Format of the engine's configuration, and arguments of `schedule`.
    searching, manner
        How to compute the searches, and the manner of the question.
    """
    options = given(arguments, arguments)
    refuse_given(options, ("draft_length", "batch_size"), OF_ALL)
    ends = {name: options.pop(name, None) for name in ("max_batch_size", "tolerance")}
    if not options.pop("for_load", False):
        return plan_schedule(engine_case(config, options, manner), config, **ends)
    from specmodel.simulate.carried import best_schedule, with_single_lengths
    from specmodel.simulate.load_question import OF_LOADS, trial_of

    refuse_given(options, _OF_NO_SEARCH, "This has no effect with `for_load`.")
    load = {name: options.pop(name) for name in OF_LOADS if name in options}
    case = engine_case(config, options, manner)
    plan = plan_schedule(case, config, ends=False, **ends)
    tried = with_single_lengths(plan.schedule, plan.gain)
    case = replace(case, max_draft_length=case.longest_draft())
    trial, assumed = trial_of(case, load, [*tried])
    with searching(len(tried)) as how:
        best, rows = best_schedule(trial, tried, **how)
    notes = {name: assumed[name] for name in _TOLD if name in assumed}
    prediction = replace(plan.prediction, assumptions={**plan.assumptions, **notes})
    plan = replace(plan, prediction=prediction, schedule=best, freed=None)
    return replace(plan, targets=asdict(trial.targets), carried=rows)


def engine_case(config: ConfigFormat, arguments: Mapping[str, Any], manner: Manner = USUAL) -> Case:
    """Return the case with the times and the recurrent states of the configured engine.

    If the arguments name another engine, its times are used. The states are still those of the
    configured engine, unless the record of the named engine defines them.
    """
    name, told = config.name.lower(), dict[str, str]()
    if arguments.get("engine") is None:
        told["engine"] = f"{name} (to fit it to your server: specmodel fit engine)"
        arguments = {**arguments, "engine": name}
    case, slots = case_of(arguments, manner), state_slots_of(name)
    d, kept = case.deployment, {}
    if d.recurrent_model and not d.engine.state_slots and d.states.slots != slots:
        fields = case.where.what_ifs
        engine = {**fields["engine"], "state_slots": slots}
        case = case.elsewhere(what_ifs={**fields, "engine": engine})
        kept = {"state_slots": state_slots(case.deployment.states)}
    return replace(case, assumed={**told, **case.assumed, **kept})
