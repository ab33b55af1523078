"""Advise from a prediction or a schedule: on or off, at which points, and a better layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.speculation import expected_tokens_per_step
from specmodel.core.base.facts import Fact, known
from specmodel.core.base.ranges import spans
from specmodel.core.cost.deploying import GPU_DEGREES
from specmodel.core.cost.layouts import layouts_of
from specmodel.core.prediction.best import ALIKE
from specmodel.core.prediction.cautions import is_modelled
from specmodel.core.prediction.gains import Gain
from specmodel.core.prediction.ground import SURELY, Place, place_of
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predicted
from specmodel.core.prediction.table import Row
from specmodel.plan.schedule import mean_speedup

if TYPE_CHECKING:
    from specmodel.plan.plans import Plan

LOSS = 0.995
"""Speedup below which a batch size loses: it prints as less than 1.00 [-]."""
_ANY_WOULD_DO = 1.01
"""Tokens per step that any acceptance reaches: a draft that needs fewer always pays [token]."""


class Verdict(Struct, frozen=True, kw_only=True, dict=True):
    """The points where speculation surely pays, may pay and loses, and the resulting advice.

    Parameters
    ----------
    rows
        The judged rows of a prediction: those that fit in memory, or all if none fits.
    is_typed
        Whether the user gave the acceptance, which then counts as exact.
    place, is_published
        Position of the deployment among the published runs. Whether the acceptance is a published
        one, not measured on this deployment.
    proposal_rate
        Share of steps with a draft [-].
    """

    rows: list[Row]
    is_typed: bool = False
    place: Place
    is_published: bool = False
    proposal_rate: float = 1.0

    @cached_property
    def pairs(self) -> list[tuple[Row, Gain | None]]:
        """Each row, with the interval and the chance of its gain; None without intervals."""
        return [(row, gain_of(row)) for row in self.rows]

    @property
    def sure(self) -> list[Row]:
        """The rows whose whole interval is above 1; without intervals, those that gain."""
        return [row for row, gain in self.pairs if is_sure(gain, row)]

    @property
    def has_drafts(self) -> bool:
        """Whether any row drafts."""
        return any(row["draft_length"] for row in self.rows)

    @cached_property
    def best(self) -> Row:
        """The row with the largest gain: among the sure gains, if there are any."""
        return max(self.sure or self.rows, key=_speedup)

    @property
    def worst(self) -> Row:
        """The row with the smallest gain."""
        return min(self.rows, key=_speedup)

    @property
    def open(self) -> list[Row]:
        """The rows with drafts whose interval includes 1."""
        return [row for row, gain in self.pairs if gain and gain.is_open and row["draft_length"]]

    @property
    def lost(self) -> list[Row]:
        """The rows with a likely or predicted loss, also where a loaded drafter drafts nothing."""
        return [row for row, gain in self.pairs if gain and _is_lost(gain, row)]

    @cached_property
    def gain(self) -> Gain | None:
        """Interval and chance of the best row's gain; None without intervals."""
        return gain_of(self.best)

    @cached_property
    def word(self) -> str | None:
        """The word for how sure the largest gain is; None without an interval."""
        if self.gain is None:
            return None
        return self.place.word(self.gain.chance, is_published=self.is_published)

    @property
    def share_held(self) -> float | None:
        """Share of published cases with the same word that came true, None without any [-]."""
        if self.gain is None:
            return None
        return self.place.share_held(self.gain.chance, is_published=self.is_published)

    @property
    def needed(self) -> float | None:
        """Tokens per step from which the best row's draft pays; None if any acceptance suffices."""
        tokens = tokens_needed(self.best, self.proposal_rate)
        return tokens if tokens and tokens >= _ANY_WOULD_DO else None

    @property
    def advice(self) -> str:
        """One of "on", "on where it pays", "may", "off", "off below", "close", "depends".

        "may" is a gain that published runs do not confirm. "off below" and "depends" refer to the
        tokens per step that are `needed`.
        """
        gain = self.gain
        if not self.has_drafts:
            return "off"
        if gain and gain.is_open:
            if self.needed is None:
                return "off" if gain.is_lost else "close"
            return "off below" if gain.is_lost else "depends"
        if not is_sure(gain, self.best):
            return "off"
        if self.word == "may":
            return "may"
        is_everywhere = len(self.sure) == len(self.rows)
        return "on where it pays" if self.lost and not is_everywhere else "on"

    @cached_property
    def risk(self) -> Row | None:
        """The row with the least sure of the likely gains; None if all gains are sure."""
        likely = [
            (row, gain.chance)
            for row, gain in self.pairs
            if gain and row["draft_length"] and 0.5 <= gain.chance < SURELY
        ]
        return min(likely, key=itemgetter(1))[0] if likely else None


_speedup = itemgetter("speedup")


def gain_of(row: Row) -> Gain | None:
    """Return interval and chance of the gain in a row; None if the row has no interval."""
    if row.get("speedup_low") is None:
        return None
    return Gain(**{end: row[f"speedup_{end}"] for end in ("low", "high", "chance")})


def is_sure(gain: Gain | None, row: Row) -> bool:
    """Return whether the interval of a row is above 1; without an interval, its speedup."""
    return gain.low > 1 if gain else round(row["speedup"], 2) > 1


def _is_lost(gain: Gain, row: Row) -> bool:
    """Return whether a loss is likely or predicted."""
    return gain.is_lost or row["speedup"] < LOSS


def tokens_needed(row: Row, proposal_rate: float) -> float | None:
    """Return the tokens per step from which the draft of a row pays; None if no number pays.

    They are a mean over all steps. `proposal_rate` is the share of steps with a draft [-].
    """
    rate = row["break_even_acceptance_rate"]
    if rate is None:
        return None
    return 1 + proposal_rate * (float(expected_tokens_per_step(rate, row["draft_length"])) - 1)


def better_layout(prediction: Prediction, rows: Sequence[Row]) -> dict[str, Fact]:
    """Return a layout with more tokens/s at the largest batch size of `rows` that fits, or {}.

    The layout is written as engines abbreviate degrees, such as ``TP2 DP4 EP8``. Draft lengths are
    the best ones, as in `compare`. To save time, the function tries one layout: among those that
    spread the experts over all GPUs, the middle one, if the batch fits in its memory. It tries none
    for several contexts, or if you gave a layout.
    """
    case, fitting = prediction.case, [row for row in rows if row["fits"]]
    if case is None or not fitting or len({row["context_length"] for row in rows}) > 1:
        return {}
    spread = [d for d in layouts_of(case.deployment) if d["expert_parallel"] > 1]
    sizes = {row["batch_size"] for row in fitting} & {*prediction.batch_size.flat}
    if not spread or not sizes or {*GPU_DEGREES} & case.where.named.keys():
        return {}
    degrees, size = spread[len(spread) // 2], max(sizes)
    laid = case.laid_out(degrees).at(batch_size=[size])
    memory = replace(prediction.evaluation.memory, deployment=laid.deployment)
    if memory.max_batch_size.max() < size:
        return {}
    other = predicted(laid)
    here = prediction.throughput[prediction.batch_size == size].item(0)
    more = other.throughput.item(0) / here - 1  # one value at all other points
    if not other.fits.item(0) or more < ALIKE:
        return {}
    named = zip(("TP", "DP", "EP"), degrees.values(), strict=True)
    name = " ".join(f"{letters}{n}" for letters, n in named if n > 1)
    at = Fact(size, "request")
    return {"layout": Fact(name), "layout_carries_more": Fact(more), "layout_at": at}


def plan_facts(plan: Plan) -> dict[str, Fact]:
    """Return the facts of a schedule, by name: where it pays, its best and worst, its losses."""
    schedule, is_full = plan.schedule, plan.largest == plan.schedule.batch_size.size
    is_loaded = plan.prediction.evaluation.prefill
    facts = {
        "engine": Fact(plan.config.name),
        "mean_speedup": Fact(schedule.mean_speedup),
        "last_batch_size": Fact(schedule.batch_size.size, "request"),
        "why_last": Fact(plan.end + (counted(plan) if is_full else "")),
        "not_counted": Fact("" if is_loaded else "prefill of other requests"),
        **_graphs(plan),
    }
    if schedule.max_draft_length:
        return known((facts | _gains(plan) | _losses(plan) | _end(plan)).items())
    best, off = schedule.best_speedup, ("off in tolerance", "off by rule")
    kind = "off" if best.max() == 1 else off[plan.unbound.max_draft_length > 0]
    most = {"most": Fact(float(best.max())), "most_at": Fact(int(best.argmax()) + 1, "request")}
    return known((facts | most | {"advice": Fact(kind)}).items())


def _gains(plan: Plan) -> dict[str, Fact]:
    """Return the advice of a schedule that drafts, its best and worst, and where it pays."""
    speedup, gains, drafts = plan.schedule.speedup, plan.gains, plan.schedule.draft_length
    most, least = int(speedup.argmax()), int(speedup.argmin())
    has_ends = all(gain or not length for gain, length in zip(gains, drafts, strict=True))
    sure = [gain.low > 1 if gain else s > 1 for gain, s in zip(gains, speedup, strict=True)]
    may = [bool(has_ends and gain and gain.is_open) for gain in gains]
    is_known = is_modelled(plan.deployment, plan.prediction.evaluation.points["context_length"])
    is_known &= place_of(plan.deployment, max(plan.context_length)).may_be_sure
    top, advice = gains[most], "on" if all(sure) else "on where it pays"
    ends = (top.low, top.high) if top else ()
    advice = "close" if top and top.is_open else advice if is_known else "may"

    def where(holds: Iterable[bool]) -> Fact:
        return Fact([*map(list, spans(plan.schedule.batch_size.tolist(), holds))], "request")

    return {
        "advice": Fact(advice),
        "most": Fact(float(speedup[most]), "-", *ends),
        "most_at": Fact(most + 1, "request"),
        "least": Fact(float(speedup[least])),
        "least_at": Fact(least + 1, "request"),
        "chance": Fact(top.chance if top and top.is_open else None),
        "pays_at" if has_ends else "gains_at": where(sure),
        "may_pay_at": where(may),
    }


def _losses(plan: Plan) -> dict[str, Fact]:
    """Return the losses by a single length, by the engine's rule and by sharing all contexts."""
    schedule, has_one = plan.schedule, len(plan.schedule.ranges) == 1
    context, size = divmod(int(plan.speedup.argmin()), schedule.batch_size.size)
    # a start command ends the batch at the last size
    has_no_end = plan.config.changes_length and plan.fragment and not plan.config.start
    above = int(schedule.draft_length[-1]) * plan.config.keeps_last if has_no_end else None
    slowest = {
        "slowest": Fact(float(plan.speedup.min())),
        "slowest_at": Fact(size + 1, "request"),
        "slowest_context": Fact(plan.context_length[context], "token"),
    }
    return (slowest if plan.alone else {}) | {
        "one_length": Fact(schedule.single_draft_length, "token"),
        "one_length_speedup": Fact(mean_speedup(schedule.single_speedup)),
        "more": Fact(None if has_one else schedule.gain_over_single - 1),
        "only_length": Fact(schedule.max_draft_length if has_one else None, "token"),
        "drafts_above": Fact(above, "token"),
        "mean_loss": Fact(schedule.mean_loss),
        "max_loss": Fact(float(schedule.loss.max())),
        "cost_of_rule": Fact(plan.cost_of_rule or None),
    }


def _end(plan: Plan) -> dict[str, Fact]:
    """Return the batch size above which no length pays; {} if there is none."""
    beyond = (plan.whole or plan.schedule).speedup[plan.paying :]
    if not beyond.size:
        return {}
    replicas = plan.deployment.layout.replicas
    return {
        "stops_paying_above": Fact(plan.paying, "request"),
        "beyond": Fact([[plan.paying + 1, plan.paying + beyond.size]], "request"),
        "beyond_least": Fact(float(beyond.min())),
        "beyond_most": Fact(float(beyond.max())),
        "seats_option": Fact(plan.config.requests_option(plan.paying, replicas)),
    }


def _graphs(plan: Plan) -> dict[str, Fact]:
    """Return the gain of larger CUDA graphs; {} if they gain nothing."""
    schedule, freed = plan.whole or plan.schedule, plan.freed
    limit = plan.deployment.graph_limit
    if not (freed and limit):
        return {}
    size = freed.batch_size * (freed.draft_length + 1 if limit.unit == "token" else 1)
    count = int(-(-size.max() // plan.deployment.layout.replicas))
    place = int((freed.speedup / schedule.speedup).argmax())
    return {
        "graphs_option": Fact(f"{limit.option} {count}"),
        "graphs_needed": Fact(count, limit.unit),
        "with_graphs": Fact(freed.mean_speedup),
        "with_graphs_up_to": Fact(freed.batch_size.size, "request"),
        "most_with_graphs_at": Fact(place + 1, "request"),
        "most_with_graphs": Fact(float(freed.speedup[place])),
        "now_without_graphs": Fact(float(schedule.speedup[place])),
        "only_length_then": Fact(freed.ranges[0][2] if len(freed.ranges) == 1 else None, "token"),
    }


def counted(plan: Plan) -> str:
    """Return as text the context, and the room for drafts, that memory holds for each request."""
    has_room = plan.deployment.recurrent_model and plan.schedule.max_draft_length
    drafts = f" and draft length {plan.schedule.max_draft_length}" if has_room else ""
    return f" at context {max(plan.context_length)}{drafts}"
