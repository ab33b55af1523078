"""The speedup of each draft length, and which is the largest: a view of a prediction."""

from __future__ import annotations

from specmodel.base.ranges import ranges_text, runs
from specmodel.base.text import wrap
from specmodel.prediction.table import Row
from specmodel.show import forms, operator, report
from specmodel.show.facts import AT, Fact, picked
from specmodel.show.views import case as case_of

_COLUMNS = (
    *("batch_size", "context_length", "draft_length", "best_draft_length", "tokens_per_step"),
    *("speedup", "speedup_low", "speedup_high", "tpot", "tpot_low", "tpot_high"),
    *("throughput", "limited_by", "in_graph", "fits"),
)
_TOLD = (
    "Best draft length: {best_lengths:at}.",
    "Most: {most:x} at {most_where}, with {most_length} drafted.",
    "Chance of a gain there: {most_chance:.0%}.",
    "No draft gains: {no_gain_points} of {points} points.",
    "Longest considered: {longest_considered}.",
)
"""The headline, and the facts below it."""


def answer(prediction: report.Prediction, *, interval: bool | None = None) -> forms.Answer:
    """Return the speedup of each length, none included, by batch size and context, in all forms."""
    from specmodel.prediction.predicting import at_all_lengths

    p = report.with_ends(at_all_lengths(case_of(prediction)), interval)
    every = {tuple(row[name] for name in _COLUMNS[:3]): row for row in p.rows()}.values()
    rows = [{name: row[name] for name in _COLUMNS if name in row} for row in every]
    best = report.fitting([r for r in every if r["draft_length"] == r["best_draft_length"]])
    facts = _facts(best, rows, p.max_draft_length)
    tables = (_table(rows), wrap(report.ended(best, p)))
    return report.answer(p, rows, _TOLD, lambda: tables, facts)


def _facts(best: list[Row], rows: list[Row], longest: int) -> dict[str, Fact]:
    """Return the best draft lengths, and the point where they gain most.

    `best` has each point at its best length, `rows` each point at all lengths.
    """
    top = max(best, key=lambda row: float(row["speedup"]))
    top |= {"where": operator.place(top, best)}
    lengths = [row["draft_length"] for row in best]
    return {
        "best_lengths": Fact(_lengths(best, rows), "token"),
        **picked("most", top, "speedup", **AT, length="draft_length"),
        "no_gain_points": Fact(lengths.count(0) or None),
        "points": Fact(len(best)),
        "longest_considered": Fact(longest if longest in lengths else None, "token"),
    }


def _lengths(best: list[Row], rows: list[Row]) -> dict[str, str]:
    """Return the best lengths by batch sizes, or their range over several contexts.

    Lengths that gain as much as the best are shown as a range.
    """
    best = sorted(best, key=lambda row: int(row["batch_size"]))
    sizes, lengths = ([row[name] for row in best] for name in ("batch_size", "draft_length"))
    if len({*sizes}) < len(best):
        ends = [(min(filter(None, lengths), default=0), max(lengths))] * len(sizes)
    else:
        ends = [_alike([r for r in rows if r["batch_size"] == size]) for size in sizes]
    return {
        ranges_text([(sizes[i], sizes[j])]): ranges_text([alike]) if any(alike) else "none"
        for i, j, alike in runs(ends)
    }


def _alike(rows: list[Row]) -> tuple[int, int]:
    """Return the first and the last of the lengths of a point that gain as much; 0 for none."""
    from numpy import array

    from specmodel.prediction.best import alike_places

    length = rows[0]["best_draft_length"]
    drafts = [row for row in rows if row["draft_length"]]
    gains = array([row["speedup"] * row["fits"] for row in drafts])
    if not length or not gains.any():
        return length, length
    first, last = alike_places(gains, length - 1)
    return first + 1, last + 1


def _table(rows: list[Row]) -> str:
    """Return the speedups of all lengths, the largest of each point marked."""
    marked = [r | {"mark": "*" * (r["draft_length"] == r["best_draft_length"])} for r in rows]
    cells = report.by_length(marked, "Speedup (*: the best)", "{mark}{speedup:.2f}")
    return cells + report.left_out(rows)
