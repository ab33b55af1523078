"""Run a suite on a device: interleaved repeats, each between two of its reference, to a file."""

import gc
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmodel.measure import device as devices
from specmodel.measure.device import STACK, DeviceInfo
from specmodel.measure.rows import RowFile
from specmodel.measure.suite import DTYPE, REPEATS, Device, Length, Point, plain, suite

OUT_OF_MEMORY = "out of memory"
"""Note of a point that the device has too little memory for."""

BLOCK = {"cpu": 10**6, "cuda": 48}
"""Points whose repeats are interleaved: on a GPU as many as are held as graphs at once [-]."""

_KEPT_FREE = 0.85
_TINY_BYTES = 2**22
_DTYPES = {
    "experts": ("weight_dtype", "activation_dtype"),
    "gemm": ("weight_dtype", "activation_dtype"),
    "attention": ("kv_dtype", "activation_dtype"),
    "elementwise": ("activation_dtype",),
}


@dataclass(frozen=True)
class Progress:
    """Timings done, those of the whole suite, and the point that was timed last."""

    done: int
    total: int
    point: str


def run_suite(
    path: str | Path, info: DeviceInfo, length: Length, session: dict[str, Any] | None = None
) -> Iterator[Progress]:
    """Time all repeats of a suite that a file of rows has not yet.

    Parameters
    ----------
    path
        The file of rows; continued if it is there.
    info
        The device.
    length
        Of the suite.
    session
        What is recorded of this run, beside when and on what clocks.

    Yields
    ------
    Progress
        After each timing; stopping early loses none of them.

    Raises
    ------
    InputError
        If the file is of another device, in use, or cannot be written.
    """
    device: Device = "cpu" if info.kind == "cpu" else "cuda"
    points, repeats = suite(device, length), REPEATS[device][length]
    facts: dict[str, Any] = {
        "suite": length,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "clocks_before": devices.clocks(info.kind),
        "flags": devices.disturbances(info.kind, is_idle=True),
    }
    with RowFile(path, info.identity, facts | (session or {})) as rows:
        timings = [(p, r) for p in points for r in range(repeats)]
        total, done = len(timings), sum((p.name, r) in rows.done for p, r in timings)
        yield Progress(done, total, "")
        for point in _remaining(rows, info, points, repeats):
            done += 1
            yield Progress(done, total, point.name)
        _time_collectives(rows, info)
        flags = facts["flags"] + devices.disturbances(info.kind, is_idle=False)
        rows.note_session(
            clocks_after=devices.clocks(info.kind),
            flags=flags,
            ended=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )


def _remaining(
    rows: RowFile, info: DeviceInfo, points: Sequence[Point], repeats: int
) -> Iterator[Point]:
    """Time what is missing, block by block, and yield each point as it is recorded."""
    missing = [p for p in points if any((p.name, r) not in rows.done for r in range(repeats))]
    if not missing:
        return
    bench = Bench(info, missing)
    size = BLOCK[info.kind]
    for start in range(0, len(missing), size):
        block = missing[start : start + size]
        for repeat in range(repeats):
            for point in block:
                if (point.name, repeat) in rows.done or point.name in rows.skipped:
                    continue
                rows.append(_row(bench.measure(point), point, repeat, info))
                yield point
        bench.clear()


def _time_collectives(rows: RowFile, info: DeviceInfo) -> None:
    """Time all-reduces where there are several GPUs, if that was not finished before."""
    num_gpus = devices.num_gpus() if info.kind == "cuda" else 1
    if num_gpus < 2:
        return
    from specmodel.measure import collectives

    last = (_all_reduce_name(num_gpus, collectives.SIZES[-1]), collectives.REPEATS - 1)
    if last in rows.done:
        return
    table = collectives.time_all_reduces(info.kind, num_gpus)
    for size, repeat, latency in table[["bytes", "repeat", "latency"]].to_numpy().tolist():
        name = _all_reduce_name(num_gpus, int(size))
        if (name, int(repeat)) not in rows.done:
            facts = {
                "point": name, "group": name, "repeat": int(repeat), "component": "all_reduce",
                "role": "skip", "hardware": info.hardware, "stack": STACK, "version": info.torch,
                "num_gpus": num_gpus, "bytes": int(size), "latency": latency,
                "reference_latency": latency,
            }  # fmt: skip
            rows.append(facts)


def _all_reduce_name(num_gpus: int, size: int) -> str:
    return f"all_reduce-{num_gpus}-{size}"


def _row(timed: dict[str, Any], point: Point, repeat: int, info: DeviceInfo) -> dict[str, Any]:
    sizes: dict[str, Any] = {key: plain(value) for key, value in point.sizes.items()}
    if point.component == "experts":
        is_correlated = point.sizes["routing_correlation"] > 0
        sizes["distribution"] = "correlated" if is_correlated else "independent"
        sizes |= {"num_matrices": 3, "includes_router": 1}
    dtypes = dict.fromkeys(_DTYPES.get(point.component, ()), DTYPE)
    names = {
        "point": point.name, "group": point.group, "repeat": repeat,
        "component": point.component, "role": point.role, "hardware": info.hardware,
        "stack": STACK, "version": info.torch,
    }  # fmt: skip
    return names | sizes | dtypes | timed


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
        from specmodel.measure import workloads

        torch = devices.import_torch()
        self._torch, self._workloads = torch, workloads
        self._device, self._info = torch.device(info.kind), info
        self._started = time.monotonic()
        self._ready: dict[str, tuple[Any, Any]] = {}
        self._pool = torch.cuda.graph_pool_handle() if info.kind == "cuda" else None
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
        """Let go of what is ready."""
        self._ready.clear()
        gc.collect()

    def measure(self, point: Point) -> dict[str, Any]:
        """Return the columns that timing a point between two of its reference gives."""
        elapsed = f"{time.monotonic() - self._started:.3f}"
        try:
            with self._torch.inference_mode():
                seconds, before, after, active = self._timed(point)
        except (self._torch.OutOfMemoryError, MemoryError):
            self.clear()
            return {"elapsed": elapsed, "note": OUT_OF_MEMORY}
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
        from specmodel.measure.timing import Stopwatch

        workloads = self._workloads
        too_large = workloads.weight_bytes(component, sizes) > self._arena_bytes
        needed = workloads.needed_bytes(component, sizes)
        if too_large or needed > _KEPT_FREE * devices.free_bytes(self._info.kind):
            raise MemoryError
        workload = workloads.prepare(component, sizes, self._arena, name)
        cold = workloads.CACHE_MULTIPLE * self._info.l2_bytes / max(workload.read_bytes, 1.0)
        stopwatch = Stopwatch(
            workload.call,
            self._device,
            least_calls=math.ceil(cold) if self._info.kind == "cuda" and cold < 1e6 else 1,
            has_graph=workload.has_graph,
            pool=self._pool,
        )
        return workload, stopwatch
