"""Attention to a window of tokens and to compressed entries of all before them (DeepSeek-V4).

All heads share one key, also the value. A layer keeps the last tokens as they are, and an entry for
every `ratio` tokens: a weighted mean of what a compressor makes of each. A token attends to all of
few entries (HCA, ratio 128), and of many (CSA, ratio 4) to the best that an indexer selects.
"""

import numpy as np
from msgspec.structs import fields, replace

from specmodel.core.base.bounds import Count, Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.errors import InputError
from specmodel.core.layers.attention import absorbed_dtype
from specmodel.core.layers.blocks import linear
from specmodel.core.layers.forms import Quantity, applied
from specmodel.core.layers.parts import ContextMatrices, ForHeads, TokenMixer, check_divisor
from specmodel.core.layers.run import Pass
from specmodel.core.layers.sparse import HEADS, SCALED, Index
from specmodel.core.layers.states import StateKeeping
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work

ENTRY_SCALED = 64
"""Elements of an 8-bit entry that share an 8-bit scale; one more byte pads the scales [-]."""

PAGE_TOKENS, PAGE_BYTES = 256, 576
"""Tokens of a page, and what the size of a page in 8 bits is a multiple of, in vLLM [token] [B]."""

STATE_PAGES = 9 / 8
"""What states of compressors take, over their size, as pages hold four tokens of CSA, or eight of
HCA, in the place of 64 entries: 11,520 for 10,240 bytes of a token of CSA, 4,680 for 4,096 [-]."""

_STATE_BYTES = BYTES_PER_ELEMENT["fp32"]


class CompressedAttention(TokenMixer, frozen=True, kw_only=True, tag="compressed_attention"):
    """Attention to a window and to compressed entries (HCA, CSA), or to a window alone.

    Parameters
    ----------
    num_heads, head_dim, rotary_dim
        Query heads, the width of each and of the single key, and its rotated part, which stays in
        16 bits if the rest has 8 [-].
    q_lora_rank, output_groups, output_lora_rank
        Width of the latent of queries; groups of heads, and the rank to which a matrix reduces each
        group before the last matrix [-].
    window, ratio
        Last tokens, kept uncompressed, and tokens per compressed entry, 0 for a window alone
        [token].
    has_overlap
        Whether an entry also includes the tokens of the previous entry.
    index_topk, index_num_heads, index_head_dim
        Maximum entries to which a token attends, 0 for all; heads of the indexer, and the width of
        their queries and of an entry's single key [-].
    is_index_compressed
        Whether index keys have their own compressor; else a matrix makes them from entries.
    has_own_cache, has_indexer
        Whether the layer makes its own entries, or reads those of an earlier layer. Whether, with
        `index_topk`, it selects entries itself, or uses an earlier selection.

    Notes ----- Engines keep everything on each GPU, and split only heads and groups. In the names
    of vLLM 0.33 (``models/deepseek_v4/attention.py``), wqa, wkv, wq_b, wo_a and wo_b are quantised
    with the model; wkv and wgate of compressors and the weights of index heads are not. Rejected
    tokens are overwritten, so verification copies no state. Pages make entries of HCA half as large
    again (two of 584 bytes in one of 1,728). Not modelled: blocks of all layers, in which those of
    windows need 4 % more; index keys in 4 bits; other kernels for prompts, which do the same work.
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
        if self.rotary_dim > self.head_dim:
            raise InputError("rotary_dim", self.rotary_dim, f"at most head_dim = {self.head_dim}")
        if self.index_topk and not self.ratio:
            expected = "0, as a layer with only a window has no entries to select"
            raise InputError("index_topk", self.index_topk, expected)
        for name in ("index_num_heads", "index_head_dim"):
            if bool(getattr(self, name)) != bool(self.index_topk):
                expected = "at least 1" if self.index_topk else "0, as index_topk is 0"
                raise InputError(name, getattr(self, name), expected)

    @property
    def pools_tokens(self) -> bool:
        """Whether entries combine several successive tokens."""
        return self.ratio > 1

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with this mixer over its window alone, preferred after most other mixers."""
        # fields that have a default describe entries
        of_heads = [field.name for field in fields(self) if field.required]
        own = type(self)(**{name: getattr(self, name) for name in of_heads})
        return ForHeads(2, own, fills_blocks=True)

    @property
    def output_size(self) -> int:
        """Inputs of the last matrix [-]."""
        return self.output_groups * self.output_lora_rank

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU, with norms and sinks [-]."""
        made = self.q_lora_rank + self.head_dim
        by_head = self._cut_weights(hidden_size) + self.num_heads
        copied = (hidden_size + 1) * made + self._index_query_weights
        return by_head / tensor_parallel + copied + self._wide_weights(hidden_size)

    def widened_bytes(self, stream: Stream, tensor_parallel: int) -> float:
        """Return the bytes that 16-bit matrices need beyond the dtype of the other weights [B]."""
        wider = BYTES_PER_ELEMENT[absorbed_dtype(stream)] - BYTES_PER_ELEMENT[stream.weight_dtype]
        return self._wide_weights(stream.hidden_size) * wider

    def entry_bytes(self, kv_dtype: str) -> float:
        """Return the size of a token in the window, or of an entry, in one layer [B]."""
        # In 8 bits the rotary part keeps 16, and the rest carries scales (``fp8_ds_mla`` in vLLM).
        # In mxfp8 or 4 bits, both parts have the same dtype.
        if kv_dtype not in ("fp8", "fp8_block"):
            return self.head_dim * BYTES_PER_ELEMENT[kv_dtype]
        rest = self.head_dim - self.rotary_dim
        return rest + 2 * self.rotary_dim + rest // ENTRY_SCALED + 1

    @property
    def index_bytes(self) -> float:
        """Size of the index key of an entry in one layer, 0 without one [B]."""
        return self._index_key_bytes if self.has_own_cache else 0.0

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes one layer keeps on each GPU: window, entries and compressors [B]."""
        # Compressors keep in 32 bits what they made of the tokens of an incomplete entry.
        each = self.entry_bytes(stream.kv_dtype)
        kept = applied(np.minimum, entries, self.window) * each
        if not self._makes_entries:
            return kept
        sizes = each, self.index_bytes
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
        # window and compressors keep as many tokens more as are drafted, which may be rejected
        state = self.state_bytes if self._makes_entries else 0.0
        more = (tokens - 1) * (self.entry_bytes(stream.kv_dtype) + state)
        return self.sequence_bytes(tokens, stream, tensor_parallel) + more

    @property
    def state_bytes(self) -> float:
        """Bytes that compressors keep of a token in one layer [B]."""
        paged = STATE_PAGES if self.is_index_compressed else 1.0  # those of V4.1 are not known
        return self._compressor_values * _STATE_BYTES * paged if self.ratio > 1 else 0.0

    def context_matrices(self, stream: Stream, tensor_parallel: int) -> ContextMatrices:
        """Return `ContextMatrices`, which turn a target's features into keys."""
        return float(stream.hidden_size * self.head_dim), float(self.head_dim), True

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        # one kind and the KV cache's dtype but for the indexer: whole layers were timed by these
        found = {"attention_projections": self._projections(run, layers)}
        if self._makes_entries:
            found["compressor"] = self._compressor(run, layers)
        if self._selects:
            width, most = self.index_num_heads * self.index_head_dim, self.index_topk * self.ratio
            key_bytes = self._index_key_bytes / self.ratio
            index = Index(width, key_bytes, most, self.ratio, "compressed_indexer")
            found |= index.work(run, layers)
        return found | {"attention_core": self._core(run, layers)}

    @property
    def _index_key_bytes(self) -> float:
        return self.index_head_dim * (1 + 4 / SCALED)

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
        """Widths that compressors make: of keys, and of index keys that have a compressor [-]."""
        if not self._makes_entries:
            return ()
        wide = 1 + self.has_overlap  # each token counts in two entries
        own_index = self._selects and self.is_index_compressed
        return (wide * self.head_dim, *((wide * self.index_head_dim,) if own_index else ()))

    @property
    def _compressor_values(self) -> int:
        """Values that compressors make of a token: summands, and their weights [-]."""
        return (1 + (self.ratio > 1)) * sum(self._compressed_widths)

    def _wide_weights(self, hidden_size: int) -> int:
        """Weights that are not quantised: of compressors and of index heads [-]."""
        # A compressor has a norm, and a bias for each place in an entry; that of V4.1, whose index
        # keys are made from entries, has no biases.
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
        found = linear(
            run, layers, weights=weights, values=2 * h + made, depth=depth, kernels=kernels
        )
        return replace(found, kind=self.kind, stored_dtype=stream.kv_dtype)

    def _compressor(self, run: Pass, layers: int) -> Work:
        """Return the work of the 16-bit matrices, and of making entries from their results."""
        # What they make of a token is written in 32 bits, and read for each entry it counts in.
        stream, h, made = run.stream, run.stream.hidden_size, self._compressor_values
        dtype, each = absorbed_dtype(stream), len(self._compressed_widths)
        kept = (2 + self.has_overlap) * made * _STATE_BYTES
        weights, values = self._wide_weights(h), h + kept / stream.residual_bytes
        depth, kernels = h * each, 3 * each + self._selects
        found = linear(
            run, layers, weights=weights, values=values, depth=depth, kernels=kernels, dtype=dtype
        )
        return replace(found, kind=self.kind, dtype=dtype, stored_dtype=stream.kv_dtype)

    def _core(self, run: Pass, layers: int) -> Work:
        """Return the work of attention to the window and to entries."""
        # What all tokens of a sequence read counts once, as the GPU's cache serves the rest; what
        # each selects counts for each. Kernels compute in 16 bits, on at least `HEADS` heads.
        replica, stream = run.replica, run.stream
        heads = self.num_heads / run.layout.tensor_parallel
        padded = max(heads, HEADS)
        written = 1 + (1 / self.ratio if self._makes_entries else 0.0)
        # tokens and entries that queries attend to, and what is read of them
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
