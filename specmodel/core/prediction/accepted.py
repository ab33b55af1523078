"""Choose the acceptance of drafted tokens: the given one, or the published one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.acceptance import (
    ACCEPTANCE_SPREAD,
    FORMS,
    Acceptance,
    readings,
    typed_contexts,
    typed_rates,
)
from specmodel.core.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import Numeric, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.where import Where
from specmodel.core.drafters.acceptance import load_acceptance, measured_acceptance
from specmodel.core.drafters.by_name import drafter_kind
from specmodel.core.drafters.measured_heads import NAMES as TYPICAL_NAMES, typical_heads
from specmodel.core.drafters.names import named_drafters
from specmodel.core.drafters.published import PRESET
from specmodel.core.drafters.tasks import MIXTURE, task_text

ACCEPTANCE = ("acceptance", *FORMS)
"""Arguments that give an acceptance; only one of them may be given."""
OF_ACCEPTANCE = (*ACCEPTANCE, "task", "measured_draft_length", "acceptance_spread")
"""Arguments that describe acceptance."""
NEEDS_ACCEPTANCE = "This needs acceptance, such as `acceptance_rate=0.7`."
_OTHERS = (*OF_ACCEPTANCE[len(ACCEPTANCE) :], "draft_length", "max_draft_length")


class Accepted(Struct, frozen=True, kw_only=True, eq=False):
    """An acceptance as it was given.

    Parameters
    ----------
    form
        The one form in which it was given, by its name; empty where none was.
    measured_draft_length, acceptance_spread, task
        As in `cost.arguments.AcceptanceArguments`, None where not given.
    draft_length, max_draft_length
        Draft lengths of the question, None for any [token].
    """

    form: Mapping[str, Any]
    measured_draft_length: Numeric | None
    acceptance_spread: float | None
    task: str | Mapping[str, float] | None
    draft_length: Numeric | None
    max_draft_length: int | None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Accepted:
        """Return the acceptance that arguments by name give; raise an InputError for two forms."""
        form = {name: given[name] for name in ACCEPTANCE if given.get(name) is not None}
        if len(form) > 1:
            first, name = (*form,)[:2]
            raise InputError(name, form[name], f"one form of acceptance; `{first}` is given too")
        return cls(form=form, **{name: given.get(name) for name in _OTHERS})

    def taken(self, deployment: Deployment, where: Where) -> Acceptance | None:
        """Return the given acceptance, or the published one of target and drafter.

        Published acceptance is that on the given task, by default on a mixture. None if unknown.
        """
        if self.task is not None and not self.is_published:
            form = next(iter(self.form))
            expected = f"Only published acceptance depends on the task. Remove `task` or `{form}`."
            raise InputError("task", self.task, expected)
        of = _of_form if self.form else _published
        found, spread = of(deployment, where, self), self.acceptance_spread
        if found is None or spread is None:
            return found
        check("acceptance_spread", spread, minimum=0, maximum=0.5)
        return replace(found, spread=spread)

    @property
    def is_published(self) -> bool:
        """Whether it is acceptance of published heads, which depends on the task."""
        return not self.form or isinstance(self.form.get("acceptance"), str)

    @property
    def ways(self) -> dict[str, list[float]]:
        """The ways to read a list of rates by position; {} if no list was given [-]."""
        rates = self.form.get("acceptance_by_position")
        has_rows = np.iterable(rates) and any(
            map(np.iterable, () if isinstance(rates, str) else rates)
        )
        is_list = rates is not None and not has_rows
        return readings(rates, self.draft_length) if is_list else {}

    @property
    def tasks(self) -> str:
        """The kind of task, or shares of several, as text; by default a mixture."""
        return task_text(MIXTURE if self.task is None else self.task)


def _of_form(deployment: Deployment, where: Where, accepted: Accepted) -> Acceptance:
    """Return the acceptance given in a form."""
    ((form, value),) = accepted.form.items()
    measured = accepted.measured_draft_length
    if isinstance(value, Acceptance):
        return value
    if form == "acceptance" and isinstance(value, str):
        if value in TYPICAL_NAMES:
            return _typical(deployment, value, accepted.tasks)
        if measured is not None:
            expected = (
                "Published acceptance states its draft lengths. Remove `measured_draft_length`."
            )
            raise InputError("measured_draft_length", measured, expected)
        task = accepted.tasks
        found = load_acceptance(deployment.target, deployment.drafter, value, task)
        if value == PRESET:
            found = published_or_none(deployment, where.head, task) or found
        return _continued(found, where, accepted)
    if form == "acceptance_by_position" and isinstance(value, str):
        value = typed_rates(value, accepted.draft_length)
    if form == "acceptance_by_context" and isinstance(value, str):
        value = typed_contexts(value)
    form = "acceptance_rate" if form == "acceptance" else form
    return Acceptance(**{form: value}, measured_draft_length=measured)


def published_or_none(
    deployment: Deployment, named: str = "", task: str = MIXTURE
) -> Acceptance | None:
    """Return the acceptance published for this target and drafter on a task, None if there is none.

    Its source contains a note if a path or id, `named`, is that of another head.
    """
    return measured_acceptance(deployment.target.name, kind_of(deployment), named, task)


def _published(deployment: Deployment, where: Where, accepted: Accepted) -> Acceptance | None:
    """Return the published acceptance, extended to longer drafts, None if unknown or for trees."""
    found = published_or_none(deployment, where.head, accepted.tasks)
    if found is None or deployment.tree_width > 1:  # published acceptance is of chains
        return None
    measured = accepted.measured_draft_length
    if measured is not None:
        raise InputError("measured_draft_length", measured, NEEDS_ACCEPTANCE)
    return _continued(found, where, accepted)


def _continued(found: Acceptance, where: Where, accepted: Accepted) -> Acceptance:
    """Return published acceptance, extended to the draft lengths of the question.

    Its source notes changes to target or drafter. If the target is unknown, the source names the
    known model of the same shape.
    """
    asked = {name: getattr(accepted, name) for name in ("draft_length", "max_draft_length")}
    lengths = [check(name, each).max() for name, each in asked.items() if each is not None]
    longest = int(max(lengths, default=0))
    found = found.continued(longest) if longest <= MAX_DRAFT_LENGTH else found
    source = found.source
    for told in where.manner.names:
        word, is_other, rest = told.partition(": taken as ")
        if is_other and rest.endswith("whose shape it has"):
            source = f"{source}; of {rest.partition(',')[0]}, not {word}"
    changed = [name for name in ("target", "drafter") if where.what_ifs[name]]
    source += f", of the unchanged {changed[0]}" if changed else ""
    return found if source == found.source else replace(found, source=source)


def _typical(deployment: Deployment, name: str, task: str) -> Acceptance:
    """Return the acceptance of typical, typical-low or typical-high."""
    kind = kind_of(deployment)
    found = typical_heads(kind, task)
    if found is None:
        expected = f"Too few targets have published acceptance with {kind}. Give your own rate."
        raise InputError("acceptance", name, expected)
    place = TYPICAL_NAMES.index(name)
    source = f"{found.levels[place]} of {found.drafter} heads of {found.num_targets} targets"
    return replace(found.acceptance[place], source=f"{source}, as published by November 2026")


def task_spread(deployment: Deployment) -> float:
    """Return the standard deviation of acceptance between data sets, by kind of drafter [-]."""
    named = named_drafters().get(kind_of(deployment))
    return named.task_spread if named else ACCEPTANCE_SPREAD


def kind_of(deployment: Deployment) -> str:
    """Return the kind of a deployment's drafter, by which acceptance is published."""
    return drafter_kind(deployment.drafter, deployment.target)
