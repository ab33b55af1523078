"""Policies that are objects, as the serial loop asks them and gives them feedback."""

import operator
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from specmodel.core.base.errors import InputError
from specmodel.simulate.policies.policy import Step

BATCH_SIZE = 1
"""Requests of the batches that are replayed [request]."""

Log = list[dict[str, Any]]


class PolicyAdapter:
    """A policy of any class, for one request, as the serial loop reads it.

    Parameters
    ----------
    policy
        What has `propose` and `observe`, or `observe_step`.
    longest, context
        Longest draft that it may ask for, and KV entries before the first step [token].
    log
        Takes every step, if given: position (output tokens before it), draft_length (asked for),
        drafted_tokens (of that, what the drafter had), emitted_tokens, step_time, and the policy's
        phase and utility.
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
        """What the policy proposes, which must be a draft length [token]."""
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
            # an object of the user's own could not be sent from a worker process
            is_plain = asked is None or isinstance(asked, int | float | str)
            told, name = asked if is_plain else type(asked).__name__, type(self._policy).__name__
            raise InputError(f"policy {name}", told, f"a whole draft length from 0 to {longest}")
        self._asked = number
        return number

    def rule(self, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
        """Tell the policy what a step emitted and drafted [token], and its time [s]."""
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
    """Policies by number of the request, made when the loop comes to it, or kept by servers.

    Those of users' own are `adapted` to the loop; `current` is the last one that it came to.
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
    """Refuse an object or class without the methods of a policy; `name` is what was typed."""
    if not all(callable(getattr(policy, method, None)) for method in ("propose", "observe")):
        expected = "a policy with propose() and observe(emitted_tokens, step_time)"
        raise InputError(f"policy {name}", f"a {kind}", expected)
