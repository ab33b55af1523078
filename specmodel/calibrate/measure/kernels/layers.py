"""Blocks of a decoder in torch, which are timed alone and as parts of whole decoders.

No block waits for the host, so that a CUDA graph can contain all of them. There is one exception:
on GPUs before Hopper, torch runs grouped products one after another (`has_grouped_kernel`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pkgutil import resolve_name
from typing import Any

import torch
import torch.nn.functional as F
from msgspec import Struct
from torch import Tensor

from specmodel.calibrate.measure.kernels.operators import BASE, Operator, extent

NORM_EPSILON = 1e-6
Grouped = Callable[[Tensor, Any, Tensor], Tensor]
Take = Callable[..., Tensor]
"""Function that returns the next weights of a shape and dtype."""
_MASKED = -1e30


class ExpertWeights(Struct, frozen=True, eq=False):
    """Weights of one MoE layer: router (E, h), gate and up (E, 2w, h), down (E, h, w).

    Gate-up and down have the form that the matrix product needs, such as quantised weights.
    """

    router: Tensor
    gate_up: Any
    down: Any


class Span(Struct, frozen=True, eq=False):
    """Positions of the tokens of a pass, and values that attention derives from them once."""

    positions: Tensor  # of each token, shape (batch, tokens)
    mask: Tensor | None = None  # on a CPU: added to scores, (batch, 1, rows of a KV head, keys)
    keys: int = 0  # on a CPU: number of cache entries that are read
    lengths: tuple[Tensor, Tensor, Tensor] | None = None
    """On a GPU, for each query token: bounds of the queries, start of its keys in the flat cache,
    and the number of keys that it sees."""


def has_grouped_kernel(device: torch.device) -> bool:
    """Return whether one kernel computes the products of all experts; a graph can contain it."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10)


def has_flash(device: torch.device) -> bool:
    """Return whether torch has the flash attention kernel that accepts lengths of caches."""
    return device.type == "cuda" and torch.version.hip is None


def add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the norm of the sum, and the sum, both of shape (..., hidden)."""
    total = x + residual
    return F.rms_norm(total, weight.shape, weight, NORM_EPSILON), total


def grouped(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Return the product of groups of rows, which end at `ends`, with matrices (E, n, k)."""
    return F.grouped_mm(rows, weights.transpose(1, 2), offs=ends)


def experts(
    x: Tensor,
    weights: ExpertWeights,
    experts_per_token: int,
    forced: Tensor | None = None,
    products: Sequence[Grouped] = (grouped, grouped),
) -> Tensor:
    """Return the output of routed experts, shape (tokens, hidden), including the router.

    `forced`, shape (tokens, experts_per_token), replaces the experts that the router chooses. The
    router still runs. `products` compute gate and up, and down.
    """
    share, chosen = routed(x, weights.router, experts_per_token, forced)
    by_expert, order = chosen.flatten().sort(stable=True)
    bounds = _numbers(len(weights.router), x.device)
    ends = torch.searchsorted(by_expert, bounds, right=True, out_int32=True)
    rows = x[order // experts_per_token]
    gate, up = products[0](rows, weights.gate_up, ends).chunk(2, dim=-1)
    out = products[1](F.silu(gate) * up, weights.down, ends)
    back = torch.empty_like(out).index_copy_(0, order, out)
    return torch.bmm(share.to(x.dtype).unsqueeze(1), back.view(*chosen.shape, -1)).squeeze(1)


def routed(
    x: Tensor, router: Tensor, experts_per_token: int, forced: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the shares and experts of each token, both of shape (tokens, experts_per_token)."""
    scores = F.linear(x, router).softmax(dim=-1, dtype=torch.float32)
    share, chosen = scores.topk(experts_per_token, dim=-1)
    if forced is not None:
        share, chosen = scores.gather(1, forced), forced
    return share / share.sum(dim=-1, keepdim=True), chosen


def attend(query: Tensor, key: Tensor, value: Tensor, cache: Tensor, span: Span) -> Tensor:
    """Write keys and values to the cache, and return the attention of the queries.

    Queries have shape (batch, tokens, heads, dim). Keys and values have the number of KV heads.
    """
    rows = _numbers(len(query), query.device)[:, None]
    cache[0].index_put_((rows, span.positions), key)
    cache[1].index_put_((rows, span.positions), value)
    if span.lengths is not None:
        return _flash(query, cache, span.lengths)
    batch, tokens, heads, dim = query.shape
    groups = key.shape[2]
    packed = query.view(batch, tokens, groups, heads // groups, dim).permute(0, 2, 1, 3, 4)
    out = F.scaled_dot_product_attention(
        packed.reshape(batch, groups, -1, dim),
        cache[0, :, : span.keys].transpose(1, 2),
        cache[1, :, : span.keys].transpose(1, 2),
        attn_mask=span.mask,
    )
    out = out.view(batch, groups, tokens, heads // groups, dim)
    return out.permute(0, 2, 1, 3, 4).reshape(batch, tokens, heads, dim)


def laid_out(flat: Tensor, batch: int, capacity: int, groups: int, dim: int) -> Tensor:
    """Return flat memory as a KV cache, a view of shape (2, batch, capacity, groups, dim)."""
    if not has_flash(flat.device):  # the CPU kernel reads the entries of a head one after another
        return flat.view(2, batch, groups, capacity, dim).transpose(2, 3)
    return flat.view(2, batch, capacity, groups, dim)


def span_of(
    first: Tensor, tokens: int, capacity: int, rows_per_token: int, dtype: torch.dtype
) -> Span:
    """Return the span of a pass; `first` has the first position of each sequence."""
    positions = first[:, None] + _numbers(tokens, first.device)
    if has_flash(first.device):
        count = positions.numel()
        sequence = _numbers(count + 1, first.device).div(tokens, rounding_mode="floor")
        queries = _numbers(count + 1, first.device).int()
        starts = (sequence * capacity).int()
        return Span(positions, lengths=(queries, starts, positions.flatten().int() + 1))
    keys = int(positions.max()) + 1
    hidden = _numbers(keys, first.device) > positions[:, :, None]
    mask = hidden.new_zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, _MASKED)
    return Span(positions, mask.repeat_interleave(rows_per_token, dim=1).unsqueeze(1), keys)


def _flash(query: Tensor, cache: Tensor, lengths: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Run the flash kernel with each query token as a sequence of one token that ends at itself.

    torch's kernel packs the heads of a group and splits long caches only for single queries. Later
    tokens of a sequence then read its keys from the L2 cache.
    """
    batch, tokens, heads, dim = query.shape
    capacity = cache.shape[2]
    queries, starts, used = lengths
    flat = cache.view(2, batch * capacity, cache.shape[3], dim)
    out = torch.ops.aten._flash_attention_forward(
        query.reshape(batch * tokens, heads, dim), flat[0], flat[1],
        queries, starts, 1, capacity, 0.0, False, False, seqused_k=used,
    )[0]  # fmt: skip
    return torch.as_tensor(out).view(batch, tokens, heads, dim)


def flash_error(device: torch.device, tokens: int, dim: int) -> float:
    """Return the largest difference between `attend` and attention in fp32, on random data [-]."""
    batch, heads, groups, capacity = 2, 4, 2, 2048
    shapes = [(batch, tokens, n, dim) for n in (heads, groups, groups)]
    query, key, value = (torch.randn(s, device=device, dtype=torch.bfloat16) for s in shapes)
    cache = torch.randn(2, batch, capacity, groups, dim, device=device, dtype=torch.bfloat16)
    first = torch.tensor([40, capacity - tokens], device=device)
    span = span_of(first, tokens, capacity, heads // groups, query.dtype)
    got = attend(query, key, value, cache, span)
    hidden = _numbers(capacity, device) > span.positions[:, :, None]
    wide = cache.float().repeat_interleave(heads // groups, dim=3)
    scores = torch.einsum("bqhd,bkhd->bhqk", query.float(), wide[0]) * dim**-0.5
    weights = scores.masked_fill(hidden[:, None], _MASKED).softmax(dim=-1)
    expected = torch.einsum("bhqk,bkhd->bqhd", weights, wide[1])
    return float((got.float() - expected).abs().max())


@cache
def _numbers(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device)


def widened(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return the product with weights that a separate pass widens, with a scale for each row."""
    return F.linear(x, weight.to(x.dtype)) * scales


def widened_blocks(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return the product with weights that a separate pass widens, with a scale for each block."""
    (n, k), (rows, columns) = weight.shape, scales.shape
    wide = weight.to(x.dtype).view(rows, n // rows, columns, k // columns)
    return F.linear(x, (wide * scales[:, None, :, None]).view(n, k))


class Product:
    """An operator of `operators.toml` with its weights and scales, ready to call.

    It multiplies m activations of k values with a matrix of n rows, or with one for each expert; or
    it computes a whole layer of experts, or attention over caches. `weights()` returns the next
    weights. Each call also uses the next second matrix, if there is one. Scales, which are about a
    hundredth of the weights, stay the same.
    """

    def __init__(
        self, row: Operator, take: Take, x: Tensor, sizes: Mapping[str, int], *experts: int
    ) -> None:
        self._call, self._row, self._sizes = resolve_name(row["operator"]), row, sizes
        self._scales, self._others = dict[str, Tensor](), dict[str, Callable[[], Tensor]]()
        for name, (dtype, *dims) in row["inputs"].items():
            shape = [extent(size, sizes) for size in dims]
            takes = partial(take, *experts, *shape, dtype=dtype)
            if name == "w":
                self.weights = takes
            elif name == "w2":
                self._others[name] = takes
            elif name.startswith("w"):
                self._scales[name] = takes()
            elif name != "x":
                made = x.dtype if dtype == BASE else getattr(torch, dtype)
                fill = torch.zeros if name in ("out", "locks") else torch.ones
                self._scales[name] = fill(shape, device=x.device).to(made)

    def activations(self, x: Tensor) -> Tensor:
        """Return activations converted to the dtype that the operator needs."""
        name, rows, depth = self._row["inputs"]["x"]
        if name == BASE:
            return x
        dtype = getattr(torch, name)
        if depth == "k/2":  # torch cannot cast to four bits: other bits replace them
            return x[:, : x.shape[1] // 4].contiguous().view(dtype)
        return F.pad(x, (0, 0, 0, extent(rows, {"m": len(x)}) - len(x))).to(dtype)

    def __call__(self, x: Tensor, w: Tensor, **more: Any) -> Tensor:
        """Return the result of the operator on activations from `activations`."""
        known: dict[Any, Any] = {"None": None, "x": x, "w": w, **self._sizes, **self._scales}
        known |= more
        known |= {name: take() for name, take in self._others.items()}

        def argument(value: Any) -> Any:
            if isinstance(value, list):
                return tuple(map(argument, value))
            name, is_turned, _ = str(value).partition(".T")
            if is_turned:  # scales of activations have as many rows as x
                return known[name].mT[: len(x) if name.startswith("x") else None]
            is_name = isinstance(value, str) and value not in known
            return getattr(torch, value, value) if is_name else known.get(value, value)

        keywords = {name: argument(value) for name, value in self._row.get("keywords", {}).items()}
        made = self._call(*map(argument, self._row["arguments"]), **keywords)
        made = made[0] if isinstance(made, tuple | list) else made
        return torch.as_tensor(known.get("out", made))

    def grouped(self, rows: Tensor, w: Tensor, ends: Tensor) -> Tensor:
        """Return the product of each group of rows, which ends at `ends`, with its expert."""
        if "ends" in self._row["arguments"]:
            return self(self.activations(rows), w, ends=ends)
        out, start = rows.new_empty(len(rows), self._sizes["n"]), 0
        for expert, end in enumerate(ends.tolist()):
            if end > start:
                scales = {name: values[expert] for name, values in self._scales.items()}
                out[start:end] = self(rows[start:end], w[expert], **scales)
            start = end
        return out
