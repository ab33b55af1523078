"""Run a suite on a device: interleaved repeats, each between two of its reference, to a file."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmodel.base.errors import InputError
from specmodel.calibrate.measure import device as devices
from specmodel.calibrate.measure.bench import Bench
from specmodel.calibrate.measure.device import STACK, DeviceInfo
from specmodel.calibrate.measure.rows import RowFile
from specmodel.calibrate.measure.suite import DTYPE, REPEATS, Device, Length, Point, plain, suite

BLOCK = {"cpu": 10**6, "cuda": 48}
"""Points whose repeats are interleaved: on a GPU as many as are held as graphs at once [-]."""

_DTYPES = {
    "experts": ("weight_dtype", "activation_dtype"),
    "gemm": ("weight_dtype", "activation_dtype"),
    "attention": ("kv_dtype", "activation_dtype"),
    "elementwise": ("activation_dtype",),
}


@dataclass(frozen=True)
class Progress:
    """Timings done or skipped, and those of the whole suite."""

    done: int
    total: int


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
        missing = [(p, r) for r in range(repeats) for p in points if not rows.has(p.name, r)]
        total = len(points) * repeats
        done = total - len(missing)
        yield Progress(done, total)
        flags: list[str] = facts["flags"]
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
    block_of = {name: i // BLOCK[info.kind] for i, name in enumerate(order)}
    for number in range(max(block_of.values()) + 1):
        block = [(p, r) for p, r in missing if block_of[p.name] == number]
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

    last = (_all_reduce_name(num_gpus, collectives.SIZES[-1]), collectives.REPEATS - 1)
    if last in rows.done:
        return []
    try:
        table = collectives.time_all_reduces(info.kind, num_gpus)
    except InputError as error:
        return [f"no all-reduces were timed ({error})"]
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
    return []


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
