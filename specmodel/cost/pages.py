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

import numpy as np
from msgspec import Struct

from specmodel.base.units import FloatArray
from specmodel.layers.parts import TokenMixer
from specmodel.layers.states import NATIVE, StateKeeping
from specmodel.layers.stream import Stream

_ALIGNED, _MUCH_MORE, _ENDLESS = 16, 1.5, 1e15
Mixed = tuple[TokenMixer, Stream, int, int]
"""A mixer, what its layers share, the GPUs that cut it, and its layers [-]."""


class Pages(Struct, frozen=True):
    """What decides the pages of a deployment, on each GPU.

    `layers` are those of a group, `recurrent` the groups of recurrent ones [-]; `token_bytes` is
    what an attention layer keeps of a token, `state_bytes` what a recurrent one keeps without
    drafts, and more for each drafted token [B]. Of each kind of attention, `attention` has the
    groups [-], the bytes of a token, and the most that its window keeps [B].
    """

    layers: int
    recurrent: int
    token_bytes: float
    state_bytes: tuple[float, float]
    attention: tuple[tuple[int, float, float], ...]

    def request_bytes(
        self, states: StateKeeping, entries: FloatArray, tokens: FloatArray
    ) -> FloatArray:
        """Return what a request takes that has `entries` after a step over `tokens` tokens [B]."""
        state, more = self.state_bytes
        unit = _ALIGNED * self.token_bytes
        page = unit * np.maximum(np.ceil((state + more * (tokens - 1)) / unit), 1)
        is_short = (entries * self.token_bytes < page) & (states.slots == "aligned")
        blocks = self.recurrent * (states.states(tokens) - is_short)
        for groups, each, most in self.attention:
            blocks = blocks + groups * np.ceil(np.minimum(entries * each, most) / page)
        return np.asarray(blocks * self.layers * page)


def pages_of(mixers: Sequence[Mixed]) -> Pages:
    """Return the pages of the mixers of a target and of its drafter, if that is loaded."""
    counts: dict[TokenMixer, int] = {}
    for mixer, _, _, layers in mixers:
        counts[mixer] = counts.get(mixer, 0) + layers
    fewest, most = min(counts.values()), max(counts.values())
    group = most if most < _MUCH_MORE * fewest else fewest
    own = {mixer: (stream, n) for mixer, stream, n, _ in mixers}
    groups = {mixer: -(-layers // group) for mixer, layers in counts.items()}
    attending = [m for m in counts if not m.is_recurrent]
    each, most_kept = (
        [float(m.sequence_bytes(n, *own[m])) for m in attending] for n in (1.0, _ENDLESS)
    )
    kept = zip((groups[m] for m in attending), each, most_kept, strict=True)
    reserved = [
        [float(m.reserved_bytes(np.float64(n), NATIVE, *own[m])) / n for n in (1, 2)]
        for m in counts
        if m.is_recurrent
    ]
    first, second = max(reserved)
    recurrent = sum(groups[m] for m in counts if m.is_recurrent)
    return Pages(group, recurrent, max(each), (first, second - first), tuple(kept))
