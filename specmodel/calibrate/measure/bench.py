"""The device under test: workloads that are ready to run on it, and how long they take.

Weights rotate through more memory than the last-level cache holds: timed in a loop on the same
ones, a kernel would read them from cache, which a pass over a whole model never does. On a CPU a
monotonic clock is read around the calls; on a GPU the calls are one CUDA graph between two events.
"""

import gc
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from specmodel.base.errors import InputError
from specmodel.calibrate.measure import device as devices
from specmodel.calibrate.measure import layers, workloads
from specmodel.calibrate.measure.device import DeviceInfo
from specmodel.calibrate.measure.suite import Point
from specmodel.calibrate.measure.workloads import Workload
from specmodel.calibrate.measurements import COLD_SHARE

OUT_OF_MEMORY = "out of memory"
"""Note of a point that the device has too little memory for."""

NO_KERNEL = "no grouped kernel before Hopper"
"""Note of experts on a GPU where torch runs them one after another and waits for the host."""

FLASH_TOLERANCE = 0.05
"""Largest difference of bf16 attention from fp32 that is rounding [-]."""

LEAST_SECONDS = 3e-3
"""A timing repeats short calls until they take about this long [s]."""

MOST_CALLS = 200
"""Most calls of one timing [-]."""

T = TypeVar("T")
_KEPT_FREE = 0.85
_TINY_BYTES = 2**22
_WARM_UP = 3


class Bench:
    """The device with its arena of weights, and the workloads that are ready on it.

    Parameters
    ----------
    info
        The device.
    points
        Those that it will be asked for: the arena holds the largest that fits.
    """

    def __init__(self, info: DeviceInfo, points: Sequence[Point]) -> None:
        self._info, self._device = info, torch.device(info.kind)
        self._has_graphs = info.kind == "cuda"
        self._can_route = not self._has_graphs or layers.has_grouped_kernel(self._device)
        self._started = time.monotonic()
        self._ready: dict[str, Stopwatch] = {}
        self.clear()
        self._cold_bytes = COLD_SHARE * info.l2_bytes
        room = _KEPT_FREE * devices.free_bytes(info.kind) / 2
        sizes = [workloads.weight_bytes(p.component, p.sizes) for p in points]
        least = self._cold_bytes if max(sizes) >= _TINY_BYTES else 0.0
        self._arena_bytes = max([least, *(size for size in sizes if size <= room)])
        with torch.inference_mode():
            check_attention(self._device)
            self._arena = workloads.Arena(self._arena_bytes, self._device)

    def clear(self) -> None:
        """Let go of what is ready; graphs to come share memory of their own."""
        self._ready.clear()
        gc.collect()
        self._pool = torch.cuda.graph_pool_handle() if self._has_graphs else None

    def measure(self, point: Point) -> dict[str, Any]:
        """Return the columns that timing a point between two of its reference gives."""
        elapsed = {"elapsed": f"{time.monotonic() - self._started:.3f}"}
        if point.component == "experts" and not self._can_route:
            return elapsed | {"note": NO_KERNEL}
        gc.disable()  # a collection in the middle of a timing would count as the kernel's
        try:
            with torch.inference_mode():
                return self._timed(point) | elapsed
        except (torch.OutOfMemoryError, MemoryError):
            self.clear()
            return elapsed | {"note": OUT_OF_MEMORY}
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            expected = f"a device and a torch that run {point.name} ({reason})"
            raise InputError("device", self._info.name, expected) from None
        finally:
            gc.enable()

    def _timed(self, point: Point) -> dict[str, str]:
        reference = point.reference_sizes, f"{point.group} reference"
        has_other = point.sizes != point.reference_sizes
        around = [self._time(point, *reference)[0]] if has_other else []
        seconds, active = self._time(point, point.sizes, point.name)
        around += [self._time(point, *reference)[0] if has_other else seconds]
        timed = {"latency": f"{seconds:.6g}", "reference_latency": f"{np.mean(around):.6g}"}
        return timed | ({"active_experts": f"{active:.6g}"} if active else {})

    def _time(self, point: Point, sizes: dict[str, float], name: str) -> tuple[float, float]:
        """Return the time of a workload, and the mean of the experts that its calls loaded."""
        if name not in self._ready:
            self._ready[name] = self._make(point.component, sizes, name)
        return self._ready[name].time()

    def _make(self, component: str, sizes: dict[str, float], name: str) -> "Stopwatch":
        weights = workloads.weight_bytes(component, sizes)
        needed = workloads.needed_bytes(component, sizes)
        free = _KEPT_FREE * devices.free_bytes(self._info.kind)
        if weights > self._arena_bytes or needed > free:
            raise MemoryError
        workload = workloads.prepare(component, sizes, self._arena, name)
        active = workload.active_experts
        read = weights * (np.mean(active) / sizes["num_experts"] if active else 1.0)
        least_calls = math.ceil(self._cold_bytes / read) if self._has_graphs and read else 1
        return Stopwatch(workload, self._device, least_calls, self._pool)


def captured(work: Callable[[], T], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, T]:
    """Capture the kernels that some work launches, after it has run a few times.

    Parameters
    ----------
    work
        What launches them; nothing in it may wait for the device.
    pool
        Memory pool that graphs share; None for one of its own.

    Returns
    -------
    tuple
        The graph, and what the work returned: filled by each replay.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        made = work()
    return graph, made


def check_attention(device: torch.device) -> None:
    """Refuse a GPU whose flash kernel does not compute attention.

    Parameters
    ----------
    device
        Where it is tried.

    Raises
    ------
    InputError
        If it is not there, or wrong.
    """
    if device.type != "cuda":
        return
    expected = "a GPU and a torch with flash attention over caches of unequal length"
    name = torch.cuda.get_device_name(device)
    try:
        error = max(layers.flash_error(device, q, dim) for q in (1, 4) for dim in (64, 128))
    except (RuntimeError, TypeError) as failure:
        reason = str(failure).splitlines()[0]
        raise InputError("device", name, f"{expected} ({reason})") from None
    if not error < FLASH_TOLERANCE:
        raise InputError("device", f"attention wrong by {error:.2g} on {name}", expected)


class Stopwatch:
    """Times one workload again and again.

    A few calls come first: they load code, fill caches of the allocator and let clocks rise; the
    last of them tells how many calls a timing needs.

    Parameters
    ----------
    workload
        The work.
    device
        Where it runs.
    least_calls
        Calls of one timing at least: as many as the inputs need to leave the cache [-].
    pool
        Memory pool that graphs share; None for one of its own.
    """

    def __init__(
        self, workload: Workload, device: torch.device, least_calls: int = 1, pool: Any = None
    ) -> None:
        self._workload, self._call, self._device = workload, workload.call, device
        self._next = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        enough = math.ceil(LEAST_SECONDS / max(self._warm_up(), 1e-9))
        self.calls = min(max(enough, least_calls), MOST_CALLS)
        if device.type == "cuda" and workload.has_graph:
            self._graph, _ = captured(lambda: [self._call(i) for i in range(self.calls)], pool)
            self.time()  # the first replay uploads the graph

    def _warm_up(self) -> float:
        """Return the time of the last of a few calls [s]."""
        started = 0.0
        for index in range(_WARM_UP):
            started = time.perf_counter()
            self._call(index)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        return time.perf_counter() - started

    def time(self) -> tuple[float, float]:
        """Return the mean time of the work, and the mean of the experts that it loaded [s] [-]."""
        started = self._next
        seconds = self._seconds_on_cpu() if self._device.type == "cpu" else self._seconds_on_gpu()
        active = self._workload.active_experts
        taken = [active[i % len(active)] for i in range(started, started + self.calls) if active]
        return seconds / self.calls / self._workload.work, float(np.mean(taken or 0))

    def _seconds_on_cpu(self) -> float:
        started = time.perf_counter()
        for index in range(self._next, self._next + self.calls):
            self._call(index)
        seconds = time.perf_counter() - started
        self._next += self.calls
        return seconds

    def _seconds_on_gpu(self) -> float:
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
        return float(start.elapsed_time(stop)) / 1e3
