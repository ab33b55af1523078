"""Replays in two forms that are equal step by step: for any policy, and many requests at once.

`replay_policy` walks through one request after the other. For `replay_lanes` each request is a lane
of arrays: all take a step together, and from time to time the lanes whose request is over are
dropped.
"""

import operator
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray
from specmodel.replay.chance import Luck
from specmodel.replay.policies import Policy
from specmodel.replay.policies.policy import Lanes, arguments_of
from specmodel.replay.times import ReplayTimes
from specmodel.replay.traces import Trace

KEPT_SHARE = 7 / 8
"""Share of live lanes below which the others are dropped [-]."""

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, kw_only=True, eq=False)
class Totals:
    """Sums over the steps of each request; test steps are those in a phase "test" [-].

    Drafted tokens are those that were verified [token]; the expected time is without luck [s].
    """

    steps: NDArray[np.int64]
    test_steps: NDArray[np.int64]
    drafted_tokens: NDArray[np.int64]
    time: FloatArray
    expected_time: FloatArray

    @classmethod
    def zeros(cls, num_requests: int) -> "Totals":
        """Return totals of `num_requests` before their first step [request]."""
        counts = ("steps", "test_steps", "drafted_tokens")
        return cls(
            **{name: np.zeros(num_requests, np.int64) for name in counts},
            time=np.zeros(num_requests),
            expected_time=np.zeros(num_requests),
        )


def replay_policy(
    make: Callable[[int], Policy],
    trace: Trace,
    times: ReplayTimes,
    luck: Luck,
    plain_time: float,
    log: list[dict[str, Any]] | None = None,
) -> Totals:
    """Replay every request with a policy of its own; `log`, if given, takes every step."""
    # the log gets position (output tokens before it), draft_length (asked for), drafted_tokens (of
    # that, what the drafter had), emitted_tokens, step_time, and the policy's phase and utility
    totals = Totals.zeros(trace.num_requests)
    base, slope = (column.tolist() for column in times.by_column(plain_time))
    start = 0
    for i, length in enumerate(trace.output_tokens.tolist()):
        part = slice(start, start + length)
        start += length
        policy = make(i)
        try:
            sums = _replay(policy, _Request(trace, luck, i, part), base, slope, log)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            given = f"{type(error).__name__}: {error}"
            expected = f"a policy that replays the whole trace{_place(error)}"
            raise InputError(f"policy {type(policy).__name__}", given, expected) from error
        totals.steps[i], totals.test_steps[i], totals.drafted_tokens[i] = sums[:3]
        totals.time[i], totals.expected_time[i] = sums[3:]
    return totals


class _Request:
    """The positions of one request as lists, which Python reads faster than arrays."""

    def __init__(self, trace: Trace, luck: Luck, number: int, part: slice) -> None:
        self.proposed = trace.proposed_tokens[part].tolist()
        self.accepted = trace.accepted_tokens[part].tolist()
        experts = luck.expert_levels[luck.expert_draws[part]]
        self.experts = (luck.request_experts[number] + experts).tolist()
        self.noise = luck.noise_levels[luck.noise_draws[part]].tolist()


def _replay(
    policy: Policy,
    request: _Request,
    base: list[float],
    slope: list[float],
    log: list[dict[str, Any]] | None,
) -> tuple[int, int, int, float, float]:
    """Return the steps, test steps, drafted tokens, time and expected time of one request."""
    propose, is_told = policy.propose, "drafted_tokens" in _observed(type(policy))
    observe: Any = policy.observe  # with or without its optional argument
    proposed, accepted = request.proposed, request.accepted
    experts, noise = request.experts, request.noise
    has_phase, longest, length = hasattr(policy, "phase"), len(base) - 2, len(proposed)
    position = steps = tested = drafted = 0
    total = expected = 0.0
    while position < length:
        phase = getattr(policy, "phase", "") if has_phase else ""
        asked = propose()
        if type(asked) is not int or not 0 <= asked <= longest:
            asked = _whole(asked, longest, policy)
        offered, held, left = proposed[position], accepted[position], length - position
        verified = asked if asked < offered else offered
        emitted = (asked if asked < held else held) + 1
        emitted = emitted if emitted < left else left  # min() is slower
        column = verified + 1 if asked else 0
        seconds = (base[column] + slope[column] * experts[position]) * noise[position]
        if is_told:
            observe(emitted, seconds, drafted_tokens=verified)
        else:
            observe(emitted, seconds)
        if log is not None:
            utility = getattr(policy, "utility", float("nan"))
            log.append({
                "position": position, "draft_length": asked, "drafted_tokens": verified,
                "emitted_tokens": emitted, "step_time": seconds, "phase": phase,
                "utility": utility,
            })  # fmt: skip
        position += emitted
        steps += 1
        if phase == "test":
            tested += 1
        drafted += verified
        total += seconds
        expected += base[column]
    return steps, tested, drafted, total, expected


@cache
def _observed(kind: type) -> set[str]:
    """Return what policies of a class are told after a step."""
    return arguments_of(getattr(kind, "observe", None))


def _place(error: BaseException) -> str:
    """Return the file and line that raised an error, unless that is this file."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "" if frame.filename == __file__ else f" ({Path(frame.filename).name}:{frame.lineno})"


def _whole(asked: object, longest: int, policy: Policy) -> int:
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


def replay_lanes(
    lanes: Lanes, trace: Trace, times: ReplayTimes, luck: Luck, plain_time: float
) -> Totals:
    """Replay all requests of a trace side by side, with as many lanes as there are requests."""
    totals = Totals.zeros(trace.num_requests)
    base, slope = times.by_column(plain_time)
    by_position = _joined(trace, luck)
    at = trace.starts
    ends, request_experts = at + trace.output_tokens, luck.request_experts
    requests, sums = np.arange(trace.num_requests), Totals.zeros(trace.num_requests)
    while len(requests):
        asked = lanes.propose(at)
        is_testing = lanes.is_testing
        here = _at(by_position, at).view(np.uint8).reshape(-1, 4)
        verified = np.minimum(asked, here[:, 0])
        emitted = np.minimum(asked, here[:, 1])
        emitted += 1
        np.minimum(emitted, ends - at, out=emitted)
        column = verified + (asked > 0)
        expected = _at(base, column)
        seconds = _at(luck.expert_levels, here[:, 2])
        seconds += request_experts
        seconds *= _at(slope, column)
        seconds += expected
        seconds *= _at(luck.noise_levels, here[:, 3])
        lanes.observe(emitted, seconds)
        at += emitted
        is_live = emitted > 0
        live = np.count_nonzero(is_live)
        if live < len(requests):
            for increment in (verified, seconds, expected):
                increment *= is_live
        sums.steps[...] += is_live
        sums.drafted_tokens[...] += verified
        sums.time[...] += seconds
        sums.expected_time[...] += expected
        if is_testing is not None:
            sums.test_steps[...] += is_testing & is_live
        if live < KEPT_SHARE * len(requests):
            for name, total in vars(totals).items():
                total[requests] = getattr(sums, name)
            kept = np.flatnonzero(at < ends)
            requests = requests[kept]
            sums = Totals(**{name: array[kept] for name, array in vars(sums).items()})
            at, ends, request_experts = at[kept], ends[kept], request_experts[kept]
            lanes.keep(kept)
    return totals


def _joined(trace: Trace, luck: Luck) -> NDArray[np.uint32]:
    """Return all that is known of a position as one number: one look-up in memory, not four."""
    parts = (trace.proposed_tokens, trace.accepted_tokens, luck.expert_draws, luck.noise_draws)
    joined = np.empty((len(trace.proposed_tokens), len(parts)), np.uint8)
    for i, part in enumerate(parts):
        joined[:, i] = part
    return joined.view(np.uint32)[:, 0]


def _at(values: NDArray[Scalar], index: NDArray[np.integer[Any]]) -> NDArray[Scalar]:
    """Look up; a lane whose request is over may be one beyond the last position."""
    return np.take(values, index, mode="clip")
