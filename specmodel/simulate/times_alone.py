"""Tabulate times of steps at batch size 1 by verified tokens, for replays."""

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import need_columns, numbers, read_table
from specmodel.core.base.units import FloatArray, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import step_times
from specmodel.simulate.traces import LONGEST_DRAFT

DEFAULT_DRAFTER_UPKEEP = 0.025
"""Time that a paused model drafter adds to a decode step, relative to it: Cascade's 2-3 % [-]."""

MOST_UPKEEP = 100
"""Largest upkeep, relative to a decode step; a larger one is probably a typing error [-]."""

LEAST_ROW, ROWS = 64, 48
"""Least context between rows of a table of times [token], and approximate number of rows [-]."""

FASTEST, SLOWEST = 1e-9, 1e6
"""Bounds of measured step times [s]."""

_ARGUMENT = "step_times"


class StepTable(NamedTuple):
    """Step times as the serial loop reads them: flat, by column of draft and row of context.

    A step of draft length K that verifies v draft tokens has the column v + (K > 0). `slope` is the
    additional time with twice the experts beyond those of one token [s]. The table has `rows` rows
    of context, with `rows_per_token` rows per token, 0 if context does not matter.
    """

    base: Any
    slope: Any
    rows: int
    rows_per_token: float


class ReplayTimes(Struct, frozen=True, kw_only=True, eq=False):
    """Times of the steps of a single request, and their growth with context.

    Parameters
    ----------
    forward_time, paused_time
        Time of a decode step in a deployment that never speculates, and time of a step with draft
        length 0 in a deployment that may speculate, including the drafter's upkeep [s].
    step_time
        Time of a step by number of verified draft tokens; entry 0 is a step whose look-up found
        nothing [s].
    expert_time
        Additional time if the pass loaded twice as many experts beyond those of one token. It has
        the same shape, and is less than the time of the step [s].
    context_length, context_step, later
        Context of these times, if known, and the increase of context between successive times in
        `later` [token]. Times at other contexts are interpolated. Without later times, context does
        not matter.
    """

    forward_time: float
    paused_time: float
    step_time: FloatArray
    expert_time: FloatArray
    context_length: float | None = None
    context_step: float = 0.0
    later: "tuple[ReplayTimes, ...]" = ()

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
        if self.later:
            check("context_step", self.context_step, above=0)

    @property
    def max_draft_length(self) -> int:
        """Longest draft with a time [token]."""
        return len(self.step_time) - 1

    @property
    def asked_time(self) -> list[float]:
        """Step time by requested draft length from 0, with the drafter's upkeep at 0 [s]."""
        return [self.paused_time, *self.step_time[1:].tolist()]

    @property
    def rows(self) -> "tuple[ReplayTimes, ...]":
        """The times by context: these times, and then the times in `later`."""
        return self, *self.later

    def table(self, *, pauses: bool) -> StepTable:
        """Return the table of these times; its contexts are relative to the first row.

        With `pauses`, a step with draft length 0 has the paused time, or else the time of a
        decode step.
        """
        rows = self.rows if self.later else (self, self)
        plain = [row.paused_time if pauses else row.forward_time for row in rows]
        base = [[time, *row.step_time] for time, row in zip(plain, rows, strict=True)]
        slope = [[0.0, *row.expert_time] for row in rows]
        return StepTable(
            base=np.ravel(base, order="F"),
            slope=np.ravel(slope, order="F"),
            rows=len(base),
            rows_per_token=1 / self.context_step if self.later else 0.0,
        )

    def up_to(self, max_draft_length: int) -> "ReplayTimes":
        """Return the times of drafts of at most `max_draft_length` [token]."""
        kept = slice(max_draft_length + 1)
        return replace(
            self,
            step_time=self.step_time[kept],
            expert_time=self.expert_time[kept],
            later=tuple(row.up_to(max_draft_length) for row in self.later),
        )


def replay_times(
    deployment: Deployment,
    *,
    max_draft_length: int,
    context_length: float,
    drafter_upkeep: float = DEFAULT_DRAFTER_UPKEEP,
    growth: float = 0.0,
) -> ReplayTimes:
    """Return the times that the model predicts for a deployment at batch size 1.

    If a drafter offers fewer tokens than requested, it is assumed to run one pass for each offered
    token. A model that offers no token has its upkeep.

    For `expert_time`, the time of a pass is assumed to be linear in the number of experts that it
    loads. The line is through fully correlated and independent routing, which load the fewest and
    the most experts. The error is within 5 % of the time if few experts are spread over GPUs, and
    within 0.1 % otherwise.

    Parameters
    ----------
    deployment, max_draft_length, context_length
        The deployment, the longest draft, and KV entries before the first step [token].
    growth
        Growth of the context in a request; 0 keeps it constant [token].
    drafter_upkeep
        Time that a model drafter adds to a decode step, as a share of the step: the drafter
        continues, to keep its KV cache. A look-up has none [-].

    Returns
    -------
    ReplayTimes
        Times of steps by length of the proposal, which the trace contains.

    Examples
    --------
    >>> from specmodel.core.cost.deploying import deploy
    >>> d, _ = deploy(target="mixtral-8x7b", hardware="rtx_6000_ada", drafter="ngram")
    >>> times = replay_times(d, max_draft_length=3, context_length=1024)
    >>> (times.step_time / times.forward_time).round(1).tolist()
    [1.0, 1.6, 2.0, 2.3]
    """
    upkeep = float(check("drafter_upkeep", drafter_upkeep, minimum=0, maximum=MOST_UPKEEP))
    check("max_draft_length", max_draft_length, minimum=1, maximum=LONGEST_DRAFT, whole=True)
    check("context_length", context_length, minimum=0, maximum=1e9)
    if deployment.tree_width > 1:
        raise InputError("tree_width", deployment.tree_width, "1 (a chain); replays have no trees")
    check("growth", growth, minimum=0, maximum=1e9)
    deployment = replace(deployment, drafter=replace(deployment.drafter, proposal_rate=1.0))
    at = partial(_times_at, deployment, max_draft_length, upkeep=upkeep)
    first = at(context_length)
    if not growth:
        return first
    step = max(LEAST_ROW, math.ceil(growth / ROWS))
    later = [at(context_length + n * step) for n in range(1, int(growth / step) + 2)]
    return replace(first, context_step=float(step), later=tuple(later))


def _times_at(
    deployment: Deployment, max_draft_length: int, context_length: float, upkeep: float
) -> ReplayTimes:
    """Return the times at one context."""
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
    experts = np.zeros_like(step)
    if deployment.target.is_moe:  # the share of experts beyond the fewest, times their time
        by_routing = (replace(deployment, routing_correlation=c) for c in (1.0, 0.0))
        few, many = (step_times(each, **steps) for each in by_routing)
        added = times.active_experts_verify - few.active_experts_verify
        most = many.active_experts_verify - few.active_experts_verify
        share = np.divide(added, most, out=np.zeros(most.shape), where=most > 0)
        experts = np.asarray(share * np.maximum(many.verify_time - few.verify_time, 0.0))
    return ReplayTimes(
        forward_time=forward,
        paused_time=paused,
        step_time=step,
        expert_time=experts,
        context_length=float(context_length),
    )


def read_replay_times(path: str | Path) -> ReplayTimes:
    """Read measured times. Draft length 0 is a decode step, with or without a drafter.

    Parameters
    ----------
    path
        CSV with the columns draft_length, from 0, and step_time, and optionally expert_time.
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
