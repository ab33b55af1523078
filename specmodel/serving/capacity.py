"""The largest rate that a server carries within targets, by simulation, and how sure that is.

What decides is the slowness of a request: the larger of its times over their targets. A rate is
carried if the share of requests asked for has a slowness of at most 1. Times that are f times as
long at the same loads of the machine are the same runs at 1/f of the rate, with targets of 1/f; so
runs at several rates tell the capacity under any common factor of the predicted times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.serving.outcome import Run

GROWTH = 1.25
"""From one rate of the grid to the next, of which all policies share the rates [-]."""
WIDTH = GROWTH ** (2.0**-5)
"""From the rate that is promised to the first found to fail, at most [-]."""
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
    """What requests met at one rate, or with so many users, over all replications.

    Parameters
    ----------
    rate
        Requests a second, or users [request/s].
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

    def share(self, longest: float = 1.0) -> float:
        """Return the share of requests with at most this slowness [-]."""
        pooled = [np.searchsorted(own, longest, "right") / len(own) for own in self.slowness]
        return float(np.mean(pooled))

    def passes(self, attainment: float) -> bool:
        """Tell whether enough requests met the targets, and none waited ever longer."""
        return self.is_steady and self.share() >= attainment

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
    rate, fails
        The rate that can be promised, 0 if none passes, and the least one found to fail
        [request/s].
    passes_again
        A higher rate that passes again, None if none of those tried does [request/s].
    attainment, loads
        Share of the requests that should meet the targets [-]; rates tried, rising.
    """

    rate: float
    fails: float
    passes_again: float | None
    attainment: float
    loads: tuple[Load, ...]

    @property
    def promised(self) -> Load | None:
        """What requests met at the rate that can be promised, None if none can."""
        return next((load for load in self.loads if load.rate == self.rate), None)

    def scaled(self, factor: float) -> float:
        """Return the capacity if all times were so many times as long [request/s].

        Between rates that were tried by a straight line in logarithms, 0 if all of them then fail.
        """
        every = np.array([load.quantile(self.attainment) for load in self.loads])
        return self._crossing(every, 1 / factor) / factor if every[0] * factor <= 1 else 0.0

    @property
    def if_looser(self) -> float:
        """The rate that passes with targets `LOOSER` times as long, of those tried [request/s]."""
        every = [load.quantile(self.attainment) for load in self.loads]
        return max(self.rate, self._crossing(np.array(every), LOOSER)) if self.rate else 0.0

    @property
    def simulated(self) -> tuple[float, float]:
        """Ends of the 80 % interval of the mean over simulations [request/s]."""
        count = max((len(load.slowness) for load in self.loads), default=0) if self.rate else 0
        if count < 2:
            return self.rate, self.rate
        own = np.log([self._crossing(self._quantiles(i), 1.0) for i in range(count)])
        half = _T80[min(count - 2, len(_T80) - 1)] * own.std(ddof=1) / count**0.5
        return float(self.rate * np.exp(-half)), float(self.rate * np.exp(half))

    def predicted(self, factors: tuple[float, float]) -> tuple[float, float]:
        """Return the ends of an interval, from those of the factor of all times [request/s]."""
        if not self.rate:
            return 0.0, 0.0
        base = self.scaled(1.0)
        low, high = (self.rate * self.scaled(f) / base for f in sorted(factors, reverse=True))
        return low, high

    def _quantiles(self, replication: int) -> FloatArray:
        """Return the quantiles of a replication; of another where clear rates lack it [-]."""
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
    place = int(np.ceil(share * len(slowness))) - 1
    return float(np.partition(slowness, place)[place])


def search(try_rate: Callable[[float, bool], Load], attainment: float, start: float) -> Capacity:
    """Return the capacity: up a geometric grid to the first rate that fails, halved there.

    Parameters
    ----------
    try_rate, attainment
        What requests meet at a rate, in all replications or in as many as make it clear, and the
        share of them that should meet the targets [-].
    start
        About where to begin; if that fails, the grid is gone down first [request/s].
    """
    tried, whole = dict[float, Load](), set[float]()

    def passes(rate: float, *, in_all: bool = False) -> bool:
        if rate not in tried or (in_all and rate not in whole):
            tried[rate] = try_rate(rate, in_all)
            whole.update({rate} if in_all else ())
        return tried[rate].passes(attainment)

    narrowed = partial(_narrowed, partial(passes, in_all=True), tried, attainment)
    first = round(np.log(start) / np.log(GROWTH))
    while not passes(GROWTH**first):
        first -= 1
        if len(tried) > _MOST_STEPS:
            return _found(tried, 0.0, GROWTH ** (first + 1), attainment)
    last = first
    while passes(GROWTH ** (last + 1)):
        last += 1
        if last - first > _MOST_STEPS:
            expected = "targets that some rate fails: all up to that rate meet them"
            raise InputError("request_rate", float(f"{GROWTH**last:.3g}"), expected)
    for step in range(2, BEYOND + 2):
        passes(GROWTH ** (last + step))
    low, high = narrowed(GROWTH**last, GROWTH ** (last + 1))
    while not passes(low, in_all=True) and len(tried) <= _MOST_STEPS:
        below = [rate for rate in tried if rate < low and passes(rate)]
        low, high = narrowed(max(below), low) if below else (low / GROWTH, low)
    return _found(tried, low if passes(low) else 0.0, high, attainment)


def _narrowed(
    passes: Callable[[float], bool],
    tried: Mapping[float, Load],
    attainment: float,
    low: float,
    high: float,
) -> tuple[float, float]:
    """Return a rate that passes and one that fails beside it, from two that were tried.

    By where a straight line in logarithms meets the targets; halved where that helped less.
    """
    is_curved = False
    while (span := np.log(high / low)) > np.log(WIDTH) * (1 + 1e-9):
        before, after = (
            np.log(max(tried[rate].quantile(attainment), 1e-9)) for rate in (low, high)
        )
        part, margin = 0.5, 0.5 * np.log(WIDTH) / span
        if not is_curved and after < 1:
            part = before / (before - after)
            part = np.clip(part + (margin if part < 0.5 else -margin), margin, 1 - margin)
        middle = float(low * (high / low) ** part)
        low, high = (middle, high) if passes(middle) else (low, middle)
        is_curved = np.log(high / low) > span / 2
    return low, high


def widened(
    found: Capacity, try_rate: Callable[[float, bool], Load], factors: tuple[float, float]
) -> Capacity:
    """Return a capacity with rates tried as far as its interval by factors reaches.

    Down to where times no longer fall with the rate: beyond, no rate meets the targets.
    """
    loads, (low, high), share = list(found.loads), sorted(factors), found.attainment
    falls = bool(found.rate)
    while falls and loads[0].quantile(share) > 1 / high and len(loads) < _MOST_STEPS:
        loads.insert(0, try_rate(loads[0].rate / GROWTH, False))
        falls = loads[0].quantile(share) < _FALLING * loads[1].quantile(share)
    while found.rate and loads[-1].quantile(share) < 1 / low and len(loads) < _MOST_STEPS:
        loads.append(try_rate(loads[-1].rate * GROWTH, False))
    return replace(found, loads=tuple(loads))


def _found(tried: dict[float, Load], rate: float, fails: float, attainment: float) -> Capacity:
    again = [r for r, load in tried.items() if r > fails and load.passes(attainment)]
    return Capacity(
        rate=rate,
        fails=fails,
        passes_again=min(again, default=None),
        attainment=attainment,
        loads=tuple(tried[r] for r in sorted(tried)),
    )


MEANS = (
    *("running", "tpot", "tpot_p90", "ttft", "ttft_p90"),
    *("throughput", "tokens_per_step", "drafted_tokens_per_step"),
)
"""What is told of a load, as in the rows of `serving.study`."""
NOTHING = Capacity(rate=0.0, fails=0.0, passes_again=None, attainment=1.0, loads=())
"""Of a server on which a request alone misses the targets."""


def load_of(rate: float, runs: Sequence[Run], own: slice, targets: Targets, added: float) -> Load:
    """Return what the measured requests of replications met; `added` to first tokens [s]."""
    slowness, rows = [], []
    for run in runs:
        ttft, tpot = run.ttft[own], run.tpot[own]
        slowness.append(np.sort(targets.slowness(ttft, tpot, added)))
        weights = np.maximum(run.requests.output_tokens[own] - 1, 1e-9)
        rows.append(
            {
                "running": run.running,
                "tpot": float(np.average(tpot, weights=weights)),
                "ttft": float(ttft.mean()) + added,
                "throughput": run.throughput,
                "tokens_per_step": run.tokens_per_step,
                "drafted_tokens_per_step": run.drafted_per_step,
            }
        )
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    for name in ("tpot", "ttft"):  # of all requests together, as the share that meets targets
        every = np.concatenate([getattr(run, name)[own] for run in runs])
        means[f"{name}_p90"] = float(np.quantile(every, 0.9)) + (added if name == "ttft" else 0.0)
    return Load(
        rate=rate,
        slowness=tuple(slowness),
        is_steady=_are_steady(runs),
        means={name: means[name] for name in MEANS},
    )


def _are_steady(runs: Sequence[Run]) -> bool:
    """Tell whether waiting times do not grow, as `Run.is_steady` of one run, by their mean."""
    if all(run.is_steady for run in runs):
        return True
    growths = np.array([run.growth for run in runs])
    slope, error = growths[:, 0].mean(), float(np.hypot.reduce(growths[:, 1])) / len(runs)
    stays = [float((run.last - run.started)[run.measured].mean()) for run in runs]
    return bool(slope <= max(3 * error, 0.5 * np.mean(stays)))
