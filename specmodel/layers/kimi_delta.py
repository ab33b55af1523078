"""Kimi's delta attention (KDA)."""

from dataclasses import dataclass
from typing import Literal

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.layers.recurrent import SquareStates, verified
from specmodel.layers.run import Pass
from specmodel.layers.work import Work


@dataclass(frozen=True, kw_only=True)
class KimiDeltaAttention(SquareStates):
    """Delta rule over a square matrix of state for each head, after a short convolution.

    Unlike gated delta nets, it has as many heads of queries and keys as of values, and what is
    forgotten is a number for each element of a key. One matrix makes these numbers, and one an
    output gate; either may be replaced by two with only a head's width of values between them.

    Parameters
    ----------
    kind, num_heads, head_dim
        Name of the mixer in files; heads, and the width of each and of its square state [-].
    has_low_rank_decay, has_low_rank_gate
        Whether two matrices make what is forgotten, and the output gate; the first is on each GPU.
    conv_kernel, state_dtype
        As in `GatedDeltaNet` [token].

    Notes
    -----
    vLLM 0.33 runs matrices that read the same input as one product if the gates have a low rank;
    for Ling-3.0, whose gates have not, it launches four (``bailing_moe_v3.py``).

    References
    ----------
    Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture," 2025.
    """

    kind: Literal["kimi_delta_attention"] = "kimi_delta_attention"
    has_low_rank_decay: bool = True
    has_low_rank_gate: bool = True

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the record of a token: keys, what they changed, and gates [B]."""
        # Changes have 32 bits, keys and gates 16 (``KDARecoverSSMRecords`` in vLLM 0.33).
        each = BYTES_PER_ELEMENT["fp32"] + 2 * BYTES_PER_ELEMENT["bf16"]
        return self.output_size / tensor_parallel * each

    @property
    def conv_channels(self) -> int:
        """Queries, keys and values of a token, which the convolution runs over [-]."""
        return 3 * self.output_size

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; those of no head are on all [-]."""
        h, width, low = hidden_size, self.output_size, self._low_rank_gates
        of_gates = (2 - low) * h * width + low * self.head_dim * width
        learned = (h + 1) * self.num_heads  # with the rate of each head
        by_head = 4 * h * width + of_gates + learned + self._conv_weights + width
        return by_head / tensor_parallel + (low * h + 1) * self.head_dim

    def products(self, hidden_size: int, tensor_parallel: int) -> tuple[float, tuple[int, ...]]:
        """Return what matrices make of a token on each GPU, and inputs of all but the last [-]."""
        low, size = self._low_rank_gates, self.head_dim
        by_head = self.conv_channels + 3 * self.output_size + self.num_heads
        inputs = (hidden_size,) * (1 if low else 3) + (size,) * low
        return by_head / tensor_parallel + 2 * low * size, inputs

    def recurrence(self, run: Pass, layers: int) -> Work:
        """Return the work of the states in some layers, with what each element forgets."""
        tokens = verified(run, "tokens", is_mean=True)
        gates = self.head_dim + 1
        return self.updates(run, layers, gates=gates, steps=tokens, kind="kimi_recurrence")

    @property
    def _low_rank_gates(self) -> int:
        return self.has_low_rank_decay + self.has_low_rank_gate
