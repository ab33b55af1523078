"""Choose the draft length by batch size, for a large speedup with few changes of length."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from specmodel.core.base.errors import InputError
from specmodel.core.base.ranges import runs
from specmodel.core.base.units import FloatArray, Numeric, check, rows_of

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_TOLERANCE = 0.01

_COLUMNS = ("batch_size", "draft_length", "speedup", "best_draft_length", "best_speedup")
"""Columns of `Schedule.rows`."""

IntArray = NDArray[np.int64]


class Schedule(Struct, frozen=True, kw_only=True, eq=False):
    """A draft length for each batch size 1, 2, …, and the speedup with it.

    Parameters
    ----------
    draft_length, speedup
        Draft length at each batch size, 0 for no draft [token], and the speedup with it [-].
    best_draft_length, best_speedup
        The draft length with the largest speedup at each batch size, regardless of changes, and
        that speedup [token] [-].
    single_draft_length, single_speedup
        The single length with the largest mean speedup, 0 for no draft [token], and its speedup at
        each batch size [-].
    """

    draft_length: IntArray
    speedup: FloatArray
    best_draft_length: IntArray
    best_speedup: FloatArray
    single_draft_length: int
    single_speedup: FloatArray

    @property
    def batch_size(self) -> IntArray:
        """Batch sizes, from 1 without gaps [request]."""
        return np.arange(1, self.draft_length.size + 1)

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """First and last batch size of each range [request], and its draft length [token]."""
        return draft_ranges(self.draft_length)

    @property
    def max_draft_length(self) -> int:
        """Longest draft; 0 if no batch size has a draft [token]."""
        return int(self.draft_length.max())

    @property
    def mean_speedup(self) -> float:
        """Geometric mean of the speedup, with batch sizes equally likely on a log scale [-]."""
        return mean_speedup(self.speedup)

    @property
    def loss(self) -> FloatArray:
        """Share of the best speedup that the schedule gives up at each batch size [-]."""
        return np.asarray(1 - self.speedup / self.best_speedup)

    @property
    def mean_loss(self) -> float:
        """Share of the mean best speedup that the schedule gives up [-]."""
        return 1 - mean_speedup(self.speedup) / mean_speedup(self.best_speedup)

    @property
    def gain_over_single(self) -> float:
        """Mean speedup over the mean speedup of the best single length [-]."""
        return mean_speedup(self.speedup) / mean_speedup(self.single_speedup)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dict for each batch size, in ascending order."""
        return rows_of({name: getattr(self, name) for name in _COLUMNS})

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each batch size, with the columns of `rows`."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def draft_length_schedule(
    speedup: Numeric,
    *,
    idle_speedup: Numeric = 1.0,
    tolerance: float = DEFAULT_TOLERANCE,
    longest_first: bool = False,
) -> Schedule:
    """Return the draft length by batch size with the largest gain and few changes of length.

    A length is allowed at a batch size if its speedup is within the tolerance of the best speedup,
    and at least the speedup of no draft. If no draft pays, the length is 0. Of all schedules of
    allowed lengths, the result has the fewest changes of length, and of these the smallest loss.
    Dynamic programming over batch sizes finds it exactly, as the rest of a schedule depends only on
    the current length. Means and losses weight batch size B by 1/B: sizes are equally likely on a
    logarithmic scale.

    Parameters
    ----------
    speedup
        Predicted speedup, with batch sizes 1, 2, … on the second last axis and draft lengths 1, 2,
        … on the last. Other axes, such as contexts, enter as geometric means [-].
    idle_speedup
        Speedup without a draft, by batch size and the other axes: below 1 if a loaded drafter still
        runs. If no schedule pays on average, the length is 0 everywhere. The drafter is then not
        loaded, and the speedup is 1 [-].
    tolerance
        Share of the best speedup that a batch size may give up, from 0 to below 1 [-].
    longest_first
        Whether the draft at batch size 1 must be the longest. Of all lengths at batch size 1, the
        schedule then has the one with the best mean, even if that length does not pay there.

    Examples
    --------
    >>> gains = [[1.30, 1.31], [1.20, 1.25], [1.10, 1.12], [0.95, 0.90]]
    >>> draft_length_schedule(gains).ranges
    ((1, 3, 2), (4, 4, 0))
    """
    bound = float(check("tolerance", tolerance, minimum=0))
    if bound >= 1:
        raise InputError("tolerance", tolerance, "a number from 0 to below 1")
    drafted = check("speedup", speedup, above=0)
    if drafted.ndim < 2:
        expected = "at least two axes: batch sizes 1, 2, ... and draft lengths 1, 2, ..."
        raise InputError("speedup", f"shape {drafted.shape}", expected)
    idle = check("idle_speedup", idle_speedup, above=0)
    if idle.ndim and idle.shape != drafted.shape[:-1]:
        expected = f"one number, or an array of shape {drafted.shape[:-1]}"
        raise InputError("idle_speedup", f"shape {idle.shape}", expected)
    idle = np.broadcast_to(idle, drafted.shape[:-1])
    gain = np.concatenate([idle[..., None], drafted], axis=-1)
    if gain.ndim > 2:
        gain = np.exp(np.log(gain).mean(axis=tuple(range(gain.ndim - 2))))
    lengths = _longest_first(gain, bound) if longest_first else _cheapest_path(_losses(gain, bound))
    if mean_speedup(_along(gain, lengths)) <= 1:
        gain[:, 0], lengths = 1.0, np.zeros_like(lengths)
    best = gain.argmax(axis=1)
    unloaded = np.column_stack([np.ones(len(gain)), gain[:, 1:]])
    alone = int(np.argmax([mean_speedup(column) for column in unloaded.T]))
    return Schedule(
        draft_length=lengths,
        speedup=_along(gain, lengths),
        best_draft_length=best,
        best_speedup=_along(gain, best),
        single_draft_length=alone,
        single_speedup=unloaded[:, alone],
    )


def mean_speedup(speedup: Numeric) -> float:
    """Return the geometric mean over batch sizes 1, 2, …; batch size B has the weight 1/B [-]."""
    gain = np.log(check("speedup", speedup, above=0))
    return float(np.exp(np.average(gain, weights=1 / np.arange(1, gain.size + 1))))


def draft_ranges(draft_length: Numeric) -> tuple[tuple[int, int, int], ...]:
    """Return first and last batch size [request] and draft length [token] of each range.

    Parameters
    ----------
    draft_length
        Draft lengths at batch sizes 1, 2, … [token].

    Examples
    --------
    >>> draft_ranges([3, 3, 2, 0, 0])
    ((1, 2, 3), (3, 3, 2), (4, 5, 0))
    """
    lengths = np.asarray(draft_length).astype(int).tolist()
    return tuple((first + 1, last + 1, length) for first, last, length in runs(lengths))


def _along(gain: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the speedup at each batch size, with one draft length for each."""
    return np.asarray(gain[np.arange(len(gain)), lengths])


def _losses(gain: FloatArray, tolerance: float) -> FloatArray:
    """Return the weighted loss of each length, infinite if the length is not allowed.

    The loss is the logarithm of the best speedup over the length's speedup. Its sum over batch
    sizes is, up to a constant factor, the logarithm of the geometric mean of that ratio.
    """
    best = gain.max(axis=1, keepdims=True)
    is_allowed = (gain >= gain[:, :1]) & (gain >= (1 - tolerance) * best)
    loss = np.log(best / gain) / np.arange(1, len(gain) + 1)[:, None]
    return np.where(is_allowed, loss, np.inf)


def _longest_first(gain: FloatArray, tolerance: float) -> IntArray:
    """Return the schedule with the best mean speedup whose longest draft is at batch size 1."""
    tried = []
    for longest in range(gain.shape[1]):
        losses = _losses(gain[:, : longest + 1], tolerance)
        losses[0] = np.inf
        losses[0, longest] = 0.0
        tried.append(_cheapest_path(losses))
    means = [mean_speedup(_along(gain, lengths)) for lengths in tried]
    return tried[int(np.argmax(means))]


def _cheapest_path(losses: FloatArray) -> IntArray:
    """Return a column for each row, with the fewest changes of column, then the least sum.

    `costs` contains the changes and the sum of the best path to each column. A change costs the
    same from any column. Therefore, the only alternative to staying is to leave the cheapest
    column. `came_from` contains these choices, from which the path follows backwards.
    """
    first, *rows = losses.tolist()
    none = (math.inf, math.inf)
    columns = range(len(first))
    costs = [none if math.isinf(loss) else (0.0, loss) for loss in first]
    came_from = []
    for row in rows:
        leave = min(columns, key=costs.__getitem__)
        changed = costs[leave][0] + 1, costs[leave][1]
        came_from.append([leave if changed < costs[column] else column for column in columns])
        best = [min(changed, cost) for cost in costs]
        costs = [
            none if math.isinf(loss) else (changes, total + loss)
            for (changes, total), loss in zip(best, row, strict=True)
        ]
    path = [min(columns, key=costs.__getitem__)]
    for chosen in reversed(came_from):
        path.append(chosen[path[-1]])
    return np.array(path[::-1])
