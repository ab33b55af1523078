"""Disaggregated prefill: servers that compute prompts and send their KV entries to the decoder."""

import heapq

import numpy as np
from msgspec import Struct

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.memory import MemoryUse
from specmodel.simulate.requests import Requests, Whole
from specmodel.simulate.tables import TabulatedTimes


class DisaggregatedPrefill(Struct, frozen=True, kw_only=True):
    """Prefill servers, each of which computes one prompt at a time, first come first served.

    Parameters
    ----------
    servers
        Number of servers, each like the deployment that decodes [-].
    deployment
        The deployment. Each GPU sends its part of a prompt's KV entries, over the network if the
        hardware has one, or else over the link between GPUs.
    """

    servers: int
    deployment: Deployment

    def __post_init__(self) -> None:
        check("prefill", self.servers, minimum=1, maximum=1e6, whole=True)

    def transfer_time(self, requests: Requests) -> FloatArray:
        """Return the time to send the KV entries of each prompt [s]."""
        hardware = self.deployment.hardware
        carrier = hardware.network or hardware.link
        if carrier is None:
            expected = "together, as the GPU has no link to others"
            raise InputError("prefill", f"disaggregated:{self.servers}", expected)
        kept = MemoryUse(self.deployment, requests.prompt_tokens, 1).bytes_per_request
        return kept / carrier.peak_bytes_per_s

    def ready_times(
        self, requests: Requests, cached: Whole, times: TabulatedTimes, token_budget: int
    ) -> FloatArray:
        """Return the times at which KV entries and first tokens reach the decoding server [s].

        Cached tokens are not computed. A prompt larger than the token budget is cut into parts, and
        each part attends to the parts before it.
        """
        if requests.users:
            expected = "Prefill servers need request rates. Replace `users` by `request_rate`."
            raise InputError("prefill", f"disaggregated:{self.servers}", expected)
        left, seen = (requests.prompt_tokens - cached).astype(float), cached.astype(float)
        takes = np.zeros(requests.count)
        while (left > 0).any():
            part = np.minimum(left, token_budget)
            taken = times.prompt_time(0, 0, np.maximum(part, 1.0), seen + (part + 1) / 2)
            takes += np.where(part > 0, taken, 0.0)
            left, seen = left - part, seen + part
        free, done = [0.0] * self.servers, np.empty(requests.count)
        for i, (arrival, seconds) in enumerate(zip(requests.arrival_time, takes, strict=True)):
            done[i] = max(arrival, heapq.heappop(free)) + seconds
            heapq.heappush(free, done[i])
        return done + self.transfer_time(requests)
