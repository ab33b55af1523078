"""What a point depends on most, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from specmodel.answers import sensitivity
from specmodel.base.text import SCREEN, wrap
from specmodel.prediction.table import Column, Row
from specmodel.show import report
from specmodel.show.columns import ELASTICITIES, SHARES, SWINGS
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
            _table(elasticities, ELASTICITIES),
            _table(swings, SWINGS),
            *(_shares(rows, name.replace("_", " ")) for name, rows in of_output.items()),
        ]
        return report.page(found, words, *tables, notes=lines(_TEXTS["notes"], facts))

    return Answer(
        page=page,
        facts=facts,
        fields=fields,
        rows=records(found.tidy()),
        warnings=found.warnings,
        case=report.caption(found),
    )


def _shares(rows: list[Row], words: str) -> str:
    """Return the shares of the variance of an output that are visible."""
    if not rows:
        return wrap(f"No range moves the {words}.")
    first, *others = SHARES
    visible = [row for row in rows if row["total"] >= _VISIBLE] or rows[:1]
    return _table(visible, [replace(first, title=first.title.format(words)), *others])


def _table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    left = (columns[0].title,)
    return text_table(rows[:_MOST_ROWS], columns, width=SCREEN.get(), left=left)
