"""Find the largest rate that a server sustains within targets by simulation, and its interval.

The slowness of a request is its TTFT or TPOT divided by the target, whichever ratio is larger. The
server sustains a rate if enough requests have a slowness of at most 1. If all step times were f
times as long, a run at 1/f of the rate would have the same batches, and its times would be f times
as long. Runs at several rates therefore give the capacity for any common factor of the times.
"""

from collections.abc import Callable

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, check

GROWTH = 1.25
"""Ratio of successive rates of the coarse grid, which all policies share [-]."""
FINE = 16
"""Parts into which the fine grid divides a step of the coarse grid [-]."""
BEYOND = 2
"""Rates tried above the first that fails, where single replications may still pass [-]."""
_T80 = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383)
"""90 % points of Student's t distribution from 1 degree of freedom, ends of 80 % intervals [-]."""
_MOST_STEPS = 60
_ROUNDING = 1e-12
"""Rounding error of a share of requests [-]."""
_FALLING = 0.995
"""Ratio of the times at a rate and at the next higher rate from which no lower rate is tried [-].

Requests then seldom run together, and their times hardly depend on the rate.
"""


class Targets(Struct, frozen=True, kw_only=True):
    """Latency targets, and the share of requests that should meet them.

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

        The engine adds `first_token_time` [s] to TTFT, so it is subtracted from the TTFT target. If
        nothing is left of that target, the result is infinite.
        """
        found = np.zeros(len(tpot))
        if self.tpot is not None:
            found = np.maximum(found, tpot / self.tpot)
        if self.ttft is not None:
            room = self.ttft - first_token_time
            found = np.maximum(found, ttft / room if room > 0 else np.inf)
        return np.asarray(found)


class Load(Struct, frozen=True, kw_only=True, eq=False):
    """Measurements of requests at one rate, over all replications.

    Parameters
    ----------
    rate
        Requests that arrive [request/s].
    slowness
        `Targets.slowness` of the requests of each replication, in ascending order [-].
    is_steady
        Whether waiting times did not grow, by the mean over replications.
    means
        Means over replications and quantiles of all requests, by the names of `outcome.MEANS`.
    """

    rate: float
    slowness: tuple[FloatArray, ...]
    is_steady: bool = True
    means: dict[str, float] = field(default_factory=dict)

    def share(self) -> float:
        """Return the share of requests that met the targets [-]."""
        counts = [np.searchsorted(own, 1.0, "right") / len(own) for own in self.slowness]
        return float(np.mean(counts))

    def passes(self, attainment: float) -> bool:
        """Return whether enough requests met the targets and waiting times did not grow."""
        return self.quantile(attainment) <= 1

    def quantile(self, attainment: float, replication: int | None = None) -> float:
        """Return a quantile of slowness over all replications, or over one; inf if unsteady [-]."""
        if not self.is_steady:
            return np.inf
        own = self.slowness if replication is None else self.slowness[replication : replication + 1]
        slowness = np.concatenate(own)
        place = max(int(np.ceil((attainment - _ROUNDING) * len(slowness))) - 1, 0)
        return float(np.partition(slowness, place)[place])


class Capacity(Struct, frozen=True, kw_only=True, eq=False):
    """The largest rate below the first rate that misses the targets, and the rates tried.

    Parameters
    ----------
    rate
        The largest rate that meets the targets below all that miss them, 0 if none does
        [request/s].
    attainment, loads
        Share of the requests that should meet the targets [-]; rates tried, in ascending order.
    factors
        Ends of the 80 % interval of all predicted times, relative to the times; None if unknown
        [-].
    """

    rate: float
    attainment: float
    loads: tuple[Load, ...]
    factors: tuple[float, float] | None = None

    @property
    def met(self) -> Load | None:
        """The load at the capacity; None if no rate meets the targets."""
        return next((load for load in self.loads if load.rate == self.rate), None)

    @property
    def by_replication(self) -> list[float]:
        """The largest rate at which each replication alone meets the targets [request/s]."""
        count = len(self.loads[0].slowness) if self.rate else 0
        return [self.crossing(1.0, n) or self.loads[0].rate for n in range(count)]

    def scaled(self, factor: float) -> float:
        """Return the capacity if all times were `factor` times as long [request/s]."""
        return self.crossing(1 / factor) / factor

    def crossing(self, level: float, replication: int | None = None) -> float:
        """Return the lowest rate at which slowness exceeds a level, within rates tried [request/s].

        The rate is interpolated between the rates tried, on log-log scales. It is 0 if slowness
        exceeds the level even at the lowest rate tried.
        """
        rates = [load.rate for load in self.loads]
        slowness = [load.quantile(self.attainment, replication) for load in self.loads]
        at = next((at for at, value in enumerate(slowness) if value > level), None)
        if not at:
            return rates[-1] if at is None else 0.0
        low, high = np.log(np.minimum(slowness[at - 1 : at + 1], 1e9))
        part = (np.log(level) - low) / (high - low)
        return float(rates[at - 1] * (rates[at] / rates[at - 1]) ** part)

    @property
    def simulated(self) -> tuple[float, float]:
        """Ends of the 80 % interval of the mean capacity over simulations [request/s].

        The interval is around `rate`, from the spread of `by_replication`. With fewer than two
        replications, both ends are `rate`.
        """
        rates, count = self.by_replication, len(self.by_replication)
        if count < 2:
            return self.rate, self.rate
        half = _T80[min(count - 2, len(_T80) - 1)] * np.log(rates).std(ddof=1) / count**0.5
        return float(self.rate * np.exp(-half)), float(self.rate * np.exp(half))

    @property
    def predicted(self) -> tuple[float, float] | None:
        """Ends of the interval that follows from the interval of all times [request/s]."""
        if self.factors is None:
            return None
        base = self.scaled(1.0) or self.rate
        low, high = (self.rate * self.scaled(f) / base for f in self.factors[::-1])
        return low, high


def search(try_rate: Callable[[float], Load], attainment: float, start: float) -> Capacity:
    """Return the capacity, searched on a coarse grid of rates and then on a fine one.

    The capacity is the largest rate of the fine grid that meets the targets, if requests at higher
    rates are never faster. Both grids are geometric, and the same for all targets and policies.

    Parameters
    ----------
    try_rate, attainment
        Function that returns the `Load` at a rate, and the share of the requests that should meet
        the targets [-].
    start
        First rate to try, approximately; lower rates follow while the targets are missed
        [request/s].
    """
    tried: dict[int, Load] = {}

    def passes(place: int) -> bool:
        if place not in tried:
            tried[place] = try_rate(GROWTH ** (place / FINE))
        return tried[place].passes(attainment)

    def last_passing(start: float, step: int) -> int | None:
        """Go down from a rate to one that passes, then up to the last one before a failure."""
        place = step * round(np.log(start) / np.log(GROWTH) * FINE / step)
        low = next(filter(passes, range(place, place - _MOST_STEPS * step, -step)), None)
        for place in () if low is None else range(low, low + _MOST_STEPS * step, step):
            if not passes(place + step):
                return place
        if low is None:
            return None
        expected = "All rates up to this one meet the targets. Give stricter targets."
        raise InputError("request_rate", float(f"{tried[place].rate:.3g}"), expected)

    def capacity(place: int | None) -> Capacity:
        rate = 0.0 if place is None else tried[place].rate
        loads = tuple(tried[each] for each in sorted(tried))
        return Capacity(rate=rate, attainment=attainment, loads=loads)

    place = last_passing(start, FINE)
    if place is not None:
        for beyond in range(2, BEYOND + 2):
            passes(place + beyond * FINE)
        place = last_passing(capacity(place).scaled(1.0), 1)
    return capacity(place)


def widened(
    found: Capacity, try_rate: Callable[[float], Load], factors: tuple[float, float]
) -> Capacity:
    """Return a capacity with further rates tried, which cover its interval by `factors` [-].

    Lower rates are tried until times no longer fall with the rate; below, no rate meets the
    targets.
    """
    loads, (low, high), share = list(found.loads), factors, found.attainment
    falls = bool(found.rate)
    while falls and loads[0].quantile(share) > 1 / high and len(loads) < _MOST_STEPS:
        lower = try_rate(loads[0].rate / GROWTH)
        falls = lower.quantile(share) < _FALLING * loads[0].quantile(share)
        if lower.passes(share):  # by chance, a few requests may need longer at a lower rate
            loads.insert(0, lower)
    while found.rate and loads[-1].quantile(share) < 1 / low and len(loads) < _MOST_STEPS:
        loads.append(try_rate(loads[-1].rate * GROWTH))
    return replace(found, loads=tuple(loads), factors=factors)


NOTHING = Capacity(rate=0.0, attainment=1.0, loads=())
"""Capacity of a server on which a single request misses the targets."""
