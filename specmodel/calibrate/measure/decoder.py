"""A decoder in torch with random weights and a KV cache, dense or MoE, made of `layers`."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specmodel.base.errors import InputError
from specmodel.calibrate.measure import layers
from specmodel.calibrate.measure.layers import ExpertWeights, Span
from specmodel.records.architecture import Architecture, FeedForward, Mixer
from specmodel.records.layers.attention import GroupedAttention
from specmodel.records.layers.feed_forward import DenseFeedForward, RoutedExperts

_ROTARY_BASE = 10_000.0


@dataclass(frozen=True, eq=False)
class _Layer:
    norms: tuple[Tensor, Tensor]
    qkv: Tensor
    out: Tensor
    dense: tuple[Tensor, Tensor] | None
    routed: ExpertWeights | None


def _is_built(part: Mixer | FeedForward) -> bool:
    """Tell whether a decoder here has layers of this kind."""
    if isinstance(part, GroupedAttention):
        return part.window is None
    if isinstance(part, DenseFeedForward):
        return part.is_gated
    return isinstance(part, RoutedExperts) and part.is_gated and not part.num_shared_experts


class Decoder:
    """A decoder of a given architecture, weights drawn at random.

    Parameters
    ----------
    architecture
        Grouped-query attention in all layers, each dense or routed, gated, without shared
        experts.
    device
        Where its weights lie.
    dtype
        Of weights and activations.
    seed
        Of the weights.

    Raises
    ------
    InputError
        If the architecture has something else.
    """

    def __init__(
        self,
        architecture: Architecture,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
        seed: int = 0,
    ) -> None:
        a = architecture
        mixers, blocks = list(a.mixers), list(a.feed_forwards)
        if not all(map(_is_built, [*mixers, *blocks])) or len(mixers) != 1:
            expected = "plain attention and gated blocks without shared experts"
            raise InputError("architecture", a.name, expected)
        self.architecture, self.device, self.dtype = a, device, dtype
        self._mixer: GroupedAttention = mixers[0]  # type: ignore[assignment] # as was checked
        self._generator = torch.Generator(device).manual_seed(seed)
        self._embedding = self._draw(a.vocabulary_size, a.hidden_size, scale=1.0)
        self._head = self._draw(a.vocabulary_size, a.hidden_size)
        self._norm = torch.ones(a.hidden_size, device=device, dtype=dtype)
        self._layers = [self._layer(g.feed_forward) for g in a.layers for _ in range(g.count)]
        size = self._mixer.head_dim
        powers = torch.arange(0, size, 2, device=device) / size
        self._frequencies = _ROTARY_BASE**-powers

    def _draw(self, *shape: int, scale: float | None = None) -> Tensor:
        weights = torch.empty(shape, device=self.device, dtype=self.dtype)
        spread = shape[-1] ** -0.5 if scale is None else scale
        return weights.normal_(0.0, spread, generator=self._generator)

    def _layer(self, block: FeedForward | None) -> _Layer:
        h, m = self.architecture.hidden_size, self._mixer
        q, kv = m.num_heads * m.head_dim, m.num_kv_heads * m.head_dim
        dense = routed = None
        if isinstance(block, DenseFeedForward):
            dense = (self._draw(2 * block.ffn_size, h), self._draw(h, block.ffn_size))
        elif block:
            E, w = block.num_experts, block.expert_size
            routed = ExpertWeights(self._draw(E, h), self._draw(E, 2 * w, h), self._draw(E, h, w))
        norms = (torch.ones_like(self._norm), torch.ones_like(self._norm))
        return _Layer(norms, self._draw(q + 2 * kv, h), self._draw(h, q), dense, routed)

    def new_cache(self, batch_size: int, capacity: int) -> list[Tensor]:
        """Return an empty KV cache for each layer.

        Parameters
        ----------
        batch_size
            Sequences [request].
        capacity
            Entries of each [token].

        Returns
        -------
        list of Tensor
            Random, so that attention to a context that was never run costs what it should.
        """
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
        """Run one pass and write its keys and values to the cache.

        Parameters
        ----------
        tokens
            Shape (batch, tokens).
        first
            Position of the first token of each sequence, shape (batch,).
        cache
            As `new_cache` returns it.
        routing
            Experts forced on each token, shape (MoE layers, batch x tokens, experts per token);
            the router's own choice if None.
        wanted
            Tokens of each sequence, from its last, whose next is asked for; all if None [token].

        Returns
        -------
        Tensor
            The most likely next token after each, shape (batch, wanted).
        """
        a = self.architecture
        batch, count = tokens.shape
        rows = self._mixer.num_heads // self._mixer.num_kv_heads
        span = layers.span_of(first, count, cache[0].shape[2], rows, self.dtype)
        angles = span.positions[:, :, None, None] * self._frequencies
        turn = torch.stack([angles.cos(), angles.sin()]).to(self.dtype)
        residual = F.embedding(tokens, self._embedding).view(batch * count, -1)
        x = torch.zeros_like(residual)
        routed = 0
        for layer, kv in zip(self._layers, cache, strict=True):
            x, residual = layers.add_norm(x, residual, layer.norms[0])
            x = self._attention(x.view(batch, count, -1), layer, kv, span, turn)
            x, residual = layers.add_norm(x, residual, layer.norms[1])
            if layer.routed is None:
                x = layers.feed_forward(x, *layer.dense)  # type: ignore[misc] # dense or routed
            else:
                forced = None if routing is None else routing[routed]
                x = layers.experts(x, layer.routed, a.experts_per_token, forced)
                routed += 1
        x, _ = layers.add_norm(x, residual, self._norm)
        asked = wanted or count
        x = x.view(batch, count, -1)[:, count - asked :].reshape(batch * asked, -1)
        return F.linear(x, self._head).argmax(dim=-1).view(batch, asked)

    def _attention(
        self, x: Tensor, layer: _Layer, cache: Tensor, span: Span, turn: Tensor
    ) -> Tensor:
        m = self._mixer
        batch, count, _ = x.shape
        mixed = F.linear(x, layer.qkv).view(batch, count, -1, m.head_dim)
        sizes = [m.num_heads + m.num_kv_heads, m.num_kv_heads]
        turned, value = mixed.split(sizes, dim=2)
        query, key = layers.rotate(turned, turn).split([m.num_heads, m.num_kv_heads], dim=2)
        out = layers.attend(query, key, value, cache, span)
        return F.linear(out.reshape(batch * count, -1), layer.out)
