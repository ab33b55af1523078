"""Where requests come from, block by block: a recorded trace, or processes that are drawn from.

Blocks depend on the requests alone, so that the same seed gives the same records on any number
of workers.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import check
from specmodel.replay.traces import AcceptanceProcess, Trace, join_traces, sample_trace

BLOCK_REQUESTS = 8192
"""Most requests of a block [request]: enough to forget Python in a step of all of them."""
BLOCK_POSITIONS = 5_000_000
"""Most positions of a block that has more than one request [token]."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Requests drawn from processes in turn, block by block, never all in memory.

    Parameters
    ----------
    processes
        At least one; with several, a mixed workload of equal parts.
    num_requests
        In all [request].
    output_tokens
        Length of every output [token].
    """

    processes: Sequence[AcceptanceProcess]
    num_requests: int
    output_tokens: int

    def __post_init__(self) -> None:
        for name in ("num_requests", "output_tokens"):
            check(name, getattr(self, name), minimum=1, maximum=1e9, whole=True)
        if not self.processes:
            raise InputError("processes", list(self.processes), "at least one process")

    @property
    def max_draft_length(self) -> int:
        """Longest draft recorded [token]."""
        return min(process.max_draft_length for process in self.processes)


Source = Trace | Sample


def block_bounds(source: Source) -> list[tuple[int, int]]:
    """Return the requests of each block, from the first up to, and without, the last.

    Parameters
    ----------
    source
        A trace, or what to draw.

    Returns
    -------
    list of tuple
        In order.
    """
    if isinstance(source, Sample):
        size = min(BLOCK_REQUESTS, max(BLOCK_POSITIONS // source.output_tokens, 1))
        edges = [*range(0, source.num_requests, size), source.num_requests]
    else:
        ends, edges = np.cumsum(source.output_tokens), [0]
        while edges[-1] < source.num_requests:
            before = ends[edges[-1]] - source.output_tokens[edges[-1]]
            fitting = int(np.searchsorted(ends, before + BLOCK_POSITIONS, side="right"))
            most = min(edges[-1] + BLOCK_REQUESTS, source.num_requests)
            edges.append(min(max(fitting, edges[-1] + 1), most))
    return list(itertools.pairwise(edges))


def draw_trace(sample: Sample, first: int, last: int, generator: np.random.Generator) -> Trace:
    """Return requests drawn from the processes of a sample.

    Parameters
    ----------
    sample
        What to draw.
    first, last
        From `block_bounds` [-].
    generator
        Source of the draws.

    Returns
    -------
    Trace
        Those of each process in a row.
    """
    num_processes, parts = len(sample.processes), []
    for i, process in enumerate(sample.processes):
        count = len(range(first + (i - first) % num_processes, last, num_processes))
        if count:
            parts.append(sample_trace(process, count, sample.output_tokens, generator))
    return join_traces(parts) if len(parts) > 1 else parts[0]
