"""Time a suite on a device, and append the timings to a file.

Each round times every point of a block once, which spreads the repeats of a point over the run. If
something slows the machine for a while, it lengthens one repeat of many points, and the medians do
not change. The reference is timed right before and after each repeat, which shows drifts over the
whole run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specmodel.calibrate.measure.kernels import device as devices
from specmodel.calibrate.measure.kernels.device import DeviceInfo
from specmodel.calibrate.measure.kernels.operators import BASE, NO_MORE, Timed
from specmodel.calibrate.measure.kernels.rows import RowFile
from specmodel.calibrate.measure.kernels.suite import REPEATS, Device, Length, Point, plain, suite
from specmodel.calibrate.measure.measurements import COLUMNS
from specmodel.core.base.errors import InputError

if TYPE_CHECKING:
    from specmodel.calibrate.measure.kernels.bench import Bench

BLOCK = {"cuda": 48}
"""Number of points whose repeats are interleaved, limited by memory for graphs; else all [-]."""


class Progress(NamedTuple):
    """Number of timings that are done or skipped, and of timings in the suite [-]."""

    done: int
    total: int


def left_to_time(
    device: Device, length: Length, rows: RowFile | None = None, timed: Timed = NO_MORE
) -> tuple[list[tuple[Point, int]], int]:
    """Return the points and repeats that `rows` lacks, and the number of timings in a suite [-]."""
    points, repeats = suite(device, length, timed), range(REPEATS[device][length])
    every = [(p, r) for r in repeats for p in points if r % p.every == 0]
    return [(p, r) for p, r in every if not (rows and rows.has(p.name, r))], len(every)


def run_suite(
    path: str | Path,
    info: DeviceInfo,
    length: Length,
    session: dict[str, Any] | None = None,
    again: Collection[str] = (),
) -> Iterator[Progress]:
    """Time all repeats that a file of rows lacks, and yield the progress after each timing.

    If the run stops early, no timing is lost. Components in `again` are timed once more.
    """
    flags = devices.disturbances(info.kind, is_idle=True)
    facts: dict[str, Any] = {
        "suite": length,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "clocks_before": devices.clocks(info.kind),
        "flags": flags,
    }
    with RowFile(path, info.identity, facts | (session or {}), again) as rows:
        missing, total = left_to_time(info.kind, length, rows, info.timed)
        done = total - len(missing)
        yield Progress(done, total)
        if missing:
            from specmodel.calibrate.measure.kernels.bench import Bench

            bench = Bench(info, suite(info.kind, length, info.timed))
            for _ in _timed(rows, bench, missing, info, flags):
                done += 1
                yield Progress(done, total)
            bench.close()
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
    """Time missing repeats block by block. Look for disturbances of a GPU within each block."""
    order = list(dict.fromkeys(point.name for point, _ in missing))
    size = BLOCK.get(info.kind, 10**6)
    for names in (set(order[i : i + size]) for i in range(0, len(order), size)):
        block, seen = [(p, r) for p, r in missing if p.name in names], None
        with ThreadPoolExecutor(1) as watcher:
            for i, (point, repeat) in enumerate(block):
                if seen is None and info.kind == "cuda" and 2 * i >= len(block):
                    seen = watcher.submit(devices.disturbances, info.kind, is_idle=False)
                if not rows.has(point.name, repeat):
                    rows.append(_row(bench.measure(point), point, repeat, info))
                if bench.fault:
                    expected = f"The device stopped answering after {point.name} ({bench.fault})."
                    expected += " Run it again without `again`, to skip this point."
                    raise InputError("device", info.name, expected)
                yield
            flags += seen.result() if seen else []
        bench.clear()


def _time_collectives(rows: RowFile, info: DeviceInfo) -> list[str]:
    """Time all-reduces over several GPUs unless the file has them. Return errors as text."""
    num_gpus = devices.import_torch().cuda.device_count() if info.kind == "cuda" else 1
    if num_gpus < 2:
        return []
    from specmodel.calibrate.measure.kernels import collectives

    name = f"all_reduce-{num_gpus}-{{}}".format
    if (name(collectives.SIZES[-1]), collectives.REPEATS - 1) in rows.done:
        return []
    try:
        reduced = collectives.time_all_reduces(info.kind, num_gpus)
    except InputError as error:
        return [f"no all-reduces were timed ({error})"]
    for timed in reduced:
        point = name(timed["bytes"])
        if (point, timed["repeat"]) not in rows.done:
            facts = {"point": point, "group": point, "role": "skip"} | _stack(info)
            rows.append(timed | facts | {"reference_latency": timed["latency"]})
    return []


def _stack(info: DeviceInfo) -> dict[str, str]:
    stack = info.timed.stack.fitted_as
    return {"hardware": info.hardware, "stack": stack, "version": info.version}


def _row(timed: dict[str, Any], point: Point, repeat: int, info: DeviceInfo) -> dict[str, Any]:
    sizes: dict[str, Any] = {key: plain(value) for key, value in point.sizes.items()}
    if point.component == "experts":
        named = {"popularity_exponent": "unequal", "routing_correlation": "correlated"}
        law = (word for name, word in named.items() if point.sizes[name] > 0)
        sizes["distribution"] = next(law, "independent")
        sizes |= {"num_matrices": 3, "includes_router": 1}
    columns = COLUMNS.get(point.component, ())
    dtypes = {name: info.dtype for name in columns if name.endswith("_dtype")}
    if "state_dtype" in dtypes:
        dtypes["state_dtype"] = "fp32"
    if point.weight_dtype:
        met = info.timed.rows[point.component, point.weight_dtype]["activation_dtype"]
        dtypes["weight_dtype"] = point.weight_dtype
        dtypes["activation_dtype"] = info.dtype if met == BASE else met
    names = {
        "point": point.name, "group": point.group, "repeat": repeat,
        "component": point.component, "role": point.role,
    }  # fmt: skip
    return names | _stack(info) | sizes | dtypes | timed
