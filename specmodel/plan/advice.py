"""Advise from a prediction or a schedule: on or off, where, start options, a better layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.speculation import expected_tokens_per_step
from specmodel.core.base.facts import Fact, known
from specmodel.core.base.ranges import spans
from specmodel.core.cost.deploying import GPU_DEGREES
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.layouts import layouts_of
from specmodel.core.drafters.by_name import drafter_kind
from specmodel.core.drafters.published import is_in_checkpoint
from specmodel.core.prediction.best import ALIKE
from specmodel.core.prediction.cautions import is_modelled
from specmodel.core.prediction.gains import Gain
from specmodel.core.prediction.ground import SURELY, Place, place_of
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predicted
from specmodel.core.prediction.table import Row
from specmodel.plan.config_formats import config_format, format_of_engine, one_length, takes_length
from specmodel.plan.schedule import mean_speedup

if TYPE_CHECKING:
    from specmodel.plan.plans import Plan

LOSS = 0.995
"""Speedup below which a batch size loses, as two digits tell it [-]."""
_ANY_WOULD_DO = 1.01
"""Tokens a step below which any acceptance would do, so that none is asked for [token]."""


class Verdict(Struct, frozen=True, kw_only=True, dict=True):
    """Where speculation surely pays, may pay and loses, and the advice that follows.

    Parameters
    ----------
    rows
        The rows of a prediction that are judged: those that fit in memory, or all if none does.
    is_typed
        Whether the acceptance is the user's own, and known exactly.
    place, is_published
        Where the deployment stands among published runs, and whether acceptance is published, not
        that of the run.
    """

    rows: list[Row]
    is_typed: bool = False
    place: Place
    is_published: bool = False

    @cached_property
    def pairs(self) -> list[tuple[Row, Gain | None]]:
        """Each row with interval and chance of its gain; None without intervals."""
        return [(row, gain_of(row)) for row in self.rows]

    def where(self, *kinds: str) -> list[Row]:
        """Return the rows of these kinds: "pays", "open", "loses", "idle" (nothing is drafted)."""
        return [row for row, gain in self.pairs if _kind(row, gain) in kinds]

    @property
    def has_drafts(self) -> bool:
        """Whether any row drafts."""
        return any(row["draft_length"] for row in self.rows)

    @cached_property
    def best(self) -> Row:
        """The row that gains most: of sure gains, where there are any."""
        sure = [row for row, gain in self.pairs if is_sure(gain, row)]
        return max(sure or self.rows, key=lambda row: float(row["speedup"]))

    @property
    def worst(self) -> Row:
        """The row that gains least."""
        return min(self.rows, key=lambda row: float(row["speedup"]))

    @property
    def lost(self) -> list[Row]:
        """The rows that surely or likely lose, or are predicted to: also by a loaded drafter."""
        return [row for row, gain in self.pairs if gain and _is_lost(gain, row)]

    @cached_property
    def word(self) -> str | None:
        """How sure the most is, None without an interval."""
        gain = gain_of(self.best)
        return self.place.word(gain.chance, is_published=self.is_published) if gain else None

    @property
    def share_held(self) -> float | None:
        """Share of published cases told the same that came true, if any were [-]."""
        gain = gain_of(self.best)
        return self.place.share_held(gain.chance, is_published=self.is_published) if gain else None

    @property
    def needed(self) -> float | None:
        """Tokens a step from which the draft of the best row pays, None where any would do."""
        tokens = tokens_needed(self.best)
        return tokens if tokens and tokens >= _ANY_WOULD_DO else None

    @property
    def advice(self) -> str:
        """One of "on", "on where it pays", "may", "off", "off below", "close", "depends".

        "may" is a gain that no published runs bear out; "off below" and "depends" are about the
        tokens a step that are `needed`.
        """
        gain = gain_of(self.best)
        if not self.has_drafts or (not (gain and gain.is_open) and not is_sure(gain, self.best)):
            return "off"
        if self.word == "may" and not (gain and gain.is_open):
            return "may"
        if not (gain and gain.is_open):
            is_everywhere = len(self.where("pays")) == len(self.rows)
            return "on where it pays" if self.lost and not is_everywhere else "on"
        if self.needed is None:
            return "off" if gain.is_lost else "close"
        return "off below" if gain.is_lost else "depends"

    @cached_property
    def risk(self) -> Row | None:
        """The row whose likely gain is least sure; None where all gains are sure."""
        likely = {
            i: gain.chance
            for i, (row, gain) in enumerate(self.pairs)
            if gain and row["draft_length"] and 0.5 <= gain.chance < SURELY
        }
        return self.rows[min(likely, key=likely.__getitem__)] if likely else None


def gain_of(row: Row) -> Gain | None:
    """Return the `Gain` of a row, its interval and chance; None in rows without intervals."""
    if row.get("speedup_low") is None:
        return None
    return Gain(**{end: row[f"speedup_{end}"] for end in ("low", "high", "chance")})


def is_sure(gain: Gain | None, row: Row) -> bool:
    """Return whether a row is a gain: its lower end is above 1, or without one its speedup."""
    return gain.low > 1 if gain else round(row["speedup"], 2) > 1


def _kind(row: Row, gain: Gain | None) -> str:
    if not row["draft_length"] and row["speedup"] >= LOSS:
        return "idle"
    if is_sure(gain, row):
        return "pays"
    return "open" if gain and gain.is_open and not _is_lost(gain, row) else "loses"


def _is_lost(gain: Gain, row: Row) -> bool:
    """Return whether a loss is at least likely, or predicted."""
    return gain.is_lost or row["speedup"] < LOSS


def tokens_needed(row: Row) -> float | None:
    """Return the tokens per step from which the draft of a row pays, None where none would do."""
    rate = row["break_even_acceptance_rate"]
    return None if rate is None else float(expected_tokens_per_step(rate, row["draft_length"]))


def taken_length(deployment: Deployment, longest: int) -> int:
    """Return the largest draft length up to this one that the engine takes [token]."""
    modules = max(len(deployment.drafter.parts), 1)
    stack = deployment.engine.stack or ""
    taken = (n for n in range(longest, 0, -1) if takes_length(stack, n, modules))
    return next(taken, 0)


def start_options(prediction: Prediction, length: int, most: int | None = None) -> tuple[str, str]:
    """Return an engine's start options for a draft length, and the program that takes them.

    DRAFTER stands for a path that was not given; `most` requests run, as many as the engine lets if
    None. Both are empty for trees, as options are of chains, and for engines that take none.
    """
    d = prediction.deployment
    if not length or d.tree_width > 1:
        return "", ""
    modules, kind = max(len(d.drafter.parts), 1), drafter_kind(d.drafter, d.target)
    path: str | None = prediction.case.where.head if prediction.case else ""
    if not path:
        path = None if is_in_checkpoint(d.target, kind) else ""
        path = "DRAFTER" if d.drafter.is_made_up else path  # of a module that no checkpoint has
    options, program = one_length(d.engine.stack or "", kind, length, modules, path)
    if not program:
        return "", ""
    return f"{options}{graph_option(d)}{requests_option(prediction, most)}", program


def graph_option(deployment: Deployment) -> str:
    """Return the engine's option for the CUDA graphs of a deployment, if their size was given."""
    limit = deployment.graph_limit
    return f" {limit.typed}" if limit and not limit.default_of else ""


def requests_option(prediction: Prediction, most: int | None = None) -> str:
    """Return the engine's option for `most` requests, or for all asked if it would let fewer run.

    SGLang runs 48 requests with any drafter where `--max-running-requests` is not given, llama.cpp
    4 where `-np` is not.
    """
    config = config_format(format_of_engine(prediction.deployment.engine))
    asked = int(prediction.batch_size.max())
    requests = most or (asked if 0 < config.drafting_requests < asked else 0)
    replicas = prediction.deployment.layout.replicas
    return f" {config.requests_option(requests, replicas)}" if requests else ""


def better_layout(prediction: Prediction, rows: Sequence[Row]) -> dict[str, Fact]:
    """Return a layout with more tokens/s at the largest batch size of `rows` that fits, or {}.

    Its degrees stand in the letters of engines, such as ``TP2 DP4 EP8``. Both are at best draft
    lengths, as `compare` has them. Only one is tried, as all would take too long: of the layouts
    with experts spread over all GPUs, the middle one, if that batch fits in its memory. Of several
    contexts, or where a layout was given, none is.
    """
    case, fitting = prediction.case, [row for row in rows if row["fits"]]
    if case is None or not fitting or len({row["context_length"] for row in rows}) > 1:
        return {}
    spread = [d for d in layouts_of(case.deployment) if d["expert_parallel"] > 1]
    if not spread or {*GPU_DEGREES} & case.where.named.keys():
        return {}
    sizes = {int(row["batch_size"]) for row in fitting} & {*prediction.batch_size.flat}
    degrees, size = spread[len(spread) // 2], int(max(sizes, default=0))
    if not size:
        return {}
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
    """Return what a schedule comes to, by name: where it pays, its most and least, its losses."""
    schedule, is_full = plan.schedule, plan.largest == plan.schedule.batch_size.size
    is_loaded = plan.prediction.evaluation.prefill
    facts = {
        "engine": Fact(plan.config.name),
        "mean_speedup": Fact(schedule.mean_speedup),
        "last_batch_size": Fact(schedule.batch_size.size, "request"),
        "why_last": Fact(plan.end + (counted(plan) if is_full else "")),
        "not_counted": Fact("" if is_loaded else "prompts of other requests"),
        **_graphs(plan),
    }
    if schedule.max_draft_length:
        return known((facts | _gains(plan) | _losses(plan) | _end(plan)).items())
    best, off = schedule.best_speedup, ("off in tolerance", "off by rule")
    kind = "off" if best.max() == 1 else off[plan.unbound.max_draft_length > 0]
    most = {"most": Fact(float(best.max())), "most_at": Fact(int(best.argmax()) + 1, "request")}
    return known((facts | most | {"advice": Fact(kind)}).items())


def _gains(plan: Plan) -> dict[str, Fact]:
    """Return the advice of a schedule that drafts, the most and least, and where it pays."""
    speedup, gains, drafts = plan.schedule.speedup.tolist(), plan.gains, plan.schedule.draft_length
    most, least = speedup.index(max(speedup)), speedup.index(min(speedup))
    has_ends = all(gain or not length for gain, length in zip(gains, drafts, strict=True))
    sure = [gain.low > 1 if gain else s > 1 for gain, s in zip(gains, speedup, strict=True)]
    may = [bool(has_ends and gain and gain.is_open) for gain in gains]
    is_known = is_modelled(plan.deployment, plan.prediction.evaluation.points["context_length"])
    top, advice = gains[most], "on" if all(sure) else "on where it pays"
    place = place_of(plan.deployment, max(plan.context_length))
    is_known &= place.may_be_sure
    advice = "close" if top and top.is_open else advice if is_known else "may"

    def where(holds: Iterable[bool]) -> Fact:
        return Fact([*map(list, spans(plan.schedule.batch_size.tolist(), holds))], "request")

    return {
        "advice": Fact(advice),
        "most": Fact(speedup[most], "-", top and top.low, top and top.high),
        "most_at": Fact(most + 1, "request"),
        "least": Fact(speedup[least]),
        "least_at": Fact(least + 1, "request"),
        "chance": Fact(top.chance if top and top.is_open else None),
        "pays_at" if has_ends else "gains_at": where(sure),
        "may_pay_at": where(may),
    }


def _losses(plan: Plan) -> dict[str, Fact]:
    """Return what one length, the engine's own rule and one schedule for all contexts lose."""
    schedule, has_one = plan.schedule, len(plan.schedule.ranges) == 1
    context, size = divmod(int(plan.speedup.argmin()), schedule.batch_size.size)
    # where a command is printed, it ends the batch
    above = None if plan.config.start else int(schedule.draft_length[-1]) * plan.config.keeps_last
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
    """Return the batch size above which no length pays; {} where there is none."""
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
    """Return what larger CUDA graphs gain; {} where they gain nothing."""
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
    """Return as text the context, and the room for drafts, that each request is counted with."""
    told = f" at context {max(plan.context_length)}"
    if plan.deployment.recurrent_model and plan.schedule.max_draft_length:
        told += f", with room for drafts of {plan.schedule.max_draft_length} in each request"
    return told
