"""Choose policies by name and settings: ``fixed:3``, ``cascade:first_draft_length=1``."""

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.ranges import whole_of
from specmodel.core.prediction.by_batch import ByBatch, schedule_of
from specmodel.simulate.feedback import check_methods
from specmodel.simulate.policies import Policy
from specmodel.simulate.policies.known import KNOWN
from specmodel.simulate.policies.policy import STATES, LearningPolicy, arguments_of
from specmodel.simulate.sampling import POLICY, stream
from specmodel.simulate.times_alone import ReplayTimes

BEST_FIXED = "best-fixed"
"""Name of the best fixed draft length in hindsight, which needs the records of all lengths."""

ORACLE = "oracle"
HINDSIGHT = (BEST_FIXED, ORACLE)
"""Names of policies that know the trace. They are bounds, and cannot be deployed."""

VERIFICATION = "adaptive-verification"
"""Name of the policy of vLLM that decides how many drafted tokens of a batch to verify."""


class Choice(Struct, frozen=True, kw_only=True):
    """A policy: a schedule by batch size, a factory of a policy that learns, or hindsight.

    `schedule` is an argument of `scheduled_draft_lengths`, and `settings` are arguments of the
    factory. `folder` is searched first for a module of the user, in other processes too. `is_ours`
    marks policies of this package. `state` is "request" or "server", which keeps the state of a
    policy that learns. `notes` are assumptions to print.
    """

    name: str
    schedule: Sequence[Sequence[int]] | None = None
    factory: Callable[..., Policy] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    is_ours: bool = False
    state: str = "request"
    notes: tuple[str, ...] = ()

    def __reduce__(self) -> Any:
        if self.folder is None:
            return super().__reduce__()
        return _imported_again, (self.name, self.folder, self.state)

    def kept_by(self, state: Any) -> "Choice":
        """Return the policy with a state for each request or server; unchanged if `state` is None.

        Policies that do not learn are unchanged too.
        """
        if state is None or not self.learns:
            return self
        if state not in STATES:
            raise InputError("policy_state", state, " or ".join(STATES))
        return replace(self, state=str(state))

    def lengths(self, max_batch_size: int) -> list[int]:
        """Return the draft lengths by batch size, from 0, of a policy with a schedule [token]."""
        lengths = ByBatch.of(self.schedule, "policy table").at(range(max_batch_size + 1))
        return [int(length) for length in lengths]

    @property
    def draft_length(self) -> int | None:
        """Draft length at batch size 1, None for a policy without a schedule [token]."""
        return None if self.schedule is None else self.lengths(1)[1]

    @property
    def learns(self) -> bool:
        """Whether the policy adapts its draft lengths during a replay."""
        return self.factory is not None


def _imported_again(name: str, folder: Path, state: str) -> Choice:
    return choose(name, folder).kept_by(state)


PolicyLike = str | Callable[..., Policy] | Choice
"""A policy, as `choose` accepts it."""

_WITHOUT_SETTINGS = ("none", *HINDSIGHT, VERIFICATION)
_SCHEDULES = ("table", "below")
"""Names of draft lengths by batch size."""
_NOT_REPLAYED = "the replay uses only the entry for batch size 1"


def choose(policy: PolicyLike, folder: Path | None = None) -> Choice:
    """Return the `Choice` of a policy given by name, class or function.

    Parameters
    ----------
    policy
        ``none``, ``fixed:K``, ``best-fixed``, ``oracle``, ``table:FILE``,
        ``table:1-16=3:17-64=2`` or ``below:64:3`` (by batch size), ``cascade``, ``goodput``,
        ``sglang``, or ``my_module:MyPolicy``, each with settings such as ``:max_trials=3``; or a
        class or function that makes a policy (`policy_maker`).
    folder
        Folder that is searched first for ``my_module``, only during the import.
    """
    if isinstance(policy, Choice):
        return policy
    if not isinstance(policy, str):
        return _given(policy)
    name, *words = policy.strip().split(":")
    policy = policy.strip()
    if name in KNOWN:
        return _learner(policy, KNOWN[name], _settings(policy, words, KNOWN[name].settings_taken()))
    if name in _WITHOUT_SETTINGS:
        if words:
            raise InputError("policy", policy, "the name alone, as this policy has no settings")
        schedule = [[1, 1, 0]] if name == "none" else None
        return Choice(name=name, schedule=schedule)
    if name == "fixed":
        length = whole_of(":".join(words))
        if length is None:
            raise InputError("policy", policy, "fixed: and a draft length, such as fixed:3")
        return Choice(name=f"fixed:{length}", schedule=[[1, 1, length]])
    if name in _SCHEDULES:
        found = Choice(name=policy, schedule=schedule_of(policy, words))
        found.lengths(1)  # refuses an invalid schedule
        return found if len(found.schedule or ()) == 1 else replace(found, notes=(_NOT_REPLAYED,))
    names = {*KNOWN, *_WITHOUT_SETTINGS, "fixed", *_SCHEDULES} - {VERIFICATION}
    known = f"a known name such as {nearest(name, names)}"
    if not name or not words or not words[0]:
        raise InputError("policy", policy, f"module:Class, or {known}")
    return _imported(policy, name.removeprefix("./").removesuffix(".py"), words, folder, known)


def check_choice(choice: Choice, times: ReplayTimes) -> None:
    """Refuse a policy that cannot be made or asks for too long a draft, before any replay."""
    longest = times.max_draft_length
    if choice.name == VERIFICATION:
        expected = "a policy for single requests; simulate this one with specmodel load"
        raise InputError("policy", choice.name, expected)
    if choice.draft_length is not None and choice.draft_length > longest:
        expected = f"at most {longest}, the longest draft length to consider (max_draft_length)"
        raise InputError("policy", choice.name, expected)
    policy_maker(choice, times.asked_time, 0)(0)


def policy_maker(choice: Choice, step_time: Sequence[float], seed: int) -> Callable[[int], Policy]:
    """Return a function that makes the policy of a request from the request's number.

    `step_time` is by draft length, from 0 to the longest [s].
    """
    factory = choice.factory
    if factory is None:
        fixed = LearningPolicy(choice.draft_length or 0)
        return lambda _: fixed
    available: dict[str, Any] = {
        "step_time": [*step_time],
        "max_draft_length": len(step_time) - 1,
        "draft_lengths": list(range(len(step_time))),
    }
    taken = arguments_of(factory)
    given = {name: value for name, value in available.items() if name in taken} | choice.settings
    draws = "generator" in taken

    def make(request: int) -> Policy:
        own = {"generator": stream(seed, POLICY, request)} if draws else {}
        try:
            policy = factory(**given, **own)
        except InputError as error:
            raise InputError(f"policy {error.argument}", error.value, error.expected) from None
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            expected = "Creating the policy raised this exception."
            raise InputError(f"policy {choice.name}", text, expected) from error
        check_methods(policy, type(policy).__name__, choice.name)
        return policy

    return make


def _given(policy: object) -> Choice:
    """Return the choice of a class or function; settings bound to it are part of its name."""
    if not callable(policy):
        raise InputError("policy", policy, "a name, a class or a function without arguments")
    bound = policy.keywords if isinstance(policy, partial) else {}
    function = policy.func if isinstance(policy, partial) else policy
    title = getattr(function, "__name__", type(function).__name__)
    name = ":".join([title, *(f"{key}={value}" for key, value in bound.items())])
    if name in (*_WITHOUT_SETTINGS, *KNOWN):
        raise InputError("policy", policy, f"another name than {name}, which is already used")
    return _learner(name, policy, {})


def _learner(
    name: str, made_by: Any, settings: dict[str, Any], folder: Path | None = None
) -> Choice:
    """Return the choice of a policy that learns, of this package or of the user."""
    is_ours = made_by in KNOWN.values()
    own = Choice(
        name=name,
        factory=getattr(made_by, "by_settings", made_by) if is_ours else made_by,
        settings=settings,
        folder=folder,
        is_ours=is_ours,
        notes=made_by.notes if is_ours else (),
    )
    return own.kept_by(getattr(made_by, "policy_state", own.state))


def _imported(
    policy: str, module: str, words: Sequence[str], folder: Path | None, known: str
) -> Choice:
    """Return the choice of a class or function in a module of the user.

    If there is no such module, the error has the `known` names.
    """
    added = [] if folder is None else [str(folder)]
    sys.path[:0] = added
    try:
        factory = getattr(importlib.import_module(module), words[0])
    except (Exception, SystemExit) as error:
        expected = f" and has {words[0]} ({type(error).__name__}: {error})"
        if isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]:
            expected = f", or {known} ({error})"
        expected = f"a module in this folder that can be imported{expected}"
        raise InputError("policy", policy, expected) from None
    finally:
        for path in added:
            sys.path.remove(path)
    if not callable(factory) or inspect.isbuiltin(factory):
        raise InputError("policy", policy, "a class or function of your own")
    settings = _settings(policy, words[1:])
    if inspect.isclass(factory):
        check_methods(factory, factory.__name__, policy)
    return _learner(policy, factory, settings, folder)


def _settings(
    policy: str, words: Sequence[str], known: Collection[str] | None = None
) -> dict[str, Any]:
    """Return settings of the form name=value; a value that is not JSON is a text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, has_value, text = word.partition("=")
        if not has_value or not name.isidentifier():
            raise InputError("policy", policy, "settings as name=value, after colons")
        if known is not None and name not in known:
            raise InputError("policy", policy, f"a setting such as {nearest(name, known)}")
        if name in settings:
            raise InputError("policy", policy, f"the setting {name} once")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
        except RecursionError:
            expected = "settings with plain values, or JSON that is nested less deeply"
            raise InputError("policy", policy, expected) from None
    return settings
