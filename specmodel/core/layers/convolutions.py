"""Compute short convolutions over the last tokens, as a mixer or in parallel to attention."""

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.blocks import between, linear
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.recurrent import Product, RecurrentMixer
from specmodel.core.layers.run import Pass
from specmodel.core.layers.states import StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work


class ShortConvolution(RecurrentMixer, frozen=True, kw_only=True, tag="short_convolution"):
    """Convolution over the last tokens, channel by channel, between two gates.

    One matrix computes the input of the convolution and two gates, which multiply the convolution's
    input and output. Another matrix follows. The only state is the window, so `state_dtype` has no
    effect.

    Parameters
    ----------
    num_channels
        Width of the convolution [-].
    conv_kernel, state_dtype
        As in `GatedDeltaNet` [token].

    Notes
    -----
    Separate kernels compute the gates, as in vLLM 0.33 (``layers/mamba/short_conv.py``) and
    transformers 5.23 (``modeling_lfm2.py``). Biases are left out.
    """

    num_channels: Size

    moved_between = 6, 2
    cut_by = "num_channels"

    def channels_on(self, tensor_parallel: int) -> float:
        """Return the channels of the convolution on each GPU [-]."""
        return self.num_channels / tensor_parallel

    @property
    def output_size(self) -> int:
        """Input width of the matrix after the convolution [-]."""
        return self.num_channels

    def products(self, hidden_size: int, tensor_parallel: int) -> list[Product]:
        """Return the product before the convolution."""
        return [Product(hidden_size, 3 * self.num_channels / tensor_parallel)]


class BesideAttention(RecurrentMixer, frozen=True, kw_only=True, tag="beside_attention"):
    """Convolutions and relative positions in parallel to the attention of Inkling.

    Keys, values, and the outputs of mixer and feed-forward block each have a convolution over the
    last tokens, which is added to them: `num_channels` in total. One matrix computes
    `relative_size` numbers for each token and query head. A second matrix turns them into a term
    for each of the last `relative_extent` entries, which is added to the scores.

    The source is vLLM 0.33 (``models/inkling/nvidia``). It cuts all matrices over GPUs except the
    small second one, and caches a row of convolved values for each token, so it writes no window
    twice. The convolutions run inside kernels of norms, rotation and messages, and the terms inside
    the kernel of keys and values.
    """

    num_channels: Size
    num_heads: Size
    relative_size: Size
    relative_extent: Size

    cut_by = "num_heads num_channels"

    def channels_on(self, tensor_parallel: int) -> float:
        """Return the channels of the convolutions on each GPU [-]."""
        return self.num_channels / tensor_parallel

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; every GPU has the matrix of terms [-]."""
        cut = hidden_size * self.num_heads * self.relative_size
        cut += self.num_channels * self.conv_kernel
        return cut / tensor_parallel + self.relative_size * self.relative_extent

    def reserved_bytes(
        self, tokens: Quantity, states: StateKeeping, stream: Stream, tensor_parallel: int
    ) -> Quantity:
        """Return the bytes for a sequence that verifies `tokens` together, a row for each [B]."""
        return (self.conv_kernel - 2 + tokens) * self.past_token_bytes(stream, tensor_parallel)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        h, n = run.stream.hidden_size, run.layout.tensor_parallel
        heads, terms = self.num_heads / n, self.relative_size * self.relative_extent
        made = heads * self.relative_size
        # the first matrix is a part of the product that computes queries
        position = linear(run, layers, h * made, made, 0, kernels=0)
        scores = Work(
            flop=run.num_tokens * (2 * layers * heads * terms),
            weight_bytes=layers * terms * BYTES_PER_ELEMENT[run.stream.weight_dtype],
            kernels=layers,
        )
        return {
            "relative_positions": position + scores,
            "elementwise": between(run, layers, made + 2 * heads * self.relative_extent, kernels=0),
            "short_convolution": self.convolution(run, layers, cached=self.conv_kernel - 2),
        }
