"""What a policy is: an object that is asked and told; and one whose state is plain numbers.

The policies of the package are written once, as functions of two lists: whole numbers and real
ones. Python runs them as they stand; numba, if it is installed, compiles the same lines.
"""

import inspect
import numbers
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from specmodel.base.errors import InputError

ASKED, TESTING = range(2)
"""Places that every state has: the draft length of the next step [token], and whether the next step
is part of a test, 0 or 1."""
FREE = 2
"""First place that a policy has for itself."""


class Policy(Protocol):
    """A draft-length policy: it is asked before each step and told after it.

    It may have more: `phase`, a word for people (steps in the phase "test" are counted), and
    `utility`, the last one that it measured. `propose` may take `batch_size` and `context_length`,
    and `observe` these two, `drafted_tokens` (how many of those asked for the drafter had) and
    `accepted_tokens`, in place of what is below or beside it, all by these names.
    """

    def propose(self) -> int:
        """Return the draft length of the next step, 0 for none [token]."""

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in what a step emitted, bonus token included [token], and how long it took [s]."""


class StatePolicy:
    """A policy whose state is two lists of numbers, and whose rule is a function of them.

    `react` takes the lists, what a step emitted [token], how long it took [s], and how many tokens
    were drafted [token].
    """

    react: ClassVar[Callable[..., None]]

    def __init__(self, whole: list[int], real: list[float]) -> None:
        self.whole, self.real = whole, real

    def propose(self) -> int:
        """Return the draft length of the next step, 0 for none [token]."""
        return self.whole[ASKED]

    def observe(
        self, emitted_tokens: int, step_time: float, drafted_tokens: int | None = None
    ) -> None:
        """Take in what a step emitted [token] and how long it took [s].

        Drafted tokens are given if they are fewer than were asked for [token].
        """
        drafted = self.whole[ASKED] if drafted_tokens is None else drafted_tokens
        type(self).react(self.whole, self.real, emitted_tokens, step_time, drafted)


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


def whole_number(name: str, value: Any, least: int, most: int = 10**9) -> int:
    """Return a whole number within bounds, or refuse anything else."""
    if not (is_number(value, whole=True) and least <= value <= most):
        raise InputError(name, value, f"a whole number of at least {least}, at most {most}")
    return int(value)
