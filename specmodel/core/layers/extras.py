"""Define the base of optional parts of a model, such as several residual streams.

To add such a part, write a frozen record in a file of this room and add a field to `Architecture`.
The record computes its weights and its work.
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

    `mixed_layers` is the number of layers that read the residual stream, and `mixed_blocks` the
    number of their mixers and feed-forward blocks [-].
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
    """Whether its tables are stored like the embedding, in the same dtype and cut over GPUs."""

    in_modules = False
    """Whether layers for multi-token prediction also have this part."""

    def table_parameters(self, model: Around) -> int:
        """Return the weights of tables, from which a token reads a row [-]."""
        return 0

    @abstractmethod
    def parameters(self, model: Around) -> int:
        """Return the weights that every token is multiplied by [-]."""

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes on each GPU, without tables that are stored like the embedding [B]."""
        return self.parameters(model) * BYTES_PER_ELEMENT[model.stream.outer_dtype]

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work in a pass of the layers, by component."""
        return {}

    def fused_norms(self, model: Around) -> int:
        """Return the number of norms of layers that the kernels of this part include [-]."""
        return 0

    def reduced(self, model: Around) -> tuple[int, int]:
        """Return the elements of a token that GPUs all-reduce, and that they gather [-]."""
        return 0, 0
