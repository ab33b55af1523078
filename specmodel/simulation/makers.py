"""What makes the policy of each request: the arguments it takes by name, and its settings."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specmodel.errors import InputError
from specmodel.policies import Cascade, CascadeSettings, Policy
from specmodel.simulation.choices import Choice
from specmodel.simulation.times import ReplayTimes


def policy_maker(
    choice: Choice, times: ReplayTimes, entropy: Sequence[int]
) -> Callable[[int], Policy]:
    """Return what makes the policy of a request by its number.

    Parameters
    ----------
    choice
        A policy that learns.
    times
        Step times.
    entropy
        Seeds; the number of the request is added [-].

    Returns
    -------
    callable
        Gives the arguments of `GIVEN` that the policy takes by name, and its settings.

    Raises
    ------
    InputError
        If the policy cannot be made.
    """
    if choice.is_cascade:
        settings = cascade_settings(choice, times)
        return lambda request: Cascade(settings)
    factory = choice.factory
    if factory is None:
        raise InputError("policy", choice.name, "a policy that learns")
    longest = times.max_draft_length
    available: dict[str, Any] = {
        "step_time": [times.paused_time, *times.step_time[1:].tolist()],
        "max_draft_length": longest,
        "draft_lengths": list(range(longest + 1)),
    }
    taken = _parameters(factory)
    given = {name: value for name, value in available.items() if name in taken} | choice.settings

    def make(request: int) -> Policy:
        own = {"generator": np.random.default_rng([*entropy, request])} if draws else {}
        return factory(**given, **own)

    draws = "generator" in taken
    try:
        policy = make(0)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"policy {choice.name}", error, "one that can be made") from error
    if not (hasattr(policy, "propose") and hasattr(policy, "observe")):
        expected = "a policy with propose() and observe(emitted_tokens, step_time)"
        raise InputError(f"policy {choice.name}", policy, expected)
    return make


def cascade_settings(choice: Choice, times: ReplayTimes) -> CascadeSettings:
    """Return the settings of Cascade within the drafts that have a time.

    Parameters
    ----------
    choice
        Cascade.
    times
        Step times.

    Returns
    -------
    CascadeSettings
        Its longest draft is shortened to the longest with a time, unless it was given.

    Raises
    ------
    InputError
        If a longer one was asked for.
    """
    settings, longest = dict(choice.settings), times.max_draft_length
    for name in ("first_draft_length", "max_draft_length"):
        if settings.get(name, 0) > longest:
            expected = f"at most {longest}, the longest draft with a step time in the trace"
            raise InputError(f"cascade {name}", settings[name], expected)
        settings.setdefault(name, min(getattr(CascadeSettings, name), longest))
    return CascadeSettings(**settings)


def _parameters(factory: Callable[..., Policy]) -> set[str]:
    try:
        return set(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return set()
