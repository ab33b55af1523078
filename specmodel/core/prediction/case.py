"""One question, resolved once: what runs where, what drafts, what is accepted, at which points.

Commands and Python both use this module. `Case.assumed` contains the defaults of arguments that
were not given, by name, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.core.base.errors import InputError, refuse_given, refuse_unknown
from specmodel.core.base.notes import Note
from specmodel.core.base.units import Numeric, check, single
from specmodel.core.cost.deploying import GPU_DEGREES, laid_out
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.layouts import HELD
from specmodel.core.cost.usual import TOLD, deployed
from specmodel.core.cost.where import ARGUMENTS, USUAL, Manner, Where, where_of
from specmodel.core.drafters.measured_heads import TypicalHeads, typical_heads
from specmodel.core.drafters.published import taken_drafter
from specmodel.core.drafters.tasks import MIXED
from specmodel.core.prediction.accepted import OF_ACCEPTANCE, Accepted, kind_of
from specmodel.core.prediction.by_batch import ByBatch, by_batch
from specmodel.core.prediction.evaluate import LOAD, LOCKSTEP

POINTS = ("batch_size", "context_length", *LOAD, LOCKSTEP, "verify_tokens")
"""Arguments for the operating points, other than draft lengths."""
DEFAULT_BATCH_SIZES = tuple(2**i for i in range(9))
"""Default batch sizes [request]."""
LONGEST_SEARCHED = 10
"""Default of the longest draft in the search for the best one [token]."""
_HELD_BY = {"batch_size": HELD[0], "context_length": HELD[1]}
_MOST_HELD = 10_000_000
"""Most tokens of a request for which the number of GPUs is chosen [token]."""
_LONGEST = "max_draft_length"
_OF_POINTS = {*POINTS, *OF_ACCEPTANCE, "draft_length", "max_draft_length"}
_KNOWN = {*_OF_POINTS, *ARGUMENTS}


class Case(Struct, frozen=True, kw_only=True, eq=False):
    """One resolved question.

    Parameters
    ----------
    where, deployment
        What runs where, as it was named, and as it was resolved.
    assumed
        Assumptions, by argument.
    points
        Operating points by argument, without draft lengths [request] [token].
    draft_length, max_draft_length
        Draft lengths, of each batch size if a schedule was given, and the longest draft. None means
        the best draft of each point, and the usual longest draft [token].
    accepted, acceptance
        The acceptance that was given, and the one in use; None if none was given and none is
        published for target and drafter.
    """

    where: Where
    deployment: Deployment
    assumed: Mapping[str, Any]
    points: Mapping[str, Numeric]
    draft_length: Numeric | ByBatch | None
    max_draft_length: int | None
    accepted: Accepted
    acceptance: Acceptance | None

    def drafting(self) -> Case:
        """Return the case; raise an InputError if acceptance is unknown or a draft length is 0."""
        _ = self.known_acceptance
        if self.lengths is not None and not np.all(self.lengths):
            raise InputError("draft_length", 0, "at least 1")
        return self

    @property
    def lengths(self) -> Numeric | None:
        """Draft lengths that were given, at the case's batch sizes; None for the best [token]."""
        given = self.draft_length
        return given.at(self.points["batch_size"]) if isinstance(given, ByBatch) else given

    def with_typical(self) -> Case:
        """Return the case with typical acceptance if its own is unknown and heads have one."""
        if self.acceptance is not None or self.heads is None:
            return self
        return self._accepting(form={"acceptance": "typical"})

    def on_task(self, task: str) -> Case:
        """Return the case with published acceptance on a kind of task."""
        return self._accepting(task=task)

    def _accepting(self, **changes: Any) -> Case:
        accepted = replace(self.accepted, **changes)
        d = self.deployment
        acceptance = accepted.taken(d, self.where) if d.has_drafter else None
        return replace(self, accepted=accepted, acceptance=acceptance)

    def tokens_by_task(self, draft_length: int) -> dict[str, float]:
        """Return published tokens per step on each kind of task, {} if none is in use [token]."""
        is_published = self.accepted.is_published and not self.deployment.drafter.is_lookup
        if self.acceptance is None or not is_published:
            return {}
        rates = {task: self.on_task(task).known_acceptance for task in MIXED}
        return {n: float(rate.expected_tokens_per_step(draft_length)) for n, rate in rates.items()}

    def at(self, **points: Any) -> Case:
        """Return the case at other points."""
        return replace(self, points={**self.points, **points})

    def elsewhere(self, **changes: Any) -> Case:
        """Return the case with other fields of `where`, resolved again."""
        where = replace(self.where, **changes)
        deployment, assumed = _placed(where, self.points, self.accepted)
        return replace(self, where=where, deployment=deployment, assumed=assumed)._accepting()

    def laid_out(self, degrees: Mapping[str, Any]) -> Case:
        """Return the case in other parallel degrees, with the assumptions that follow."""
        where = self.where.naming(**degrees)
        deployment, assumed = laid_out(self.deployment, where, degrees)
        notes = {name: self.assumed[name] for name in TOLD if name in self.assumed}
        return replace(self, deployment=deployment, assumed=notes | assumed, where=where)

    def with_graphs_of(self, count: int) -> Case:
        """Return the case with CUDA graphs of steps up to `count`, as `graph_limit` gives it."""
        engine = self.deployment.engine.with_graphs_of(count)
        deployment = self.deployment.with_draws(engine=engine)  # programs do not depend on graphs
        return replace(self, deployment=deployment, where=self.where.naming(graph_limit=count))

    @property
    def alone(self) -> dict[str, Any]:
        """Assumptions; without lengths of requests, one is that steps carry no prefill."""
        is_alone = not {*LOAD} & self.points.keys()
        alone = {"prefill": "none (only decode steps are predicted)"} if is_alone else {}
        return {**alone, **self.assumed}

    @property
    def heads(self) -> TypicalHeads | None:
        """Acceptance of published heads of the drafter's kind, None if too few are published."""
        return typical_heads(kind_of(self.deployment), self.accepted.tasks)

    @property
    def known_acceptance(self) -> Acceptance:
        """Acceptance of the case; raise an InputError with the remedies if it is unknown."""
        if self.acceptance is not None:
            return self.acceptance
        if not self.deployment.has_drafter:
            alone = "or `decode()` for plain decoding"
            raise InputError("drafter", "none", f"a drafter, {alone}")
        typical = "`acceptance='typical'` (the median published head), or " if self.heads else ""
        told = f"{typical}your own rate, such as `acceptance_rate=0.7`"
        drafter = self.where.named.get("drafter") or taken_drafter(self.deployment.target)[0]
        target = self.where.named["target"]
        expected = f"{told}, as none is published for {target} with {drafter}"
        raise InputError("acceptance", None, expected)

    def longest_draft(self, asked: int | None = None) -> int:
        """Return the longest draft to consider: `asked`, the given one, or the usual one [token].

        It does not exceed the lengths with known acceptance, nor the block of the drafter.
        """
        block, asked = self.deployment.drafter.block_size, asked or self.max_draft_length
        acceptance = self.known_acceptance
        acceptance.measured_at([1, 2])  # two lengths need a measured length
        known = int(acceptance.max_draft_length)
        if asked is None:
            return min(LONGEST_SEARCHED, known, block or known)
        asked = _checked_longest(asked)
        if block is not None and asked > block:
            raise InputError(_LONGEST, asked, f"at most {block}, the block size of the drafter")
        if asked > known:
            expected = f"at most {known} drafted tokens, for which acceptance is known"
            raise InputError(_LONGEST, asked, expected)
        return asked

    def longest_told(self, longest: int) -> dict[str, int | Note]:
        """Return the assumption on the longest draft considered, {} if it was given."""
        if self.max_draft_length is not None:
            return {}
        is_measured = not self.accepted.form and longest < LONGEST_SEARCHED
        if is_measured and self.heads and self.heads.max_draft_length > longest:
            return {_LONGEST: Note("longest_measured", {"length": longest})}
        return {_LONGEST: longest}

    def turned_lengths(self) -> Sequence[int]:
        """Return the draft lengths to consider if acceptance is unknown [token]."""
        if self.draft_length is None:
            block = self.deployment.drafter.block_size or 8
            known = self.heads.max_draft_length if self.heads else block
            return range(1, (self.max_draft_length or min(known, block)) + 1)
        given = self.draft_length
        taken = [int(length) for length in np.ravel(np.asarray(given))]
        if min(taken) < 1:
            expected = "at least 1, as the break-even acceptance needs a draft"
            raise InputError("draft_length", min(taken), expected)
        return taken

    def check_trees(self) -> None:
        """Refuse a tree without a draft length."""
        trees = {"verify_tokens": self.points.get("verify_tokens")}
        trees |= {"tree_width": self.where.named.get("tree_width")}
        if self.draft_length is None:
            expected = "No best length is searched for a tree of drafts. Add `draft_length`."
            refuse_given(trees, trees, expected)

    @property
    def has_trees(self) -> bool:
        """Whether drafts are trees."""
        return self.deployment.tree_width > 1 or "verify_tokens" in self.points


def case_of(arguments: Mapping[str, Any], manner: Manner = USUAL) -> Case:
    """Return the resolved question from arguments by name, or raise an InputError.

    Arguments of None are ignored. `specmodel.predict` describes the arguments.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if "speculative_config" in given:
        given, manner = _with_config(given, manner)
    if not given.keys() <= _KNOWN:  # saves a call for each prediction
        refuse_unknown(given, _KNOWN)
    where = where_of({n: value for n, value in given.items() if n not in _OF_POINTS}, manner)
    points = {"batch_size": DEFAULT_BATCH_SIZES}
    points |= {name: given[name] for name in POINTS if name in given}
    longest, length = given.get(_LONGEST), given.get("draft_length")
    length = by_batch(length) if isinstance(length, str) else length
    lengths = length.lengths if isinstance(length, ByBatch) else length
    accepted = Accepted.of({**given, "draft_length": lengths})
    deployment, assumed = _placed(where, points, accepted)
    return Case(
        where=where,
        deployment=deployment,
        assumed=assumed,
        points=points,
        draft_length=length,
        max_draft_length=None if longest is None else _checked_longest(longest),
        accepted=accepted,
        acceptance=accepted.taken(deployment, where) if deployment.has_drafter else None,
    )


def _with_config(given: dict[str, Any], manner: Manner) -> tuple[dict[str, Any], Manner]:
    """Return arguments and manner with vLLM's speculative_config replaced by its content."""
    from specmodel.core.cost.launch import speculative_arguments

    found = speculative_arguments(given.pop("speculative_config"))
    said = found.arguments | {"engine": given.get("engine", found.engine)}
    if given.keys() & OF_ACCEPTANCE:  # given acceptance has priority over invented rates
        said = {name: value for name, value in said.items() if name not in OF_ACCEPTANCE}
    changes = given.pop("changes", ())
    listed = [f"{k}={v}" for k, v in changes.items()] if isinstance(changes, Mapping) else changes
    said["changes"] = (*listed, *said.get("changes", ()))
    expected = "The speculative_config contains this too. Remove one of the two."
    refuse_given(given, said.keys() - {"engine"}, expected)
    names = (*manner.names, *found.notes)
    return given | said, manner._replace(names=names, head=found.model, lacking=found.lacking)


def _placed(
    where: Where, points: Mapping[str, Numeric], accepted: Accepted
) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment with room for the points, and the assumptions."""
    deployment, assumed = deployed(where, _held(where, points))
    if where.manner.lacking and deployment.drafter.is_made_up:
        expected = f"the path of a draft head, as {deployment.target.name} has no MTP module"
        raise InputError(where.manner.lacking, None, expected)
    is_read = "acceptance_by_position" in accepted.form and deployment.has_drafter
    if is_read and len(ways := accepted.ways) > 1:
        assumed = {"acceptance_by_position": Note("rates_read", {"ways": ways}), **assumed}
    return deployment, assumed


def _held(where: Where, points: Mapping[str, Numeric]) -> tuple[int, int]:
    """Return the requests for which GPUs need room, and their tokens, from the largest points.

    There are no more requests than usual, as others may wait.
    """
    try:
        asked = [np.asarray(points.get(name, least)) for name, least in _HELD_BY.items()]
    except ValueError:  # lists of different lengths, which are refused later
        return HELD
    if any(each.dtype.kind not in "iuf" for each in asked) or {*GPU_DEGREES} & where.named.keys():
        return HELD
    largest = (int(min(max(each.max(initial=1), 1), _MOST_HELD)) for each in asked)
    # the next powers of 2, so that few deployments are made
    requests, tokens = (1 << (count - 1).bit_length() for count in largest)
    return min(requests, HELD[0]), tokens


def _checked_longest(asked: int) -> int:
    """Return a checked `max_draft_length` [token]."""
    longest = check(_LONGEST, asked, minimum=1, maximum=MAX_DRAFT_LENGTH, whole=True)
    return int(single(_LONGEST, longest, "a single number, not a list"))
