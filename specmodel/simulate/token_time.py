"""How a fixed set of requests runs down, in closed form: running requests advance together.

On the axis of token time each running request makes one token a unit, whatever steps take, so that
who runs with whom follows from lengths alone: first come first served, in as many slots as the
scheduler and memory have. A unit takes a step over its tokens, at the draft length, requests and
mean context then; prompts add theirs. The noise of its drafts, and how much requests differ in
acceptance, spread the end of a request as a normal law, of which each request gets a quantile. That
a slow one slows others is left out, and blocks of memory are taken as if they could be divided.
"""

from collections import Counter, deque
from heapq import heappop, heappush

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.units import FloatArray
from specmodel.simulate.accepted import spread_survival, survival
from specmodel.simulate.requests import Requests
from specmodel.simulate.service import Service

_QUANTILES = 16
"""Quantiles of noise that are taken of each request [-]."""
_ALIKE = 1e-6
"""Requests whose ends are no farther apart end with the same step [token]."""


class Course(Struct, frozen=True, kw_only=True, eq=False):
    """What came of the requests of a server.

    Parameters
    ----------
    begun, first, done
        When each was first scheduled, and made its first and last token [s].
    """

    begun: FloatArray
    first: FloatArray
    done: FloatArray


class Timeline(Struct, frozen=True, kw_only=True, eq=False):
    """Spans of token time in which the same requests run.

    Parameters
    ----------
    tokens, running, context
        How long each is [token], its requests [request], and their mean context [token].
    prefills
        Span in which prompts were taken in, their tokens, and entries that one sees [token].
    begun, first, done
        Span that each request was admitted before, began to decode before, and ended before [-].
    """

    tokens: FloatArray
    running: NDArray[np.int64]
    context: FloatArray
    prefills: FloatArray
    begun: NDArray[np.int64]
    first: NDArray[np.int64]
    done: NDArray[np.int64]


class Pace(Struct, frozen=True, kw_only=True, eq=False):
    """Tokens per step by draft length [token]: mean, variance over mean, and mean overshoot.

    The overshoot `beyond` is of the last step, past the end of an output. `lengths` are draft
    lengths by running requests, from 0 to the most [token]. `between` is by how much requests
    differ in the steps for as many tokens, as standard deviation over mean [-].
    """

    lengths: NDArray[np.int64]
    tokens: FloatArray
    spread: FloatArray
    beyond: FloatArray
    between: FloatArray


def pace_of(service: Service, acceptance: Acceptance, length: int | None = None) -> Pace:
    """Return tokens per step and their spread under a policy, or one draft length in its place."""
    most = min(service.limits.max_running, service.times.max_requests)
    sizes = np.arange(most + 1)
    lengths = service.drafts.lengths(sizes) if length is None else np.full_like(sizes, length)
    chances = survival(acceptance, int(lengths.max()))
    mean = 1 + chances.sum(axis=1)
    square = 1 + (chances * (2 * np.arange(chances.shape[1]) + 3)).sum(axis=1)
    spread, beyond = square / mean - mean, (square / mean - 1) / 2
    by_class = spread_survival(chances[None], service.acceptance_by_request)[:, 0]
    steps = 1 / (1 + by_class.sum(axis=-1))
    between = steps.std(axis=0) / steps.mean(axis=0)
    return Pace(lengths=lengths, tokens=mean, spread=spread, beyond=beyond, between=between)


class _Slots:
    """A server's slots and memory on the axis of token time."""

    def __init__(self, service: Service, requests: Requests, need: FloatArray, pace: Pace) -> None:
        self.limits, self.pace, self.need = service.limits, pace, need.tolist()
        self.prompts: list[int] = requests.prompt_tokens.tolist()
        self.cached = service.cached_tokens(requests).tolist()
        self.group, self.shared = (each.tolist() for each in service.shared_blocks(requests))
        self.sharers, count = Counter[int](), requests.count
        self.waiting, self.ends = deque(range(count)), list[tuple[float, int, int]]()
        self.order, self.entry = list[tuple[int, int]](), [0] * count
        self.pending, self.now, self.gate, self.hold = list[int](), 0.0, 0.0, 0.0
        self.free, self.running, self.context = float(self.limits.blocks), 0, 0.0
        self.made, self.since, self.entries = [0.0] * count, [0.0] * count, 0
        self.spans, self.prefills = list[tuple[float, int, float]](), list[tuple[float, ...]]()
        self.begun, self.first, self.done = [-1] * count, [-1] * count, [0] * count

    def held(self, i: int) -> float:
        """Return the KV blocks of a request with its tokens so far, without shared blocks [-]."""
        limits = self.limits
        entries = self.prompts[i] + self.made[i] + limits.reserved_tokens
        others = self.shared[i] if self.sharers[self.group[i]] else 0.0
        return max(entries / limits.block_size + 0.5, 1.0) + limits.fixed_blocks - others

    def admit(self) -> None:
        """Admit prompts that fit into a step and into memory; they decode from the next step on."""
        while self.ends and self.entry[self.ends[0][2]] != self.ends[0][1]:
            heappop(self.ends)  # of one that was preempted
        others_end = bool(self.ends) and self.ends[0][0] < self.now + _ALIKE
        if self.pending or others_end or (self.now < self.hold and self.running):
            return
        length = int(self.pace.lengths[self.running])
        room = max(self.limits.token_budget - self.running * (length + 1), 1)
        taken = seen = 0.0
        while self.waiting and taken < room:
            i = self.waiting[0]
            busy = self.running + len(self.pending)
            if busy == len(self.pace.lengths) - 1 or (busy and self.held(i) > self.free):
                break
            self.pending.append(self.waiting.popleft())
            self.free -= self.held(i)
            is_held = self.shared[i] and self.sharers[self.group[i]]
            self.sharers[self.group[i]] += 1
            cached = self.cached[i] if is_held or not self.made[i] else 0.0
            chunk = self.prompts[i] + self.made[i] - cached
            taken, seen = taken + chunk, seen + chunk * (cached + (chunk + 1) / 2)
            if self.begun[i] < 0:
                self.begun[i] = len(self.spans)
        if self.pending:
            self.gate = self.now + self.pace.tokens[length] * max(taken / room, 1.0)
            self.prefills.append((len(self.spans), taken, seen / taken, room))

    def step(self) -> None:
        """Advance to the next event: a prompt is prefilled, a request ends, or memory is full."""
        end = self.ends[0][0] if self.ends else np.inf
        gate = self.gate if self.pending else np.inf
        blocks = self.free * self.limits.block_size
        full = self.now + max(blocks, 0.0) / self.running if self.running > 1 else np.inf
        then = min(end, gate, full)
        made = then - self.now
        context = (self.context / self.running + made / 2) if self.running else 0.0
        self.spans.append((made, self.running, context))
        self.free -= self.running * made / self.limits.block_size
        self.context += self.running * made
        self.now = then
        if end <= then + _ALIKE:
            self.leave(heappop(self.ends)[2], is_done=True)
        elif then == gate:
            self.begin()
        else:
            while self.entry[self.order[-1][1]] != self.order[-1][0]:
                self.order.pop()  # of one that ended
            self.leave(self.order.pop()[1], is_done=False)

    def begin(self) -> None:
        """Let requests whose prompts were taken in decode."""
        for i in self.pending:
            self.entries += 1
            self.entry[i], self.since[i] = self.entries, self.now
            self.order.append((self.entries, i))
            heappush(self.ends, (self.now + self.need[i] - self.made[i], self.entries, i))
            self.context += self.prompts[i] + self.made[i]
            if self.first[i] < 0:
                self.first[i] = len(self.spans)
        self.running += len(self.pending)
        self.pending.clear()

    def leave(self, i: int, *, is_done: bool) -> None:
        """Let a request end, or wait to be computed anew."""
        self.made[i] += self.now - self.since[i]
        self.running, self.entry[i] = self.running - 1, 0
        self.context -= self.prompts[i] + self.made[i]
        self.sharers[self.group[i]] -= 1
        self.free += self.held(i)
        if is_done:
            self.done[i] = len(self.spans)
        else:
            self.waiting.appendleft(i)
            self.hold = self.now + self.pace.tokens[self.pace.lengths[self.running]]


def timeline(service: Service, requests: Requests, need: FloatArray, pace: Pace) -> Timeline:
    """Return which requests run together, if each needs `need` tokens after its first [token]."""
    slots = _Slots(service, requests, need, pace)
    while slots.waiting or slots.running or slots.pending:
        slots.admit()
        slots.step()
    tokens, running, context = np.array(slots.spans).T
    kept = {n: np.array(getattr(slots, n)) for n in ("prefills", "begun", "first", "done")}
    return Timeline(tokens=tokens, running=running.astype(np.int64), context=context, **kept)


def span_times(service: Service, line: Timeline, pace: Pace) -> FloatArray:
    """Return the time of each span, at the draft length that `pace` has for its batch size [s]."""
    lengths, found = pace.lengths[line.running], np.zeros(len(line.tokens))
    for k in np.unique(lengths):
        own = (lengths == k) & (line.running > 0)
        step = service.times.step_time(int(k), line.running[own], line.context[own])
        found[own] = line.tokens[own] * step / pace.tokens[k]
    span, taken, seen, room = line.prefills.T
    at = span.astype(np.int64)
    for k in np.unique(lengths[at]):
        own = lengths[at] == k
        part = np.minimum(taken, room)[own]
        added = service.times.prompt_time(int(k), line.running[at[own]], part, seen[own])
        found[at[own]] += added * taken[own] / part
    return found


def course(service: Service, requests: Requests, acceptance: Acceptance) -> Course:
    r"""Return when requests that are all there at once are done, under a policy by batch.

    .. math:: T = \int \frac{t_{K(B)}(B, c)}{E_{K(B)}}\, \mathrm{d}\tau +
              \sum_\mathrm{steps\ with\ prompts} t_\mathrm{prompts}
    """
    pace, need = pace_of(service, acceptance), np.asarray(requests.output_tokens - 1.0)
    line = timeline(service, requests, need, pace)
    if pace.lengths.any():
        line = timeline(service, requests, _with_noise(line, need, pace), pace)
    ends = np.concatenate([[0.0], np.cumsum(span_times(service, line, pace))])
    return Course(begun=ends[line.begun], first=ends[line.first], done=ends[line.done])


def _with_noise(line: Timeline, need: FloatArray, pace: Pace) -> FloatArray:
    """Return tokens that requests need, as if all advanced alike but some had farther to go.

    Noise of drafts is drawn anew in each step, and adds up as its variance does; how a request
    differs from others stays, and adds up as it is. Quantiles of all requests' ends together are
    given to them in the order of their own draws.
    """
    from scipy.special import ndtri

    lengths = pace.lengths[line.running]
    each = np.stack([pace.spread, pace.between])[:, lengths] * line.tokens
    sums = np.concatenate([np.zeros((2, 1)), np.cumsum(each, axis=1)], axis=1)
    drawn, own = sums[:, line.done] - sums[:, line.first]
    deviation = np.sqrt(drawn + own**2)
    place = (np.random.default_rng(0).permutation(len(need)) + 0.5) / len(need)
    noise = ndtri((np.arange(_QUANTILES) + place[:, None]) / _QUANTILES)
    every = np.sort((need[:, None] + deviation[:, None] * noise).ravel()).reshape(-1, _QUANTILES)
    found = np.empty_like(need)
    middle = every[:, _QUANTILES // 2 - 1 : _QUANTILES // 2 + 1].mean(axis=1)
    found[np.argsort(need + deviation * ndtri(place), kind="stable")] = middle
    last = lengths[np.maximum(line.done - 1, 0)]
    steps = np.rint((found + pace.beyond[last]) / pace.tokens[last])
    return np.where(need > 0, np.maximum(steps, 1.0) * pace.tokens[last], 0.0)
