"""Run a suite on a device: interleaved repeats, each between two of its reference, to a file.

Rounds go over all points of a block, so that the repeats of a point are spread over the run: what
slows the machine down for a while then lengthens one repeat of many points, and medians do not see
it. Each repeat stands between two of its reference, so that what drifts over the whole run shows.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specmodel.base.errors import InputError
from specmodel.calibrate.measure import device as devices
from specmodel.calibrate.measure.device import STACK, DeviceInfo
from specmodel.calibrate.measure.rows import RowFile
from specmodel.calibrate.measure.suite import DTYPE, REPEATS, Device, Length, Point, plain, suite
from specmodel.calibrate.measurements import COLUMNS

if TYPE_CHECKING:
    from specmodel.calibrate.measure.workloads import Stopwatch

BLOCK = {"cpu": 10**6, "cuda": 48}
"""Points whose repeats are interleaved: on a GPU as many as are held as graphs at once [-]."""

OUT_OF_MEMORY = "out of memory"
"""Note of a point that the device has too little memory for."""

NO_KERNEL = "no grouped kernel before Hopper"
"""Note of experts on a GPU where torch runs them one after another and waits for the host."""

_KEPT_FREE = 0.85
_TINY_BYTES = 2**22


class Progress(NamedTuple):
    """Timings done or skipped, and those of the whole suite."""

    done: int
    total: int


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
        from specmodel.calibrate.measure import layers, workloads

        self._torch, self._workloads, self._info = devices.import_torch(), workloads, info
        self._has_graphs = info.kind == "cuda"
        self._device = self._torch.device(info.kind)
        self._can_route = not self._has_graphs or layers.has_grouped_kernel(self._device)
        self._started = time.monotonic()
        self._ready: dict[str, Stopwatch] = {}
        self.clear()
        self._cold_bytes = workloads.CACHE_MULTIPLE * info.l2_bytes
        room = _KEPT_FREE * devices.free_bytes(info.kind) / 2
        sizes = [workloads.weight_bytes(p.component, p.sizes) for p in points]
        least = self._cold_bytes if max(sizes) >= _TINY_BYTES else 0.0
        self._arena_bytes = max([least, *(size for size in sizes if size <= room)])
        with self._torch.inference_mode():
            workloads.check_attention(self._device)
            self._arena = workloads.Arena(self._arena_bytes, self._device)

    def clear(self) -> None:
        """Let go of what is ready; graphs to come share memory of their own."""
        self._ready.clear()
        gc.collect()
        self._pool = self._torch.cuda.graph_pool_handle() if self._has_graphs else None

    def measure(self, point: Point) -> dict[str, Any]:
        """Return the columns that timing a point between two of its reference gives."""
        elapsed = {"elapsed": f"{time.monotonic() - self._started:.3f}"}
        if point.component == "experts" and not self._can_route:
            return elapsed | {"note": NO_KERNEL}
        gc.disable()  # a collection in the middle of a timing would count as the kernel's
        try:
            with self._torch.inference_mode():
                return self._timed(point) | elapsed
        except (self._torch.OutOfMemoryError, MemoryError):
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

    def _make(self, component: str, sizes: dict[str, float], name: str) -> Stopwatch:
        workloads, weights = self._workloads, self._workloads.weight_bytes(component, sizes)
        needed = workloads.needed_bytes(component, sizes)
        free = _KEPT_FREE * devices.free_bytes(self._info.kind)
        if weights > self._arena_bytes or needed > free:
            raise MemoryError
        workload = workloads.prepare(component, sizes, self._arena, name)
        active = workload.active_experts
        read = weights * (np.mean(active) / sizes["num_experts"] if active else 1.0)
        least_calls = math.ceil(self._cold_bytes / read) if self._has_graphs and read else 1
        made: Stopwatch = workloads.Stopwatch(workload, self._device, least_calls, self._pool)
        return made


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
    flags = devices.disturbances(info.kind, is_idle=True)
    facts: dict[str, Any] = {
        "suite": length,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "clocks_before": devices.clocks(info.kind),
        "flags": flags,
    }
    with RowFile(path, info.identity, facts | (session or {})) as rows:
        missing = [(p, r) for r in range(repeats) for p in points if not rows.has(p.name, r)]
        total = len(points) * repeats
        done = total - len(missing)
        yield Progress(done, total)
        if missing:
            for _ in _timed(rows, Bench(info, points), missing, info, flags):
                done += 1
                yield Progress(done, total)
        flags += _time_collectives(rows, info)
        rows.note_session(
            clocks_after=devices.clocks(info.kind),
            flags=list(dict.fromkeys(flags)),
            ended=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )


def _timed(
    rows: RowFile,
    bench: Bench,
    missing: Sequence[tuple[Point, int]],
    info: DeviceInfo,
    flags: list[str],
) -> Iterator[None]:
    """Time what is missing, block by block, and yield as each timing is recorded or skipped."""
    order = list(dict.fromkeys(point.name for point, _ in missing))
    size = BLOCK[info.kind]
    for names in (set(order[i : i + size]) for i in range(0, len(order), size)):
        block = [(p, r) for p, r in missing if p.name in names]
        with ThreadPoolExecutor(1) as watcher:
            seen = None
            for i, (point, repeat) in enumerate(block):
                if seen is None and info.kind == "cuda" and 2 * i >= len(block):
                    seen = watcher.submit(devices.disturbances, info.kind, is_idle=False)
                if not rows.has(point.name, repeat):
                    rows.append(_row(bench.measure(point), point, repeat, info))
                yield
            flags += seen.result() if seen else []
        bench.clear()


def _time_collectives(rows: RowFile, info: DeviceInfo) -> list[str]:
    """Time all-reduces over the GPUs if that was not finished before; return what went wrong."""
    num_gpus = devices.num_gpus() if info.kind == "cuda" else 1
    if num_gpus < 2:
        return []
    from specmodel.calibrate.measure import collectives

    name = f"all_reduce-{num_gpus}-{{}}".format
    if (name(collectives.SIZES[-1]), collectives.REPEATS - 1) in rows.done:
        return []
    try:
        table = collectives.time_all_reduces(info.kind, num_gpus)
    except InputError as error:
        return [f"no all-reduces were timed ({error})"]
    for row in table.to_dict("records"):
        timed = {str(column): value for column, value in row.items()}
        point, repeat = name(timed["bytes"]), timed["repeat"]
        if (point, repeat) not in rows.done:
            facts = {"point": point, "group": point, "role": "skip"} | _stack(info)
            rows.append(timed | facts | {"reference_latency": timed["latency"]})
    return []


def _stack(info: DeviceInfo) -> dict[str, str]:
    return {"hardware": info.hardware, "stack": STACK, "version": info.torch}


def _row(timed: dict[str, Any], point: Point, repeat: int, info: DeviceInfo) -> dict[str, Any]:
    sizes: dict[str, Any] = {key: plain(value) for key, value in point.sizes.items()}
    if point.component == "experts":
        is_correlated = point.sizes["routing_correlation"] > 0
        sizes["distribution"] = "correlated" if is_correlated else "independent"
        sizes |= {"num_matrices": 3, "includes_router": 1}
    columns = COLUMNS.get(point.component, ())
    dtypes = {name: DTYPE for name in columns if name.endswith("_dtype")}
    names = {
        "point": point.name, "group": point.group, "repeat": repeat,
        "component": point.component, "role": point.role,
    }  # fmt: skip
    return names | _stack(info) | sizes | dtypes | timed
