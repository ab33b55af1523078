"""Kinds of layers: each knows its weights, its work in a pass, and what a sequence keeps of it."""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.layers.attention import LatentAttention as LatentAttention
    from specmodel.layers.batch import Layout as Layout, sequence_group as sequence_group
    from specmodel.layers.block_sparse import BlockSparseAttention as BlockSparseAttention
    from specmodel.layers.compressed import CompressedAttention as CompressedAttention
    from specmodel.layers.convolutions import ShortConvolution as ShortConvolution
    from specmodel.layers.dense import DenseFeedForward as DenseFeedForward
    from specmodel.layers.feed_forward import RoutedExperts as RoutedExperts
    from specmodel.layers.group import LayerGroup as LayerGroup
    from specmodel.layers.grouped import GroupedAttention as GroupedAttention
    from specmodel.layers.linear_attention import (
        GatedDeltaNet as GatedDeltaNet,
        KimiDeltaAttention as KimiDeltaAttention,
        LightningAttention as LightningAttention,
        Mamba2 as Mamba2,
    )
    from specmodel.layers.residuals import HyperConnections as HyperConnections
    from specmodel.layers.sparse import SparseAttention as SparseAttention
    from specmodel.layers.work import PassWork as PassWork, Work as Work

__getattr__, __dir__ = front(__name__)
