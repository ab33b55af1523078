"""Copy runs: the process from which acceptance traces of a look-up drafter are drawn.

An output consists of gaps and runs. In a gap, the look-up finds nothing, or sometimes a wrong
proposal; a run may start at each position. In a run, the output copies an earlier text, which the
look-up proposes. If j tokens of the run are left, j tokens are accepted, and j - 1 at the next
position. A run is short or long; each kind has its own probability to stop after a token. After the
last token of a run, the look-up usually continues with the copied text, which is then wrong.

Requests differ in the frequency of runs, by a gamma law, and in the share of short runs, by a beta
law. `calibration/copy_runs.py` fits the processes of this package to figures of measured traces.
"""

import math
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from specmodel.core.base.bounds import LEAST, Portion
from specmodel.core.base.records import Record
from specmodel.core.base.units import FloatArray
from specmodel.simulate.traces.record import LONGEST_DRAFT, Counts
from specmodel.simulate.traces.statistics import TraceStatistics

CYCLES = 16
"""Gaps and runs of each request that are drawn at once [-]."""
STRATUM = 16
"""Draws for each request; one of them is kept, from each part of all sorted draws [-]."""
LEVELS = 1 << 16
"""Resolution of the probability that a position of a gap has a proposal [-]."""

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(ge=LEAST, le=1e6)]
Whole = NDArray[np.int64]


class CopyRuns(Record, frozen=True, kw_only=True):
    """The numbers of the process; see the module.

    Parameters
    ----------
    start_chance, start_shape
        Mean probability that a run starts at a position of a gap, and the shape of its gamma law
        over requests; with a smaller shape, requests differ more [-].
    short_share, share_concentration
        Mean share of short runs, and the concentration of its beta law over requests; with a
        smaller concentration, requests differ more [-].
    short_stop, long_stop
        Probability that a run stops after a token, for short and for long runs [-].
    wrong_in_gaps, wrong_at_end
        Probability of a wrong proposal at a position of a gap, and after the last token of a run
        [-].
    """

    start_chance: Portion
    start_shape: Positive = 1e6
    short_share: Share = 1.0
    share_concentration: Positive = 1e6
    short_stop: Portion
    long_stop: Portion = 1.0
    wrong_in_gaps: Share = 0.0
    wrong_at_end: Share = 1.0


class CopyProcess(Record, frozen=True, kw_only=True):
    """Random process of the traces of a look-up drafter: gaps and copied runs.

    Parameters
    ----------
    schema_version, name, source
        Version of this schema, 1; name to show; source of the figures.
    max_draft_length
        Longest proposal, which is also the length of each proposal [token].
    runs, measured
        The numbers of the process; figures of the measured traces used in the fit, without requests
        that repeat themselves until they are cut off.
    """

    schema_version: Literal[1] = 1
    name: str
    source: str = ""
    max_draft_length: Annotated[int, Meta(ge=1, le=LONGEST_DRAFT)] = 20
    runs: CopyRuns
    measured: TraceStatistics | None = None

    def draw(self, output_tokens: Whole, generator: np.random.Generator) -> tuple[Counts, Counts]:
        """Return proposed and accepted tokens of successive positions, requests in a row."""
        starts, lengths, ends = _runs(self.runs, output_tokens, generator)
        size = int(output_tokens.sum())
        accepted, most = np.zeros(size, dtype=np.uint8), self.max_draft_length
        draws = generator.integers(0, LEVELS, size, dtype=np.uint16)
        found = draws < math.ceil(self.runs.wrong_in_gaps * LEVELS)
        behind = starts + lengths
        is_inside = behind < ends
        wrong = generator.random(len(starts)) < self.runs.wrong_at_end
        found[behind[is_inside]] = wrong[is_inside]
        kept = np.minimum(lengths, ends - starts)
        # copied tokens of all runs in a row: their positions, and the tokens left of the run
        skipped = starts - (np.cumsum(kept) - kept)
        where = np.repeat(skipped.astype(np.int32), kept)
        where += np.arange(len(where), dtype=np.int32)
        left = np.repeat(behind.astype(np.int32), kept)
        left -= where
        accepted[where] = np.minimum(left, most, out=left).astype(np.uint8)
        found |= accepted > 0
        return np.multiply(found, most, dtype=np.uint8), accepted


def _runs(
    runs: CopyRuns, output_tokens: Whole, generator: np.random.Generator
) -> tuple[Whole, Whole, Whole]:
    """Return where each run starts, its length, and where its request ends."""
    size = len(output_tokens)
    spread = _strata(generator.standard_gamma(runs.start_shape, (size, STRATUM)), generator)
    chances = np.clip(runs.start_chance * spread / runs.start_shape, 1e-12, 1)
    short = np.full(size, runs.short_share)
    if 0 < runs.short_share < 1:
        a, b = (runs.share_concentration * s for s in (runs.short_share, 1 - runs.short_share))
        short = _strata(generator.beta(a, b, (size, STRATUM)), generator)
    with np.errstate(divide="ignore"):  # a certain end has an infinite rate
        start_rates = -np.log1p(-chances)
        stop_rates = -np.log1p(-np.array([runs.long_stop, runs.short_stop]))
    ends = np.cumsum(output_tokens)
    at, live, found = ends - output_tokens, np.arange(size), []
    while len(live):
        shape = len(live), CYCLES
        gaps = generator.standard_exponential(shape) / start_rates[live, None]
        is_short = generator.random(shape) < short[live, None]
        lengths = 1 + generator.standard_exponential(shape) / stop_rates[is_short.astype(int)]
        # no gap or run is longer than the longest output, so sums do not overflow
        empty, copied = (np.minimum(part, 1e9).astype(np.int64) for part in (gaps, lengths))
        behind = at[live, None] + np.cumsum(empty + copied + 1, axis=1)
        starts = behind - copied - 1
        is_inside = starts < ends[live, None]
        whose = np.broadcast_to(ends[live, None], shape)
        found.append((starts[is_inside], copied[is_inside], whose[is_inside]))
        at[live] = behind[:, -1]
        live = live[at[live] < ends[live]]
    columns = tuple(np.concatenate(column) for column in zip(*found, strict=True))
    return columns[0], columns[1], columns[2]


def _strata(draws: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return one draw for each row of independent draws, by stratified sampling.

    The sorted draws are cut into as many parts as there are rows. One draw of each part is kept,
    and the rows are shuffled. Each result has the law of the draws, but means over rows vary less.
    """
    parts = np.sort(draws, axis=None).reshape(draws.shape)
    kept = generator.integers(0, draws.shape[1], len(draws))
    return np.asarray(generator.permutation(parts[np.arange(len(draws)), kept]))
