"""Many requests at once in NumPy: the fast form of a replay, equal to `walk` step by step.

Each request is a lane; all lanes take a step together, and lanes whose request is over are
dropped from time to time.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specmodel.simulation.chance import Luck
from specmodel.simulation.times import ReplayTimes
from specmodel.simulation.totals import Totals, empty_totals
from specmodel.traces import Trace
from specmodel.units import FloatArray

KEPT_SHARE = 7 / 8
"""Share of live lanes below which the others are dropped [-]."""

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
    at = trace.starts
    ends = at + trace.output_tokens
    requests, sums = np.arange(trace.num_requests), empty_totals(trace.num_requests)
    while len(requests):
        asked = lanes.propose(at)
        is_testing = lanes.is_testing
        verified = np.minimum(asked, np.take(trace.proposed_tokens, at, mode="clip"))
        emitted = np.minimum(asked, np.take(trace.accepted_tokens, at, mode="clip"))
        emitted += 1
        np.minimum(emitted, ends - at, out=emitted)
        column = verified + (asked > 0)
        expected = np.take(base, column)
        seconds = np.take(slope, column)
        seconds *= np.take(luck.experts, at, mode="clip")
        seconds += expected
        seconds *= np.take(luck.noise, at, mode="clip")
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
            requests, at, ends, sums = requests[kept], at[kept], ends[kept], _taken(sums, kept)
            lanes.keep(kept)
    return totals


def _put(totals: Totals, requests: NDArray[np.intp], sums: Totals) -> None:
    for name in vars(totals):
        getattr(totals, name)[requests] = getattr(sums, name)


def _taken(sums: Totals, kept: NDArray[np.intp]) -> Totals:
    return Totals(**{name: array[kept] for name, array in vars(sums).items()})
