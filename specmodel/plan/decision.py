"""Decide which settings to paste into an engine, judged at all batch sizes that may run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.facts import Fact
from specmodel.core.base.units import FloatArray
from specmodel.core.drafters.published import recipe_lengths
from specmodel.core.machines.engine import LARGEST_GRAPH
from specmodel.core.prediction.accepted import kind_of
from specmodel.core.prediction.best import alike_places
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import at_best_lengths, at_given_lengths
from specmodel.plan.advice import LOSS
from specmodel.plan.config_formats import (
    accepted_lengths,
    config_format,
    format_of_engine,
    graph_option,
    requests_option,
    start_options,
)
from specmodel.plan.plans import Plan, plan_schedule
from specmodel.plan.schedule import IntArray

NEAR = 0.05
"""Share of the best mean speedup to give up for a shorter draft [-]."""
_LARGEST_CAPTURED = 8192
"""Most tokens of a step in a CUDA graph: vLLM clips larger sizes [token]."""
_MOST_JUDGED = 4096
"""Most batch sizes to judge [-]."""
_TOLD = 0.005
"""Least share of the best speedup whose loss is a fact of the answer [-]."""


class Graphs(Struct, frozen=True, kw_only=True):
    """The engine's option for larger CUDA graphs, and the worst batch size without the option.

    Parameters
    ----------
    option, first
        The option with its value, and the smallest batch size that needs it [request].
    speedup, batch_size
        Smallest speedup without the option [-], and its batch size [request].
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
        The draft length, or the longest of a schedule. The shortest and the longest draft that gain
        as much [token].
    plan
        The schedule; None for a single length.
    gives_away
        Share of the best speedup that the settings give up, as a mean over batch sizes [-].
    no_room_at
        Requested batch sizes that fit in memory only without drafts [request].
    graphs
        Larger CUDA graphs, if steps need them.
    most_requests
        Largest batch size before the first loss of `length`; None if there is none [request].
    largest
        Largest batch size within a target; None without a target [request].
    why
        Why `length` was chosen, as text; "" for a schedule.
    recipe
        Range of draft lengths in published recipes, if `length` is outside it [token].
    recipe_gain
        Mean speedup with the recipe's nearest length over the one with `length`, minus one [-].
    """

    prediction: Prediction
    length: int
    as_good: tuple[int, int]
    plan: Plan | None = None
    gives_away: float = 0.0
    no_room_at: Sequence[int] = ()
    graphs: Graphs | None = None
    most_requests: int | None = None
    largest: int | None = None
    why: str = ""
    recipe: tuple[int, int] | None = None
    recipe_gain: float = 0.0

    @property
    def paste(self) -> tuple[str, str]:
        """Text to start an engine with, and where to put it; "" for engines without options."""
        if self.plan is None:
            most = self.most_requests or self.largest
            return start_options(self.prediction, self.length, most)
        sizes = graph_option(self.prediction.deployment)
        sizes += requests_option(self.prediction, self.most_requests)
        if not (start := self.plan.config.start):
            return self.plan.fragment, self.plan.place_with(sizes)
        options = f"--speculative-config '{' '.join(self.plan.fragment.split())}'{sizes}"
        return options, f"{start}, {self.plan.config.since} or newer"

    def facts(self) -> dict[str, Fact]:
        """Return the settings, the gain they give up, and the losses that larger graphs avoid."""
        graphs, first, last = self.graphs, *self.as_good
        return {
            "one_length": Fact(None if self.plan else self.length, "token"),
            "why_length": Fact(self.why),
            "longest_of_schedule": Fact(self.length if self.plan else None, "token"),
            "schedule": Fact([*map(list, self.plan.schedule.ranges)] if self.plan else []),
            "as_good": Fact([[first, last]] if first < last else None, "token"),
            "gives_away": Fact(self.gives_away if self.gives_away >= _TOLD else None),
            "no_room_at": Fact([[size, size] for size in self.no_room_at], "request"),
            "graphs_option": Fact(graphs.option if graphs else None),
            "graphs_from": Fact(graphs.first if graphs else None, "request"),
            "without_graphs": Fact(graphs.speedup if graphs else None),
            "without_graphs_at": Fact(graphs.batch_size if graphs else None, "request"),
            "most_requests": Fact(self.most_requests, "request"),
            "recipe": Fact([[*self.recipe]] if self.recipe else None, "token"),
            "recipe_gain": Fact(self.recipe_gain if self.recipe else None),
        }


def decide(prediction: Prediction, largest: int | None = None) -> Decision | None:
    """Return the settings for a prediction at best draft lengths; None if no draft gains or fits.

    The usual decision is one length for all batch sizes: the shortest whose geometric mean of
    speedups is within `NEAR` of the best mean. It must lose at no batch size up to the largest
    requested one, with CUDA graphs as large as its steps, unless you gave their size. If every
    length near the best mean loses somewhere, the decision is a schedule, if the engine accepts
    one. Otherwise it is the best length without a loss, or else the best length up to its first
    loss. The result is also None if other inputs than the batch size vary, or if you gave draft
    lengths.

    Parameters
    ----------
    prediction
        Prediction at the requested batch sizes.
    largest
        Largest batch size that will run. The mean then ends there, and the length is the best one,
        without a tolerance. If None, all requested sizes count [request].

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
    bar = (1.0 if largest else 1 - NEAR) * max(means[n] for n in lengths)
    safe = [n for n in lengths if least[n] >= LOSS and means[n] > 1]
    if near := [n for n in safe if means[n] >= bar]:
        why = "the best" if largest else f"the shortest within {NEAR:.0%} of the best"
        return _of_length(prediction, judged, near[0], why)
    if plan := _schedule(judged):
        return _of_plan(prediction, judged, plan)
    if safe:
        best = max(safe, key=means.__getitem__)
        return _of_length(prediction, judged, best, "the best of those that lose nowhere")
    ends = {n: int((judged.gains[n] < LOSS).argmax()) for n in lengths}  # first loss of each
    worth = {n: np.log(judged.gains[n, : ends[n]][judged.is_asked[: ends[n]]]).sum() for n in ends}
    length = max(worth, key=worth.__getitem__)
    most = int(judged.batch_size[ends[length] - 1])
    why = "the best up to its first loss"
    return _of_length(prediction, judged, length, why, most) if worth[length] > 0 else None


class _Judged:
    """Gains of each draft length at every batch size, with CUDA graphs as large as needed."""

    def __init__(self, case: Case, sizes: FloatArray, longest: int, largest: int | None) -> None:
        self.asked, self.largest, self.target = case, int(sizes[-1]), largest
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
        # requests without memory wait: throughput stays that of the largest batch that fits
        carried = np.maximum.accumulate(np.where(fits, tokens, 0.0), axis=-1)
        gains = np.where(fits, speedup, carried * plain / every)[:, held]
        self.gains = np.maximum(gains, 1e-9)
        self.lengths = accepted_lengths(case.deployment, longest)

    @property
    def means(self) -> FloatArray:
        """Geometric mean over the requested batch sizes, by draft length from 0 [-]."""
        return np.asarray(np.exp(np.log(self.gains[:, self.is_asked]).mean(axis=-1)))

    def that_fit(self, lengths: IntArray) -> np.ndarray:
        """Return which batch sizes fit in memory with these draft lengths, one for each."""
        return np.asarray(self.fits[lengths, np.arange(lengths.size)])

    def needed(self, lengths: IntArray) -> int:
        """Return the size of CUDA graphs for draft lengths by batch size [token] or [request].

        The result is 0 if the default suffices, or if the user gave a size.
        """
        if self.limit is None:
            return 0
        is_token = self.limit.unit == "token"
        fits = self.that_fit(lengths)
        steps = self.batch_size * (lengths + 1 if is_token else 1)
        replicas = self.asked.deployment.layout.replicas
        most = -(-int(steps.max(where=fits | ~fits.any(), initial=1)) // replicas)
        most = min(most, _LARGEST_CAPTURED) if is_token else most
        return most if most > self.limit.count else 0

    def with_graphs(
        self, drafts: IntArray | int, most_requests: int | None = None
    ) -> tuple[Graphs | None, Case]:
        """Return the CUDA graphs that drafts by batch size need, and the case with these graphs.

        Without such a need, or without a loss up to `most_requests`, the case stays as it is.
        """
        lengths = np.broadcast_to(drafts, self.batch_size.shape)
        needed = self.needed(lengths)
        if not needed or self.limit is None:
            return None, self.asked
        found = at_given_lengths(self.asked, draft_length=lengths, batch_size=self.batch_size)
        is_out = np.ravel(found.in_graph) | ~self.that_fit(lengths)
        gains = np.where(is_out, np.inf, np.ravel(found.speedup))
        beyond, worst = int(np.isfinite(gains).argmax()), int(gains.argmin())
        first, last = self.batch_size[[beyond, worst]].tolist()
        is_near = gains[worst] >= max((1 - NEAR) * self.gains[lengths[worst], worst], LOSS)
        if is_near or first > (most_requests or first):
            return None, self.asked
        option, speedup = f"{self.limit.option} {needed}", float(gains[worst])
        graphs = Graphs(option=option, first=first, speedup=speedup, batch_size=last)
        return graphs, self.asked.with_graphs_of(needed)


def _of_length(
    prediction: Prediction, judged: _Judged, length: int, why: str, most_requests: int | None = None
) -> Decision:
    """Return the decision for one length."""
    graphs, case = judged.with_graphs(length, most_requests or judged.target)
    may_run = judged.is_asked & (judged.batch_size <= (most_requests or judged.largest))
    gains, fits = judged.gains[:, may_run], judged.fits[:, may_run]
    best = gains[judged.lengths].max(axis=0)
    asked = judged.batch_size[may_run]
    recipe, gain = _recipe(judged, length, gains)
    return Decision(
        prediction=_at(prediction, case, length),
        length=length,
        as_good=alike_places(judged.means, length),
        gives_away=float(1 - (gains[length] / best).mean()),
        no_room_at=asked[fits.any(axis=0) & ~fits[length]].tolist(),
        graphs=graphs,
        most_requests=most_requests,
        why=why,
        recipe=recipe,
        recipe_gain=gain,
    )


def _at(prediction: Prediction, case: Case, draft_length: Any) -> Prediction:
    """Return the prediction at given draft lengths; its `chains` have all lengths.

    It has no note on batch sizes that do not fit, as `no_room_at` lists them.
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


def _recipe(
    judged: _Judged, length: int, gains: FloatArray
) -> tuple[tuple[int, int] | None, float]:
    """Return the lengths of published recipes, if `length` is not among them, and their gain [-].

    The gain is the mean speedup with the nearest of these lengths over the one with `length`.
    `gains` are the speedups by length and batch size [-].
    """
    d, means = judged.case.deployment, np.exp(np.log(gains).mean(axis=-1))
    recipe = recipe_lengths(d.target, kind_of(d))
    if recipe is None or recipe[0] <= length <= recipe[1]:
        return None, 0.0
    nearest = recipe[length > recipe[1]]
    is_known = nearest < means.size
    return (recipe, float(means[nearest] / means[length] - 1)) if is_known else (None, 0.0)


def _schedule(judged: _Judged) -> Plan | None:
    """Return a schedule without a loss at any batch size; None if the engine accepts none."""
    case = judged.case
    try:
        config = config_format(format_of_engine(case.deployment.engine))
        is_split = config.name == "vLLM" and case.deployment.layout.replicas > 1
        if is_split or not config.changes_length:
            return None  # the engine drafts the longest length at every batch size
        plan = plan_schedule(case, config, max_batch_size=judged.largest, ends=False)
    except InputError:
        return None
    speedup = plan.schedule.speedup
    return plan if plan.fragment and speedup.min() >= LOSS and speedup.max() > 1 else None


def _of_plan(prediction: Prediction, judged: _Judged, plan: Plan) -> Decision:
    """Return the decision for a schedule."""
    schedule, sizes = plan.schedule, prediction.batch_size.astype(int)
    longest = schedule.max_draft_length
    graphs, case = judged.with_graphs(schedule.draft_length[judged.batch_size - 1])
    return Decision(
        prediction=_at(prediction, case, schedule.draft_length[sizes - 1]),
        length=longest,
        as_good=(longest, longest),
        plan=plan,
        gives_away=float(schedule.loss[np.unique(sizes) - 1].mean()),
        graphs=graphs,
    )
