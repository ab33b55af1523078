"""What makes the policy of each request: the arguments it takes by name, and its settings."""

import inspect
from collections.abc import Callable
from typing import Any

from specmodel.base.errors import InputError
from specmodel.replay.policies import Cascade, CascadeSettings, Policy
from specmodel.replay.simulation.choices import Choice, complete_settings, of_policy
from specmodel.replay.simulation.seeds import POLICY, stream
from specmodel.replay.simulation.times import ReplayTimes


def policy_maker(choice: Choice, times: ReplayTimes, seed: int) -> Callable[[int], Policy]:
    """Return what makes the policy of a request by its number.

    Parameters
    ----------
    choice
        A policy that learns.
    times
        Step times.
    seed
        Of what the policies draw; each request has a stream of its own [-].

    Returns
    -------
    callable
        Gives the arguments of `GIVEN` that the policy takes by name, and its settings. Raises
        `InputError` if the policy cannot be made.
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

    draws = "generator" in taken

    def make(request: int) -> Policy:
        own = {"generator": stream(seed, POLICY, request)} if draws else {}
        try:
            with of_policy():
                policy = factory(**given, **own)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            raise InputError(f"policy {choice.name}", text, "one that can be made") from error
        if not all(callable(getattr(policy, name, None)) for name in ("propose", "observe")):
            expected = "a policy with propose() and observe(emitted_tokens, step_time)"
            raise InputError(f"policy {choice.name}", f"a {type(policy).__name__}", expected)
        return policy

    return make


def check_choice(choice: Choice, times: ReplayTimes) -> None:
    """Refuse a policy that cannot be made or asks for too long a draft, before any replay.

    Parameters
    ----------
    choice
        Any policy.
    times
        Step times.

    Raises
    ------
    InputError
        Names the policy, or its setting.
    """
    longest = times.max_draft_length
    if choice.draft_length > longest:
        expected = f"at most {longest}, the longest draft considered (max_draft_length)"
        raise InputError("policy", choice.name, expected)
    if choice.planner is None:
        policy_maker(choice, times, 0)(0)


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
    longest = times.max_draft_length
    for name in ("first_draft_length", "max_draft_length"):
        if choice.settings.get(name, 0) > longest:
            expected = f"at most {longest}, the longest draft considered"
            raise InputError(f"policy cascade {name}", choice.settings[name], expected)
    return complete_settings(choice.settings, longest)


def _parameters(factory: Callable[..., Policy]) -> set[str]:
    try:
        return set(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return set()
