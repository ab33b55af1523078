"""Plan a schedule for an engine, up to where drafting stops paying or memory ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.base.errors import refuse_given
from specmodel.core.base.notes import Note
from specmodel.core.base.ranges import MAX_VALUES, check_points
from specmodel.core.base.text import Viewed
from specmodel.core.base.units import FloatArray, check, single
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.prediction.accepted import kind_of
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.cautions import notes_of_times
from specmodel.core.prediction.gains import Gain, gains_at
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import plain_points, predict_deployed
from specmodel.core.prediction.table import Row
from specmodel.plan.config_formats import ConfigFormat, default_path, graph_option, num_modules
from specmodel.plan.schedule import DEFAULT_TOLERANCE, Schedule, draft_length_schedule

_IN_MEMORY, _MORE_FIT = "the largest that fits in memory", "although larger batches fit in memory"
_STOPS = "above which speculation stops paying"
DEFAULT_MAX_BATCH_SIZE = 512
"""Largest batch size of a schedule where more would fit in memory [request]."""
OF_ALL = "A schedule covers all batch sizes and draft lengths, so this has no effect."
AS_ASKED = "as requested"
"""Reason for the last batch size if the user gave it."""
_MOST_JUDGED = 1000
"""Most batch sizes whose intervals are all computed [-]."""
_WORTH = 1.01
"""Speedup above which a schedule keeps a batch size, even if its interval includes 1 [-]."""


class Plan(Viewed, Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A schedule for an engine, and the prediction behind it.

    Parameters
    ----------
    config, path, served
        Format in which the engine accepts the schedule; path of the draft model, "" for a
        placeholder; name of the target in the engine's start command.
    prediction, gain
        Prediction at all contexts, draft lengths and batch sizes. Speedup by context, batch size
        and draft length, from 0 [-].
    schedule, unbound
        The schedule, and the schedule without the engine's own rule.
    end
        Reason for the last batch size.
    alone
        With several contexts, a plan for each context by itself, up to the largest batch that fits
        in memory.
    whole, freed
        The schedule for all batch sizes, if `schedule` ends earlier. The schedule with larger CUDA
        graphs, if these gain more.
    targets, carried
        If a load was simulated, fields of the `simulate.Targets` that requests should meet, and the
        rate that each schedule sustains within the targets.
    """

    room = "planned:schedule"

    config: ConfigFormat
    path: str = ""
    served: str = "MODEL"
    prediction: Prediction
    gain: FloatArray
    schedule: Schedule
    unbound: Schedule
    end: str
    alone: Sequence[Plan] = ()
    whole: Schedule | None = None
    freed: Schedule | None = None
    targets: Mapping[str, Any] = field(default_factory=dict)
    carried: Sequence[Row] = ()

    @property
    def deployment(self) -> Deployment:
        """Target, drafter, GPUs and engine."""
        return self.prediction.deployment

    @property
    def assumptions(self) -> Mapping[str, Any]:
        """The assumptions, by name of the argument."""
        last = {} if self.end == AS_ASKED else {"max_batch_size": self.schedule.batch_size.size}
        return self.prediction.assumptions | last

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes, one sentence each."""
        return tuple(map(str, self.notes))

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """The prediction's notes; those on graphs and memory describe the schedule."""
        replaced = notes_of_times(self.prediction.evaluation)
        longest = self.schedule.max_draft_length
        own = self._memory.warnings(self.prediction.batch_size, longest)
        is_whole = longest == self.deployment.drafter.block_size  # other versions refuse less
        others = (
            note
            for note in self.prediction.notes
            if note not in replaced and not (is_whole and note.kind == "below_block")
        )
        of_contexts = (
            Note("at_context", {"context": context, "note": note})
            for context, plan in zip(self.context_length, self.alone, strict=False)
            for note in plan.graph_notes
        )
        return (*own, *self.graph_notes, *others, *of_contexts)

    @property
    def graph_notes(self) -> list[Note]:
        """A note with the draft lengths whose steps exceed all CUDA graphs, if there are any."""
        limit, sizes = self.deployment.graph_limit, self.schedule.batch_size.astype(float)
        tokens = self.schedule.draft_length.astype(float) + 1
        notes = self.deployment.graph_warnings(sizes, tokens)
        if limit is None or not notes:
            return []
        is_beyond = limit.is_beyond(sizes, sizes * tokens, self.deployment.layout.replicas)
        lengths = sorted({*self.schedule.draft_length[is_beyond].tolist()} - {0})
        return [replace(note, values={**note.values, "scheduled": lengths}) for note in notes]

    @property
    def _memory(self) -> MemoryUse:
        """Memory of an engine that reserves room for the longest draft in each request."""
        longest = self.schedule.max_draft_length
        return replace(self.prediction.evaluation.memory, verify_tokens=longest + 1)

    @cached_property
    def largest(self) -> int:
        """The largest batch size that fits in memory with the longest draft [request]."""
        return int(self._memory.max_batch_size.min())

    @property
    def context_length(self) -> list[int]:
        """The contexts, which have equal weight [token]."""
        return [int(context) for context in self.prediction.context_length[:, 0, 0]]

    @cached_property
    def speedup(self) -> FloatArray:
        """Speedup with the schedule by context and batch size; 1 if no drafter is loaded [-]."""
        lengths = self.schedule.draft_length[None, :, None]
        found = np.take_along_axis(self.gain, lengths, axis=-1)[..., 0]
        return found if self.schedule.max_draft_length else np.ones_like(found)

    @cached_property
    def fragment(self) -> str:
        """The schedule as text of the engine's configuration; "" if speculation should be off."""
        kind, modules = kind_of(self.deployment), num_modules(self.deployment)
        return self.config.fragment(self.schedule, kind, modules, self._path)

    @property
    def place(self) -> str:
        """Where to put the fragment and which options it needs, as text; "" without a fragment."""
        return self.place_with(self._graphs)

    def place_with(self, sizes: str) -> str:
        """Return `place`; if the engine reads a file, with the options `sizes`."""
        if not self.fragment:
            return ""
        place = self.config.place(self.schedule, kind_of(self.deployment), self._path)
        return place if self.config.start else f"{place}{sizes}"

    @property
    def limits(self) -> str:
        """The engine's options for the largest batch of one replica, as on its command line."""
        requests = min(self.schedule.batch_size.size, self.largest or MAX_VALUES)
        graphs = self._graphs if self.config.start else ""  # else in `place`
        return f"{self.config.requests_option(requests, self.deployment.layout.replicas)}{graphs}"

    @property
    def caveats(self) -> Sequence[str]:
        """Cases in which the engine deviates from the schedule; none for a single length."""
        return self.config.caveats if self.is_schedule else ()

    @property
    def is_schedule(self) -> bool:
        """Whether the fragment is a schedule: vLLM needs none for a single length."""
        return bool(self.fragment) and ("[" in self.fragment or not self.config.start)

    @property
    def _path(self) -> str | None:
        """The path of the draft model; None if the target's checkpoint contains it."""
        return self.path or default_path(self.deployment)

    @property
    def _graphs(self) -> str:
        """The engine's own option for CUDA graphs, if the user gave their size."""
        is_own = self.deployment.engine.graphs == self.config.name.lower()
        return graph_option(self.deployment) if is_own else ""

    @cached_property
    def gains(self) -> list[Gain | None]:
        """Interval and chance of each batch size's gain; None over several contexts or undrafted.

        Of more than 1,000 batch sizes, only those with the largest and smallest gain have them.
        """
        speedup, lengths = self.schedule.speedup, self.schedule.draft_length.tolist()
        if len(self.gain) > 1 or not any(lengths):
            return [None] * len(lengths)
        places = {int(speedup.argmax()), int(speedup.argmin())}
        places = places if len(lengths) > _MOST_JUDGED else {*range(len(lengths))}
        rows = [{"batch_size": place + 1, "draft_length": lengths[place]} for place in places]
        found = dict(zip(places, gains_at(self.prediction, rows), strict=True))
        return [found.get(place) for place in range(len(lengths))]

    def rows(self) -> list[Row]:
        """Return a row for each batch size, with its interval and whether it fits in memory."""
        return [
            row
            | {"speedup_low": gain and gain.low, "speedup_high": gain and gain.high}
            | {"fits": row["batch_size"] <= self.largest}
            for row, gain in zip(self.schedule.rows(), self.gains, strict=True)
        ]

    def ranges(self) -> list[Row]:
        """Return a row for each range of batch sizes: draft length, speedups, loss and fit.

        An interval covers the intervals at all batch sizes of its range.
        """
        every, rows, ends = self.rows(), list[Row](), ("speedup", "speedup_low", "speedup_high")
        for first, last, length in self.schedule.ranges:
            within = slice(first - 1, last)
            speedups, lows, highs = ([row[end] for row in every[within]] for end in ends)
            row: Row = {"first_batch_size": first, "last_batch_size": last, "draft_length": length}
            row |= {"min_speedup": min(speedups), "max_speedup": max(speedups)}
            row["min_speedup_low"] = None if None in lows else min(lows)
            row["max_speedup_high"] = None if None in lows else max(highs)
            row["max_loss"] = float(self.schedule.loss[within].max())
            rows.append(row | {"fits": last <= self.largest})
        return rows

    def rows_by_context(self) -> list[Row]:
        """Return the rows of each context's own plan."""
        plans = zip(self.context_length, self.alone, strict=False)
        return [{"context_length": at, **row} for at, plan in plans for row in plan.rows()]

    @cached_property
    def paying(self) -> int:
        """The last batch size at which drafting is worth it [request].

        From the end, this drops ranges without a sure gain whose mean gain is small, and then the
        last batch sizes with a small gain. A range without a draft stays if it loses nothing.
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


def plan_schedule(
    case: Case,
    config: ConfigFormat,
    *,
    max_batch_size: int | None = None,
    tolerance: float | None = None,
    ends: bool = True,
) -> Plan:
    """Return the schedule of draft lengths with the largest gain, in an engine's format.

    Parameters
    ----------
    case
        Deployment, acceptance and contexts, which have equal weight.
    config
        Format of the engine's schedule, as `config_format` returns it.
    max_batch_size
        Last batch size; if None, the largest that fits in memory, at most 512 [request].
    tolerance, ends
        Share of the best speedup to give up for fewer changes of length, 0.01 if None [-]. Whether
        the schedule ends where speculation stops paying, unless you give `max_batch_size`.
    """
    config.check_drafter(case)
    length = {"draft_length": case.draft_length}
    refuse_given(length, length, OF_ALL)
    load = {
        name: single(name, case.points.get(name), "one number, as a schedule fits one load")
        for name in ("prompt_length", "output_length", "lockstep")
    }
    typed, longest = case.points.get("context_length"), case.longest_draft()
    contexts = plain_points(1, typed, **load)[0]["context_length"].ravel()
    assumed: dict[str, Any] = {} if case.max_draft_length else {"max_draft_length": longest}
    if tolerance is None:
        tolerance = assumed["tolerance"] = DEFAULT_TOLERANCE
    tolerance = single("tolerance", tolerance, "a single number")
    points = {**load} if typed is None else {"context_length": contexts[:, None, None], **load}
    case = replace(case, assumed={**case.assumed, **assumed}, points=points)
    last, end = _last_batch(case, contexts.max(), longest, max_batch_size)
    sizes = {"max_batch_size": last, "max_draft_length": longest, "contexts": contexts.size}
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
    how: dict[str, Any] = {"idle_speedup": gain[..., 0], "tolerance": tolerance}
    schedule = partial(draft_length_schedule, gain[..., 1:], **how)
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
    """Return a plan up to the batch that fits with the longest draft of its own schedule."""
    room, last = plan.largest, plan.schedule.batch_size.size
    if plan.end != _IN_MEMORY or plan.deployment.recurrent_model is None or room <= last:
        return plan
    end = _IN_MEMORY if room <= DEFAULT_MAX_BATCH_SIZE else _MORE_FIT
    more = make(min(room, DEFAULT_MAX_BATCH_SIZE), end, plan.gain.shape[-1] - 1)
    is_longer = more.schedule.max_draft_length > plan.schedule.max_draft_length
    return plan if is_longer else more


def _freed(case: Case, config: ConfigFormat, tolerance: float, plan: Plan) -> Schedule | None:
    """Return the schedule if CUDA graphs covered all its steps; None if it gains no more."""
    chosen = plan.schedule
    if case.deployment.graph_limit is None:
        return None
    longest, last = max(chosen.max_draft_length, 1), chosen.batch_size.size
    free = case.with_graphs_of(last * (longest + 1))
    freed = _planned(free, config, tolerance, last, plan.end, longest).schedule
    return freed if (freed.speedup > (1 + tolerance) * chosen.speedup).any() else None


def _last_batch(case: Case, context: float, longest: int, asked: int | None) -> tuple[int, str]:
    """Return the last batch size of a schedule [request], and the reason as text."""
    if asked is not None:
        most = check("max_batch_size", asked, minimum=1, maximum=MAX_VALUES, whole=True)
        return int(most), AS_ASKED
    fits = int(MemoryUse(case.deployment, context, longest + 1).max_batch_size)
    if 1 <= fits <= DEFAULT_MAX_BATCH_SIZE:
        return fits, _IN_MEMORY
    return DEFAULT_MAX_BATCH_SIZE, _MORE_FIT if fits else "as if they fitted"
