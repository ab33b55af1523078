"""State spaces of Mamba-2."""

from dataclasses import dataclass
from typing import Literal

from specmodel.algebra import ranks
from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.base.errors import InputError
from specmodel.base.schemas import Size
from specmodel.layers import messages
from specmodel.layers.blocks import StateHeads
from specmodel.layers.recurrent import RecurrentMixer, without_delta
from specmodel.layers.run import Pass
from specmodel.layers.work import Work


@dataclass(frozen=True, kw_only=True)
class Mamba2(RecurrentMixer):
    """State space with a matrix of state for each head, after a short convolution.

    One matrix before it makes an output gate, the values that are written to the state, two vectors
    for each group of heads (into and out of the state) and a step for each head; one matrix follows
    it, after a gated norm.

    Parameters
    ----------
    kind, num_state_heads, state_head_dim
        Name of the mixer in files; heads, and the width of each [-].
    num_state_groups, state_dim
        Groups of heads that share the vectors into and out of their states, and the width of these
        vectors; a state is a matrix of a head's width and this [-].
    conv_kernel, state_dtype
        As in `GatedDeltaNet` [token].

    Notes
    -----
    As vLLM 0.33 (``layers/mamba/mamba_mixer2.py``) and SGLang 0.5.23
    (``layers/attention/mamba/mamba.py``) run it: heads and groups are cut over GPUs; a single group
    is copied to each, any other number must divide. Where heads of a single group are cut, each
    layer sums squares over GPUs for its norm. Biases are left out.

    References
    ----------
    T. Dao, A. Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through
    Structured State Space Duality," 2024.
    """

    kind: Literal["mamba2"] = "mamba2"
    num_state_heads: Size
    state_head_dim: Size
    num_state_groups: Size
    state_dim: Size

    def __post_init__(self) -> None:
        if self.num_state_heads % self.num_state_groups:
            expected = f"a divisor of num_state_heads = {self.num_state_heads}"
            raise InputError("num_state_groups", self.num_state_groups, expected)

    @property
    def state_size(self) -> int:
        """Elements of the state of a sequence in one layer [-]."""
        return self.output_size * self.state_dim

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the record of a token: values, vectors into states, and steps [B]."""
        # Steps have 32 bits, all else 16 (``append_replayssm_ring`` in vLLM 0.33).
        values = self.output_size / tensor_parallel + self._vectors(tensor_parallel)
        steps = self.num_state_heads / tensor_parallel
        return values * BYTES_PER_ELEMENT["bf16"] + steps * BYTES_PER_ELEMENT["fp32"]

    @property
    def conv_channels(self) -> int:
        """Values of a token that the convolution runs over: those written, and both vectors [-]."""
        return self.output_size + 2 * self.num_state_groups * self.state_dim

    def channels_on(self, tensor_parallel: int) -> float:
        """Return the convolution's channels on each GPU; those of a single group are on all [-]."""
        return self.output_size / tensor_parallel + 2 * self._vectors(tensor_parallel)

    @property
    def output_size(self) -> int:
        """Inputs of the matrix after the recurrence [-]."""
        return self.num_state_heads * self.state_head_dim

    def cuts(self, degree: int) -> bool:
        """Tell whether heads divide over GPUs, and groups do or there is one, which is copied."""
        groups = self.num_state_groups
        return not self.num_state_heads % degree and (groups == 1 or not groups % degree)

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU [-]."""
        channels, n = self.channels_on(tensor_parallel), tensor_parallel
        into = hidden_size * (channels + (self.output_size + self.num_state_heads) / n)
        by_head = self.output_size * (hidden_size + 1) + 3 * self.num_state_heads
        return into + by_head / n + channels * self.conv_kernel

    def products(self, hidden_size: int, tensor_parallel: int) -> tuple[float, tuple[int, ...]]:
        """Return what matrices make of a token on each GPU, and inputs of all but the last [-]."""
        made = (2 * self.output_size + self.num_state_heads) / tensor_parallel
        return made + self.channels_on(tensor_parallel), (hidden_size,)

    def heads(self, tensor_parallel: int) -> StateHeads:
        """Return the heads of the recurrence on each GPU."""
        groups = self._vectors(tensor_parallel) / self.state_dim
        sizes = self.state_dim, self.state_head_dim
        return StateHeads(groups, self.num_state_heads / tensor_parallel, sizes)

    def recurrence(self, run: Pass, layers: int) -> Work:
        """Return the work of the states in some layers."""
        return without_delta(self.updates(run, layers, gates=1))

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        found, layout = super().work(run, layers), run.layout
        if layout.tensor_parallel == 1 or self.num_state_groups > 1:
            return found
        # heads of a single group are cut: norms sum squares over GPUs, 4 B a token and layer
        found["norm_reduction"] = messages.all_reduces(
            ranks.all_reduce(layout.tensor_parallel, layout.gpus_per_node),
            run.num_tokens * (layers * BYTES_PER_ELEMENT["fp32"]),
            count=layers,
            ranks=min(layout.tensor_parallel, layout.gpus_per_node),
        )
        return found

    def _vectors(self, tensor_parallel: int) -> float:
        """Width of the vectors of all groups on each GPU, into states or out of them [-]."""
        groups = max(self.num_state_groups / tensor_parallel, 1)
        return groups * self.state_dim
