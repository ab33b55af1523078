"""Define policies: objects that propose a draft length and observe steps; vLLM's schedules."""

import inspect
import numbers
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from specmodel.core.prediction.by_batch import scheduled_draft_lengths as scheduled_draft_lengths

GIVEN = ("step_time", "max_draft_length", "draft_lengths", "generator")
"""Arguments that a policy receives if its class or function has them.

They are step times by draft length, the longest draft, all draft lengths, and a random generator.
"""
STATES = ("request", "server")
"""Values of `policy_state`, which decides who keeps the state of a policy that learns."""


class Policy(Protocol):
    """A draft-length policy: it proposes before each step, and observes after it.

    It may also have `phase`, a text to show (steps in the phase "test" are counted); `utility`, the
    last measured utility; and `observe_step`, which receives a `Step` and replaces `observe`.
    """

    def propose(self) -> int:
        """Return the draft length of the next step, 0 for none [token]."""

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Observe a step's emitted tokens, including the bonus token [token], and its time [s]."""


class Step(NamedTuple):
    """Record of a step, for `observe_step`.

    Parameters
    ----------
    emitted_tokens, step_time
        Tokens emitted, including the bonus token [token], and duration of the step [s].
    drafted_tokens
        Number of requested tokens that the drafter offered [token].
    batch_size, context_length
        Requests of the batch [request], and KV entries before the step [token].
    """

    emitted_tokens: int
    step_time: float
    drafted_tokens: int
    batch_size: int
    context_length: int

    @property
    def accepted_tokens(self) -> int:
        """Emitted tokens without the bonus token [token]."""
        return self.emitted_tokens - 1


def learn_nothing(policy: Any, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
    """Ignore a step."""


def end_no_step(
    policy: Any, tables: Any, decoding: int, accepted_tokens: int, context: float
) -> None:
    """Do nothing at the end of a step of a batch; the policy learned from its requests."""


class LearningPolicy:
    """A policy of this package; its state is the attributes that are numbers or lists of numbers.

    `rule` changes the state after a step, from emitted tokens [token], the time of the step [s],
    and drafted tokens [token]. It is written once: Python calls it with the policy, and numba with
    a record of the same attributes, for replays of some thousand requests or more.

    If the requests of a server share the state, `shared_rule`, or else `rule`, is called for each
    request of a step. `step_rule` is then called for the step, with tables of times, the number of
    requests that decode, their accepted tokens, and their mean context.

    `draft_length` must stay within the `max_draft_length` of `__init__`, which is not checked. The
    user selects a class in `known.KNOWN` by its `name`. A class method `by_settings` makes a policy
    from settings, if `__init__` does not accept them.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    """Description to show."""
    policy_state: ClassVar[str] = "request"
    """Who keeps its state by default, as in its source."""
    notes: ClassVar[tuple[str, ...]] = ()
    """Assumptions about the policy in a replay."""
    rule: ClassVar[Callable[..., None]] = staticmethod(learn_nothing)
    shared_rule: ClassVar[Callable[..., None] | None] = None
    step_rule: ClassVar[Callable[..., None]] = staticmethod(end_no_step)

    draft_length: int
    """Draft length of the next step [token]."""

    def __init__(self, draft_length: int = 0) -> None:
        self.draft_length = draft_length
        self.is_test = False  # whether the next step is part of a test

    @classmethod
    def settings_taken(cls) -> set[str]:
        """Return the names of the settings that the user may add to the policy's name."""
        return arguments_of(cls) - {*GIVEN}

    def of_server(self, max_batch_size: int) -> tuple[list[Self], list[int]]:
        """Return the states of a server, and the index of the state at each batch size from 0."""
        return [self], [0]

    def fresh(self) -> Self:
        """Return a copy that shares no list."""
        other = copy(self)
        for name, value in vars(other).items():
            if isinstance(value, list):
                setattr(other, name, value.copy())
        return other

    def propose(self) -> int:
        """Return the draft length of the next step, 0 for none [token]."""
        return self.draft_length

    def observe(
        self, emitted_tokens: int, step_time: float, drafted_tokens: int | None = None
    ) -> None:
        """Observe the tokens that a step emitted [token], and its time [s].

        `drafted_tokens` is needed if they are fewer than requested [token].
        """
        drafted = self.draft_length if drafted_tokens is None else drafted_tokens
        type(self).rule(self, emitted_tokens, step_time, drafted)

    def observe_step(self, step: Step) -> None:
        """Observe a step."""
        self.observe(step.emitted_tokens, step.step_time, step.drafted_tokens)


def arguments_of(function: Any) -> set[str]:
    """Return the names of the arguments of a class or function, empty if they are unknown."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def is_number(value: object) -> bool:
    """Return whether `value` is a single number; NaN is a number, and a bool is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
