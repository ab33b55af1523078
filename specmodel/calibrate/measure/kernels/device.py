"""Describe the device that is measured: its properties, free memory, clock and disturbances."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from specmodel.calibrate.measure.kernels.operators import NO_MORE, Timed
from specmodel.calibrate.measure.kernels.suite import SUITE_VERSION, Device
from specmodel.core.base.errors import InputError, import_extra
from specmodel.core.machines.hardware import profiles_by_reported_name

BUSY_SHARE = 0.25  # above this share of use by others, a device counts as busy [-]

_THROTTLED = {0x8: "slowdown", 0x20: "hot", 0x40: "hot", 0x80: "power brake"}
_DEFAULT_CACHE = float(2**25)


class DeviceInfo(Struct, frozen=True, kw_only=True):
    """The device that is measured, and the software that measures it."""

    kind: Device
    name: str  # reported by the device; for a CPU, with the number of threads
    hardware: str  # name of its shipped profile, or else a name made from `name`
    driver: str  # version of the driver; for a CPU, instruction set and threads
    torch: str
    num_multiprocessors: int  # for a CPU, threads
    capacity_bytes: float
    l2_bytes: float = _DEFAULT_CACHE  # last-level cache [B]
    compute_capability: float | None = None
    dtype: str = "bf16"  # of weights, activations and KV cache
    timed: Timed = NO_MORE

    @property
    def identity(self) -> dict[str, Any]:
        """Facts that must be equal for all rows of one file."""
        stack = self.timed.stack
        versions = f"{self.torch}, {stack.name} {stack.version}" if stack.version else self.torch
        return {"device": self.name, "driver": self.driver, "torch": versions,
                "suite_version": SUITE_VERSION, "dtype": self.dtype}  # fmt: skip

    @property
    def version(self) -> str:
        """Version of the stack that is timed."""
        return self.timed.stack.version or self.torch


def import_torch() -> Any:
    """Return torch. Raise an `InputError` if it is missing or too old."""
    torch = import_extra("torch", "calibrate", "device")
    if not hasattr(torch.nn.functional, "grouped_mm"):
        raise InputError("device", f"torch {torch.__version__}", "torch 2.10 or newer")
    return torch


def found_kind() -> Device:
    """Return the kind of the first GPU that torch can use, or "cpu" if there is none."""
    torch = import_torch()
    gpus: tuple[Device, ...] = ("cuda", "xpu", "mps")
    return next((kind for kind in gpus if _is_there(torch, kind)), "cpu")


def _is_there(torch: Any, kind: str) -> bool:
    return bool(getattr(torch.backends if kind == "mps" else torch, kind).is_available())


def find_device(kind: Device, dtype: str = "bf16") -> DeviceInfo:
    """Return the name, versions and sizes of the CPU, or of the current GPU of a kind."""
    torch = import_torch()
    if kind == "cpu":
        return _cpu(torch, dtype)
    if dtype != "bf16":
        raise InputError("dtype", dtype, "bf16, as attention on a GPU is timed in bf16 only")
    if not _is_there(torch, kind):
        gpu = {"cuda": "CUDA or ROCm", "xpu": "Intel", "mps": "Apple"}[kind]
        raise InputError("device", kind, f"a GPU of {gpu} that torch can use, or `device='cpu'`")
    if kind == "xpu":
        of = torch.xpu.get_device_properties()
        return _device(kind, of.name, of.driver_version, of.max_compute_units, of.total_memory)
    if kind == "mps":
        of, memory = torch.backends.mps, torch.mps.recommended_max_memory()
        return _device(kind, of.get_name(), platform.mac_ver()[0], of.get_core_count(), memory)
    try:
        of = torch.cuda.get_device_properties(torch.cuda.current_device())
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise InputError("device", kind, f"a usable CUDA GPU ({reason})") from None
    is_hip = torch.version.hip is not None  # ROCm numbers its architectures differently
    if of.major < 8 and not is_hip:
        expected = "a GPU of compute capability 8.0 or newer, which computes in bf16"
        raise InputError("device", f"{of.name} ({of.major}.x)", expected)
    driver = torch.version.hip or gpu_state().get("driver_version", "unknown")
    capability = None if is_hip else of.major + of.minor / 10
    cache = float(getattr(of, "L2_cache_size", 0) or _DEFAULT_CACHE)
    size = of.multi_processor_count, of.total_memory
    return _device(kind, of.name, driver, *size, l2_bytes=cache, compute_capability=capability)


def _cpu(torch: Any, dtype: str) -> DeviceInfo:
    threads = torch.get_num_threads()
    found = _lines("/proc/cpuinfo", r"^model name\s*: (.*)$")
    model = found[0] if found else platform.processor() or platform.machine()
    name = f"{model}, {threads} thread{'s' if threads > 1 else ''}"
    driver = f"{torch.backends.cpu.get_cpu_capability()}, {threads} threads"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _device("cpu", name, driver, threads, memory, l2_bytes=_last_level_cache(), dtype=dtype)


def _device(
    kind: Device, name: str, driver: str, units: int, capacity_bytes: float, **more: Any
) -> DeviceInfo:
    words = re.sub(r"\((R|TM)\)|NVIDIA|CPU|Processor", " ", name).lower()
    made_up = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
    return DeviceInfo(
        kind=kind,
        name=name,
        hardware=profiles_by_reported_name().get(name.removeprefix("NVIDIA ")) or made_up,
        driver=driver,
        torch=import_torch().__version__,
        num_multiprocessors=units,
        capacity_bytes=float(capacity_bytes),
        **more,
    )


def _lines(path: str, pattern: str) -> list[str]:
    """Return all matches of a pattern in a system file; an empty list if the file is missing."""
    file = Path(path)
    return re.findall(pattern, file.read_text(), re.MULTILINE) if file.exists() else []


def _last_level_cache() -> float:
    """Return the size of the largest cache that Linux reports [B]."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    paths = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    texts = [path.read_text().strip() for path in paths]
    sizes = [float(text.rstrip("KMG")) * units.get(text[-1:], 1) for text in texts]
    return max([_DEFAULT_CACHE, *sizes])


def free_bytes(kind: str) -> float:
    """Return the free memory of a device [B]."""
    if kind == "mps":
        mps = import_torch().mps
        return float(mps.recommended_max_memory() - mps.driver_allocated_memory())
    if kind != "cpu":
        return float(getattr(import_torch(), kind).mem_get_info()[0])
    found = _lines("/proc/meminfo", r"^MemAvailable:\s*(\d+) kB")
    if found:
        return float(found[0]) * 1024
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / 2


def seconds_of(work: Callable[[], object], device: Any) -> float:
    """Return how long a device takes for what `work` launches [s].

    CUDA's own clock measures it on a CUDA GPU, and the host's clock elsewhere.
    """
    torch = import_torch()
    if device.type == "cuda":
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3
    started = time.perf_counter()
    work()
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
    return time.perf_counter() - started


def gpu_state() -> dict[str, str]:
    """Return the driver, clocks, use and throttling of the current GPU, or nothing if unknown."""
    for name in ("clocks_event_reasons", "clocks_throttle_reasons"):
        # older drivers know only the second name
        state = _query(f"driver_version,clocks.sm,clocks.max.sm,utilization.gpu,{name}.active")
        if state:
            return state | {"reasons": state[f"{name}.active"]}
    return {}


def _query(names: str) -> dict[str, str]:
    """Return values that nvidia-smi reports for the current GPU.

    The GPU is identified by its UUID, because torch may number GPUs differently.
    """
    command = ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader,nounits", "-i",
               _identity()]  # fmt: skip
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in result.stdout.split(",")]
    return dict(zip(names.split(","), values, strict=False))


@cache
def _identity() -> str:
    """Return the UUID of the GPU.

    It is cached, because a thread must not use the GPU while another thread captures a graph.
    """
    torch = import_torch()
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def disturbances(kind: str, *, is_idle: bool) -> list[str]:
    """Return disturbances of timings as text. With `is_idle`, any use of the device counts."""
    if kind != "cuda":
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        is_busy = is_idle and load > BUSY_SHARE * cores
        return [f"busy: load average {load:.1f} on {cores} cores before the run"] if is_busy else []
    state, found = gpu_state(), []
    use = state.get("utilization.gpu", "0")
    if is_idle and use.isdigit() and int(use) > 100 * BUSY_SHARE:
        found.append(f"busy: {use} % utilization before the run")
    try:
        active = int(state.get("reasons", "0"), 16)
    except ValueError:
        active = 0
    reasons = sorted({text for bit, text in _THROTTLED.items() if active & bit})
    return [*found, *(f"throttled: {reason}" for reason in reasons)]


def clocks(kind: str) -> str:
    """Return the clocks of a device in MHz as text, or "unknown"."""
    if kind == "cuda":
        state = gpu_state()
        return f"{state.get('clocks.sm', '?')} of {state.get('clocks.max.sm', '?')} MHz"
    found = _lines("/proc/cpuinfo", r"^cpu MHz\s*: (.*)$")
    return f"{', '.join(found)} MHz" if found else "unknown"
