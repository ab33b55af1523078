"""Sparse attention over latents (DSA): an indexer scores all entries, attention gathers the best.

The indexer of a layer has few heads, and caches one 8-bit key for each entry. It scores every entry
for every token; attention then reads the `index_topk` best entries of each token. Layers without an
indexer take what an earlier layer selected.
"""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.attention import LatentHeads, absorbed_dtype
from specmodel.core.layers.batch import Carried, SequenceGroup
from specmodel.core.layers.blocks import linear
from specmodel.core.layers.engines import Rows
from specmodel.core.layers.forms import Quantity, measured
from specmodel.core.layers.parts import ForHeads
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Kind, Work

SCALED = 128
"""Elements of an 8-bit key or latent that share a 32-bit scale [-]."""

PROCESSORS = 128
"""Multiprocessors of a GPU, each choosing the entries of one token at a time [-]: fewer tokens take
as long as this many. GPUs that run these layers have 132 to 160."""

HEADS = 64
"""Heads that kernels of sparse attention compute at least (``FLASHMLA_SPARSE`` in vLLM) [-]."""

LONGEST_VERIFY = 64
"""Tokens of a sequence beyond which it is a chunk of a prompt [token]: another kernel takes those,
in which many tokens share what is read."""

ROTARY = 64
"""Elements of the rotary part of a key in 8-bit caches, zeros where the model has none
(``fp8_ds_mla`` in vLLM 0.33) [-]."""


class SparseAttention(LatentHeads, frozen=True, kw_only=True, tag="sparse_attention"):
    """Latent attention to the entries that an indexer selects (DSA).

    Parameters
    ----------
    num_heads, qk_nope_head_dim, qk_rope_head_dim, v_head_dim
        As in `LatentAttention` [-].
    q_lora_rank, kv_lora_rank, input_size, gate_size
        As in `LatentAttention` [-].
    index_num_heads, index_head_dim
        Heads of the indexer, and width of their queries and of the one key [-].
    index_topk, index_pool
        Maximum entries that a token attends to; tokens whose index keys are pooled into one,
        weighted by a projection of each token and by its place in the pool [token].
    has_indexer
        Whether the layer has an indexer and index keys, or reuses the selection of an earlier one.

    Notes
    -----
    A chunk of a prompt does the same work: each token gathers for itself, and index keys are read
    once. Not modelled: engines that attend to short prompts without the indexer, or share out the
    scores of a chunk over GPUs that all have the index (vLLM 0.33), caches that are spread over
    GPUs by tokens, index keys in 4 bits, and the keys of an incomplete pool, which engines keep in
    a buffer of some kilobytes.
    """

    index_num_heads: Size
    index_head_dim: Size
    index_topk: Size
    index_pool: Size = 1
    has_indexer: bool = True

    @property
    def selects(self) -> bool:
        """Whether the layer selects entries for the layers of its kind."""
        return self.has_indexer

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with this mixer and an indexer of its own."""
        return replace(super().for_head, mixer=replace(self, has_indexer=True))

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; the indexer is on all [-]."""
        own = super().weights(hidden_size, tensor_parallel)
        return own + self._indexer_weights(hidden_size)

    def entry_bytes(self, kv_dtype: str) -> float:
        """Return the size of what attention reads of a token in one layer [B]."""
        # Latents below 16 bits carry scales. The rotary part of a key has 16 bits beside 8-bit
        # latents, and 8 beside 4-bit ones.
        latent = self.kv_lora_rank * BYTES_PER_ELEMENT[kv_dtype]
        if BYTES_PER_ELEMENT[kv_dtype] < 1:
            return latent + self.qk_rope_head_dim
        if BYTES_PER_ELEMENT[kv_dtype] > 1:
            return latent + self.qk_rope_head_dim * BYTES_PER_ELEMENT[kv_dtype]
        return latent + 4 * self.kv_lora_rank / SCALED + 2 * (self.qk_rope_head_dim or ROTARY)

    @property
    def index_bytes(self) -> float:
        """Bytes that the indexer keeps of a token in one layer, 0 without an indexer [B]."""
        each = self.index_head_dim * (1 + 4 / SCALED) / self.index_pool
        return each if self.has_indexer else 0.0

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes that one layer keeps of a sequence on each GPU, with index keys [B]."""
        return entries * (self.entry_bytes(stream.kv_dtype) + self.index_bytes)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        # One kind but for the indexer, as whole layers were timed, in which small kernels take as
        # long as matrices. The KV cache's dtype decides which kernel attends, and so the fit.
        found = {"attention_projections": self._all_projections(run, layers)}
        if self.has_indexer:
            width = self.index_num_heads * self.index_head_dim
            index = Index(width, self.index_bytes, self.index_topk, self.index_pool)
            found |= index.work(run, layers)
        return found | {"attention_core": self._core(run, layers)}

    def _indexer_weights(self, hidden_size: int) -> int:
        """Weights of the indexer: queries, the key with its norm, weights of heads [-]."""
        if not self.has_indexer:
            return 0
        read = self.q_lora_rank or hidden_size
        queries = read * self.index_num_heads * self.index_head_dim
        of_hidden = hidden_size * (self._index_keys + self.index_num_heads)
        pooled = self.index_pool * self.index_head_dim if self.index_pool > 1 else 0
        return queries + of_hidden + 2 * self.index_head_dim + pooled

    @property
    def _index_keys(self) -> int:
        """Elements of the index key of a token, with its weights if keys are pooled [-]."""
        return (1 + (self.index_pool > 1)) * self.index_head_dim

    def _all_projections(self, run: Pass, layers: int) -> Work:
        """Return the work of the matrices, those of the indexer included."""
        # Weights below 16 bits take kernels of their own, which quantise the inputs of three
        # matrices: hidden values, the latent of queries, and the output of attention.
        stream = run.stream
        found = self.projections(run, layers)
        found += self.absorbed_projections(run, layers, run.replica, absorbed_dtype(stream))
        found += self.between_projections(run, layers)
        if self.has_indexer:
            h = stream.hidden_size
            weights, read = self._indexer_weights(h), (self.q_lora_rank or h) + h
            made = self.index_num_heads * self.index_head_dim
            values = read + made + self._index_keys + self.index_num_heads
            found += linear(run, layers, weights=weights, values=values, depth=h + read, kernels=2)
        is_quantised = BYTES_PER_ELEMENT[stream.weight_dtype] < 2
        quantising = Work(kernels=3 * layers if is_quantised else 0)
        return replace(found + quantising, kind=self.kind, stored_dtype=stream.kv_dtype)

    def _core(self, run: Pass, layers: int) -> Work:
        """Return the work of attention to the entries that each token gathers for itself."""
        # Kernels compute in 16 bits whatever the cache holds, on whole lists of `index_topk`
        # entries and on at least `HEADS` heads; entries that are not there are not read.
        replica, stream = run.replica, run.stream
        gathered = replica.pairs(self.index_topk)
        heads = self.num_heads / run.layout.tensor_parallel
        values = self.cache_size + self.kv_lora_rank
        computed = run.num_tokens * (self.index_topk * max(heads, HEADS))
        return Work(
            flop=computed * (2 * values * layers),
            activation_bytes=run.num_tokens * (heads * values * layers * stream.residual_bytes),
            cache_bytes=(gathered + run.num_tokens) * (layers * self.entry_bytes(stream.kv_dtype)),
            rows=run.num_tokens,
            kernels=6 * layers,
            kind=self.kind,
            stored_dtype=stream.kv_dtype,
            memory_cause="KV",
        )


class Index(NamedTuple):
    """An indexer as a pass runs it.

    Width of the queries of all its heads [-], its keys for a token [B], entries that a token
    chooses at most [token], tokens that share a key [token], and the kind of its kernels.
    """

    width: int
    key_bytes: float
    most: int
    pool: int
    kind: Kind = "indexer"

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of scoring every key for every token, and of choosing the best ones."""
        # scores have 32 bits
        entries, rows = run.replica.pairs(None), run.code.rows_together(run.compute_capability)
        pairs, read = entries / self.pool, run.replica.summed(_read, rows)
        scores = Work(
            flop=pairs * (2 * self.width * layers),
            cache_bytes=(read + run.num_tokens) * (layers * self.key_bytes),
            activation_bytes=(pairs * 4 + run.num_tokens * self.width) * layers,
            rows=run.num_tokens,
            kernels=6 * layers,
            kind=self.kind,
            dtype="fp8",
            stored_dtype=run.stream.kv_dtype,
            memory_cause="index",
        )
        choice = Work(
            activation_bytes=entries * (4 * layers / self.pool),
            groups=measured(_choice_rounds, self.most, has_context=True) * layers,
            kernels=2 * layers,
            kind=self.kind,
            dtype="fp8",
            stored_dtype=run.stream.kv_dtype,
        )
        return {"indexer": scores, "index_selection": choice}


def _read(group: SequenceGroup, together: Rows) -> FloatArray:
    """Return the index keys that a sequence reads, one as often as kernels read it [-].

    `together` are the numbers of tokens of a sequence that read keys once, None for any. In a batch
    whose sequences carry different numbers of tokens, engines share nothing on Hopper; here each
    sequence reads by its own number.
    """
    return group.mean(lambda q: index_reads(q, together) * (group.context_length + q))


def _choice_rounds(carried: Carried, most: int) -> FloatArray:
    """Return the selections of `most` entries that run one after another on a processor [-].

    A token of a sequence with more than `most` entries takes a time of its own on a processor; the
    token counts by the share of the entries that are not selected.
    """
    batch = carried.replica
    left_out = batch.mean(
        lambda group: group.mean(lambda q: np.maximum(1 - most / (group.context_length + q), 0.0))
    )
    return np.hypot(batch.num_tokens, PROCESSORS) * left_out


def index_reads(tokens: FloatArray, together: Rows) -> FloatArray:
    """Return how often the index keys of a sequence are read for its tokens in a pass [-]."""
    # 1 where the kernel takes as many tokens at once, else one read a token; interpolated between
    # whole numbers of tokens
    if together is None:
        return np.ones_like(tokens)
    places = np.arange(LONGEST_VERIFY + 2.0)
    alone = np.where(np.isin(places, together) | (places > LONGEST_VERIFY), 1.0, places)
    return np.interp(tokens, places, alone)
