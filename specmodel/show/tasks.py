"""The best draft length by kind of task, and from which context on it pays no more: a view."""

from __future__ import annotations

from msgspec.structs import replace

from specmodel.answers.curves import cases_by_task, ends_at_context
from specmodel.prediction.case import Case
from specmodel.prediction.predicting import predicted
from specmodel.prediction.table import Row
from specmodel.show import forms, operator, report
from specmodel.show.facts import Fact
from specmodel.show.glossary import PAGES
from specmodel.show.views import case as case_of

_LINES = PAGES["tasks"]["lines"]


def answer(prediction: report.Prediction, *, interval: bool | None = None) -> forms.Answer:
    """Return the best length of each kind of task that acceptance is published of, in all forms."""
    cases = cases_by_task(case_of(prediction))
    rows = [{"task": task} | row for task in cases for row in _rows(cases[task], interval)]
    others = {k: v for k, v in prediction.assumptions.items() if k != "acceptance"}
    prediction = replace(prediction, assumptions=others)

    tables = [forms.text_table(rows, "tasks")]
    return report.answer(prediction, rows, _LINES, lambda: tables, _facts(rows))


def _rows(case: Case, interval: bool | None) -> list[Row]:
    """Return the rows of a kind of task, at its best draft lengths."""
    p = report.with_ends(predicted(case), interval)
    rows, ends = operator.with_alike(p, p.rows()), ends_at_context(case)
    return [
        {"alike": str(row["draft_length"])} | row | {"ends_at_context": end}
        for row, end in zip(rows, ends, strict=True)
    ]


def _facts(rows: list[Row]) -> dict[str, Fact]:
    """Return the best length and speedup of each task, at the least batch size."""
    size = min(row["batch_size"] for row in rows)
    least = [row for row in rows if row["batch_size"] == size]
    return {
        "batch_size": Fact(size, "request"),
        "best_lengths": Fact({row["task"]: row["alike"] for row in least}, "token"),
        "speedups": Fact({row["task"]: row["speedup"] for row in least}),
    }
