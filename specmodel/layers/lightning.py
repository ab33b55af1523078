"""Lightning attention, as in MiniMax-01."""

from dataclasses import dataclass
from typing import Literal

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.layers.recurrent import SquareStates, without_delta
from specmodel.layers.run import Pass
from specmodel.layers.work import Work


@dataclass(frozen=True, kw_only=True)
class LightningAttention(SquareStates):
    """Linear attention over a square matrix of state for each head, which fades at a fixed rate.

    One matrix before it makes queries, keys and values of all heads, another an output gate; one
    follows it, after a norm. It has neither a convolution nor a delta rule, and learns no rate.

    Parameters
    ----------
    kind, num_heads, head_dim
        As in `KimiDeltaAttention` [-].
    conv_kernel, state_dtype
        1, as there is no convolution; dtype of the state [token].

    Notes
    -----
    Nobody published timings of it: the law of other recurrences is used, with errors as large as
    for Mamba-2. SGLang 0.5.23 keeps the state in 32 bits (``linear/lightning_backend.py``), vLLM
    0.33 in the model's dtype by default, for Ling-2.5; it dropped MiniMax-Text-01 and M1.

    References
    ----------
    MiniMax, "MiniMax-01: Scaling Foundation Models with Lightning Attention," 2025.
    """

    kind: Literal["lightning_attention"] = "lightning_attention"
    conv_kernel: Literal[1] = 1

    moved_between = 9, 2

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of a token's record in 32 bits: keys and values [B]."""
        return 2 * self.output_size / tensor_parallel * BYTES_PER_ELEMENT["fp32"]

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU, with those of the norm [-]."""
        return (5 * hidden_size + 1) * self.output_size / tensor_parallel

    def products(self, hidden_size: int, tensor_parallel: int) -> tuple[float, tuple[int, ...]]:
        """Return what matrices make of a token on each GPU, and inputs of all but the last [-]."""
        return 5 * self.output_size / tensor_parallel, (hidden_size, hidden_size)

    def recurrence(self, run: Pass, layers: int) -> Work:
        """Return the work of the states in some layers."""
        return without_delta(self.updates(run, layers, gates=0))
