"""Fits in words: of kernels their errors, of an engine its runs, what moved, and likely causes."""

from __future__ import annotations

from collections.abc import Mapping

from specmodel import fit
from specmodel.base.text import TABLE, wrap
from specmodel.prediction.table import Row
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.columns import ERRORS, MOVED, RUNS
from specmodel.show.facts import lines
from specmodel.show.forms import Answer, text_table
from specmodel.show.glossary import PAGES

_ERRORS = ("num_points", "num_judged", "mean_error", "median_error", "percentile_90_error")
_TEXTS = PAGES["fitted"]


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
            text_table(runs, RUNS, width=TABLE.get(), left=("run",)),
            "\n".join(causes),
            "" if is_refused else text_table(moved, MOVED, left=("moved",)),
        ]
        d, words = update.deployment, lines(_TEXTS["lines"], facts)
        heading, rests_on = report.heading(d), behind(d)
        return report.laid_out(heading, rests_on, update.assumptions, warnings, words, parts)

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
        table = text_table(rows, ERRORS, left=("component", "dtype"))
        return "\n".join([table, "", *(wrap(line, "  ") for line in notes)])

    return Answer(page=page, fields={"rows": rows}, rows=rows, warnings=warnings)
