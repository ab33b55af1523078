"""Prepare workloads on a device: random weights, and the work of each component."""

import math
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Struct
from torch import Tensor

from specmodel.calibrate.measure.kernels import layers
from specmodel.calibrate.measure.kernels.operators import BASE, Operator
from specmodel.calibrate.measure.kernels.suite import COPY, LAUNCH, Sizes
from specmodel.core.algebra.routing import sample_routing, zipf_popularity

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ROUTINGS = 8  # number of random routings, which the calls of a point use in turn [-]
LAUNCHES = 50  # number of kernels in one call of the component launch [-]
Call = Callable[[int], object]  # the argument counts the calls, so that inputs can vary

_TILE = 2**24
_SPREAD = 0.02
_ALIGNED = 128  # start of each view [B]
_NO_NAN = 0xBF  # mask of each byte, so that no value is NaN in fp8


class Workload(Struct, frozen=True, eq=False):
    """A point that is ready to run."""

    call: Call
    active_experts: tuple[int, ...] = ()  # number of distinct experts of each routing
    has_graph: bool = True  # whether a GPU replays the kernels as a graph
    work: int = 1  # number of kernels in a call, by which its time is divided


class Arena:
    """Random weights larger than the last-level cache, which `take` returns in turn."""

    def __init__(self, size_bytes: float, device: torch.device, dtype: str = "bf16") -> None:
        count = max(math.ceil(size_bytes / TORCH_DTYPES[dtype].itemsize), _TILE)
        generator = torch.Generator(device).manual_seed(0)
        tile = torch.empty(_TILE, dtype=TORCH_DTYPES[dtype], device=device)
        tile.normal_(0.0, _SPREAD, generator=generator)
        tile.view(torch.uint8).bitwise_and_(_NO_NAN)
        self.values = tile.repeat(math.ceil(count / _TILE))
        self.device = device
        self._read_as = {BASE: self.values}
        self._next = 0

    def take(self, *shape: int, dtype: str = BASE) -> Tensor:
        """Return the next view of a shape; after the last view that fits, the first one.

        `dtype` is torch's name of the dtype in which the random bits are read.
        """
        if dtype not in self._read_as:
            self._read_as[dtype] = self.values.view(getattr(torch, dtype))
        values, size = self._read_as[dtype], math.prod(shape)
        width = values.element_size()
        if self._next // width + size > len(values):
            self._next = 0
        start = self._next // width
        self._next += math.ceil(size * width / _ALIGNED) * _ALIGNED
        return values[start : start + size].view(shape)

    def fresh(self, *shape: int) -> Tensor:
        """Return random activations with a standard deviation of 1."""
        return self.values[: math.prod(shape)].view(shape) / _SPREAD


def prepare(
    component: str, sizes: Sizes, arena: Arena, name: str, row: Operator | None = None
) -> Workload:
    """Return a point that is ready to run on the device of the arena.

    `name` seeds the routing. `row` is the operator of a quantised product or of an engine.
    """
    whole = {key: round(value) for key, value in sizes.items()}
    if component == "experts":
        law = sizes["routing_correlation"], sizes["popularity_exponent"]
        return _experts(whole, *law, zlib.crc32(name.encode()), arena, row)
    if component == "gemm":
        return _gemm(whole, arena, row)
    if component == "attention" and row is not None:
        return _paged_attention(whole, arena, row)
    makers = {
        COPY: _copy, LAUNCH: _launch, "attention": _attention, "elementwise": _elementwise,
        "latent_attention": _latent_attention, "recurrence": _recurrence, "sampling": _sampling,
        "rejection": _rejection,
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


def _gemm(s: dict[str, int], arena: Arena, row: Operator | None) -> Workload:
    inputs, outputs = s["input_size"], s["output_size"]
    x = arena.fresh(s["num_tokens"], inputs)
    if row is None:
        return Workload(lambda _: F.linear(x, arena.take(outputs, inputs)))
    product = layers.Product(row, arena.take, x, {"m": len(x), "k": inputs, "n": outputs})
    x = product.activations(x)
    return Workload(lambda _: product(x, product.weights()))


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


def _paged_attention(s: dict[str, int], arena: Arena, row: Operator) -> Workload:
    """Attend over consecutive pages of a cache; all sequences have the same length."""
    b, q, c = s["batch_size"], s["query_tokens"], s["context_length"]
    h, g, d = s["num_heads"], s["num_kv_heads"], s["head_dim"]
    numbers = partial(torch.arange, dtype=torch.int32, device=arena.device)
    places = {
        "starts": numbers(0, b * q + 1, q),
        "pages": numbers(b * math.ceil(c / row["page"])).view(b, -1),
        "used": torch.full((b,), c, dtype=torch.int32, device=arena.device),
    }
    x = arena.fresh(b * q, h, d)
    sizes = {"b": b, "q": q, "c": c, "h": h, "g": g, "d": d}
    product = layers.Product(row, arena.take, x, sizes)
    return Workload(lambda _: product(x, product.weights(), **places))


def _latent_attention(s: dict[str, int], arena: Arena) -> Workload:
    batch, capacity, tokens = s["batch_size"], s["context_length"], s["query_tokens"]
    latent, rows = s["kv_lora_rank"], tokens * s["num_heads"]
    query = arena.fresh(batch, rows, latent + s["qk_rope_head_dim"])
    seen = capacity - tokens + torch.arange(rows, device=arena.device) // s["num_heads"]
    hidden = torch.arange(capacity, device=arena.device) > seen[:, None]

    def call(_: int) -> None:
        cache = arena.take(batch, capacity, query.shape[-1])
        scores = (query @ cache.mT).masked_fill(hidden, -torch.inf)
        scores.softmax(-1, dtype=torch.float32).to(query.dtype) @ cache[..., :latent]

    return Workload(call)


def _recurrence(s: dict[str, int], arena: Arena) -> Workload:
    """Update the states of gated delta nets in fp32, one token after another; keep each state."""
    tokens, heads = s["query_tokens"], (s["batch_size"], s["num_value_heads"])
    keys, values = s["key_head_dim"], s["value_head_dim"]
    query, key = (arena.fresh(tokens, *heads, keys, 1).float() for _ in range(2))
    value = arena.fresh(tokens, *heads, 1, values).float()

    def call(_: int) -> None:
        state = arena.take(*heads, keys, values, dtype="float32")
        for q, k, v in zip(query, key, value, strict=True):
            state = 0.9 * state
            state = state + k * (v - k.mT @ state)
            q.mT @ state

    return Workload(call)


def _sampling(s: dict[str, int], arena: Arena) -> Workload:
    logits = arena.fresh(s["num_tokens"], s["vocabulary_size"])
    noise = torch.empty(logits.shape, device=arena.device)

    def call(_: int) -> None:
        shares = logits.softmax(-1, dtype=torch.float32)
        (shares / noise.exponential_()).argmax(-1)

    return Workload(call)


def _rejection(s: dict[str, int], arena: Arena) -> Workload:
    shape = s["num_tokens"], s["vocabulary_size"]
    target, draft = (arena.fresh(*shape).softmax(-1, dtype=torch.float32) for _ in range(2))
    drafted, noise = draft.argmax(-1, keepdim=True), torch.empty(shape, device=arena.device)
    chance = torch.empty(len(drafted), 1, device=arena.device)

    def call(_: int) -> None:
        kept = chance.uniform_() * draft.gather(1, drafted) <= target.gather(1, drafted)
        again = ((target - draft).clamp_(min=0) / noise.exponential_()).argmax(-1, keepdim=True)
        torch.where(kept, drafted, again)

    return Workload(call)


def _experts(
    s: dict[str, int], correlation: float, exponent: float, seed: int, arena: Arena,
    row: Operator | None,
) -> Workload:  # fmt: skip
    h, w, E, k = (s[n] for n in ("hidden_size", "expert_size", "num_experts", "experts_per_token"))
    x, queries = arena.fresh(s["num_tokens"], h), s["tokens_per_sequence"]
    law = (s["num_tokens"] // queries, queries, E, k, correlation, np.random.default_rng(seed))
    popularity = zipf_popularity(E, k, exponent)
    drawn = [sample_routing(*law, popularity) for _ in range(ROUTINGS)]
    forced = [torch.from_numpy(d.reshape(-1, k)).to(arena.device) for d in drawn]
    active = tuple(len(np.unique(d)) for d in drawn)
    if row is not None and "chosen" in row["arguments"]:
        whole = layers.Product(row, arena.take, x, {"m": len(x), "k": h, "n": 2 * w, "i": w}, E)

        def call_whole(index: int) -> None:
            share, chosen = layers.routed(x, arena.take(E, h), k, forced[index % ROUTINGS])
            whole(whole.activations(x), whole.weights(), share=share, chosen=chosen.int())

        return Workload(call_whole, active)

    products: list[layers.Grouped] = [layers.grouped, layers.grouped]
    takes = [lambda: arena.take(E, 2 * w, h), lambda: arena.take(E, h, w)]
    if row is not None:
        shapes = {"k": h, "n": 2 * w}, {"k": w, "n": h}
        made = [layers.Product(row, arena.take, x, {"m": len(x) * k} | n, E) for n in shapes]
        products, takes = [one.grouped for one in made], [one.weights for one in made]

    def call(index: int) -> None:
        weights = layers.ExpertWeights(arena.take(E, h), takes[0](), takes[1]())
        layers.experts(x, weights, k, forced[index % ROUTINGS], products)

    return Workload(call, active)
