"""Draw synthetic acceptance traces, from independent tokens to regimes and easy requests.

Each output position has a latent number z, which is standard normal: the larger z is, the more
tokens are accepted. At least i tokens are accepted if z is above a threshold t_i, so P(z > t_i) is
the survival P(at least i accepted). z = sqrt(r) z_request + sqrt(g) z_regime + sqrt(1 - r - g)
z_position: all positions of a request share the first part, all positions of a regime, which ends
at random, share the second, and each position has its own third part. The variances r, g and
1 - r - g add up to 1. The survival therefore does not depend on r and g, but the shared parts make
acceptance cluster.

The drafter proposes a draft if z is above one more threshold. For the processes of heads in this
package, r, g and the length of regimes were fitted to measured correlations between steps and
spreads over requests. The survival was solved for measured tokens per step
(``calibration/presets.py``). Processes of look-ups are of another kind (`copying`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from specmodel.core.base import records
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import Record
from specmodel.core.base.units import check
from specmodel.simulate.traces.copying import CopyProcess, Share, Whole
from specmodel.simulate.traces.record import LONGEST_DRAFT, Counts, Trace
from specmodel.simulate.traces.statistics import TraceStatistics

FOLDER = Path(__file__).parent / "presets"

CHUNK = 1 << 16
"""Positions that are drawn at a time, few enough for the cache of a core [token]."""

MAX_POSITIONS = 10**9
"""Most positions of a trace; each needs two bytes [token]."""

Survival = Annotated[list[Share], Meta(min_length=1, max_length=LONGEST_DRAFT)]
Latent = NDArray[np.float32]


class AcceptanceProcess(Record, frozen=True, kw_only=True):
    """Random process of acceptance traces; the docstring of the module has its equations.

    Parameters
    ----------
    schema_version, name, source
        Version of this schema, 1; name to show; source of the figures.
    survival
        P(at least i tokens accepted) over output positions, for i = 1, 2, … up to the longest
        draft [-].
    proposal_share
        Share of output positions at which the drafter proposes a draft, of full length. They have
        the largest latent numbers, so the share is at least ``survival[0]`` [-].
    request_share, regime_share
        Parts of the variance of the latent number that all positions of a request, and of a regime,
        share [-].
    regime_tokens
        Mean length of a regime, which may end after each token [token].
    measured
        Figures of the measured traces used in the fit, without requests that repeat themselves
        until they are cut off.
    """

    schema_version: Literal[1] = 1
    name: str
    source: str = ""
    survival: Survival
    proposal_share: Share = 1.0
    request_share: Share = 0.0
    regime_share: Share = 0.0
    regime_tokens: Annotated[float, Meta(ge=1, le=1e5)] = 1.0
    measured: TraceStatistics | None = None

    def __post_init__(self) -> None:
        if (np.diff(self.survival) > 0).any():
            raise InputError("survival", self.survival, "probabilities that never rise")
        if self.proposal_share < self.survival[0]:
            expected = (
                f"at least survival[0] = {self.survival[0]:g}, as accepted tokens were proposed"
            )
            raise InputError("proposal_share", self.proposal_share, expected)
        if self.request_share + self.regime_share > 1:
            expected = f"at most 1 - request_share = {1 - self.request_share:g}"
            raise InputError("regime_share", self.regime_share, expected)

    @property
    def max_draft_length(self) -> int:
        """Longest draft in the traces of the process [token]."""
        return len(self.survival)

    def draw(self, output_tokens: Whole, generator: np.random.Generator) -> tuple[Counts, Counts]:
        """Return proposed and accepted tokens of successive positions, requests in a row."""
        laws = [self.proposal_share], self.survival
        drawn = np.empty((2, int(output_tokens.sum())), dtype=np.uint8)
        quantile, first = NormalDist().inv_cdf, 0
        ends = {0.0: np.inf, 1.0: -np.inf}
        listed = ([ends[p] if p in ends else -quantile(p) for p in law] for law in laws)
        thresholds = [np.array(each, np.float32) for each in listed]
        for latent in latent_chunks(self, output_tokens, generator):
            part = slice(first, first := first + len(latent))
            above = np.empty(len(latent), dtype=bool)
            for each, counts in zip(thresholds, drawn[:, part], strict=True):
                counts[:] = 0
                # one comparison for each threshold is ten times as fast as a binary search
                for threshold in each:
                    np.greater(latent, threshold, out=above)
                    np.add(counts, above.view(np.uint8), out=counts)
        return drawn[0] * np.uint8(self.max_draft_length), drawn[1]


Process = AcceptanceProcess | CopyProcess
"""A random process of traces."""


def load_preset(name: str | Path, argument: str = "preset") -> Process:
    """Return a process of this package or of a TOML file, with the figures used in its fit.

    Parameters
    ----------
    name
        A name from `list_presets`, or the path of a TOML file, with a slash or a suffix; a file
        with a table `runs` is a `CopyProcess`.
    argument
        Name of the argument in errors.
    """
    table = records.read_mapping(records.find_file(name, FOLDER, argument), argument)
    kind: type[Process] = CopyProcess if "runs" in table else AcceptanceProcess
    return records.load(kind, name, FOLDER, argument)


def list_presets() -> tuple[str, ...]:
    """Return the sorted names of the processes of this package."""
    return records.list_names(FOLDER)


def sample_trace(
    process: Process,
    num_requests: int,
    output_tokens: int | Sequence[int] | NDArray[np.int64],
    generator: np.random.Generator,
) -> Trace:
    """Draw a trace from a process.

    The trace has acceptance at every output position, even for drafts longer than the rest of the
    output. Every trace has the same shares of easy and hard requests. Tokens per step of a few
    hundred requests are therefore mostly within 1 % of those of the process. Errors that are
    estimated as if requests were independent are too large, not too small.

    Parameters
    ----------
    process, generator
        A process, such as `load_preset` returns, and a random generator.
    num_requests, output_tokens
        Number of requests [request], and the length of each output: one for all, or a list [token].

    Examples
    --------
    >>> trace = sample_trace(load_preset("chat-eagle"), 3, 100, np.random.default_rng(1))
    >>> trace.num_requests, len(trace.accepted_tokens)
    (3, 300)
    """
    if not isinstance(generator, np.random.Generator):
        raise InputError("generator", generator, "a generator such as numpy.random.default_rng(1)")
    lengths = _lengths(num_requests, output_tokens)
    proposed, accepted = process.draw(lengths, generator)
    return Trace(
        proposed_tokens=proposed,
        accepted_tokens=accepted,
        output_tokens=lengths,
        max_draft_length=process.max_draft_length,
        metadata={"source": f"synthetic: {process.name}"},
    )


def latent_chunks(
    process: AcceptanceProcess, output_tokens: NDArray[np.int64], generator: np.random.Generator
) -> Iterator[Latent]:
    """Yield the latent numbers of successive positions, all requests in a row, in chunks."""
    shares = np.array([process.request_share, process.regime_share, 0])
    shares[2] = max(0.0, 1 - shares.sum())
    by_request, by_regime, own = np.sqrt(shares).astype(np.float32)
    chance = 1 / process.regime_tokens if by_regime else 0.0
    starts = np.cumsum(output_tokens) - output_tokens
    requests = by_request * _spread_normals(len(starts), generator) if by_request else 0 * starts
    regime = np.zeros(1, dtype=np.float32)
    positions = int(output_tokens.sum())
    for first in range(0, positions, CHUNK):
        size = min(CHUNK, positions - first)
        fresh = generator.random(size, dtype=np.float32) < chance
        fresh[starts[slice(*np.searchsorted(starts, (first, first + size)))] - first] = True
        begins = np.append(0, np.flatnonzero(fresh))
        drawn = generator.standard_normal(len(begins) - 1, dtype=np.float32)
        # a chunk continues the last regime of the chunk before
        regimes = np.concatenate([regime, by_regime * drawn])
        regime = regimes[-1:]
        levels = regimes + requests[np.searchsorted(starts, first + begins, side="right") - 1]
        latent = generator.standard_normal(size, dtype=np.float32)
        latent *= own
        latent += np.repeat(levels.astype(np.float32), np.diff(begins, append=size))
        yield latent


def _spread_normals(size: int, generator: np.random.Generator) -> Latent:
    """Return standard normals, one in each of as many equally likely intervals.

    This is stratified sampling: each number is standard normal, but their mean varies as little as
    the mean of several times as many independent numbers.
    """
    ranks = (generator.permutation(size) + generator.random(size)) / size
    inside = np.clip(ranks, 1e-15, 1 - 1e-15)
    # 0.2 us a request, while an import of scipy's quantile costs 0.1 s
    return np.array([*map(NormalDist().inv_cdf, inside.tolist())], dtype=np.float32)


def _lengths(num_requests: int, output_tokens: object) -> NDArray[np.int64]:
    checked = check("num_requests", num_requests, minimum=1, maximum=MAX_POSITIONS, whole=True)
    requests = int(checked)
    longest = MAX_POSITIONS // requests
    lengths = check("output_tokens", output_tokens, minimum=1, maximum=MAX_POSITIONS, whole=True)
    if lengths.shape not in ((), (1,), (requests,)):
        expected = f"one number, or one for each of {requests} requests"
        raise InputError("output_tokens", f"{lengths.size} numbers", expected)
    if lengths.mean() > longest:
        raise InputError("output_tokens", lengths.mean(), f"a mean of at most {longest} a request")
    return np.broadcast_to(lengths, requests).astype(np.int64)
