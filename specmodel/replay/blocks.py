"""Requests in blocks, and a block replayed under all policies: one piece of work for a process.

Requests come from a recorded trace, or are drawn from processes block by block. The blocks depend
on the requests alone: the same seed gives the same records on any number of workers.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.replay.chance import LUCK, TRACE, Luck, Variation, draw_luck, stream
from specmodel.replay.choices import Choice, policy_maker
from specmodel.replay.policies.kinds import KINDS
from specmodel.replay.replaying import SERVERS, Scene
from specmodel.replay.times import ReplayTimes
from specmodel.replay.told import Told
from specmodel.replay.traces import Process, Trace, join_traces, sample_trace
from specmodel.replay.walk import States, Sums

BLOCK_REQUESTS = 8192
"""Most requests of a block [request]."""
WORTH_COMPILING = 3_000_000
"""Output tokens, times policies, from which numba is imported, where it is installed: Python takes
about as long for their steps as numba to be ready [token]."""
BLOCK_POSITIONS = 5_000_000
"""Most output positions of a block of several requests, to bound the memory [token]."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Requests drawn from acceptance processes in turn, block by block, never all in memory.

    Parameters
    ----------
    processes
        At least one; several give a mixed workload of equal parts.
    num_requests, output_tokens
        Requests in all [request], and the length of every output [token].
    runaway_share
        Share of requests that repeat themselves until they are cut off, of processes that know
        such requests; their outputs are as long as the process says [-].
    """

    processes: Sequence[Process]
    num_requests: int
    output_tokens: int
    runaway_share: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_requests", "output_tokens"):
            check(name, getattr(self, name), minimum=1, maximum=1e9, whole=True)
        if not self.processes:
            raise InputError("processes", list(self.processes), "at least one process")
        check("runaway_share", self.runaway_share, minimum=0, maximum=1)
        for process in self.processes if self.runaway_share else ():
            if process.of_runaways() is None:
                expected = f"0, as no runaways of {process.name} are known"
                raise InputError("runaway_share", self.runaway_share, expected)

    @property
    def longest_tokens(self) -> int:
        """Length of the longest output that may be drawn [token]."""
        gone = [known[1] for process in self.processes if (known := process.of_runaways())]
        return max(self.output_tokens, *gone) if self.runaway_share else self.output_tokens

    @property
    def mean_tokens(self) -> float:
        """Mean length of an output, or somewhat more [token]."""
        longest, share = self.longest_tokens, self.runaway_share
        return share * longest + (1 - share) * self.output_tokens

    def runaways_before(self, request: int) -> int:
        """Return how many of the first requests run away, which are spread evenly [request]."""
        return int(request * self.runaway_share)

    @property
    def max_draft_length(self) -> int:
        """Longest draft that all processes record [token]."""
        return min(process.max_draft_length for process in self.processes)


Source = Trace | Sample


@dataclass(frozen=True, kw_only=True)
class Block:
    """Requests `first` to `last`, the last not included, and all that their records depend on."""

    requests: Source
    first: int
    last: int
    times: ReplayTimes
    variation: Variation
    seed: int
    number: int
    compiles: bool = False

    def draw(self) -> tuple[Trace, Luck]:
        """Return the trace of the block and its luck, which are the same every time."""
        trace = self.requests
        if isinstance(trace, Sample):
            trace = self._drawn_from(trace)
        return trace, draw_luck(trace, self.variation, stream(self.seed, LUCK, self.number))

    def _drawn_from(self, sample: Sample) -> Trace:
        """Draw the requests of the block, those of each process in a row."""
        generator = stream(self.seed, TRACE, self.number)
        parts, step = [], len(sample.processes)
        for i, process in enumerate(sample.processes):
            # request r of the whole replay is drawn from process r modulo their number
            own = range(self.first + (i - self.first) % step, self.last, step)
            gone = sum(sample.runaways_before(r + 1) - sample.runaways_before(r) for r in own)
            lengths = sample.output_tokens
            kinds: list[tuple[int, Process, int]] = [(len(own) - gone, process, lengths)]
            if gone and (of_runaways := process.of_runaways()):
                kinds.append((gone, *of_runaways))
            parts += [
                sample_trace(which, count, length, generator)
                for count, which, length in kinds
                if count
            ]
        return join_traces(parts) if len(parts) > 1 else parts[0]


def make_blocks(
    source: Source, times: ReplayTimes, variation: Variation, seed: int, policies: int = 1
) -> list[Block]:
    """Cut a replay of so many policies into pieces of work in the order of the requests."""
    if seed < 0:
        raise InputError("seed", seed, "a whole number of at least 0")
    return [
        Block(
            requests=source.part(first, last) if isinstance(source, Trace) else source,
            first=first,
            last=last,
            times=times,
            variation=variation,
            seed=seed,
            number=i,
            compiles=policies * total_tokens(source) >= WORTH_COMPILING,
        )
        for i, (first, last) in enumerate(block_bounds(source))
    ]


def total_tokens(source: Source) -> float:
    """Return the output tokens of all requests, or somewhat more [token]."""
    if isinstance(source, Sample):
        return source.num_requests * source.mean_tokens
    return len(source.proposed_tokens)


def block_bounds(source: Source) -> list[tuple[int, int]]:
    """Return the first request of each block, and the first one behind it, in order."""
    if isinstance(source, Sample):
        size = min(BLOCK_REQUESTS, max(int(BLOCK_POSITIONS / source.mean_tokens), 1))
        edges = [*range(0, source.num_requests, size), source.num_requests]
    else:
        ends, edges = np.cumsum(source.output_tokens), [0]
        while edges[-1] < source.num_requests:
            before = ends[edges[-1]] - source.output_tokens[edges[-1]]
            fitting = int(np.searchsorted(ends, before + BLOCK_POSITIONS, side="right"))
            most = min(edges[-1] + BLOCK_REQUESTS, source.num_requests)
            edges.append(min(max(fitting, edges[-1] + 1), most))
    return list(itertools.pairwise(edges))


Kept = dict[str, States | Told]
"""States of policies that servers keep from one block to the next, by policy."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Work for one process: blocks in the order of their requests, under some policies."""

    blocks: tuple[Block, ...]
    choices: tuple[Choice, ...]

    @property
    def num_requests(self) -> int:
        """Requests of all blocks [request]."""
        return sum(block.last - block.first for block in self.blocks)


def make_pieces(
    blocks: Sequence[Block], choices: Sequence[Choice], workers: int
) -> Iterator[Piece]:
    """Yield pieces of work: a block, or all blocks under a policy whose state servers keep.

    One process takes all policies block by block, in order, and hands the states on.
    """
    kept = [choice for choice in choices if choice.state == "server"] if workers > 1 else []
    others = tuple(choice for choice in choices if choice not in kept)
    if others:
        yield from (Piece(blocks=(block,), choices=others) for block in blocks)
    yield from (Piece(blocks=tuple(blocks), choices=(choice,)) for choice in kept)


def replay_piece(piece: Piece, kept: Kept | None = None) -> list[dict[str, pd.DataFrame]]:
    """Replay blocks under several policies; return by block a row for each request, by policy."""
    states = {} if kept is None else kept
    return [replay_block(block, piece.choices, states) for block in piece.blocks]


def replay_block(block: Block, choices: Sequence[Choice], kept: Kept) -> dict[str, pd.DataFrame]:
    """Replay a block under several policies; return a row for each request, by policy."""
    trace, luck = block.draw()
    scene = Scene(trace, block.times, luck, block.first, compiles=block.compiles)
    plain = scene.plain_time()
    requests = {"request": np.arange(block.first, block.last), "output_tokens": trace.output_tokens}
    tables = {}
    for choice in choices:
        columns = requests | _replay(choice, scene, block, plain, kept)._asdict()
        small = {  # counts take four bytes, because there may be many records
            name: column.astype(np.int32) if column.dtype.kind == "i" else column
            for name, column in columns.items()
        }
        tables[choice.name] = pd.DataFrame(small | {"plain_time": plain})
    return tables


def _replay(choice: Choice, scene: Scene, block: Block, plain: FloatArray, kept: Kept) -> Sums:
    """Replay a block under one policy, in the fastest form that there is for it."""
    times, trace = scene.times, scene.trace
    if choice.draft_length == 0:
        none = np.zeros(trace.num_requests, np.int64)
        return Sums(trace.output_tokens, none, none, plain, scene.plain_time(with_luck=False))
    if choice.draft_length is not None:
        return scene.replay(scene.constant(choice.draft_length), pauses=False)
    if choice.planner is not None:
        return scene.replay(scene.planned(choice.planner(trace, times)), pauses=True)
    make = policy_maker(choice, times, block.seed)
    servers = SERVERS if choice.state == "server" else 0
    policy: Any = make(0) if choice.is_ours else None
    state: Any = kept.get(choice.name)
    if type(policy) in KINDS and not getattr(policy, "generator", None):
        state = state or scene.learning(policy, servers)
        done = scene.replay(state, pauses=True)
    else:
        state = state or scene.told(make, servers)
        done = scene.replay(pauses=True, told=state)
    if servers:
        kept[choice.name] = state
    return done
