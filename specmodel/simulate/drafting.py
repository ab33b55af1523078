"""Prepare the policies of a server by name, as the loop over steps reads them."""

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric
from specmodel.simulate.accepted import survival
from specmodel.simulate.choices import Choice, choose, policy_maker
from specmodel.simulate.machine_code import Function, as_lists, records
from specmodel.simulate.policies.policy import LearningPolicy, end_no_step, learn_nothing
from specmodel.simulate.state import BY_BATCH, BY_STEP, OWN, SHARED, Server
from specmodel.simulate.tables import TabulatedTimes


class Drafting(Struct, frozen=True, kw_only=True):
    """Policy that decides the draft length of a step; by default nothing is drafted.

    Parameters
    ----------
    kind
        Kind of policy, one of the numbers in `state`.
    by_batch
        Draft length [token], or index of a state [-], by number of requests in the previous step.
    states
        Policies whose states requests share, or the one that each request begins with.
    max_draft_length
        Longest draft that the policy may request [token].
    survival
        Probabilities that at least 1, 2, ... tokens are accepted, if drafts are made in full and
        cut before they are verified; closed formulas then read `by_batch` [-].
    """

    kind: int = BY_BATCH
    by_batch: tuple[int, ...] = (0,)
    states: tuple[LearningPolicy, ...] = (LearningPolicy(),)
    max_draft_length: int = 0
    survival: tuple[float, ...] = ()

    @property
    def rules(self) -> tuple[Function, Function]:
        """Functions that update the policy, after each request of a step and after each step."""
        policy = type(self.states[0])
        if self.kind == OWN:
            return policy.rule, end_no_step
        return policy.shared_rule or policy.rule, policy.step_rule

    def lengths(self, requests: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return draft lengths by requests of the previous step, or the longest [token]."""
        if self.kind != BY_BATCH:
            return np.full_like(requests, self.max_draft_length)
        return np.array(self.by_batch)[np.minimum(requests, len(self.by_batch) - 1)]

    def fresh(self, requests: int, *, for_python: bool) -> Server:
        """Return the policy in its initial state, for so many requests, as the loop reads it."""
        count = requests if self.kind == OWN else 1
        by_batch = np.array([self.max_draft_length] if self.survival else self.by_batch)
        states: Any = [policy.fresh() for policy in self.states * count] if for_python else ()
        if not for_python:
            states = np.repeat(records(self.states), count)
        server = Server(self.kind, by_batch, states, np.array(self.survival))
        return as_lists(server) if for_python else server


def scheduled(lengths: list[int]) -> Drafting:
    """Return a policy that drafts by the batch size of the previous step, from 1 [token]."""
    return Drafting(by_batch=(lengths[0], *lengths), max_draft_length=max(lengths))


def paces(
    times: TabulatedTimes,
    acceptance: Acceptance,
    max_draft_length: int,
    requests: NDArray[np.int64],
    context: Numeric,
) -> FloatArray:
    """Return the expected tokens/s of each request, by draft length and batch size [token/s].

    Prompts are ignored, because they add the same time to every token.
    """
    expected = acceptance.expected_tokens_per_step
    lengths = range(max_draft_length + 1)
    return np.array([float(expected(k)) / times.step_time(k, requests, context) for k in lengths])


def best_lengths(
    times: TabulatedTimes, acceptance: Acceptance, max_draft_length: int, context: float
) -> list[int]:
    """Return the draft length with the most expected tokens/s at each batch size, from 1 [token].

    If several draft lengths are equally fast, the result is the shortest.
    """
    sizes = np.arange(1, times.max_requests + 1)
    best: list[int] = paces(times, acceptance, max_draft_length, sizes, context).argmax(0).tolist()
    return best


def verifying(
    times: TabulatedTimes, acceptance: Acceptance, longest: int, context: float
) -> Drafting:
    """Return the policy that drafts in full, and verifies the tokens that give most tokens/s.

    `times` are those of `drafting_in_full`; the other arguments are those of `best_lengths`.
    """
    own = scheduled(best_lengths(times, acceptance, longest, context))
    reached = tuple(survival(acceptance, longest)[longest].tolist())
    return replace(own, max_draft_length=longest, survival=reached)


def drafting(
    policy: str,
    *,
    times: TabulatedTimes,
    acceptance: Acceptance,
    max_draft_length: int,
    context: float,
    state: str | None = None,
) -> Drafting:
    """Return a policy by name for a server with these step times.

    The name is ``schedule``, the best length by batch size, or a policy of this package that knows
    no trace, as in `simulate.choices`. `state` is "request" or "server", which keeps the state of
    the policy; None follows the source of the policy.
    """
    if policy.strip() == "schedule":
        return scheduled(best_lengths(times, acceptance, max_draft_length, context))
    choice = choose(policy).kept_by(state)
    if choice.schedule is None:
        return _learning(choice, times, max_draft_length, context)
    found = scheduled(choice.lengths(times.max_requests)[1:])
    if found.max_draft_length > max_draft_length:
        expected = f"draft lengths of at most {max_draft_length} (`max_draft_length`)"
        raise InputError("policy", choice.name, expected)
    return found


def _learning(choice: Choice, times: TabulatedTimes, longest: int, context: float) -> Drafting:
    """Return a policy that learns, with a state for each request or for the server."""
    if not choice.is_ours:
        expected = "none, fixed:K, schedule, table, sglang, goodput or cascade"
        raise InputError("policy", choice.name, expected)
    of_one = [float(times.step_time(k, 1, context)) for k in range(longest + 1)]
    made: Any = policy_maker(choice, of_one, 0)(0)
    kind = BY_STEP if made.shared_rule is learn_nothing else SHARED
    states, by_batch = made.of_server(times.max_requests)
    if choice.state == "request":
        kind, states, by_batch = OWN, [made], [0]
    return Drafting(
        kind=kind, by_batch=tuple(by_batch), states=tuple(states), max_draft_length=longest
    )
