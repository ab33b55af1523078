"""The largest rate that a server carries within targets, by simulation, and how sure that is.

What decides is the slowness of a request: the larger of its times over their targets. A rate is
carried if the share of requests asked for has a slowness of at most 1. Times that are f times as
long at the same loads of the machine are the same runs at 1/f of the rate, with targets of 1/f; so
runs at several rates tell the capacity under any common factor of the predicted times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.serving.outcome import Run, are_steady

GROWTH = 1.25
"""From one rate of the grid to the next, of which all policies share the rates [-]."""
_HALVINGS, _COARSE_HALVINGS = 5, 3
"""How often a step of the grid is halved, and is where a search is coarse [-]."""
WIDTH = GROWTH ** (0.5**_HALVINGS)
"""From the capacity to the first rate found to fail [-]."""
_CLEAR = 0.85, 1.6
"""A slowness up to which a rate passes clearly, and one from which it fails clearly, if two
replications agree: no other is run [-]."""
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
            raise InputError("tpot_target", None, "a time such as 20ms, or --ttft-target")

    def slowness(
        self, ttft: FloatArray, tpot: FloatArray, first_token_time: float = 0.0
    ) -> FloatArray:
        """Return the larger of the times of each request over their targets, infinite for never.

        The engine adds a constant to first tokens, which is not the machine's to lengthen [-].
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
        Of the requests of each replication, rising [-].
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
        """Tell whether enough requests met the targets, and none waited ever longer."""
        return self.is_steady and self.share() >= attainment - _ROUNDING

    def is_clear(self, attainment: float) -> bool:
        """Tell whether more replications would hardly change that it passes or fails."""
        every = [quantile(own, attainment) for own in self.slowness]
        passes = self.is_steady and max(every) <= _CLEAR[0]
        return len(every) > 1 and (passes or min(every) >= _CLEAR[1])

    def quantile(self, attainment: float) -> float:
        """Return the slowness that a share of the requests is below, infinite if unsteady [-]."""
        return quantile(np.concatenate(self.slowness), attainment) if self.is_steady else np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Capacity:
    """The largest rate that passes below the first that fails, and what was found on the way.

    Parameters
    ----------
    rate
        The largest one that passes below all that fail, 0 if none does [request/s].
    attainment, loads
        Share of the requests that should meet the targets [-]; rates tried, rising.
    """

    rate: float
    attainment: float
    loads: tuple[Load, ...]

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
        """Return the capacity if all times were so many times as long [request/s].

        Between rates that were tried by a straight line in logarithms, 0 if all of them then fail.
        """
        every = self._slowness
        return self._crossing(every, 1 / factor) / factor if every[0] * factor <= 1 else 0.0

    @property
    def if_looser(self) -> float:
        """The rate that passes with targets `LOOSER` times as long, of those tried [request/s]."""
        return max(self.rate, self._crossing(self._slowness, LOOSER)) if self.rate else 0.0

    @property
    def simulated(self) -> tuple[float, float]:
        """Ends of the 80 % interval of the mean over simulations [request/s]."""
        count = max((len(load.slowness) for load in self.loads), default=0) if self.rate else 0
        if count < 2:
            return self.rate, self.rate
        own = np.log([self._crossing(self._slowness_of(i), 1.0) for i in range(count)])
        half = _T80[min(count - 2, len(_T80) - 1)] * own.std(ddof=1) / count**0.5
        return float(self.rate * np.exp(-half)), float(self.rate * np.exp(half))

    def predicted(self, factors: tuple[float, float]) -> tuple[float, float]:
        """Return the ends of an interval, from those of the factor of all times [request/s]."""
        if not self.rate:
            return 0.0, 0.0
        base = self.scaled(1.0)
        low, high = (self.rate * self.scaled(f) / base for f in sorted(factors, reverse=True))
        return low, high

    @cached_property
    def _slowness(self) -> FloatArray:
        """Slowness that is not exceeded by the share of requests at each rate [-]."""
        return np.array([load.quantile(self.attainment) for load in self.loads])

    def _slowness_of(self, replication: int) -> FloatArray:
        """Return that of a replication; of another where clear rates lack it [-]."""
        own = [load.slowness[replication % len(load.slowness)] for load in self.loads]
        return np.array([quantile(each, self.attainment) for each in own])

    def _crossing(self, quantiles: FloatArray, level: float) -> float:
        """Return the least rate at which a slowness rises above a level, its ends at most."""
        rates = np.array([load.rate for load in self.loads])
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


def search(
    try_rate: Callable[[float, bool], Load],
    attainment: float,
    start: float,
    *,
    is_coarse: bool = False,
) -> Capacity:
    """Return the capacity: up a geometric grid to the first rate that fails, halved there.

    Rates are of one grid whatever the targets, so that looser ones never carry less if they start
    no lower: each rate that passes then passes with them too.

    Parameters
    ----------
    try_rate, attainment
        What requests meet at a rate, in all replications or in as many as make it clear, and the
        share of them that should meet the targets [-].
    start
        About where to begin; if that fails, the grid is gone down first [request/s].
    is_coarse
        Whether a step is halved less often, and no rate is tried above the first that fails.
    """
    found = _Search(try_rate, attainment)
    low = first = found.down(round(np.log(start) / np.log(GROWTH)), in_all=False)
    while found.passes(low + 1):
        low += 1
        if low - first > _MOST_STEPS:
            expected = "targets that some rate fails: all up to that rate meet them"
            raise InputError("request_rate", float(f"{GROWTH**low:.3g}"), expected)
    for step in range(2, 2 if is_coarse else BEYOND + 2):
        found.passes(low + step)
    low = found.down(low, in_all=True)
    for halving in range(1, (_COARSE_HALVINGS if is_coarse else _HALVINGS) + 1):
        low += 0.5**halving * found.passes(low + 0.5**halving, in_all=True)
    return found.capacity(low)


class _Search:
    """Rates tried, by place on the grid, and whether enough requests met the targets at each.

    The place of no rate, which nothing passes at, is minus infinity.
    """

    def __init__(self, try_rate: Callable[[float, bool], Load], attainment: float) -> None:
        self.try_rate, self.attainment = try_rate, attainment
        self.tried: dict[float, Load] = {}
        self.whole: set[float] = set()

    def passes(self, place: float, *, in_all: bool = False) -> bool:
        """Tell whether a rate passes, in all replications or in as many as make it clear."""
        if place == -np.inf:
            return False
        if place not in self.tried or (in_all and place not in self.whole):
            self.tried[place] = self.try_rate(GROWTH**place, in_all)
            self.whole.update({place} if in_all else ())
        return self.tried[place].passes(self.attainment)

    def down(self, place: float, *, in_all: bool) -> float:
        """Return the place of the first rate of the grid that passes, going down, or of none."""
        for step in range(_MOST_STEPS):
            if self.passes(place - step, in_all=in_all):
                return place - step
        return -np.inf

    def capacity(self, place: float) -> Capacity:
        """Return the capacity at a place, with all rates that were tried."""
        loads = tuple(self.tried[each] for each in sorted(self.tried))
        return Capacity(rate=GROWTH**place, attainment=self.attainment, loads=loads)


def widened(
    found: Capacity, try_rate: Callable[[float, bool], Load], factors: tuple[float, float]
) -> Capacity:
    """Return a capacity with rates tried as far as its interval by factors reaches.

    Down to where times no longer fall with the rate: beyond, no rate meets the targets.
    """
    loads, (low, high), share = list(found.loads), sorted(factors), found.attainment
    falls = bool(found.rate)
    while falls and loads[0].quantile(share) > 1 / high and len(loads) < _MOST_STEPS:
        lower = try_rate(loads[0].rate / GROWTH, False)
        falls = lower.quantile(share) < _FALLING * loads[0].quantile(share)
        if lower.passes(share):  # a few requests may by chance take longer at a lower rate
            loads.insert(0, lower)
    while found.rate and loads[-1].quantile(share) < 1 / low and len(loads) < _MOST_STEPS:
        loads.append(try_rate(loads[-1].rate * GROWTH, False))
    return replace(found, loads=tuple(loads))


MEANS = (
    *("running", "tpot", "tpot_p90", "ttft", "ttft_p90"),
    *("throughput", "tokens_per_step", "drafted_tokens_per_step"),
)
"""What is told of a load, as in the rows of `serving.study`."""
NOTHING = Capacity(rate=0.0, attainment=1.0, loads=())
"""Of a server on which a request alone misses the targets."""


def load_of(rate: float, runs: Sequence[Run], own: slice, targets: Targets, added: float) -> Load:
    """Return what the measured requests of replications met; `added` to first tokens [s].

    Quantiles are of all requests together, as the share that meets targets.
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
