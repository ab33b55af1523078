"""One request step by step: what its policy did when."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specmodel.base.errors import InputError
from specmodel.replay.policies import Policy
from specmodel.replay.policies.base import is_number
from specmodel.replay.simulation.block import draw_block
from specmodel.replay.simulation.chance import Variation
from specmodel.replay.simulation.choices import BEST_FIXED, choose
from specmodel.replay.simulation.makers import check_choice, policy_maker
from specmodel.replay.simulation.run import PolicyLike, make_blocks
from specmodel.replay.simulation.sources import Source
from specmodel.replay.simulation.times import ReplayTimes
from specmodel.replay.simulation.walk import Step, replay_policy

WINDOW = 16
"""Steps that `window_utility` is of [-]."""


def timeline(
    source: Source,
    times: ReplayTimes,
    policy: PolicyLike,
    *,
    request: int,
    seed: int,
    variation: Variation | None = None,
) -> pd.DataFrame:
    """Return the steps of one request, as `simulate` replays it with the same seed.

    Parameters
    ----------
    source, times, policy, seed, variation
        As for `simulate` [-].
    request
        Number of the request [-].

    Returns
    -------
    pandas.DataFrame
        A row for each step: position, draft_length, drafted_tokens, emitted_tokens, step_time,
        phase (text) and utility (number) as far as the policy tells, and window_utility of the
        last 16 steps.

    Raises
    ------
    InputError
        If there is no such request, or the policy is the best fixed one, which needs them all.
    """
    choice = choose(policy)
    if choice.name == BEST_FIXED:
        raise InputError("policy", BEST_FIXED, "a policy of one request, such as fixed:3")
    times = times.up_to(min(times.max_draft_length, source.max_draft_length))
    check_choice(choice, times)
    blocks = list(make_blocks(source, times, variation or Variation(), seed))
    block = next((block for block in blocks if block.first <= request < block.last), None)
    if block is None:
        raise InputError("request", request, f"from 0 to {blocks[-1].last - 1}")
    trace, luck = draw_block(block)
    number = request - block.first
    one, start = trace.part(number, number + 1), int(trace.starts[number])
    part = slice(start, start + int(one.output_tokens[0]))
    its = luck.of(number, part)
    follower: Policy
    if choice.planner is not None:
        follower, plain_time = _Follower(choice.planner(one, times)), times.forward_time
    else:
        make = policy_maker(choice, times, seed)
        follower, plain_time = make(request), times.paused_time
    steps: list[Step] = []
    replay_policy(lambda _: follower, one, times, its, plain_time, steps)
    table = pd.DataFrame([vars(step) for step in steps])
    tokens, seconds = (
        table[name].rolling(WINDOW).sum() for name in ("emitted_tokens", "step_time")
    )
    return table.assign(
        phase=table["phase"].map(str),
        utility=[float(value) if is_number(value) else np.nan for value in table["utility"]],
        window_utility=tokens * times.forward_time / seconds,
    )


class _Follower:
    """A policy that follows the plan of its request."""

    def __init__(self, plan: NDArray[np.uint8]) -> None:
        self._plan, self._position = plan.tolist(), 0

    def propose(self) -> int:
        return int(self._plan[self._position])

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        self._position += emitted_tokens
