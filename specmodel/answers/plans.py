"""A schedule as an engine runs it: up to where drafting pays or memory ends, and as it reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers.dialects import DIALECTS, Dialect, dialect as dialect_of
from specmodel.answers.schedule import DEFAULT_TOLERANCE, Schedule, draft_length_schedule
from specmodel.base.errors import InputError
from specmodel.base.naming import is_id
from specmodel.base.ranges import MAX_VALUES, check_points
from specmodel.base.text import Viewed
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.deploying import slots_text
from specmodel.cost.deployment import Deployment, state_slots_of
from specmodel.cost.memory import MemoryUse
from specmodel.drafters.by_name import drafter_kind
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture
from specmodel.prediction.case import Case, case_of, kind_of
from specmodel.prediction.cautions import warnings_of_times
from specmodel.prediction.gains import gains_at
from specmodel.prediction.predicting import plain_points, predict_deployed

if TYPE_CHECKING:
    from specmodel.prediction.evaluate import Evaluation
    from specmodel.prediction.gains import Gain
    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.table import Row

_IN_MEMORY, _MORE_FIT = "the largest that fits in memory", "though more fit in memory"
_STOPS = "where speculation stops paying"
_MOST_JUDGED = 1000
"""Batch sizes that are told one by one as sure or open [-]."""
_WORTH = 1.01
"""Speedup above which a batch size that may pay or not is still worth a seat [-]."""
DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan(Viewed):
    """A schedule for an engine, and the prediction that it was made from.

    Parameters
    ----------
    format, path, served
        How the engine takes it, the path of the draft model, "" for a word in its place, and what
        its start command calls the target.
    prediction, gain
        At all contexts, draft lengths and batch sizes; speedup by context, batch size and draft
        length, from 0 [-].
    schedule, unbound
        The schedule, and the one without the engine's own rule.
    end
        Why the batch sizes end where they do.
    whole, freed
        The schedule up to all batch sizes, where `schedule` ends before, and that one with larger
        CUDA graphs, where it gains more.
    """

    room = "schedules"

    format: Dialect
    path: str = ""
    served: str = "MODEL"
    prediction: Prediction
    gain: FloatArray
    schedule: Schedule
    unbound: Schedule
    end: str
    whole: Schedule | None = None
    freed: Schedule | None = None

    @property
    def deployment(self) -> Deployment:
        """What runs where."""
        return self.prediction.deployment

    @property
    def assumptions(self) -> Mapping[str, Any]:
        """What was assumed, by argument."""
        return self.prediction.assumptions

    @property
    def evaluation(self) -> Evaluation:
        """What the speedups were computed from."""
        return self.prediction.evaluation

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """The warnings, with the graphs and the memory that the schedule takes, not others."""
        deployment, passed_over = self.deployment, warnings_of_times(self.prediction)
        longest = self.schedule.max_draft_length
        own = self._memory.warnings(self.prediction.batch_size, longest)
        sizes = self.schedule.batch_size.astype(float)
        lengths = self.schedule.draft_length.astype(float)
        graphs = deployment.graph_warnings(sizes, lengths + 1)
        others = (warning for warning in self.prediction.warnings if warning not in passed_over)
        return (*own, *deployment.warnings(sizes, lengths), *graphs, *others)

    @property
    def _memory(self) -> MemoryUse:
        """The memory of an engine with room for the longest draft in every request."""
        longest = self.schedule.max_draft_length
        return replace(self.evaluation.memory, verify_tokens=longest + 1)

    @cached_property
    def largest(self) -> int:
        """The last batch size that fits in memory with the longest draft [request]."""
        return int(self._memory.max_batch_size.min())

    @property
    def context_length(self) -> list[int]:
        """Contexts that count alike [token]."""
        contexts: list[int] = self.prediction.context_length[:, 0, 0].astype(int).tolist()
        return contexts

    @property
    def best_draft_length(self) -> FloatArray:
        """The best draft length by context and batch size [token]."""
        return np.asarray(self.prediction.best_draft_length[:, 0])

    @cached_property
    def speedup(self) -> FloatArray:
        """Speedup with the schedule by context and batch size; 1 where no drafter is loaded [-]."""
        lengths = self.schedule.draft_length[None, :, None]
        found = np.take_along_axis(self.gain, lengths, axis=-1)[..., 0]
        return found if self.schedule.max_draft_length else np.ones_like(found)

    @cached_property
    def fragment(self) -> str:
        """The schedule as the engine reads it; empty if speculation should be off."""
        modules = max(len(self.deployment.drafter.parts), 1)
        return self.format.fragment(self.schedule, self._kind, modules, self.path)

    @property
    def place(self) -> str:
        """Where the fragment goes, and what else must be set."""
        told = self.format.place(self.schedule, self._kind, self.path) if self.fragment else ""
        return told if self.format.start or not told else f"{told}{self._graphs}"

    @property
    def limits(self) -> str:
        """The engine's options that the schedule is made for, on each replica."""
        requests = min(self.schedule.batch_size.size, self.largest or MAX_VALUES)
        each = max(requests // self.deployment.layout.replicas, 1)
        graphs = self._graphs if self.format.start else ""  # else in `place`
        return f"{self.format.most_requests} {each}{graphs}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Cases in which the engine departs from the schedule; none from one length alone."""
        return self.format.caveats if self.is_schedule else ()

    @property
    def is_schedule(self) -> bool:
        """Whether the fragment is a schedule: vLLM takes one length alone without."""
        return bool(self.fragment) and ("[" in self.fragment or not self.format.start)

    @property
    def _kind(self) -> str:
        return drafter_kind(self.deployment.drafter, self.deployment.target)

    @property
    def _graphs(self) -> str:
        """The engine's own option for CUDA graphs, where their size was given."""
        limit, engine = self.deployment.graph_limit, self.deployment.engine
        is_own = engine.graphs == self.format.name.lower()
        return f" {limit.option} {limit.count}" if limit and is_own and not limit.default_of else ""

    @cached_property
    def gains(self) -> list[Gain | None]:
        """How sure the gain at each batch size is; None over several contexts or without a draft.

        Of very many batch sizes only those that gain most and least are judged.
        """
        speedup, lengths = self.schedule.speedup, self.schedule.draft_length.tolist()
        found: list[Gain | None] = [None] * len(lengths)
        if len(self.gain) > 1 or not any(lengths):
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
    if dialect not in DIALECTS:
        raise InputError("dialect", dialect, f"one of: {', '.join(DIALECTS)}")
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
        kept = {"state_slots": slots_text(case.deployment.states)}
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
    load = {name: _one(name, case.points.get(name)) for name in ("prompt_length", "output_length")}
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


def _one(name: str, value: Numeric | None) -> Numeric | None:
    """Return the one value of an argument that a schedule takes no list of."""
    if value is not None and np.size(value) > 1:
        raise InputError(name, value, "one, as a schedule is for one load")
    return value if value is None else int(np.ravel(value)[0])


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
