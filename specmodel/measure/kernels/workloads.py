"""What runs at a point of the suite: the blocks of `layers`, on weights from an arena."""

import math
import zlib
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specmodel.algebra.routing import sample_routing
from specmodel.base.classes import dataclass
from specmodel.measure.kernels import layers
from specmodel.measure.kernels.suite import COPY, DTYPES, LAUNCH, Sizes

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ROUTINGS = 8  # draws of the routing that the calls of a point take in turn [-]
LAUNCHES = 50  # kernels in a row whose launches are timed [-]
Call = Callable[[int], object]  # its argument counts the calls, so that inputs can vary

_TILE = 2**24
_SPREAD = 0.02


@dataclass(frozen=True, eq=False)
class Workload:
    """A point that is ready to run."""

    call: Call
    active_experts: tuple[int, ...] = ()  # distinct experts, of each routing that calls take
    has_graph: bool = True  # whether a GPU replays its kernels as a graph
    work: int = 1  # kernels in a call, by which its time is divided


class Arena:
    """Random weights larger than the last-level cache, of which views are taken in turn."""

    def __init__(self, size_bytes: float, device: torch.device, dtype: str = "bf16") -> None:
        count = max(math.ceil(size_bytes / DTYPES[dtype]), _TILE)
        generator = torch.Generator(device).manual_seed(0)
        tile = torch.empty(_TILE, dtype=TORCH_DTYPES[dtype], device=device)
        tile.normal_(0.0, _SPREAD, generator=generator)
        self.values = tile.repeat(math.ceil(count / _TILE))
        self.device = device
        self._next = 0

    def take(self, *shape: int) -> Tensor:
        """Return the next view of a shape; the first one again after the last that fits."""
        size = math.prod(shape)
        if self._next + size > len(self.values):
            self._next = 0
        view = self.values[self._next : self._next + size].view(shape)
        self._next += math.ceil(size / 64) * 64
        return view

    def fresh(self, *shape: int) -> Tensor:
        """Return random activations of order one."""
        return self.values[: math.prod(shape)].view(shape) / _SPREAD


_WEIGHTS: dict[str, Callable[[Sizes], float]] = {
    COPY: lambda s: s["bytes"],
    "experts": lambda s: s["num_experts"] * s["hidden_size"] * (3 * s["expert_size"] + 1),
    "gemm": lambda s: s["input_size"] * s["output_size"],
    "attention": lambda s: (
        2 * s["batch_size"] * s["context_length"] * s["num_kv_heads"] * s["head_dim"]
    ),
}


def weight_bytes(component: str, sizes: Sizes, dtype: str) -> float:
    """Return the weights or KV of a point, which the arena must hold [B]."""
    return _WEIGHTS[component](sizes) * DTYPES[dtype] if component in _WEIGHTS else 0.0


def prepare(component: str, sizes: Sizes, arena: Arena, name: str) -> Workload:
    """Return a point ready to run on the device of the arena; its name seeds its routing."""
    whole = {key: round(value) for key, value in sizes.items()}
    if component == "experts":
        return _experts(whole, sizes["routing_correlation"], arena, zlib.crc32(name.encode()))
    makers = {
        COPY: _copy, LAUNCH: _launch, "gemm": _gemm, "attention": _attention,
        "elementwise": _elementwise,
    }  # fmt: skip
    return makers[component](whole, arena)


def _copy(s: dict[str, int], arena: Arena) -> Workload:
    size = s["bytes"] // arena.values.element_size()

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
    return Workload(lambda _: F.linear(x, arena.take(outputs, inputs)))


def _elementwise(s: dict[str, int], arena: Arena) -> Workload:
    x, residual = (arena.fresh(s["num_tokens"], s["hidden_size"]).clone() for _ in range(2))
    return Workload(lambda _: layers.add_norm(x, residual, arena.take(s["hidden_size"])))


def _attention(s: dict[str, int], arena: Arena) -> Workload:
    batch, capacity, tokens = s["batch_size"], s["context_length"], s["query_tokens"]
    heads, groups, dim = s["num_heads"], s["num_kv_heads"], s["head_dim"]
    query = arena.fresh(batch, tokens, heads, dim)
    key, value = (arena.fresh(batch, tokens, groups, dim) for _ in range(2))
    first = torch.full((batch,), capacity - tokens, device=arena.device)
    span = layers.span_of(first, tokens, capacity, heads // groups, arena.values.dtype)

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
