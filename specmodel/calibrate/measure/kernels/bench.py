"""Time workloads on the device under test.

Weights rotate through more memory than the last-level cache can store. Otherwise a kernel in a loop
would read the same weights from the cache, which a pass over a whole model never does. On a CPU,
the host clock is read before and after the calls. On a CUDA GPU, the calls are one CUDA graph
between two events.
"""

import gc
import math
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from specmodel.calibrate.measure.kernels import device as devices, layers
from specmodel.calibrate.measure.kernels.device import DeviceInfo
from specmodel.calibrate.measure.kernels.suite import Point, Sizes, weight_bytes
from specmodel.calibrate.measure.kernels.workloads import Arena, Workload, prepare
from specmodel.calibrate.measure.measurements import COLD_SHARE
from specmodel.core.base.errors import InputError

OUT_OF_MEMORY = "out of memory"  # note of a point that does not fit into the memory of the device

NO_KERNEL = "no grouped kernel before Hopper"
"""Note of experts on a GPU where torch runs one expert after another, and so waits for the host."""

FLASH_TOLERANCE = 0.05  # largest error of attention in bf16 that rounding explains [-]
LEAST_SECONDS = 3e-3  # short calls are repeated until one timing takes about this long [s]
MOST_CALLS = 200  # most calls in one timing [-]

T = TypeVar("T")
_OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "can't allocate memory")
_KEPT_FREE = 0.85
_TINY_BYTES = 2**22
_WARM_UP = 3


class Bench:
    """A device, an arena for the weights of the largest point that fits, and prepared workloads."""

    def __init__(self, info: DeviceInfo, points: Sequence[Point]) -> None:
        self._info, self._device = info, torch.device(info.kind)
        self._has_graphs = info.kind == "cuda"
        self._started = time.monotonic()
        self._ready: dict[str, Stopwatch] = {}
        self._pool: Any = None
        self.clear()
        self._cold_bytes = COLD_SHARE * info.l2_bytes
        room = _KEPT_FREE * devices.free_bytes(info.kind) / 2
        sizes = [self._weight_bytes(p, p.sizes) for p in points]
        least = self._cold_bytes if max(sizes) >= _TINY_BYTES else 0.0
        self._arena_bytes = max([least, *(size for size in sizes if size <= room)])
        with torch.inference_mode():
            self._unable = _missing_kernels(self._device)
            try:
                self._arena = Arena(self._arena_bytes, self._device, info.dtype)
            except (RuntimeError, MemoryError):
                expected = f"{self._arena_bytes / 1e9:.2g} GB of free memory: end other processes"
                raise InputError("device", info.name, expected) from None
        self.fault = ""
        """The last error of a device that has failed; empty if the device works."""

    def clear(self) -> None:
        """Release prepared workloads and their memory, and start a new memory pool for graphs."""
        self._ready.clear()
        gc.collect()
        if self._has_graphs:
            torch.cuda.empty_cache()
            self._pool = torch.cuda.graph_pool_handle()

    def close(self) -> None:
        """Release all memory, including the arena."""
        del self._arena
        self.clear()

    def measure(self, point: Point) -> dict[str, Any]:
        """Return the columns of a point, which is timed between two timings of its reference.

        A point that fails has a note instead of times. The next points can be measured unless
        `fault` is set.
        """
        columns: dict[str, Any] = {"elapsed": f"{time.monotonic() - self._started:.3f}"}
        is_own = (point.component, point.weight_dtype) in self._info.timed.rows
        if point.component in self._unable and not is_own:
            return columns | {"note": self._unable[point.component]}
        if self._weight_bytes(point, point.sizes) > self._arena_bytes:
            return columns | {"note": OUT_OF_MEMORY}
        gc.disable()  # a collection during a timing would count as time of the kernel
        try:
            with torch.inference_mode():
                return columns | self._timed_or_noted(point)
        finally:
            gc.enable()

    def _timed_or_noted(self, point: Point, *, is_last: bool = False) -> dict[str, str]:
        try:
            return self._timed(point)
        except Exception as error:  # any failure: other points can still be measured
            note = _reason(error)
        try:
            if self._has_graphs:
                torch.cuda.synchronize(self._device)
        except RuntimeError as error:  # the context of the device is lost
            self.fault = _reason(error)
            return {"note": note}
        if note == OUT_OF_MEMORY and not is_last:
            self.clear()  # other points may have used the memory
            return self._timed_or_noted(point, is_last=True)
        self._ready.pop(point.name, None)
        if self._has_graphs:  # the old pool may contain a failed capture
            self._pool = torch.cuda.graph_pool_handle()
        return {"note": note}

    def _timed(self, point: Point) -> dict[str, str]:
        reference = point.reference_sizes, f"{point.group} reference"
        has_other = point.sizes != point.reference_sizes
        around = [self._time(point, *reference)[0]] if has_other else []
        seconds, active = self._time(point, point.sizes, point.name)
        around += [self._time(point, *reference)[0] if has_other else seconds]
        timed = {"latency": f"{seconds:.6g}", "reference_latency": f"{np.mean(around):.6g}"}
        return timed | ({"active_experts": f"{active:.6g}"} if active else {})

    def _weight_bytes(self, point: Point, sizes: Sizes) -> float:
        return weight_bytes(point.component, sizes, point.weight_dtype or self._info.dtype)

    def _time(self, point: Point, sizes: dict[str, float], name: str) -> tuple[float, float]:
        """Return the time of a workload [s], and the mean number of experts that it loads [-]."""
        if name not in self._ready:
            weights = self._weight_bytes(point, sizes)
            row = self._info.timed.rows.get((point.component, point.weight_dtype))
            workload = prepare(point.component, sizes, self._arena, name, row)
            active = workload.active_experts
            read = weights * (np.mean(active) / sizes["num_experts"] if active else 1.0)
            least_calls = math.ceil(self._cold_bytes / read) if self._has_graphs and read else 1
            self._ready[name] = Stopwatch(workload, self._device, least_calls, self._pool)
        return self._ready[name].time()


def captured(work: Callable[[], T], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, T]:
    """Return a CUDA graph of the kernels that `work` launches, and the result of `work`.

    Each replay writes new values into the result. `work` must not wait for the device.
    """
    graph = torch.cuda.CUDAGraph()
    # torch stays on the stream of a failed capture: the outer context restores the stream
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, pool=pool):
        made = work()
    return graph, made


def _missing_kernels(device: torch.device) -> dict[str, str]:
    """Return the components that cannot be timed on this device, and the reason for each."""
    if device.type != "cuda" or torch.version.hip:
        return {}
    missing = {} if layers.has_grouped_kernel(device) else {"experts": NO_KERNEL}
    try:
        error = max(layers.flash_error(device, q, dim) for q in (1, 4) for dim in (64, 128))
        if not error < FLASH_TOLERANCE:
            missing["attention"] = f"torch's flash attention is wrong by {error:.2g}"
    except (RuntimeError, TypeError) as failure:
        missing["attention"] = f"torch's flash attention fails ({_reason(failure)})"
    return missing


def _reason(error: BaseException) -> str:
    """Return an error as one line. In a chain of errors, this is the first one."""
    chain = [error]
    while chain[-1].__context__ is not None:
        chain.append(chain[-1].__context__)
    texts = [str(one) for one in chain]
    is_typed = any(isinstance(one, torch.OutOfMemoryError | MemoryError) for one in chain)
    if is_typed or any(word in text for word in _OUT_OF_MEMORY for text in texts):
        return OUT_OF_MEMORY
    first = texts[-1].strip().partition("\n")[0] or type(chain[-1]).__name__
    return textwrap.shorten(first, 100)


class Stopwatch:
    """Times one workload, with at least `least_calls` calls per timing [-].

    A few calls come first. They load code, fill the allocator's caches and let clocks rise.
    """

    def __init__(
        self, workload: Workload, device: torch.device, least_calls: int = 1, pool: Any = None
    ) -> None:
        self._workload, self._device = workload, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._next, self.calls = 0, 1
        for _ in range(_WARM_UP):
            seconds = devices.seconds_of(self._run, device)
        enough = math.ceil(LEAST_SECONDS / max(seconds, 1e-9))
        self._next, self.calls = 0, min(max(enough, least_calls), MOST_CALLS)
        if device.type == "cuda" and workload.has_graph:
            self._graph, _ = captured(self._run, pool)
            self.time()  # the first replay uploads the graph

    def time(self) -> tuple[float, float]:
        """Return the mean time of a kernel [s], and the mean number of experts loaded [-]."""
        if self._graph is None:
            started = self._next
            seconds = devices.seconds_of(self._run, self._device)
        else:
            started = 0
            self._graph.replay()  # keeps the device busy while the host launches the timed replay
            seconds = devices.seconds_of(self._graph.replay, self._device)
        active = self._workload.active_experts
        taken = [active[i % len(active)] for i in range(started, started + self.calls) if active]
        return seconds / self.calls / self._workload.work, float(np.mean(taken or 0))

    def _run(self) -> None:
        for index in range(self._next, self._next + self.calls):
            self._workload.call(index)
        self._next += self.calls
