"""Prefill apart from decoding: servers that read prompts, and hand their KV entries on."""

import heapq
from dataclasses import dataclass

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.cost.deployment import Deployment
from specmodel.cost.memory import MemoryUse
from specmodel.serving.requests import Requests
from specmodel.serving.times import TabulatedTimes


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Servers that prefill, each one prompt at a time, first come first served.

    Parameters
    ----------
    servers
        How many there are, each like the deployment that decodes [-].
    transfer_time
        Seconds to hand on the entries of each prompt, over the network if there is one [s].
    """

    servers: int
    transfer_time: FloatArray

    def __post_init__(self) -> None:
        check("prefill", self.servers, minimum=1, maximum=1e6, whole=True)


def prefill_apart(deployment: Deployment, servers: int, requests: Requests) -> Apart:
    """Return servers that prefill for a deployment; each GPU sends what it keeps of a prompt."""
    carrier = deployment.hardware.network or deployment.hardware.link
    if carrier is None:
        raise InputError("prefill", f"apart:{servers}", "together: the GPU has no link to others")
    kept = MemoryUse(deployment, requests.prompt_tokens, 1).bytes_per_request
    return Apart(servers=servers, transfer_time=kept / carrier.peak_bytes_per_s)


def ready_times(
    apart: Apart, requests: Requests, times: TabulatedTimes, token_budget: int
) -> FloatArray:
    """Return when the entries of each prompt are where it decodes, its first token with them [s].

    A prompt beyond the budget is cut, each part seeing those before it.
    """
    if requests.users:
        raise InputError(
            "prefill", f"apart:{apart.servers}", "together, or rates in place of users"
        )
    left, seen = requests.prompt_tokens.astype(float), np.zeros(requests.count)
    takes = np.zeros(requests.count)
    while (left > 0).any():
        part = np.minimum(left, token_budget)
        is_left = part > 0
        taken = times.prompt_time(0, 0, np.maximum(part, 1.0), seen + (part + 1) / 2)
        takes += np.where(is_left, taken, 0.0)
        left, seen = left - part, seen + part
    free = [0.0] * apart.servers
    done = np.empty(requests.count)
    for i, (arrival, seconds) in enumerate(zip(requests.arrival_time, takes, strict=True)):
        done[i] = max(arrival, heapq.heappop(free)) + seconds
        heapq.heappush(free, done[i])
    return done + apart.transfer_time
