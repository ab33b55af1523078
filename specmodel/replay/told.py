"""Policies that are objects in Python, as the walk asks and tells them, and what is logged."""

import inspect
import operator
import traceback
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from specmodel.base.errors import InputError
from specmodel.replay.policies import Policy
from specmodel.replay.policies.kinds import CONSTANT
from specmodel.replay.policies.policy import TESTING
from specmodel.replay.walk import States

TOLD = (
    "emitted_tokens", "step_time", "drafted_tokens", "accepted_tokens", "batch_size",
    "context_length",
)  # fmt: skip
"""What `observe` may take, by name."""
ASKED_WITH = ("batch_size", "context_length")
"""What `propose` may take, by name."""
BATCH_SIZE = 1
"""Requests of the batches that are replayed [request]."""

Log = list[dict[str, Any]]


class Told:
    """The policies of the requests of a block, made when each begins, or kept by server.

    Parameters
    ----------
    make
        Gives the policy of a request, or of a server, by its number.
    servers
        How many states requests are dealt to; 0 for one of each request.
    longest, context
        Longest draft that a policy may ask for, and context of the first row of times [token].
    log
        Takes every step, if given: position (output tokens before it), draft_length (asked for),
        drafted_tokens (of that, what the drafter had), emitted_tokens, step_time, and the policy's
        phase and utility.
    """

    def __init__(
        self,
        make: Callable[[int], Policy],
        *,
        servers: int,
        longest: int,
        context: float,
        log: Log | None = None,
    ) -> None:
        self._make, self._servers = make, servers
        self._longest, self._context, self._log = longest, context, log
        self.states = States(
            kind=CONSTANT, whole=[[0, 0]], real=[[]], fresh_whole=[0, 0], fresh_real=[],
            keeps=True, plan=b"",
        )  # fmt: skip
        self._kept: dict[int, Policy] = {}
        self.policy: Any = None

    def start(self, request: int) -> None:
        """Begin a request: with a policy of its own, or that of its server."""
        if self._servers:
            server = request % self._servers
            if server not in self._kept:
                self._kept[server] = self._make(server)
            self.policy = self._kept[server]
        else:
            self.policy = self._make(request)
        self._propose, self._observe = asking(self.policy), telling(self.policy)
        self._has_phase, self._position = hasattr(self.policy, "phase"), 0

    def propose(self, context: float) -> int:
        """Return the draft length that the policy asks for, which must be one [token]."""
        self._at = context + self._context
        self._phase = getattr(self.policy, "phase", "") if self._has_phase else ""
        self.states.whole[0][TESTING] = 1 if self._phase == "test" else 0
        asked = self._propose(BATCH_SIZE, self._at)
        if type(asked) is not int or not 0 <= asked <= self._longest:
            asked = _whole(asked, self._longest, self.policy)
        self._asked = asked
        return int(asked)

    def observe(self, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
        """Tell the policy what a step emitted and drafted [token], and its time [s]."""
        self._observe(emitted_tokens, step_time, drafted_tokens, BATCH_SIZE, self._at)
        if self._log is not None:
            self._log.append({
                "position": self._position, "draft_length": self._asked,
                "drafted_tokens": drafted_tokens, "emitted_tokens": emitted_tokens,
                "step_time": step_time, "phase": self._phase,
                "utility": getattr(self.policy, "utility", float("nan")),
            })  # fmt: skip
        self._position += emitted_tokens


def asking(policy: Any) -> Callable[[int, float], Any]:
    """Return a function of batch size and context that asks a policy, which may take both."""
    propose, parameters = policy.propose, _parameters(_kind(policy), "propose")
    taken = {name for name in ASKED_WITH if name in parameters}
    if not taken:
        return lambda batch_size, context: propose()

    def ask(batch_size: int, context: float) -> Any:
        values = zip(ASKED_WITH, (batch_size, int(context)), strict=True)
        return propose(**{name: value for name, value in values if name in taken})

    return ask


def telling(policy: Any) -> Callable[[int, float, int, int, float], None]:
    """Return a function that tells a policy what a step of a request was.

    It takes emitted tokens, time, drafted tokens, batch size and context.
    """
    observe: Any = policy.observe
    by_place, names = _protocol(_kind(policy))
    if by_place and not names:
        return lambda emitted, seconds, *more: observe(emitted, seconds)
    if by_place and names == {"drafted_tokens"}:
        return lambda emitted, seconds, drafted, *more: observe(
            emitted, seconds, drafted_tokens=drafted
        )

    def tell(emitted: int, seconds: float, drafted: int, batch: int, context: float) -> None:
        values = (emitted, seconds, drafted, emitted - 1, batch, int(context))
        named = {name: value for name, value in zip(TOLD, values, strict=True) if name in names}
        observe(*((emitted, seconds) if by_place else ()), **named)

    return tell


def check_protocol(policy: Any, name: str) -> None:
    """Refuse methods that ask for what no engine tells them, or cannot be told."""
    kind = _kind(policy)
    by_place, _ = _protocol(kind)
    parameters = _parameters(kind, "observe")
    first = [*parameters][:2] if by_place else []
    of_place = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, _EITHER)]
    has_room = len(of_place) >= 2 or any(p.kind is _ANY for p in parameters.values())
    is_told = bool(parameters) and not (_required(kind, "observe") - {*TOLD, *first})
    if (by_place and not has_room) or not is_told:
        given = f"observe({', '.join(parameters)})"
        expected = f"observe(emitted_tokens, step_time), or any of {', '.join(TOLD)} by name"
        raise InputError(f"policy {name}", given, expected)
    unknown = _required(kind, "propose") - {*ASKED_WITH}
    if unknown:
        given = f"propose({', '.join(_parameters(kind, 'propose'))})"
        raise InputError(f"policy {name}", given, f"propose(), or {' and '.join(ASKED_WITH)}")


def _kind(policy: Any) -> Hashable:
    return type(policy)  # type: ignore[return-value]  # a class can be hashed


_EITHER, _ANY = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL


@cache
def _protocol(kind: Hashable) -> tuple[bool, frozenset[str]]:
    """Return whether `observe` is told tokens and time by place, and what it is told by name.

    It is told all by name if its arguments are all of those known, but do not begin as usual.
    """
    parameters = _parameters(kind, "observe")
    first, usual = [*parameters][:2], [*TOLD[:2]]
    are_known = bool(first) and {*first} | _required(kind, "observe") <= {*TOLD}
    by_place = first == usual or not are_known
    names = {name for name in parameters if name in TOLD}
    return by_place, frozenset(names - {*usual, *first} if by_place else names)


@cache
def _parameters(kind: Hashable, method: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a method by name, without itself."""
    found = dict(inspect.signature(getattr(kind, method)).parameters)
    kept_as_is = isinstance(inspect.getattr_static(kind, method), staticmethod | classmethod)
    if found and not kept_as_is:
        del found[next(iter(found))]
    return found


@cache
def _required(kind: Hashable, method: str) -> frozenset[str]:
    """Return the names of arguments that a method cannot do without."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return frozenset(
        name
        for name, parameter in _parameters(kind, method).items()
        if parameter.default is parameter.empty and parameter.kind not in variable
    )


def _whole(asked: object, longest: int, policy: Any) -> int:
    """Return a proposed draft length as an int, or refuse what is no whole number in range."""
    try:
        number = -1 if isinstance(asked, bool) else operator.index(asked)  # type: ignore[arg-type] # raises if not
    except TypeError:
        number = -1
    if 0 <= number <= longest:
        return number
    # an object of the user's own could not be sent from a worker process
    is_plain = asked is None or isinstance(asked, int | float | str)
    given = asked if is_plain else type(asked).__name__
    name = f"policy {type(policy).__name__}"
    raise InputError(name, given, f"a whole draft length from 0 to {longest}")


def policy_error(policy: Any, error: BaseException) -> InputError:
    """Return what says that a policy failed, with the file and line that did, unless it is here."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    is_own = Path(frame.filename).parent == Path(__file__).parent
    place = "" if is_own else f" ({Path(frame.filename).name}:{frame.lineno})"
    given = f"{type(error).__name__}: {error}"
    expected = f"a policy that replays the whole trace{place}"
    return InputError(f"policy {type(policy).__name__}", given, expected)
