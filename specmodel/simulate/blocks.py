"""Blocks of requests, and a block replayed under all policies: one piece of work for a process.

The blocks depend on the requests alone: the same seed gives the same records on any number of
workers.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.simulate.choices import ORACLE, Choice, policy_maker
from specmodel.simulate.feedback import Log, Policies, PolicyAdapter
from specmodel.simulate.machine_code import (
    Function,
    as_lists,
    compiled_function,
    is_worth_compiling,
    records,
)
from specmodel.simulate.plans import context_at, first_context, oracle_plan
from specmodel.simulate.policies.policy import LearningPolicy, learn_nothing
from specmodel.simulate.sampling import NOISE, TRACE, Noise, Variation, draw_noise, stream
from specmodel.simulate.serial_loop import Positions, Requests, RequestTotals, serial_loop
from specmodel.simulate.sources import Sample, Source, block_bounds
from specmodel.simulate.times_alone import ReplayTimes
from specmodel.simulate.traces import Trace

if TYPE_CHECKING:
    import pandas as pd

SERVERS = 8
"""States that requests are dealt to in order, where a server has one, not a request [-]."""


class DrawnBlock(Struct, frozen=True, kw_only=True, eq=False):
    """Requests from number `first` on, with times and noise that all policies meet alike."""

    trace: Trace
    times: ReplayTimes
    noise: Noise
    first: int = 0
    seed: int = 0
    compiles: bool = False

    def __post_init__(self) -> None:
        begins, times = first_context(self.trace, self.times), self.times
        if begins.min() < 0:
            expected = f"at least the context of the first times, {times.context_length:g}"
            given = int(begins.min() + (times.context_length or 0))
            raise InputError("prompt_tokens", given, expected)
        farthest = int((begins + self.trace.output_tokens).max())
        if times.later and farthest >= len(times.later) * times.context_step:
            expected = f"times of {farthest} tokens more context than those of the first"
            raise InputError("times", f"{len(times.later)} rows", expected)

    def states(self, policy: LearningPolicy, servers: int) -> Any:
        """Return the states of a policy of the package, kept by servers or by each request."""
        if self.compiles and compiled_function(serial_loop, (learn_nothing,)) is not None:
            return np.repeat(records([policy]), servers or self.trace.num_requests)
        return Policies(lambda _: policy.fresh(), servers)

    def plain_time(self, *, with_noise: bool = True) -> FloatArray:
        """Return the time of each request without speculation, under the same noise or none [s]."""
        times, noise, trace = self.times, self.noise, self.trace
        if not times.later:
            sums = noise.sums(trace) if with_noise else trace.output_tokens.astype(float)
            return np.asarray(times.forward_time * sums)
        contexts = np.arange(len(times.rows)) * times.context_step
        forward = [row.forward_time for row in times.rows]
        by_token = np.interp(np.arange(int(contexts[-1])), contexts, forward)
        taken = by_token[context_at(trace, times)]
        if with_noise:
            taken *= noise.noise_levels[noise.noise_draws]
        return np.asarray(np.add.reduceat(taken, trace.starts))

    def replayed(
        self,
        rule: Function,
        policies: Any,
        *,
        pauses: bool = True,
        plan: NDArray[np.uint8] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> RequestTotals:
        """Return the totals of requests under policies by their number, or under a plan.

        Policies are records for numba, which requests are dealt to in turn, or else objects; these
        may be replayed over some requests only, by their numbers.
        """
        trace, times, size = self.trace, self.times, self.trace.num_requests
        compiled, first = isinstance(policies, np.ndarray), self.first
        owners: Any = range(first, first + size)
        requests = Requests(
            places=np.arange(size) if numbers is None else np.array(numbers) - first,
            owners=np.array(owners) % len(policies) if compiled else owners,
            plan=np.zeros(0, np.uint8) if plan is None else plan,
            context=first_context(trace, times),
        )
        accepted, rows = trace.by_length(times.max_draft_length)
        known = Positions(
            proposed=np.ascontiguousarray(trace.proposed_tokens),
            accepted=accepted.ravel(),
            rows=rows * accepted.shape[1],
            first=trace.starts,
            lengths=np.asarray(trace.output_tokens, np.int64),
            **{name: np.ascontiguousarray(own) for name, own in asdict(self.noise).items()},
        )
        kinds: list[Any] = [np.int64] * 3 + [np.float64] * 2
        totals = RequestTotals(*(np.zeros(size, kind) for kind in kinds))
        parts = (requests, known, times.table(pauses=pauses), totals)
        if compiled:
            cast(Function, compiled_function(serial_loop, (rule,)))(policies, *parts)
            return totals
        parts = as_lists(parts)
        serial_loop(rule, policies, *parts)
        return RequestTotals(*map(np.asarray, parts[-1], kinds))


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
    how["compiles"] = is_worth_compiling(policies * tokens)
    blocks = []
    for i, (first, last) in enumerate(block_bounds(source)):
        own = source.part(first, last) if isinstance(source, Trace) else source
        blocks.append(Block(first, last, partial(draw_block, own, first, last, i, **how)))
    return blocks


Work = tuple[Sequence[Block], Sequence[Choice]]
"""Work for one process: blocks in the order of their requests, under some policies."""


def replay_blocks(work: Work, kept: dict[str, Any] | None = None) -> list[tuple[str, pd.DataFrame]]:
    """Replay blocks under several policies; return tables with a row for each request, by policy.

    `kept` are the states that servers keep from one block to the next, by policy.
    """
    import pandas as pd

    blocks, choices = work
    states, found = {} if kept is None else kept, list[tuple[str, pd.DataFrame]]()
    for block in blocks:
        drawn = block.draw()
        shared = {
            "request": np.arange(block.first, block.last),
            "output_tokens": drawn.trace.output_tokens,
        }
        plain = {"plain_time": drawn.plain_time()}
        for choice in choices:
            columns = shared | replay_policy(choice, drawn, states)._asdict() | plain
            whole = [name for name, column in columns.items() if column.dtype.kind == "i"]
            # counts take four bytes, because there may be many records
            table = pd.DataFrame(columns).astype(dict.fromkeys(whole, np.int32))
            found.append((choice.name, table))
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
