"""Seconds of a step at batch size 1 by what it verifies, tabulated once for all steps replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.tables import need_columns, numbers, read_table
from specmodel.base.units import FloatArray, check
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import StepTimes, step_times
from specmodel.replay.traces import LONGEST_DRAFT

DEFAULT_DRAFTER_UPKEEP = 0.025
"""What a model drafter that goes on drafting adds to a plain pass [-]: Cascade's 2-3 %."""

MOST_UPKEEP = 100
"""Largest upkeep, relative to a plain pass [-]: above this, a slip is likelier than a drafter."""

FASTEST, SLOWEST = 1e-9, 1e6
"""Bounds of measured step times [s]."""

_ARGUMENT = "step_times"


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayTimes:
    """Times of the steps of one request.

    Parameters
    ----------
    forward_time, paused_time
        Plain pass of a deployment that never speculates; and of one that may, but has draft length
        0 in this step: with the upkeep of the drafter [s].
    step_time
        By the number of draft tokens verified, from 0, a step whose look-up found nothing [s].
    expert_time
        How much longer the step would take if the pass loaded twice as many experts beyond those
        of one token; of the same shape, and less than the step takes [s].
    """

    forward_time: float
    paused_time: float
    step_time: FloatArray
    expert_time: FloatArray

    def __post_init__(self) -> None:
        for name in ("forward_time", "paused_time", "step_time"):
            check(name, getattr(self, name), above=0)
        check("expert_time", self.expert_time, minimum=0)
        if self.step_time.ndim != 1 or self.step_time.shape != self.expert_time.shape:
            expected = f"one number for each of the {self.step_time.size} step times"
            raise InputError("expert_time", self.expert_time, expected)
        if not (self.expert_time < self.step_time).all():
            longest = int(np.argmax(self.expert_time - self.step_time))
            expected = f"less than step_time = {self.step_time[longest]:g}"
            raise InputError("expert_time", float(self.expert_time[longest]), expected)

    @property
    def max_draft_length(self) -> int:
        """Longest draft with a time [token]."""
        return len(self.step_time) - 1

    def by_column(self, plain_time: float) -> tuple[FloatArray, FloatArray]:
        """Return step and expert times with draft length 0 in front, which takes `plain_time` [s].

        A step of draft length K that verifies v draft tokens is found in column v + (K > 0).
        """
        steps = np.concatenate([[plain_time], self.step_time])
        return steps, np.concatenate([[0.0], self.expert_time])

    def up_to(self, max_draft_length: int) -> "ReplayTimes":
        """Return the times of drafts of at most `max_draft_length` [token]."""
        kept = slice(max_draft_length + 1)
        return replace(self, step_time=self.step_time[kept], expert_time=self.expert_time[kept])


def replay_times(
    deployment: Deployment,
    *,
    max_draft_length: int,
    context_length: float,
    drafter_upkeep: float = DEFAULT_DRAFTER_UPKEEP,
) -> ReplayTimes:
    """Return the times that the model predicts for a deployment at batch size 1.

    A drafter that offers fewer tokens than it was asked for is taken to have made one pass for
    each token that it offers; a model that offers none has its upkeep.

    `expert_time` takes the time of a pass as linear in the number of experts that it loads, through
    fully correlated and independent routing, which load the fewest and the most. This is right
    within 5 % of the time where few experts are spread over GPUs, and within 0.1 % elsewhere.

    Parameters
    ----------
    deployment, max_draft_length, context_length
        What runs where, the longest draft, and KV entries before every step [token].
    drafter_upkeep
        What a model drafter adds to a plain pass, as a share of it, by drafting on without use in
        order to keep its KV cache; a look-up has none [-].

    Returns
    -------
    ReplayTimes
        Times of steps with a proposal; the trace says where there is one, and of how many tokens.

    Examples
    --------
    >>> from specmodel.cost.deploying import deploy
    >>> d, _ = deploy(target="mixtral-8x7b", hardware="rtx_6000_ada", drafter="ngram")
    >>> times = replay_times(d, max_draft_length=3, context_length=1024)
    >>> (times.step_time / times.forward_time).round(1).tolist()
    [1.0, 1.5, 1.8, 2.1]
    """
    upkeep = float(check("drafter_upkeep", drafter_upkeep, minimum=0, maximum=MOST_UPKEEP))
    check("max_draft_length", max_draft_length, minimum=1, maximum=LONGEST_DRAFT, whole=True)
    check("context_length", context_length, minimum=0, maximum=1e9)
    if deployment.tree_width > 1:
        raise InputError("tree_width", deployment.tree_width, "1, a chain: replays walk no trees")
    deployment = replace(deployment, drafter=replace(deployment.drafter, proposal_rate=1.0))
    lengths = np.arange(max_draft_length + 1.0)
    steps: dict[str, Any] = {
        "batch_size": 1,
        "draft_length": lengths,
        "verify_tokens": lengths + 1,
        "context_length": context_length,
    }
    times = step_times(deployment, **steps)
    forward = float(times.forward_time)
    step = np.array(times.step_time, dtype=float)
    has_model = not deployment.drafter.is_lookup
    paused = forward * (1 + upkeep if has_model else 1)
    step[0] = paused + deployment.drafter.lookup_time
    return ReplayTimes(
        forward_time=forward,
        paused_time=paused,
        step_time=step,
        expert_time=_expert_time(deployment, times, steps),
    )


def read_replay_times(path: str | Path) -> ReplayTimes:
    """Return measured times; draft length 0 takes a plain pass, with a drafter and without.

    Parameters
    ----------
    path
        CSV with the columns draft_length, from 0, and step_time; expert_time may be there.
    """
    table = read_table(path, (), _ARGUMENT)
    need_columns(table, ["draft_length", "step_time"], argument=_ARGUMENT)
    lengths = numbers(table, "draft_length", above=-1, minimum=0, whole=True, argument=_ARGUMENT)
    missing = set(range(max(len(lengths), 2))) - set(lengths.tolist())
    if missing:
        expected = f"every draft length from 0 on, once: {min(missing)} is missing"
        raise InputError(f"{_ARGUMENT}.draft_length", lengths.tolist(), expected)
    order = np.argsort(lengths)
    step = numbers(table, "step_time", minimum=FASTEST, maximum=SLOWEST, argument=_ARGUMENT)[order]
    experts = np.zeros_like(step)
    if "expert_time" in table:
        experts = numbers(table, "expert_time", above=-1, minimum=0, argument=_ARGUMENT)[order]
    plain = float(step[0])
    try:
        return ReplayTimes(
            forward_time=plain, paused_time=plain, step_time=step, expert_time=experts
        )
    except InputError as error:
        argument = f"{_ARGUMENT}.{error.argument}"
        raise InputError(argument, error.value, error.expected) from None


def _expert_time(deployment: Deployment, times: StepTimes, steps: Mapping[str, Any]) -> FloatArray:
    """Return the share of the experts that routing decides on, times what they all take [s]."""
    if not deployment.target.is_moe:
        return np.zeros(times.step_time.shape)
    few, many = (
        step_times(replace(deployment, routing_correlation=c), **steps) for c in (1.0, 0.0)
    )
    added = times.active_experts_verify - few.active_experts_verify
    most = many.active_experts_verify - few.active_experts_verify
    share = np.divide(added, most, out=np.zeros(most.shape), where=most > 0)
    return np.asarray(share * np.maximum(many.verify_time - few.verify_time, 0.0))
