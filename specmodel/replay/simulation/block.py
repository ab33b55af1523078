"""A block of requests under all policies: one piece of work, for whichever process takes it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.base.units import FloatArray
from specmodel.replay.simulation.cascade_lanes import CascadeLanes
from specmodel.replay.simulation.chance import Luck, Variation, draw_luck
from specmodel.replay.simulation.choices import Choice
from specmodel.replay.simulation.lanes import Plan, replay_lanes
from specmodel.replay.simulation.makers import cascade_settings, policy_maker
from specmodel.replay.simulation.seeds import LUCK, TRACE, stream
from specmodel.replay.simulation.sources import Sample, draw_trace
from specmodel.replay.simulation.times import ReplayTimes
from specmodel.replay.simulation.totals import Totals
from specmodel.replay.simulation.walk import replay_policy
from specmodel.replay.traces import Trace


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some requests, and all that their records depend on.

    Parameters
    ----------
    requests
        The requests, or what to draw them from.
    first, last
        Their numbers, without the last [-].
    times, variation
        Step times, and how much they vary.
    seed, number
        Of all that is drawn, and which block it is [-].
    """

    requests: Trace | Sample
    first: int
    last: int
    times: ReplayTimes
    variation: Variation
    seed: int
    number: int


def draw_block(block: Block) -> tuple[Trace, Luck]:
    """Return the requests of a block and their luck, always the same.

    Parameters
    ----------
    block
        The piece of work.

    Returns
    -------
    tuple
        Trace and luck.
    """
    trace = block.requests
    if isinstance(trace, Sample):
        generator = stream(block.seed, TRACE, block.number)
        trace = draw_trace(trace, block.first, block.last, generator)
    return trace, draw_luck(trace, block.variation, stream(block.seed, LUCK, block.number))


def replay_block(block: Block, choices: tuple[Choice, ...]) -> dict[str, pd.DataFrame]:
    """Return the records of a block by policy.

    Parameters
    ----------
    block
        The piece of work.
    choices
        Policies.

    Returns
    -------
    dict
        A table for each policy, a row a request.
    """
    trace, luck = draw_block(block)
    plain = block.times.forward_time * luck.noise_sums(trace)
    tables = {}
    for choice in choices:
        totals = _replay(choice, trace, luck, block, plain)
        columns = {
            "request": np.arange(block.first, block.last),
            "output_tokens": trace.output_tokens,
            **vars(totals),
        }
        small = {name: _counts(column) for name, column in columns.items()}
        tables[choice.name] = pd.DataFrame(small | {"plain_time": plain})
    return tables


def _counts(column: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers in four bytes; records may be many."""
    return column.astype(np.int32) if column.dtype.kind == "i" else column


def _replay(choice: Choice, trace: Trace, luck: Luck, block: Block, plain: FloatArray) -> Totals:
    times = block.times
    if choice.name == "none":
        return _without_speculation(trace, times, plain)
    if choice.planner is not None:
        plan = Plan(choice.planner(trace, times))
        return replay_lanes(plan, trace, times, luck, times.forward_time)
    if choice.is_cascade:
        lanes = CascadeLanes(cascade_settings(choice, times), trace.num_requests)
        return replay_lanes(lanes, trace, times, luck, times.paused_time)
    make = policy_maker(choice, times, block.seed)
    return replay_policy(lambda i: make(block.first + i), trace, times, luck, times.paused_time)


def _without_speculation(trace: Trace, times: ReplayTimes, plain: FloatArray) -> Totals:
    none = np.zeros(trace.num_requests, np.int64)
    return Totals(
        steps=trace.output_tokens,
        test_steps=none,
        drafted_tokens=none,
        time=plain,
        expected_time=times.forward_time * trace.output_tokens.astype(float),
    )
