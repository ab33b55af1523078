"""Compute attention whose query heads share key-value heads (MHA, GQA, MQA).

A pass reads the KV cache once per sequence, for any number of verified tokens. Layers of one model
may have different heads, widths of keys and values, and windows, and may read other layers' caches.
"""

import numpy as np
from msgspec.structs import replace

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.blocks import Heads, attention, between, linear, prompt_attention
from specmodel.core.layers.forms import Quantity, applied
from specmodel.core.layers.messages import partial_outputs
from specmodel.core.layers.parts import Cached, ContextMatrices, ForHeads, TokenMixer, check_divisor
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work


class GroupedHeads(TokenMixer, frozen=True, kw_only=True):
    """Query heads that share key-value heads. `GroupedAttention` documents the fields."""

    num_heads: Size
    num_kv_heads: Size
    head_dim: Size

    def __post_init__(self) -> None:
        check_divisor(self, "num_kv_heads", "num_heads")

    @property
    def value_size(self) -> int:
        """Width of a value head [-]."""
        return self.head_dim

    @property
    def query_size(self) -> int:
        """Width of the queries of all heads [-]."""
        return self.num_heads * self.head_dim

    @property
    def output_size(self) -> int:
        """Input width of the matrix after the core [-]."""
        return self.num_heads * self.value_size

    def cuts(self, degree: int) -> bool:
        """Return whether query heads divide over GPUs, and key-value heads divide or are copied."""
        divides = not self.num_heads % degree
        return divides and (not self.num_kv_heads % degree or not degree % self.num_kv_heads)

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with this mixer, which has priority, and with plain GQA of its sizes."""
        sizes = {name: getattr(self, name) for name in ("num_heads", "num_kv_heads", "head_dim")}
        plain = GroupedAttention(**sizes)
        return ForHeads(0, self, plain, plain)

    def _kv_ranks(self, tensor_parallel: int) -> int:
        """Return the GPUs over which key-value heads are cut; further GPUs have copies [-]."""
        return min(tensor_parallel, self.num_kv_heads)

    def _kv_elements(self, tensor_parallel: int) -> float:
        """Return the elements of a token's keys and values on each GPU [-]."""
        elements = self.num_kv_heads * (self.head_dim + self.value_size)
        return elements / self._kv_ranks(tensor_parallel)


class GroupedAttention(GroupedHeads, frozen=True, kw_only=True, tag="attention"):
    """Attention whose query heads share key and value heads (MHA, GQA, MQA).

    Parameters
    ----------
    num_heads, num_kv_heads, head_dim, value_head_dim
        Query heads, key-value heads, the width of each head, and the width of a value head if it
        differs [-].
    window
        Number of last entries that a query sees; None for all entries. Attention in chunks counts
        as a window of a chunk: this is exact in the first chunk, and above the mean in later ones
        [token].
    input_size
        Input width of queries, keys and values, if it differs from the model's, as in a draft head
        that reads an embedding and the target's features [-].
    has_output_gate
        Whether the query projection also computes a gate for the outputs, of the same width.
    has_value_projection
        Whether values have their own matrix. Without a matrix, values are the keys before norm and
        rotation (V = K), and the cache still contains both.
    norms_all_heads
        Whether one norm covers all query heads, and another all key heads. GPUs with a part of the
        heads then sum squares.
    has_own_cache
        Whether the layer computes keys and values. If not, it attends to the keys and values of an
        earlier layer of its kind. It then has neither matrices nor a cache for them, but reads the
        same bytes in a pass.

    Notes
    -----
    If values have no matrix, vLLM 0.33 and SGLang 0.5.23 load the matrix of keys twice (in
    ``gemma4.py`` and ``gemma4_causal.py``). They then store and read the same bytes as with a
    matrix. Here it counts once, as in checkpoints: 0.4 % of the bytes that a token of
    Gemma-4-26B-A4B reads.
    """

    window: Size | None = None
    input_size: Size | None = None
    has_output_gate: bool = False
    value_head_dim: Size | None = None
    has_value_projection: bool = True
    has_own_cache: bool = True
    norms_all_heads: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.has_value_projection or self.value_size == self.head_dim
        expected = f"head_dim = {self.head_dim}, as values are the keys and have no matrix"
        self.need(fits, "value_head_dim", expected)

    @property
    def value_size(self) -> int:
        """Width of a value head [-]."""
        return self.value_head_dim or self.head_dim

    @property
    def cached(self) -> Cached:
        """Shape of the KV cache that the layer keeps, or that it reads from another layer."""
        return self.num_kv_heads, self.head_dim, self.value_size, self.window

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with this mixer without its window. Layers without a window have priority."""
        place = 1 if self.window is None else 2
        return replace(super().for_head, place=place, mixer=replace(self, window=None))

    def cuts_tokens(self, degree: int, tensor_parallel: int) -> bool:
        """Return whether `degree` GPUs have copies of a key-value head, for equal query heads."""
        # the same check as in vLLM 0.33 (`verify_with_parallel_config`, `SlidingWindowSpec`)
        copies, queries = tensor_parallel // self.num_kv_heads, self.num_heads // self.num_kv_heads
        return self.window is None and degree <= copies and not queries % degree

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU [-]."""
        read, gate = self.input_size or hidden_size, int(self.has_output_gate)
        by_head = read * self.query_size + (gate * read + hidden_size) * self.output_size
        by_kv_head = read * self.num_kv_heads * self._made_of_token
        return by_head / tensor_parallel + by_kv_head / self._kv_ranks(tensor_parallel)

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes of a sequence in one layer on each GPU, at most a window [B]."""
        if not self.has_own_cache:
            return 0 * entries
        kept = entries if self.window is None else applied(np.minimum, entries, self.window)
        return kept * (self._kv_elements(tensor_parallel) * BYTES_PER_ELEMENT[stream.kv_dtype])

    def context_matrices(self, stream: Stream, tensor_parallel: int) -> ContextMatrices:
        """Return the `ContextMatrices` from features to entries; one product if not quantised."""
        weights = stream.hidden_size * self.num_kv_heads * self._made_of_token
        is_whole = BYTES_PER_ELEMENT[stream.weight_dtype] >= 2
        made = self._kv_elements(tensor_parallel)
        return weights / self._kv_ranks(tensor_parallel), made, is_whole

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        n, gate = run.layout.tensor_parallel, int(self.has_output_gate)
        queries, outputs, entry = self.query_size / n, self.output_size / n, self._kv_elements(n)
        h, made = run.stream.hidden_size, entry if self.has_own_cache else 0.0
        read = self.input_size or h
        turned = 2 * (queries + made) + gate * 3 * outputs
        heads = Heads(
            queries=self.num_heads / n,
            groups=self.num_kv_heads / self._kv_ranks(n),
            sizes=(self.head_dim, self.value_size),
            entry=entry,
            is_written=self.has_own_cache,
            holders=run.layout.decode_context_parallel,
        )
        values = read + h + queries + (1 + gate) * outputs + made
        weights, depth = self.weights(h, n), read + outputs
        found = {
            "attention_projections": linear(run, layers, weights, values, depth, kernels=2),
            "elementwise": between(run, layers, turned, kernels=1 + gate),
        }
        if decoding := run.taken("decoding"):
            queries = heads.queries * heads.holders
            attended = decoding.attended(self.window, run.walk, queries)
            found["attention_core"] = attention(run.stream, layers, attended, heads)
        if prompts := run.taken("prompts"):
            attended = prompts.attended(self.window)
            found["prompt_attention"] = prompt_attention(run.stream, layers, attended, heads)
        return found | partial_outputs(run, layers, run.num_tokens, heads)

    @property
    def _made_of_token(self) -> int:
        """Width that matrices compute for a token and each key-value head [-]."""
        values = self.value_size if self.has_value_projection else 0
        return self.head_dim + values if self.has_own_cache else 0
