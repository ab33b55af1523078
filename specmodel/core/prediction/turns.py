"""Times of steps of all requests, or of the requests that run while others wait for their turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from specmodel.core.base.units import FloatArray
from specmodel.core.cost.blocks import MANY, MOST, BlockedTimes
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import KernelErrors, KnownPasses, decode_pass, step_times
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.cost.steps import StepTimes
from specmodel.core.layers.batch import SequenceGroup


class AtOnce(NamedTuple):
    """Requests that run at once with a drafter, and without a drafter; others wait [request]."""

    drafting: FloatArray
    plain: FloatArray


def all_at_once(memory: MemoryUse, points: Mapping[str, FloatArray]) -> AtOnce | None:
    """Return the requests that run at once with memory for their states; None if all run.

    If memory has room for no request, all are assumed to run.
    """
    if not memory.deployment.recurrent_model:
        return None
    batch, is_loaded = points["batch_size"], memory.deployment.runs_idle_drafter
    if (batch <= memory.max_batch_size).all():
        return None  # all also run without a drafter
    drafting, plain = memory.max_batch_size, memory.without_drafter.max_batch_size
    drafting = np.where((points["draft_length"] > 0) | is_loaded, drafting, plain)
    first, second = (np.where(n < 1, batch, np.minimum(batch, n)) for n in (drafting, plain))
    return AtOnce(first, second)


def times_of(
    deployment: Deployment,
    points: Mapping[str, FloatArray],
    at_once: AtOnce | None,
    known: KnownPasses | None,
    errors: KernelErrors | None,
) -> StepTimes | BlockedTimes:
    """Return times of steps of the requests that run at once, in blocks if points are many."""
    of_step = ("batch_size", "draft_length", "verify_tokens", "context_length")
    running: dict[str, Any] = {name: points[name] for name in of_step}
    if at_once:
        running["batch_size"] = at_once.drafting
    *pairs, context = running.values()
    # grids with short axes need no blocks, unless their size with contexts is large
    size = np.broadcast(*pairs, context).size
    is_long = size > MANY and np.broadcast(*pairs).size > MANY
    if not errors and (is_long or size > MOST):
        return BlockedTimes(deployment, running, at_once.plain if at_once else None)
    if at_once and known:
        known = known._replace(draft_passes=())
    elif at_once:
        plain = SequenceGroup(batch_size=at_once.plain, context_length=context)
        known = KnownPasses(decode_pass(deployment, plain, at_once.plain))
    return step_times(deployment, **running, known=known, errors=errors)
