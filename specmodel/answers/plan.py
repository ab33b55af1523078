"""A schedule as an engine reads it, and the prediction that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from specmodel.answers.config_formats import ConfigFormat
from specmodel.answers.schedule import Schedule
from specmodel.base.notes import Note
from specmodel.base.ranges import MAX_VALUES
from specmodel.base.text import Viewed
from specmodel.base.units import FloatArray
from specmodel.cost.deployment import Deployment
from specmodel.cost.memory import MemoryUse
from specmodel.drafters.by_name import drafter_kind
from specmodel.prediction.cautions import notes_of_times
from specmodel.prediction.evaluate import Evaluation
from specmodel.prediction.gains import Gain, gains_at
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.table import Row

AS_ASKED = "as asked"
"""Why batch sizes end where the last one was given."""
_MOST_JUDGED = 1000
"""Batch sizes that are told one by one as sure or open [-]."""
_WORTH = 1.01
"""Speedup above which a batch size that may pay or not is still worth a seat [-]."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan(Viewed):
    """A schedule for an engine, and the prediction that it was made from.

    Parameters
    ----------
    config, path, served
        How the engine takes it, the path of the draft model, "" for a word in its place, and what
        its start command calls the target.
    prediction, gain
        At all contexts, draft lengths and batch sizes; speedup by context, batch size and draft
        length, from 0 [-].
    schedule, unbound
        The schedule, and the one without the engine's own rule.
    end
        Why the batch sizes end where they do.
    alone
        Of several contexts the plan of each alone, up to what fits there.
    whole, freed
        The schedule up to all batch sizes, where `schedule` ends before, and that one with larger
        CUDA graphs, where it gains more.
    targets, carried
        Where a load was simulated, fields of the `serving.Targets` that requests should meet, and
        what each schedule tried carries within them.
    """

    room = "schedules"

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
        """What runs where."""
        return self.prediction.deployment

    @property
    def assumptions(self) -> Mapping[str, Any]:
        """What was assumed, by argument."""
        last = {} if self.end == AS_ASKED else {"max_batch_size": self.schedule.batch_size.size}
        return self.prediction.assumptions | last

    @property
    def evaluation(self) -> Evaluation:
        """What the speedups were computed from."""
        return self.prediction.evaluation

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes, a sentence each."""
        return tuple(map(str, self.notes))

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Those of the prediction, with the graphs and the memory that the schedule takes."""
        deployment, passed_over = self.deployment, notes_of_times(self.evaluation)
        longest = self.schedule.max_draft_length
        own = self._memory.warnings(self.prediction.batch_size, longest)
        sizes = self.schedule.batch_size.astype(float)
        lengths = self.schedule.draft_length.astype(float)
        others = (note for note in self.prediction.notes if note not in passed_over)
        of_contexts = (
            Note("at_context", {"context": context, "note": note})
            for context, plan in zip(self.context_length, self.alone, strict=False)
            for note in plan.graph_notes
        )
        fitted = deployment.warnings(sizes, lengths)
        return (*own, *fitted, *self.graph_notes, *others, *of_contexts)

    @property
    def graph_notes(self) -> list[Note]:
        """A note with the lengths whose steps no CUDA graph holds, if there are any."""
        limit, sizes = self.deployment.graph_limit, self.schedule.batch_size.astype(float)
        tokens = self.schedule.draft_length.astype(float) + 1
        notes = self.deployment.graph_warnings(sizes, tokens)
        if limit is None or not notes:
            return []
        past = limit.is_beyond(sizes, sizes * tokens, self.deployment.layout.replicas)
        told = {"scheduled": sorted({*self.schedule.draft_length[past].tolist()} - {0})}
        return [replace(note, values={**note.values, **told}) for note in notes]

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
        return self.config.fragment(self.schedule, self._kind, modules, self.path)

    @property
    def place(self) -> str:
        """Where the fragment goes, and what else must be set."""
        told = self.config.place(self.schedule, self._kind, self.path) if self.fragment else ""
        return told if self.config.start or not told else f"{told}{self._graphs}"

    @property
    def limits(self) -> str:
        """The engine's options that the schedule is made for, on each replica."""
        requests = min(self.schedule.batch_size.size, self.largest or MAX_VALUES)
        each = max(requests // self.deployment.layout.replicas, 1)
        graphs = self._graphs if self.config.start else ""  # else in `place`
        return f"{self.config.most_requests} {each}{graphs}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Cases in which the engine departs from the schedule; none from one length alone."""
        return self.config.caveats if self.is_schedule else ()

    @property
    def is_schedule(self) -> bool:
        """Whether the fragment is a schedule: vLLM takes one length alone without."""
        return bool(self.fragment) and ("[" in self.fragment or not self.config.start)

    @property
    def _kind(self) -> str:
        return drafter_kind(self.deployment.drafter, self.deployment.target)

    @property
    def _graphs(self) -> str:
        """The engine's own option for CUDA graphs, where their size was given."""
        limit, engine = self.deployment.graph_limit, self.deployment.engine
        is_own = engine.graphs == self.config.name.lower()
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

    def rows_by_context(self) -> list[Row]:
        """Return the rows of the plan of each context alone."""
        plans = zip(self.context_length, self.alone, strict=False)
        return [{"context_length": at, **row} for at, plan in plans for row in plan.rows()]

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
