"""List optional parts of a model: beyond layers, embedding, LM head and one residual stream.

A new one is a frozen record in a file of this room, and a field of `Architecture` by which it is
found: it answers here for its weights and its work.
"""

from abc import abstractmethod

from msgspec import Struct

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.records import Record
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work


class Around(Struct, frozen=True):
    """Properties of a model that its extras depend on.

    `mixed_layers` and `mixed_blocks` count the layers that read the residual stream, and their
    mixers and feed-forward blocks [-].
    """

    stream: Stream
    vocabulary_size: int
    num_layers: int
    mixed_layers: int
    mixed_blocks: int

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream [-]."""
        return self.stream.hidden_size


class Extra(Record, frozen=True, kw_only=True):
    """A part of a model that is neither a mixer nor a feed-forward block."""

    is_embedding = False
    """Whether its tables are stored with the embedding, in the same dtype and cut over GPUs."""

    in_modules = False
    """Whether layers for multi-token prediction have it too."""

    def table_parameters(self, model: Around) -> int:
        """Return the weights of tables, of which a token reads a row [-]."""
        return 0

    @abstractmethod
    def parameters(self, model: Around) -> int:
        """Return the weights that every token is multiplied by [-]."""

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes on each GPU, tables that are stored with the embedding aside [B]."""
        return self.parameters(model) * BYTES_PER_ELEMENT[model.stream.outer_dtype]

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work in a pass of the layers, by component."""
        return {}

    def fused_norms(self, model: Around) -> int:
        """Return how many norms of layers the extra's kernels compute as well [-]."""
        return 0

    def reduced(self, model: Around) -> tuple[int, int]:
        """Return the elements of a token that GPUs all-reduce, and those that they gather [-]."""
        return 0, 0
