"""How wrong predictions are on what was measured, in words and tables."""

from __future__ import annotations

from specmodel.base.text import wrap
from specmodel.fit import measured
from specmodel.prediction.table import Row
from specmodel.show import forms
from specmodel.show.facts import lines
from specmodel.show.forms import Answer, records, text_table
from specmodel.show.glossary import PAGES

_MOST_ROWS = 20
"""Rows that are printed one by one [-]."""
_TEXTS = PAGES["judged"]


def answer(judged: measured.JudgedEngines) -> Answer:
    """Return the judged rows of a table of measured engines, and their errors, in all forms."""
    facts = measured.judged_facts(judged)
    rows, errors, hosts = map(records, (judged.rows, judged.errors, judged.hosts))
    sizes = judged.errors.groupby("group")["value"].transform("size")
    groups = records(judged.errors[(judged.errors["group"] == "all") | (sizes > 1)])

    few = rows if len(rows) <= _MOST_ROWS else []
    left = judged.not_taken.items()
    not_taken = [{"reason": why, "count": len(named), "rows": named} for why, named in left]
    values = {name: fact.value for name, fact in facts.items()}
    fields: Row = {name: value for name, value in values.items() if isinstance(value, float)}
    fields |= {"groups": errors[1:], "hosts": hosts, "rows": [*map(_known, rows)]}
    fields |= {"not_taken": not_taken, "assumptions": dict(judged.assumed)}

    def page() -> str:
        tables = [text_table(few, "judged")] if few else []
        tables += [text_table(part, "errors") for part in (groups, hosts) if part]
        texts = (_TEXTS["lines"], _TEXTS["notes"])
        words, notes = ("\n".join(map(wrap, lines(each, facts))) for each in texts)
        return "\n\n".join([words, *tables, notes])

    return Answer(page=page, facts=facts, fields=fields, rows=rows)


def kernels(errors: forms.DataFrame, name: str) -> Answer:
    """Return the errors of the kernels of a profile in all forms."""
    rows = records(errors)
    fields = {"hardware": name, "rows": rows}
    return Answer(page=lambda: f"{name}\n\n{text_table(rows, 'errors')}", fields=fields, rows=rows)


def _known(row: Row) -> Row:
    """Return a row without missing values."""
    return {name: value for name, value in row.items() if value is not None}
