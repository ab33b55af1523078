"""Compute linear attention and state spaces: delta nets, lightning attention and Mamba-2."""

from typing import Literal

from specmodel.core.algebra import ranks
from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers import messages
from specmodel.core.layers.blocks import StateHeads
from specmodel.core.layers.parts import check_divisor
from specmodel.core.layers.recurrent import Product, RecurrentMixer, SquareStates, verified
from specmodel.core.layers.run import Pass
from specmodel.core.layers.work import Work


class GatedDeltaNet(RecurrentMixer, frozen=True, kw_only=True, tag="gated_delta_net"):
    """Gated delta rule over a matrix of state for each value head, after a short convolution.

    The matrices before the rule compute queries, keys, values, an output gate, and two numbers for
    each value head: how much it forgets and how much it learns. One matrix follows the rule.

    Parameters
    ----------
    num_key_heads, num_value_heads
        Heads of queries and keys, and heads of values; each key head serves the same number of
        value heads [-].
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

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of a token's record in 32 bits: keys, their changes, gates [B]."""
        keys = self.num_key_heads * self.key_head_dim
        recorded = keys + self.output_size + self.num_value_heads
        return recorded / tensor_parallel * BYTES_PER_ELEMENT["fp32"]

    def channels_on(self, tensor_parallel: int) -> float:
        """Return the queries, keys and values of a token on each GPU [-]."""
        keys = self.num_key_heads * self.key_head_dim
        return (2 * keys + self.output_size) / tensor_parallel

    def products(self, hidden_size: int, tensor_parallel: int) -> list[Product]:
        """Return the products before the recurrence: queries to gate; two numbers per head."""
        h, n = hidden_size, tensor_parallel
        made = self.channels_on(n) + self.output_size / n
        return [Product(h, made), Product(h, 2 * self.num_value_heads / n)]

    def small_weights(self, tensor_parallel: int) -> float:
        """Return two weights per value head, and the norm, which every GPU has [-]."""
        return 2 * self.num_value_heads / tensor_parallel + self.value_head_dim

    def heads(self, tensor_parallel: int) -> StateHeads:
        """Return the heads of the recurrence on each GPU."""
        sizes, n = (self.key_head_dim, self.value_head_dim), tensor_parallel
        return StateHeads(self.num_key_heads / n, self.num_value_heads / n, sizes)


class KimiDeltaAttention(SquareStates, frozen=True, kw_only=True, tag="kimi_delta_attention"):
    """Delta rule over a square matrix of state for each head, after a short convolution.

    Unlike gated delta nets, it has equal numbers of query, key and value heads, and forgets by a
    number for each element of a key. One matrix computes these numbers, and another an output gate.
    Two matrices of low rank, with a head's width between them, may replace either matrix.

    Parameters
    ----------
    num_heads, head_dim
        Heads, and the width of each head and of its square state [-].
    has_low_rank_decay, has_low_rank_gate
        Whether two matrices compute the numbers of forgetting, and the output gate. Each GPU has a
        copy of the first of two matrices.
    conv_kernel, state_dtype
        As in `GatedDeltaNet` [token].

    Notes
    -----
    If the gates have a low rank, vLLM 0.33 runs matrices with the same input as one product. For
    Ling-3.0, whose gates have full rank, it launches four products (``bailing_moe_v3.py``).

    References
    ----------
    Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture," 2025.
    """

    has_low_rank_decay: bool = True
    has_low_rank_gate: bool = True

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the record of a token: keys, their changes, and gates [B]."""
        # Changes have 32 bits, keys and gates 16 (``KDARecoverSSMRecords`` in vLLM 0.33).
        each = BYTES_PER_ELEMENT["fp32"] + 2 * BYTES_PER_ELEMENT["bf16"]
        return self.output_size / tensor_parallel * each

    def channels_on(self, tensor_parallel: int) -> float:
        """Return the queries, keys and values of a token on each GPU [-]."""
        return 3 * self.output_size / tensor_parallel

    def products(self, hidden_size: int, tensor_parallel: int) -> list[Product]:
        """Return the products before the recurrence: queries to values, learning, both gates."""
        low, size = self.has_low_rank_decay + self.has_low_rank_gate, self.head_dim
        width, heads = self.output_size / tensor_parallel, self.num_heads / tensor_parallel
        if not low:
            gate = Product(hidden_size, width)
            return [Product(hidden_size, 3 * width + heads), gate, gate]
        read_once = (5 - low) * width + heads + low * size
        inner = [Product(size, width, is_inner=True)] * low
        return [Product(hidden_size, read_once), *inner]

    def small_weights(self, tensor_parallel: int) -> float:
        """Return a weight per head and per value, and the norm, which every GPU has [-]."""
        return (self.num_heads + self.output_size) / tensor_parallel + self.head_dim

    def recurrence(self, run: Pass, layers: int) -> Work:
        """Return the work of the states in some layers; each element has its own decay."""
        tokens = verified(run, "tokens", is_mean=True)
        gates = self.head_dim + 1
        return self.updates(run, layers, gates=gates, steps=tokens, kind="kimi_recurrence")


class LightningAttention(SquareStates, frozen=True, kw_only=True, tag="lightning_attention"):
    """Linear attention over a square state matrix for each head, which decays at a fixed rate.

    One matrix computes queries, keys and values of all heads, and another an output gate. A norm
    and one matrix follow. There is neither a convolution nor a delta rule, and no rate is learned.

    Parameters
    ----------
    num_heads, head_dim
        As in `KimiDeltaAttention` [-].
    conv_kernel, state_dtype
        1, as there is no convolution; dtype of the state [token].

    Notes
    -----
    Nobody published timings of it. Its times follow the law of other recurrences, with the errors
    of Mamba-2. SGLang 0.5.23 keeps the state in 32 bits (``linear/lightning_backend.py``). vLLM
    0.33 keeps it in the model's dtype by default, for Ling-2.5; it no longer runs MiniMax-Text-01
    and M1.

    References
    ----------
    MiniMax, "MiniMax-01: Scaling Foundation Models with Lightning Attention," 2025.
    """

    conv_kernel: Literal[1] = 1

    moved_between = 9, 2
    gates, state_kind = 0.0, "state_space"

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of a token's record in 32 bits: keys and values [B]."""
        return 2 * self.output_size / tensor_parallel * BYTES_PER_ELEMENT["fp32"]

    def products(self, hidden_size: int, tensor_parallel: int) -> list[Product]:
        """Return the products before the recurrence: queries, keys and values; the gate."""
        width = self.output_size / tensor_parallel
        return [Product(hidden_size, 3 * width), Product(hidden_size, width)]

    def small_weights(self, tensor_parallel: int) -> float:
        """Return the weights of the norm on each GPU [-]."""
        return self.output_size / tensor_parallel


class Mamba2(RecurrentMixer, frozen=True, kw_only=True, tag="mamba2"):
    """State space with a matrix of state for each head, after a short convolution.

    One matrix before it computes an output gate, the values written to the state, two vectors for
    each group of heads (into and out of the state), and a step for each head. A gated norm and one
    matrix follow.

    Parameters
    ----------
    num_state_heads, state_head_dim
        Heads, and the width of each head [-].
    num_state_groups, state_dim
        Groups of heads that share the vectors into and out of their states, and the width of these
        vectors; a state is a matrix of a head's width by this width [-].
    conv_kernel, state_dtype
        As in `GatedDeltaNet` [token].

    Notes
    -----
    The sources are vLLM 0.33 (``layers/mamba/mamba_mixer2.py``) and SGLang 0.5.23
    (``layers/attention/mamba/mamba.py``). Heads and groups are cut over GPUs. Each GPU has a copy
    of a single group; several groups must divide over GPUs. If heads of a single group are cut,
    each layer sums squares over GPUs for its norm. Biases are left out.

    References
    ----------
    T. Dao, A. Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through
    Structured State Space Duality," 2024.
    """

    num_state_heads: Size
    state_head_dim: Size
    num_state_groups: Size
    state_dim: Size

    gates, state_kind = 1.0, "state_space"

    def __post_init__(self) -> None:
        check_divisor(self, "num_state_groups", "num_state_heads")

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the record of a token: values, vectors into states, and steps [B]."""
        # Steps have 32 bits, other values 16 (``append_replayssm_ring`` in vLLM 0.33).
        values = self.output_size / tensor_parallel + self._vectors(tensor_parallel)
        steps = self.num_state_heads / tensor_parallel
        return values * BYTES_PER_ELEMENT["bf16"] + steps * BYTES_PER_ELEMENT["fp32"]

    def channels_on(self, tensor_parallel: int) -> float:
        """Return the convolution's channels on each GPU; each has those of a single group [-]."""
        return self.output_size / tensor_parallel + 2 * self._vectors(tensor_parallel)

    def cuts(self, degree: int) -> bool:
        """Return whether heads divide over GPUs, and groups divide or are a single one."""
        groups = self.num_state_groups
        return not self.num_state_heads % degree and (groups == 1 or not groups % degree)

    def products(self, hidden_size: int, tensor_parallel: int) -> list[Product]:
        """Return the products before the recurrence, one for all."""
        by_head = (self.output_size + self.num_state_heads) / tensor_parallel
        return [Product(hidden_size, by_head + self.channels_on(tensor_parallel))]

    def small_weights(self, tensor_parallel: int) -> float:
        """Return the weights of the norm, and three per head, on each GPU [-]."""
        return (self.output_size + 3 * self.num_state_heads) / tensor_parallel

    def heads(self, tensor_parallel: int) -> StateHeads:
        """Return the heads of the recurrence on each GPU."""
        groups = self._vectors(tensor_parallel) / self.state_dim
        sizes = self.state_dim, self.state_head_dim
        return StateHeads(groups, self.num_state_heads / tensor_parallel, sizes)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        found, layout = super().work(run, layers), run.layout
        if layout.tensor_parallel == 1 or self.num_state_groups > 1:
            return found
        # heads of a single group are cut: norms sum squares over GPUs, 4 B per token and layer
        found["norm_reduction"] = messages.all_reduces(
            ranks.all_reduce(layout.tensor_parallel, layout.gpus_per_node),
            run.num_tokens * (layers * BYTES_PER_ELEMENT["fp32"]),
            count=layers,
            ranks=min(layout.tensor_parallel, layout.gpus_per_node),
        )
        return found

    def _vectors(self, tensor_parallel: int) -> float:
        """Return the width of all groups' vectors into states, or out of them, on each GPU [-]."""
        return max(self.num_state_groups / tensor_parallel, 1) * self.state_dim
