"""Plain decoding: TPOT, throughput and memory, a view of a prediction without a drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.base.text import TABLE
from specmodel.prediction.table import Row
from specmodel.show import forms, report
from specmodel.show.components import component_rows, component_tables, fields_of
from specmodel.show.facts import Fact, picked
from specmodel.show.glossary import PAGES

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


_LINES = PAGES["plain"]["lines"]


def answer(prediction: Prediction, *, components: bool = False) -> forms.Answer:
    """Return a prediction of plain decoding in all forms, with its components if asked for."""
    rows = prediction.rows()
    fitting = [row for row in rows if row["batch_size"] <= row["max_batch_size"]]
    facts = _facts(fitting or rows)
    words = report.opening(_LINES, facts, fitting)
    listed = component_rows(prediction) if components else rows
    fields = fields_of(prediction, list, components=components)

    def page() -> str:
        parts = [prediction.to_text(TABLE.get(), remedy="to_frame(), --csv and --json have all")]
        parts += [component_tables(prediction)] if components else []
        return report.page(prediction, words, *parts)

    warned = prediction.warnings
    return forms.Answer(page=page, facts=facts, fields=fields, rows=listed, warnings=warned)


def _facts(rows: list[Row]) -> dict[str, Fact]:
    """Return the least time per token and the largest throughput, where, and what takes most."""
    rows = [row | {"where": report.place(row, rows)} for row in rows]
    least = min(rows, key=lambda row: row["tpot"])
    most = max(rows, key=lambda row: row["throughput"])
    others = {"at": "batch_size", "where": "where", "share": "largest_share"}
    fastest = picked("most_throughput", most, "throughput", **others)
    return picked("least_tpot", least, "tpot", **others) | fastest
