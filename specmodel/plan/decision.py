"""Decide what to paste into an engine, judged at every batch size up to the largest requested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.facts import Fact
from specmodel.core.base.units import FloatArray
from specmodel.core.drafters.by_name import drafter_kind
from specmodel.core.drafters.published import recipe_lengths
from specmodel.core.machines.engine import LARGEST_GRAPH
from specmodel.core.prediction.best import alike_places
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import at_best_lengths, at_given_lengths
from specmodel.plan.advice import LOSS, graph_option, requests_option, start_options, taken_length
from specmodel.plan.config_formats import config_format, format_of_engine
from specmodel.plan.plans import Plan, plan_schedule
from specmodel.plan.schedule import IntArray

NEAR = 0.05
"""Share of the best mean speedup that is given up for a shorter draft [-]."""
_LARGEST_CAPTURED = 8192
"""Tokens of a step at most: vLLM clips larger graphs to them [token]."""
_MOST_JUDGED = 4096
"""Batch sizes that are judged at most [-]."""


_TOLD = 0.005
"""Least share of the best speedup whose loss is told [-]."""


class Graphs(Struct, frozen=True, kw_only=True):
    """The engine's option for larger CUDA graphs, and the worst batch size without it.

    Parameters
    ----------
    option, first
        The option with its value, and the least batch size that needs it [request].
    speedup, batch_size
        Least speedup without it [-], and where that is [request].
    """

    option: str
    first: int
    speedup: float
    batch_size: int


class Decision(Struct, frozen=True, kw_only=True, eq=False):
    """The settings to start an engine with, for all batch sizes, and their effect.

    Parameters
    ----------
    prediction
        Prediction with these settings, at the requested batch sizes.
    length, as_good
        The draft length, or the longest of a schedule. The shortest and longest that gain as much
        [token].
    plan
        The schedule; None for a single length.
    gives_away
        Share of the best speedup that the settings give up, as a mean over batch sizes [-].
    no_room_at
        Requested batch sizes that fit in memory only without drafts [request].
    graphs
        Larger CUDA graphs, if steps need them.
    most_requests
        Largest batch size before a loss that no setting avoids; None without such a loss [request].
    recipe
        Range of draft lengths in published recipes, if `length` is outside it [token].
    recipe_gain
        Mean speedup with the nearest of these over that with `length`, minus one [-].
    """

    prediction: Prediction
    length: int
    as_good: tuple[int, int]
    plan: Plan | None = None
    gives_away: float = 0.0
    no_room_at: Sequence[int] = ()
    graphs: Graphs | None = None
    most_requests: int | None = None
    recipe: tuple[int, int] | None = None
    recipe_gain: float = 0.0

    @property
    def paste(self) -> tuple[str, str]:
        """Text to start an engine with, and where it goes; "" for engines without one."""
        if self.plan is None:
            return start_options(self.prediction, self.length, self.most_requests)
        sizes = graph_option(self.prediction.deployment)
        sizes += requests_option(self.prediction, self.most_requests)
        if not (start := self.plan.config.start):
            return self.plan.fragment, self.plan.place_with(sizes)
        options = f"--speculative-config '{' '.join(self.plan.fragment.split())}'{sizes}"
        return options, f"{start}, {self.plan.config.since} or newer"

    def facts(self) -> dict[str, Fact]:
        """Return the text to paste, the gain it gives up, and losses that larger graphs avoid."""
        graphs, first, last = self.graphs, *self.as_good
        starts = graphs.first if graphs and graphs.first < graphs.batch_size else None
        return {
            "one_length": Fact(None if self.plan else self.length, "token"),
            "longest_of_schedule": Fact(self.length if self.plan else None, "token"),
            "schedule": Fact([*map(list, self.plan.schedule.ranges)] if self.plan else []),
            "as_good": Fact([[first, last]] if first < last else None, "token"),
            "gives_away": Fact(self.gives_away if self.gives_away >= _TOLD else None),
            "no_room_at": Fact([[size, size] for size in self.no_room_at], "request"),
            "graphs_option": Fact(graphs.option if graphs else None),
            "graphs_from": Fact(starts, "request"),
            "without_graphs": Fact(graphs.speedup if graphs else None),
            "without_graphs_at": Fact(graphs.batch_size if graphs else None, "request"),
            "most_requests": Fact(self.most_requests, "request"),
            "recipe": Fact([[*self.recipe]] if self.recipe else None, "token"),
            "recipe_gain": Fact(self.recipe_gain if self.recipe else None),
        }


def decide(prediction: Prediction, largest: int | None = None) -> Decision | None:
    """Return the settings for a prediction at best draft lengths; None if no draft gains or fits.

    The default is one length for all batch sizes: the shortest within `NEAR` of the best geometric
    mean of speedups over them. CUDA graphs are as large as its steps, unless you gave their size.
    This length loses at no batch size up to the largest requested one. If no length near the best
    does so, the answer is a schedule if the engine accepts one. Otherwise it is the best length
    without a loss, or else the best length up to its first loss. The answer is also None if more
    than the batch size varies, or if you gave draft lengths.

    Parameters
    ----------
    prediction
        Prediction at the requested batch sizes.
    largest
        Largest batch size that will run. The mean then ends there, and the length is the best one,
        not one near it. If None, all requested sizes count [request].

    Raises
    ------
    InputError
        If acceptance is unknown.
    """
    case, sizes = prediction.case, np.unique(prediction.batch_size)
    if case is None or case.draft_length is not None or case.acceptance is None:
        return None
    varies = {name for name, values in case.points.items() if np.size(values) > 1}
    if varies - {"batch_size"} or np.prod(case.acceptance.shape) > 1:
        return None
    judged = _Judged(case, sizes, prediction.max_draft_length, largest)
    if not judged.is_asked.any():
        return None
    means, least, lengths = judged.means, judged.gains.min(axis=-1), judged.lengths
    share = 0.0 if largest else NEAR
    near = [n for n in lengths if means[n] >= (1 - share) * max(means[n] for n in lengths)]
    safe = [n for n in near if least[n] >= LOSS and means[n] > 1]
    if safe:
        return _of_length(prediction, judged, safe[0])
    if plan := _schedule(judged):
        return _of_plan(prediction, judged, plan)
    safe = [n for n in lengths if least[n] >= LOSS and means[n] > 1]
    if safe:
        return _of_length(prediction, judged, max(safe, key=means.__getitem__))
    ends = {n: int((judged.gains[n] < LOSS).argmax()) for n in lengths}  # first loss of each
    worth = {n: np.log(judged.gains[n, : ends[n]][judged.is_asked[: ends[n]]]).sum() for n in ends}
    length = max(worth, key=worth.__getitem__)
    if worth[length] <= 0:
        return None
    most = int(judged.batch_size[ends[length] - 1])
    return _of_length(prediction, judged, length, most_requests=most)


class _Judged:
    """Gains of each draft length at every batch size, with CUDA graphs as large as needed."""

    def __init__(self, case: Case, sizes: FloatArray, longest: int, largest: int | None) -> None:
        self.asked, self.largest = case, int(sizes[-1])
        most = min(self.largest, _MOST_JUDGED)
        is_few = self.largest <= most
        some = np.arange(1, most + 1) if is_few else np.geomspace(1, self.largest, most)
        every = np.union1d(some.astype(int), sizes).astype(int)
        limit = case.deployment.graph_limit
        self.limit = limit if limit and limit.default_of else None
        most = min(self.largest * (longest + 1), LARGEST_GRAPH)
        self.case = case.with_graphs_of(most) if self.limit else case
        drafts = np.arange(longest + 1)[:, None]
        at = {"draft_length": drafts, "batch_size": every, "max_draft_length": longest}
        found = at_given_lengths(self.case, **at)
        fits, speedup, tokens, plain = (
            np.reshape(values, (longest + 1, every.size))
            for values in (found.fits, found.speedup, found.throughput, found.forward_time)
        )
        fits = fits if fits.any() else np.ones_like(fits)
        held = fits.any(axis=0)
        few = sizes[sizes <= largest] if largest and sizes[0] <= largest else sizes
        self.batch_size, self.is_asked = every[held], np.isin(every[held], few)
        self.fits = fits[:, held]
        # where memory ends the batch, others wait: tokens/s are those of the largest that fits
        carried = np.maximum.accumulate(np.where(fits, tokens, 0.0), axis=-1)
        gains = np.where(fits, speedup, carried * plain / every)[:, held]
        self.gains = np.maximum(gains, 1e-9)
        every_length = range(1, longest + 1)
        self.lengths = [n for n in every_length if taken_length(case.deployment, n) == n]

    def with_graphs(self, drafts: IntArray | int) -> Case:
        """Return the case with CUDA graphs of the largest step with drafts of these lengths."""
        needed = self.needed(drafts)
        return self.asked.with_graphs_of(needed) if needed else self.asked

    def needed(self, drafts: IntArray | int) -> int:
        """Return the graphs that drafts by batch size need [token] or [request]; 0 if none larger.

        A size that was given stays.
        """
        if self.limit is None:
            return 0
        lengths, is_token = self._along(drafts), self.limit.unit == "token"
        fits = self.fits[lengths, np.arange(lengths.size)]
        steps = self.batch_size * (lengths + 1 if is_token else 1)
        replicas = self.asked.deployment.layout.replicas
        most = -(-int(steps.max(where=fits | ~fits.any(), initial=1)) // replicas)
        most = min(most, _LARGEST_CAPTURED) if is_token else most
        return most if most > self.limit.count else 0

    def _along(self, drafts: IntArray | int) -> IntArray:
        """Return the draft length at each batch size [token]."""
        return np.broadcast_to(np.asarray(drafts), self.batch_size.shape)

    @property
    def means(self) -> FloatArray:
        """Geometric mean over the batch sizes asked, by draft length from 0 [-]."""
        return np.asarray(np.exp(np.log(self.gains[:, self.is_asked]).mean(axis=-1)))

    def without_graphs(self, drafts: IntArray | int) -> Graphs | None:
        """Return the option for the graphs that drafts by batch size need, and the loss without."""
        needed, lengths = self.needed(drafts), self._along(drafts)
        if not needed or self.limit is None:
            return None
        found = at_given_lengths(self.asked, draft_length=lengths, batch_size=self.batch_size)
        gains = np.ravel(np.where(found.in_graph, np.inf, found.speedup))
        worst = int(gains.argmin())
        if gains[worst] >= max((1 - NEAR) * self.gains[lengths[worst], worst], LOSS):
            return None
        first, last = self.batch_size[[np.isfinite(gains).argmax(), worst]].tolist()
        option = f"{self.limit.option} {needed}"
        return Graphs(option=option, first=first, speedup=float(gains[worst]), batch_size=last)


def _of_length(
    prediction: Prediction, judged: _Judged, length: int, most_requests: int | None = None
) -> Decision:
    """Return the decision for one length."""
    graphs = judged.without_graphs(length)
    if graphs and most_requests and graphs.first > most_requests:
        graphs = None
    case = judged.with_graphs(length) if graphs else judged.asked
    gains, fits = judged.gains[:, judged.is_asked], judged.fits[:, judged.is_asked]
    best = gains[judged.lengths].max(axis=0)
    asked = judged.batch_size[judged.is_asked]
    recipe, gain = _recipe(judged, length)
    return Decision(
        prediction=_at(prediction, case, length),
        length=length,
        as_good=alike_places(judged.means, length),
        gives_away=float(1 - (gains[length] / best).mean()),
        no_room_at=asked[fits.any(axis=0) & ~fits[length]].tolist(),
        graphs=graphs,
        most_requests=most_requests,
        recipe=recipe,
        recipe_gain=gain,
    )


def _at(prediction: Prediction, case: Case, draft_length: Any) -> Prediction:
    """Return the prediction at given draft lengths, with all lengths beside them (`chains`).

    That some batch sizes do not fit is for `no_room_at` to say.
    """
    if case.deployment is not prediction.deployment:
        prediction = replace(at_best_lengths(case), shown=prediction.shown)
    chains = prediction.evaluation.chains or prediction.evaluation
    evaluation = replace(chains.at_lengths(np.asarray(draft_length, float)), chains=chains)
    case = replace(case, draft_length=draft_length)
    found = replace(prediction, evaluation=evaluation, case=case, told=None)
    if not found.fits.any():
        return found
    return replace(found, told=tuple(n for n in found.notes if n.kind != "beyond_memory"))


def _recipe(judged: _Judged, length: int) -> tuple[tuple[int, int] | None, float]:
    """Return the lengths of recipes, if they are others, and what the nearest gains beside [-]."""
    d = judged.case.deployment
    recipe = recipe_lengths(d.target, drafter_kind(d.drafter, d.target))
    if recipe is None or recipe[0] <= length <= recipe[1]:
        return None, 0.0
    nearest = recipe[length > recipe[1]]
    means = judged.means
    is_known = nearest < means.size
    return (recipe, float(means[nearest] / means[length] - 1)) if is_known else (None, 0.0)


def _schedule(judged: _Judged) -> Plan | None:
    """Return a schedule that loses at no batch size, None without one or if no engine takes it."""
    case = judged.case
    try:
        config = config_format(format_of_engine(case.deployment.engine))
        if config.name == "vLLM" and case.deployment.layout.replicas > 1:
            return None  # which then drafts the longest length at every batch size
        plan = plan_schedule(case, config, max_batch_size=judged.largest, ends=False)
    except InputError:
        return None
    speedup = plan.schedule.speedup
    return plan if plan.fragment and speedup.min() >= LOSS and speedup.max() > 1 else None


def _of_plan(prediction: Prediction, judged: _Judged, plan: Plan) -> Decision:
    """Return the decision for a schedule."""
    schedule, longest = plan.schedule, plan.schedule.max_draft_length
    sizes = np.ravel(prediction.batch_size).astype(int)
    lengths = schedule.draft_length[sizes - 1]
    drafts = schedule.draft_length[judged.batch_size - 1]
    graphs = judged.without_graphs(drafts)
    case = judged.with_graphs(drafts) if graphs else judged.asked
    shape = prediction.batch_size.shape
    return Decision(
        prediction=_at(prediction, case, lengths.reshape(shape)),
        length=longest,
        as_good=(longest, longest),
        plan=plan,
        gives_away=float(schedule.loss[np.unique(sizes) - 1].mean()),
        graphs=graphs,
    )
