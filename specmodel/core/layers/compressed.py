"""Compute attention to a window of tokens and to compressed earlier entries (DeepSeek-V4).

All heads share one key, which is also the value. A layer keeps the last tokens uncompressed, and
one entry for every `ratio` tokens: a weighted mean of values that a compressor computes. With ratio
128 (HCA), a token attends to all entries. With ratio 4 (CSA), it attends to the best entries, which
an indexer selects.
"""

import numpy as np
from msgspec.structs import fields, replace

from specmodel.core.base.bounds import Count, Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.attention import absorbed_dtype
from specmodel.core.layers.blocks import linear
from specmodel.core.layers.forms import Quantity, applied
from specmodel.core.layers.parts import ContextMatrices, ForHeads, TokenMixer, check_divisor
from specmodel.core.layers.run import Pass
from specmodel.core.layers.sparse import HEADS, indexer, scaled_bytes
from specmodel.core.layers.states import StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work

ENTRY_SCALED = 64
"""Elements of an 8-bit entry that share an 8-bit scale; one extra byte pads the scales [-]."""

PAGE_TOKENS, PAGE_BYTES = 256, 576
"""In vLLM: tokens of a page [token], and the number whose multiple an 8-bit page fills [B]."""

STATE_PAGES = 9 / 8
"""Memory of compressors' states relative to their size [-]. A page has four tokens of CSA, or eight
of HCA, in place of 64 entries: 11,520 bytes for 10,240 of a CSA token, 4,680 for 4,096 of HCA."""

_STATE_BYTES = BYTES_PER_ELEMENT["fp32"]


class CompressedAttention(TokenMixer, frozen=True, kw_only=True, tag="compressed_attention"):
    """Attention to a window and to compressed entries (HCA, CSA), or only to a window.

    Parameters
    ----------
    num_heads, head_dim, rotary_dim
        Query heads, the width of each head and of the single key, and the rotated part of this
        width, which stays in 16 bits if the rest has 8 [-].
    q_lora_rank, output_groups, output_lora_rank
        Width of the latent of queries; groups of heads, and the rank to which a matrix reduces each
        group before the last matrix [-].
    window, ratio
        Number of last tokens that stay uncompressed, and tokens per compressed entry, 0 for only a
        window [token].
    has_overlap
        Whether an entry also includes the tokens of the previous entry.
    index_topk, index_num_heads, index_head_dim
        Maximum entries to which a token attends, 0 for all; heads of the indexer, and the width of
        their queries and of an entry's single key [-].
    is_index_compressed
        Whether index keys have their own compressor. If not, a matrix computes them from entries.
    has_own_cache, has_indexer
        Whether the layer makes its own entries, or reads the entries of an earlier layer. With
        `index_topk`: whether it selects entries, or uses an earlier selection.

    Notes
    -----
    Engines split only heads and groups; each GPU has a copy of the rest. In the names of vLLM 0.33
    (``models/deepseek_v4/attention.py``), the model's quantisation includes wqa, wkv, wq_b, wo_a
    and wo_b. It excludes wkv and wgate of compressors, and the weights of index heads. Rejected
    tokens are overwritten, so verification copies no state. Pages make entries of HCA half as large
    again (two of 584 bytes in one of 1,728). Not modelled: pages for all layers, in which windows
    need 4 % more; index keys in 4 bits; other kernels for prompts, which do the same work.
    """

    num_heads: Size
    head_dim: Size
    rotary_dim: Count
    q_lora_rank: Size
    output_groups: Size
    output_lora_rank: Size
    window: Size
    ratio: Count = 0
    has_overlap: bool = False
    index_topk: Count = 0
    index_num_heads: Count = 0
    index_head_dim: Count = 0
    is_index_compressed: bool = True
    has_own_cache: bool = True
    has_indexer: bool = True

    cut_by = "num_heads output_groups"

    def __post_init__(self) -> None:
        check_divisor(self, "output_groups", "num_heads")
        is_part = self.rotary_dim <= self.head_dim
        self.need(is_part, "rotary_dim", f"at most head_dim = {self.head_dim}")
        expected = "0, as a layer with only a window has no entries to select"
        self.need(self.ratio or not self.index_topk, "index_topk", expected)
        expected = "at least 1" if self.index_topk else "0, as index_topk is 0"
        for name in ("index_num_heads", "index_head_dim"):
            self.need(bool(getattr(self, name)) == bool(self.index_topk), name, expected)

    @property
    def pools_tokens(self) -> bool:
        """Whether an entry combines several successive tokens."""
        return self.ratio > 1

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with only the window of this mixer; most other mixers have priority."""
        # fields with a default describe entries
        of_heads = [field.name for field in fields(self) if field.required]
        own = type(self)(**{name: getattr(self, name) for name in of_heads})
        return ForHeads(2, own, fills_blocks=True)

    @property
    def output_size(self) -> int:
        """Input width of the last matrix [-]."""
        return self.output_groups * self.output_lora_rank

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU, including norms and sinks [-]."""
        made = self.q_lora_rank + self.head_dim
        by_head = self._cut_weights(hidden_size) + self.num_heads
        copied = (hidden_size + 1) * made + self._index_query_weights
        return by_head / tensor_parallel + copied + self._wide_weights(hidden_size)

    def widened_bytes(self, stream: Stream, tensor_parallel: int) -> float:
        """Return the extra bytes of 16-bit matrices, relative to the dtype of other weights [B]."""
        wider = BYTES_PER_ELEMENT[absorbed_dtype(stream)] - BYTES_PER_ELEMENT[stream.weight_dtype]
        return self._wide_weights(stream.hidden_size) * wider

    def entry_bytes(self, kv_dtype: str) -> float:
        """Return the size of a token in the window, or of an entry, in one layer [B]."""
        # In 8 bits, the rotary part has 16 bits and the rest has scales (``fp8_ds_mla`` in vLLM).
        # In mxfp8 or 4 bits, both parts have the same dtype.
        if kv_dtype not in ("fp8", "fp8_block"):
            return self.head_dim * BYTES_PER_ELEMENT[kv_dtype]
        rest = self.head_dim - self.rotary_dim
        return rest + 2 * self.rotary_dim + rest // ENTRY_SCALED + 1

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes that one layer keeps on each GPU: window, entries, compressors [B]."""
        # Compressors keep their results for the tokens of an incomplete entry in 32 bits.
        each = self.entry_bytes(stream.kv_dtype)
        kept = applied(np.minimum, entries, self.window) * each
        if not self._makes_entries:
            return kept
        sizes = each, scaled_bytes(self.index_head_dim)
        if stream.kv_dtype in ("fp8", "fp8_block"):
            count = PAGE_TOKENS / self.ratio
            sizes = tuple(np.ceil(size * count / PAGE_BYTES) * PAGE_BYTES / count for size in sizes)
        compressed = entries * (sum(sizes) / self.ratio)
        tokens = applied(np.minimum, entries, self.ratio * (1 + self.has_overlap))
        return kept + compressed + tokens * self.state_bytes

    def reserved_bytes(
        self, tokens: Quantity, states: StateKeeping, stream: Stream, tensor_parallel: int
    ) -> Quantity:
        """Return the bytes reserved for a sequence that verifies `tokens` at once [B]."""
        # window and compressors also keep the drafted tokens, which may be rejected
        more = (tokens - 1) * (self.entry_bytes(stream.kv_dtype) + self.state_bytes)
        return self.sequence_bytes(tokens, stream, tensor_parallel) + more

    @property
    def state_bytes(self) -> float:
        """Bytes that compressors keep of a token in one layer [B]."""
        paged = STATE_PAGES if self.is_index_compressed else 1.0  # unknown for V4.1
        return self._compressor_values * _STATE_BYTES * paged if self.ratio > 1 else 0.0

    def context_matrices(self, stream: Stream, tensor_parallel: int) -> ContextMatrices:
        """Return the `ContextMatrices` that turn a target's features into keys."""
        return float(stream.hidden_size * self.head_dim), float(self.head_dim), True

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        # All components except the indexer have one kind and the KV cache's dtype, because whole
        # layers were timed.
        found = {"attention_projections": self._projections(run, layers)}
        if self._makes_entries:
            found["compressor"] = self._compressor(run, layers)
        if self._selects:
            queries = self.index_num_heads, self.index_head_dim
            most = self.index_topk * self.ratio
            found |= indexer(run, layers, queries, most, self.ratio, "compressed_indexer")
        return found | {"attention_core": self._core(run, layers)}

    @property
    def _makes_entries(self) -> bool:
        return bool(self.ratio) and self.has_own_cache

    @property
    def _selects(self) -> bool:
        return bool(self.index_topk) and self.has_indexer

    def _cut_weights(self, hidden_size: int) -> int:
        wide = self.num_heads * self.head_dim
        return (self.q_lora_rank + self.output_lora_rank) * wide + self.output_size * hidden_size

    @property
    def _index_query_weights(self) -> int:
        queries = self.q_lora_rank * self.index_num_heads * self.index_head_dim
        return queries if self._selects else 0

    @property
    def _compressed_widths(self) -> tuple[int, ...]:
        """Widths that compressors compute: keys, and index keys that have a compressor [-]."""
        if not self._makes_entries:
            return ()
        wide = 1 + self.has_overlap  # with overlap, each token is in two entries
        own_index = self._selects and self.is_index_compressed
        return (wide * self.head_dim, *((wide * self.index_head_dim,) if own_index else ()))

    @property
    def _compressor_values(self) -> int:
        """Values that compressors compute for a token: summands, and their weights [-]."""
        return (1 + (self.ratio > 1)) * sum(self._compressed_widths)

    def _wide_weights(self, hidden_size: int) -> int:
        """Return the weights that are not quantised: compressors and index heads [-]."""
        # A compressor has a norm, and a bias for each place in an entry. V4.1, which computes index
        # keys from entries, has no biases.
        places = self.ratio if self.ratio > 1 and self.is_index_compressed else 0
        norms = self.head_dim if self._makes_entries else 0
        found = hidden_size * self._compressor_values + places * sum(self._compressed_widths)
        if self._selects:
            found += hidden_size * self.index_num_heads
        if self._selects and self._makes_entries:
            norms += self.index_head_dim
            found += 0 if self.is_index_compressed else self.head_dim * self.index_head_dim
        return found + norms

    def _projections(self, run: Pass, layers: int) -> Work:
        stream, n = run.stream, run.layout.tensor_parallel
        h, queries = stream.hidden_size, self.num_heads * self.head_dim / n
        index_queries = self.index_num_heads * self.index_head_dim if self._selects else 0
        output = self.output_size / n
        copied = h * (self.q_lora_rank + self.head_dim) + self._index_query_weights
        made = 2 * self.q_lora_rank + self.head_dim + 2 * queries + index_queries + 2 * output
        is_quantised = BYTES_PER_ELEMENT[stream.weight_dtype] < 2
        weights, depth = self._cut_weights(h) / n + copied, h + self.q_lora_rank + output
        kernels = 4 + bool(index_queries) + 3 * is_quantised
        found = linear(run, layers, weights, 2 * h + made, depth, kernels=kernels)
        return replace(found, kind=self.kind, stored_dtype=stream.kv_dtype)

    def _compressor(self, run: Pass, layers: int) -> Work:
        """Return the work of the 16-bit matrices, and of combining their results to entries."""
        # Results are written in 32 bits, and read once for each entry that includes the token.
        stream, h, made = run.stream, run.stream.hidden_size, self._compressor_values
        dtype, each = absorbed_dtype(stream), len(self._compressed_widths)
        kept = (2 + self.has_overlap) * made * _STATE_BYTES
        weights, values = self._wide_weights(h), h + kept / stream.residual_bytes
        depth, kernels = h * each, 3 * each + self._selects
        found = linear(run, layers, weights, values, depth, kernels=kernels, dtype=dtype)
        return replace(found, kind=self.kind, dtype=dtype, stored_dtype=stream.kv_dtype)

    def _core(self, run: Pass, layers: int) -> Work:
        """Return the work of attention to the window and to entries."""
        # Entries that all tokens of a sequence read count once, as the GPU's cache serves repeated
        # reads. Selected entries count for each token. Kernels compute in 16 bits, on at least
        # `HEADS` heads.
        replica, stream = run.replica, run.stream
        heads = self.num_heads / run.layout.tensor_parallel
        padded = max(heads, HEADS)
        written = 1 + (1 / self.ratio if self._makes_entries else 0.0)
        # tokens and entries to which queries attend, and those that are read
        pairs, read = replica.pairs(self.window), replica.entries(self.window)
        if self.ratio:
            most = self.index_topk * self.ratio if self.index_topk else None
            seen = replica.pairs(most) / self.ratio
            pairs = pairs + seen
            read = read + (seen if self.index_topk else replica.entries(None) / self.ratio)
        return Work(
            flop=pairs * (4 * padded * self.head_dim * layers),
            activation_bytes=run.num_tokens
            * ((3 * padded + heads) * self.head_dim * layers * stream.residual_bytes),
            cache_bytes=(read + run.num_tokens * written)
            * (layers * self.entry_bytes(stream.kv_dtype)),
            rows=run.num_tokens,
            kernels=5 * layers,
            kind=self.kind,
            stored_dtype=stream.kv_dtype,
            memory_cause="KV",
        )
