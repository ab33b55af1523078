"""The best draft length: the one with the largest speedup, and where memory allows no longer one.

Arrays have draft lengths along their first axis.
"""

from typing import NamedTuple

import numpy as np

from specmodel.algebra.speculation import first_of_largest
from specmodel.base.units import FloatArray

MORE = 1.01
"""Times the speedup of the best draft that fits, from which a longer one is told [-]."""

ALIKE = 0.03
"""Share by which a draft length must gain less than the best to be told apart from it [-]: of two
published lengths of one deployment and load, those predicted nearer are in the predicted order in
58 % of 76, the others in 88 % of 399 (`calibration/interval_judge.py`, 2026-11-27)."""


class Best(NamedTuple):
    """The best draft of each point: its place among the lengths, -1 for none, and its speedup [-].

    Where nothing is drafted, the speedup is that of none.
    """

    place: np.ndarray
    speedup: FloatArray


class Held(NamedTuple):
    """By point the shortest draft that would gain more than any that fits in memory.

    Its length, 0 where there is none [token], and its speedup [-].
    """

    draft_length: FloatArray
    speedup: FloatArray


def best_of(
    gains: FloatArray,
    none: FloatArray | float,
    is_open: np.ndarray | None,
    shape: tuple[int, ...],
) -> Best:
    """Return the best of drafts by their speedups, the first of equals; none where none gains.

    `none` is the speedup without a draft [-], `is_open` says which lengths may be taken, all if
    None, and `shape` is that of the points.
    """
    opened = gains if is_open is None else gains * is_open
    return Best(*first_of_largest(opened, none, shape))


def open_lengths(fits: np.ndarray, plain_fits: np.ndarray) -> np.ndarray:
    """Return which drafts may be taken: those that fit, or all where not even a plain pass does.

    In recurrent layers each drafted token takes one more state.
    """
    return np.asarray(fits | ~(fits.any(axis=0) | plain_fits))


def held_by_memory(gains: FloatArray, is_open: np.ndarray, best: FloatArray) -> Held:
    """Return where drafts of 1, 2, ... that may not be taken would gain more than the best does."""
    is_more = ~is_open & (gains > np.maximum(MORE * best, 1.0))
    first = is_more.argmax(axis=0)
    length = np.where(is_more.any(axis=0), first + 1.0, 0.0)
    return Held(length, np.take_along_axis(gains, first[None], axis=0)[0])


def alike_places(gains: FloatArray, place: int) -> tuple[int, int]:
    """Return the first and the last of the neighbours of a length that gain as much, by `ALIKE`.

    >>> alike_places(np.array([1.2, 1.48, 1.5, 1.3]), 2)
    (1, 2)
    """
    apart = np.flatnonzero(gains < (1 - ALIKE) * gains[place])
    end = int(np.searchsorted(apart, place))
    bounds = [-1, *apart.tolist(), len(gains)]
    return bounds[end] + 1, bounds[end + 1] - 1
