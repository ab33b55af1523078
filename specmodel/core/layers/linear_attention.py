"""Linear attention and state spaces: gated delta nets, Kimi's, lightning attention, and Mamba-2."""

from typing import Literal

from specmodel.core.algebra import ranks
from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers import messages
from specmodel.core.layers.blocks import StateHeads
from specmodel.core.layers.parts import check_divisor
from specmodel.core.layers.recurrent import RecurrentMixer, SquareStates, verified, without_delta
from specmodel.core.layers.run import Pass
from specmodel.core.layers.work import Work


class GatedDeltaNet(RecurrentMixer, frozen=True, kw_only=True, tag="gated_delta_net"):
    """Gated delta rule over a matrix of state for each value head, after a short convolution.

    The matrices before it compute queries, keys, values, an output gate, and two numbers for each
    value head: how much it forgets and how much it learns. One matrix follows it.

    Parameters
    ----------
    num_key_heads, num_value_heads
        Heads of queries and keys, and of values; each key head serves equally many value heads [-].
    key_head_dim, value_head_dim
        Width of a head; a state is a matrix of these sizes for each value head [-].
    conv_kernel, state_dtype
        Tokens that the convolution reads, including the newest; dtype of the state [token].

    References
    ----------
    S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule,"
    2024.
    """

    num_key_heads: Size
    num_value_heads: Size
    key_head_dim: Size
    value_head_dim: Size

    cut_by = "num_key_heads num_value_heads"

    def __post_init__(self) -> None:
        check_divisor(self, "num_key_heads", "num_value_heads")

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

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; the norm of a head is on all [-]."""
        h, values = hidden_size, self.num_value_heads
        into = h * (self.conv_channels + self.output_size + 2 * values)
        by_head = into + self.output_size * h + self._conv_weights + 2 * values
        return by_head / tensor_parallel + self.value_head_dim

    def products(self, hidden_size: int, tensor_parallel: int) -> tuple[float, tuple[int, ...]]:
        """Return a token's elements between matrices on each GPU, and the input widths [-]."""
        made = self.conv_channels + 2 * self.output_size + 2 * self.num_value_heads
        return made / tensor_parallel, (hidden_size, hidden_size)

    def heads(self, tensor_parallel: int) -> StateHeads:
        """Return the heads of the recurrence on each GPU."""
        sizes, n = (self.key_head_dim, self.value_head_dim), tensor_parallel
        return StateHeads(self.num_key_heads / n, self.num_value_heads / n, sizes)


class KimiDeltaAttention(SquareStates, frozen=True, kw_only=True, tag="kimi_delta_attention"):
    """Delta rule over a square matrix of state for each head, after a short convolution.

    Unlike gated delta nets, it has as many heads of queries and keys as of values, and forgets by a
    number for each element of a key. One matrix computes these numbers, and one an output gate. Two
    matrices with a head's width between them may replace either.

    Parameters
    ----------
    num_heads, head_dim
        Heads, and the width of each and of its square state [-].
    has_low_rank_decay, has_low_rank_gate
        Whether two matrices compute the numbers of forgetting, and the output gate; each GPU has
        the first matrix.
    conv_kernel, state_dtype
        As in `GatedDeltaNet` [token].

    Notes ----- If the gates have a low rank, vLLM 0.33 runs matrices with the same input as one
    product. For Ling-3.0, whose gates have full rank, it launches four (``bailing_moe_v3.py``).

    References
    ----------
    Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture," 2025.
    """

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
        """Return a token's elements between matrices on each GPU, and the input widths [-]."""
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


class LightningAttention(SquareStates, frozen=True, kw_only=True, tag="lightning_attention"):
    """Linear attention over a square state matrix for each head, which fades at a fixed rate.

    One matrix before it computes queries, keys and values of all heads, and another an output gate.
    One matrix follows it, after a norm. It has neither a convolution nor a delta rule, and learns
    no rate.

    Parameters
    ----------
    num_heads, head_dim
        As in `KimiDeltaAttention` [-].
    conv_kernel, state_dtype
        1, as there is no convolution; dtype of the state [token].

    Notes ----- Nobody published timings of it. It uses the law of other recurrences, with errors as
    large as for Mamba-2. SGLang 0.5.23 keeps the state in 32 bits
    (``linear/lightning_backend.py``), vLLM 0.33 in the model's dtype by default, for Ling-2.5; it
    dropped MiniMax-Text-01 and M1.

    References
    ----------
    MiniMax, "MiniMax-01: Scaling Foundation Models with Lightning Attention," 2025.
    """

    conv_kernel: Literal[1] = 1

    moved_between = 9, 2

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of a token's record in 32 bits: keys and values [B]."""
        return 2 * self.output_size / tensor_parallel * BYTES_PER_ELEMENT["fp32"]

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU, with those of the norm [-]."""
        return (5 * hidden_size + 1) * self.output_size / tensor_parallel

    def products(self, hidden_size: int, tensor_parallel: int) -> tuple[float, tuple[int, ...]]:
        """Return a token's elements between matrices on each GPU, and the input widths [-]."""
        return 5 * self.output_size / tensor_parallel, (hidden_size, hidden_size)

    def recurrence(self, run: Pass, layers: int) -> Work:
        """Return the work of the states in some layers."""
        return without_delta(self.updates(run, layers, gates=0))


class Mamba2(RecurrentMixer, frozen=True, kw_only=True, tag="mamba2"):
    """State space with a matrix of state for each head, after a short convolution.

    One matrix before it computes an output gate, the values written to the state, two vectors for
    each group of heads (into and out of the state), and a step for each head. One matrix follows
    it, after a gated norm.

    Parameters
    ----------
    num_state_heads, state_head_dim
        Heads, and the width of each [-].
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

    num_state_heads: Size
    state_head_dim: Size
    num_state_groups: Size
    state_dim: Size

    def __post_init__(self) -> None:
        check_divisor(self, "num_state_groups", "num_state_heads")

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
        """Return a token's elements between matrices on each GPU, and the input widths [-]."""
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
        return max(self.num_state_groups / tensor_parallel, 1) * self.state_dim
