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
"""Shares of the first and of the last requests that statistics leave out [-]."""
BATCHES = 20
"""Batches of requests whose mean waiting times show whether a run is steady [-]."""
MEANS = (
    *("running", "tpot", "tpot_p90", "ttft", "ttft_p90"),
    *("throughput", "tokens_per_step", "drafted_tokens_per_step"),
)
"""Names of the statistics that `averages` returns."""


class Run(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Record of a simulated run.

    Parameters
    ----------
    requests
        The requests; with users, their arrivals are those of the run.
    started, first, last
        Times at which the decoding server first scheduled each request, and at which the request
        got its first and its last token [s].
    drafted_tokens, accepted_tokens
        Totals of each request [token].
    intervals
        Histogram of the time between chunks of tokens of a request, in the bins of `EDGES` [-].
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
        """Time per output token after the first, by request; 0 if there is only one token [s]."""
        return (self.last - self.first) / np.maximum(self.requests.output_tokens - 1, 1)

    @property
    def measured(self) -> slice:
        """The requests that statistics use, as a slice: all but warm-up and cool-down."""
        count = self.requests.count
        return slice(int(WARM_UP * count), count - int(COOL_DOWN * count))

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
        """Growth of the waiting time over the run, and its standard error [s].

        It is the slope of a line through the batch means of the time from arrival to start.
        """
        waits = (self.started - self.requests.arrival_time)[self.measured]
        means = np.array([part.mean() for part in np.array_split(waits, BATCHES)])
        at = np.linspace(-0.5, 0.5, BATCHES)
        (slope, _), covariance = np.polyfit(at, means, 1, cov=True)
        return float(slope), float(np.sqrt(covariance[0, 0]))

    @property
    def is_steady(self) -> bool:
        """Whether waiting times do not grow over the run. If they grow, the server is overloaded.

        With users, who wait for their answers, waiting times cannot grow.
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


def averages(runs: Sequence[Run], own: slice, first_token_time: float = 0.0) -> dict[str, float]:
    """Return means over runs and 0.9 quantiles of the requests `own` of all runs, by `MEANS`.

    In the mean TPOT, each token counts once. `first_token_time` is added to each TTFT [s].
    """
    ttft = np.array([run.ttft[own] for run in runs]) + first_token_time
    tpot = np.array([run.tpot[own] for run in runs])
    tokens = np.array([np.maximum(run.requests.output_tokens[own] - 1, 1e-9) for run in runs])
    means = (
        np.mean([run.running for run in runs]),
        np.average(tpot, axis=1, weights=tokens).mean(),
        np.quantile(tpot, 0.9),
        ttft.mean(),
        np.quantile(ttft, 0.9),
        np.mean([run.throughput for run in runs]),
        np.mean([run.tokens_per_step for run in runs]),
        np.mean([run.drafted_per_step for run in runs]),
    )
    return dict(zip(MEANS, map(float, means), strict=True))


def are_steady(runs: Sequence[Run]) -> bool:
    """Return whether waiting times do not grow, by the mean over runs.

    They grow if their slope exceeds three standard errors and adds more than half the mean time
    that a request runs.
    """
    slopes, errors = np.array([run.growth for run in runs]).T
    residences = [(run.last - run.started)[run.measured].mean() for run in runs]
    error = np.hypot.reduce(errors) / len(runs)
    return bool(slopes.mean() <= max(3 * error, 0.5 * np.mean(residences)))
