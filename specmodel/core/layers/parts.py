"""Define what a mixer or feed-forward block provides besides its sizes.

A new kind is a frozen record in a file of its own in this room, where `group` finds it by its base
here and its `tag`. It states what is abstract here. A matrix after a mixer's core is named
by `output_size` and by the component that it is part of, `output_component`.
"""

from abc import abstractmethod
from typing import Any

from msgspec import Struct

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import Record
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.run import Pass
from specmodel.core.layers.states import StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work

Cached = tuple[int, int, int, int | None]
"""Shape of a cache that layers share: key-value heads, widths of keys and values, and window."""

ContextMatrices = tuple[float, float, bool]
"""Matrices of one layer that make entries of a target's features: their weights and what they make
of a token, on each GPU [-], and whether engines run those of all layers as one product."""


class ForHeads(Struct, frozen=True):
    """Mixers that draft heads derive from a mixer of their target.

    Heads prefer the mixer with the least `place` [-]; `mixer` is its form in a layer of an MTP
    module. Heads with a shape of their own use `plain`, the mixer without extras, and `grouped` if
    the mixer has keys for each head; None stands for heads of the usual sizes. `fills_blocks` tells
    whether heads that draft blocks have layers like those of MTP modules.
    """

    place: int
    mixer: "TokenMixer"
    plain: Any = None
    grouped: Any = None
    fills_blocks: bool = False


def check_divisor(part: Record, name: str, whole: str) -> None:
    """Refuse a number of a layer that does not divide another, by their names."""
    divisor, number = getattr(part, name), getattr(part, whole)
    if number % divisor:
        raise InputError(name, divisor, f"a divisor of {whole} = {number}")


class LayerPart(Record, frozen=True, tag_field="kind"):
    """A mixer or a feed-forward block."""

    @property
    def kind(self) -> str:
        """Name of the kind, by which tables of files tell it from others."""
        return str(self.__struct_config__.tag)

    is_mixer = False

    output_component = ""
    """Component that holds the matrix after a mixer's core, where there is one."""

    @property
    def output_size(self) -> int:
        """Inputs of the matrix after a mixer's core, 0 where there is none [-]."""
        return 0

    @abstractmethod
    def weight_bytes(self, stream: Stream, layout: Layout) -> float:
        """Return the bytes of one layer on each GPU [B]."""

    @abstractmethod
    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""

    def context_matrices(self, stream: Stream, tensor_parallel: int) -> ContextMatrices | None:
        """Return `ContextMatrices`, which turn a target's features into cache entries, if any."""
        return None


class FeedForwardBlock(LayerPart, frozen=True):
    """Part of a layer that processes each token by itself."""

    @property
    def experts(self) -> Any:
        """The block itself if tokens choose among experts, else None."""
        return None

    @property
    def dense_size(self) -> int:
        """Width of a block that every token passes, 0 if there is none [-]."""
        return 0

    @abstractmethod
    def parameters(self, hidden_size: int) -> int:
        """Return the weights of one layer [-]."""

    def active_parameters(self, hidden_size: int) -> int:
        """Return the weights of one layer that a token is multiplied by, a mean [-]."""
        return self.parameters(hidden_size)

    @abstractmethod
    def reductions(self, layout: Layout) -> int:
        """Return the all-reduces that follow one layer [-]."""


class TokenMixer(LayerPart, frozen=True):
    """Part of a layer that mixes the tokens of a sequence, such as attention."""

    is_mixer = True

    output_component = "attention_projections"

    norms_all_heads = False
    """Whether queries, and keys, are normed over all heads: a sum over GPUs that share them."""

    is_recurrent = False
    """Whether a sequence has a state that each token changes, so that drafts cannot branch."""

    @property
    def pools_tokens(self) -> bool:
        """Whether entries are made of several tokens in a row, so that drafts cannot branch."""
        return False

    @property
    def cached(self) -> Cached | None:
        """Shape of the KV cache that the layer keeps or reads, None if no layer reads another's."""
        return None

    @property
    def has_own_cache(self) -> bool:
        """Whether the layer has a cache of its own, instead of reading another layer's."""
        return True

    @property
    def selects(self) -> bool | None:
        """Whether the layer selects entries for its kind, None if its kind needs no selection."""
        return None

    @property
    def for_head(self) -> ForHeads | None:
        """Mixers that draft heads derive from this one, None if they derive none."""
        return ForHeads(1, self)

    cut_by = "num_heads"
    """Fields that divide over GPUs: what is of no such part is copied to each."""

    def cuts(self, degree: int) -> bool:
        """Tell whether tensor parallelism of this degree can cut the mixer."""
        return not any(getattr(self, name) % degree for name in self.cut_by.split())

    def cuts_tokens(self, degree: int, tensor_parallel: int) -> bool:
        """Tell whether `degree` GPUs with equal caches can split its tokens; True without one."""
        return self.is_recurrent

    @abstractmethod
    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU [-]."""

    @abstractmethod
    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes that one layer keeps of a sequence on each GPU, cache and state [B]."""

    def reserved_bytes(
        self, tokens: Quantity, states: StateKeeping, stream: Stream, tensor_parallel: int
    ) -> Quantity:
        """Return the bytes reserved for a sequence that verifies `tokens` at once [B]."""
        return self.sequence_bytes(tokens, stream, tensor_parallel)

    def widened_bytes(self, stream: Stream, tensor_parallel: int) -> float:
        """Return the bytes that matrices of a wider dtype need beyond that of the others [B]."""
        return 0.0

    def weight_bytes(self, stream: Stream, layout: Layout) -> float:
        """Return the bytes of one layer on each GPU [B]."""
        n = layout.tensor_parallel
        own = self.weights(stream.hidden_size, n) * BYTES_PER_ELEMENT[stream.weight_dtype]
        return own + self.widened_bytes(stream, n)
