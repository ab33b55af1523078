"""Describe fits in words, and the errors of predictions on measurements.

For kernels, it shows errors; for an engine, its runs, changes, and likely causes.
"""

from __future__ import annotations

from collections.abc import Mapping

from specmodel.calibrate import fit
from specmodel.calibrate.fit import measured
from specmodel.core.base.text import wrap
from specmodel.core.prediction.table import Row
from specmodel.show import forms, report
from specmodel.show.behind import behind
from specmodel.show.facts import lines
from specmodel.show.forms import Answer, records, text_table
from specmodel.show.glossary import PAGES

_ERRORS = ("num_points", "num_judged", "mean_error", "median_error", "percentile_90_error")
_TEXTS = PAGES["fitted"]
_MOST_ROWS = 20
"""Rows that are printed one by one [-]."""


def answer(update: fit.EngineUpdate) -> Answer:
    """Return an engine fitted to runs in all forms."""
    facts, runs, moved = fit.update_facts(update), fit.run_rows(update), fit.moved_rows(update)
    values = {name: fact.value for name, fact in facts.items()}
    is_refused, is_slow = values.get("is_refused"), values.get("is_slow")
    doubt = _TEXTS["refused"] if is_refused else _TEXTS["unlike"]
    against = lines([doubt, _TEXTS["excess"]], facts)
    warnings = [*values.get("notes", ()), *against]
    causes = lines(() if is_slow is None else _TEXTS["slow"] if is_slow else _TEXTS["fast"], facts)

    def page() -> str:
        parts = [
            text_table(runs, "runs"),
            "\n".join(causes),
            "" if is_refused else text_table(moved, "moved"),
        ]
        d, words = update.deployment, lines(_TEXTS["lines"], facts)
        notes = [_TEXTS["open"]] * any(row["is_open"] for row in moved)
        above = report.heading(d), behind(d), update.assumptions, warnings, words
        return report.laid_out(*above, parts, notes)

    deployment = report.deployment_fields(update.deployment)
    fields = {"deployment": deployment, "warnings": warnings, "runs": runs, "moved": moved}
    return Answer(page=page, facts=facts, fields=fields, rows=runs, warnings=warnings)


def kernels(fits: Mapping[tuple[str, str], fit.KernelFitting]) -> Answer:
    """Return fitted kernels in all forms: errors, parameters and warnings by kind and dtype."""
    rows, warnings = list[Row](), list[str]()
    for (kind, dtype), fitting in fits.items():
        errors = {name: getattr(fitting.fit, name) for name in _ERRORS}
        parameters = fitting.result.parameters | {"sharpness": fitting.fit.sharpness}
        rows.append({"component": kind, "dtype": dtype, **errors, "parameters": parameters})
        warnings += [f"{kind} {dtype}: {warning}" for warning in fitting.result.warnings]

    def page() -> str:
        notes = [f"Warning: {warning}." for warning in warnings]
        for row in rows:
            values = [f"{name}\xa0=\xa0{value:.4g}" for name, value in row["parameters"].items()]
            notes.append(f"{row['component']} {row['dtype']}: {', '.join(values)}")
        return "\n".join([text_table(rows, "errors"), "", *(wrap(line, "  ") for line in notes)])

    return Answer(page=page, fields={"rows": rows}, rows=rows, warnings=warnings)


def judged(found: measured.JudgedEngines) -> Answer:
    """Return the judged rows of a table of measured engines, and their errors, in all forms."""
    facts = measured.judged_facts(found)
    rows, errors, hosts = map(records, (found.rows, found.errors, found.hosts))
    sizes = found.errors.groupby("group")["value"].transform("size")
    groups = records(found.errors[(found.errors["group"] == "all") | (sizes > 1)])

    few = rows if len(rows) <= _MOST_ROWS else []
    left = found.not_taken.items()
    not_taken = [{"reason": why, "count": len(named), "rows": named} for why, named in left]
    values = {name: fact.value for name, fact in facts.items()}
    fields: Row = {name: value for name, value in values.items() if isinstance(value, float)}
    fields |= {"groups": errors[1:], "hosts": hosts, "rows": [*map(_known, rows)]}
    fields |= {"not_taken": not_taken, "assumptions": dict(found.assumed)}

    def page() -> str:
        tables = [text_table(few, "judged")] if few else []
        tables += [text_table(part, "errors") for part in (groups, hosts) if part]
        texts = (PAGES["judged"]["lines"], PAGES["judged"]["notes"])
        words, notes = ("\n".join(map(wrap, lines(each, facts))) for each in texts)
        return "\n\n".join([words, *tables, notes])

    return Answer(page=page, facts=facts, fields=fields, rows=rows)


def judged_kernels(errors: forms.DataFrame, name: str) -> Answer:
    """Return the errors of the kernels of a profile in all forms."""
    rows = records(errors)
    fields = {"hardware": name, "rows": rows}
    return Answer(page=lambda: f"{name}\n\n{text_table(rows, 'errors')}", fields=fields, rows=rows)


def _known(row: Row) -> Row:
    """Return a row without missing values."""
    return {name: value for name, value in row.items() if value is not None}
