"""The speedup of each draft length, and which is the largest: a view of a prediction."""

from __future__ import annotations

from specmodel.answers.ranking import lengths_by_size
from specmodel.base.text import wrap
from specmodel.prediction.predicting import at_all_lengths
from specmodel.prediction.table import Row
from specmodel.show import forms, operator, report
from specmodel.show.facts import AT, Fact, picked
from specmodel.show.glossary import PAGES
from specmodel.show.views import case as case_of

_COLUMNS = (
    *("batch_size", "context_length", "draft_length", "best_draft_length", "tokens_per_step"),
    *("speedup", "speedup_low", "speedup_high", "tpot", "tpot_low", "tpot_high"),
    *("throughput", "limited_by", "in_graph", "max_graph_batch_size", "fits"),
)
_LINES = PAGES["lengths"]["lines"]


def answer(prediction: report.Prediction, *, interval: bool | None = None) -> forms.Answer:
    """Return the speedup of each length, none included, by batch size and context, in all forms."""
    p = report.with_ends(at_all_lengths(case_of(prediction)), interval)
    every = {tuple(row[name] for name in _COLUMNS[:3]): row for row in p.rows()}.values()
    rows = [{name: row[name] for name in _COLUMNS if name in row} for row in every]
    best = report.fitting([r for r in every if r["draft_length"] == r["best_draft_length"]])
    tables = (_table(rows), wrap(report.ended(best, p)))
    return report.answer(p, rows, _LINES, lambda: tables, _facts(best, p.max_draft_length))


def _facts(best: list[Row], longest: int) -> dict[str, Fact]:
    """Return the best draft lengths, and the point where they gain most."""
    top = max(best, key=lambda row: float(row["speedup"]))
    top |= {"where": operator.place(top, best)}
    lengths = [row["draft_length"] for row in best]
    return {
        "best_lengths": Fact(lengths_by_size(best), "token"),
        **picked("most", top, "speedup", **AT, length="draft_length"),
        "no_gain_points": Fact(lengths.count(0) or None),
        "points": Fact(len(best)),
        "longest_considered": Fact(longest if longest in lengths else None, "token"),
    }


def _table(rows: list[Row]) -> str:
    """Return the speedups of all lengths, the largest of each point marked."""
    marked = [r | {"mark": "*" * (r["draft_length"] == r["best_draft_length"])} for r in rows]
    cells = report.by_length(marked, "Speedup (*: the best)", "{mark}{speedup:.2f}")
    return cells + report.left_out(rows)
