"""Provide the requests of a replay: from a trace, or drawn from processes."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from specmodel.core.base.errors import InputError, nearest, refuse_given
from specmodel.core.base.records import is_path
from specmodel.core.base.units import check
from specmodel.simulate import traces
from specmodel.simulate.traces import Process, Trace, join_traces, sample_trace
from specmodel.simulate.traces.files import SUFFIXES, TAKEN

DEFAULT_REQUESTS = 300
DEFAULT_OUTPUT_TOKENS = 512
MOST = 10**7
"""Most requests drawn [request], and most tokens of each [token]."""
MOST_POSITIONS = 10**11
"""Most output tokens of all requests drawn [token]."""
BLOCK_REQUESTS = 8192
"""Most requests of a block [request]."""
BLOCK_POSITIONS = 5_000_000
"""Most output positions of a block of several requests, to bound the memory [token]."""


class Sample(Struct, frozen=True, kw_only=True):
    """Requests drawn from acceptance processes in turn, block by block to save memory.

    Parameters
    ----------
    processes
        At least one process; several give a mixed workload of equal parts.
    num_requests, output_tokens
        Number of requests [request], and the length of every output [token].
    """

    processes: Sequence[Process]
    num_requests: int
    output_tokens: int

    def __post_init__(self) -> None:
        for name in ("num_requests", "output_tokens"):
            check(name, getattr(self, name), minimum=1, maximum=1e9, whole=True)
        if not self.processes:
            raise InputError("processes", list(self.processes), "at least one process")

    @property
    def max_draft_length(self) -> int:
        """Longest draft that is known for all processes [token]."""
        return min(process.max_draft_length for process in self.processes)

    def draw(self, first: int, last: int, generator: np.random.Generator) -> Trace:
        """Draw the requests from one index up to another, grouped by process."""
        parts, step = list[Trace](), len(self.processes)
        for i, process in enumerate(self.processes):
            # request r of the whole replay is drawn from process r modulo their number
            own = range(first + (i - first) % step, last, step)
            if own:
                parts.append(sample_trace(process, len(own), self.output_tokens, generator))
        return join_traces(parts) if len(parts) > 1 else parts[0]


Source = Trace | Sample


def named_requests(
    name: traces.Trace | str | Path, sizes: dict[str, Any]
) -> tuple[Source, str, list[str]]:
    """Return the requests of a trace or its file, or requests to draw from presets joined by +.

    Also return a heading, and the names of the presets that the package contains. `sizes` are the
    requests [request] and the output_tokens [token] to draw, if given.
    """
    if isinstance(name, traces.Trace) or Path(name).suffix in SUFFIXES:
        refuse_given(sizes, sizes, "A trace file has its own requests, so this has no effect.")
        trace = name if isinstance(name, traces.Trace) else traces.read_trace(name)
        label = "trace" if trace is name else Path(str(name)).name
        told = [label, f"{trace.num_requests} requests", trace.metadata.get(TAKEN)]
        return trace, ", ".join(filter(None, told)), []
    presets = [preset.strip() for preset in str(name).split("+")]
    sizes = {"requests": DEFAULT_REQUESTS, "output_tokens": DEFAULT_OUTPUT_TOKENS} | sizes
    for option, size in sizes.items():
        check(option, size, minimum=1, maximum=MOST, whole=True)
    requests, length = sizes.values()
    if requests * length > MOST_POSITIONS:
        expected = f"at most {MOST_POSITIONS // length} requests of {length} tokens each"
        raise InputError("requests", requests, expected)
    shipped = traces.list_presets()
    for preset in presets:
        if preset not in shipped and not is_path(preset):
            known = nearest(preset, shipped)
            expected = f"a {' or '.join(SUFFIXES)} file, or a preset such as {known}"
            raise InputError("trace", preset, expected)
    processes = [traces.load_preset(preset, "trace") for preset in presets]
    sample = Sample(processes=processes, num_requests=requests, output_tokens=length)
    heading = f"{' + '.join(presets)}, {requests} requests of {length} tokens"
    return sample, heading, [preset for preset in presets if preset in shipped]


def block_bounds(source: Source) -> list[tuple[int, int]]:
    """Return the first request of each block, and the first request of the next block, in order."""
    ends = np.cumsum(np.broadcast_to(source.output_tokens, source.num_requests))
    edges = [0]
    while edges[-1] < len(ends):
        before = ends[edges[-1] - 1] if edges[-1] else 0
        fitting = int(np.searchsorted(ends, before + BLOCK_POSITIONS, side="right"))
        most = min(edges[-1] + BLOCK_REQUESTS, len(ends))
        edges.append(min(max(fitting, edges[-1] + 1), most))
    return list(itertools.pairwise(edges))
