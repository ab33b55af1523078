"""Requests in blocks, and a block replayed under all policies: one piece of work for a process.

Requests come from a recorded trace, or are drawn from processes block by block. The blocks depend
on the requests alone: the same seed gives the same records on any number of workers.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.base.errors import InputError
from specmodel.base.units import check
from specmodel.simulate.choices import ORACLE, Choice, policy_maker
from specmodel.simulate.feedback import Log, Policies, PolicyAdapter
from specmodel.simulate.plans import first_context, oracle_plan
from specmodel.simulate.policies.policy import LearningPolicy, learn_nothing
from specmodel.simulate.sampling import NOISE, TRACE, Variation, draw_noise, stream
from specmodel.simulate.serial_loop import DrawnBlock, RequestTotals
from specmodel.simulate.times_alone import ReplayTimes
from specmodel.simulate.traces import Process, Trace, join_traces, sample_trace

if TYPE_CHECKING:
    import pandas as pd

SERVERS = 8
"""States that requests are dealt to in order, where a server has one, not a request [-]."""
BLOCK_REQUESTS = 8192
"""Most requests of a block [request]."""
WORTH_COMPILING = 3_000_000
"""Output tokens, times policies, from which numba is imported, where it is installed: Python takes
about as long for their steps as numba to be ready [token]."""
BLOCK_POSITIONS = 5_000_000
"""Most output positions of a block of several requests, to bound the memory [token]."""


class Sample(Struct, frozen=True, kw_only=True):
    """Requests drawn from acceptance processes in turn, block by block, never all in memory.

    Parameters
    ----------
    processes
        At least one; several give a mixed workload of equal parts.
    num_requests, output_tokens
        Requests in all [request], and the length of every output [token].
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
        """Longest draft that all processes record [token]."""
        return min(process.max_draft_length for process in self.processes)

    def draw(self, first: int, last: int, generator: np.random.Generator) -> Trace:
        """Draw the requests from one up to another, those of each process in a row."""
        parts, step = list[Trace](), len(self.processes)
        for i, process in enumerate(self.processes):
            # request r of the whole replay is drawn from process r modulo their number
            own = range(first + (i - first) % step, last, step)
            if own:
                parts.append(sample_trace(process, len(own), self.output_tokens, generator))
        return join_traces(parts) if len(parts) > 1 else parts[0]


Source = Trace | Sample


class Block(NamedTuple):
    """Requests `first` to `last`, the last not included, and how they are drawn, always alike."""

    first: int
    last: int
    draw: Callable[[], DrawnBlock]


def draw_block(
    source: Source, first: int, last: int, number: int, *, variation: Variation, **kept: Any
) -> DrawnBlock:
    """Return a block by its number, with its own trace or one that is drawn, and its noise.

    `kept` are its other fields.
    """
    seed: int = kept["seed"]
    trace = source
    if isinstance(trace, Sample):
        trace = trace.draw(first, last, stream(seed, TRACE, number))
    noise = draw_noise(trace, variation, stream(seed, NOISE, number))
    return DrawnBlock(trace=trace, noise=noise, first=first, **kept)


def make_blocks(
    source: Source, times: ReplayTimes, variation: Variation, seed: int, policies: int = 1
) -> list[Block]:
    """Cut a replay of so many policies into pieces of work in the order of the requests."""
    check("seed", seed, minimum=0, whole=True)
    if isinstance(source, Sample):
        tokens = source.num_requests * source.output_tokens
    else:
        tokens = len(source.proposed_tokens)
    how: dict[str, Any] = {"times": times, "variation": variation, "seed": seed}
    how["compiles"] = policies * tokens >= WORTH_COMPILING
    blocks = []
    for i, (first, last) in enumerate(block_bounds(source)):
        own = source.part(first, last) if isinstance(source, Trace) else source
        blocks.append(Block(first, last, partial(draw_block, own, first, last, i, **how)))
    return blocks


def block_bounds(source: Source) -> list[tuple[int, int]]:
    """Return the first request of each block, and the first one behind it, in order."""
    if isinstance(source, Sample):
        size = min(BLOCK_REQUESTS, max(int(BLOCK_POSITIONS / source.output_tokens), 1))
        edges = [*range(0, source.num_requests, size), source.num_requests]
    else:
        ends, edges = np.cumsum(source.output_tokens), [0]
        while edges[-1] < source.num_requests:
            before = ends[edges[-1]] - source.output_tokens[edges[-1]]
            fitting = int(np.searchsorted(ends, before + BLOCK_POSITIONS, side="right"))
            most = min(edges[-1] + BLOCK_REQUESTS, source.num_requests)
            edges.append(min(max(fitting, edges[-1] + 1), most))
    return list(itertools.pairwise(edges))


Work = tuple[Sequence[Block], Sequence[Choice]]
"""Work for one process: blocks in the order of their requests, under some policies."""


def replay_blocks(work: Work, kept: dict[str, Any] | None = None) -> list[dict[str, pd.DataFrame]]:
    """Replay blocks under several policies; return by block a row for each request, by policy.

    `kept` are the states that servers keep from one block to the next, by policy.
    """
    import pandas as pd

    blocks, choices = work
    states = {} if kept is None else kept
    found = []
    for block in blocks:
        drawn = block.draw()
        shared = {"request": np.arange(block.first, block.last)}
        shared["output_tokens"] = drawn.trace.output_tokens
        plain = {"plain_time": drawn.plain_time()}
        tables = {}
        for choice in choices:
            totals = replay_policy(choice, drawn, states)._asdict()
            tables[choice.name] = pd.DataFrame(
                {  # counts take four bytes, because there may be many records
                    name: column.astype(np.int32) if column.dtype.kind == "i" else column
                    for name, column in (shared | totals | plain).items()
                }
            )
        found.append(tables)
    return found


def replay_policy(choice: Choice, drawn: DrawnBlock, kept: dict[str, Any]) -> RequestTotals:
    """Replay a block under one policy; `kept` are the states that servers keep, by policy."""
    if choice.draft_length == 0:
        tokens = drawn.trace.output_tokens
        none = np.zeros(len(tokens), np.int64)
        times = drawn.plain_time(), drawn.plain_time(with_noise=False)
        return RequestTotals(tokens, none, none, *times)
    if not choice.learns:
        plan = oracle_plan(drawn.trace, drawn.times) if choice.name == ORACLE else None
        states = drawn.states(LearningPolicy(choice.draft_length or 0), 1)
        return drawn.replayed(learn_nothing, states, pauses=plan is not None, plan=plan)
    make = policy_maker(choice, drawn.times.asked_time, drawn.seed)
    servers = SERVERS if choice.state == "server" else 0
    policy: Any = make(0) if choice.is_ours else None
    states = kept.get(choice.name)
    if states is None:
        states = drawn.states(policy, servers) if choice.is_ours else Policies(make, servers)
    if servers:
        kept[choice.name] = states
    if choice.is_ours:
        return drawn.replayed(type(policy).rule, states)
    return replay_adapted(states, drawn)


def replay_adapted(
    policies: Policies,
    drawn: DrawnBlock,
    *,
    pauses: bool = True,
    numbers: Sequence[int] | None = None,
    log: Log | None = None,
) -> RequestTotals:
    """Replay some requests of a block under policies of any class; a log takes the last's steps."""
    times = drawn.times
    contexts = (first_context(drawn.trace, times) + (times.context_length or 0.0)).tolist()

    def adapt(policy: Any, request: int) -> PolicyAdapter:
        context = contexts[request - drawn.first]
        own = log if numbers and request == numbers[-1] else None
        return PolicyAdapter(policy, times.max_draft_length, context, own)

    adapted = replace(policies, adapted=adapt)
    try:
        return drawn.replayed(PolicyAdapter.rule, adapted, pauses=pauses, numbers=numbers)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]  # the file and line that failed
        file, name = Path(frame.filename), type(adapted.current).__name__
        place = "" if file.parent == Path(__file__).parent else f" ({file.name}:{frame.lineno})"
        expected = f"a policy that replays the whole trace{place}"
        given = f"{type(error).__name__}: {error}"
        raise InputError(f"policy {name}", given, expected) from error
