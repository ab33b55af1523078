"""Describe kernels of llama.cpp, by back end and dtype instead of by GPU.

``data/llama_cpp.toml`` contains the fits to published runs of llama-bench for each back end
(``calibration/llama_bench.py``). It also contains limits from its source code: vector kernels run
passes up to a number of tokens, and matrix kernels run longer passes.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from specmodel.core.base import records
from specmodel.core.base.bounds import Day, Portion, Spread
from specmodel.core.base.naming import LLAMA_CPP
from specmodel.core.base.records import Record
from specmodel.core.machines.fallbacks import stack_kernels
from specmodel.core.machines.hardware import HardwareProfile, Rate
from specmodel.core.machines.kernels import FittedStack, Kernels

Backend = Literal["cuda", "hip", "vulkan", "metal", "cpu"]
"""Back ends for which llama.cpp can be built."""

_DATA = Path(__file__).parent / "data"
_ALWAYS = 4096.0
"""Rows of a CPU's vector products: all [-]."""
_BY_DTYPE = {"q4_0": ("q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4")}
"""Further dtypes with the same kernels, by fitted dtype."""


class Rates(Record, frozen=True, kw_only=True):
    """How fast the kernels of one kind and dtype are.

    Parameters
    ----------
    memory_efficiency, compute_efficiency
        Shares of the peaks of memory, and of arithmetic in matrix kernels [-].
    vector_rate
        Weights per second that a processor multiplies in vector kernels [1/s].
    vector_rows, vector_rereads, tile_rows, sharpness
        As in `KernelParameters`, unless `LlamaCpp.limits` contains another value [-].
    """

    memory_efficiency: Portion
    compute_efficiency: Annotated[float, Meta(ge=1e-4, le=100)]
    vector_rate: Annotated[float, Meta(ge=1e6, le=1e15)]
    vector_rows: float = 8.0
    vector_rereads: Annotated[float, Meta(ge=0, le=1)] = 0.0
    tile_rows: Annotated[float, Meta(ge=0, le=4096)] = 0.0
    sharpness: Annotated[float, Meta(ge=1, le=64)] = 8.0


class OfBackend(Record, frozen=True, kw_only=True):
    """Kernels of one back end: by kind and dtype, with the times of a launch [s].

    `spread` is the standard deviation of ln(measured / predicted) of machines that were left out
    [-], and `num_points` the number of fitted runs. `state_copy_bytes_per_s` is the speed at which
    recurrent states are copied to the host and back [B/s].
    """

    state_copy_bytes_per_s: Rate
    launch_time: Annotated[float, Meta(ge=0, le=1e-3)]
    expert_launch_time: Annotated[float, Meta(ge=0, le=1e-3)]
    spread: Spread
    num_points: int
    gemm: dict[str, Rates]
    experts: dict[str, Rates]
    attention: dict[str, Rates] = field(default_factory=dict)


class Limit(Record, frozen=True, kw_only=True):
    """Most tokens of a pass for which vector kernels run, of some dtypes on some GPUs [token].

    `generations` are compute capabilities of NVIDIA, or names of AMD's architectures; none for all
    GPUs of the back end.
    """

    backend: Backend
    kind: Literal["gemm", "experts"]
    generations: list[str] = field(default_factory=list)
    dtypes: list[str]
    rows: float


class LlamaCpp(Record, frozen=True, kw_only=True):
    """Table of the kernels of llama.cpp."""

    source: str
    version: str
    date: Day
    limits: list[Limit]
    backends: dict[Backend, OfBackend]


@cache
def load_llama_cpp() -> LlamaCpp:
    """Return the shipped table."""
    return records.load(LlamaCpp, "llama_cpp", _DATA, "llama_cpp")


def backend_of(hardware: HardwareProfile) -> Backend:
    """Return the back end that llama.cpp usually runs with on a device."""
    if hardware.kind == "cpu":
        return "cpu"
    if hardware.compute_capability is not None:
        return "cuda"
    return hardware.llama_cpp_backend or "vulkan"


def state_copy_bytes_per_s(hardware: HardwareProfile) -> float:
    """Return the speed at which recurrent states are copied to the host and back [B/s]."""
    return load_llama_cpp().backends[backend_of(hardware)].state_copy_bytes_per_s


def llama_cpp_kernels(hardware: HardwareProfile, table: LlamaCpp | None = None) -> Kernels:
    """Return how the kernels of llama.cpp use a device, by its back end.

    Parameters
    ----------
    hardware
        The device.
    table
        Table of the kernels, by default the shipped one.
    """
    known = table or load_llama_cpp()
    backend = backend_of(hardware)
    rates = known.backends[backend]
    generation = str(hardware.compute_capability or hardware.generation)
    rows: dict[tuple[str, str], float] = {
        (limit.kind, dtype): limit.rows
        for limit in known.limits
        if limit.backend == backend and (not limit.generations or generation in limit.generations)
        for dtype in limit.dtypes
    }
    fits: dict[str, dict[str, Any]] = {"gemm": {}, "experts": {}, "attention": {}}
    for kind, of_kind in fits.items():
        own: dict[str, Rates] = getattr(rates, kind)
        own = {dtype: own["int4"] for each, dtype in rows if each == kind} | own
        for dtype, fitted in own.items():
            most = rows.get((kind, dtype), fitted.vector_rows)
            of_kind[dtype] = _fit(kind, replace(fitted, vector_rows=most), rates, hardware)
        fits[kind] = _with_alike(of_kind)
    fits["host_experts"] = _of_host(known.backends["cpu"], hardware)
    told = {"version": known.version, "source": known.source, "date": known.date}
    return stack_kernels(LLAMA_CPP, records.build(FittedStack, told | fits, LLAMA_CPP))


OFFLOADED = 32.0
"""Tokens of a pass from which experts on the host are copied to the GPU: `ggml-backend.cpp`."""
_HOPS, _HOST_EFFICIENCY = 2e-5, 0.68
"""Time of the ways to the host and back for each kernel there [s], and which share of its memory's
and of the link's peak they stream at: 18.3 tokens/s of Llama 7B in Q4_0 on DDR5-6400 of two
channels (llama.cpp issue 34) [-]."""
_CORES = 8
"""Assumed cores of a host [-]."""
_LINK = 3.2e10
"""Bandwidth of PCIe 4.0 with 16 lanes, where a profile has no link [B/s]."""


def _of_host(cpu: OfBackend, hardware: HardwareProfile) -> dict[str, Any]:
    """Return records of `KernelFit` by dtype for experts in the host's memory.

    The host computes passes of few tokens. For longer passes, the active experts are copied to the
    GPU.
    """
    host, gpu = hardware.usual_host_bytes_per_s, hardware.memory.peak_bytes_per_s
    link = hardware.link.peak_bytes_per_s if hardware.link else min(_LINK, gpu)
    found = {}
    for dtype, rates in cpu.experts.items():
        rates = replace(rates, vector_rows=OFFLOADED - 1)
        own = _fit("experts", rates, cpu, hardware)
        by_host = 2 * rates.vector_rate * (hardware.host_cores or _CORES)
        found[dtype] = own | {
            "launch_time": _HOPS,
            "memory_efficiency": min(_HOST_EFFICIENCY * link / gpu, 1.0),
            "vector_memory_efficiency": min(_HOST_EFFICIENCY * host / gpu, 1.0),
            "vector_compute_efficiency": by_host / hardware.peak_flops_per_s("bf16"),
            "compute_efficiency": 0.3,
            "sharpness": 2.0,
        }
    return _with_alike(found)


def _with_alike(fits: dict[str, Any]) -> dict[str, Any]:
    """Return fits by dtype, also for further dtypes with the same kernels."""
    return {other: fits[d] for d in fits for other in _BY_DTYPE.get(d, ())} | fits


def _fit(kind: str, rates: Rates, backend: OfBackend, hardware: HardwareProfile) -> dict[str, Any]:
    """Return a record of `KernelFit` for the kernels of a device."""
    own = asdict(rates)
    by_vectors = 2 * own.pop("vector_rate") * hardware.num_multiprocessors
    return {
        **own,
        "launch_time": backend.expert_launch_time if kind == "experts" else backend.launch_time,
        "vector_memory_efficiency": rates.memory_efficiency,
        "vector_compute_efficiency": by_vectors / hardware.peak_flops_per_s("bf16"),
        "arithmetic_dtype": "bf16",
        **dict.fromkeys(("num_points", "num_judged"), backend.num_points),
        "is_held_out": True,
        **dict.fromkeys(("mean_error", "median_error", "shape_spread"), backend.spread),
        "percentile_90_error": 2 * backend.spread,
        "row_spread": 0.0,
        "varied": [],
        "covariance": [],
    }
