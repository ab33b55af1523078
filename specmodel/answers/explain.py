"""Why speculation gains what it gains: target efficiency and speedup as waterfalls."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.prediction.outcome import Prediction
from specmodel.records.layers.work import CAUSES

if TYPE_CHECKING:
    import pandas as pd

VERIFY_TERMS = tuple(cause for cause in CAUSES if cause != "drafting")
"""What can make a verify pass longer than a plain one."""

SPEEDUP_TERMS = (*CAUSES, "rejection")
"""What can take from the speedup: the same, drafting, and drafted tokens that are rejected."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """Two waterfalls for each point of a prediction.

    Parameters
    ----------
    prediction
        What is explained.
    target_efficiency
        Contribution of each of `VERIFY_TERMS`, which lead from 1, verifying that costs nothing,
        to the target efficiency [-].
    ideal_speedup
        All drafted tokens accepted, and nothing longer than a plain pass [-].
    speedup
        Contribution of each of `SPEEDUP_TERMS`, which lead from the ideal to the speedup [-].
    """

    prediction: Prediction
    target_efficiency: dict[str, FloatArray]
    ideal_speedup: FloatArray
    speedup: dict[str, FloatArray]

    @property
    def limited_by(self) -> np.ndarray[Any, np.dtype[np.str_]]:
        """The largest term of those that lengthen the step, rejection left out."""
        return self.prediction.limited_by

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each point, quantity and step of its waterfall, ends included."""
        import pandas as pd

        p = self.prediction
        waterfalls = {
            "target_efficiency": {"ideal": np.ones_like(p.speedup)}
            | self.target_efficiency
            | {"predicted": p.target_efficiency},
            "speedup": {"ideal": self.ideal_speedup} | self.speedup | {"predicted": p.speedup},
        }
        rows = [
            {
                "batch_size": int(p.batch_size[point]),
                "draft_length": int(p.draft_length[point]),
                "context_length": int(p.context_length[point]),
                "tokens_per_step": float(p.tokens_per_step[point]),
                "quantity": quantity,
                "term": term,
                "value": float(values[point]),
            }
            for point in np.ndindex(p.speedup.shape)
            for quantity, terms in waterfalls.items()
            for term, values in terms.items()
        ]
        return pd.DataFrame(rows)


def explain(prediction: Prediction) -> Explanation:
    """Return what takes how much from target efficiency and speedup.

    Parameters
    ----------
    prediction
        Points to be explained.

    Returns
    -------
    Explanation
        Contributions that sum exactly.

    Notes
    -----
    Each cause lengthens the step by the seconds of `StepTimes.growth_by_cause`, their Shapley
    value in the time of the step. What those seconds take from a ratio depends on what is added
    before them; the Shapley value over all orders is taken again, so that no order is chosen. A
    cause of more seconds has the larger term.

    Where only a share r of the steps has a proposal, the ideal is ``1 + r draft_length``.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram", draft_length=3,
    ...             batch_size=1, acceptance=0.6, tensor_parallel=2, stack="datasheet")
    >>> terms = explain(p).speedup
    >>> {name: float(value.round(2)) for name, value in terms.items() if abs(value) > 0.005}
    {'experts': -1.63, 'rejection': -1.34}
    """
    times, shape = prediction.times, prediction.speedup.shape
    growth = {
        cause: np.broadcast_to(seconds / times.forward_time, shape)
        for cause, seconds in times.growth_by_cause().items()
    }
    rejecting = np.broadcast_to(times.reject_time / times.forward_time, shape)
    of_pass = np.stack([growth[cause] for cause in VERIFY_TERMS])
    of_pass[VERIFY_TERMS.index("overhead")] -= rejecting
    rate = prediction.deployment.drafter.proposal_rate
    ideal = 1 + rate * prediction.draft_length
    accepted = np.stack([ideal, prediction.tokens_per_step])
    efficiency = shapley_values(1 / (1 + coalition_sums(of_pass)))
    cost = 1 + coalition_sums(np.stack([growth[cause] for cause in CAUSES]))
    speedup = shapley_values(np.concatenate([tokens / cost for tokens in accepted]))
    return Explanation(
        prediction=prediction,
        target_efficiency=dict(zip(VERIFY_TERMS, efficiency, strict=True)),
        ideal_speedup=ideal,
        speedup=dict(zip(SPEEDUP_TERMS, speedup, strict=True)),
    )


def coalition_sums(terms: FloatArray) -> FloatArray:
    """Return the sum of each subset of terms.

    Parameters
    ----------
    terms
        On the first axis, n of them [-].

    Returns
    -------
    FloatArray
        On a first axis of 2^n: bit i of its place says whether term i is in the subset [-].

    Examples
    --------
    >>> coalition_sums(np.array([1.0, 10.0])).tolist()
    [0.0, 1.0, 10.0, 11.0]
    """
    sums = np.zeros((1, *terms.shape[1:]))
    for term in terms:
        sums = np.concatenate([sums, sums + term])
    return sums


def shapley_values(values: FloatArray) -> FloatArray:
    """Return what each player contributes to a game, averaged over all orders of joining.

    Parameters
    ----------
    values
        Of each coalition on the first axis of 2^n: bit i of its place says whether player i is
        in it [-].

    Returns
    -------
    FloatArray
        A contribution for each player on the first axis; they sum to the value of all players
        less that of none [-].

    Raises
    ------
    InputError
        If there is no value for each coalition.

    Notes
    -----
    Eq. 2 of [1]_, exact.

    References
    ----------
    .. [1] L. S. Shapley, "A Value for n-Person Games," in Contributions to the Theory of Games
       II, Princeton Univ. Press, 1953, pp. 307-317.

    Examples
    --------
    >>> shapley_values(np.array([0.0, 0.0, 0.0, 1.0])).tolist()
    [0.5, 0.5]
    """
    players = len(values).bit_length() - 1
    if len(values) != 2**players:
        raise InputError("values", f"{len(values)} values", "one for each of 2^n coalitions")
    coalitions = np.arange(len(values))
    sizes = np.array([int(c).bit_count() for c in coalitions])
    weights = np.array([factorial(s) * factorial(players - 1 - s) for s in range(players)])
    weights = weights / factorial(players)
    found = []
    for player in range(players):
        without = coalitions[coalitions >> player & 1 == 0]
        joined = values[without | 1 << player] - values[without]
        found.append(np.tensordot(weights[sizes[without]], joined, axes=1))
    return np.stack(found)
