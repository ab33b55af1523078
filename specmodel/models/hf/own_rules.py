"""What the own rules of a family provide: the functions that read its ``config.json``.

Most families have none: the rules of all read what the columns of their rows name. A family whose
layers no column describes has a module of its own, whose functions stand here in their place.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from specmodel.models.hf import (
    deepseek_v4,
    gemma,
    inkling,
    lfm2,
    longcat,
    mamba2,
    mimo,
    minimax_m3,
    searched,
    sparse,
)
from specmodel.models.hf.feed_forward import feed_forwards
from specmodel.models.hf.mixers import mixers
from specmodel.models.hf.reader import Fields, Layers, Reader


class Rules(NamedTuple):
    """Functions that read a configuration; by default those of all families."""

    num_layers: Callable[[Reader], int] = lambda reader: reader.whole("num_hidden_layers")
    """Number of layers [-]."""
    blocks: Callable[[Reader, int], Layers] = feed_forwards
    """Feed-forward block of each layer, from the number of layers; None for no block."""
    mixers: Callable[[Reader, list[str], int | None], Layers] = mixers
    """Mixer of each layer, from their kinds and the length of windows; None for no mixer."""
    fields: Callable[[Reader, list[Fields]], Fields] = lambda *_: {}
    """Other fields of the `Architecture`; it may change the layers."""
    check_quantisation: Callable[[Reader, Mapping[str, Any] | None], None] = lambda *_: None
    """Refuses records of quantisation, in and beside the file, that its layers cannot have."""


_OWN = {
    "DeepSeek-V4": Rules(
        mixers=deepseek_v4.compressed_mixers, fields=deepseek_v4.compressed_fields
    ),
    "Dots3": Rules(mixers=sparse.dots_mixers),
    "Falcon-H1": Rules(
        num_layers=lambda reader: 2 * reader.whole("num_hidden_layers"),
        blocks=mamba2.falcon_blocks,
        fields=mamba2.share_norms,
        check_quantisation=mamba2.refuse_quantised,
    ),
    "Gemma": Rules(blocks=gemma.gemma_blocks, mixers=gemma.gemma_mixers, fields=gemma.gemma_fields),
    "Hy4": Rules(fields=sparse.hy_fields),
    "Inkling": Rules(
        blocks=inkling.inkling_blocks,
        mixers=inkling.inkling_mixers,
        fields=inkling.inkling_fields,
    ),
    "Inkling-2": Rules(mixers=inkling.gated_mixers, fields=inkling.inkling2_fields),
    "LFM2": Rules(blocks=lfm2.lfm2_blocks),
    "LongCat": Rules(
        num_layers=longcat.num_single_layers,
        blocks=longcat.single_blocks,
        fields=longcat.longcat_fields,
        check_quantisation=longcat.check_quantisation,
    ),
    "Mistral-Large-4": Rules(mixers=sparse.mistral_mixers),
    "MiMo": Rules(mixers=mimo.mimo_mixers),
    "MiniMax-M3": Rules(mixers=minimax_m3.block_sparse_mixers),
    "Nemotron-H": Rules(
        num_layers=lambda reader: len(mamba2.block_types(reader)), blocks=mamba2.nemotron_blocks
    ),
    "Nemotron-H puzzle": Rules(
        num_layers=searched.num_layers,
        blocks=searched.puzzle_blocks,
        mixers=searched.puzzle_mixers,
        fields=searched.puzzle_fields,
    ),
    "Qwen3.8": Rules(mixers=sparse.qwen4_mixers, fields=sparse.qwen4_fields),
    "search": Rules(blocks=searched.searched_blocks, mixers=searched.searched_mixers),
    "Step-5": Rules(mixers=sparse.step5_mixers),
}


def rules_of(reader: Reader) -> Rules:
    """Return the functions that read configurations of the model's family."""
    return reader.family.rule("own_rules", _OWN) if reader.family.own_rules else Rules()
