"""Replay a block of requests under all policies, as one piece of work for a process.

The blocks depend on the requests alone, and not on the number of workers. The same seed therefore
gives the same records on any number of workers.

The serial loop is written once, for Python and for numba. A step at an output position requests a
draft, verifies the tokens that the drafter offers, and emits the accepted tokens and one more. The
time of the step is read from a table and changed by noise. A policy has the fields `draft_length`
and `is_test`, and a rule that changes both. It is an object in Python and a record in numba.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, check
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
from specmodel.simulate.sources import Sample, Source, block_bounds
from specmodel.simulate.times_alone import ReplayTimes, StepTable
from specmodel.simulate.traces import Trace

SERVERS = 8
"""Servers that receive requests in turn, where a server keeps the state of a policy [-]."""


class Positions(NamedTuple):
    """What is known about each output position before the replay.

    Request i has `lengths[i]` positions from `first[i]` on. `proposed` is the number of tokens that
    the drafter proposes at each position. `accepted` contains rows of accepted tokens by position;
    the row for a draft length starts at `rows[draft_length]`. `plan` has a draft length for each
    position; it is empty if the policy decides. `context` is the context of each request's first
    step minus the context of the first row of the table of times [token].
    """

    proposed: Any
    accepted: Any
    rows: Any
    first: Any
    lengths: Any
    plan: Any
    context: Any
    noise: Noise


class RequestTotals(NamedTuple):
    """Totals over the steps of each request.

    `test_steps` counts the steps in a phase "test" [-], and `drafted_tokens` the verified draft
    tokens [token]. `expected_time` is the time without noise [s].
    """

    steps: Any
    test_steps: Any
    drafted_tokens: Any
    time: Any
    expected_time: Any


def serial_loop(
    rule: Function,
    policies: Any,
    places: Any,
    owners: Any,
    known: Positions,
    table: StepTable,
    totals: RequestTotals,
) -> None:
    """Replay the requests at `places` in the trace, each with the policy of its owner."""
    for i in places:
        found = replay_request(rule, policies[owners[i]], i, known, table)
        totals.steps[i], totals.test_steps[i], totals.drafted_tokens[i] = found[:3]
        totals.time[i], totals.expected_time[i] = found[3:]


def replay_request(
    rule: Function, policy: Any, request: int, known: Positions, table: StepTable
) -> tuple[int, int, int, float, float]:
    """Return steps, test steps, drafted tokens, time and expected time of one request."""
    proposed, accepted, rows, first, lengths, plan, context, noises = known
    experts, expert_draws, noise_draws, expert_levels, noise_levels = noises
    base, slope, width, rows_per_token = table
    position, of_request = first[request], experts[request]
    start = context[request] - position
    end, is_planned = position + lengths[request], len(plan) > 0
    steps = tested = drafted = 0
    total = expected = 0.0
    while position < end:
        asked = int(plan[position]) if is_planned else policy.draft_length
        offered, held, left = proposed[position], accepted[rows[asked] + position], end - position
        verified = asked if asked < offered else offered
        emitted = (asked if asked < held else held) + 1
        emitted = emitted if emitted < left else left  # min() is slower
        later = (position + start) * rows_per_token
        row = int(later)
        part, at = later - row, (verified + 1 if asked > 0 else 0) * width + row
        usual = base[at] + part * (base[at + 1] - base[at])
        more = slope[at] + part * (slope[at + 1] - slope[at])
        noise = of_request + expert_levels[expert_draws[position]]
        seconds = (usual + more * noise) * noise_levels[noise_draws[position]]
        steps += 1
        tested += policy.is_test
        drafted += verified
        total += seconds
        expected += usual
        position += emitted
        rule(policy, emitted, seconds, verified)
    return steps, tested, drafted, total, expected


class DrawnBlock(Struct, frozen=True, kw_only=True, eq=False):
    """Requests from number `first` on, with the times and the noise that all policies share."""

    trace: Trace
    times: ReplayTimes
    noise: Noise
    first: int = 0
    seed: int = 0
    compiles: bool = False

    def __post_init__(self) -> None:
        begins, times = first_context(self.trace, self.times), self.times
        if begins.min() < 0:
            expected = f"at least {times.context_length:g}, the context in the first row"
            given = int(begins.min() + (times.context_length or 0))
            raise InputError("prompt_tokens", given, expected)
        farthest = int((begins + self.trace.output_tokens).max())
        if times.later and farthest >= len(times.later) * times.context_step:
            expected = f"step times up to {farthest} tokens beyond the first context"
            raise InputError("times", f"{len(times.later)} rows", expected)

    def states(self, policy: LearningPolicy, servers: int) -> Any:
        """Return a policy's states for so many servers, or for each request if there are none."""
        if self.compiles and compiled_function(serial_loop, (learn_nothing,)) is not None:
            return np.repeat(records([policy]), servers or self.trace.num_requests)
        return Policies(lambda _: policy.fresh(), servers)

    def plain_time(self, *, with_noise: bool = True) -> FloatArray:
        """Return the time of each request without speculation, with the same noise or none [s]."""
        times, noise, trace = self.times, self.noise, self.trace
        contexts = np.arange(len(times.rows)) * times.context_step
        forward = [row.forward_time for row in times.rows]
        taken = np.interp(context_at(trace, times), contexts, forward)
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
        """Return the totals of requests under policies, or under a plan of draft lengths.

        Policies are an array of records for numba, which requests use in turn, or else objects by
        request number. With objects, `numbers` limits the replay to some requests.
        """
        trace, times, size = self.trace, self.times, self.trace.num_requests
        compiled, first = isinstance(policies, np.ndarray), self.first
        places = np.arange(size) if numbers is None else np.array(numbers) - first
        owners: Any = range(first, first + size)
        owners = np.array(owners) % len(policies) if compiled else owners
        accepted, rows = trace.by_length(times.max_draft_length)
        known = Positions(
            proposed=np.ascontiguousarray(trace.proposed_tokens),
            accepted=accepted.ravel(),
            rows=rows * accepted.shape[1],
            first=trace.starts,
            lengths=np.asarray(trace.output_tokens, np.int64),
            plan=np.zeros(0, np.uint8) if plan is None else plan,
            context=first_context(trace, times),
            noise=self.noise,
        )
        kinds: list[Any] = [np.int64] * 3 + [np.float64] * 2
        totals = RequestTotals(*(np.zeros(size, kind) for kind in kinds))
        parts = (places, owners, known, times.table(pauses=pauses), totals)
        if compiled:
            cast(Function, compiled_function(serial_loop, (rule,)))(policies, *parts)
            return totals
        parts = as_lists(parts)
        serial_loop(rule, policies, *parts)
        return RequestTotals(*map(np.asarray, parts[-1], kinds))


class Block(NamedTuple):
    """Requests `first` to `last`, without the last; `draw` always returns the same block."""

    first: int
    last: int
    draw: Callable[[], DrawnBlock]


def draw_block(
    source: Source, last: int, number: int, variation: Variation, **fields: Any
) -> DrawnBlock:
    """Return a block with its noise and its trace, which is drawn if `source` is a `Sample`.

    `number` is the number of the block, and `fields` are other fields of the `DrawnBlock`.
    """
    seed: int = fields["seed"]
    trace = source
    if isinstance(trace, Sample):
        trace = trace.draw(fields["first"], last, stream(seed, TRACE, number))
    noise = draw_noise(trace, variation, stream(seed, NOISE, number))
    return DrawnBlock(trace=trace, noise=noise, **fields)


def make_blocks(
    source: Source, times: ReplayTimes, variation: Variation, seed: int, policies: int = 1
) -> list[Block]:
    """Return the blocks of a replay, in the order of their requests; `policies` is a count [-]."""
    check("seed", seed, minimum=0, whole=True)
    tokens = source.num_requests * float(np.mean(source.output_tokens))
    how = {"times": times, "seed": seed, "compiles": is_worth_compiling(policies * tokens)}
    blocks = []
    for i, (first, last) in enumerate(block_bounds(source)):
        own = source.part(first, last) if isinstance(source, Trace) else source
        draw = partial(draw_block, own, last, i, variation, first=first, **how)
        blocks.append(Block(first, last, draw))
    return blocks


Work = tuple[Sequence[Block], Sequence[Choice]]
"""Work for one process: blocks in the order of their requests, and the policies to replay."""


def replay_blocks(work: Work) -> list[tuple[str, pd.DataFrame]]:
    """Replay blocks under several policies; return tables with a row for each request, by policy.

    Servers keep the states of their policies from one block to the next.
    """
    blocks, choices = work
    states, found = dict[str, Any](), list[tuple[str, pd.DataFrame]]()
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
    """Replay a block under one policy; `kept` maps policies to the states that servers keep."""
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
    """Replay some requests of a block under policies of any class.

    `log` receives the steps of the last of these requests.
    """
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
        expected = f"The policy raised this exception{place}."
        given = f"{type(error).__name__}: {error}"
        raise InputError(f"policy {name}", given, expected) from error
