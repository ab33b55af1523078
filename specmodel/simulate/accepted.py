"""Prepare the acceptance of drafts for the loop over steps, from probabilities or a trace."""

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from specmodel.core.algebra.acceptance import Acceptance, conditional_acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray
from specmodel.simulate.state import Outcomes, Request
from specmodel.simulate.traces import Trace

CLASSES = 8
"""Number of equally large classes of requests, if acceptance differs between requests [-]."""
_BISECTIONS = 50

GOLDEN, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
"""Weyl increment for each output position, and the factors of Wellons' 32-bit mix (lowbias32)."""
LOW = 0xFFFFFFFF


def uniform_hash(key: int, position: int) -> int:
    """Return a hash of key and position that is uniform below 2^32 [-].

    Only the low 32 bits of a product matter, so an overflow of 64 bits does not change the hash.
    """
    x = (key + position * GOLDEN) & LOW
    x = ((x ^ (x >> 16)) * FIRST_FACTOR) & LOW
    x = ((x ^ (x >> 15)) * SECOND_FACTOR) & LOW
    return x ^ (x >> 16)


def accepted_tokens(outcomes: Outcomes, request: Request, place: int, length: int) -> int:
    """Return how many of the tokens drafted for a request are accepted [token]."""
    if len(outcomes.accepted) > 0:  # requests of the trace are used in turn
        own = place % len(outcomes.first)
        at = outcomes.first[own] + request.emitted_tokens % outcomes.lengths[own]
        return min(int(outcomes.accepted[at]), length)
    noise = uniform_hash(request.key, request.emitted_tokens)
    held, first = 0, length * outcomes.longest
    if outcomes.classes > 1 or len(outcomes.contexts) > 0:
        first += table_of(outcomes, request) * (outcomes.longest + 1) * outcomes.longest
    for j in range(first, first + length):
        held += noise < outcomes.thresholds[j]
    return held


def table_of(outcomes: Outcomes, request: Request) -> int:
    """Return the index of the table of thresholds for a request's class and context [-]."""
    table = (request.key * outcomes.classes >> 32) * (len(outcomes.contexts) + 1)
    for least in outcomes.contexts:
        table += request.context >= least
    return int(table)


def of_trace(trace: Trace, longest: int) -> Outcomes:
    """Return the outcomes of drafts of at most `longest` tokens, read from a trace [token].

    Every draft has the requested length. A short draft is assumed to be the beginning of a longer
    one.
    """
    if longest > trace.max_draft_length:
        expected = f"at most {trace.max_draft_length}, the longest draft of the trace"
        raise InputError("draft_length", longest, expected)
    return Outcomes(
        accepted=np.ascontiguousarray(trace.accepted_tokens),
        first=trace.starts,
        lengths=np.asarray(trace.output_tokens, np.int64),
    )


def at_random(
    acceptance: Acceptance | None,
    by_context: Mapping[float, Acceptance],
    longest: int,
    spread: float,
) -> Outcomes:
    """Return the outcomes of drafts of at most `longest` tokens, by their probabilities [token].

    `acceptance` applies before the first context in `by_context`. It differs between requests by
    `spread`, as in `spread_survival` [-].
    """
    if acceptance is None and longest:
        raise InputError("acceptance", None, "an Acceptance or a Trace, as the policy drafts")
    every = [acceptance, *by_context.values()] if acceptance else []
    chances = np.array([survival(each, longest) for each in every] or [np.zeros((1, 1))])
    by_class = spread_survival(chances, spread)
    return Outcomes(
        thresholds=np.rint(by_class * 2**32).astype(np.int64).ravel(),
        longest=by_class.shape[3],
        contexts=np.rint([*by_context]).astype(np.int64),
        classes=len(by_class),
    )


def survival(acceptance: Acceptance, longest: int) -> FloatArray:
    """Return the probabilities that at least 1, 2, ... tokens are accepted, by draft length [-].

    If a drafter makes all tokens at once, each draft length has its own probabilities.
    """
    found = np.zeros((longest + 1, max(longest, 1)))
    rates = None
    if acceptance.acceptance_by_position is not None:
        rates = np.asarray(acceptance.acceptance_by_position, dtype=float)
        if longest > rates.shape[-1]:
            expected = f"at most {rates.shape[-1]}, the number of positions with known acceptance"
            raise InputError("draft_length", longest, expected)
    for k in range(1, longest + 1):
        own = np.full(k, float(acceptance.rate())) if rates is None else rates
        found[k, :k] = np.cumprod(own[k - 1] if own.ndim == 2 else own)[:k]
    return found


def spread_survival(chances: FloatArray, spread: float) -> FloatArray:
    """Return the probabilities of `survival` for each class of requests [-].

    `spread` is the standard deviation between requests of the logit of acceptance. Each class is
    shifted by a quantile of that normal distribution. All classes are then shifted by one more
    constant for each table and draft length. With this constant, the mean tokens per step of all
    classes are equal to those in `chances`, if all classes emit equally many tokens.
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

    A step without a proposal accepts nothing.
    """
    if proposal_rate == 1 or longest == 0:
        return acceptance
    reached = proposal_rate * survival(acceptance.where_proposed(proposal_rate), longest)[longest]
    return Acceptance(acceptance_by_position=conditional_acceptance(reached).tolist())
