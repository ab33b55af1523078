"""Build a decoder with random weights from `layers`, and speculate with two of them.

With the real test of acceptance (greedy: a drafted token must be the choice of the target),
speculation emits exactly the tokens of plain decoding. With a script, the number of accepted tokens
is given. Random weights then decode at any acceptance rate, at the cost of real weights.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps

import torch
import torch.nn.functional as F
from torch import Tensor

from specmodel.calibrate.measure.kernels import layers
from specmodel.calibrate.measure.kernels.bench import captured
from specmodel.calibrate.measure.kernels.layers import ExpertWeights, Product, Span
from specmodel.calibrate.measure.kernels.operators import BASE, Operator, timed_on
from specmodel.core.base.errors import InputError
from specmodel.core.layers.dense import DenseFeedForward
from specmodel.core.layers.feed_forward import RoutedExperts
from specmodel.core.layers.group import FeedForward, Mixer
from specmodel.core.layers.grouped import GroupedAttention
from specmodel.core.models.architecture import Architecture

_ROTARY_BASE = 10_000.0
_SCALE = 1e-3  # of scales of quantised weights [-]

Routing = Callable[[int], Tensor | None]
"""Experts forced in a pass of so many tokens a sequence; None leaves the choice to the router."""


def _as_one_kernel(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that a GPU runs as one kernel, as engines do; on a CPU it stays as it is.

    Eager, the rotation is seven small kernels and a gated activation two.
    """
    compiled = cache(lambda: torch.compile(function, dynamic=True))

    @wraps(function)
    def run(x: Tensor, *others: Tensor) -> Tensor:
        return compiled()(x, *others) if x.is_cuda else function(x, *others)

    return run


class Stored:
    """Quantised weights of shape (outputs, inputs), or (experts, outputs, inputs), of random bits.

    An operator of ``operators.toml`` multiplies them; `draw` returns tensors of a shape and dtype.
    """

    def __init__(self, row: Operator, draw: Callable[..., Tensor], shape: Sequence[int]) -> None:
        *experts, outputs, inputs = shape
        sizes, device, kept = {"k": inputs, "n": outputs}, draw(1, dtype=BASE), cache(draw)
        self._of_rows = cache(lambda m: Product(row, kept, device, sizes | {"m": m}, *experts))

    def times(self, x: Tensor) -> Tensor:
        """Return rows times the matrix, as `F.linear` does."""
        product = self._of_rows(len(x))
        made = product(product.activations(x), product.weights())
        return made[: len(x)].to(x.dtype)

    def grouped(self, rows: Tensor, ends: Tensor) -> Tensor:
        """Return groups of rows, which end so, times the matrices of their experts."""
        product = self._of_rows(len(rows))
        return product.grouped(rows, product.weights(), ends)


Weights = Tensor | Stored
_GROUPED = (lambda rows, weights, ends: weights.grouped(rows, ends),) * 2


def _times(x: Tensor, weights: Weights) -> Tensor:
    return weights.times(x) if isinstance(weights, Stored) else F.linear(x, weights)


@dataclass(frozen=True, eq=False)
class _Layer:
    qkv: Weights
    out: Weights
    feed_forward: tuple[Weights, Weights] | ExpertWeights


def _is_built(part: Mixer | FeedForward | None) -> bool:
    """Tell whether a decoder here has layers of this kind."""
    if isinstance(part, GroupedAttention):
        return part == GroupedAttention(
            num_heads=part.num_heads, num_kv_heads=part.num_kv_heads, head_dim=part.head_dim
        )
    if isinstance(part, DenseFeedForward):
        return part.is_gated
    return isinstance(part, RoutedExperts) and part.is_gated and not part.num_shared_experts


def operators(
    architecture: Architecture, device: torch.device, typed: str = ""
) -> dict[str, Operator]:
    """Return what multiplies quantised weights, alone ("gemm") and of experts; {} for bf16.

    `typed` is how their dtype was typed, for the message if it cannot be run here.
    """
    dtype = typed or architecture.weight_dtype
    if architecture.weight_dtype == "bf16":
        return {}
    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
    capability = major + minor / 10 or None
    timed = timed_on(device.type, capability, wanted=[dtype])
    found = {component: row for (component, _), row in timed.rows.items()}
    if "experts" not in found and architecture.is_moe:
        reasons = "; ".join(timed.reasons.values()) or "bf16, or one of fewer bits"
        raise InputError("weight_dtype", dtype, f"one to be run here: {reasons}")
    return found


class Decoder:
    """A decoder of a given architecture, weights drawn at random.

    It builds grouped-query attention in all layers, each layer dense or routed, gated, without
    shared experts, and refuses other architectures. Linear layers have the architecture's
    `weight_dtype`; of quantised weights, an InputError says if torch has no product of them here.
    """

    def __init__(
        self,
        architecture: Architecture,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
        seed: int = 0,
    ) -> None:
        a = architecture
        mixers, parts = list(a.mixers), [p for g in a.layers for p in (g.mixer, g.feed_forward)]
        if not all(map(_is_built, parts)) or len(mixers) != 1:
            expected = "plain attention and gated blocks without shared experts"
            raise InputError("architecture", a.name, expected)
        self.architecture, self.device, self.dtype = a, device, dtype
        self._mixer: GroupedAttention = mixers[0]  # type: ignore[assignment] # as was checked
        self._generator = torch.Generator(device).manual_seed(seed)
        self._embedding = self._draw(a.vocabulary_size, a.hidden_size, scale=1.0)
        self._head = self._draw(a.vocabulary_size, a.hidden_size)
        self._norm = torch.ones(a.hidden_size, device=device, dtype=dtype)
        self._rows = operators(a, device)
        self._layers = [
            self._layer(g.feed_forward)  # type: ignore[arg-type] # as was checked
            for g in a.layers
            for _ in range(g.count)
        ]
        size = self._mixer.head_dim
        powers = torch.arange(0, size, 2, device=device) / size
        self._frequencies = _ROTARY_BASE**-powers

    def _draw(self, *shape: int, scale: float | None = None) -> Tensor:
        weights = torch.empty(shape, device=self.device, dtype=self.dtype)
        spread = shape[-1] ** -0.5 if scale is None else scale
        return weights.normal_(0.0, spread, generator=self._generator)

    def _bits(self, *shape: int, dtype: str) -> Tensor:
        """Return scales, small so that sums stay finite, or random bits as a narrower dtype."""
        made = self.dtype if dtype == BASE else getattr(torch, dtype)
        if made.is_floating_point and made.itemsize > 1:
            return self._draw(*shape, scale=_SCALE).to(made)
        size = (*shape[:-1], shape[-1] * made.itemsize)
        bits = torch.empty(size, device=self.device, dtype=torch.uint8)
        # without the bit that would make values of fp8 no numbers
        return bits.random_(generator=self._generator).bitwise_and_(0xBF).view(made)

    def _weights(self, *shape: int) -> Weights:
        """Return weights of a linear layer or, of three sizes, of its experts."""
        row = self._rows.get("experts" if len(shape) > 2 else "gemm")
        return Stored(row, self._bits, shape) if row else self._draw(*shape)

    def _layer(self, block: DenseFeedForward | RoutedExperts) -> _Layer:
        h, m = self.architecture.hidden_size, self._mixer
        q, kv = m.num_heads * m.head_dim, m.num_kv_heads * m.head_dim
        weights: tuple[Weights, Weights] | ExpertWeights
        if isinstance(block, RoutedExperts):
            E, w = block.num_experts, block.expert_size
            router, products = (
                self._draw(E, h),
                (self._weights(E, 2 * w, h), self._weights(E, h, w)),
            )
            weights = ExpertWeights(router, *products)
        else:
            w = block.ffn_size
            weights = self._weights(2 * w, h), self._weights(h, w)
        return _Layer(self._weights(q + 2 * kv, h), self._weights(h, q), weights)

    def new_cache(self, batch_size: int, capacity: int) -> list[Tensor]:
        """Return a random KV cache for each layer: a context that was never run costs as usual."""
        shape = (batch_size, capacity, self._mixer.num_kv_heads, self._mixer.head_dim)
        size = 2 * math.prod(shape)
        return [layers.laid_out(self._draw(size, scale=1.0), *shape) for _ in self._layers]

    def forward(
        self,
        tokens: Tensor,
        first: Tensor,
        cache: list[Tensor],
        routing: Tensor | None = None,
        wanted: int | None = None,
    ) -> Tensor:
        """Run one pass, write keys and values to the cache, and return the most likely next tokens.

        `tokens` has shape (batch, tokens) and `first` the position of the first token of each
        sequence; `routing` forces experts on each token, shape (MoE layers, batch x tokens, experts
        per token). Next tokens are those of the last `wanted` tokens of each sequence, of all if
        None.
        """
        a = self.architecture
        batch, count = tokens.shape
        rows = self._mixer.num_heads // self._mixer.num_kv_heads
        span = layers.span_of(first, count, cache[0].shape[2], rows, self.dtype)
        angles = span.positions.reshape(-1, 1, 1) * self._frequencies
        turn = torch.stack([angles.cos(), angles.sin()]).to(self.dtype)
        residual = F.embedding(tokens, self._embedding).view(batch * count, -1)
        x = torch.zeros_like(residual)
        routed = 0
        for layer, kv in zip(self._layers, cache, strict=True):
            x, residual = layers.add_norm(x, residual, self._norm)
            x = self._attention(x.view(batch, count, -1), layer, kv, span, turn)
            x, residual = layers.add_norm(x, residual, self._norm)
            if isinstance(layer.feed_forward, ExpertWeights):
                forced = None if routing is None else routing[routed]
                how = (_GROUPED,) if "experts" in self._rows else ()
                x = layers.experts(x, layer.feed_forward, a.experts_per_token, forced, *how)
                routed += 1
            else:
                x = _feed_forward(x, *layer.feed_forward)
        x, _ = layers.add_norm(x, residual, self._norm)
        asked = wanted or count
        x = x.view(batch, count, -1)[:, count - asked :].reshape(batch * asked, -1)
        return F.linear(x, self._head).argmax(dim=-1).view(batch, asked)

    def _attention(
        self, x: Tensor, layer: _Layer, cache: Tensor, span: Span, turn: Tensor
    ) -> Tensor:
        m = self._mixer
        batch, count, _ = x.shape
        mixed = _times(x.flatten(0, 1), layer.qkv).view(batch * count, -1, m.head_dim)
        turned, value = mixed.split([m.num_heads + m.num_kv_heads, m.num_kv_heads], dim=1)
        query, key = _rotate(turned, turn).split([m.num_heads, m.num_kv_heads], dim=1)
        query, key, value = (p.unflatten(0, (batch, count)) for p in (query, key, value))
        out = layers.attend(query, key, value, cache, span)
        return _times(out.reshape(batch * count, -1), layer.out)


def _feed_forward(x: Tensor, gate_up: Weights, down: Weights) -> Tensor:
    """Return the output of a gated feed-forward block, shape (tokens, hidden)."""
    return _times(_activated(_times(x, gate_up)), down)


@_as_one_kernel
def _activated(gate_up: Tensor) -> Tensor:
    """Return values of a feed-forward block times their gates, shape (tokens, width)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


@_as_one_kernel
def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Return x, shape (tokens, heads, dim), rotated by position embeddings (cos, sin)."""
    cos, sin = angles.unbind(0)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Pass:
    """Passes of one decoder over a batch, of a fixed number of tokens; a CUDA graph on a GPU.

    A pass has `count` tokens of each sequence, of which the next of the last `wanted` are asked
    for.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: list[Tensor],
        count: int,
        routing: Routing = lambda _: None,
        wanted: int | None = None,
    ) -> None:
        self._decoder, self._cache, self._routing, self._count = decoder, cache, routing, count
        self._wanted = wanted
        batch, device = cache[0].shape[1], decoder.device
        self._graph: torch.cuda.CUDAGraph | None = None
        is_dense = not decoder.architecture.is_moe
        is_fixed = layers.has_flash(device)  # other kernels wait for positions
        if not (is_fixed and (is_dense or layers.has_grouped_kernel(device))):
            return
        self._tokens = torch.zeros((batch, count), dtype=torch.int64, device=device)
        # what is written before it is replayed lies where nothing is read that is not written anew
        self._first = torch.full((batch,), cache[0].shape[2] - count, device=device)
        forced = routing(count)
        self._forced = None if forced is None else forced.clone()
        for _ in range(3):
            self._run(self._tokens, self._first, self._forced)
        torch.cuda.synchronize()
        self._graph, self._out = captured(
            lambda: self._run(self._tokens, self._first, self._forced)
        )

    def _run(self, tokens: Tensor, first: Tensor, forced: Tensor | None) -> Tensor:
        return self._decoder.forward(tokens, first, self._cache, forced, self._wanted)

    def __call__(self, tokens: Tensor, first: Tensor) -> Tensor:
        """Return the most likely next tokens, shape (batch, wanted)."""
        forced = self._routing(self._count)
        if self._graph is None:
            return self._run(tokens, first, forced)
        self._tokens.copy_(tokens)
        self._first.copy_(first)
        if self._forced is not None and forced is not None:
            self._forced.copy_(forced)
        self._graph.replay()
        return self._out.clone()


@dataclass(eq=False)
class State:
    """Sequences while they are decoded.

    ``tokens`` are the last two of each sequence, shape (batch, 2), of which the last is not in the
    cache; ``positions`` are those of the last. ``emitted`` has a tensor of shape (batch, up to
    count) for each pass or step, with -1 where a sequence emitted fewer.
    """

    tokens: Tensor
    positions: Tensor
    emitted: list[Tensor] = field(default_factory=list)

    def sequences(self) -> list[list[int]]:
        """Return the tokens emitted for each sequence."""
        rows = torch.cat(self.emitted, dim=1).tolist()
        return [[token for token in row if token >= 0] for row in rows]


def decode(plain: Pass, state: State, steps: int) -> None:
    """Decode so many steps of one token a pass, moving the sequences on."""
    for _ in range(steps):
        following = plain(state.tokens[:, 1:], state.positions)
        state.tokens = torch.cat([state.tokens[:, 1:], following], dim=1)
        state.positions = state.positions + 1
        state.emitted.append(following)


@dataclass(frozen=True, eq=False)
class Speculator:
    """Passes of a draft-and-verify step.

    ``verify`` is the target's pass of ``draft_length + 1`` tokens. ``catch_up``, the drafter's
    first pass of a step, has two tokens, of which the last's next is wanted, and ``draft`` one.
    ``catch_up`` writes the token before the last too: after a step whose drafts were all accepted
    it is not in the cache.
    """

    verify: Pass
    catch_up: Pass
    draft: Pass
    draft_length: int

    def propose(self, state: State) -> Tensor:
        """Return the tokens that the drafter proposes, shape (batch, draft_length)."""
        last = self.catch_up(state.tokens, state.positions - 1)
        drafted = [last]
        for i in range(1, self.draft_length):
            last = self.draft(last, state.positions + i)
            drafted.append(last)
        return torch.cat(drafted, dim=1)

    def step(self, state: State, script: Tensor | None = None) -> None:
        """Draft, verify and reject once, and advance sequences by the emitted tokens.

        `script` has the number of accepted tokens of each sequence, shape (batch,). Without it, the
        real test of acceptance is used.
        """
        drafted = self.propose(state)
        chosen = self.verify(torch.cat([state.tokens[:, 1:], drafted], dim=1), state.positions)
        agreed = (drafted == chosen[:, :-1]).int().cumprod(dim=1).sum(dim=1)
        accepted = agreed if script is None else script
        place = torch.arange(self.draft_length + 1, device=drafted.device)
        # what is emitted: the drafts accepted, which a script may take against the target's word
        padded = torch.cat([drafted, chosen[:, -1:]], dim=1)
        own = chosen.gather(1, accepted[:, None])
        emitted = torch.where(place < accepted[:, None], padded, own)
        state.emitted.append(torch.where(place <= accepted[:, None], emitted, -1))
        before = torch.cat([state.tokens[:, 1:], emitted], dim=1)
        state.tokens = torch.cat([before.gather(1, accepted[:, None]), own], dim=1)
        state.positions = state.positions + accepted + 1


def speculate(step: Speculator, state: State, scripts: Sequence[Tensor | None]) -> None:
    """Decode with one step of `Speculator.step` for each script, and advance sequences."""
    for script in scripts:
        step.step(state, script)
