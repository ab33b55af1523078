"""Show the causes that reduce target efficiency and speedup, a view of a prediction."""

from specmodel import plan
from specmodel.core.base.errors import InputError
from specmodel.core.base.text import align_blocks, wrap
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.table import Row, varies
from specmodel.plan import Explanation
from specmodel.show import operator, report
from specmodel.show.facts import Fact, lines as lines_of
from specmodel.show.forms import Answer
from specmodel.show.glossary import PAGES, limits_text
from specmodel.show.views import case as case_of

MOST_EXPLAINED = 5
"""Largest number of points in a page [-]."""

MOST_PRINTED = 10_000
"""Largest number of points in JSON and CSV, where each has some twenty rows [-]."""

_TEXTS = PAGES["terms"]


def answer(prediction: Prediction) -> Answer:
    """Return the losses of target efficiency and speedup by cause, in all forms.

    Contributions are Shapley values: their sum is exact, and they do not depend on an order.
    """
    p = prediction
    if not p.draft_length.all() and case_of(p).draft_length is not None:
        raise InputError("draft_length", p.draft_length.tolist(), "at least 1")
    _check_size(p, MOST_PRINTED, f"at most {MOST_PRINTED} points")
    found = plan.explain(p)

    facts, words = _facts(found)

    def parts() -> tuple[str, str]:
        _check_size(p, MOST_EXPLAINED, f"at most {MOST_EXPLAINED} points, or --json or --csv")
        lost = {name for each in found.largest for name in each}
        return tables(found), wrap(limits_text(lost))

    return report.answer(p, found.rows(), words, parts, facts)


def _check_size(prediction: Prediction, most: int, expected: str) -> None:
    if (size := prediction.speedup.size) > most:
        raise InputError("batch_size", f"{size} points", expected)


def _facts(explanation: Explanation) -> tuple[dict[str, Fact], list[str]]:
    """Return by point speedup, ideal speedup and largest losses, and a line on each point."""
    rows, ideals = explanation.prediction.rows(), explanation.ideal_speedup.ravel().tolist()
    points, lines = dict[str, Row](), []
    for row, ideal, losses in zip(rows, ideals, explanation.largest, strict=True):
        where, drafted = operator.place(row, rows), row["draft_length"]
        kind = "held" if row["limited_by"] == "memory" else "drafts" if drafted else "idle"
        point = {"speedup": row["speedup"], "ideal_speedup": ideal, "lost_to": losses or "nothing"}
        values = {"where": where, "drafted": drafted, **point}
        of_line = {name: Fact(value) for name, value in values.items()}
        lines += lines_of([_TEXTS["lines"][kind]], of_line)
        points[where] = point
    return {"points": Fact(points)}, lines


def tables(explanation: Explanation) -> str:
    """Return the waterfalls of target efficiency and speedup, with a column for each point.

    Terms that round to zero at all points are left out.
    """
    rows, blocks = explanation.prediction.rows(), []
    varying = [word for word in ("draft", "context") if varies(f"{word}_length", rows)]
    fixed = "" if "draft" in varying else f" at draft length {rows[0]['draft_length']}"
    titles = {"batch_size": "batch"} | {f"{word}_length": word for word in varying}
    heads = ["\n".join(f"{word} {row[name]}" for name, word in titles.items()) for row in rows]
    for quantity, terms in explanation.waterfalls.items():
        cells = {name: [_step(name, value) for value in terms[name].ravel()] for name in terms}
        shown = [name for name in cells if any(cells[name])]
        columns = zip(heads, zip(*map(cells.get, shown), strict=True), strict=True)
        table = align_blocks(("", shown), [(head, [*column]) for head, column in columns], [""])
        blocks.append(f"{_TEXTS['titles'][quantity].format(fixed)}\n{table}")
    return "\n\n".join(blocks)


def _step(term: str, value: float) -> str:
    """Return a cell of a waterfall; empty for a term that rounds to zero."""
    if term in ("ideal", "predicted"):
        return f"{value:.3f}"
    return "" if abs(value) < 5e-4 else f"{value:+.3f}"
