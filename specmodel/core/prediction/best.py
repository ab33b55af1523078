"""The best draft length: the one with the largest speedup, and longer ones that memory prevents.

Arrays have draft lengths along their first axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmodel.core.base.units import FloatArray

if TYPE_CHECKING:
    from specmodel.core.cost.deployment import Deployment

MORE = 1.01
"""Least gain of a longer draft over the best draft that fits, for which a note reports it [-]."""

ALIKE = 0.03
"""Least relative difference from the best speedup at which a draft length counts as worse [-]. For
pairs of published lengths of one deployment and load, the predicted order is true in 58 % of 76
pairs below this difference, and in 88 % of 399 pairs above it (`calibration/interval_judge.py`,
2026-11-27). Alternatives that share model, GPU, engine and drafter share their errors, as lengths
do. For their published plain decode times by GPU, the predicted order is true in 99 % of 1,359
pairs above this difference (`calibration/alternatives.py`, 2026-11-27)."""

UNLIKE = 0.1
"""The same for alternatives that do not share these sources of error [-]. For pairs that differ in
GPU, engine, dtype or model, the predicted order is true in 70 % of 1,342 pairs that differ by 3 to
10 %, and in 98 % of 20,125 pairs that differ by more (same source)."""


class Best(NamedTuple):
    """The best draft of each point: its index among the lengths, -1 for none, and its speedup [-].

    Without a draft, the speedup is that of a step without a draft.
    """

    place: np.ndarray
    speedup: FloatArray


class Held(NamedTuple):
    """The shortest draft that would gain more than any that fits, if memory were larger, by point.

    Its length, 0 if there is none [token]; its speedup with the actual memory [-]; and the requests
    that run at once with it [request].
    """

    draft_length: FloatArray
    speedup: FloatArray
    running: FloatArray


def alike_places(gains: FloatArray, place: int) -> tuple[int, int]:
    """Return the first and last neighbour of a length that gain as much within `ALIKE`.

    >>> alike_places(np.array([1.2, 1.48, 1.5, 1.3]), 2)
    (1, 2)
    """
    apart = np.flatnonzero(gains < (1 - ALIKE) * gains[place])
    end = int(np.searchsorted(apart, place))
    bounds = [-1, *apart.tolist(), len(gains)]
    return bounds[end] + 1, bounds[end + 1] - 1


def as_good(rates: Mapping[str, float], deployments: Mapping[str, Deployment]) -> list[str]:
    """Return the name of the largest rate, and the names of rates within the error of it.

    The error is `ALIKE` if deployments share their sources of error, else `UNLIKE`.
    """
    first = max(rates, key=lambda name: rates[name])
    shared = _erring(deployments[first])
    errors = {n: ALIKE if _erring(deployments[n]) == shared else UNLIKE for n in rates}
    near = (n for n in rates if rates[n] > (1 - errors[n]) * rates[first] and n != first)
    return [first, *near]


def _erring(deployment: Deployment) -> tuple[object, ...]:
    """Return the parts of a deployment that decide its errors."""
    d = deployment
    return d.target, d.drafter, d.hardware, d.engine
