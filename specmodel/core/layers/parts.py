"""Define the bases of mixers and feed-forward blocks.

To add a kind, write a frozen record with a `tag` in a new file of this folder, derived from a base
here; `group` finds it. The record implements the abstract methods. If a mixer has a matrix after
its core, `output_size` is the matrix's input width, and `output_component` the component of its
work.
"""

from abc import abstractmethod
from typing import Any

from msgspec import Struct

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.records import Record
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.run import Pass
from specmodel.core.layers.states import StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work

Cached = tuple[int, int, int, int | None]
"""Shape of a cache that layers share: key-value heads, widths of keys and values, window."""

ContextMatrices = tuple[float, float, bool]
"""Matrices of one layer that compute cache entries from a target's features: their weights, their
outputs per token, both on each GPU [-]; and whether engines run all layers as one product."""


class ForHeads(Struct, frozen=True):
    """Mixers that draft heads derive from a mixer of their target.

    Heads use the mixer with the smallest `place` [-]. `mixer` is its form in an MTP module. Heads
    with their own shape use `plain`, the mixer without options, or `grouped` if the mixer has keys
    for each head; None stands for heads of the usual sizes. With `fills_blocks`, heads that draft
    blocks have the same layers as MTP modules.
    """

    place: int
    mixer: "TokenMixer"
    plain: Any = None
    grouped: Any = None
    fills_blocks: bool = False


def check_divisor(part: Record, name: str, whole: str) -> None:
    """Refuse a field `name` that does not divide the field `whole`."""
    number = getattr(part, whole)
    part.need(not number % getattr(part, name), name, f"a divisor of {whole} = {number}")


class LayerPart(Record, frozen=True, tag_field="kind"):
    """A mixer or a feed-forward block."""

    @property
    def kind(self) -> str:
        """Name of the kind in files."""
        return str(self.__struct_config__.tag)

    is_mixer = False

    output_component = ""
    """Component that contains the work of the matrix after a mixer's core, if there is one."""

    @property
    def output_size(self) -> int:
        """Input width of the matrix after a mixer's core, 0 if there is none [-]."""
        return 0

    @abstractmethod
    def weight_bytes(self, stream: Stream, layout: Layout) -> float:
        """Return the bytes of one layer on each GPU [B]."""

    @abstractmethod
    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""

    def context_matrices(self, stream: Stream, tensor_parallel: int) -> ContextMatrices | None:
        """Return the `ContextMatrices` from a target's features to cache entries, None for none."""
        return None


class FeedForwardBlock(LayerPart, frozen=True):
    """Part of a layer that processes each token separately."""

    @property
    def experts(self) -> Any:
        """The block itself if tokens choose among experts, else None."""
        return None

    @property
    def dense_size(self) -> int:
        """Width of a block that processes every token, 0 if there is none [-]."""
        return 0

    @abstractmethod
    def parameters(self, hidden_size: int) -> int:
        """Return the weights of one layer [-]."""

    def active_parameters(self, hidden_size: int) -> int:
        """Return the mean number of weights of one layer that multiply a token [-]."""
        return self.parameters(hidden_size)

    @abstractmethod
    def reductions(self, layout: Layout) -> int:
        """Return the all-reduces that follow one layer [-]."""


class TokenMixer(LayerPart, frozen=True):
    """Part of a layer that mixes the tokens of a sequence, such as attention."""

    is_mixer = True

    output_component = "attention_projections"

    norms_all_heads = False
    """Whether one norm covers all heads, so that GPUs with a part of the heads sum squares."""

    is_recurrent = False
    """Whether a sequence has a state that each token changes, so drafts cannot branch."""

    @property
    def pools_tokens(self) -> bool:
        """Whether an entry combines several successive tokens, so drafts cannot branch."""
        return False

    @property
    def cached(self) -> Cached | None:
        """Shape of the KV cache that the layer keeps or reads, None if layers share no caches."""
        return None

    has_own_cache = True
    """Whether the layer has its own cache, instead of reading another layer's cache."""

    @property
    def selects(self) -> bool | None:
        """Whether the layer selects entries for its kind, None if its kind selects none."""
        return None

    @property
    def for_head(self) -> ForHeads | None:
        """Mixers that draft heads derive from this mixer, None if there are none."""
        return ForHeads(1, self)

    cut_by = "num_heads"
    """Fields that divide over GPUs. Each GPU has a copy of parts that belong to none of them."""

    def cuts(self, degree: int) -> bool:
        """Return whether tensor parallelism of this degree can cut the mixer."""
        return not any(getattr(self, name) % degree for name in self.cut_by.split())

    def cuts_tokens(self, degree: int, tensor_parallel: int) -> bool:
        """Return whether `degree` GPUs can split the cached tokens; True without a cache."""
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
        """Return the bytes reserved for a sequence that verifies `tokens` together [B]."""
        return self.sequence_bytes(tokens, stream, tensor_parallel)

    def widened_bytes(self, stream: Stream, tensor_parallel: int) -> float:
        """Return the extra bytes of matrices that have a wider dtype than the others [B]."""
        return 0.0

    def weight_bytes(self, stream: Stream, layout: Layout) -> float:
        """Return the bytes of one layer on each GPU [B]."""
        n = layout.tensor_parallel
        own = self.weights(stream.hidden_size, n) * BYTES_PER_ELEMENT[stream.weight_dtype]
        return own + self.widened_bytes(stream, n)
