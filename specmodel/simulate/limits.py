"""Define limits of a server: of its scheduler in a step, and of its memory."""

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.cost.prefill import most_running, step_tokens
from specmodel.simulate.loop import blocks_for
from specmodel.simulate.requests import Requests
from specmodel.simulate.state import Limits


class Scheduler(Struct, frozen=True, kw_only=True):
    """Limits of a step: vLLM's options, summed over the replicas of a data-parallel server.

    Parameters
    ----------
    max_running, token_budget
        Maximum running requests [request] and maximum tokens of a step: ``max_num_seqs`` and
        ``max_num_batched_tokens`` [token].
    block_size
        KV entries of a block: ``block_size`` [token].
    reserved_tokens
        Slots reserved for a request beyond the tokens of its step: vLLM's look-ahead. If a model
        drafts, this is the length of its longest draft [token].
    """

    max_running: int = 1024
    token_budget: int = 8192
    block_size: int = 16
    reserved_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("max_running", "token_budget", "block_size"):
            check(name, getattr(self, name), minimum=1, maximum=1e12, whole=True)
        check("reserved_tokens", self.reserved_tokens, minimum=0, maximum=1e4, whole=True)


def usual_scheduler(deployment: Deployment, max_draft_length: int) -> Scheduler:
    """Return the default limits of vLLM 0.33 on the GPUs of a deployment."""
    replicas, tokens = deployment.layout.replicas, step_tokens(deployment.hardware)
    drafts = deployment.has_drafter and not deployment.drafter.is_lookup
    return Scheduler(
        max_running=most_running(deployment.hardware) * replicas,
        token_budget=tokens * replicas,
        reserved_tokens=max_draft_length if drafts else 0,
    )


def limits_for(
    deployment: Deployment, scheduler: Scheduler, max_draft_length: int, requests: Requests
) -> Limits:
    """Return the scheduler's limits and the KV blocks in memory, including the drafter's KV.

    Bytes per request are assumed to be linear in KV entries, through those of the mean and the
    longest request.
    """
    tokens = max_draft_length + 1
    most = requests.longest
    ends = np.array([min(requests.mean_context, most - 1.0), float(most)])
    use = MemoryUse(deployment, ends, tokens)
    free = float(use.free_bytes.min())
    low, high = use.bytes_per_request
    by_entry = (high - low) / (ends[1] - ends[0])
    fixed = max(high - by_entry * (ends[1] + tokens), 0.0)
    size, block_bytes = scheduler.block_size, by_entry * scheduler.block_size
    if block_bytes < 1e-6 * high:  # recurrent states only
        size, block_bytes, fixed = 10**9, high, 0.0
    blocks = int(max(free, 0.0) // block_bytes) * deployment.layout.replicas
    held = {"blocks": blocks, "fixed_blocks": int(np.ceil(fixed / block_bytes))}
    return Limits(**asdict(scheduler) | held | {"block_size": size})


def check_fits(limits: Limits, max_draft_length: int, requests: Requests) -> None:
    """Refuse requests that never fit in memory."""
    longest = requests.longest + max_draft_length + 1 + limits.reserved_tokens
    if blocks_for(limits, longest) > limits.blocks:
        held = max(limits.blocks - limits.fixed_blocks, 0) * limits.block_size
        expected = "Not one request fits. Use more GPUs, smaller dtypes or shorter requests."
        if held:
            expected = f"at most {held} tokens, the most of one request and its draft that fit"
        raise InputError("memory", f"{longest} tokens of the longest request", expected)
