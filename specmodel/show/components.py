"""The times of the components of the passes of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel import plan
from specmodel.core.base.text import Columns, align
from specmodel.core.prediction.table import Row, columns_of
from specmodel.show import forms, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from specmodel.core.prediction.outcome import Prediction

ALWAYS = ("forward", "verify", "prefill")
"""Passes of all points; of the drafter's, a point has those of a draft, or of none."""
_NONE: Row = dict.fromkeys(("time", "hidden_time", "peak_share"))
_FEW_PASSES = 2
"""Passes of which a table has room for what is hidden, and the share of the peak [-]."""


def fields_of(prediction: Prediction, kept: Callable[..., list[Row]], *, components: bool) -> Row:
    """Return the JSON of a prediction's rows that are kept, with times of components if asked."""
    rows = prediction.rows()
    if components:
        for row, passes in zip(rows, _passes(prediction), strict=True):
            row["components"] = {
                kind: {name: component["time"] for name, component in of_pass.items()}
                for kind, of_pass in passes.items()
            }
    return report.case_fields(prediction) | {"units": prediction.units(), "rows": kept(rows)}


def component_rows(prediction: Prediction) -> list[Row]:
    """Return a row for each point, pass and component."""
    return forms.records(plan.pass_components(prediction))


def component_tables(prediction: Prediction) -> str:
    """Return the times of components by pass, a table for each point.

    Of at most two passes also what they hide beside others, and their share of the data sheet's
    bandwidth or arithmetic, the larger.
    """
    points, blocks = prediction.rows(), []
    drafted = ", draft length {draft_length}" if "draft_length" in points[0] else ""
    title = f"batch size {{batch_size}}{drafted}, context {{context_length}}"
    for point, passes in zip(points, _passes(prediction), strict=True):
        is_idle = not point.get("draft_length", 1)
        shown = {k: rows for k, rows in passes.items() if k in ALWAYS or ("idle" in k) == is_idle}
        names = [*dict.fromkeys(name for rows in passes.values() for name in rows)]
        columns: Columns = [("component", [*names, "total"])]
        for kind, rows in shown.items():
            total = sum(row["time"] for row in rows.values())
            every = [rows.get(name, _NONE) for name in names] + [_NONE | {"time": total}]
            cells = [row | {"share": row["time"] and row["time"] / total} for row in every]
            wanted = [(kind.replace(" ", "\n"), "{time:s}"), ("", "{share:.0%}")]
            if len(shown) <= _FEW_PASSES:
                hides = any(row["hidden_time"] for row in rows.values())
                wanted += [("hidden", "{hidden_time:s}")] * hides
                wanted += [("of\npeak", "{peak_share:.0%}")]
            columns += columns_of(cells, wanted)
        blocks.append(f"{title.format_map(point)}\n{align(columns, left=['component'])}")
    return "\n\n".join(blocks)


def _passes(prediction: Prediction) -> list[dict[str, dict[str, Row]]]:
    """Return for each point, by pass, the rows of its components."""
    rows = component_rows(prediction)
    points: list[dict[str, dict[str, Row]]] = [{} for _ in range(prediction.batch_size.size)]
    each = len(rows) // len(points)  # the same components at every point
    for i, row in enumerate(rows):
        points[i // each].setdefault(row["pass"], {})[row["component"]] = row
    return points
