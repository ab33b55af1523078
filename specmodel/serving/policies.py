"""Draft lengths of a server: policies by name, as the loop over steps reads them."""

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.algebra.acceptance import Acceptance, conditional_acceptance
from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.replay.choices import Choice, choose, policy_maker, schedule_of
from specmodel.replay.machine_code import Function, records
from specmodel.replay.policies import AdaptiveSteps, Goodput, scheduled_draft_lengths
from specmodel.replay.policies.goodput import next_length, take_in
from specmodel.replay.policies.policy import STATES, LearningPolicy, learn_nothing
from specmodel.replay.policies.sglang import adapt, read_slots
from specmodel.replay.tables import Tables, TabulatedTimes, decode_time
from specmodel.serving.state import BY_BATCH, SHARED, SLOTS, Server

CLASSES = 8
"""Classes of requests, equally many in each, where acceptance differs between requests [-]."""
_BISECTIONS = 50


def end_step(
    policy: Any, tables: Tables, decoding: int, accepted_tokens: int, context: float
) -> None:
    """Do nothing at the end of a step: for policies that learn from single requests alone."""


def goodput_request(
    policy: Any, emitted_tokens: int, step_time: float, drafted_tokens: int
) -> None:
    """Update the goodput policy with the draft of one request of a step, if it had one."""
    if drafted_tokens > 0:
        take_in(policy, drafted_tokens, emitted_tokens - 1)


def goodput_step(
    policy: Any, tables: Tables, decoding: int, accepted_tokens: int, context: float
) -> None:
    """Choose the next draft length of the goodput policy, with step times at this batch size."""
    for k in range(policy.longest + 1):
        policy.step_time[k] = decode_time(tables, k, decoding, context)
    next_length(policy)


def sglang_step(
    policy: Any, tables: Tables, decoding: int, accepted_tokens: int, context: float
) -> None:
    """Update a slot of SGLang's adaptive rule with the mean of accepted tokens in the batch."""
    adapt(policy, accepted_tokens / decoding)


RULES: dict[type[LearningPolicy], tuple[Function, Function]] = {
    Goodput: (goodput_request, goodput_step),
    AdaptiveSteps: (learn_nothing, sglang_step),
}
"""What takes in a request of a step, and a step, where it is not the rule of a single request."""


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """What decides the draft length of a step; by default nothing is drafted.

    Parameters
    ----------
    name, kind
        For people, and what the loop does with the rest, by number.
    by_batch
        By the requests of the step before, from 0: a draft length [token], or a state [-].
    states
        Policies whose state requests share.
    max_draft_length
        The longest draft that it may ask for [token].
    """

    name: str = "none"
    kind: int = BY_BATCH
    by_batch: tuple[int, ...] = (0,)
    states: tuple[LearningPolicy, ...] = (LearningPolicy(),)
    max_draft_length: int = 0

    @property
    def rules(self) -> tuple[Function, Function]:
        """The functions that update the policy after a request of a step, and after a step."""
        policy = type(self.states[0])
        return RULES.get(policy, (policy.rule, end_step))

    def lengths(self, requests: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the draft lengths by requests of the step before, the longest if it learns."""
        if self.kind != BY_BATCH:
            return np.full_like(requests, self.max_draft_length)
        return np.array(self.by_batch)[np.minimum(requests, len(self.by_batch) - 1)]

    def fresh(self, *, for_python: bool) -> Server:
        """Return the policy in its initial state, as a `Server` that the loop reads."""
        if for_python:
            states = [policy.fresh() for policy in self.states]
            return Server(self.kind, [*self.by_batch], states)
        return Server(self.kind, np.array(self.by_batch), records(self.states))


def fixed(length: int, name: str = "") -> Drafting:
    """Return a policy with one draft length for all steps [token]."""
    return Drafting(name=name or f"fixed:{length}", by_batch=(length,), max_draft_length=length)


def scheduled(lengths: list[int], name: str) -> Drafting:
    """Return a policy that drafts by the batch size of the previous step, from 1 [token]."""
    whole = (lengths[0], *lengths)
    return Drafting(name=name, by_batch=whole, max_draft_length=max(whole))


def best_lengths(
    times: TabulatedTimes, acceptance: Acceptance, max_draft_length: int, context: float
) -> list[int]:
    """Return the draft length with the most expected tokens/s at each batch size, from 1 [token].

    Of equal ones the shortest; prompts are left out, which add the same to every token.
    """
    sizes = np.arange(1, times.max_requests + 1)
    paces = [
        float(acceptance.expected_tokens_per_step(k)) / times.step_time(k, sizes, context)
        for k in range(max_draft_length + 1)
    ]
    return [int(best) for best in np.argmax(np.array(paces), axis=0)]


def drafting(
    policy: str,
    *,
    times: TabulatedTimes,
    acceptance: Acceptance,
    max_draft_length: int,
    context: float,
    state: str = "request",
) -> Drafting:
    """Return a policy by name for a server with these step times.

    ``none``, ``fixed:K``, ``schedule`` (the best length by batch), ``table:...``, ``below:B:K`` (K
    tokens where at most B requests run, else none) and the learning ones of `replay.choices`. Those
    that keep a state for each request are refused unless `state` is "server": all requests then
    share one state, which is updated with each of them in turn.
    """
    kind, *words = policy.strip().split(":")
    if kind == "schedule" and not words:
        return scheduled(best_lengths(times, acceptance, max_draft_length, context), "schedule")
    if kind in ("table", "below"):
        table = schedule_of(policy, words)
        found = scheduled(scheduled_draft_lengths(table, times.max_requests)[1:], policy)
    elif (choice := choose(policy)).draft_length is not None:
        found = fixed(choice.draft_length, choice.name)
    else:
        return _learning(choice, times, max_draft_length, context, state)
    if found.max_draft_length > max_draft_length:
        expected = f"drafts of at most {max_draft_length}, the longest of the drafter considered"
        raise InputError("policy", found.name, expected)
    return found


def _learning(
    choice: Choice, times: TabulatedTimes, longest: int, context: float, state: str
) -> Drafting:
    """Return a policy that learns, with the state of a server."""
    if state not in STATES:
        raise InputError("policy_state", state, " or ".join(STATES))
    if not choice.is_ours:
        expected = "none, fixed:K, schedule, table, sglang, goodput, cascade or bandit"
        raise InputError("policy", choice.name, expected)
    if choice.state == "request" and state != "server":
        expected = "sglang or goodput, or `policy_state='server'`: one state for all requests"
        raise InputError("policy", choice.name, expected)
    of_one = [float(times.step_time(k, 1, context)) for k in range(longest + 1)]
    made: Any = policy_maker(choice, of_one, 0)(0)
    found = Drafting(name=choice.name, kind=SHARED, states=(made,), max_draft_length=longest)
    if not isinstance(made, AdaptiveSteps):
        return found
    # all slots of SGLang's adaptive rule, of which settings hold in each
    sizes = sorted(read_slots(choice.settings.get("config")))
    slots = (AdaptiveSteps(longest, batch_size=size, **choice.settings) for size in sizes)
    slot = np.searchsorted(sizes, np.arange(times.max_requests + 1), "right") - 1
    by_batch = tuple(np.maximum(slot, 0).tolist())
    return replace(found, kind=SLOTS, by_batch=by_batch, states=tuple(slots))


def survival(acceptance: Acceptance, longest: int) -> FloatArray:
    """Return the chances that at least 1, 2, ... tokens are accepted, by draft length [-].

    For drafters that make all tokens at once, each length has its own chances.
    """
    found = np.zeros((longest + 1, max(longest, 1)))
    rates = None
    if acceptance.acceptance_by_position is not None:
        rates = np.asarray(acceptance.acceptance_by_position, dtype=float)
        if longest > rates.shape[-1]:
            expected = f"at most {rates.shape[-1]}, the positions with a known acceptance"
            raise InputError("draft_length", longest, expected)
    for k in range(1, longest + 1):
        own = np.full(k, float(acceptance.rate())) if rates is None else rates
        found[k, :k] = np.cumprod(own[k - 1] if own.ndim == 2 else own)[:k]
    return found


def spread_survival(chances: FloatArray, spread: float) -> FloatArray:
    """Return the chances of `survival`, a set of tables for each class of requests [-].

    `spread` is the standard deviation between requests of the logit of acceptance. Each class is
    shifted by a quantile of that normal distribution, and all classes of a table and draft length
    by one more constant, so that tokens per step over all classes, which emit equally many tokens,
    stay those of the table.
    """
    if spread == 0:
        return chances[None]
    law = NormalDist()
    quantiles = np.array([law.inv_cdf((i + 0.5) / CLASSES) for i in range(CLASSES)])
    off = (spread * quantiles / quantiles.std())[:, None]
    before = np.concatenate([np.ones_like(chances[..., :1]), chances[..., :-1]], axis=-1)
    rates = np.divide(chances, before, out=np.zeros_like(chances), where=before > 0)
    tokens = 1 + chances.sum(axis=-1)
    found = np.zeros((CLASSES, *chances.shape))
    ends = np.stack([np.full(tokens.shape, off.min()), np.full(tokens.shape, off.max())])
    for _ in range(_BISECTIONS):
        shift = ends.mean(axis=0)
        odds = np.exp(off[..., None] + shift)[..., None]
        found = np.cumprod(rates * odds / (1 - rates + rates * odds), axis=-1)
        is_less = 1 / (1 / (1 + found.sum(axis=-1))).mean(axis=0) < tokens
        ends = np.where([is_less, ~is_less], shift, ends)
    return found


def over_all_steps(acceptance: Acceptance, proposal_rate: float, longest: int) -> Acceptance:
    """Return the acceptance over all steps of a look-up drafter, which often proposes nothing.

    A step without a proposal is one that accepts nothing.
    """
    if proposal_rate == 1 or longest == 0:
        return acceptance
    reached = proposal_rate * survival(acceptance.where_proposed(proposal_rate), longest)[longest]
    return Acceptance(acceptance_by_position=conditional_acceptance(reached).tolist())
