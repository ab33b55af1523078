"""Record a run of the simulator, and compute statistics from it."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from specmodel.core.base.units import FloatArray
from specmodel.simulate.requests import Requests
from specmodel.simulate.state import State

EDGES = np.concatenate([[0.0], np.geomspace(1e-4, 100.0, 240)])
"""Lower ends of the bins of the histogram of intervals between chunks of tokens [s]."""
WARM_UP, COOL_DOWN = 0.1, 0.1
"""Shares of the requests, the first and the last ones, that statistics leave out [-]."""
BATCHES = 20
"""Means that a run is cut into to judge whether it is steady [-]."""


class Run(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Record of a simulated run.

    Parameters
    ----------
    requests
        The requests; those of users have the arrivals of the run.
    started, first, last
        When the decoding server first scheduled each request, and when it emitted the first and the
        last token [s].
    drafted_tokens, accepted_tokens
        Totals of each request [token].
    intervals
        Number of chunks of tokens by time since the previous chunk, in the bins of `EDGES` [-].
    throughput, tokens_per_step, drafted_per_step
        Output tokens per second [token/s]; mean tokens emitted and drafted per request and decode
        step [token]. All include requests that were not recorded.
    state
        State of the server at the end.
    log
        The first steps, as many as requested, with the fields of `Step`.
    """

    requests: Requests
    started: FloatArray
    first: FloatArray
    last: FloatArray
    drafted_tokens: NDArray[np.int64]
    accepted_tokens: NDArray[np.int64]
    intervals: NDArray[np.int64]
    throughput: float
    tokens_per_step: float
    drafted_per_step: float
    state: State
    log: NDArray[Any]

    @cached_property
    def ttft(self) -> FloatArray:
        """Time from arrival to the first token, by request [s]."""
        return self.first - self.requests.arrival_time

    @cached_property
    def tpot(self) -> FloatArray:
        """Time per output token after the first, by request; 0 where there is no other [s]."""
        return (self.last - self.first) / np.maximum(self.requests.output_tokens - 1, 1)

    @property
    def measured(self) -> slice:
        """The slice of requests in statistics: all but warm-up and cool-down."""
        count = self.requests.count
        return slice(int(WARM_UP * count), count - int(COOL_DOWN * count))

    @property
    def mean_tpot(self) -> float:
        """Mean time per output token; each token counts once [s]."""
        tokens = np.maximum(self.requests.output_tokens - 1, 0)[self.measured]
        return float((self.last - self.first)[self.measured].sum() / max(tokens.sum(), 1))

    @property
    def running(self) -> float:
        """Mean number of running requests while the measured requests arrived [request]."""
        arrival = self.requests.arrival_time[self.measured]
        since, until = float(arrival[0]), float(arrival[-1])
        if until <= since:
            return float(self.state.running_time / self.state.now)
        inside = np.clip(self.last, since, until) - np.clip(self.started, since, until)
        return float(inside.sum() / (until - since))

    def interval_quantile(self, share: float) -> float:
        """Return a quantile of the time between chunks of tokens [s]."""
        reached = np.cumsum(self.intervals) >= share * self.intervals.sum()
        return float(EDGES[min(int(np.argmax(reached)) + 1, len(EDGES) - 1)])

    @cached_property
    def growth(self) -> tuple[float, float]:
        """How much the waiting time grows over the run, and its standard error [s].

        The slope of batch means of the time from arrival to the start, times the run.
        """
        waits = (self.started - self.requests.arrival_time)[self.measured]
        means = np.array([part.mean() for part in np.array_split(waits, BATCHES)])
        at = np.linspace(-0.5, 0.5, BATCHES)
        (slope, _), covariance = np.polyfit(at, means, 1, cov=True)
        return float(slope), float(np.sqrt(covariance[0, 0]))

    @property
    def is_steady(self) -> bool:
        """Whether waiting times do not grow over the run. If they grow, the server is overloaded.

        With users, who wait for their answers, they cannot grow.
        """
        is_short = self.requests.count < 2 * BATCHES
        return bool(self.requests.users) or is_short or are_steady([self])

    @property
    def carried_rate(self) -> float:
        """Requests per second that finished while requests still arrived [request/s]."""
        until = float(self.requests.arrival_time[-1])
        since = self.requests.arrival_time[self.measured.start]
        if until <= since:
            return self.requests.count / self.state.now
        return float(((self.last > since) & (self.last <= until)).sum() / (until - since))


def are_steady(runs: Sequence[Run]) -> bool:
    """Return whether waiting times do not grow, in the mean over runs.

    They grow if their slope is clear of its error and adds more than half a residence.
    """
    slopes, errors = np.array([run.growth for run in runs]).T
    residences = [(run.last - run.started)[run.measured].mean() for run in runs]
    error = np.hypot.reduce(errors) / len(runs)
    return bool(slopes.mean() <= max(3 * error, 0.5 * np.mean(residences)))
