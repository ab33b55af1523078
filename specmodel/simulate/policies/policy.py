"""Define policies: objects that propose a length and observe steps; and vLLM's schedules."""

import inspect
import numbers
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from specmodel.core.prediction.by_batch import scheduled_draft_lengths as scheduled_draft_lengths

GIVEN = ("step_time", "max_draft_length", "draft_lengths", "generator")
"""Arguments that a policy is given if it takes them: step times by draft length, the longest draft,
all draft lengths, and a random generator of its own."""
STATES = ("request", "server")
"""Who may keep the state of a policy that learns."""


class Policy(Protocol):
    """A draft-length policy: it proposes before each step, and observes after it.

    It may also have `phase`, a word for people (steps in the phase "test" are counted); `utility`,
    the last one that it measured; and `observe_step`, which receives a `Step` and replaces
    `observe`.
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
    """Take in a step, and change nothing."""


def end_no_step(
    policy: Any, tables: Any, decoding: int, accepted_tokens: int, context: float
) -> None:
    """Do nothing at the end of a step of a batch: what learns, learned from its requests."""


class LearningPolicy:
    """A policy of the package: its state are its attributes that are numbers or lists of them.

    `rule` changes the state after a step, from what was emitted [token], the time [s], and how many
    tokens were drafted [token]. It is written once: Python calls it with the policy, numba with a
    record of the same attributes, which from some thousand requests on is the way. Where requests
    of a server share the state, `shared_rule` takes in each request of a step, as `rule` does if
    there is none, and `step_rule` the step: times to look up, requests that decode, tokens accepted
    of them all, and their mean context. `draft_length`
    stays within the `max_draft_length` that `__init__` may take, which nothing checks. A class of
    `known.KNOWN` goes by its `name`; a class method `by_settings` makes it from settings, if it
    does not take them itself.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    """What it does, for people."""
    policy_state: ClassVar[str] = "request"
    """Who keeps its state, as its source has it."""
    notes: ClassVar[tuple[str, ...]] = ()
    """What is assumed of it in a replay that its name does not say."""
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
        """Return the settings that its name may have."""
        return arguments_of(cls) - {*GIVEN}

    def of_server(self, max_batch_size: int) -> tuple[list[Self], list[int]]:
        """Return the states of a server, and which one decides at each batch size from 0 [-]."""
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

        Drafted tokens are given if they are fewer than requested [token].
        """
        drafted = self.draft_length if drafted_tokens is None else drafted_tokens
        type(self).rule(self, emitted_tokens, step_time, drafted)

    def observe_step(self, step: Step) -> None:
        """Take in a step."""
        self.observe(step.emitted_tokens, step.step_time, step.drafted_tokens)


def arguments_of(function: Any) -> set[str]:
    """Return the arguments that a class or function takes by name, if it tells."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def is_number(value: object) -> bool:
    """Return whether `value` is a single number, NaN among them, and no truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
