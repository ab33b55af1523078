"""Compute sparse attention over latents (DSA), whose indexer selects the entries to read.

The indexer of a layer has few heads, and caches one 8-bit key for each entry. It scores every entry
for every token. Attention then reads the `index_topk` best entries of each token. Layers without an
indexer use the selection of an earlier layer.
"""

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
"""Multiprocessors of a GPU [-]. Each selects entries for one token at a time, so fewer tokens take
as long as this number. GPUs that run these layers have 132 to 160."""

HEADS = 64
"""Minimum heads that kernels of sparse attention compute (``FLASHMLA_SPARSE`` in vLLM) [-]."""

LONGEST_VERIFY = 64
"""Maximum tokens of a sequence in verification [token]. More tokens are a chunk of a prompt, for
which another kernel lets many tokens share each read."""

ROTARY = 64
"""Elements of the rotary part of a key in 8-bit caches; zeros if the model has no rotary part
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
        Heads of the indexer, and width of their queries and of the single key [-].
    index_topk, index_pool
        Maximum entries to which a token attends; tokens whose index keys are pooled into one key,
        weighted by a projection of each token and by its place in the pool [token].
    has_indexer
        Whether the layer has an indexer and index keys, or uses an earlier layer's selection.

    Notes
    -----
    A chunk of a prompt does the same work: each token reads its own entries, and index keys are
    read once. Not modelled: short prompts that engines process without the indexer; a chunk's
    scores that are split over GPUs, which all have the index (vLLM 0.33); caches whose tokens are
    spread over GPUs; index keys in 4 bits; and the keys of an incomplete pool, for which engines
    have a buffer of some kilobytes.
    """

    index_num_heads: Size
    index_head_dim: Size
    index_topk: Size
    index_pool: Size = 1
    has_indexer: bool = True

    @property
    def selects(self) -> bool:
        """Whether the layer selects entries for other layers of its kind."""
        return self.has_indexer

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with this mixer and its own indexer."""
        return replace(super().for_head, mixer=replace(self, has_indexer=True))

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; every GPU has the indexer [-]."""
        own = super().weights(hidden_size, tensor_parallel)
        return own + self._indexer_weights(hidden_size)

    def entry_bytes(self, kv_dtype: str) -> float:
        """Return the bytes of a token that attention reads in one layer [B]."""
        # Latents of 8 bits have scales. The rotary part of a key has 16 bits with 8-bit latents,
        # and 8 bits with 4-bit latents.
        each = BYTES_PER_ELEMENT[kv_dtype]
        latent = self.kv_lora_rank * each
        if each != 1:
            return latent + self.qk_rope_head_dim * max(each, 1.0)
        return latent + 4 * self.kv_lora_rank / SCALED + 2 * (self.qk_rope_head_dim or ROTARY)

    @property
    def index_bytes(self) -> float:
        """Bytes that the indexer keeps of a token in one layer, 0 without an indexer [B]."""
        return scaled_bytes(self.index_head_dim) / self.index_pool if self.has_indexer else 0.0

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes that one layer keeps of a sequence on each GPU, with index keys [B]."""
        return entries * (self.entry_bytes(stream.kv_dtype) + self.index_bytes)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        # All components except the indexer have one kind, because whole layers were timed, in which
        # small kernels take as long as matrices. The KV cache's dtype decides which attention
        # kernel runs, and therefore which fit applies.
        found = {"attention_projections": self._all_projections(run, layers)}
        if self.has_indexer:
            queries = self.index_num_heads, self.index_head_dim
            found |= indexer(run, layers, queries, self.index_topk, self.index_pool)
        return found | {"attention_core": self._core(run, layers)}

    def _indexer_weights(self, hidden_size: int) -> int:
        """Return the weights of the indexer: queries, the key with its norm, heads' weights [-]."""
        if not self.has_indexer:
            return 0
        read = self.q_lora_rank or hidden_size
        queries = read * self.index_num_heads * self.index_head_dim
        of_hidden = hidden_size * (self._index_keys + self.index_num_heads)
        pooled = self.index_pool * self.index_head_dim if self.index_pool > 1 else 0
        return queries + of_hidden + 2 * self.index_head_dim + pooled

    @property
    def _index_keys(self) -> int:
        """Elements of a token's index key, and of its weights if keys are pooled [-]."""
        return (1 + (self.index_pool > 1)) * self.index_head_dim

    def _all_projections(self, run: Pass, layers: int) -> Work:
        """Return the work of all matrices, including the indexer's."""
        # For weights below 16 bits, extra kernels quantise the inputs of three matrices: hidden
        # values, the latent of queries, and the output of attention.
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
        """Return the work of attention, for which each token gathers its own entries."""
        # Kernels compute in 16 bits for every dtype of the cache, on lists of exactly `index_topk`
        # entries and on at least `HEADS` heads. They do not read entries that do not exist.
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


def scaled_bytes(elements: int) -> float:
    """Return the size of 8-bit elements with their 32-bit scales [B]."""
    return elements * (1 + 4 / SCALED)


def indexer(
    run: Pass, layers: int, queries: tuple[int, int], most: int, pool: int, kind: Kind = "indexer"
) -> dict[str, Work]:
    """Return the work of scoring every key for every token, and of selecting the best entries.

    `queries` has the number of index heads and their width, which is also that of a key [-]. A
    token selects at most `most` entries; `pool` tokens share a key [token].
    """
    # scores have 32 bits
    width, key_bytes = queries[0] * queries[1], scaled_bytes(queries[1]) / pool
    entries, rows = run.replica.pairs(None), run.code.rows_together(run.compute_capability)
    pairs, read = entries / pool, run.replica.summed(_read, rows)
    common = Work(kind=kind, dtype="fp8", stored_dtype=run.stream.kv_dtype)
    scores = replace(
        common,
        flop=pairs * (2 * width * layers),
        cache_bytes=(read + run.num_tokens) * (layers * key_bytes),
        activation_bytes=(pairs * 4 + run.num_tokens * width) * layers,
        rows=run.num_tokens,
        kernels=6 * layers,
        memory_cause="index",
    )
    selection = replace(
        common,
        activation_bytes=entries * (4 * layers / pool),
        groups=measured(_selection_rounds, most, has_context=True) * layers,
        kernels=2 * layers,
    )
    return {"indexer": scores, "index_selection": selection}


def _read(group: SequenceGroup, together: Rows) -> FloatArray:
    """Return the index keys that a sequence reads, including repeated reads [-].

    If a sequence has a number of tokens in `together`, these tokens read keys once; None stands for
    any number. On Hopper, engines share no reads in a batch whose sequences have different numbers
    of tokens. Here, each sequence reads according to its own number.
    """
    return group.mean(lambda q: index_reads(q, together) * (group.context_length + q))


def _selection_rounds(carried: Carried, most: int) -> FloatArray:
    """Return the selections of `most` entries, over processors, that run one after another [-].

    A token needs a selection if its sequence has more than `most` entries. It counts by the share
    of entries that are not selected.
    """
    batch = carried.replica
    left_out = batch.mean(
        lambda group: group.mean(lambda q: np.maximum(1 - most / (group.context_length + q), 0.0))
    )
    return np.hypot(batch.num_tokens, PROCESSORS) * left_out


def index_reads(tokens: FloatArray, together: Rows) -> FloatArray:
    """Return how often the index keys of a sequence are read for its tokens in a pass [-]."""
    # One read if the kernel processes this number of tokens together, otherwise one read for each
    # token. Values between whole numbers of tokens are interpolated.
    if together is None:
        return np.ones_like(tokens)
    places = np.arange(LONGEST_VERIFY + 2.0)
    alone = np.where(np.isin(places, together) | (places > LONGEST_VERIFY), 1.0, places)
    return np.interp(tokens, places, alone)
