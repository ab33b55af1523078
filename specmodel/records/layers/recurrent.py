"""Recurrent mixers: a sequence keeps a state of fixed size, whatever its context.

A pass reads the state of each sequence once. By default it writes one after each token whose logits
are computed, so that whatever is rejected, the state after the last accepted token is there.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specmodel.base.errors import InputError
from specmodel.base.records import Record
from specmodel.base.units import BYTES_PER_ELEMENT, FloatArray
from specmodel.records.layers import blocks
from specmodel.records.layers.attention import Size
from specmodel.records.layers.batch import Pass, Stream
from specmodel.records.layers.work import Work

StateDtype = Literal["fp32", "bf16", "fp16"]
"""Dtypes of a recurrent state."""


class GatedDeltaNet(Record):
    """Gated delta rule over a matrix of state for each value head, after a short convolution.

    The matrices before it make queries, keys, values, an output gate, and two numbers for each
    value head (how much is forgotten and how much is learned); one matrix follows it.

    Parameters
    ----------
    kind
        Name of the mixer in files.
    num_key_heads, num_value_heads
        Heads of queries and keys, and of values; a key head serves as many value heads each [-].
    key_head_dim, value_head_dim
        Width of a head; a state is a matrix of these sizes for each value head [-].
    conv_kernel
        Tokens that the convolution before it sees, the newest included [token].
    state_dtype
        Dtype of the state.

    References
    ----------
    S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule,"
    2024.
    """

    kind: Literal["gated_delta_net"] = "gated_delta_net"
    num_key_heads: Size
    num_value_heads: Size
    key_head_dim: Size
    value_head_dim: Size
    conv_kernel: Annotated[int, Field(ge=1, le=1024)]
    state_dtype: StateDtype = "fp32"

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.num_value_heads % self.num_key_heads:
            expected = f"a divisor of num_value_heads = {self.num_value_heads}"
            raise InputError("num_key_heads", self.num_key_heads, expected)
        return self

    @property
    def state_size(self) -> int:
        """Elements of the state of a sequence in one layer [-]."""
        return self.num_value_heads * self.key_head_dim * self.value_head_dim

    @property
    def conv_channels(self) -> int:
        """Queries, keys and values of a token: what the convolution runs over [-]."""
        return 2 * self.num_key_heads * self.key_head_dim + self._value_size

    def cuts(self, degree: int) -> bool:
        """Tell whether key heads and value heads divide over GPUs; neither are copied."""
        return not self.num_key_heads % degree and not self.num_value_heads % degree

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights that each GPU has of one layer; the norm of a head is copied [-]."""
        h, values = hidden_size, self.num_value_heads
        into = h * (self.conv_channels + self._value_size + 2 * values)
        by_head = into + self._value_size * h + self._conv_weights + 2 * values
        return by_head / tensor_parallel + self.value_head_dim

    def sequence_bytes(
        self, entries: FloatArray, stream: Stream, tensor_parallel: int
    ) -> FloatArray:
        """Return what one layer keeps of a sequence on each GPU: one state, whatever it saw [B]."""
        kept = self.state_bytes(tensor_parallel) + self.window_bytes(stream, tensor_parallel)
        return 0 * entries + kept

    def state_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the bytes of the state of a sequence in one layer on each GPU [B]."""
        return self.state_size / tensor_parallel * BYTES_PER_ELEMENT[self.state_dtype]

    def window_bytes(
        self, stream: Stream, tensor_parallel: int = 1, more: FloatArray | float = 0.0
    ) -> FloatArray | float:
        """Return the bytes of past tokens, `more` than needed, that the convolution keeps [B]."""
        one = self.conv_channels / tensor_parallel * stream.residual_bytes
        return one * (self.conv_kernel - 1 + more)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        stream, n = run.stream, run.layout.tensor_parallel
        inner = (self.conv_channels + 2 * self._value_size + 2 * self.num_value_heads) / n
        weights = self.weights(stream.hidden_size, n) - self._conv_weights / n
        written = run.replica.mean(lambda group: group.states_per_sequence)
        return {
            "recurrent_projections": blocks.linear(
                run.num_tokens,
                weights=layers * weights,
                values=layers * (2 * stream.hidden_size + inner),
                value_bytes=stream.activation_bytes,
                kernels=4 * layers,
                dtype=stream.arithmetic_dtype(stream.weight_dtype),
                stored_dtype=stream.weight_dtype,
            ),
            "short_convolution": blocks.short_convolution(
                batch_size=run.replica.num_sequences,
                num_tokens=run.num_tokens,
                windows_written=written,
                channels=self.conv_channels / n,
                width=self.conv_kernel,
                layers=layers,
                value_bytes=stream.residual_bytes,
                dtype=stream.activation_dtype,
            ),
            "recurrence": blocks.recurrence(
                batch_size=run.replica.num_sequences,
                num_tokens=run.num_tokens,
                states_written=written,
                num_key_heads=self.num_key_heads / n,
                num_value_heads=self.num_value_heads / n,
                sizes=(self.key_head_dim, self.value_head_dim),
                layers=layers,
                value_bytes=stream.residual_bytes,
                state_dtype=self.state_dtype,
            ),
        }

    @property
    def _value_size(self) -> int:
        return self.num_value_heads * self.value_head_dim

    @property
    def _conv_weights(self) -> int:
        return self.conv_channels * self.conv_kernel
