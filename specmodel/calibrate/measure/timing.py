"""Seconds of a call: a monotonic clock on a CPU, events around a replayed graph on a GPU."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch

LEAST_SECONDS = 3e-3
"""A timing repeats short calls until they take about this long [s]."""

MOST_CALLS = 200
"""Most calls of one timing [-]."""

WARM_UP = 3

Call = Callable[[int], None]
"""Does the work; its argument counts the calls, so that each can take other inputs."""


class Stopwatch:
    """Times one workload again and again.

    Parameters
    ----------
    call
        The work.
    device
        Where it runs.
    least_calls
        Calls of one timing at least: as many as the inputs need to leave the cache [-].
    has_graph
        Whether its kernels are replayed as one CUDA graph; ignored on a CPU.
    pool
        Memory pool that graphs share; None for one of its own.
    """

    def __init__(
        self,
        call: Call,
        device: torch.device,
        *,
        least_calls: int = 1,
        has_graph: bool = True,
        pool: Any = None,
    ) -> None:
        self._call, self._device = call, device
        self._next = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        started = self._warm_up()
        fit = math.ceil(LEAST_SECONDS / max(started, 1e-9))
        self.calls = min(max(fit, least_calls), MOST_CALLS)
        if device.type == "cuda" and has_graph:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=pool):
                for index in range(self.calls):
                    call(index)
            self.time()  # the first replay uploads the graph

    def _warm_up(self) -> float:
        """Return the time of the last of a few calls [s]."""
        started = 0.0
        for index in range(WARM_UP):
            self._synchronize()
            started = time.perf_counter()
            self._call(index)
            self._synchronize()
        return time.perf_counter() - started

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def time(self) -> tuple[float, range]:
        """Return the mean time of a call, and the indices that the calls had [s]."""
        if self._device.type == "cpu":
            indices = range(self._next, self._next + self.calls)
            self._next = indices.stop
            started = time.perf_counter()
            for index in indices:
                self._call(index)
            return (time.perf_counter() - started) / self.calls, indices
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if self._graph is not None:
            self._graph.replay()  # the device is busy while the host launches what is timed
            start.record()
            self._graph.replay()
        else:
            start.record()
            for index in range(self.calls):
                self._call(index)
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3 / self.calls, range(self.calls)
