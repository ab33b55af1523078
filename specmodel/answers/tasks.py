"""Kinds of task that acceptance is published of, and up to which context drafts pay in each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specmodel.base.errors import InputError
from specmodel.drafters.typical import acceptance_by_task
from specmodel.prediction.case import Case, given_form, kind_of
from specmodel.prediction.predicting import predicted

_CONTEXTS = tuple(1024 * 2**i for i in range(9))
"""At which it is tried whether a draft pays, as far as a model reads [token]."""


def cases_by_task(case: Case) -> dict[str, Case]:
    """Return a case with the acceptance that is published of each kind of task."""
    if given := given_form(case.given):
        raise InputError(*next(iter(given.items())), "none, as each kind of task has its own")
    tasks = acceptance_by_task(case.deployment.target.name, kind_of(case.deployment))
    if not tasks:
        expected = "a target and drafter whose acceptance by task is published, such as gemma-4-26b"
        raise InputError("view", "tasks", expected)
    return {task: replace(case, acceptance=acceptance) for task, acceptance in tasks.items()}


def ends_at_context(case: Case) -> list[int | None]:
    """Return by batch size the first context at which no draft pays, None for none tried."""
    longest = case.deployment.target.max_context_length or _CONTEXTS[-1]
    contexts = [context for context in _CONTEXTS if context <= longest]
    points = {**case.points, "context_length": np.array(contexts)[:, np.newaxis]}
    points["batch_size"] = np.ravel(case.points["batch_size"])
    stops = predicted(replace(case, points=points)).speedup <= 1
    return [contexts[own.argmax()] if own.any() else None for own in stops.T]
