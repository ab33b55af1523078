"""What a deployment gains with the best draft length of each batch, or from which acceptance.

Where the acceptance is not known, the question is turned round: tokens a step from which drafting
pays, and what published heads of the kind would give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.units import FloatArray
from specmodel.cost.deployment import Deployment
from specmodel.drafters.typical import TypicalHeads
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
    first = predict_deployed(deployment, assumed, draft_length=1, **told)
    best = np.asarray(first.best_draft_length)
    return predict_deployed(deployment, assumed, draft_length=best, **told)


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
    tokens_needed
        Tokens per step from which drafting pays, NaN where none suffice [token].
    speedups
        Speedup by level of the heads; empty without them [-].
    """

    prediction: Prediction
    heads: TypicalHeads | None
    tokens_needed: FloatArray
    speedups: dict[str, FloatArray]


def turned_round(
    deployment: Deployment,
    assumed: Mapping[str, Any],
    heads: TypicalHeads | None,
    longest: int,
    points: Points,
) -> Turned:
    """Return from which acceptance drafting pays, and the speedup with published heads.

    Parameters
    ----------
    deployment, assumed, longest, points
        As for `at_best_lengths`.
    heads
        What published heads of the drafter's kind reach, None if that is not known.

    Returns
    -------
    Turned
        Each point at one draft length, which may lose.
    """
    acceptance = heads.acceptance[1] if heads else Acceptance(acceptance_rate=0.5)
    told = {"acceptance": acceptance, "max_draft_length": longest, **points}
    first = predict_deployed(deployment, assumed, draft_length=1, **told)
    lengths = np.arange(1.0, longest + 1).reshape(-1, *(1,) * first.batch_size.ndim)
    each = predict_deployed(deployment, assumed, draft_length=lengths, **told)
    if heads:
        place = each.speedup.argmax(axis=0)
    else:
        rates = each.break_even_acceptance_rate
        place = np.where(np.isnan(rates), np.inf, rates).argmin(axis=0)
    best = np.broadcast_to(lengths, each.speedup.shape)
    best = np.take_along_axis(best, place[np.newaxis], axis=0)[0]
    found = predict_deployed(deployment, assumed, draft_length=best, **told)
    needed = found.relative_step_time
    speedups = (
        {
            level: np.asarray(each.expected_tokens_per_step(found.draft_length)) / needed
            for level, each in zip(heads.levels, heads.acceptance, strict=True)
        }
        if heads
        else {}
    )
    needed = np.where(np.isnan(found.break_even_acceptance_rate), np.nan, needed)
    return Turned(prediction=found, heads=heads, tokens_needed=needed, speedups=speedups)
