"""What is run at a point of the suite, the blocks of `layers`, and how long it takes.

Weights rotate through more memory than the last-level cache holds: timed in a loop on the same
ones, a kernel would read them from cache, which a pass over a whole model never does. On a CPU a
monotonic clock is read around the calls; on a GPU the calls are one CUDA graph between two events.
"""

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specmodel.algebra.routing import sample_routing
from specmodel.base.errors import InputError
from specmodel.calibrate.measure import layers
from specmodel.calibrate.measure.suite import Sizes

TORCH_DTYPE = torch.bfloat16
VALUE_BYTES = 2
ROUTINGS = 8
"""Draws of the routing that the calls of a point take in turn [-]."""

CACHE_MULTIPLE = 1.5
"""Inputs rotate through this multiple of the last-level cache [-]."""

LAUNCHES = 50
"""Kernels in a row whose launches are timed [-]."""

FLASH_TOLERANCE = 0.05
"""Largest difference of bf16 attention from fp32 that is rounding [-]."""

LEAST_SECONDS = 3e-3
"""A timing repeats short calls until they take about this long [s]."""

MOST_CALLS = 200
"""Most calls of one timing [-]."""

Call = Callable[[int], None]
"""Does the work; its argument counts the calls, so that each can take other inputs."""

_WARM_UP = 3
_TILE = 2**24
_SPREAD = 0.02


@dataclass(frozen=True, eq=False)
class Workload:
    """A point that is ready to run.

    Parameters
    ----------
    call
        The work; its argument counts the calls [-].
    active_experts
        Distinct experts of each routing that calls take in turn; empty but for experts [-].
    has_graph
        Whether its kernels are replayed as a graph on a GPU.
    work
        Kernels in one call; the time of a call is divided by it [-].
    """

    call: Call
    active_experts: tuple[int, ...] = ()
    has_graph: bool = True
    work: int = 1


class Arena:
    """Random weights larger than the last-level cache; views of it are taken in turn.

    Parameters
    ----------
    size_bytes
        Its size [B].
    device
        Where it lies.
    """

    def __init__(self, size_bytes: float, device: torch.device) -> None:
        count = max(math.ceil(size_bytes / VALUE_BYTES), _TILE)
        generator = torch.Generator(device).manual_seed(0)
        tile = torch.empty(_TILE, dtype=TORCH_DTYPE, device=device)
        tile.normal_(0.0, _SPREAD, generator=generator)
        self.values = tile.repeat(math.ceil(count / _TILE))
        self.device = device
        self._next = 0

    def take(self, *shape: int) -> Tensor:
        """Return the next view of a shape, from the start again where the end is near."""
        size = math.prod(shape)
        if self._next + size > len(self.values):
            self._next = 0
        view = self.values[self._next : self._next + size].view(shape)
        self._next += math.ceil(size / 64) * 64
        return view

    def fresh(self, *shape: int) -> Tensor:
        """Return new random activations of order one."""
        return self.values[: math.prod(shape)].view(shape) / _SPREAD


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


def weight_bytes(component: str, s: Sizes) -> float:
    """Return the weights or KV of a point, which the arena must hold [B]."""
    if component == "copy":
        return 2 * s["bytes"]
    if component == "experts":
        values = s["num_experts"] * s["hidden_size"] * (3 * s["expert_size"] + 1)
    elif component == "gemm":
        values = s["input_size"] * s["output_size"]
    elif component == "attention":
        values = 2 * s["batch_size"] * s["context_length"] * s["num_kv_heads"] * s["head_dim"]
    else:
        values = 0.0
    return values * VALUE_BYTES


def needed_bytes(component: str, s: Sizes) -> float:
    """Return the memory that a point takes beside the arena, four times its activations [B]."""
    if component == "experts":
        pairs = s["num_tokens"] * s["experts_per_token"]
        values = pairs * (2 * s["hidden_size"] + 3 * s["expert_size"])
    elif component == "gemm":
        values = s["num_tokens"] * (s["input_size"] + s["output_size"])
    elif component == "attention":
        rows = s["batch_size"] * s["query_tokens"] * s["num_heads"]
        values = rows * (3 * s["head_dim"] + s["context_length"] / s["num_kv_heads"])
    elif component == "elementwise":
        values = 4 * s["num_tokens"] * s["hidden_size"]
    else:
        values = 0.0
    return 4 * values * VALUE_BYTES


def prepare(component: str, sizes: Sizes, arena: Arena, name: str) -> Workload:
    """Return a point ready to run.

    Parameters
    ----------
    component
        Of the point.
    sizes
        Its columns [-].
    arena
        Where weights and KV come from.
    name
        Seeds its routing.

    Returns
    -------
    Workload
        On the device of the arena.
    """
    whole = {key: round(value) for key, value in sizes.items()}
    if component == "experts":
        return _experts(whole, sizes["routing_correlation"], arena, zlib.crc32(name.encode()))
    makers = {
        "copy": _copy, "launch": _launch, "gemm": _gemm, "attention": _attention,
        "elementwise": _elementwise,
    }  # fmt: skip
    return makers[component](whole, arena)


def _copy(s: dict[str, int], arena: Arena) -> Workload:
    size = s["bytes"] // VALUE_BYTES

    def call(_: int) -> None:
        to, of = arena.take(2, size)
        to.copy_(of)

    return Workload(call)


def _launch(s: dict[str, int], arena: Arena) -> Workload:
    x = arena.fresh(16).clone()

    def call(_: int) -> None:
        for _ in range(LAUNCHES):
            x.neg_()

    return Workload(call, has_graph=bool(s["graphs"]), work=LAUNCHES)


def _gemm(s: dict[str, int], arena: Arena) -> Workload:
    inputs, outputs = s["input_size"], s["output_size"]
    x = arena.fresh(s["num_tokens"], inputs)

    def call(_: int) -> None:
        F.linear(x, arena.take(outputs, inputs))

    return Workload(call)


def _elementwise(s: dict[str, int], arena: Arena) -> Workload:
    x, residual = (arena.fresh(s["num_tokens"], s["hidden_size"]).clone() for _ in range(2))

    def call(_: int) -> None:
        layers.add_norm(x, residual, arena.take(s["hidden_size"]))

    return Workload(call)


def _attention(s: dict[str, int], arena: Arena) -> Workload:
    batch, capacity, tokens = s["batch_size"], s["context_length"], s["query_tokens"]
    heads, groups, dim = s["num_heads"], s["num_kv_heads"], s["head_dim"]
    query = arena.fresh(batch, tokens, heads, dim)
    key, value = (arena.fresh(batch, tokens, groups, dim) for _ in range(2))
    first = torch.full((batch,), capacity - tokens, device=arena.device)
    span = layers.span_of(first, tokens, capacity, heads // groups, TORCH_DTYPE)

    def call(_: int) -> None:
        flat = arena.take(2 * batch * capacity * groups * dim)
        cache = layers.laid_out(flat, batch, capacity, groups, dim)
        layers.attend(query, key, value, cache, span)

    return Workload(call)


def _experts(s: dict[str, int], correlation: float, arena: Arena, seed: int) -> Workload:
    h, w, E, k = (s[n] for n in ("hidden_size", "expert_size", "num_experts", "experts_per_token"))
    x, queries = arena.fresh(s["num_tokens"], h), s["tokens_per_sequence"]
    law = (s["num_tokens"] // queries, queries, E, k, correlation, np.random.default_rng(seed))
    drawn = [sample_routing(*law) for _ in range(ROUTINGS)]
    forced = [torch.from_numpy(d.reshape(-1, k)).to(arena.device) for d in drawn]

    def call(index: int) -> None:
        weights = layers.ExpertWeights(
            arena.take(E, h), arena.take(E, 2 * w, h), arena.take(E, h, w)
        )
        layers.experts(x, weights, k, forced[index % ROUTINGS])

    return Workload(call, tuple(len(np.unique(d)) for d in drawn))


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
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=pool):
                for index in range(self.calls):
                    self._call(index)
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
