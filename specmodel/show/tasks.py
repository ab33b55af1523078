"""The best draft length by kind of task, and from which context on it pays no more: a view."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specmodel.base.errors import InputError
from specmodel.prediction.table import Form, Row
from specmodel.show import forms, operator, report
from specmodel.show.views import case as case_of

if TYPE_CHECKING:
    from specmodel.prediction.case import Case

_CONTEXTS = tuple(1024 * 2**i for i in range(9))
"""At which it is tried whether a draft pays, as far as a model reads [token]."""


def answer(prediction: report.Prediction, *, interval: bool | None = None) -> forms.Answer:
    """Return the best length of each kind of task that acceptance is published of, in all forms."""
    from specmodel.drafters.typical import acceptance_by_task
    from specmodel.prediction.case import given_form, kind_of

    case = case_of(prediction)
    if given := given_form(case.given):
        raise InputError(*next(iter(given.items())), "none, as each kind of task has its own")
    tasks = acceptance_by_task(case.deployment.target.name, kind_of(case.deployment))
    if not tasks:
        expected = "a target and drafter whose acceptance by task is published, such as gemma-4-26b"
        raise InputError("view", "tasks", expected)
    rows = [
        {"task": task} | row
        for task, acceptance in tasks.items()
        for row in _rows(replace(case, acceptance=acceptance), interval)
    ]
    shown = [{name: row[name] for name in row if name != "alike"} for row in rows]
    others = {k: v for k, v in prediction.assumptions.items() if k != "acceptance"}
    prediction = replace(prediction, assumptions=others)
    return report.answer(prediction, shown, lambda: (_verdict(rows), _table(rows)))


def _rows(case: Case, interval: bool | None) -> list[Row]:
    """Return the rows of a kind of task, at its best draft lengths."""
    from specmodel.prediction.predicting import predicted

    found = report.with_ends(predicted(case), interval)
    rows = operator.with_alike(found, found.rows())
    return [row | {"ends_at_context": end} for row, end in zip(rows, _ends(case), strict=True)]


def _ends(case: Case) -> list[int | None]:
    """Return by batch size the first context at which no draft pays, None for none tried."""
    import numpy as np

    from specmodel.prediction.predicting import predicted

    longest = case.deployment.target.max_context_length or _CONTEXTS[-1]
    contexts = [context for context in _CONTEXTS if context <= longest]
    points = {**case.points, "context_length": np.array(contexts)[:, np.newaxis]}
    points["batch_size"] = np.ravel(case.points["batch_size"])
    stops = predicted(replace(case, points=points)).speedup <= 1
    return [contexts[own.argmax()] if own.any() else None for own in stops.T]


def _verdict(rows: list[Row]) -> str:
    """Return a sentence on the best length and speedup of each task, at the least batch size."""
    size = min(row["batch_size"] for row in rows)
    told = [
        f"{row['task']} {row.get('alike', row['draft_length'])} ({row['speedup']:.2f}x)"
        for row in rows
        if row["batch_size"] == size
    ]
    return f"Best draft length by kind of task, at batch size {size}: {', '.join(told)}."


def _table(rows: list[Row]) -> str:
    """Return a row for each kind of task and batch size."""
    columns: dict[str, Form] = {
        "task": "{task}",
        "batch\nsize": "{batch_size}",
        "tokens\na step": "{tokens_per_step:.2f}",
        "speedup": "{speedup:.2f}",
        "80 %\ninterval": "{speedup_low:.2f}-{speedup_high:.2f}",
        "draft\nlength": lambda row: str(row.get("alike", row["draft_length"])),
        "pays no more\nfrom context": lambda row: f"{row['ends_at_context'] or '-'}",
        "fits": lambda row: "yes" if row["fits"] else "no",
    }
    if "speedup_low" not in rows[0]:
        del columns["80 %\ninterval"]
    return forms.table(rows, columns, left=["task"])
