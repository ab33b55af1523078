"""Compute several residual streams, or attention to earlier sums, in place of one stream.

Blocks of a layer still read and write one row of the model's width for each token. Engines fuse the
additional work with the norm before each block, and each GPU does all of it.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from specmodel.core.base.bounds import Count
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.batch import Carried, Layout
from specmodel.core.layers.blocks import Tokens, between
from specmodel.core.layers.extras import Around, Extra
from specmodel.core.layers.forms import measured
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work


def share_apart(carried: Carried, tokens: float) -> FloatArray:
    """Return the share of an engine's savings in small passes that a pass does not get [-].

    The share is 0 up to `tokens` tokens, 1 from twice this number, and linear in between.
    """
    return np.clip(carried.replica.num_tokens / tokens - 1, 0, 1)


def tokens_apart(carried: Carried, tokens: float) -> FloatArray:
    """Return the tokens of a pass times `share_apart` [token]."""
    return carried.replica.num_tokens * share_apart(carried, tokens)


class HyperConnections(Extra, frozen=True, kw_only=True, tag_field="kind", tag="hyper_connections"):
    """Several residual streams: each block reads a sum of them, and adds to all (mHC, iHC).

    Two small matrices per layer compute three things from all streams of a token: the share of each
    stream that the block reads, the share of the output that each stream receives, and how streams
    mix.

    Parameters
    ----------
    num_streams
        Residual streams [-].
    is_mixed, gate_rank
        Whether streams mix with each other. If each element of a stream has its own gate for
        reading, the width between the two matrices of these gates; 0 if a stream has one number
        [-].
    has_head, in_modules
        Whether a matrix combines streams before the LM head; if not, they are summed. Whether
        layers for multi-token prediction have several streams.

    Notes
    -----
    Engines of mid-2026 run kernels before a block, including its norm, and one kernel after it; the
    measurements have the same kernels. In passes of few tokens, vLLM 0.33 fuses the kernel after a
    block with those before the next block (`EngineCode.fused_tokens`). This saves a launch and a
    pass over the streams. The MTP layers of GLM-5.3-Flash have one stream. Those of DeepSeek-V4
    have as many streams as the model.

    References
    ----------
    Z. Xie et al., "mHC: Manifold-Constrained Hyper-Connections," 2025.
    """

    kernel_kind = "hyper_connections"
    """Kind of its kernels."""
    num_streams: Annotated[int, Meta(ge=2, le=64)]
    is_mixed: bool = True
    gate_rank: Count = 0
    has_head: bool = False
    in_modules: bool = False

    def __post_init__(self) -> None:
        expected = "0 where is_mixed, as gates of elements are known only without mixing"
        self.need(not (self.gate_rank and self.is_mixed), "gate_rank", expected)

    def parameters(self, model: Around) -> int:
        """Return the weights of the matrices before all blocks, with biases and scales [-]."""
        made, wide = self._made, self.num_streams * model.hidden_size
        head = self._of_head * (wide + 1) + 1 if self.has_head else 0
        return model.mixed_blocks * (made * (wide + 1) + 2 + self.is_mixed) + head

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of `parameters` on each GPU, in 32 bits [B]."""
        return self.parameters(model) * self._weight_bytes(model.stream)

    def fused_norms(self, model: Around) -> int:
        """Return the norms that its kernels include: the norms before blocks [-]."""
        return model.mixed_blocks

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work of mixing in a pass, including the norms before blocks."""
        num_blocks = model.mixed_blocks
        after = self.after(run, num_blocks)
        if run.code.fused_tokens:
            apart = measured(share_apart, run.code.fused_tokens)
            after = replace(after, kernels=apart * after.kernels, depth=apart * after.depth)
        found = self.before(run, num_blocks) + after
        if self.has_head:
            found = found + self.before(run, 1, self._of_head)
        return {"residual_streams": found}

    def before(self, tokens: Pass | Tokens, num_blocks: int, made: int | None = None) -> Work:
        """Return the work before blocks: compute numbers of each token, and sum its streams."""
        # Streams are read for the numbers (`made`; None for the numbers of a block), and a second
        # time for the sum. Two kernels do this. Iterations, which normalise the numbers in both
        # directions, take as long as two more kernels.
        stream = tokens.stream
        weights = num_blocks * (made or self._made) * self.num_streams * stream.hidden_size
        size = self._weight_bytes(stream)
        numbers = Work(flop=tokens.num_tokens * (2 * weights), weight_bytes=weights * size)
        return self._moved(tokens, num_blocks, kernels=4) + numbers

    def after(self, tokens: Pass | Tokens, num_blocks: int) -> Work:
        """Return the work after blocks: mix the streams, and add the results."""
        return self._moved(tokens, num_blocks, kernels=1)

    def _moved(self, tokens: Pass | Tokens, num_blocks: int, *, kernels: int) -> Work:
        """Return the traffic of reading and writing all streams, and of one block's row."""
        wide = self.num_streams * tokens.stream.hidden_size
        values = num_blocks * (2 * wide + tokens.stream.hidden_size)
        moved = between(tokens, 1, values, kernels=kernels * num_blocks)
        return replace(moved, depth=num_blocks * wide, kind=self.kernel_kind, dtype="bf16")

    @property
    def _made(self) -> int:
        """Numbers computed for a token before each block; gates count twice their rank [-]."""
        mixing = self.num_streams**2 if self.is_mixed else 0
        return self._of_head + self.num_streams + mixing

    @property
    def _of_head(self) -> int:
        """Coefficients that read the streams, also before the LM head; with gates, 2 x rank [-]."""
        return 2 * self.gate_rank or self.num_streams

    def _weight_bytes(self, stream: Stream) -> float:
        """Return the size of a weight: 32 bits, but 16 with gates of elements [B]."""
        return stream.residual_bytes if self.gate_rank else BYTES_PER_ELEMENT["fp32"]


class AttentionResiduals(
    Extra, frozen=True, kw_only=True, tag_field="kind", tag="attention_residuals"
):
    """Sums over `block_layers` layers each; every block reads a weighted mean of them (AttnRes).

    The kernel of the norm also computes the mean (``ops/attn_res.py`` of Kimi-K3 in vLLM 0.33). It
    reads the stored sums and the current one. The last kernel, before the LM head, reads all sums.
    """

    kernel_kind = "elementwise"
    """Kind of its kernels: that of norms."""
    block_layers: Annotated[int, Meta(ge=1, le=10**6)]

    def parameters(self, model: Around) -> int:
        """Return the weights: a norm and a row of scores for each block and the LM head [-]."""
        return 2 * model.hidden_size * (model.mixed_blocks + 1)

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of `parameters` on each GPU [B]."""
        return self.parameters(model) * model.stream.residual_bytes

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work of reading earlier sums in a pass, done by the kernels of norms."""
        # The mixer of layer i, counted from 0, reads ``ceil(i / b)`` sums. Its feed-forward block
        # reads ``ceil((i + 1) / b)`` sums, and the LM head reads all.
        num_layers = model.mixed_layers
        stored = [-(-i // self.block_layers) for i in range(num_layers + 1)]
        in_layers = sum(stored[:-1]) + sum(stored[1:])
        sums = in_layers * model.mixed_blocks / (2 * num_layers) + stored[-1]
        read = sums * model.hidden_size
        scored = run.num_tokens * (4 * read)
        work = Work(flop=scored, weight_bytes=self.weight_bytes(model, run.layout))
        return {"norms": between(run, 1, read, kernels=0) + work}


Residuals = HyperConnections | AttentionResiduals
