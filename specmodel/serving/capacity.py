"""The largest rate that a server carries within targets, by simulation, and how sure that is.

What decides is the slowness of a request: the larger of its times over their targets. A rate is
carried if the share of requests asked for has a slowness of at most 1. Times that are f times as
long at the same loads of the machine are the same runs at 1/f of the rate, with targets of 1/f; so
runs at several rates tell the capacity under any common factor of the predicted times.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace

import numpy as np

from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.serving.outcome import Run, are_steady

GROWTH = 1.25
"""From one rate of the grid to the next, of which all policies share the rates [-]."""
_HALVINGS, _FINE_HALVINGS = 3, 2
"""How often a step of the grid is halved in the first replication, and then in all, where a search
is not coarse [-]."""
BEYOND = 2
"""Rates of the grid that are tried above the first that fails [-]."""
_T80 = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383)
"""90 % points of Student's law from 1 degree of freedom, ends of 80 % intervals [-]."""
LOOSER = 1.1
"""Targets that tell how steep a capacity is, over those asked for [-]."""
_MOST_STEPS = 60
_ROUNDING = 1e-12
"""Of shares of requests, which are sums of quotients [-]."""
_FALLING = 0.995
"""Times at a rate over those at the next higher one from which no lower rate is tried: they are
those of requests that seldom meet [-]."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What requests should meet, and how many of them.

    Parameters
    ----------
    ttft, tpot
        Time to the first token and per output token, None for any [s].
    attainment
        Share of the requests that should meet both [-].
    """

    ttft: float | None = None
    tpot: float | None = None
    attainment: float = 0.9

    def __post_init__(self) -> None:
        for name in ("ttft", "tpot"):
            if getattr(self, name) is not None:
                check(f"{name}_target", getattr(self, name), above=0)
        check("attainment", self.attainment, above=0, maximum=1)
        if self.ttft is None and self.tpot is None:
            raise InputError("tpot_target", None, "a time such as 20ms, or `ttft_target`")

    def slowness(
        self, ttft: FloatArray, tpot: FloatArray, first_token_time: float = 0.0
    ) -> FloatArray:
        """Return each request's TTFT or TPOT over its target, whichever is larger [-].

        `first_token_time` [s] is added to TTFT by the engine and comes off the TTFT target; if it
        leaves nothing of that target, the result is infinite.
        """
        found = np.zeros(len(tpot))
        if self.tpot is not None:
            found = np.maximum(found, tpot / self.tpot)
        if self.ttft is not None:
            room = self.ttft - first_token_time
            found = np.maximum(found, ttft / room if room > 0 else np.inf)
        return np.asarray(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Load:
    """What requests met at one rate over all replications.

    Parameters
    ----------
    rate
        Requests that come [request/s].
    slowness
        `Targets.slowness` of the requests of each replication, in ascending order [-].
    is_steady
        Whether waiting times did not grow, by the mean over replications.
    means
        Means over replications by name, and quantiles of all requests, as in `serving.study`.
    """

    rate: float
    slowness: tuple[FloatArray, ...]
    is_steady: bool = True
    means: dict[str, float] = field(default_factory=dict)

    def share(self) -> float:
        """Return the share of requests that met the targets [-]."""
        return float(
            np.mean([np.searchsorted(own, 1.0, "right") / len(own) for own in self.slowness])
        )

    def passes(self, attainment: float) -> bool:
        """Return whether enough requests met the targets and waiting times did not grow."""
        return self.is_steady and self.share() >= attainment - _ROUNDING

    def quantile(self, attainment: float, replications: int | None = None) -> float:
        """Return the slowness that a share of the requests stays within; inf if unsteady [-].

        Over all replications, or only the first `replications`.
        """
        some = np.concatenate(self.slowness[:replications])
        return quantile(some, attainment) if self.is_steady else np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Capacity:
    """The largest rate that passes below the first that fails, and what was found on the way.

    Parameters
    ----------
    rate
        The largest one that passes below all that fail, 0 if none does [request/s].
    attainment, loads
        Share of the requests that should meet the targets [-]; rates tried, rising.
    own
        The rate up to which each replication alone meets them [request/s].
    factors
        Ends of the 80 % interval of all predicted times, over the times; None if not known [-].
    """

    rate: float
    attainment: float
    loads: tuple[Load, ...]
    own: tuple[float, ...] = ()
    factors: tuple[float, float] | None = None

    @property
    def met(self) -> Load | None:
        """What requests met at the capacity, None if no rate passes."""
        return next((load for load in self.loads if load.rate == self.rate), None)

    @property
    def passes_again(self) -> float | None:
        """A higher rate that passes again, None if none of those tried does [request/s]."""
        higher = (load for load in self.loads if load.rate > self.rate)
        return next((load.rate for load in higher if load.passes(self.attainment)), None)

    def scaled(self, factor: float) -> float:
        """Return the first replication's capacity if all times were `factor` times as long.

        In request/s, interpolated in log-log between the rates tried; 0 if even the lowest fails.
        """
        slowness = np.array([load.quantile(self.attainment, 1) for load in self.loads])
        if slowness[0] * factor > 1:
            return 0.0
        rates = np.array([load.rate for load in self.loads])
        return crossing(rates, slowness, 1 / factor) / factor

    @property
    def if_looser(self) -> float:
        """The rate that passes with targets `LOOSER` times as long, of those tried [request/s]."""
        if not self.rate:
            return 0.0
        return self.rate * max(self.scaled(1 / LOOSER) / LOOSER / self._base, 1.0)

    @property
    def _base(self) -> float:
        return self.scaled(1.0) or self.rate

    @property
    def simulated(self) -> tuple[float, float]:
        """Ends of the 80 % interval of the mean capacity over simulations [request/s].

        About `rate`, from the spread of `own`; both are `rate` with fewer than two of these.
        """
        count = len(self.own)
        if count < 2:
            return self.rate, self.rate
        half = _T80[min(count - 2, len(_T80) - 1)] * np.log(self.own).std(ddof=1) / count**0.5
        return float(self.rate * np.exp(-half)), float(self.rate * np.exp(half))

    @property
    def predicted(self) -> tuple[float, float] | None:
        """Ends of the interval from that of the factor of all times [request/s]."""
        if self.factors is None:
            return None
        low, high = (self.rate * self.scaled(f) / self._base for f in self.factors[::-1])
        return low, high


def crossing(rates: FloatArray, quantiles: FloatArray, level: float) -> float:
    """Return the lowest rate at which slowness exceeds `level`, within the rates [request/s].

    Interpolated in log-log between rates.
    """
    over = np.flatnonzero(quantiles > level)
    if not len(over):
        return float(rates[-1])
    at = int(over[0])
    if at == 0:
        return float(rates[0])
    ends = np.log(np.minimum(quantiles[at - 1 : at + 1], 1e9))
    part = (np.log(level) - ends[0]) / (ends[1] - ends[0])
    return float(rates[at - 1] * (rates[at] / rates[at - 1]) ** part)


def quantile(slowness: FloatArray, share: float) -> float:
    """Return the slowness that a share of the requests stays below [-]."""
    place = max(int(np.ceil((share - _ROUNDING) * len(slowness))) - 1, 0)
    return float(np.partition(slowness, place)[place])


Tried = Callable[[float, Sequence[int]], Load]
"""What requests meet at a rate in replications, by their places."""
_FIRST = (0,)


def search(
    try_rate: Tried,
    attainment: float,
    start: float,
    *,
    replications: int = 1,
    is_coarse: bool = False,
) -> Capacity:
    """Return the capacity: up a geometric grid to the first rate that fails, halved there.

    The first replication finds about where, and all of them decide from there. Where more requests
    a second never meet targets better, that is what all of them find at every rate.
    Rates are of one grid whatever the targets, so that looser ones never carry less if they start
    no lower: each rate that passes then passes with them too.

    Parameters
    ----------
    try_rate, attainment
        What requests meet at a rate, and the share of them that should meet the targets [-].
    start
        About where to begin; if that fails, the grid is gone down first [request/s].
    replications
        Number of replications in which each rate is simulated [-].
    is_coarse
        Whether a step is halved less often, and no rate is tried above the first that fails.
    """
    first = _Search(try_rate, attainment, _FIRST)
    low = first.up(first.down(float(round(np.log(start) / np.log(GROWTH)))))
    for beyond in range(2, 2 if is_coarse else BEYOND + 2):
        first.passes(low + beyond)
    for halving in range(1, _HALVINGS + 1):
        low += 0.5**halving * first.passes(low + 0.5**halving)
    step, found = 0.5**_HALVINGS, _Search(try_rate, attainment, range(replications))
    low = about = found.up(found.down(low, step), step)
    for halving in range(1, 1 if is_coarse else _FINE_HALVINGS + 1):
        low += step * 0.5**halving * found.passes(low + step * 0.5**halving)
    own = tuple(found.own_capacity(i, about, step) for i in found.which if low > -np.inf)
    tried = first.tried | found.tried
    loads = tuple(tried[place] for place in sorted(tried))
    return Capacity(rate=GROWTH**low, attainment=attainment, loads=loads, own=own)


@dataclass(frozen=True, eq=False)
class _Search:
    """Rates tried in some replications, by place on the grid.

    The place of no rate, which nothing passes at, is minus infinity.
    """

    try_rate: Tried
    attainment: float
    which: Sequence[int]
    tried: dict[float, Load] = field(default_factory=dict)

    def passes(self, place: float) -> bool:
        """Return whether enough requests meet the targets at rate ``GROWTH**place``."""
        if place == -np.inf:
            return False
        if place not in self.tried:
            self.tried[place] = self.try_rate(GROWTH**place, self.which)
        return self.tried[place].passes(self.attainment)

    def down(self, place: float, step: float = 1.0) -> float:
        """Return the place of the first rate that passes, going down by `step`; -inf if none."""
        for count in range(_MOST_STEPS):
            if self.passes(place - count * step):
                return place - count * step
        return -np.inf

    def up(self, place: float, step: float = 1.0) -> float:
        """Return the place of the last rate before one that fails, going up by steps."""
        for count in range(_MOST_STEPS):
            if not self.passes(place + (count + 1) * step):
                return place + count * step
        expected = "stricter targets: all rates tried, up to this one, meet them"
        raise InputError("request_rate", float(f"{GROWTH**place:.3g}"), expected)

    def own_capacity(self, replication: int, place: float, step: float) -> float:
        """Return the largest rate at which one replication by itself meets the targets [request/s].

        From `place` on the grid of rates, further ones are tried `step` apart, up to 1 away.
        """
        found = {
            at: quantile(load.slowness[replication], self.attainment)
            for at, load in self.tried.items()
        }

        def slowness(at: float) -> float:
            if at not in found:
                only = self.try_rate(GROWTH**at, [replication])
                found[at] = only.quantile(self.attainment)
            return found[at]

        low, high = place, place + step
        while low > place - 1 and slowness(low) > 1:
            low -= step
        while high < place + 1 and slowness(high) <= 1:
            high += step
        places = np.array(sorted(found))
        return crossing(GROWTH**places, np.array([found[at] for at in places]), 1.0)


def widened(found: Capacity, try_rate: Tried, factors: tuple[float, float]) -> Capacity:
    """Return a capacity with rates tried as far as its interval by factors reaches.

    Down to where times no longer fall with the rate: beyond, no rate meets the targets.
    """
    loads, (low, high), share = list(found.loads), factors, found.attainment
    falls = bool(found.rate)
    while falls and loads[0].quantile(share) > 1 / high and len(loads) < _MOST_STEPS:
        lower = try_rate(loads[0].rate / GROWTH, _FIRST)
        falls = lower.quantile(share) < _FALLING * loads[0].quantile(share)
        if lower.passes(share):  # a few requests may by chance take longer at a lower rate
            loads.insert(0, lower)
    while found.rate and loads[-1].quantile(share) < 1 / low and len(loads) < _MOST_STEPS:
        loads.append(try_rate(loads[-1].rate * GROWTH, _FIRST))
    return replace(found, loads=tuple(loads), factors=factors)


MEANS = (
    *("running", "tpot", "tpot_p90", "ttft", "ttft_p90"),
    *("throughput", "tokens_per_step", "drafted_tokens_per_step"),
)
"""What is told of a load, as in the rows of `serving.study`."""
NOTHING = Capacity(rate=0.0, attainment=1.0, loads=())
"""Of a server on which a request alone misses the targets."""


def load_of(rate: float, runs: Sequence[Run], own: slice, targets: Targets, added: float) -> Load:
    """Return the `Load` of the measured requests of some runs; `added` is added to each TTFT [s].

    Quantiles are over the requests of all runs pooled, and so is the share that meets the targets.
    """
    ttft, tpot = ([run.ttft[own] for run in runs], [run.tpot[own] for run in runs])
    weights = [np.maximum(run.requests.output_tokens[own] - 1, 1e-9) for run in runs]
    means = (
        np.mean([run.running for run in runs]),
        np.mean([np.average(t, weights=w) for t, w in zip(tpot, weights, strict=True)]),
        np.quantile(np.concatenate(tpot), 0.9),
        np.mean([each.mean() + added for each in ttft]),
        np.quantile(np.concatenate(ttft), 0.9) + added,
        np.mean([run.throughput for run in runs]),
        np.mean([run.tokens_per_step for run in runs]),
        np.mean([run.drafted_per_step for run in runs]),
    )
    slowness = (targets.slowness(*each, added) for each in zip(ttft, tpot, strict=True))
    return Load(
        rate=rate,
        slowness=tuple(map(np.sort, slowness)),
        is_steady=all(run.is_steady for run in runs) or are_steady(runs),
        means=dict(zip(MEANS, map(float, means), strict=True)),
    )
