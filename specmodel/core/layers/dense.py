"""Compute dense feed-forward blocks, which process every token."""

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.blocks import BlockSizes, between, feed_forward
from specmodel.core.layers.parts import FeedForwardBlock
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work


class DenseFeedForward(FeedForwardBlock, frozen=True, kw_only=True, tag="dense"):
    """A feed-forward block that processes every token.

    Parameters
    ----------
    ffn_size
        Inner width [-].
    is_gated
        Whether there are three matrices (gate, up, down) instead of two.
    """

    ffn_size: Size
    is_gated: bool = True

    @property
    def dense_size(self) -> int:
        """Width of the block that processes every token [-]."""
        return self.ffn_size

    def parameters(self, hidden_size: int) -> int:
        """Return the weights of one layer [-]."""
        return (2 + self.is_gated) * hidden_size * self.ffn_size

    def weight_bytes(self, stream: Stream, layout: Layout) -> float:
        """Return the bytes of one layer on each GPU [B]."""
        weights = self.parameters(stream.hidden_size) / layout.tensor_parallel
        return weights * BYTES_PER_ELEMENT[stream.weight_dtype]

    def reductions(self, layout: Layout) -> int:
        """Return the all-reduces that follow one layer [-]."""
        return int(layout.tensor_parallel > 1)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        width = self.ffn_size / run.layout.tensor_parallel
        return dense_block("dense_ffn", run, width, layers, self.is_gated)


def dense_block(name: str, run: Pass, width: float, layers: int, is_gated: bool) -> dict[str, Work]:
    """Return the work of feed-forward blocks for all tokens, `width` wide on each GPU [-]."""
    if not width:
        return {}
    sizes = BlockSizes(run.stream.hidden_size, width, 2 + is_gated)
    products = feed_forward(run, layers, sizes)
    return {name: products, "elementwise": between(run, layers, sizes.acted, kernels=1)}
