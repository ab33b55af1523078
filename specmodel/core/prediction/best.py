"""The best draft length: the one with the largest speedup, and where memory allows no longer one.

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
"""Times the speedup of the best draft that fits, from which a longer one is told [-]."""

ALIKE = 0.03
"""Share by which a draft length must gain less than the best to be told apart from it [-]: of two
published lengths of one deployment and load, those predicted nearer are in the predicted order in
58 % of 76, the others in 88 % of 399 (`calibration/interval_judge.py`, 2026-11-27). Alternatives
that share model, GPU, engine and drafter share their errors as lengths do: of their published plain
decode times by GPU, those so far apart are in the predicted order in 99 % of
1,359 pairs (`calibration/alternatives.py`, 2026-11-27)."""

UNLIKE = 0.1
"""The same for two that do not share these, nor therefore their errors [-]: of pairs that differ in
GPU, engine, dtype or model, those between 3 and 10 % apart are in the predicted order in 70 % of
1,342, those further apart in 98 % of 20,125 (there as well)."""


class Best(NamedTuple):
    """The best draft of each point: its place among the lengths, -1 for none, and its speedup [-].

    Where nothing is drafted, the speedup is that of none.
    """

    place: np.ndarray
    speedup: FloatArray


class Held(NamedTuple):
    """By point the shortest draft that would gain more than any that fits, if memory were larger.

    Its length, 0 where there is none [token], its speedup as memory is [-], and how many requests
    run at once with it [request].
    """

    draft_length: FloatArray
    speedup: FloatArray
    running: FloatArray


def alike_places(gains: FloatArray, place: int) -> tuple[int, int]:
    """Return the first and the last of the neighbours of a length that gain as much, by `ALIKE`.

    >>> alike_places(np.array([1.2, 1.48, 1.5, 1.3]), 2)
    (1, 2)
    """
    apart = np.flatnonzero(gains < (1 - ALIKE) * gains[place])
    end = int(np.searchsorted(apart, place))
    bounds = [-1, *apart.tolist(), len(gains)]
    return bounds[end] + 1, bounds[end + 1] - 1


def as_good(rates: Mapping[str, float], deployments: Mapping[str, Deployment]) -> list[str]:
    """Return the name of the largest rate, and the names of rates within the error of it.

    The error is `ALIKE` where deployments share their sources of error, else `UNLIKE`.
    """
    first = max(rates, key=lambda name: rates[name])
    shared = _erring(deployments[first])
    errors = {n: ALIKE if _erring(deployments[n]) == shared else UNLIKE for n in rates}
    near = (n for n in rates if rates[n] > (1 - errors[n]) * rates[first] and n != first)
    return [first, *near]


def _erring(deployment: Deployment) -> tuple[object, ...]:
    """Return the parts of a deployment that decide its errors, equal where these are shared."""
    d = deployment
    return d.target, d.drafter, d.hardware, d.engine
