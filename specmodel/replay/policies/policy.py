"""What a policy is: of one request, or of many at once."""

import inspect
import numbers
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray

Whole = NDArray[np.int64]
"""Whole numbers by lane."""
Index = NDArray[np.intp]
"""Numbers of lanes."""


class Policy(Protocol):
    """A draft-length policy of one request: it is asked before each step and told after it.

    It may have two more attributes: `phase`, a word for people (steps in the phase "test" are
    counted), and `utility`, the last one that it measured. If `observe` has an argument
    `drafted_tokens`, it is told how many of the tokens asked for the drafter had.
    """

    def propose(self) -> int:
        """Return the draft length of the next step, 0 for none [token]."""

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in what a step emitted, bonus token included [token], and how long it took [s]."""


class Lanes(Protocol):
    """A policy of many requests at once, each of which is a lane."""

    def propose(self, positions: Whole) -> Whole:
        """Return the draft length of each lane, given its position in the trace [token]."""

    def observe(self, emitted_tokens: Whole, step_time: FloatArray) -> None:
        """Take in what each lane emitted [token] and how long that took [s]."""

    def keep(self, lanes: Index) -> None:
        """Go on with these lanes only."""

    @property
    def is_testing(self) -> NDArray[np.bool_] | None:
        """Which lanes are in a test; None for a policy without tests."""


class OneLane:
    """Make a policy of many requests, with one lane, a policy of one request."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes, self._position = lanes, 0

    def propose(self) -> int:
        """Return the draft length of the next step, 0 for none [token]."""
        return int(self._lanes.propose(np.array([self._position]))[0])

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in what a step emitted, bonus token included [token], and how long it took [s]."""
        self._position += emitted_tokens
        self._lanes.observe(np.array([emitted_tokens]), np.array([step_time]))


def arguments_of(function: Any) -> set[str]:
    """Return the arguments that a class or function takes by name, if it tells."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def is_number(value: object, *, whole: bool = False) -> bool:
    """Return whether `value` is a single number, NaN among them, and no truth value."""
    kind = numbers.Integral if whole else numbers.Real
    return isinstance(value, kind) and not isinstance(value, bool)
