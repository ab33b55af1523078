"""The schedule of draft lengths that options ask for, and the prediction that it is made from."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import click

from specmodel import answers
from specmodel.base.errors import InputError
from specmodel.base.naming import is_id
from specmodel.base.ranges import MAX_VALUES, parse_values
from specmodel.base.text import command_lines
from specmodel.cli.load import refuse_without_load
from specmodel.prediction.table import Row
from specmodel.show import report

if TYPE_CHECKING:
    from specmodel.base.units import FloatArray
    from specmodel.cost.memory import MemoryUse
    from specmodel.prediction.gains import Gain

    _Schedules = tuple[report.Prediction, FloatArray, answers.Schedule, answers.Schedule]

_IN_MEMORY, _MORE_FIT = "the largest that fits in memory", "though more fit in memory"
_STOPS = "where speculation stops paying"
_MOST_JUDGED = 1000
"""Batch sizes that are told one by one as sure or open [-]."""
_WORTH = 1.01
"""Speedup above which a batch size that may pay or not is still worth a seat [-]."""
DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """A schedule for an engine, and the prediction that it was made from.

    `unbound` is the schedule without the engine's own rule. Speedup [-] and best draft length
    [token] are by context and batch size. `end` says why the batch sizes end where they do, and
    `largest` is the last that fits in memory with the longest draft [request]. `load` says what is
    carried, where that decides, and `carried` has a row for each schedule that was tried. `model`
    is the path of the draft model, where a start command named it, and `served` the target as it
    is served, MODEL where no id of a hub was typed. `graphs` is the engine's option for the CUDA
    graphs that were typed. `whole` is the schedule up to all batch sizes, where `schedule` ends
    before, and `freed` that one with larger CUDA graphs, where it gains more.
    """

    dialect: str
    format: answers.Dialect
    drafter: str
    schedule: answers.Schedule
    unbound: answers.Schedule
    context_length: list[int]
    speedup: FloatArray
    best_draft_length: FloatArray
    end: str
    largest: int
    prediction: report.Prediction
    load: str = ""
    carried: tuple[Row, ...] = ()
    model: str = ""
    served: str = "MODEL"
    graphs: str = ""
    whole: answers.Schedule | None = None
    freed: answers.Schedule | None = None

    @property
    def counted(self) -> str:
        """What `largest` counts of each request."""
        told = f" at context {max(self.context_length)}"
        if self.prediction.deployment.recurrent_model and self.schedule.max_draft_length:
            told += f", with room for drafts of {self.schedule.max_draft_length} in each request"
        return told

    @property
    def fragment(self) -> str:
        """The schedule as the engine reads it; empty if speculation should be off."""
        modules = len(self.prediction.deployment.drafter.parts)
        text = self.format.fragment(self.schedule, self.drafter, max(modules, 1))
        return text.replace('"DRAFTER"', json.dumps(self.model)) if self.model else text

    @property
    def place(self) -> str:
        """Where the fragment goes, and what else must be set."""
        from specmodel.answers.dialects import DRAFTER_IS_PATH

        told = self.format.place(self.schedule, self.drafter) if self.fragment else ""
        if self.model:
            told = told.replace(DRAFTER_IS_PATH, "").replace("DRAFTER", self.model)
        is_named = told and self.graphs and not self.format.start
        return f"{told} {self.graphs}" if is_named else told

    @property
    def limits(self) -> str:
        """The engine's options that the schedule is made for, on each replica."""
        requests = min(self.schedule.batch_size.size, self.largest or MAX_VALUES)
        each = max(requests // self.prediction.deployment.layout.replicas, 1)
        graphs = f" {self.graphs}" if self.graphs and self.format.start else ""  # else in `place`
        return f"{self.format.most_requests} {each}{graphs}"

    @property
    def is_schedule(self) -> bool:
        """Whether the fragment is a schedule: vLLM takes one length alone without."""
        return bool(self.fragment) and ("[" in self.fragment or self.dialect != "vllm")

    @property
    def command(self) -> str:
        """The fragment in the engine's start command, or alone where a file holds it."""
        if not self.format.start:
            return self.fragment
        deployment, layout = self.prediction.deployment, self.prediction.deployment.layout
        degrees = {
            "tensor-parallel-size": layout.tensor_parallel,
            "data-parallel-size": layout.replicas,
        }
        words = [f"--{name} {degree}" for name, degree in degrees.items() if degree > 1]
        words += ["--enable-expert-parallel"] if deployment.expert_parallel > 1 else []
        words += [self.limits, "--speculative-config '"]
        return f"{command_lines([f'{self.format.start} {self.served}', *words])}\n{self.fragment}'"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Cases in which the engine departs from the schedule; none from one length alone."""
        return self.format.caveats if self.is_schedule else ()

    @cached_property
    def gains(self) -> list[Gain | None]:
        """How sure the gain at each batch size is; None over several contexts or without a draft.

        Of very many batch sizes only those that gain most and least are judged.
        """
        from specmodel.prediction.gains import gains_at

        speedup, lengths = self.schedule.speedup, self.schedule.draft_length.tolist()
        found: list[Gain | None] = [None] * len(lengths)
        if len(self.context_length) > 1 or not any(lengths):
            return found
        are_many = len(lengths) > _MOST_JUDGED
        ends = sorted({int(speedup.argmax()), int(speedup.argmin())})
        places = ends if are_many else range(len(lengths))
        rows = [{"batch_size": place + 1, "draft_length": lengths[place]} for place in places]
        for place, gain in zip(places, gains_at(self.prediction, rows), strict=True):
            found[place] = gain
        return found

    def rows(self) -> list[Row]:
        """Return a row for each batch size, with its interval and whether it fits in memory."""
        return [
            row
            | {"speedup_low": gain and gain.low, "speedup_high": gain and gain.high}
            | {"fits": row["batch_size"] <= self.largest}
            for row, gain in zip(self.schedule.rows(), self.gains, strict=True)
        ]

    @cached_property
    def paying(self) -> int:
        """The last batch size that is worth a seat [request].

        Ranges at the end go that surely gain nowhere and little on average, and of the range before
        what gains little. Where no draft costs nothing, the range without one stays.
        """
        schedule, most = self.schedule, self.schedule.batch_size.size
        if self.whole or not schedule.max_draft_length:
            return most
        speedup = schedule.speedup
        pays = (schedule.draft_length == 0) & (speedup >= 1)
        pays |= [gain is not None and gain.low > 1 for gain in self.gains]
        for first, last, _ in reversed(schedule.ranges):
            most, own = last, slice(first - 1, last)
            if pays[own].any() or speedup[own].mean() > _WORTH:
                break
            most = first - 1
        pays |= speedup > _WORTH
        while most and not pays[most - 1]:
            most -= 1
        while most < pays.size and pays[most]:
            most += 1
        return most or pays.size

    @property
    def cost_of_rule(self) -> float:
        """Share of the mean speedup lost to the engine's own rule [-]."""
        return max(0.0, 1 - self.schedule.mean_speedup / self.unbound.mean_speedup)


def plan_from(options: dict[str, Any]) -> Plan:
    """Return the schedule that the options ask for; it ends where it stops paying, unless typed."""
    plan = _plan_to_its_end(options)
    most = plan.paying
    if options["max_batch_size"] or options["for_load"] or most == plan.schedule.batch_size.size:
        return plan
    ended = _plan_to_its_end(options | {"max_batch_size": most})
    assumed = ended.prediction.assumptions | {"max_batch_size": most}
    return replace(
        ended,
        end=_STOPS,
        whole=plan.schedule,
        freed=plan.freed,
        prediction=replace(ended.prediction, assumptions=assumed),
    )


def _plan_to_its_end(options: dict[str, Any]) -> Plan:
    """Return the schedule up to the batch size that is typed, or what fits in memory."""
    from specmodel.answers.schedule import DEFAULT_TOLERANCE
    from specmodel.cli.options import longest_draft, with_its_engine, with_its_states
    from specmodel.cost.deploying import slots_text
    from specmodel.prediction.predicting import plain_points

    refuse_without_load(options)
    form, drafter = _form(options)
    options, told = with_its_engine(options)
    options, is_of_dialect = with_its_states(options)
    longest = longest_draft(options)
    typed, load = options["context_length"], (options["prompt_length"], options["output_length"])
    usual = plain_points(1, None, *load)[0]["context_length"]
    contexts = [int(usual)] if typed is None else parse_values("context_length", typed)
    largest, end = _largest_batch(options, contexts, longest)
    used: dict[str, Any] = {"max_batch_size": largest, "max_draft_length": longest}
    used["tolerance"] = DEFAULT_TOLERANCE if options["tolerance"] is None else options["tolerance"]
    found = _schedules(options | used, contexts, form)
    if end == _IN_MEMORY:
        used, end, found = _with_room(options, used, contexts, form, found)
    prediction, gain, unbound, chosen = found
    of_load: dict[str, Any] = {}
    if options["for_load"]:
        chosen, of_load, told_of_load = _carrying_most(options | used, chosen, gain)
        told |= told_of_load
    if not chosen.max_draft_length:
        gain[..., 0] = 1.0  # no drafter is loaded
    assumed = {given: value for given, value in used.items() if options[given] is None}
    if is_of_dialect:
        assumed["state_slots"] = slots_text(prediction.deployment.states)
    shape = (len(contexts), -1, chosen.batch_size.size)
    return Plan(
        dialect=options["dialect"],
        format=form,
        drafter=drafter,
        schedule=chosen,
        unbound=unbound,
        context_length=contexts,
        speedup=_along(gain, chosen),
        best_draft_length=prediction.best_draft_length.reshape(shape)[:, 0],
        end=end,
        largest=int(_memory(prediction, chosen).max_batch_size.min()),
        freed=None if of_load else _freed(options | used, contexts, form, found),
        model=options.get("draft_model", ""),
        served=_served(),
        graphs=_typed_graphs(options, prediction),
        prediction=replace(
            prediction,
            assumptions=told | prediction.assumptions | assumed,
            warn=lambda _: _warnings(prediction, chosen),
        ),
        **of_load,
    )


def _carrying_most(
    options: dict[str, Any], schedule: answers.Schedule, gain: FloatArray
) -> tuple[answers.Schedule, dict[str, Any], dict[str, Any]]:
    """Return what carries most of a schedule, single lengths and none, by simulation.

    With it what is said of the load, and what was assumed of it. `gain` is the speedup by context,
    batch size and draft length [-].
    """
    from specmodel.cli.load import searching, trial_from
    from specmodel.serving import best_schedule, with_single_lengths
    from specmodel.show.loads import of_schedules

    tried = with_single_lengths(schedule, gain)
    trial, assumed = trial_from(options, [*tried])
    with searching(options, len(tried)) as how:
        best, rows = best_schedule(trial, tried, **how)
    names = ("workload", "ttft_target", "attainment", "requests")
    told = {name: assumed[name] for name in names if name in assumed}
    return best, {"load": of_schedules(trial.targets, rows), "carried": rows}, told


def _served() -> str:
    """Return the id of a hub that was typed for the target, else a word in its place."""
    typed = click.get_current_context().params
    return next(filter(is_id, (typed["target"] or "", *typed["words"])), "MODEL")


def _typed_graphs(options: dict[str, Any], prediction: report.Prediction) -> str:
    """Return the option of the engine of --for that captures CUDA graphs as large as was typed."""
    deployment = prediction.deployment
    limit = deployment.graph_limit
    is_own = limit and options["graph_limit"] and deployment.engine.graphs == options["dialect"]
    return f"{limit.option} {limit.count}" if limit and is_own else ""


def _with_room(
    options: dict[str, Any],
    used: dict[str, Any],
    contexts: list[int],
    form: answers.Dialect,
    found: _Schedules,
) -> tuple[dict[str, Any], str, _Schedules]:
    """Return schedules up to what fits with the longest draft that they make, not one considered.

    With them go the settings that were used, and why the batch sizes end.
    """
    prediction, *_, chosen = found
    room = int(_memory(prediction, chosen).max_batch_size.min())
    if prediction.deployment.recurrent_model is None or room <= used["max_batch_size"]:
        return used, _IN_MEMORY, found
    longer = used | {"max_batch_size": min(room, DEFAULT_MAX_BATCH_SIZE)}
    more = _schedules(options | longer, contexts, form)
    if more[-1].max_draft_length > chosen.max_draft_length:
        return used, _IN_MEMORY, found
    return longer, _IN_MEMORY if room <= DEFAULT_MAX_BATCH_SIZE else _MORE_FIT, more


def _schedules(options: dict[str, Any], contexts: list[int], form: answers.Dialect) -> _Schedules:
    """Return a prediction, its speedups, and schedules without and with the engine's own rule.

    Speedups are by context, batch size and draft length, from 0 [-].
    """
    from specmodel.cli.options import predict_from

    largest, longest = options["max_batch_size"], options["max_draft_length"]
    axes = {"draft_length": f"0:{longest}", "batch_size": f"1:{largest}"}
    prediction = predict_from(options | axes)
    gain = prediction.speedup.reshape(len(contexts), longest + 1, largest).swapaxes(1, 2).copy()
    schedule = partial(
        answers.draft_length_schedule,
        gain[..., 1:],
        idle_speedup=gain[..., 0],
        tolerance=options["tolerance"],
    )
    unbound = schedule()
    return (
        prediction,
        gain,
        unbound,
        schedule(longest_first=True) if form.longest_first else unbound,
    )


def _freed(
    options: dict[str, Any], contexts: list[int], form: answers.Dialect, found: _Schedules
) -> answers.Schedule | None:
    """Return the schedule, with no longer drafts, if graphs held all steps; None if as good."""
    prediction, *_, chosen = found
    if prediction.deployment.graph_limit is None:
        return None
    longest, last = max(chosen.max_draft_length, 1), options["max_batch_size"]
    held = {"max_draft_length": longest, "graph_limit": last * (longest + 1)}
    *_, freed = _schedules(options | held, contexts, form)
    is_more = freed.speedup > (1 + options["tolerance"]) * chosen.speedup
    return freed if is_more.any() else None


def _memory(prediction: report.Prediction, chosen: answers.Schedule) -> MemoryUse:
    """Return the memory of an engine with room for the longest draft in every request."""
    longest = chosen.max_draft_length
    return replace(prediction.evaluation.memory, verify_tokens=longest + 1)


def _warnings(prediction: report.Prediction, chosen: answers.Schedule) -> tuple[str, ...]:
    """Return the warnings, with the graphs and the memory that the schedule takes, not others."""
    import numpy as np

    from specmodel.prediction.predicting import warnings_of_times

    deployment, passed_over = prediction.deployment, warnings_of_times(prediction)
    own = _memory(prediction, chosen).warnings(prediction.batch_size, chosen.max_draft_length)
    sizes, lengths = np.array([chosen.batch_size, chosen.draft_length], dtype=float)
    graphs = deployment.graph_warnings(sizes, lengths + 1)
    others = (warning for warning in prediction.warnings if warning not in passed_over)
    return (*own, *deployment.warnings(sizes, lengths), *graphs, *others)


def _form(options: dict[str, Any]) -> tuple[answers.Dialect, str]:
    """Return the engine's format and the drafter's kind; refuse a drafter of fixed length."""
    from specmodel.drafters.by_name import drafter_kind

    name, drafter = options["dialect"], options["drafter"]
    form = answers.dialect(name, options["engine_version"])
    kind = drafter_kind(drafter, options["target"])
    if form.drafters and kind not in form.drafters:
        expected = f"{', '.join(form.drafters)} with --for {name}, which varies no other's length"
        raise InputError("drafter", drafter, expected)
    return form, kind


def _along(gain: FloatArray, schedule: answers.Schedule) -> FloatArray:
    """Return the speedup of a schedule by context and batch size [-]."""
    import numpy as np

    return np.take_along_axis(gain, schedule.draft_length[None, :, None], axis=-1)[..., 0]


def _largest_batch(options: dict[str, Any], contexts: list[int], longest: int) -> tuple[int, str]:
    """Return the last batch size of the schedule [request], and why it ends there."""
    from specmodel.base.units import check
    from specmodel.cli.options import check_points, deployment_from
    from specmodel.cost.memory import MemoryUse

    largest, end = options["max_batch_size"], "as asked"
    if largest is None:
        deployment, _ = deployment_from(options)
        fits = int(MemoryUse(deployment, max(contexts), longest + 1).max_batch_size)
        largest, end = fits, _IN_MEMORY
        if not 1 <= fits <= DEFAULT_MAX_BATCH_SIZE:
            largest = DEFAULT_MAX_BATCH_SIZE
            end = _MORE_FIT if fits else "as if they fitted"
    check("max_batch_size", largest, minimum=1, maximum=MAX_VALUES, whole=True)
    counts = {"--max-batch-size": largest, "--max-draft-length": longest, "contexts": len(contexts)}
    check_points("max_batch_size", counts, of="")
    return largest, end
