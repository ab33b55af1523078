"""Gated delta nets, as in Qwen3-Next."""

from dataclasses import dataclass
from typing import Literal

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.base.errors import InputError
from specmodel.base.schemas import Size
from specmodel.layers.blocks import StateHeads
from specmodel.layers.recurrent import RecurrentMixer


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(RecurrentMixer):
    """Gated delta rule over a matrix of state for each value head, after a short convolution.

    The matrices before it make queries, keys, values, an output gate, and two numbers for each
    value head: how much is forgotten and how much is learned. One matrix follows it.

    Parameters
    ----------
    kind, num_key_heads, num_value_heads
        Name of the mixer in files; heads of queries and keys, and of values: each key head serves
        as many value heads [-].
    key_head_dim, value_head_dim
        Width of a head; a state is a matrix of these sizes for each value head [-].
    conv_kernel, state_dtype
        Tokens that the convolution sees, the newest included; dtype of the state [token].

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

    def __post_init__(self) -> None:
        if self.num_value_heads % self.num_key_heads:
            expected = f"a divisor of num_value_heads = {self.num_value_heads}"
            raise InputError("num_key_heads", self.num_key_heads, expected)

    @property
    def state_size(self) -> int:
        """Elements of the state of a sequence in one layer [-]."""
        return self.num_value_heads * self.key_head_dim * self.value_head_dim

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of a token's record in 32 bits: keys, what they changed, gates [B]."""
        keys = self.num_key_heads * self.key_head_dim
        recorded = keys + self.output_size + self.num_value_heads
        return recorded / tensor_parallel * BYTES_PER_ELEMENT["fp32"]

    @property
    def conv_channels(self) -> int:
        """Queries, keys and values of a token, which the convolution runs over [-]."""
        return 2 * self.num_key_heads * self.key_head_dim + self.output_size

    @property
    def output_size(self) -> int:
        """Inputs of the matrix after the recurrence [-]."""
        return self.num_value_heads * self.value_head_dim

    def cuts(self, degree: int) -> bool:
        """Tell whether key heads and value heads divide over GPUs; neither are copied."""
        return not self.num_key_heads % degree and not self.num_value_heads % degree

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; the norm of a head is on all [-]."""
        h, values = hidden_size, self.num_value_heads
        into = h * (self.conv_channels + self.output_size + 2 * values)
        by_head = into + self.output_size * h + self._conv_weights + 2 * values
        return by_head / tensor_parallel + self.value_head_dim

    def products(self, hidden_size: int, tensor_parallel: int) -> tuple[float, tuple[int, ...]]:
        """Return what matrices make of a token on each GPU, and inputs of all but the last [-]."""
        made = self.conv_channels + 2 * self.output_size + 2 * self.num_value_heads
        return made / tensor_parallel, (hidden_size, hidden_size)

    def heads(self, tensor_parallel: int) -> StateHeads:
        """Return the heads of the recurrence on each GPU."""
        sizes, n = (self.key_head_dim, self.value_head_dim), tensor_parallel
        return StateHeads(self.num_key_heads / n, self.num_value_heads / n, sizes)
