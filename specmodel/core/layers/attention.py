"""Compute the work of multi-head latent attention (MLA): its core, matrices and small kernels.

A pass reads the KV cache once per sequence, for any number of verified tokens.
"""

import numpy as np
from msgspec.structs import replace

from specmodel.core.base.bounds import Count, Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.records import field_names
from specmodel.core.layers.blocks import Heads, Tokens, attention, between, linear, prompt_attention
from specmodel.core.layers.forms import Quantity, applied
from specmodel.core.layers.messages import gathers, partial_outputs
from specmodel.core.layers.parts import ContextMatrices, ForHeads, TokenMixer
from specmodel.core.layers.run import Pass, Sequences
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work, wider_dtype


class LatentHeads(TokenMixer, frozen=True, kw_only=True):
    """Heads, latents and matrices of attention over latents. `LatentAttention` documents fields."""

    num_heads: Size
    kv_lora_rank: Size
    q_lora_rank: Count
    qk_nope_head_dim: Size
    qk_rope_head_dim: Count
    v_head_dim: Size
    gate_size: Count = 0
    input_size: Size | None = None

    @property
    def cache_size(self) -> int:
        """Elements cached for a token in one layer, for any number of heads [-]."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def output_size(self) -> int:
        """Input width of the matrix after the core [-]."""
        return self.num_heads * self.v_head_dim

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights of one layer on each GPU; each has those of latents [-]."""
        read = self.input_size or hidden_size
        query_heads = self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        value_heads = self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)
        by_head = (
            (self.q_lora_rank or read) * query_heads
            + read * self.num_heads * self.gate_size
            + self.kv_lora_rank * value_heads
            + self.num_heads * self.v_head_dim * hidden_size
        )
        return by_head / tensor_parallel + read * (self.q_lora_rank + self.cache_size)

    def context_matrices(self, stream: Stream, tensor_parallel: int) -> ContextMatrices:
        """Return the `ContextMatrices` that turn a target's features into latents."""
        return float(stream.hidden_size * self.cache_size), float(self.cache_size), True

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with this mixer, and with plain MLA of its sizes, without window and gate."""
        sizes = {name: getattr(self, name) for name in field_names(LatentHeads)}
        plain = LatentAttention(**sizes | {"gate_size": 0})
        return ForHeads(1, self, plain)

    def projections(self, run: Pass, layers: int) -> Work:
        """Return the work of matrices before and after the core, except keys and values."""
        n, read = run.layout.tensor_parallel, self.input_size or run.stream.hidden_size
        head = self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim + self.gate_size
        made = self.q_lora_rank + self.cache_size + self.num_heads * head / n
        values = read + run.stream.hidden_size + made
        depth = read + self.q_lora_rank + self.output_size / n
        weights = LatentHeads.weights(self, run.stream.hidden_size, n) - self.weights_of_latents(n)
        return linear(run, layers, weights, values, depth, kernels=3)

    def absorbed_projections(self, run: Pass, layers: int, batch: Sequences, dtype: str) -> Work:
        """Return the work of key and value projections that queries and outputs absorb."""
        # One batched product before the core and one after it do the same arithmetic.
        n, tokens = run.layout.tensor_parallel, Tokens(run.stream, batch.num_tokens)
        weights, depth = self.weights_of_latents(n), self.qk_nope_head_dim + self.kv_lora_rank
        values = 2 * (self.num_heads / n) * self.kv_lora_rank
        work = linear(tokens, layers, weights, values, depth, kernels=2, dtype=dtype)
        return _of_share(work, batch.share)

    def made_keys_and_values(
        self, run: Pass, layers: int, num_tokens: Quantity, share: Quantity
    ) -> Work:
        """Return the work of computing keys and values from latents, without writing them."""
        weights, depth = self.weights_of_latents(run.layout.tensor_parallel), self.kv_lora_rank
        tokens = Tokens(run.stream, num_tokens)
        return _of_share(linear(tokens, layers, weights, 0.0, depth), share)

    def widened_bytes(self, stream: Stream, tensor_parallel: int) -> float:
        """Return the bytes of a copy of the absorbed matrices, in addition to the weights [B]."""
        # with weights of 16 bits, absorbed matrices are views of them
        own = BYTES_PER_ELEMENT[stream.weight_dtype]
        each = BYTES_PER_ELEMENT[absorbed_dtype(stream)] if own < 2 else 0.0
        return self.weights_of_latents(tensor_parallel) * each

    def weights_of_latents(self, tensor_parallel: int) -> float:
        """Return the weights of one layer that compute keys and values, on each GPU [-]."""
        heads = self.num_heads / tensor_parallel
        return heads * self.kv_lora_rank * (self.qk_nope_head_dim + self.v_head_dim)

    def between_projections(self, run: Pass, layers: int) -> Work:
        """Return the work of latents' norms, rotation, writes to the cache, and gates."""
        heads = self.num_heads / run.layout.tensor_parallel
        turned = 2 * (heads + 1) * self.qk_rope_head_dim
        gated = heads * (2 * self.v_head_dim + self.gate_size) if self.gate_size else 0
        values = 2 * (self.q_lora_rank + self.kv_lora_rank) + turned + gated
        return between(run, layers, values, kernels=4 if gated else 3)


class LatentAttention(LatentHeads, frozen=True, kw_only=True, tag="latent_attention"):
    """Multi-head latent attention (MLA), whose cache has one latent per token.

    Decoding runs the absorbed form, in which all heads attend to the latent itself. Prompts compute
    keys and values of each head from the latents of prompt and context. This pays because prompts
    have many queries.

    Parameters
    ----------
    num_heads
        Query heads [-].
    kv_lora_rank, q_lora_rank
        Width of the latent of keys and values, and width of the latent of queries, 0 if queries
        have no latent [-].
    qk_nope_head_dim, qk_rope_head_dim, v_head_dim
        Width per head of the part of keys without position, of the rotary part (which may be 0 or
        may not rotate), and of values [-].
    gate_size, input_size
        Numbers per head that multiply outputs, 0 for no gate. Input width of the matrices that
        compute latents, or queries without a latent; the model's width if None [-].
    window
        Number of last entries that a query sees; None for all entries [token].

    Notes
    -----
    Absorbed matrices have 16 bits. Engines keep them in addition to the checkpoint's matrices,
    which prompts use (`split_kv_b_proj` in ``mla_attention.py`` of vLLM 0.33). The core computes in
    16 bits for every dtype of the cache, except on data-center Blackwell, where it computes on
    8-bit latents.
    """

    window: Size | None = None

    @property
    def for_head(self) -> ForHeads:
        """`ForHeads` with this mixer without its window. Layers without a window have priority."""
        place = 1 if self.window is None else 2
        return replace(super().for_head, place=place, mixer=replace(self, window=None))

    def cuts_tokens(self, degree: int, tensor_parallel: int) -> bool:
        """Return whether GPUs can split a sequence's tokens. With a window, each has a copy."""
        return self.window is None

    def sequence_bytes(self, entries: Quantity, stream: Stream, tensor_parallel: int) -> Quantity:
        """Return the bytes that one layer keeps of a sequence, a full copy on each GPU [B]."""
        kept = entries if self.window is None else applied(np.minimum, entries, self.window)
        return kept * (self.cache_size * BYTES_PER_ELEMENT[stream.kv_dtype])

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        found = {
            "attention_projections": self.projections(run, layers),
            "elementwise": self.between_projections(run, layers),
        }
        if decoding := run.taken("decoding"):
            stream, dtype = run.stream, absorbed_dtype(run.stream)
            of_latents = self.absorbed_projections(run, layers, decoding, dtype)
            found["absorbed_projections"] = of_latents
            holders = run.layout.decode_context_parallel
            heads = self._heads(run, self.cache_size, self.kv_lora_rank, holders)
            found |= partial_outputs(run, layers, decoding.num_tokens, heads)
            attended = decoding.attended(self.window)
            dtype = latent_arithmetic(stream.kv_dtype, run.compute_capability)
            core = attention(stream, layers, attended, heads, dtype=dtype, kind="latent_attention")
            found["attention_core"] = core
        prompts = run.taken("prompts")
        return found | (self._prompts(run, layers, prompts) if prompts else {})

    def _heads(self, run: Pass, key_size: int, value_size: int, holders: int = 1) -> Heads:
        """Return the query heads on each GPU. They share one latent per token."""
        return Heads(
            queries=self.num_heads / run.layout.tensor_parallel,
            groups=1,
            sizes=(key_size, value_size),
            entry=float(self.cache_size),
            holders=holders,
        )

    def _prompts(self, run: Pass, layers: int, prompts: Sequences) -> dict[str, Work]:
        """Return the work of prompts by component; keys and values of contexts are recomputed."""
        attended = prompts.attended(self.window)
        heads = self._heads(run, self.qk_nope_head_dim + self.qk_rope_head_dim, self.v_head_dim)
        # the weights are read a second time if there is a context
        context, has_any = prompts.counted("context"), prompts.counted("has_context")
        own = self.made_keys_and_values(run, layers, prompts.num_tokens, prompts.share)
        read = prompt_attention(run.stream, layers, attended, heads, has_latents=True)
        found = {
            "key_value_projections": own,
            "prompt_attention": read,
            "context_projections": self.made_keys_and_values(run, layers, context, has_any),
        }
        if run.layout.decode_context_parallel > 1:  # each GPU gathers all latents of a context
            size = self.cache_size * BYTES_PER_ELEMENT[run.stream.kv_dtype]
            found["context_gather"] = gathers(run, context * (layers * size), layers)
        return found


def _of_share(work: Work, share: Quantity) -> Work:
    """Return `work` with the reads of its matrices scaled by `share`."""
    shared = {name: share * getattr(work, name) for name in ("weight_bytes", "depth", "kernels")}
    return replace(work, **shared)


def absorbed_dtype(stream: Stream) -> str:
    """Return the dtype of absorbed matrices: the weights' dtype, but at least 16 bits."""
    return wider_dtype("bf16", stream.weight_dtype)


def latent_arithmetic(kv_dtype: str, compute_capability: float | None) -> str:
    """Return the dtype of arithmetic: 8 bits for an 8-bit cache on data-center Blackwell, or 16."""
    is_native = 10 <= (compute_capability or 0) < 12 and kv_dtype == "fp8"
    return kv_dtype if is_native else wider_dtype("bf16", kv_dtype)
