"""Adapt policies that are objects to the serial loop."""

import operator
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from specmodel.core.base.errors import InputError
from specmodel.simulate.policies.policy import Step

BATCH_SIZE = 1
"""Batch size of a replay [request]."""

Log = list[dict[str, Any]]


class PolicyAdapter:
    """A policy of any class, for one request, as the serial loop reads it.

    Parameters
    ----------
    policy
        An object with `propose` and `observe`, or `observe_step`.
    longest, context
        Longest draft that the policy may request, and KV entries before the first step [token].
    log
        Receives every step, if given: position (output tokens before the step), draft_length (as
        requested), drafted_tokens (as offered by the drafter), emitted_tokens, step_time, and the
        policy's phase and utility.
    """

    is_test = False

    def __init__(self, policy: Any, longest: int, context: float, log: Log | None) -> None:
        self._policy, self._propose, self._observe = policy, policy.propose, policy.observe
        self._observe_step = getattr(policy, "observe_step", None)
        self._longest, self._context, self._log = longest, context, log
        self._has_phase, self._phase = hasattr(policy, "phase"), ""
        self._position = self._asked = 0

    @property
    def draft_length(self) -> int:
        """Draft length that the policy proposes; an invalid one is refused [token]."""
        if self._has_phase:
            self._phase = self._policy.phase
            self.is_test = bool(self._phase == "test")
        asked = self._propose()
        number: int = asked
        longest = self._longest
        if type(asked) is not int:
            try:
                number = -1 if isinstance(asked, bool) else operator.index(asked)
            except TypeError:
                number = -1
        if not 0 <= number <= longest:
            # a worker process cannot send an object of the user, so its type is reported
            is_plain = asked is None or isinstance(asked, int | float | str)
            told, name = asked if is_plain else type(asked).__name__, type(self._policy).__name__
            raise InputError(f"policy {name}", told, f"a whole draft length from 0 to {longest}")
        self._asked = number
        return number

    def rule(self, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
        """Pass a step to the policy: emitted and drafted tokens [token], and its time [s]."""
        if self._observe_step is None:
            self._observe(emitted_tokens, step_time)
        else:
            context = int(self._context + self._position)
            step = Step(emitted_tokens, step_time, drafted_tokens, BATCH_SIZE, context)
            self._observe_step(step)
        if self._log is not None:
            self._log.append({
                "position": self._position, "draft_length": self._asked,
                "drafted_tokens": drafted_tokens, "emitted_tokens": emitted_tokens,
                "step_time": step_time, "phase": self._phase,
                "utility": getattr(self._policy, "utility", float("nan")),
            })  # fmt: skip
        self._position += emitted_tokens


class Policies(Struct):
    """Policies by request number, made when the loop reaches the request, or kept by servers.

    `adapted` adapts a policy of the user to the loop. `current` is the policy of the last request
    that the loop reached.
    """

    make: Callable[[int], Any]
    servers: int
    adapted: Callable[[Any, int], Any] = lambda policy, _: policy
    kept: dict[int, Any] = field(default_factory=dict)
    current: Any = None

    def __getitem__(self, request: int) -> Any:
        number = request % self.servers if self.servers else request
        policy = self.kept[number] if number in self.kept else self.make(number)
        if self.servers:
            self.kept[number] = policy
        self.current = policy
        return self.adapted(policy, request)


def check_methods(policy: object, kind: str, name: str) -> None:
    """Refuse an object or class without the methods of a policy; `name` is the typed name."""
    if not all(callable(getattr(policy, method, None)) for method in ("propose", "observe")):
        expected = "a policy with propose() and observe(emitted_tokens, step_time)"
        raise InputError(f"policy {name}", f"a {kind}", expected)
