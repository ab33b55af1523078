"""What a deployment gains with the best draft length of each batch, or from which acceptance.

Where the acceptance is not known, the question is turned round: tokens a step from which drafting
pays, and what published heads of the kind would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.units import FloatArray
from specmodel.cost.deployment import Deployment
from specmodel.drafters.typical import TypicalHeads
from specmodel.prediction.at_best import at_best
from specmodel.prediction.evaluate import lengths_considered
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import predict_deployed

Points = Mapping[str, Any]
"""Batch sizes and what else `predict` takes of points, draft lengths aside."""


def at_best_lengths(
    deployment: Deployment,
    assumed: Mapping[str, Any],
    acceptance: Acceptance,
    longest: int,
    points: Points,
) -> Prediction:
    """Return the prediction at the draft length with the largest speedup of each point.

    Parameters
    ----------
    deployment, assumed
        What runs where and what was assumed of it, as `deploy` gives them.
    acceptance
        Acceptance of drafted tokens.
    longest
        Longest draft considered [token].
    points
        Batch sizes and what else `predict` takes of points.

    Returns
    -------
    Prediction
        Its draft lengths are 0 where none pays.
    """
    told = {"acceptance": acceptance, "max_draft_length": longest, **points}
    shape = np.broadcast_shapes(*map(np.shape, points.values()), acceptance.shape)
    lengths = lengths_considered(deployment, longest, len(shape))
    return at_best(predict_deployed(deployment, assumed, draft_length=lengths, **told))


@dataclass(frozen=True, kw_only=True, eq=False)
class Turned:
    """From which acceptance drafting pays at each point, and what published heads would give.

    Parameters
    ----------
    prediction
        Points at the draft length that is best with the median head, or, without heads, that asks
        for the least acceptance; tokens and speedups in it are those of the median.
    heads
        What published heads of the drafter's kind reach; None where too few are published.
    length_needed, rate_needed, tokens_needed
        Draft length that asks for the least acceptance rate [token], that rate [-], and the tokens
        per step that it is; NaN where none suffice [token].
    speedups
        Speedup by level of the heads; empty without them [-].
    """

    prediction: Prediction
    heads: TypicalHeads | None
    length_needed: FloatArray
    rate_needed: FloatArray
    tokens_needed: FloatArray
    speedups: dict[str, FloatArray]


def turned_round(
    deployment: Deployment,
    assumed: Mapping[str, Any],
    heads: TypicalHeads | None,
    draft_length: Sequence[int],
    points: Points,
) -> Turned:
    """Return from which acceptance drafting pays, and the speedup with published heads.

    Parameters
    ----------
    deployment, assumed, points
        As for `at_best_lengths`.
    heads
        What published heads of the drafter's kind reach, None if that is not known.
    draft_length
        Lengths that may be drafted, of which those that fit in memory are taken where some do
        [token].

    Returns
    -------
    Turned
        Each point at one draft length, which may lose.
    """
    acceptance = heads.acceptance[1] if heads else Acceptance(acceptance_rate=0.5)
    told = {"acceptance": acceptance, "max_draft_length": max(draft_length), **points}
    shape = predict_deployed(deployment, assumed, draft_length=1, **told).speedup.shape
    lengths = np.array(draft_length, dtype=float).reshape(-1, *(1,) * len(shape))
    each = predict_deployed(deployment, assumed, draft_length=lengths, **told)
    has_room = each.fits | ~each.fits.any(axis=0)
    rates = np.where(has_room, each.break_even_acceptance_rate, np.nan)
    needed = np.where(np.isnan(rates), np.inf, rates).argmin(axis=0)[np.newaxis]
    best = np.where(has_room, each.speedup, 0).argmax(axis=0)[np.newaxis] if heads else needed

    def taken(values: FloatArray, place: np.ndarray = needed) -> FloatArray:
        every = np.broadcast_to(values, each.speedup.shape)
        return np.asarray(np.take_along_axis(every, place, axis=0)[0])

    rate = taken(rates)
    found = predict_deployed(deployment, assumed, draft_length=taken(lengths, best), **told)
    levels = zip(heads.levels, heads.acceptance, strict=True) if heads else ()
    return Turned(
        prediction=found,
        heads=heads,
        length_needed=np.where(np.isnan(rate), np.nan, taken(lengths)),
        rate_needed=rate,
        tokens_needed=np.where(np.isnan(rate), np.nan, taken(each.relative_step_time)),
        speedups={
            level: np.asarray(
                kind.expected_tokens_per_step(found.draft_length) / found.relative_step_time
            )
            for level, kind in levels
        },
    )
