"""Many requests at once in NumPy: the fast form of a replay, equal to `walk` step by step.

Each request is a lane; all lanes take a step together, and lanes whose request is over are
dropped from time to time.
"""

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray
from specmodel.replay.simulation.chance import Luck
from specmodel.replay.simulation.times import ReplayTimes
from specmodel.replay.simulation.totals import Totals, empty_totals
from specmodel.replay.traces import Trace

KEPT_SHARE = 7 / 8
"""Share of live lanes below which the others are dropped [-]."""

Scalar = TypeVar("Scalar", bound=np.generic)
Whole = NDArray[np.int64]
"""Whole numbers by lane."""


class Lanes(Protocol):
    """A policy of many requests at once."""

    def propose(self, positions: Whole) -> Whole:
        """Return the draft length of each lane, which is at a position of the trace [token]."""
        ...

    def observe(self, emitted_tokens: Whole, step_time: FloatArray) -> None:
        """Take in what each lane emitted [token] and how long that took [s]."""
        ...

    def keep(self, lanes: NDArray[np.intp]) -> None:
        """Go on with these lanes only."""
        ...

    @property
    def is_testing(self) -> NDArray[np.bool_] | None:
        """Which lanes are in a test; None for a policy without tests."""
        ...


class Plan:
    """Draft lengths settled beforehand, by position of the trace.

    Parameters
    ----------
    draft_length
        By position [token].
    """

    is_testing = None

    def __init__(self, draft_length: NDArray[np.uint8]) -> None:
        self._draft_length = draft_length

    def propose(self, positions: Whole) -> Whole:
        """Return the draft length planned at each position [token]."""
        return np.take(self._draft_length, positions, mode="clip").astype(np.int64)

    def observe(self, emitted_tokens: Whole, step_time: FloatArray) -> None:
        """Take no notice of tokens [token] and times [s]."""

    def keep(self, lanes: NDArray[np.intp]) -> None:
        """Do nothing: a plan has no lanes."""


def replay_lanes(
    lanes: Lanes, trace: Trace, times: ReplayTimes, luck: Luck, plain_time: float
) -> Totals:
    """Replay all requests of a trace side by side.

    Parameters
    ----------
    lanes
        The policy of as many lanes as there are requests.
    trace, times, luck
        Acceptance, step times, and what varies.
    plain_time
        Time of a step at draft length 0 [s].

    Returns
    -------
    Totals
        Of each request.
    """
    totals = empty_totals(trace.num_requests)
    base, slope = times.by_column(plain_time)
    by_position = _joined(trace, luck)
    at = trace.starts
    ends, request_experts = at + trace.output_tokens, luck.request_experts
    requests, sums = np.arange(trace.num_requests), empty_totals(trace.num_requests)
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
            _put(totals, requests, sums)
            kept = np.flatnonzero(at < ends)
            requests, sums = requests[kept], _taken(sums, kept)
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


def _put(totals: Totals, requests: NDArray[np.intp], sums: Totals) -> None:
    for name in vars(totals):
        getattr(totals, name)[requests] = getattr(sums, name)


def _taken(sums: Totals, kept: NDArray[np.intp]) -> Totals:
    return Totals(**{name: array[kept] for name, array in vars(sums).items()})
