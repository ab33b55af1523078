"""One question, resolved once: what runs where, what drafts, what is accepted, at which points.

Commands and Python come through here alike. Whatever was not given is taken as usual, and stands in
`Case.assumed` by its name, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.algebra.acceptance import (
    ACCEPTANCE_SPREAD,
    FORMS,
    Acceptance,
    readings,
    typed_contexts,
    typed_rates,
)
from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.base.errors import InputError, refuse_unknown
from specmodel.base.notes import Note
from specmodel.base.units import Numeric, check
from specmodel.cost.arguments import AskedArguments
from specmodel.cost.deploying import GPU_DEGREES, NAMES, laid_out
from specmodel.cost.deployment import Deployment
from specmodel.cost.layouts import HELD
from specmodel.cost.usual import TOLD, changed, deployed
from specmodel.drafters.acceptance import load_acceptance, measured_acceptance
from specmodel.drafters.by_name import drafter_kind
from specmodel.drafters.names import named_drafters
from specmodel.drafters.published import PRESET, taken_drafter
from specmodel.drafters.tasks import MIXED, MIXTURE, task_text
from specmodel.drafters.typical import TypicalHeads, typical_heads
from specmodel.prediction.evaluate import LOAD, LOCKSTEP

TYPICAL = {"typical-low": 0, "typical": 1, "typical-high": 2}
"""Names of acceptance that take what published heads of a kind reach."""
ACCEPTANCE = ("acceptance", *FORMS)
"""Arguments that give an acceptance, of which one is taken."""
POINTS = ("batch_size", "context_length", *LOAD, LOCKSTEP, "verify_tokens")
"""Arguments that say at which points, draft lengths aside."""
DEFAULT_BATCH_SIZES = tuple(2**i for i in range(9))
"""Batch sizes where none are given [request]."""
LONGEST_SEARCHED = 10
"""Longest draft among which the best is searched where none is given [token]."""
_HELD_BY = {"batch_size": HELD[0], "context_length": HELD[1]}
_MOST_HELD = 10_000_000
"""Tokens of a request that GPUs are counted for at most [token]."""
_LONGEST = "max_draft_length"
_OF_POINTS = {*POINTS, *ACCEPTANCE, "draft_length", "max_draft_length", "measured_draft_length"}
_OF_POINTS |= {"acceptance_spread", "task"}
OF_DEPLOYMENTS = {*NAMES, *AskedArguments.__annotations__, "draft_model", "unnamed"} - {*ACCEPTANCE}
OF_DEPLOYMENTS |= {"may_not_fit", "force", "told_names", "told_drafter", "engine.state_slots"}
"""Arguments that say what runs where; `draft_model` is the head that a start command names, and
`unnamed` its key or flag for that, where it names none."""
_KNOWN = _OF_POINTS | OF_DEPLOYMENTS


class Case(Struct, frozen=True, kw_only=True, eq=False):
    """One question, as it was resolved.

    Parameters
    ----------
    deployment, assumed
        What runs where, and what was assumed of the question, by argument.
    given
        What was given, by argument.
    points
        Where it is asked, by argument, draft lengths aside [request] [token].
    draft_length
        Draft lengths that were given; None for the best of each point [token].
    acceptance
        Of drafted tokens; None where none is given and none is published of target and drafter.
    """

    deployment: Deployment
    assumed: Mapping[str, Any]
    given: Mapping[str, Any]
    points: Mapping[str, Numeric]
    draft_length: Numeric | None
    acceptance: Acceptance | None

    def drafting(self) -> Case:
        """Return the case; raise an InputError if acceptance is unknown or a draft length is 0."""
        _ = self.known_acceptance
        if self.draft_length is not None and not np.all(self.draft_length):
            raise InputError("draft_length", 0, "at least 1")
        return self

    def with_typical(self) -> Case:
        """Return the case with typical acceptance if none is known and its kind of head has one."""
        if self.acceptance is not None or self.heads is None:
            return self
        given = {**self.given, "acceptance": "typical"}
        return replace(self, given=given, acceptance=taken_acceptance(self.deployment, given))

    def on_task(self, task: str) -> Case:
        """Return the case with published acceptance on a kind of task."""
        given = {**self.given, "task": task}
        return replace(self, given=given, acceptance=taken_acceptance(self.deployment, given))

    @property
    def takes_published(self) -> bool:
        """Whether acceptance is that of published heads, which depends on the task."""
        form = given_form(self.given)
        is_published = not form or isinstance(form.get("acceptance"), str)
        drafter = self.deployment.drafter
        return is_published and self.deployment.has_drafter and not drafter.is_lookup

    def tokens_by_task(self, draft_length: int) -> dict[str, float]:
        """Return published tokens per step on each kind of task, {} where none is taken [token]."""
        if self.acceptance is None or not self.takes_published:
            return {}
        cases = {task: self.on_task(task).known_acceptance for task in MIXED}
        return {
            task: float(acceptance.expected_tokens_per_step(draft_length))
            for task, acceptance in cases.items()
        }

    def at(self, **points: Any) -> Case:
        """Return the case at other points."""
        return replace(self, points={**self.points, **points})

    def laid_out(self, degrees: Mapping[str, Any]) -> Case:
        """Return the case in other parallel degrees, with the assumptions that follow."""
        given = {**self.given, **degrees}
        values = given | (changed(given["changes"]) if given.get("changes") else {})
        deployment, assumed = laid_out(self.deployment, values, degrees)
        notes = {name: self.assumed[name] for name in TOLD if name in self.assumed}
        return replace(self, deployment=deployment, assumed=notes | assumed, given=given)

    def with_graphs_of(self, count: int) -> Case:
        """Return the case with CUDA graphs of steps up to `count`, as `graph_limit` gives it."""
        engine = self.deployment.engine.with_graphs_of(count)
        deployment = self.deployment.with_draws(engine=engine)  # programs know no graphs
        return replace(self, deployment=deployment, given={**self.given, "graph_limit": count})

    @property
    def alone(self) -> dict[str, Any]:
        """What was assumed; without lengths of requests also that steps carry no prefill."""
        is_alone = not {*LOAD} & self.given.keys()
        return {**({"prefill": "none carried"} if is_alone else {}), **self.assumed}

    @property
    def heads(self) -> TypicalHeads | None:
        """What published heads of the drafter's kind reach, None where too few are published."""
        return typical_heads(kind_of(self.deployment), self.task)

    @property
    def task(self) -> str:
        """Kind of task, or shares of several, that published acceptance is taken on."""
        return task_of(self.given)

    @property
    def known_acceptance(self) -> Acceptance:
        """Acceptance of the case; an InputError that names the remedies if it is unknown."""
        if self.acceptance is not None:
            return self.acceptance
        if not self.deployment.has_drafter:
            alone = "for decoding without a drafter, use `decode()`"
            raise InputError("drafter", "none", f"one that drafts: {alone}")
        typical = "`acceptance='typical'` (the median head published), or " if self.heads else ""
        told = f"{typical}a rate of yours, such as `acceptance_rate=0.7`"
        target = self.given.get("target", self.deployment.target.name)
        drafter = self.given.get("drafter") or taken_drafter(self.deployment.target)[0]
        expected = f"{told}, as none is published of {target} with {drafter}"
        raise InputError("acceptance", None, expected)

    def longest_draft(self, asked: int | None = None) -> int:
        """Return the longest draft to consider, the one asked for, given or usual [token].

        It is at most what acceptance is known for and what the drafter drafts at once.
        """
        block, asked = self.deployment.drafter.block_size, asked or self.given.get(_LONGEST)
        acceptance = self.known_acceptance
        acceptance.measured_at([1, 2])  # with two lengths: refuses an unknown measured length
        known = int(acceptance.max_draft_length)
        if asked is None:
            return min(LONGEST_SEARCHED, known, block or known)
        asked = _checked_longest(asked)
        if block is not None and asked > block:
            raise InputError(_LONGEST, asked, f"at most {block}, which is drafted at once")
        if asked > known:
            expected = f"at most {known}, the positions that acceptance_by_position covers"
            raise InputError(_LONGEST, asked, expected)
        return asked

    def longest_told(self, longest: int) -> dict[str, int | Note]:
        """Return the assumption on the longest draft considered, {} if it was given."""
        if self.given.get(_LONGEST) is not None:
            return {}
        is_measured = not given_form(self.given) and longest < LONGEST_SEARCHED
        if is_measured and self.heads and self.heads.max_draft_length > longest:
            return {_LONGEST: Note("longest_measured", {"length": longest})}
        return {_LONGEST: longest}

    def turned_lengths(self) -> Sequence[int]:
        """Return the draft lengths to consider where acceptance is not known [token]."""
        lengths, asked = self.given.get("draft_length"), self.given.get(_LONGEST)
        if lengths is None:
            block = self.deployment.drafter.block_size or 8
            known = self.heads.max_draft_length if self.heads else block
            asked = min(known, block) if asked is None else _checked_longest(asked)
            return range(1, asked + 1)
        taken = [int(length) for length in np.ravel(np.asarray(lengths))]
        if min(taken) < 1:
            raise InputError("draft_length", min(taken), "at least 1, as no acceptance is given")
        return taken

    def check_trees(self) -> None:
        """Refuse a tree without a draft length."""
        for name in ("verify_tokens", "tree_width"):
            if self.draft_length is None and self.given.get(name) is not None:
                expected = "`draft_length` with it, as trees have no best length"
                raise InputError(name, self.given[name], expected)

    @property
    def has_trees(self) -> bool:
        """Whether drafts are trees."""
        return self.deployment.tree_width > 1 or "verify_tokens" in self.given


def case_of(arguments: Mapping[str, Any], *, is_drafting: bool = True) -> Case:
    """Return the question that arguments by name ask; whole, or an InputError.

    Those of None are not given. `specmodel.predict` says what there is; without `is_drafting`,
    nothing drafts where no drafter is given.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if not given.keys() <= _KNOWN:  # a call saved for each prediction
        refuse_unknown(given, _KNOWN)
    where = {name: value for name, value in given.items() if name not in _OF_POINTS}
    deployment, assumed = deployed({**where, "is_drafting": is_drafting}, _held(given))
    if given.get("unnamed") and "mtp_block" in dict(deployment.drafter.assumed):
        expected = f"the path of a head, as {deployment.target.name} has no MTP module"
        raise InputError(given["unnamed"], None, expected)
    points = {"batch_size": DEFAULT_BATCH_SIZES}
    points |= {name: given[name] for name in POINTS if name in given}
    is_read = "acceptance_by_position" in given and deployment.has_drafter
    ways = rates_read(given) if is_read else {}  # a call saved for each prediction
    read = {"acceptance_by_position": Note("rates_read", {"ways": ways})} if len(ways) > 1 else {}
    return Case(
        deployment=deployment,
        assumed=read | assumed,
        given=given,
        points=points,
        draft_length=given.get("draft_length"),
        acceptance=taken_acceptance(deployment, given) if deployment.has_drafter else None,
    )


def _held(given: Mapping[str, Any]) -> tuple[int, int]:
    """Return the requests that GPUs must hold, and their tokens, by the largest that were asked.

    No more than usual, as others may wait.
    """
    asked = [np.asarray(given.get(name, least)) for name, least in _HELD_BY.items()]
    if any(each.dtype.kind not in "iuf" for each in asked) or {*GPU_DEGREES} & given.keys():
        return HELD
    requests, tokens = (int(min(max(each.max(initial=1), 1), _MOST_HELD)) for each in asked)
    return min(_rounded(requests), HELD[0]), _rounded(tokens)


def _rounded(count: int) -> int:
    """Return the next power of 2, so that few deployments are made."""
    return 1 << (count - 1).bit_length()


def rates_read(given: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the ways to read rates by position that were given as one list; {} for none [-]."""
    rates = given.get("acceptance_by_position")
    is_list = rates is not None and np.ndim(rates) < 2
    return readings(rates, given.get("draft_length")) if is_list else {}


def _checked_longest(asked: int) -> int:
    """Return `max_draft_length` as it was asked for, checked [token]."""
    return int(check(_LONGEST, asked, minimum=1, maximum=MAX_DRAFT_LENGTH, whole=True))


def taken_acceptance(deployment: Deployment, given: Mapping[str, Any]) -> Acceptance | None:
    """Return the acceptance given in one form, else what is published of target and drafter.

    What is published is taken on the task that was given, else on a mixture.
    """
    typed = given_form(given)
    spread = given.get("acceptance_spread")
    if "task" in given and typed and not isinstance(typed.get("acceptance"), str):
        expected = f"none beside `{next(iter(typed))}`, as only published acceptance has tasks"
        raise InputError("task", given["task"], expected)
    found = _of_form(deployment, given, typed) if typed else _published(deployment, given)
    if found is None or spread is None:
        return found
    check("acceptance_spread", spread, minimum=0, maximum=0.5)
    return replace(found, spread=spread)


def task_of(given: Mapping[str, Any]) -> str:
    """Return the task that was given, as it is typed; a mixture where none was."""
    return task_text(given.get("task", MIXTURE))


def task_spread(deployment: Deployment) -> float:
    """Return the standard deviation of acceptance between data sets, by kind of drafter [-]."""
    named = named_drafters().get(kind_of(deployment))
    return named.task_spread if named else ACCEPTANCE_SPREAD


def given_form(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one form of acceptance that was given, by its name; nothing if none was."""
    typed = {name: given[name] for name in ACCEPTANCE if given.get(name) is not None}
    if len(typed) > 1:
        first, name = (*typed,)[:2]
        expected = f"none beside `{first}`: one form of acceptance does"
        raise InputError(name, typed[name], expected)
    return typed


def _of_form(deployment: Deployment, given: Mapping[str, Any], typed: dict[str, Any]) -> Acceptance:
    """Return the acceptance given by one argument; `typed` maps its name to its value."""
    measured = given.get("measured_draft_length")
    value = typed.get("acceptance")
    if isinstance(value, Acceptance):
        return value
    if isinstance(value, str):
        if value in TYPICAL:
            return _typical(deployment, value, given)
        if measured is not None:
            expected = "none: leave it out, as published acceptance has its own draft lengths"
            raise InputError("measured_draft_length", measured, expected)
        task = task_of(given)
        found = load_acceptance(deployment.target, deployment.drafter, value, task)
        if value == PRESET:
            found = published_or_none(deployment, named_head(given), task) or found
        return of_unchanged(_continued(found, given), given)
    if value is not None:
        typed = {"acceptance_rate": value}
    if isinstance(rates := typed.get("acceptance_by_position"), str):
        typed = {"acceptance_by_position": typed_rates(rates, given.get("draft_length"))}
    if isinstance(pairs := typed.get("acceptance_by_context"), str):
        typed = {"acceptance_by_context": typed_contexts(pairs)}
    return Acceptance(**typed, measured_draft_length=measured)


def named_head(given: Mapping[str, Any]) -> str:
    """Return the path or id by which a drafter was given, "" if by a plain name or as a record."""
    named = given.get("draft_model") or given.get("drafter")
    path = str(named).removesuffix("/config.json") if isinstance(named, str | Path) else ""
    return path if "/" in path else ""


def published_or_none(
    deployment: Deployment, named: str = "", task: str = MIXTURE
) -> Acceptance | None:
    """Return the acceptance published for this target and drafter on a task, None if there is none.

    It says if the head that a path or id `named` is not the one that was measured.
    """
    return measured_acceptance(deployment.target.name, kind_of(deployment), named, task)


def _published(deployment: Deployment, given: Mapping[str, Any]) -> Acceptance | None:
    """Return the published acceptance, extended to longer drafts, None if unknown or for trees."""
    found = published_or_none(deployment, named_head(given), task_of(given))
    if found is None or deployment.tree_width > 1:  # what is published is of chains
        return None
    measured = given.get("measured_draft_length")
    if measured is not None:
        raise InputError("measured_draft_length", measured, "a form of acceptance with it")
    return of_unchanged(_continued(found, given), given)


def _continued(found: Acceptance, given: Mapping[str, Any]) -> Acceptance:
    """Return published acceptance for drafts as long as those asked for."""
    asked = [given[name] for name in ("draft_length", _LONGEST) if given.get(name) is not None]
    longest = max((int(np.max(np.asarray(lengths))) for lengths in asked), default=0)
    return found.continued(longest) if longest <= MAX_DRAFT_LENGTH else found


def _typical(deployment: Deployment, name: str, given: Mapping[str, Any]) -> Acceptance:
    """Return the acceptance of typical, typical-low or typical-high."""
    kind = kind_of(deployment)
    found = typical_heads(kind, task_of(given))
    if found is None:
        expected = f"a rate: fewer than two targets have published acceptance with {kind}"
        raise InputError("acceptance", name, expected)
    place = TYPICAL[name]
    source = f"{found.levels[place]} of {found.drafter} heads of {found.num_targets} targets"
    return replace(found.acceptance[place], source=f"{source}, as published by November 2026")


def of_unchanged(acceptance: Acceptance, given: Mapping[str, Any]) -> Acceptance:
    """Return published acceptance, its source noting any change to target or drafter.

    Also that it is of a model of the target's shape, where the target itself is not known.
    """
    for told in str(given.get("told_names") or "").split("; "):
        word, is_other, rest = told.partition(": taken as ")
        if is_other and rest.endswith("whose shape it has"):
            taken = rest.partition(",")[0]
            source = f"{acceptance.source}; of {taken}, not {word}"
            acceptance = replace(acceptance, source=source)
    records = {key.partition(".")[0].strip() for key in given.get("changes", ())}
    changed = [name for name in ("target", "drafter") if name in records]
    if not changed:
        return acceptance
    return replace(acceptance, source=f"{acceptance.source}, of the unchanged {changed[0]}")


def kind_of(deployment: Deployment) -> str:
    """Return the kind of a deployment's drafter, by which acceptance is published."""
    return drafter_kind(deployment.drafter, deployment.target)
