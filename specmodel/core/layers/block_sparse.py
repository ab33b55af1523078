"""Compute block-sparse attention with grouped heads (MSA, QSA), whose indexer selects blocks.

The indexer has a query head for each key-value head, and caches one 16-bit key for each entry. The
score of a block is the score of its best entry.
"""

from typing import Literal

import numpy as np
from msgspec.structs import replace

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.batch import SequenceGroup
from specmodel.core.layers.blocks import linear
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.grouped import GroupedHeads
from specmodel.core.layers.run import Pass, query_key_pairs
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work

FROM_CACHE = 0.55
"""Cost of reading an entry again for another token of its sequence, from the GPU's cache, relative
to a read from memory [-]. It was measured on prompts on H200 in vLLM 0.24, whose kernel uses one
processor per token, as decode kernels do: 7.4 TB/s, while memory gives 4.1 TB/s
(``msa_context_module_perf`` of aiconfigurator-core 0.12.0)."""

TOGETHER = 0.07
"""The same cost for prompts on data-center Blackwell, whose kernel processes many tokens together;
from the same tables, on B200 [-]."""

_TILE = 128
"""Entries that a kernel processes at once even if blocks are smaller, as timings show [token]."""


class BlockSparseAttention(GroupedHeads, frozen=True, kw_only=True, tag="block_sparse_attention"):
    """Grouped attention to the blocks of entries that an indexer selects (MSA).

    Parameters
    ----------
    num_heads, num_kv_heads, head_dim
        As in `GroupedAttention` [-].
    index_num_heads, index_head_dim
        Query heads of the indexer, a multiple of the key-value heads, and the width of each and of
        its single key [-].
    block_size, topk_blocks
        Entries of a block, and maximum blocks to which a token attends, including blocks that are
        always selected, such as its own [token] [-].
    has_output_gate
        As in `GroupedAttention`.
    is_pooled
        Whether a block has one index key, the mean of its entries' keys. A token then selects the
        same blocks for all its heads, and each GPU has the whole indexer (QSA, as in Qwen3.8).
    is_weighted
        Whether one matrix weights tokens in that mean, and another weights index heads in the score
        (Step-5).
    index_dtype
        Dtype of index keys, for every dtype of the KV cache. vLLM 0.33 offers 8 bits only for
        MiniMax-M3 (``indexer_kv_dtype`` in its ``minimax_m3/common/indexer.py``).

    Notes
    -----
    Each token reads its selected blocks, even if other tokens of its sequence select them too, as
    each query token has its own block of threads (vLLM 0.33:
    ``minimax_m3/common/ops/sparse_attn.py``; SGLang 0.5.23:
    ``minimax_sparse/decode/topk_sparse.py``). We assume that the tokens of a sequence select the
    same blocks, so all except the first read from the GPU's cache. Nobody published how often this
    is true beyond `reach` entries. Index keys are read once for all tokens of a sequence, as in
    vLLM; SGLang reads them for each token. Not modelled: selections shared by layers or steps, and
    caches whose tokens are spread over GPUs.
    """

    index_num_heads: Size
    index_head_dim: Size
    block_size: Size
    topk_blocks: Size
    has_output_gate: bool = False
    is_pooled: bool = False
    is_weighted: bool = False
    index_dtype: Literal["bf16", "fp8"] = "bf16"

    output_component = "block_sparse_projections"

    @property
    def reach(self) -> int:
        """Maximum entries to which a token attends [token]."""
        return self.block_size * self.topk_blocks

    @property
    def index_bytes(self) -> float:
        """Bytes that the indexer keeps of a token in one layer [B]."""
        return self.index_head_dim * BYTES_PER_ELEMENT[self.index_dtype] / self._key_entries

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; every GPU computes all index keys [-]."""
        by_head = (2 + self.has_output_gate) * hidden_size * self.query_size / tensor_parallel
        by_kv_head = hidden_size * self._kv_elements(tensor_parallel)
        return by_head + by_kv_head + hidden_size * self._index_made(tensor_parallel)

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes of a sequence in one layer on each GPU, with index keys [B]."""
        return entries * (self._entry_bytes(stream, tensor_parallel) + self.index_bytes)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        # All components except the indexer have one kind, because whole layers were timed. Their
        # names differ from those of grouped attention, which other layers of the model have.
        return {
            "block_sparse_projections": self._projections(run, layers),
            **self._indexer(run, layers),
            "block_sparse_core": self._core(run, layers),
        }

    def _index_queries(self, tensor_parallel: int) -> float:
        """Return the width of the indexer's queries on each GPU: whole or cut like KV heads [-]."""
        ranks = min(self._kv_ranks(tensor_parallel), self.index_num_heads)
        return self.index_num_heads * self.index_head_dim / (1 if self.is_pooled else ranks)

    def _index_made(self, tensor_parallel: int) -> float:
        """Return the width of the indexer's queries, key and head weights on each GPU [-]."""
        weights = self.index_head_dim + self.index_num_heads if self.is_weighted else 0
        return self._index_queries(tensor_parallel) + self.index_head_dim + weights

    @property
    def _key_entries(self) -> int:
        """Entries that share an index key [token]."""
        return self.block_size if self.is_pooled else 1

    def _entry_bytes(self, stream: Stream, tensor_parallel: int) -> float:
        return self._kv_elements(tensor_parallel) * BYTES_PER_ELEMENT[stream.kv_dtype]

    def _projections(self, run: Pass, layers: int) -> Work:
        """Return the work of matrices, and of the norms, rotation and writes between them."""
        # for weights below 16 bits, extra kernels quantise the inputs of two matrices
        stream, n = run.stream, run.layout.tensor_parallel
        outputs, gate = self.output_size / n, self.has_output_gate * self.output_size / n
        index = self._index_made(n)
        made = self.query_size / n + gate + self._kv_elements(n) + index
        turned = 2 * (self.query_size / n + self._kv_elements(n) / 2 + index) + 3 * gate
        is_quantised = BYTES_PER_ELEMENT[stream.weight_dtype] < 2
        quantised = 1.5 * (stream.hidden_size + outputs) if is_quantised else 0.0
        weights, depth = self.weights(stream.hidden_size, n), stream.hidden_size + outputs
        values = 2 * stream.hidden_size + made + outputs + turned + quantised
        kernels = 3 + self.has_output_gate + 2 * is_quantised
        found = linear(run, layers, weights, values, depth, kernels=kernels)
        return replace(found, kind=self.kind, stored_dtype=stream.kv_dtype)

    def _indexer(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of scoring every key for every token, and of selecting blocks."""
        # kernels write only the scores of blocks, 32 bits for each block and index head
        replica, n = run.replica, run.layout.tensor_parallel
        pairs, read = replica.pairs(None), replica.entries(None)
        queries = self._index_queries(n)
        heads = 1 if self.is_pooled else queries / self.index_head_dim
        scores = pairs * (4 * heads / self.block_size)
        scored = Work(
            flop=pairs * (2 * queries * layers / self._key_entries),
            cache_bytes=(read + run.num_tokens) * (layers * self.index_bytes),
            activation_bytes=(scores + run.num_tokens * queries * 2) * layers,
            kernels=layers,
            kind="block_indexer",
            stored_dtype=run.stream.kv_dtype,
            memory_cause="index",
        )
        chosen = replace(
            scored, flop=0.0, cache_bytes=0.0, activation_bytes=scores * layers, kernels=2 * layers
        )
        return {"indexer": scored, "index_selection": chosen}

    def _core(self, run: Pass, layers: int) -> Work:
        stream, n = run.stream, run.layout.tensor_parallel
        pairs = run.replica.pairs(self.reach)
        is_blackwell = 10 <= (run.compute_capability or 0) < 12
        read = run.replica.summed(_read, self.reach, is_blackwell)
        decoding = run.taken("decoding")
        decoded = decoding.pairs(self.reach) if decoding else 0.0
        size = self._entry_bytes(stream, n)
        both, groups = 2 * self.query_size / n, self.num_kv_heads / self._kv_ranks(n)
        return Work(
            flop=pairs * (2 * both * layers),
            activation_bytes=run.num_tokens * (both * layers * stream.residual_bytes),
            cache_bytes=(read + run.num_tokens) * (layers * size),
            groups=decoded * (layers * groups / max(self.block_size, _TILE)),
            kernels=2 * layers,
            kind=self.kind,
            stored_dtype=stream.kv_dtype,
            memory_cause="KV",
        )


def _read(group: SequenceGroup, reach: int, shares_prompts: bool) -> FloatArray:
    """Return the entries that a mean sequence reads; a token attends to at most `reach` [-].

    A read from the GPU's cache counts by its relative cost. With `shares_prompts`, kernels process
    many tokens of a prompt together.
    """
    first = np.minimum(group.context_length + 1, reach)
    again = FROM_CACHE + shares_prompts * group.prompt_share * (TOGETHER - FROM_CACHE)
    return first + again * (query_key_pairs(group, reach) - first)
