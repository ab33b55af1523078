"""Define the common parts of recurrent mixers, whose states do not grow with the context.

A pass reads the state of each sequence once, and writes it as `StateKeeping` describes. A sequence
also keeps a window of past tokens for a convolution.
"""

from operator import methodcaller
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.batch import Carried
from specmodel.core.layers.blocks import StateHeads, Updates, between, linear, recurrence
from specmodel.core.layers.forms import Form, Quantity, applied, measured
from specmodel.core.layers.parts import TokenMixer
from specmodel.core.layers.run import Pass
from specmodel.core.layers.states import StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work

StateDtype = Literal["fp32", "bf16", "fp16"]
"""Dtypes of a recurrent state."""


class Product(NamedTuple):
    """A matrix product before the core: its input width, and its outputs on each GPU [-].

    If it `is_inner`, it reads the output of another product instead of hidden values.
    """

    read: int
    made: float
    is_inner: bool = False


class RecurrentMixer(TokenMixer, frozen=True, kw_only=True):
    """A recurrent state, and before it a convolution over the last `conv_kernel` tokens."""

    conv_kernel: Annotated[int, Meta(ge=1, le=1024)]
    state_dtype: StateDtype = "fp32"

    output_component = "recurrent_projections"
    is_recurrent = True

    gates, state_kind = 2.0, "recurrence"
    """Numbers for each value head and token, and the kind of the kernels of states [-]."""

    moved_between = 3, 1
    """Values that small kernels between matrices read or write for each input of the last matrix,
    and the number of kernels [-]; by default, those of a gated norm."""

    @property
    def for_head(self) -> None:
        """None, because no draft head is recurrent."""

    @property
    def output_size(self) -> int:
        """Input width of the matrix after the core [-]."""
        heads = self.heads(1)
        return int(heads.values * heads.sizes[1])

    @property
    def state_size(self) -> int:
        """Elements of the state of a sequence in one layer, 0 if only the window is kept [-]."""
        return int(self.output_size * self.heads(1).sizes[0])

    def channels_on(self, tensor_parallel: int) -> float:
        """Return the values of a token that the convolution reads on each GPU, 0 for none [-]."""
        return 0.0

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes that one layer keeps of a sequence on each GPU, for any context [B]."""
        window = self.past_token_bytes(stream, tensor_parallel) * (self.conv_kernel - 1)
        return 0 * entries + self.state_bytes(tensor_parallel) + window

    def reserved_bytes(
        self, tokens: Quantity, states: StateKeeping, stream: Stream, tensor_parallel: int
    ) -> Quantity:
        """Return the bytes on each GPU for a sequence that verifies `tokens` together [B]."""
        past = applied(states.past_tokens, tokens, self.conv_kernel - 1)
        return (
            applied(states.states, tokens) * self.state_bytes(tensor_parallel)
            + past * self.past_token_bytes(stream, tensor_parallel)
            + applied(states.records, tokens) * self.record_bytes(tensor_parallel)
        )

    def state_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the state of a sequence in one layer on each GPU [B]."""
        return self.state_size / tensor_parallel * BYTES_PER_ELEMENT[self.state_dtype]

    def record_bytes(self, tensor_parallel: int = 1) -> float:
        """Return the size of the record from which engines replay a token's state update [B]."""
        return 0.0

    def past_token_bytes(self, stream: Stream, tensor_parallel: int = 1) -> float:
        """Return the bytes that the convolution keeps of a past token [B]."""
        return self.channels_on(tensor_parallel) * stream.residual_bytes

    def products(self, hidden_size: int, tensor_parallel: int) -> list[Product]:
        """Return the products before the recurrence that the engine launches."""
        return []

    def small_weights(self, tensor_parallel: int) -> float:
        """Return the weights of norms and vectors on each GPU [-]."""
        return 0.0

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU [-]."""
        products = self.products(hidden_size, tensor_parallel)
        matrices = self.output_size / tensor_parallel * hidden_size
        matrices += sum(product.read * product.made for product in products)
        convolution = self.channels_on(tensor_parallel) * self.conv_kernel
        return matrices + convolution + self.small_weights(tensor_parallel)

    def heads(self, tensor_parallel: int) -> StateHeads:
        """Return the heads of the recurrence on each GPU."""
        return StateHeads(0.0, 0.0, (0, 0))  # no states

    def recurrence(self, run: Pass, layers: int) -> Work:
        """Return the work of the states in some layers."""
        return self.updates(run, layers, gates=self.gates, kind=self.state_kind)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        # hidden values are read once for all products
        h, n = run.stream.hidden_size, run.layout.tensor_parallel
        products, width = self.products(h, n), self.output_size / n
        moved, launched = self.moved_between
        weights = self.weights(h, n) - self.channels_on(n) * self.conv_kernel
        values = 2 * h + width + sum(each.made + each.read * each.is_inner for each in products)
        depth, kernels = width + sum(each.read for each in products), len(products) + 1
        found = {
            "recurrent_projections": linear(run, layers, weights, values, depth, kernels=kernels),
            "elementwise": between(run, layers, moved * width, kernels=launched),
            "short_convolution": self.convolution(run, layers) if self.channels_on(n) else Work(),
            "recurrence": self.recurrence(run, layers) if self.state_size else Work(),
        }
        return {name: work for name, work in found.items() if work.kernels}

    def convolution(self, run: Pass, layers: int, *, cached: int = 0) -> Work:
        """Return the work of convolutions in some layers, which keep a window after each token."""
        # Kernels read a window of all tokens except the newest. After the first token, they write
        # it except `cached` rows. After each later token, they write one more row [-].
        sequences, width = run.replica.num_sequences, self.conv_kernel
        channels = layers * self.channels_on(run.layout.tensor_parallel)
        row_bytes = channels * run.stream.residual_bytes
        rows = verified(run, "tokens") - (1 + cached) * sequences
        return Work(
            flop=run.num_tokens * (2 * width * channels),
            weight_bytes=row_bytes * width,
            activation_bytes=run.num_tokens * (2 * row_bytes),
            cache_bytes=2 * sequences * ((width - 1) * row_bytes) + rows * row_bytes,
            kernels=layers,
            kind="elementwise",
            dtype=run.stream.activation_dtype,
        )

    def updates(self, run: Pass, layers: int, steps: Quantity = 0.0, **settings: Any) -> Work:
        """Return the work of state updates; `blocks.recurrence` gets `settings`."""
        sequences, n = run.replica.num_sequences, run.layout.tensor_parallel
        updates = Updates(
            num_sequences=sequences,
            states_moved=(sequences + verified(run, "moved")) * run.states.time_factor,
            recorded_bytes=2 * self.record_bytes(n) * verified(run, "recorded"),
            steps=steps,
        )
        return recurrence(run, layers, self.heads(n), updates, self.state_dtype, **settings)


class SquareStates(RecurrentMixer, frozen=True, kw_only=True):
    """Heads with a square matrix of state each; queries, keys and values have equal heads."""

    num_heads: Size
    head_dim: Size

    def heads(self, tensor_parallel: int) -> StateHeads:
        """Return the heads of the recurrence on each GPU."""
        count = self.num_heads / tensor_parallel
        return StateHeads(count, count, (self.head_dim, self.head_dim))


def verified(run: Pass, name: str, *, is_mean: bool = False) -> Form:
    """Return the sum, over sequences, of states or tokens that a `StateKeeping` method counts [-].

    The method, `name`, counts for one sequence, from the number of its tokens that may be the last
    accepted. With `is_mean`, return the mean instead of the sum.
    """
    return measured(_verified, run.states, name, is_mean)


def _verified(carried: Carried, states: StateKeeping, name: str, is_mean: bool) -> FloatArray:
    batch = carried.replica
    over = batch.mean if is_mean else batch.total
    return over(methodcaller("mean_of_verified", getattr(states, name)))
