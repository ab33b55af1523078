"""Recurrent mixers: a sequence keeps a state of fixed size, whatever its context.

A pass reads the state of each sequence once, and writes it as `StateKeeping` says: by default after
each verified token.
"""

from dataclasses import replace
from typing import Literal, Self

from pydantic import model_validator

from specmodel.algebra import ranks
from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.base.errors import InputError
from specmodel.layers import blocks, messages
from specmodel.layers.attention import Size
from specmodel.layers.batch import Pass
from specmodel.layers.convolutions import RecurrentMixer, verified
from specmodel.layers.work import Work

__all__ = [
    "GatedDeltaNet",
    "KimiDeltaAttention",
    "LightningAttention",
    "Mamba2",
    "RecurrentMixer",
]


class GatedDeltaNet(RecurrentMixer):
    """Gated delta rule over a matrix of state for each value head, after a short convolution.

    The matrices before it make queries, keys, values, an output gate, and two numbers for each
    value head: how much is forgotten and how much is learned. One matrix follows it.

    Parameters
    ----------
    kind
        Name of the mixer in files.
    num_key_heads, num_value_heads
        Heads of queries and keys, and of values; each key head serves as many value heads [-].
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
    def record_size(self) -> int:
        """Elements recorded of a token in one layer: keys, what they changed, and gates [-]."""
        return (
            self.num_key_heads * self.key_head_dim
            + self.num_value_heads * self.value_head_dim
            + self.num_value_heads
        )

    @property
    def conv_channels(self) -> int:
        """Queries, keys and values of a token, which the convolution runs over [-]."""
        return 2 * self.num_key_heads * self.key_head_dim + self._value_size

    @property
    def output_size(self) -> int:
        """Inputs of the matrix after the recurrence [-]."""
        return self._value_size

    def cuts(self, degree: int) -> bool:
        """Tell whether key heads and value heads divide over GPUs; neither are copied."""
        return not self.num_key_heads % degree and not self.num_value_heads % degree

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; the norm of a head is on all [-]."""
        h, values = hidden_size, self.num_value_heads
        into = h * (self.conv_channels + self._value_size + 2 * values)
        by_head = into + self._value_size * h + self._conv_weights + 2 * values
        return by_head / tensor_parallel + self.value_head_dim

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        stream, n = run.stream, run.layout.tensor_parallel
        inner = (self.conv_channels + 2 * self._value_size + 2 * self.num_value_heads) / n
        weights = self.weights(stream.hidden_size, n) - self._conv_weights / n
        return {
            "recurrent_projections": blocks.linear(
                run.num_tokens,
                weights=layers * weights,
                values=layers * (2 * stream.hidden_size + inner),
                value_bytes=stream.residual_bytes,
                depth=layers * (2 * stream.hidden_size + self._value_size / n),
                kernels=3 * layers,
                dtype=stream.arithmetic_dtype(stream.weight_dtype),
                stored_dtype=stream.weight_dtype,
            ),
            "elementwise": blocks.between(
                run.num_tokens,
                values=layers * 3 * self._value_size / n,
                value_bytes=stream.residual_bytes,
                kernels=layers,
                dtype=stream.activation_dtype,
            ),
            "short_convolution": self.convolution(run, layers),
            "recurrence": blocks.recurrence(
                batch_size=run.replica.num_sequences,
                num_tokens=run.num_tokens,
                states_written=verified(run, run.states.written),
                num_key_heads=self.num_key_heads / n,
                num_value_heads=self.num_value_heads / n,
                sizes=(self.key_head_dim, self.value_head_dim),
                layers=layers,
                value_bytes=stream.residual_bytes,
                state_dtype=self.state_dtype,
                states_copied=verified(run, run.states.copied),
                record_bytes=2 * self.record_bytes(n) * verified(run, run.states.recorded),
            ),
        }

    @property
    def _value_size(self) -> int:
        return self.num_value_heads * self.value_head_dim

    @property
    def _conv_weights(self) -> int:
        return self.conv_channels * self.conv_kernel


class KimiDeltaAttention(RecurrentMixer):
    """Delta rule over a square matrix of state for each head, after a short convolution.

    Unlike gated delta nets, it has as many heads of queries and keys as of values, and what is
    forgotten is a number for each element of a key. One matrix makes these numbers, and one an
    output gate; either may be replaced by two with only a head's width of values between them.

    Parameters
    ----------
    kind
        Name of the mixer in files.
    num_heads, head_dim
        Heads, and the width of each; a state is a square matrix of it for each head [-].
    has_low_rank_decay, has_low_rank_gate
        Whether two matrices make what is forgotten, and the output gate. Each GPU has a copy of the
        first of the two.
    conv_kernel
        Tokens that the convolution before it sees, the newest included [token].
    state_dtype
        Dtype of the state.

    Notes
    -----
    vLLM 0.33 runs matrices that read the same input as one product if the gates have a low rank;
    for Ling-3.0, whose gates have not, it launches four (``bailing_moe_v3.py``).

    References
    ----------
    Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture," 2025.
    """

    kind: Literal["kimi_delta_attention"] = "kimi_delta_attention"
    num_heads: Size
    head_dim: Size
    has_low_rank_decay: bool = True
    has_low_rank_gate: bool = True

    @property
    def state_size(self) -> int:
        """Elements of the state of a sequence in one layer [-]."""
        return self.num_heads * self.head_dim**2

    @property
    def record_size(self) -> int:
        """Elements recorded of a token in one layer: keys, what they changed, and gates [-]."""
        return 3 * self.output_size

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the record of a token in one layer [B].

        Changes have 32 bits, keys and gates 16 (``KDARecoverSSMRecords`` in vLLM 0.33).
        """
        each = BYTES_PER_ELEMENT["fp32"] + 2 * BYTES_PER_ELEMENT["bf16"]
        return self.output_size / tensor_parallel * each

    @property
    def conv_channels(self) -> int:
        """Queries, keys and values of a token, which the convolution runs over [-]."""
        return 3 * self.output_size

    @property
    def output_size(self) -> int:
        """Inputs of the matrix after the recurrence [-]."""
        return self.num_heads * self.head_dim

    def cuts(self, degree: int) -> bool:
        """Tell whether the heads divide over GPUs."""
        return not self.num_heads % degree

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; those of no head are on all [-]."""
        h, width, low = hidden_size, self.output_size, self._low_rank_gates
        of_gates = (2 - low) * h * width + low * self.head_dim * width
        learned = (h + 1) * self.num_heads  # with the rate of each head
        by_head = 4 * h * width + of_gates + learned + self._conv_weights + width
        return by_head / tensor_parallel + (low * h + 1) * self.head_dim

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        stream, n = run.stream, run.layout.tensor_parallel
        h, width, low = stream.hidden_size, self.output_size / n, self._low_rank_gates
        is_merged = low > 0
        products = 2 + low if is_merged else 4
        inner = self.conv_channels / n + 3 * width + self.num_heads / n + 2 * low * self.head_dim
        weights = self.weights(h, n) - self._conv_weights / n
        return {
            "recurrent_projections": blocks.linear(
                run.num_tokens,
                weights=layers * weights,
                values=layers * (2 * h + inner),
                value_bytes=stream.residual_bytes,
                depth=layers * ((products - low - 1) * h + low * self.head_dim + width),
                kernels=products * layers,
                dtype=stream.arithmetic_dtype(stream.weight_dtype),
                stored_dtype=stream.weight_dtype,
            ),
            "elementwise": blocks.between(
                run.num_tokens,
                values=layers * 3 * width,
                value_bytes=stream.residual_bytes,
                kernels=layers,
                dtype=stream.activation_dtype,
            ),
            "short_convolution": self.convolution(run, layers),
            "recurrence": blocks.recurrence(
                batch_size=run.replica.num_sequences,
                num_tokens=run.num_tokens,
                states_written=verified(run, run.states.written),
                num_key_heads=self.num_heads / n,
                num_value_heads=self.num_heads / n,
                sizes=(self.head_dim, self.head_dim),
                layers=layers,
                value_bytes=stream.residual_bytes,
                state_dtype=self.state_dtype,
                states_copied=verified(run, run.states.copied),
                record_bytes=2 * self.record_bytes(n) * verified(run, run.states.recorded),
                gates=self.head_dim + 1,
                steps=verified(run, lambda tokens: tokens),
                kind="kimi_recurrence",
            ),
        }

    @property
    def _low_rank_gates(self) -> int:
        return self.has_low_rank_decay + self.has_low_rank_gate

    @property
    def _conv_weights(self) -> int:
        return self.conv_channels * self.conv_kernel


class LightningAttention(RecurrentMixer):
    """Linear attention over a square matrix of state for each head, which fades at a fixed rate.

    One matrix before it makes queries, keys and values of all heads, another an output gate; one
    follows it, after a norm. It has neither a convolution nor a delta rule, and learns no rate.

    Parameters
    ----------
    kind
        Name of the mixer in files.
    num_heads, head_dim
        Heads, and the width of each; a state is a square matrix of it for each head [-].
    conv_kernel
        1, as there is no convolution [token].
    state_dtype
        Dtype of the state.

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
    num_heads: Size
    head_dim: Size
    conv_kernel: Literal[1] = 1

    @property
    def state_size(self) -> int:
        """Elements of the state of a sequence in one layer [-]."""
        return self.num_heads * self.head_dim**2

    @property
    def record_size(self) -> int:
        """Elements recorded of a token in one layer: keys and values [-]."""
        return 2 * self.output_size

    @property
    def conv_channels(self) -> int:
        """None, as there is no convolution [-]."""
        return 0

    @property
    def output_size(self) -> int:
        """Inputs of the matrix after the recurrence [-]."""
        return self.num_heads * self.head_dim

    def cuts(self, degree: int) -> bool:
        """Tell whether the heads divide over GPUs."""
        return not self.num_heads % degree

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU, with those of the norm [-]."""
        return (5 * hidden_size + 1) * self.output_size / tensor_parallel

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        stream, n = run.stream, run.layout.tensor_parallel
        h, width = stream.hidden_size, self.output_size / n
        return {
            "recurrent_projections": blocks.linear(
                run.num_tokens,
                weights=layers * self.weights(h, n),
                values=layers * (2 * h + 5 * width),
                value_bytes=stream.residual_bytes,
                depth=layers * (2 * h + width),
                kernels=3 * layers,
                dtype=stream.arithmetic_dtype(stream.weight_dtype),
                stored_dtype=stream.weight_dtype,
            ),
            "elementwise": blocks.between(
                run.num_tokens,
                values=layers * 9 * width,
                value_bytes=stream.residual_bytes,
                kernels=2 * layers,
                dtype=stream.activation_dtype,
            ),
            "recurrence": without_delta(
                blocks.recurrence(
                    batch_size=run.replica.num_sequences,
                    num_tokens=run.num_tokens,
                    states_written=verified(run, run.states.written),
                    num_key_heads=self.num_heads / n,
                    num_value_heads=self.num_heads / n,
                    sizes=(self.head_dim, self.head_dim),
                    layers=layers,
                    value_bytes=stream.residual_bytes,
                    state_dtype=self.state_dtype,
                    states_copied=verified(run, run.states.copied),
                    record_bytes=2 * self.record_bytes(n) * verified(run, run.states.recorded),
                    gates=0,
                )
            ),
        }


def without_delta(recurrence: Work) -> Work:
    """Return a recurrence without a delta rule: 6 FLOP for each element and token instead of 8."""
    return replace(recurrence, flop=recurrence.flop * 0.75, kind="state_space")


class Mamba2(RecurrentMixer):
    """State space with a matrix of state for each head, after a short convolution.

    One matrix before it makes an output gate, the values that are written to the state, two vectors
    for each group of heads (into and out of the state) and a step for each head; one matrix follows
    it, after a gated norm.

    Parameters
    ----------
    kind
        Name of the mixer in files.
    num_state_heads, state_head_dim
        Heads, and the width of each [-].
    num_state_groups
        Groups of heads that share the vectors into and out of their states [-].
    state_dim
        Width of these vectors; a state is a matrix of a head's width and this [-].
    conv_kernel
        Tokens that the convolution before it sees, the newest included [token].
    state_dtype
        Dtype of the state.

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

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.num_state_heads % self.num_state_groups:
            expected = f"a divisor of num_state_heads = {self.num_state_heads}"
            raise InputError("num_state_groups", self.num_state_groups, expected)
        return self

    @property
    def state_size(self) -> int:
        """Elements of the state of a sequence in one layer [-]."""
        return self.output_size * self.state_dim

    @property
    def record_size(self) -> int:
        """Elements recorded of a token in one layer: values, vectors into states, and steps [-]."""
        return self.output_size + self.num_state_groups * self.state_dim + self.num_state_heads

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the record of a token in one layer [B].

        Steps have 32 bits, all else 16 (``append_replayssm_ring`` in vLLM 0.33).
        """
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

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        stream, n = run.stream, run.layout.tensor_parallel
        h, width, heads = stream.hidden_size, self.output_size / n, self.num_state_heads / n
        weights = self.weights(h, n) - self.channels_on(n) * self.conv_kernel
        found = {
            "recurrent_projections": blocks.linear(
                run.num_tokens,
                weights=layers * weights,
                values=layers * (2 * h + self.channels_on(n) + 2 * width + heads),
                value_bytes=stream.residual_bytes,
                depth=layers * (h + width),
                kernels=2 * layers,
                dtype=stream.arithmetic_dtype(stream.weight_dtype),
                stored_dtype=stream.weight_dtype,
            ),
            "elementwise": blocks.between(
                run.num_tokens,
                values=layers * 3 * width,
                value_bytes=stream.residual_bytes,
                kernels=layers,
                dtype=stream.activation_dtype,
            ),
            "short_convolution": self.convolution(run, layers),
            "recurrence": self._recurrence(run, layers),
            "norm_reduction": self._norm_reduction(run, layers),
        }
        return {name: work for name, work in found.items() if work.kernels}

    def _recurrence(self, run: Pass, layers: int) -> Work:
        """Return the work on the states."""
        n = run.layout.tensor_parallel
        found = blocks.recurrence(
            batch_size=run.replica.num_sequences,
            num_tokens=run.num_tokens,
            states_written=verified(run, run.states.written),
            num_key_heads=self._vectors(n) / self.state_dim,
            num_value_heads=self.num_state_heads / n,
            sizes=(self.state_dim, self.state_head_dim),
            layers=layers,
            value_bytes=run.stream.residual_bytes,
            state_dtype=self.state_dtype,
            states_copied=verified(run, run.states.copied),
            record_bytes=2 * self.record_bytes(n) * verified(run, run.states.recorded),
            gates=1,
        )
        return without_delta(found)

    def _norm_reduction(self, run: Pass, layers: int) -> Work:
        """Sum squares over GPUs where heads of a single group are cut: 4 B a token and layer."""
        layout = run.layout
        if layout.tensor_parallel == 1 or self.num_state_groups > 1:
            return Work()
        return messages.all_reduces(
            ranks.all_reduce(layout.tensor_parallel, layout.gpus_per_node),
            run.num_tokens * (layers * BYTES_PER_ELEMENT["fp32"]),
            count=layers,
            ranks=min(layout.tensor_parallel, layout.gpus_per_node),
        )

    def _vectors(self, tensor_parallel: int) -> float:
        """Width of the vectors of all groups on each GPU, into states or out of them [-]."""
        groups = max(self.num_state_groups / tensor_parallel, 1)
        return groups * self.state_dim
