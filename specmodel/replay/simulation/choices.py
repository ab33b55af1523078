"""Policies by name, with settings after colons: ``fixed:3``, ``cascade:first_draft_length=1``."""

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.base.errors import InputError, nearest
from specmodel.replay.policies import (
    AcceptedAverage,
    CascadeSettings,
    DiscountedBandit,
    Goodput,
    Policy,
    scheduled_draft_length,
)
from specmodel.replay.simulation.foresight import greedy_plan, oracle_plan
from specmodel.replay.simulation.times import ReplayTimes
from specmodel.replay.traces import Trace

GIVEN = ("step_time", "max_draft_length", "draft_lengths", "generator")
"""Arguments that a policy is given if it takes them: step times by draft length, the longest draft,
all draft lengths, and a generator of its own."""

BEST_FIXED = "best-fixed"
"""Name of the best fixed draft length in hindsight, which needs all the others' records."""

Planner = Callable[[Trace, ReplayTimes], NDArray[np.uint8]]
"""Draft lengths by position of a trace, from the trace itself."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A policy to replay, in one of three forms.

    Parameters
    ----------
    name
        As typed.
    draft_length
        Longest draft that is settled beforehand, if one is [token].
    planner
        Of a policy that is settled beforehand.
    factory
        Of one that learns; called once a request, by `policy_maker`.
    is_cascade
        Whether it is Cascade, which has a fast form.
    settings
        Of the factory, or of Cascade.
    """

    name: str
    draft_length: int = 0
    planner: Planner | None = None
    factory: Callable[..., Policy] | None = None
    is_cascade: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def choose(policy: "str | CascadeSettings | Callable[..., Policy] | Choice") -> Choice:
    """Return a policy by name, settings or class.

    Parameters
    ----------
    policy
        ``none``, ``fixed:K``, ``best-fixed``, ``greedy``, ``oracle``, ``table:FILE`` or
        ``table:1-16=3:17-64=2`` (by batch size), ``cascade``, ``goodput``, ``sglang``, ``bandit``,
        or ``my_module:MyPolicy``, each with settings such as ``:max_trials=3``; settings of
        Cascade; or a class or function that gives a policy (`policy_maker`).

    Returns
    -------
    Choice
        Ready to be replayed.

    Raises
    ------
    InputError
        If there is no such policy or setting.

    Examples
    --------
    >>> choose("cascade:tolerance=0.05").settings
    {'tolerance': 0.05}
    """
    if isinstance(policy, Choice):
        return policy
    if isinstance(policy, CascadeSettings):
        defaults = vars(CascadeSettings())
        changes = {name: v for name, v in vars(policy).items() if v != defaults[name]}
        return Choice(name=_named("cascade", changes), is_cascade=True, settings=changes)
    if not isinstance(policy, str):
        return _given(policy)
    name, *words = policy.strip().split(":")
    named: dict[str, Callable[[str, Sequence[str]], Choice]] = {
        "fixed": _fixed,
        "table": _by_batch_size,
        "cascade": _cascade,
        **dict.fromkeys(_PLANNERS, _planned),
        **dict.fromkeys(_FACTORIES, _learning),
    }
    if name in named:
        return named[name](policy.strip(), words)
    known = f"a known name such as {nearest(name, named)}"
    if not name or not words or not words[0]:
        raise InputError("policy", policy, f"module:Class, or {known}")
    try:
        return _imported(policy.strip(), name, words)
    except ModuleNotFoundError as error:
        expected = f"a module that can be imported from here, or {known} ({error})"
        raise InputError("policy", policy, expected) from None


def _given(policy: object) -> Choice:
    """Take a class or function; settings bound to it are part of its name."""
    if not callable(policy):
        raise InputError("policy", policy, "a name, a class or a function without arguments")
    bound = policy.keywords if isinstance(policy, partial) else {}
    function = policy.func if isinstance(policy, partial) else policy
    name = _named(getattr(function, "__name__", type(function).__name__), bound)
    if name in (*_PLANNERS, *_FACTORIES, "cascade"):
        raise InputError("policy", policy, f"another name than {name}, which is taken")
    return Choice(name=name, factory=policy)


def _named(name: str, settings: dict[str, Any]) -> str:
    return ":".join([name, *(f"{key}={value}" for key, value in settings.items())])


def _constant_plan(trace: Trace, times: ReplayTimes, draft_length: int) -> NDArray[np.uint8]:
    return np.full(len(trace.proposed_tokens), draft_length, np.uint8)


_PLANNERS: dict[str, Planner] = {
    "none": partial(_constant_plan, draft_length=0),
    "greedy": greedy_plan,
    "oracle": oracle_plan,
    BEST_FIXED: partial(_constant_plan, draft_length=0),  # stands for all lengths, in `run`
}
_FACTORIES: dict[str, Callable[..., Policy]] = {
    "goodput": Goodput,
    "sglang": AcceptedAverage,
    "bandit": DiscountedBandit,
}


def _planned(policy: str, words: Sequence[str]) -> Choice:
    if words:
        raise InputError("policy", policy, "no settings, as it has none")
    return Choice(name=policy, planner=_PLANNERS[policy])


def _fixed(policy: str, words: Sequence[str]) -> Choice:
    if len(words) != 1 or not (words[0].isascii() and words[0].isdecimal()):
        raise InputError("policy", policy, "fixed: and a draft length, such as fixed:3")
    return _constant(f"fixed:{int(words[0])}", int(words[0]))


def _constant(policy: str, length: int) -> Choice:
    plan = partial(_constant_plan, draft_length=length)
    return Choice(name=policy, draft_length=length, planner=plan)


def _by_batch_size(policy: str, words: Sequence[str]) -> Choice:
    """Take the draft length at batch size 1 of a schedule, from a file or as typed."""
    try:
        if len(words) == 1 and "=" not in words[0]:
            schedule = json.loads(Path(words[0]).read_text(encoding="utf-8"))
        else:
            schedule = [[*map(int, word.replace("=", "-").split("-"))] for word in words]
    except (OSError, ValueError, RecursionError) as error:
        expected = "entries such as table:1-16=3:17-64=2, or a JSON file of [[1, 16, 3], ...]"
        raise InputError("policy", policy, f"{expected} ({error})") from None
    with of_policy():
        return _constant(policy, scheduled_draft_length(schedule, 1))


def _cascade(policy: str, words: Sequence[str]) -> Choice:
    settings = _settings(policy, words, [setting.name for setting in fields(CascadeSettings)])
    with of_policy():
        complete_settings(settings)
    return Choice(name=policy, is_cascade=True, settings=settings)


def complete_settings(
    settings: dict[str, Any], longest: int = CascadeSettings.max_draft_length
) -> CascadeSettings:
    """Return settings of Cascade; draft lengths that are not given keep within those that are.

    Parameters
    ----------
    settings
        Some, by name.
    longest
        Longest draft unless it is given [token].

    Returns
    -------
    CascadeSettings
        All.
    """
    longest = settings.get("max_draft_length", min(CascadeSettings.max_draft_length, longest))
    defaults = {"max_draft_length": longest}
    if isinstance(longest, int):
        defaults["first_draft_length"] = min(CascadeSettings.first_draft_length, max(longest, 1))
    return CascadeSettings(**defaults | settings)


def _learning(policy: str, words: Sequence[str]) -> Choice:
    factory = _FACTORIES[policy.split(":")[0]]
    known = [name for name in inspect.signature(factory).parameters if name not in GIVEN]
    return Choice(name=policy, factory=factory, settings=_settings(policy, words, known))


def _imported(policy: str, module: str, words: Sequence[str]) -> Choice:
    try:
        factory = getattr(importlib.import_module(module), words[0])
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]:
            raise
        given = f"{type(error).__name__}: {error}"
        expected = f"a module that can be imported from here and has {words[0]} ({given})"
        raise InputError("policy", policy, expected) from None
    if not callable(factory):
        raise InputError("policy", policy, "a class or function")
    return Choice(name=policy, factory=factory, settings=_settings(policy, words[1:]))


def _settings(
    policy: str, words: Sequence[str], known: Sequence[str] | None = None
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for word in words:
        name, has_value, text = word.partition("=")
        if not has_value or not name.isidentifier():
            raise InputError("policy", policy, "settings as name=value, after colons")
        if known is not None and name not in known:
            raise InputError("policy", policy, f"a setting it has: {nearest(name, known)}")
        if name in settings:
            raise InputError("policy", policy, f"{name} once")
        settings[name] = _literal(text)
    return settings


@contextmanager
def of_policy() -> Iterator[None]:
    """Let errors in the settings of a policy say that they are one's."""
    try:
        yield
    except InputError as error:
        argument = f"policy {error.argument}"
        raise InputError(argument, error.value, error.expected) from None


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
