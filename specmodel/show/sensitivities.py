"""Show what a point depends on most, in words and tables."""

from __future__ import annotations

from specmodel.core.base.text import wrap
from specmodel.core.prediction.table import Row
from specmodel.plan import sensitivity
from specmodel.show import report
from specmodel.show.columns import of_table
from specmodel.show.facts import lines
from specmodel.show.forms import Answer, records, text_table
from specmodel.show.glossary import PAGES

_POINT = ("batch_size", "draft_length", "context_length")
_TEXTS = PAGES["sensitivities"]
_MOST_ROWS = 15
"""Rows of a table for people [-]."""
_VISIBLE = 0.005
"""Smallest effect that is visible with two decimals [-]."""


def answer(found: sensitivity.Sensitivity) -> Answer:
    """Return the analyses of a point in all forms."""
    facts = sensitivity.sensitivity_facts(found)
    words = report.opening(_TEXTS["lines"], facts, found.fits)
    elasticities, swings, indices = map(records, (found.elasticities, found.swings, found.indices))
    fields = report.case_fields(found) | found.outcome | {"samples": found.samples}
    fields |= {"point": {name: getattr(found.point, name) for name in _POINT}}
    fields |= {"elasticities": elasticities, "tornado": swings, "sobol": indices}
    fields |= {"laws": {name: span.law for name, span in found.ranges.items()}}

    def page() -> str:
        of_output = {name: [r for r in indices if r["output"] == name] for name in found.outcome}
        tables = [
            text_table(elasticities[:_MOST_ROWS], "elasticities"),
            text_table(swings[:_MOST_ROWS], "swings"),
            *(_shares(rows, name.replace("_", " ")) for name, rows in of_output.items()),
        ]
        return report.page(found, words, *tables, notes=lines(_TEXTS["notes"], facts))

    tidy, warnings, case = records(found.tidy()), found.warnings, report.caption(found)
    return Answer(page=page, facts=facts, fields=fields, rows=tidy, warnings=warnings, case=case)


def _shares(rows: list[Row], words: str) -> str:
    """Return the shares of the variance of an output that are visible."""
    if not rows:
        return wrap(f"No range moves the {words}.")
    visible = [row for row in rows if row["total"] >= _VISIBLE] or rows[:1]
    columns = of_table("shares", input=f"share of the variance\nof {words}")
    return text_table(visible[:_MOST_ROWS], columns)
