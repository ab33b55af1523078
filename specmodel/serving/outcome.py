"""What a run of the simulator recorded, and what follows from that."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray, check
from specmodel.serving import state
from specmodel.serving.requests import Requests
from specmodel.serving.state import Limits

EDGES = np.concatenate([[0.0], np.geomspace(1e-4, 100.0, 240)])
"""Lower ends of the bins of the histogram of intervals between chunks of tokens [s]."""
WARM_UP, COOL_DOWN = 0.1, 0.1
"""Shares of the requests, the first and the last ones, that statistics leave out [-]."""
BATCHES = 20
"""Means that a run is cut into to judge whether it is steady [-]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What a run recorded.

    Parameters
    ----------
    requests
        What was asked; of users, with the arrivals that followed.
    started, first, last
        When each request was first scheduled, where it decodes if it is prefilled apart, and
        emitted its first and last token [s].
    drafted_tokens, accepted_tokens
        Of each request [token].
    intervals
        How many chunks of tokens came so long after the chunk before, by bin of `EDGES` [-].
    counts, sums
        By place as in `state`: whole numbers and sums over the run.
    log
        The first steps, as many as were asked for, by column.
    limits
        What the scheduler and the memory allowed.
    """

    requests: Requests
    started: FloatArray
    first: FloatArray
    last: FloatArray
    drafted_tokens: NDArray[np.int64]
    accepted_tokens: NDArray[np.int64]
    intervals: NDArray[np.int64]
    counts: NDArray[np.int64] = field(repr=False)
    sums: FloatArray = field(repr=False)
    log: dict[str, FloatArray] = field(repr=False)
    limits: Limits = field(repr=False)

    @property
    def steps(self) -> int:
        """Steps in all [-]."""
        return int(self.counts[state.STEPS])

    @property
    def request_steps(self) -> int:
        """Steps times the requests that each carried [request]."""
        return int(self.counts[state.REQUEST_STEPS])

    @property
    def preemptions(self) -> int:
        """How often a request was preempted [-]."""
        return int(self.counts[state.PREEMPTIONS])

    @property
    def step_rows(self) -> list[dict[str, float]]:
        """The logged steps, a row each.

        When it ended and how long it took [s], requests, share of KV blocks in use [-], draft
        length and what was emitted [token].
        """
        told = {"time": "time", "step_time": "seconds", "running": "running", "waiting": "waiting"}
        told |= {"decoding": "decoding", "draft_length": "draft", "emitted_tokens": "emitted"}
        kept = {name: self.log[column] for name, column in told.items()}
        kept["kv_use"] = 1 - self.log["free"] / max(self.limits.blocks, 1)
        return [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]

    @property
    def end(self) -> float:
        """When the last request left [s]."""
        return float(self.sums[state.NOW])

    @property
    def area(self) -> float:
        """Requests present, waiting ones included, integrated over time by the loop [s]."""
        return float(self.sums[state.AREA])

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
        """Requests that statistics are of: those that meet others before and after."""
        count = self.requests.count
        return slice(int(WARM_UP * count), count - int(COOL_DOWN * count))

    @property
    def mean_tpot(self) -> float:
        """Time per output token, each token counted once [s]."""
        tokens = np.maximum(self.requests.output_tokens - 1, 0)[self.measured]
        return float((self.last - self.first)[self.measured].sum() / max(tokens.sum(), 1))

    @property
    def running(self) -> float:
        """Mean requests between start and end, while those that are measured came [request]."""
        arrival = self.requests.arrival_time[self.measured]
        since, until = float(arrival[0]), float(arrival[-1])
        if until <= since:
            return float(self.sums[state.RUNNING_AREA] / self.end)
        inside = np.clip(self.last, since, until) - np.clip(self.started, since, until)
        return float(inside.sum() / (until - since))

    @property
    def throughput(self) -> float:
        """Output tokens a second over the whole run [token/s]."""
        return float(self.counts[state.ALL_EMITTED] / self.end)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a request emits in a step that decodes it [token]."""
        chunks = self.intervals.sum()
        emitted = self.counts[state.ALL_EMITTED] - self.counts[state.BEGUN]
        return float(emitted / chunks) if chunks else 1.0

    @property
    def drafted_per_step(self) -> float:
        """Mean tokens drafted for a request in a step that decodes it [token]."""
        chunks = self.intervals.sum()
        return float(self.counts[state.ALL_DRAFTED] / chunks) if chunks else 0.0

    def interval_quantile(self, share: float) -> float:
        """Return the time between chunks of tokens that a share of them stay below [s]."""
        reached = np.cumsum(self.intervals) >= share * self.intervals.sum()
        return float(EDGES[min(int(np.argmax(reached)) + 1, len(EDGES) - 1)])

    def goodput(
        self, ttft_target: float | None, tpot_target: float | None, first_token_time: float = 0.0
    ) -> float:
        """Return the share of requests that meet both targets, None for any time [-].

        The engine adds `first_token_time` to every first token [s].
        """
        meets = np.ones(self.requests.count, dtype=bool)
        if ttft_target is not None:
            meets &= self.ttft + first_token_time <= check("ttft_target", ttft_target, above=0)
        if tpot_target is not None:
            meets &= self.tpot <= check("tpot_target", tpot_target, above=0)
        return float(meets[self.measured].mean())

    @cached_property
    def growth(self) -> tuple[float, float]:
        """How much the waiting time grows over the run, and its standard error [s].

        The slope of batch means of the time from arrival to the start, times the run.
        """
        waits = (self.started - self.requests.arrival_time)[self.measured]
        means = np.array([part.mean() for part in np.array_split(waits, BATCHES)])
        at = np.linspace(-0.5, 0.5, BATCHES)
        slope = float((at * means).sum() / (at * at).sum())
        rest = means - means.mean() - slope * at
        return slope, float(np.sqrt((rest**2).sum() / (BATCHES - 2) / (at * at).sum()))

    @property
    def is_steady(self) -> bool:
        """Whether waiting times do not grow over the run: else the rate is more than is carried.

        They grow if their slope is clear of its error and adds more than half a residence. Users
        wait for their answers, so that theirs cannot grow.
        """
        if self.requests.users or self.requests.count < 2 * BATCHES:
            return True
        slope, error = self.growth
        residence = float((self.last - self.started)[self.measured].mean())
        return slope <= max(3 * error, 0.5 * residence)

    @property
    def carried_rate(self) -> float:
        """Requests a second that were served while requests still came [request/s]."""
        until = float(self.requests.arrival_time[-1])
        since = self.requests.arrival_time[self.measured.start]
        served = ((self.last > since) & (self.last <= until)).sum()
        return float(served / (until - since)) if until > since else self.requests.count / self.end
