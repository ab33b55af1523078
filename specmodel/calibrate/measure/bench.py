"""The device with its weights, and the workloads that are ready to be timed on it."""

import gc
import math
import time
from collections.abc import Sequence
from typing import Any

from specmodel.base.errors import InputError
from specmodel.calibrate.measure import device as devices
from specmodel.calibrate.measure.device import DeviceInfo
from specmodel.calibrate.measure.suite import Point

OUT_OF_MEMORY = "out of memory"
"""Note of a point that the device has too little memory for."""

NO_KERNEL = "no grouped kernel before Hopper"
"""Note of experts on a GPU where torch runs them one after another and waits for the host."""

_KEPT_FREE = 0.85
_TINY_BYTES = 2**22


class _NoKernelError(Exception):
    """Torch has no kernel for this on the device."""


class Bench:
    """The device with its arena, and the workloads that are ready on it.

    Parameters
    ----------
    info
        The device.
    points
        Those that it will be asked for: the arena holds the largest that fits.
    """

    def __init__(self, info: DeviceInfo, points: Sequence[Point]) -> None:
        from specmodel.calibrate.measure import workloads

        torch = devices.import_torch()
        self._torch, self._workloads = torch, workloads
        self._has_graphs = info.kind == "cuda"
        self._device, self._info = torch.device(info.kind), info
        self._started = time.monotonic()
        self._ready: dict[str, tuple[Any, Any]] = {}
        self.clear()
        least = workloads.CACHE_MULTIPLE * info.l2_bytes
        room = _KEPT_FREE * devices.free_bytes(info.kind) / 2
        sizes = [workloads.weight_bytes(p.component, p.sizes) for p in points]
        if max(sizes) < _TINY_BYTES:
            least = 0.0
        self._arena_bytes = max([least, *(size for size in sizes if size <= room)])
        with torch.inference_mode():
            workloads.check_attention(self._device)
            self._arena = workloads.Arena(self._arena_bytes, self._device)

    def clear(self) -> None:
        """Let go of what is ready; graphs to come share memory of their own."""
        self._ready.clear()
        gc.collect()
        self._pool = self._torch.cuda.graph_pool_handle() if self._has_graphs else None

    def measure(self, point: Point) -> dict[str, Any]:
        """Return the columns that timing a point between two of its reference gives."""
        elapsed = f"{time.monotonic() - self._started:.3f}"
        try:
            with self._torch.inference_mode():
                seconds, before, after, active = self._timed(point)
        except (self._torch.OutOfMemoryError, MemoryError):
            self.clear()
            return {"elapsed": elapsed, "note": OUT_OF_MEMORY}
        except _NoKernelError:
            return {"elapsed": elapsed, "note": NO_KERNEL}
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            expected = f"a device and a torch that run {point.name} ({reason})"
            raise InputError("device", self._info.name, expected) from None
        timed = {
            "latency": f"{seconds:.6g}",
            "reference_latency": f"{(before + after) / 2:.6g}",
            "elapsed": elapsed,
        }
        return timed | ({"active_experts": f"{active:.6g}"} if active else {})

    def _timed(self, point: Point) -> tuple[float, float, float, float]:
        gc.disable()
        try:
            if point.sizes == point.reference_sizes:
                seconds, active = self._time(point, point.sizes, point.name)
                return seconds, seconds, seconds, active
            reference = f"{point.group} reference"
            before, _ = self._time(point, point.reference_sizes, reference)
            seconds, active = self._time(point, point.sizes, point.name)
            after, _ = self._time(point, point.reference_sizes, reference)
            return seconds, before, after, active
        finally:
            gc.enable()

    def _time(self, point: Point, sizes: dict[str, float], name: str) -> tuple[float, float]:
        """Return the time of a workload, and the mean of the experts that its calls loaded."""
        if name not in self._ready:
            self._ready[name] = self._make(point.component, sizes, name)
        workload, stopwatch = self._ready[name]
        seconds, calls = stopwatch.time()
        active = workload.active_experts
        loaded = sum(active[i % len(active)] for i in calls) / len(calls) if active else 0.0
        return seconds / workload.work, loaded

    def _make(self, component: str, sizes: dict[str, float], name: str) -> tuple[Any, Any]:
        from specmodel.calibrate.measure.timing import Stopwatch

        workloads = self._workloads
        too_large = workloads.weight_bytes(component, sizes) > self._arena_bytes
        needed = workloads.needed_bytes(component, sizes)
        if too_large or needed > _KEPT_FREE * devices.free_bytes(self._info.kind):
            raise MemoryError
        is_slow = self._has_graphs and not workloads.has_grouped_kernel(self._device)
        if component == "experts" and is_slow:
            raise _NoKernelError
        workload = workloads.prepare(component, sizes, self._arena, name)
        cold = workloads.CACHE_MULTIPLE * self._info.l2_bytes / max(workload.read_bytes, 1.0)
        stopwatch = Stopwatch(
            workload.call,
            self._device,
            least_calls=math.ceil(cold) if self._has_graphs and cold < 1e6 else 1,
            has_graph=workload.has_graph,
            pool=self._pool,
        )
        return workload, stopwatch
