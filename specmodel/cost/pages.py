"""Pages of a cache that attention shares with recurrent states, as vLLM cuts it.

A page holds one state of a recurrent layer, or as many tokens of an attention layer as have no
fewer bytes, in 16s (``Platform._align_hybrid_block_size`` of 0.28 and 0.33). Layers of each kind
are grouped by as many as the rarest kind has, or the commonest if that has less than half as many
more (``_get_kv_cache_groups_uniform_page_size`` in ``v1/core/kv_cache_utils.py``). A block is a
page for each layer of a group, and each group of a request takes blocks of its own: one for each
state that is reserved, which of the prefix cache counts once a request fills a block
(``MambaManager`` in ``v1/core/single_type_kv_cache_manager.py``).
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.layers.parts import TokenMixer
from specmodel.layers.states import NATIVE, StateKeeping
from specmodel.layers.stream import Stream

_ALIGNED, _MUCH_MORE = 16, 1.5
Mixed = tuple[TokenMixer, Stream, int, int]
"""A mixer, what its layers share, the GPUs that cut it, and its layers [-]."""


def paged_bytes(
    mixers: Sequence[Mixed], states: StateKeeping, entries: FloatArray, tokens: FloatArray
) -> FloatArray:
    """Return what a request takes on each GPU that has `entries` after a step over `tokens` [B]."""
    counts: dict[TokenMixer, int] = {}
    for mixer, _, _, layers in mixers:
        counts[mixer] = counts.get(mixer, 0) + layers
    fewest, most = min(counts.values()), max(counts.values())
    group = most if most < _MUCH_MORE * fewest else fewest
    own = {mixer: (stream, n) for mixer, stream, n, _ in mixers}
    of_tokens = max(m.sequence_bytes(_ALIGNED, *own[m]) for m in counts if not m.is_recurrent)
    of_state = [
        m.reserved_bytes(tokens, NATIVE, *own[m]) / tokens for m in counts if m.is_recurrent
    ]
    page = of_tokens * np.ceil(reduce(np.maximum, of_state) / of_tokens)
    blocks = np.zeros(())
    for mixer, layers in counts.items():
        kept = np.ceil(mixer.sequence_bytes(entries, *own[mixer]) / page)
        if mixer.is_recurrent:
            is_short = entries * of_tokens < _ALIGNED * page
            kept = states.states(tokens) - (is_short & (states.slots == "aligned"))
        blocks = blocks + -(-layers // group) * kept
    return np.asarray(blocks * group * page)
