"""Short convolutions over the last tokens, in place of a mixer or beside one."""

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.blocks import between, linear
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.recurrent import RecurrentMixer
from specmodel.core.layers.run import Pass
from specmodel.core.layers.states import StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work


class ShortConvolution(RecurrentMixer, frozen=True, kw_only=True, tag="short_convolution"):
    """Convolution over the last tokens, channel by channel, between two gates.

    One matrix makes the input of the convolution and two gates, which multiply its input and its
    output; another matrix follows. There is no state but the window: no `state_dtype` matters.

    Parameters
    ----------
    num_channels
        Width of the convolution [-].
    conv_kernel, state_dtype
        As in `GatedDeltaNet` [token].

    Notes
    -----
    As vLLM 0.33 (``layers/mamba/short_conv.py``) and transformers 5.23 (``modeling_lfm2.py``) run
    it, with kernels of their own for the gates. Biases are left out.
    """

    num_channels: Size

    moved_between = 6, 2
    cut_by = "num_channels"

    @property
    def conv_channels(self) -> int:
        """Values of a token that the convolution runs over [-]."""
        return self.num_channels

    @property
    def output_size(self) -> int:
        """Inputs of the matrix after the convolution [-]."""
        return self.num_channels

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU [-]."""
        return self.num_channels * (4 * hidden_size + self.conv_kernel) / tensor_parallel

    def products(self, hidden_size: int, tensor_parallel: int) -> tuple[float, tuple[int, ...]]:
        """Return a token's elements between matrices on each GPU, and the input widths [-]."""
        return 4 * self.num_channels / tensor_parallel, (hidden_size,)


class BesideAttention(RecurrentMixer, frozen=True, kw_only=True, tag="beside_attention"):
    """Convolutions and relative positions that stand beside attention in a layer of Inkling.

    Keys, values, and the results of mixer and feed-forward block each pass a convolution over the
    last tokens, which is added to them: `num_channels` in all. One matrix makes `relative_size`
    numbers of each token and query head; another makes of these a term for each of the last
    `relative_extent` entries, which is added to the scores.

    As in vLLM 0.33 (``models/inkling/nvidia``), which cuts all of it over GPUs but the small second
    matrix, and caches a row of convolved values for each token, so that it writes no window twice.
    There the convolutions run inside kernels of norms, rotation and messages, and the terms inside
    that of keys and values.
    """

    num_channels: Size
    num_heads: Size
    relative_size: Size
    relative_extent: Size

    cut_by = "num_heads num_channels"

    @property
    def conv_channels(self) -> int:
        """Values of a token that the convolutions run over [-]."""
        return self.num_channels

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; the matrix of terms is on all [-]."""
        cut = hidden_size * self.num_heads * self.relative_size
        cut += self.num_channels * self.conv_kernel
        return cut / tensor_parallel + self.relative_size * self.relative_extent

    def reserved_bytes(
        self, tokens: Quantity, states: StateKeeping, stream: Stream, tensor_parallel: int
    ) -> Quantity:
        """Return the bytes for a sequence that verifies `tokens` at once, a row for each [B]."""
        return (self.conv_kernel - 2 + tokens) * self.past_token_bytes(stream, tensor_parallel)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        h, n = run.stream.hidden_size, run.layout.tensor_parallel
        heads, terms = self.num_heads / n, self.relative_size * self.relative_extent
        made = heads * self.relative_size
        position = linear(  # a part of the product that makes queries
            run, layers, weights=h * made, values=made, depth=0, kernels=0
        )
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
