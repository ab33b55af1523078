"""Groups of layers that are alike, and the kinds of parts that a layer may have.

A new kind of mixer is a frozen record beside those of `attention`, named in `Mixer`. It has a
`kind` and four methods: `cuts(degree)`, which says whether tensor parallelism can cut it,
`weights(hidden_size, tensor_parallel)`, `sequence_bytes(entries, stream, tensor_parallel)` for its
cache and state, and `work(run, layers)`, its components in a pass. A feed-forward block has
`parameters`, `active_parameters`, `weight_bytes`, `reductions` and `work`.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from specmodel.base.errors import InputError
from specmodel.base.records import Record
from specmodel.records.layers.attention import GroupedAttention, LatentAttention, Size
from specmodel.records.layers.feed_forward import DenseFeedForward, RoutedExperts
from specmodel.records.layers.recurrent import GatedDeltaNet
from specmodel.records.layers.sparse import SparseAttention

Mixer = Annotated[
    GroupedAttention | LatentAttention | SparseAttention | GatedDeltaNet,
    Field(discriminator="kind"),
]
FeedForward = Annotated[DenseFeedForward | RoutedExperts, Field(discriminator="kind")]


class LayerGroup(Record):
    """Layers that are alike; a layer may have a mixer, a feed-forward block, or both.

    Parameters
    ----------
    count
        Layers [-].
    mixer
        What mixes the tokens of a sequence, such as attention.
    feed_forward
        What every token passes through by itself.
    """

    count: Size
    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.mixer is None and self.feed_forward is None:
            raise InputError("mixer", None, "a mixer, a feed_forward, or both")
        return self
