"""Define requests to a server: their arrivals, and the lengths of prompts and outputs."""

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from specmodel.core.base.errors import InputError
from specmodel.core.base.notes import Note
from specmodel.core.base.records import read_mapping
from specmodel.core.base.units import FloatArray, check
from specmodel.simulate.sampling import stream

ARRIVALS, LENGTHS, NOISE = range(10, 13)
"""Purposes of streams of random numbers, in addition to those of `simulate.sampling`."""
MOST_REQUESTS, LONGEST = 2 * 10**6, 10**7
"""Most requests of a run [request], and the longest prompt or output [token]."""
MOST_VARIATION = 20
"""Largest coefficient of variation of intervals; above, a few requests all arrive at once [-]."""

ASKED = ("prompt_tokens", "output_tokens", "cached_tokens")
"""Fields with the tokens of requests; the last one may be unknown."""

Process = Literal["poisson", "gamma", "bursts"]
Whole = NDArray[np.int64]


LONGEST_DRAWN, MOST_TOGETHER = 32768, 2 * LONGEST
"""Default limits of a law: the longest prompt or output, and the longest sum of both [token]."""


class Arrivals(Struct, frozen=True, kw_only=True):
    """Arrivals of requests: a process with a rate, or users who wait for their answers.

    Parameters
    ----------
    request_rate
        Mean requests per second, 0 for users [request/s].
    process
        Independent requests; intervals with a gamma law; or independent bursts of simultaneous
        requests.
    variation, burst
        Coefficient of variation of the gamma law's intervals [-]; requests of a burst [request].
    users
        Users who each send the next request when the previous one is answered; 0 for a rate
        [request].
    """

    request_rate: float = 0.0
    process: Process = "poisson"
    variation: float = 1.0
    burst: int = 1
    users: int = 0

    def __post_init__(self) -> None:
        check("request_rate", self.request_rate, minimum=0, maximum=1e6)
        check("users", self.users, minimum=0, maximum=1e6, whole=True)
        check("variation", self.variation, above=0, maximum=MOST_VARIATION)
        check("burst", self.burst, minimum=1, maximum=MOST_REQUESTS, whole=True)
        if self.process not in get_args(Process):
            raise InputError("arrivals", self.process, ", ".join(get_args(Process)))
        if (self.request_rate > 0) == (self.users > 0):
            given = {"request_rate": self.request_rate, "users": self.users}
            raise InputError("request_rate", given, "either a rate above 0 or users")

    def times(self, count: int, seed: int) -> FloatArray:
        """Return `count` arrival times; with the same seed, they are proportional to 1/rate [s]."""
        if self.users:
            return np.zeros(count)
        random = stream(seed, ARRIVALS)
        shape = self.variation**-2 if self.process == "gamma" else 1.0
        intervals = random.gamma(shape, 1 / shape, -(-count // self.burst)) * self.burst
        return np.repeat(np.cumsum(intervals), self.burst)[:count] / self.request_rate


class Lengths(Struct, frozen=True, kw_only=True):
    """Lengths of prompts and outputs: fixed, or log-normal by mean and spread.

    Parameters
    ----------
    prompt_tokens, output_tokens
        Mean lengths [token].
    prompt_spread, output_spread
        Standard deviations of their logarithms, 0 for fixed lengths [-].
    correlation
        Correlation of the logarithms of a request's two lengths [-].
    longest, together
        Longest prompt or output, and longest sum of both. Longer prompts and outputs are cut to
        these [token].
    """

    prompt_tokens: float
    output_tokens: float
    prompt_spread: float = 0.0
    output_spread: float = 0.0
    correlation: float = 0.0
    longest: int = LONGEST_DRAWN
    together: int = MOST_TOGETHER

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens"):
            check(name, getattr(self, name), minimum=1, maximum=LONGEST)
        for name in ("prompt_spread", "output_spread"):
            check(name, getattr(self, name), minimum=0, maximum=5)
        check("correlation", self.correlation, minimum=-1, maximum=1)
        check("longest", self.longest, minimum=1, maximum=LONGEST, whole=True)

    @classmethod
    def fitted(cls, requests: "Requests") -> "Lengths":
        """Return the law with the means, spreads and correlation of recorded requests."""
        both = requests.prompt_tokens, requests.output_tokens
        logs = np.log(both)
        spreads = np.minimum(logs.std(axis=1), 5.0)
        is_spread = len(logs.T) > 1 and spreads.min() > 0
        return cls(
            prompt_tokens=float(both[0].mean()),
            output_tokens=float(both[1].mean()),
            prompt_spread=float(spreads[0]),
            output_spread=float(spreads[1]),
            correlation=float(np.corrcoef(logs)[0, 1].clip(-1, 1)) if is_spread else 0.0,
            longest=int(np.max(both)),
        )

    def draw(self, count: int, seed: int) -> tuple[Whole, Whole]:
        """Return the prompt and the output lengths of `count` requests [token]."""
        first, other = stream(seed, LENGTHS).standard_normal((2, count))
        r = self.correlation
        second = r * first + np.sqrt(1 - r * r) * other
        laws = ((self.prompt_tokens, self.prompt_spread), (self.output_tokens, self.output_spread))
        prompts, outputs = (
            np.clip(np.rint(mean * np.exp(spread * z - spread**2 / 2)), 1, self.longest)
            for (mean, spread), z in zip(laws, (first, second), strict=True)
        )
        return cut(prompts.astype(np.int64), outputs.astype(np.int64), self.together)


def cut(prompts: Whole, outputs: Whole, longest: int) -> tuple[Whole, Whole]:
    """Return prompts and outputs, cut so that both fit in a context of `longest` tokens [token]."""
    prompts = np.minimum(prompts, longest - 1)
    return prompts, np.minimum(outputs, longest - prompts)


_FILE = Path(__file__).parent / "data/workloads.toml"
WORKLOADS = {name: Lengths(**law) for name, law in read_mapping(_FILE, "workloads").items()}
"""Log-normal laws with the means, spreads and correlations of 1,410 recorded requests.

The requests are of four tasks (Llama-3.1-8B), without those that ran on to 8,192 tokens.
"""


class Requests(Struct, frozen=True, kw_only=True, eq=False):
    """Requests to a server, in the order of arrival.

    Parameters
    ----------
    arrival_time
        Arrival of each request, in ascending order; those of users are set during the run [s].
    prompt_tokens, output_tokens
        Lengths. Each request generates all its tokens [token].
    users
        Users who send requests one after another, 0 if arrivals are given [request].
    cached_tokens
        Leading tokens of each prompt that are in the prefix cache; None if unknown [token].
    samples
        Successive requests that share a prompt [request].
    reading
        Assumptions in reading a recording, such as units.
    notes
        Notes on a recording for the reader.
    """

    arrival_time: FloatArray
    prompt_tokens: Whole
    output_tokens: Whole
    users: int = 0
    cached_tokens: Whole | None = None
    samples: int = 1
    reading: str = ""
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        check("arrival_time", self.arrival_time, minimum=0)
        if (np.diff(self.arrival_time) < 0).any():
            raise InputError("arrival_time", "out of order", "times in rising order")
        for name in ("prompt_tokens", "output_tokens"):
            check(name, getattr(self, name), minimum=1, maximum=LONGEST, whole=True)

    @property
    def asked(self) -> tuple[Whole, ...]:
        """The fields of `ASKED` that are not None, in order [token]."""
        return tuple(own for name in ASKED if (own := getattr(self, name)) is not None)

    @property
    def count(self) -> int:
        """Number of requests [request]."""
        return len(self.prompt_tokens)

    def at(self, places: Any) -> "Requests":
        """Return the requests at `places`: indices, a slice or a mask."""
        asked: dict[str, Any] = dict(zip(ASKED, (own[places] for own in self.asked), strict=False))
        return replace(self, arrival_time=self.arrival_time[places], **asked)

    def draw(self, count: int, seed: int) -> tuple[Whole, ...]:
        """Return lengths, as in `asked`, of `count` requests drawn with replacement [token]."""
        picked = stream(seed, LENGTHS).integers(0, self.count, count)
        return tuple(own[picked] for own in self.asked)

    @property
    def longest(self) -> int:
        """Largest sum of the tokens of a prompt and its output [token]."""
        return int((self.prompt_tokens + self.output_tokens).max())

    @property
    def rate(self) -> float:
        """Mean rate of arrivals, NaN for users [request/s]."""
        last = float(self.arrival_time[-1])
        return self.count / last if last > 0 and not self.users else float("nan")

    @property
    def mean_context(self) -> float:
        """Mean KV entries of a decoding request, averaged over output tokens [token]."""
        weights = np.maximum(self.output_tokens - 1, 1)
        return float(np.average(self.prompt_tokens + self.output_tokens / 2, weights=weights))


def draw_requests(
    arrivals: Arrivals, lengths: Lengths | Requests, num_requests: int, seed: int = 0
) -> Requests:
    """Draw requests at random: the same seed gives the same requests at every rate.

    Parameters
    ----------
    arrivals, lengths
        Arrivals of the requests, and their lengths: a law, or recorded requests to draw from.
    num_requests, seed
        Number of requests [request], and the random seed [-].
    """
    check("num_requests", num_requests, minimum=1, maximum=MOST_REQUESTS, whole=True)
    check("seed", seed, minimum=0, whole=True)
    asked: dict[str, Any] = dict(zip(ASKED, lengths.draw(num_requests, seed), strict=False))
    times = arrivals.times(num_requests, seed)
    return Requests(arrival_time=times, users=arrivals.users, **asked)
