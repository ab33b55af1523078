"""One run of the simulator, what it recorded, and what follows from that."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.cost.deployment import Deployment
from specmodel.replay.traces import Trace
from specmodel.serving import state
from specmodel.serving.apart import Apart, ready_times
from specmodel.serving.limits import Memory, Scheduler, limits_of, memory_for
from specmodel.serving.loop import compiled_serve, serve
from specmodel.serving.policies import Drafting, no_drafts, survival
from specmodel.serving.requests import Requests
from specmodel.serving.state import Asked, Limits, Outcomes, Records, Slots
from specmodel.serving.times import TabulatedTimes, tabulate

EDGES = np.concatenate([[0.0], np.geomspace(1e-4, 100.0, 240)])
"""Lower ends of the bins of the histogram of intervals between chunks of tokens [s]."""
WARM_UP, COOL_DOWN = 0.1, 0.1
"""Shares of the requests, the first and the last ones, that statistics leave out [-]."""
BATCHES = 20
"""Means that a run is cut into to judge whether it is steady [-]."""
WORTH_COMPILING = 5_000_000
"""Output tokens from which numba is imported, where it is installed: Python takes some seconds for
them, and numba one to be ready, 20 the very first time [token]."""

_LOG = [
    name.lower()
    for name in (
        *("TIME", "SECONDS", "DECODING", "DRAFT", "CONTEXT", "TOKENS"),
        *("SEEN", "CHUNKS", "EMITTED", "FREE", "RUNNING", "WAITING"),
    )
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """A server ready to run: step times, limits and memory for some requests or any like them.

    Parameters
    ----------
    times, scheduler, memory
        Step times of the deployment, what its scheduler takes, and its KV blocks.
    context
        Mean KV entries of a request that decodes [token].
    max_draft_length
        Longest draft of any policy [token].
    """

    times: TabulatedTimes
    scheduler: Scheduler
    memory: Memory
    context: float = 0.0
    max_draft_length: int = 0

    def run(
        self,
        requests: Requests,
        drafts: Drafting | None = None,
        acceptance: Acceptance | Trace | None = None,
        **options: Any,
    ) -> "Run":
        """Serve requests to their end; options are those of `simulate`."""
        return simulate(
            requests,
            times=self.times,
            scheduler=self.scheduler,
            memory=self.memory,
            drafts=drafts,
            acceptance=acceptance,
            **options,
        )


def prepare(
    deployment: Deployment, scheduler: Scheduler, requests: Requests, max_draft_length: int
) -> Service:
    """Return a server of a deployment for requests, with its step times tabulated.

    Parameters
    ----------
    deployment, scheduler, requests
        What runs where, what a step takes, and what is asked, whose contexts decide the table.
    max_draft_length
        Longest draft of any policy [token].
    """
    positions = deployment.target.max_positions
    if 0 < positions < requests.longest:
        expected = (
            f"prompts and outputs of at most {positions} tokens together, the model's context"
        )
        raise InputError("lengths", requests.longest, expected)
    memory = memory_for(deployment, scheduler, max_draft_length, requests)
    limits = limits_of(scheduler, memory, max_draft_length, requests)
    slots = (limits.blocks // (limits.fixed_blocks + 1)) if limits.blocks else 1
    times = tabulate(
        deployment,
        max_draft_length=max_draft_length,
        max_requests=min(scheduler.max_running, slots, requests.count),
        max_context=requests.longest,
        mean_context=requests.mean_context,
        token_budget=scheduler.token_budget,
    )
    return Service(
        times=times,
        scheduler=scheduler,
        memory=memory,
        context=requests.mean_context,
        max_draft_length=max_draft_length,
    )


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
        return float(self.requests.output_tokens.sum() / self.end)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a request emits in a step that decodes it [token]."""
        chunks = self.intervals.sum()
        emitted = (self.requests.output_tokens - 1).sum()
        return float(emitted / chunks) if chunks else 1.0

    @property
    def drafted_per_step(self) -> float:
        """Mean tokens drafted for a request in a step that decodes it [token]."""
        chunks = self.intervals.sum()
        return float(self.drafted_tokens.sum() / chunks) if chunks else 0.0

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


def is_worth_compiling(tokens: float) -> bool:
    """Tell whether numba is there and soon makes up for its start with so many tokens [token]."""
    return tokens >= WORTH_COMPILING and find_spec("numba") is not None


def simulate(  # noqa: PLR0913 - all keyword-only but for the requests
    requests: Requests,
    *,
    times: TabulatedTimes,
    scheduler: Scheduler,
    memory: Memory,
    drafts: Drafting | None = None,
    acceptance: Acceptance | Trace | None = None,
    prefix_hit_rate: float = 0.0,
    apart: Apart | None = None,
    seed: int = 0,
    log_steps: int = 0,
    compiled: bool | None = None,
) -> Run:
    """Serve requests to their end, and return what was recorded.

    Parameters
    ----------
    requests, times, scheduler, memory
        What is asked, seconds of a step, what a step takes, and what memory holds.
    drafts, acceptance
        What decides draft lengths (nothing is drafted if None), and how drafts fare: at random by
        position, or as recorded.
    prefix_hit_rate
        Share of every prompt, in whole blocks, that is found in the prefix cache [-].
    apart
        Servers that prefill, whose first tokens come before a request starts here; None for none.
    seed
        What decides the luck of every request and output position [-].
    log_steps
        How many steps to log, the first ones [-].
    compiled
        Whether numba is used; if None, where it is installed and worth its start.
    """
    drafts = drafts or no_drafts()
    check("prefix_hit_rate", prefix_hit_rate, minimum=0, maximum=1)
    check("seed", seed, minimum=0, whole=True)
    if drafts.max_draft_length > times.max_draft_length:
        expected = f"at most {times.max_draft_length}, the longest draft with a time"
        raise InputError("draft_length", drafts.max_draft_length, expected)
    limits = limits_of(scheduler, memory, drafts.max_draft_length, requests)
    limits = limits._replace(requests=min(limits.requests, times.max_requests))
    wants = compiled
    if compiled is None:
        wants = is_worth_compiling(float(requests.output_tokens.sum()))
    run = compiled_serve() if wants else None
    if compiled and run is None:
        raise InputError("compiled", compiled, "numba, which is not installed (the extra fast)")
    for_python = run is None
    asked = _asked(requests, prefix_hit_rate, memory.block_size, seed)
    outcomes = _outcomes(acceptance, drafts.max_draft_length)
    slots, records = _slots(limits.requests, requests.count), _records(requests.count, log_steps)
    order = np.arange(requests.count)
    if apart is not None:
        ready = ready_times(apart, requests, times, scheduler.token_budget)
        order = np.argsort(ready, kind="stable")
        asked, records = _prefilled(asked, records, ready, order)
    parts: list[Any] = [asked, outcomes, slots, records]
    if for_python:
        parts = [_as_lists(part) for part in parts]
    asked, outcomes, slots, records = parts
    tables, server = times.flat(for_python=for_python), drafts.fresh(for_python=for_python)
    (run or serve)(asked, outcomes, limits, tables, server, slots, records)
    return _run(requests, asked, records, limits, order)


def _prefilled(
    asked: Asked, records: Records, ready: FloatArray, order: NDArray[np.int64]
) -> tuple[Asked, Records]:
    """Return requests in the order in which they are prefilled, with their first tokens."""
    moved = {n: getattr(asked, n)[order] for n in ("prompt", "output", "key")}
    asked = asked._replace(arrival=ready[order], cached=moved["prompt"], ready=1, **moved)
    return asked, records._replace(first=ready[order], emitted=records.emitted + np.int32(1))


def _asked(requests: Requests, hit_rate: float, block: int, seed: int) -> Asked:
    hits = np.floor(hit_rate * requests.prompt_tokens / block).astype(np.int64) * block
    return Asked(
        arrival=np.array(requests.arrival_time, dtype=float),
        prompt=requests.prompt_tokens,
        cached=np.minimum(hits, requests.prompt_tokens - 1),
        output=requests.output_tokens,
        key=requests.keys(seed),
        ready=0,
        users=requests.users,
    )


def _outcomes(acceptance: Acceptance | Trace | None, longest: int) -> Outcomes:
    """Return what is accepted, as thresholds of luck or as recorded."""
    nothing = np.zeros(0, np.int64)
    if isinstance(acceptance, Trace):
        if longest > acceptance.max_draft_length:
            expected = f"at most {acceptance.max_draft_length}, the longest draft of the trace"
            raise InputError("draft_length", longest, expected)
        accepted = acceptance.accepted_tokens.astype(np.int64)
        lengths = np.asarray(acceptance.output_tokens, np.int64)
        return Outcomes(nothing, 1, accepted, np.asarray(acceptance.starts, np.int64), lengths)
    if acceptance is None and longest:
        raise InputError("acceptance", None, "how often drafted tokens are accepted")
    chances = survival(acceptance, longest) if acceptance else np.zeros((1, 1))
    levels = np.rint(chances * 2**32).astype(np.int64)
    return Outcomes(levels.ravel(), levels.shape[1], nothing, nothing, nothing)


def _slots(most: int, count: int) -> Slots:
    """Return empty slots of running requests; any number may have been preempted."""
    sizes = [min(most, count)] * (len(Slots._fields) - 1)
    return Slots(*(np.zeros(size, np.int64) for size in (*sizes, count)))


def _records(count: int, log_steps: int) -> Records:
    """Return empty records; four bytes a count, as there may be many requests."""
    started, first, last = (np.zeros(count) for _ in range(3))
    drafted, accepted, emitted = (np.zeros(count, np.int32) for _ in range(3))
    return Records(
        started=started,
        first=first,
        last=last,
        drafted=drafted,
        accepted=accepted,
        emitted=emitted,
        intervals=np.zeros(len(EDGES), np.int64),
        edges=EDGES,
        log=np.zeros((log_steps, state.LOG_COLUMNS)),
        wholes=np.zeros(state.WHOLES, np.int64),
        sums=np.zeros(state.SUMS),
    )


def _as_lists(part: Any) -> Any:
    return part._replace(
        **{n: v.tolist() for n, v in part._asdict().items() if isinstance(v, np.ndarray)}
    )


def _run(
    requests: Requests,
    asked: Asked,
    records: Records,
    limits: Limits,
    order: NDArray[np.int64],
) -> Run:
    """Return what was recorded, by request in the order in which they came."""
    counts = np.asarray(records.wholes)
    log = np.asarray(records.log, dtype=float)[: counts[state.LOGGED]]
    if requests.users:
        requests = replace(requests, arrival_time=np.asarray(asked.arrival))
    back = np.argsort(order)
    return Run(
        requests=requests,
        started=np.asarray(records.started)[back],
        first=np.asarray(records.first)[back],
        last=np.asarray(records.last)[back],
        drafted_tokens=np.asarray(records.drafted)[back],
        accepted_tokens=np.asarray(records.accepted)[back],
        intervals=np.asarray(records.intervals),
        counts=counts,
        sums=np.asarray(records.sums),
        log={name: log[:, i] for i, name in enumerate(_LOG)} if len(log) else {},
        limits=limits,
    )
