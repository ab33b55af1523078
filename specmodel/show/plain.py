"""Plain decoding: TPOT, throughput and memory, a view of a prediction without a drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.base.text import TABLE
from specmodel.prediction.table import Row, seconds
from specmodel.show import forms, report
from specmodel.show.components import component_rows, component_tables, fields_of

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


def answer(prediction: Prediction, *, components: bool = False) -> forms.Answer:
    """Return a prediction of plain decoding in all forms, with its components if asked for."""

    def page() -> str:
        parts = [prediction.to_text(TABLE.get(), remedy="to_frame(), --csv and --json have all")]
        parts += [component_tables(prediction)] if components else []
        return report.page(prediction, verdict(prediction), *parts)

    return forms.Answer(
        page=page,
        fields=lambda: fields_of(prediction, list, components=components),
        rows=lambda: component_rows(prediction) if components else prediction.rows(),
        warnings=prediction.warnings,
    )


def verdict(decoded: Prediction) -> list[str]:
    """Return a sentence on the least time per token and the largest throughput."""
    rows = decoded.rows()
    fitting = [row for row in rows if row["batch_size"] <= row["max_batch_size"]]
    opening = "" if fitting else "Nothing fits in memory. If it did: "
    rows = fitting or rows
    most = max(rows, key=lambda row: row["throughput"])
    told = [_at(most, rows)]
    least = min(rows, key=lambda row: row["tpot"])
    if least is not most:
        told.insert(0, _at(least, rows))
    return [f"{opening}{'; '.join(told)}."]


def _at(row: Row, rows: list[Row]) -> str:
    rate = f"{row['throughput']:.0f} tokens/s of all requests"
    place = f"{seconds(row['tpot'])} a token at {report.place(row, rows)}"
    return f"{place}, {rate}, mostly {row['largest_share']}"
