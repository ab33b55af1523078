"""The page of ``predict``: the verdict an operator reads first, and the table below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from specmodel.answers.advice import Verdict, gain_of, is_sure, tokens_needed
from specmodel.base.errors import InputError, nearest
from specmodel.base.ranges import among, ranges_text
from specmodel.base.text import VERBOSE
from specmodel.prediction.table import Column, Form, Row, filler, seconds, text_table
from specmodel.show import report
from specmodel.show.columns import chosen
from specmodel.show.defaults import has_tasks, tokens_of_tasks

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


def _times(target: float, row: Row) -> str:
    """Return a cell with the times per token without and with speculation.

    A time that would round to the target without being equal has more digits.
    """
    is_near = seconds(row["tpot"]) != seconds(row["tpot"], target)
    return filler("{forward_time:s}>{tpot:s5}" if is_near else "{forward_time:s}>{tpot:s}")(row)


def _costs(row: Row) -> str:
    """Return the cost of a million tokens, without and with speculation."""
    cost, gain = row["cost_per_million_tokens"], row["speedup"]
    return f"{cost * gain:.3g}>{cost:.3g}"


_USUAL = (
    *("batch_size", "context_length", "tpot", "throughput"),
    Column("cost_per_million_tokens", "-", "", title="$/M tokens\nplain>with", form=_costs),
    *("speedup", "speedup_low", "draft_length", "fits", "limited_by"),
)
"""Columns of the table in their order."""


def with_alike(prediction: Prediction, rows: Sequence[Row]) -> list[Row]:
    """Return all rows of best lengths, with the lengths that gain as much as each in words."""
    import numpy as np

    from specmodel.prediction.best import alike_places

    chains = prediction.evaluation.chains
    if chains is None:
        return list(rows)
    memory, lengths = chains.memory, np.ravel(chains.lengths).astype(int).tolist()
    has_room = chains.points["batch_size"] <= memory.max_batch_size
    has_room = has_room | ~has_room.any(axis=0)
    gains = np.broadcast_to(np.where(has_room, chains.speedup, 0.0), chains.shape)
    gains = gains.reshape(len(lengths), -1)
    found = []
    for row, own in zip(rows, gains.T, strict=True):
        place = lengths.index(row["draft_length"]) if row["draft_length"] else -1
        ends = [lengths[end] for end in alike_places(own, place)] if place >= 0 else [0, 0]
        found.append(row | {"alike": ranges_text([(ends[0], ends[1])])})
    return found


def table(rows: Sequence[Row], *, width: int, columns: str | None, target: float | None) -> str:
    """Return rows as an operator reads them, or the columns that were asked for.

    What has no room is named below. Times that would read as the `target` have more digits [s].
    """
    names = _chosen(columns, rows) if columns else _USUAL
    shown = chosen(names)
    forms: dict[str, Form] = {"draft_length": "{alike}"} if "alike" in rows[0] else {}
    if target is not None:
        forms["tpot"] = partial(_times, target)
    shown = [replace(c, form=forms.get(c.name, c.form)) for c in shown]
    if columns:  # all of them, however wide
        shown = [replace(c, spare=0, is_coordinate=False) for c in shown]
    return text_table(rows, shown, width=width, remedy="--columns chooses")


def chosen_rows(prediction: Prediction, rows: Sequence[Row], columns: str | None) -> list[Row]:
    """Return rows with the columns that were asked for alone, all without."""
    if columns is None:
        return list(rows)
    names: list[str] = []
    for name in _chosen(columns, prediction.rows(1)):
        names += ["speedup_low", "speedup_high"] if name == "speedup_low" else [name]
    return [{name: row[name] for name in names} for row in rows]


def _chosen(columns: str, rows: Sequence[Row]) -> list[str]:
    names = [name.strip().replace("-", "_") for name in columns.split(",")]
    known = [*rows[0], *(["interval"] if "speedup_low" in rows[0] else [])]
    for name in names:
        if name not in known:
            raise InputError("columns", name, f"columns such as {nearest(name, known)}")
    if len({*names}) < len(names):
        raise InputError("columns", columns, "columns, each once")
    return ["speedup_low" if name == "interval" else name for name in names]


def verdict(judged: Verdict, prediction: Prediction, rows: Sequence[Row]) -> list[str]:
    """Return sentences on whether and where speculation pays, how much, how sure, and why.

    Of `rows`, those that fit are `judged`.
    """
    opening, points = "Speculation", judged.rows
    if not any(row["fits"] for row in rows):
        opening = "Nothing fits. If it did, speculation"
    elif len(points) < len(rows):
        these = f"{len(points)} of {len(rows)} points fit"
        opening = f"{these if len(points) > 1 else 'One point fits'} in memory, where speculation"
    pays, denial = report.verbs(prediction)
    is_advised = pays == "pays" and not opening.startswith("Nothing")
    if not judged.has_drafts:
        if not any(row["best_draft_length"] for row in points):
            is_held = any(row["limited_by"] == "memory" for row in points)
            none = "no draft that would gain fits in memory" if is_held else "no draft length gains"
            off = "Leave it off. " if is_advised else ""
            return [f"{off}{opening} {denial} at any of these points: {none}."]
        return [_idle(points)]
    told = f"{opening} {_gain(judged, prediction)}."
    told = f"{_advice(judged)} {told}" if is_advised else told
    why = [report.why(judged.best, points, prediction, place(judged.best, points))]
    return [told + _risk(judged, prediction), *(why if VERBOSE.get() else [])]


_ADVICE = {
    "on": "Turn it on.",
    "on where it pays": "Turn it on where it pays.",
    "off": "Leave it off.",
    "off below": "Leave it off below {needed} drafted.",
    "close": "Too close to call: leave it off unless you measure.",
    "depends": "It depends on your acceptance: it pays from {needed} drafted.",
}
_DEPENDS_ON_LITTLE = "Too close to call: it pays from {needed} drafted."
"""What is said where the acceptance is the user's own."""


def _advice(judged: Verdict) -> str:
    """Return the advice as a sentence, and where drafts lose if the rest is open."""
    form = _ADVICE[judged.advice]
    if judged.advice == "depends" and judged.is_typed:
        form = _DEPENDS_ON_LITTLE
    length = judged.best["draft_length"]
    advice = form.format(needed=f"{judged.needed or 0:.2f} tokens a step of {length}")
    gain = gain_of(judged.best)
    if not (judged.lost and gain and gain.is_open):
        return advice
    return f"Leave it off {_losing(judged)}. Elsewhere, {advice[:1].lower()}{advice[1:]}"


def _idle(rows: list[Row]) -> str:
    """Return a sentence on steps without a draft: speedup 1, or less with a drafter loaded."""
    worst = min(rows, key=lambda row: row["speedup"])
    if worst["speedup"] == 1:
        return "No draft, no speculation: speedup 1 by definition."
    told = f"no draft, and the loaded drafter takes its time all the same: {_at(worst, rows)}"
    return f"Speculation does not pay: {told}."


def _gain(judged: Verdict, prediction: Prediction) -> str:
    """Return as text whether speculation pays, where most and least, and where it may or not."""
    pays, denial = report.verbs(prediction)
    rows, best, top = judged.rows, judged.best, gain_of(judged.best)
    is_held, at_best = pays == "pays", _at(best, rows)
    if top and top.is_open:
        return f"may pay or not: {at_best} ({report.chances(top)}{f'; {top.held}' * is_held})"
    at_best += report.ends(top, is_held=is_held)
    if not is_sure(top, best):
        return f"{denial}: {at_best}"
    sure = judged.where("pays")
    if len(sure) == len(rows):
        bottom = gain_of(judged.worst)
        is_open = " (may pay or not)" if bottom and bottom.is_open else ""
        least = f"; least {_at(judged.worst, rows)}{is_open}" if len(rows) > 1 else ""
        return f"{pays}: {at_best}{least}"
    told = f"{pays} at {places(sure, rows)}; best {at_best}"
    if unsure := judged.where("open"):
        told += f"; it may pay or not at {places(unsure, rows)}"
    if judged.lost:
        told += f"; it {denial.removesuffix(' pay')} {_losing(judged)}"
    held = [row for row in rows if row["limited_by"] == "memory"]
    return told + (f"; no draft fits in memory at {places(held, rows)}" if held else "")


def _losing(judged: Verdict) -> str:
    """Return as text where drafts surely or likely lose, and the least speedup."""
    least = min(row["speedup"] for row in judged.lost)
    down = "down to " * (len(judged.lost) > 1)
    return f"at {places(judged.lost, judged.rows)} ({down}{least:.2f}x)"


def _at(row: Row, rows: list[Row]) -> str:
    return f"{row['speedup']:.2f}x at {place(row, rows)}"


def risk_cause(row: Row, prediction: Prediction) -> str:
    """Return as text what a loss at a row would come of, where its gain is not sure."""
    needed = tokens_needed(row)
    low, _ = tokens_of_tasks(row, prediction) if has_tasks(row, prediction) else (0.0, 0.0)
    if needed and 0 < low < needed:
        return f"acceptance below {needed:.2f} tokens a step of {row['draft_length']} drafted"
    if not row["in_graph"]:
        return "a step beyond CUDA graphs"
    return "missed graphs, an eager drafter or a slow host"


def _risk(judged: Verdict, prediction: Prediction) -> str:
    """Return a sentence on the cause of a loss where a gain is least sure; "" if all are sure."""
    row = judged.risk
    if row is None:
        return ""
    cause = risk_cause(row, prediction)
    return f" A loss at {place(row, judged.rows)} would come of {cause}."


def place(row: Row, rows: list[Row]) -> str:
    """Return as text the batch size of a point, and its draft length and context if they vary.

    A draft length chosen for the point is left out.
    """
    has_one = len({(r["batch_size"], r["context_length"]) for r in rows}) == len(rows)
    known = {"draft_length"} if has_one else set()
    return report.place({key: row[key] for key in row if key not in known}, rows)


def places(some: list[Row], rows: list[Row]) -> str:
    """Return the batch sizes of some rows as text; the number of points, if other inputs vary."""
    sizes = sorted({row["batch_size"] for row in rows})
    if len(sizes) < len(rows):
        return f"{len(some)} of {len(rows)} points"
    those = {row["batch_size"] for row in some}
    return f"batch size{'s' if len(those) > 1 else ''} {among(sizes, those)}"


def would_hold(prediction: Prediction) -> str:
    """Return a sentence on the fewest GPUs that would do if no request fits; "" if one does."""
    from specmodel.cost.layouts import HELD_REQUESTS, HELD_TOKENS, num_gpus, smallest_layout

    if prediction.max_batch_size.any() or prediction.deployment.hardware.kind == "cpu":
        return ""
    try:
        count = num_gpus(smallest_layout(prediction.deployment))
    except InputError as error:
        return f" Not one request fits: needed are {error.expected}."
    held = f"weights, drafter and {HELD_REQUESTS} requests of {HELD_TOKENS:,} tokens"
    return f" Not one request fits: the fewest GPUs that hold {held} are {count}."
