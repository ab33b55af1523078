"""A prediction in all forms, with the times of the components of its passes if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel import answers
from specmodel.base.text import Columns, align
from specmodel.prediction.table import Row, columns_of
from specmodel.show import forms, report

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


def answer(
    prediction: Prediction, words: list[str], *, with_components: bool, width: int = 80
) -> forms.Answer:
    """Return a prediction of plain decoding in all forms, with its components if asked for."""

    def page() -> str:
        parts = [prediction.to_text(width)]
        parts += [component_tables(prediction)] if with_components else []
        return report.page(prediction, words, *parts)

    return forms.Answer(
        page=page,
        fields=lambda: fields_of(prediction, prediction.rows(), with_components=with_components),
        rows=lambda: component_rows(prediction) if with_components else prediction.rows(),
        warnings=prediction.warnings,
    )


def fields_of(prediction: Prediction, rows: list[Row], *, with_components: bool) -> dict[str, Any]:
    """Return the JSON of a prediction, with the times of components if asked for."""
    if with_components:
        for row, passes in zip(rows, _components(prediction), strict=True):
            row["components"] = passes
    return report.case_fields(prediction) | {"units": prediction.units(), "rows": rows}


ALWAYS = ("forward", "verify", "prefill")
"""Passes of all points; of the drafter's, a point has those of a draft, or of none."""


def component_rows(prediction: Prediction) -> list[Row]:
    """Return a row for each point, pass and component."""
    return forms.records(answers.pass_components(prediction))


def component_tables(prediction: Prediction) -> str:
    """Return the times of components by pass, a table for each point."""
    points, blocks = prediction.rows(), []
    drafted = ", draft length {draft_length}" if "draft_length" in points[0] else ""
    title = f"batch size {{batch_size}}{drafted}, context {{context_length}}"
    for point, passes in zip(points, _components(prediction), strict=True):
        names = [*dict.fromkeys(name for times in passes.values() for name in times), "total"]
        columns: Columns = [("component", names)]
        is_idle = not point.get("draft_length", 1)
        for kind, times in passes.items():
            if kind not in ALWAYS and ("idle" in kind) != is_idle:
                continue
            total = sum(times.values())
            spent = [(times | {"total": total}).get(name) for name in names]
            rows = [{"time": t, "share": None if t is None else 100 * t / total} for t in spent]
            head = kind.replace("first draft pass", "first\ndraft").replace(
                "idle draft", "idle\ndraft"
            )
            columns += columns_of(rows, [(head, "{time:s}"), ("%", "{share:.0f}")])
        blocks.append(f"{title.format_map(point)}\n{align(columns, left=['component'])}")
    return "\n\n".join(blocks)


def _components(prediction: Prediction) -> list[dict[str, dict[str, float]]]:
    """Return for each point, by pass, the times of components and host [s]."""
    table = answers.pass_components(prediction)
    points: list[dict[str, dict[str, float]]] = [{} for _ in range(prediction.batch_size.size)]
    each = len(table) // len(points)  # the same components at every point
    spent = table[["pass", "component", "time"]].itertuples(index=False, name=None)
    for i, (kind, component, seconds) in enumerate(spent):
        points[i // each].setdefault(kind, {})[component] = seconds
    return points
