"""Define kinds of layers: their weights, their work in a pass, and their state per sequence."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.layers.attention import LatentAttention as LatentAttention
    from specmodel.core.layers.batch import Layout as Layout, sequence_group as sequence_group
    from specmodel.core.layers.block_sparse import BlockSparseAttention as BlockSparseAttention
    from specmodel.core.layers.compressed import CompressedAttention as CompressedAttention
    from specmodel.core.layers.convolutions import ShortConvolution as ShortConvolution
    from specmodel.core.layers.dense import DenseFeedForward as DenseFeedForward
    from specmodel.core.layers.feed_forward import RoutedExperts as RoutedExperts
    from specmodel.core.layers.group import LayerGroup as LayerGroup
    from specmodel.core.layers.grouped import GroupedAttention as GroupedAttention
    from specmodel.core.layers.linear_attention import (
        GatedDeltaNet as GatedDeltaNet,
        KimiDeltaAttention as KimiDeltaAttention,
        LightningAttention as LightningAttention,
        Mamba2 as Mamba2,
    )
    from specmodel.core.layers.residuals import HyperConnections as HyperConnections
    from specmodel.core.layers.sparse import SparseAttention as SparseAttention
    from specmodel.core.layers.work import PassWork as PassWork, Work as Work

__getattr__, __dir__ = front(__name__)
