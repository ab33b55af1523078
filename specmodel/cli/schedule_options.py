"""Options of ``specmodel schedule`` as a schedule, and the prediction behind it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specmodel.answers import FORMATS, Format, Schedule, draft_length_schedule
from specmodel.answers.schedule import DEFAULT_TOLERANCE
from specmodel.base.errors import InputError
from specmodel.base.ranges import MAX_VALUES, parse_values
from specmodel.base.units import FloatArray, check
from specmodel.cli.options import (
    MAX_POINTS,
    acceptance_from,
    deployment_from,
    longest_draft,
    predict_from,
)
from specmodel.cost.memory import memory_use
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predict import DEFAULT_CONTEXT_LENGTH
from specmodel.records.engine import list_engines

DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """A schedule for an engine, and what it was made from.

    Parameters
    ----------
    engine
        The engine, as typed.
    schedule, unbound
        Draft length by batch size: the one to deploy, and that without the engine's own rule.
    context_length
        The contexts it was made for [token].
    speedup
        Of the schedule by context and batch size [-].
    best_draft_length
        By context and batch size, whatever the schedule [token].
    end
        Why the batch sizes end where they do, in words.
    prediction
        Of every context, draft length and batch size.
    """

    engine: str
    schedule: Schedule
    unbound: Schedule
    context_length: tuple[int, ...]
    speedup: FloatArray
    best_draft_length: FloatArray
    end: str
    prediction: Prediction

    @property
    def format(self) -> Format:
        """How the engine takes a schedule."""
        return FORMATS[self.engine]

    @property
    def fragment(self) -> str:
        """The schedule in the words of the engine."""
        return self.format.fragment(self.schedule)

    @property
    def cost_of_rule(self) -> float:
        """Share of the mean speedup that the engine's own rule costs [-]."""
        return max(0.0, 1 - self.schedule.mean_speedup / self.unbound.mean_speedup)


def plan_from(options: dict[str, Any]) -> Plan:
    """Return the schedule that the options of the command line ask for.

    Parameters
    ----------
    options
        Values by name of the option; `engine` names the overheads, `serving_engine` the engine.

    Returns
    -------
    Plan
        Ready to be reported.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    engine = options["serving_engine"]
    overheads = {"engine": _overheads(options)}
    longest = longest_draft(acceptance_from(options), options["max_draft_length"])
    contexts = [DEFAULT_CONTEXT_LENGTH]
    if options["context_length"] is not None:
        contexts = parse_values("context_length", options["context_length"])
    largest, end = _largest_batch(options | overheads, max(contexts), longest)
    _check_points(largest, longest, len(contexts))
    axes = {"draft_length": f"1:{longest}", "batch_size": f"1:{largest}"}
    prediction = predict_from(options | overheads | axes | {"max_draft_length": longest})
    shape = (len(contexts), longest, largest)
    gain = np.broadcast_to(prediction.speedup, shape).swapaxes(1, 2)
    tolerance = DEFAULT_TOLERANCE if options["tolerance"] is None else options["tolerance"]
    unbound = schedule = draft_length_schedule(gain, tolerance=tolerance)
    if FORMATS[engine].longest_first:
        schedule = draft_length_schedule(gain, tolerance=tolerance, longest_first=True)
    chosen = {"max_batch_size": largest, "max_draft_length": longest, "tolerance": tolerance}
    assumed = {name: value for name, value in prediction.assumptions.items() if name != "engine"}
    assumed |= {name: value for name, value in chosen.items() if options[name] is None}
    if options["engine"] is None:
        assumed["overheads"] = overheads["engine"] or f"ideal (none ship for {engine})"
    return Plan(
        engine=engine,
        schedule=schedule,
        unbound=unbound,
        context_length=tuple(contexts),
        speedup=_of_schedule(gain, schedule),
        best_draft_length=np.broadcast_to(prediction.best_draft_length, shape)[:, 0],
        end=end,
        prediction=replace(prediction, assumptions=assumed),
    )


def _overheads(options: dict[str, Any]) -> str | None:
    """Return the profile of overheads: the one given, else the engine's own if it ships."""
    given: str | None = options["engine"]
    serving: str = options["serving_engine"]
    return serving if given is None and serving in list_engines() else given


def _largest_batch(options: dict[str, Any], context: int, longest: int) -> tuple[int, str]:
    """Return the last batch size of the schedule, and why it is the last."""
    asked = options["max_batch_size"]
    if asked is not None:
        check("max_batch_size", asked, minimum=1, maximum=MAX_VALUES, whole=True)
        return asked, "as asked"
    deployment, _ = deployment_from(options)
    fits = memory_use(deployment, context, longest + 1).max_batch_size
    if 1 <= fits <= DEFAULT_MAX_BATCH_SIZE:
        return int(fits), f"the largest that fits in memory at context {context}"
    end = "though more fit in memory" if fits else "as if they fitted"
    return DEFAULT_MAX_BATCH_SIZE, end


def _check_points(largest: int, longest: int, num_contexts: int) -> None:
    points = largest * longest * num_contexts
    if points > MAX_POINTS:
        given = {"--max-batch-size": largest, "--max-draft-length": longest}
        given |= {"contexts": num_contexts}
        raise InputError("max_batch_size", given, f"at most {MAX_POINTS} points, not {points}")


def _of_schedule(gain: FloatArray, schedule: Schedule) -> FloatArray:
    """Return the speedup of the schedule by context and batch size."""
    lengths = schedule.draft_length[None, :, None]
    taken = np.take_along_axis(gain, np.maximum(lengths - 1, 0), axis=-1)[..., 0]
    return np.where(schedule.draft_length > 0, taken, 1.0)
