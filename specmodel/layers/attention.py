"""Attention over latents as a kind of layer, and what all attention does around its core.

The KV cache is read once per sequence and pass, whatever the number of tokens verified.
"""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.base.records import Record
from specmodel.base.units import FloatArray
from specmodel.layers import blocks
from specmodel.layers.batch import Batch, Pass, Stream
from specmodel.layers.cores import (
    core,
    distinct_entries,
    prompt_core,
    with_keys_and_values,
)
from specmodel.layers.work import Work, wider_dtype

Size = Annotated[int, Field(ge=1, le=10**7)]
Count = Annotated[int, Field(ge=0, le=10**7)]


class LatentHeads(Record):
    """What all attention over latents has in common: heads, latents and the matrices of both.

    Parameters
    ----------
    kind
        Name of the mixer in files.
    num_heads
        Query heads [-].
    kv_lora_rank, q_lora_rank
        Widths of the latents of keys and values, and of queries, 0 if queries have none [-].
    qk_nope_head_dim, qk_rope_head_dim, v_head_dim
        Widths of a head: position-free and rotary part of keys, and values. The rotary part may
        have no rotation, or be absent [-].
    gate_size
        Numbers of each head by which outputs are multiplied, 0 for no gate [-].
    input_size
        As grouped attention has it: what the latents, and queries without one, are made of [-].
    """

    kind: str
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
        """Elements cached for a token in one layer, whatever the number of heads [-]."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def output_size(self) -> int:
        """Width that the matrix after the core reads [-]."""
        return self.num_heads * self.v_head_dim

    def cuts(self, degree: int) -> bool:
        """Tell whether the heads divide over GPUs; the latent is copied to each."""
        return not self.num_heads % degree

    def weights(self, hidden_size: int, tensor_parallel: int = 1) -> float:
        """Return the weights that each GPU has of one layer; the latents' are copied [-]."""
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

    def context_matrices(self, hidden_size: int, tensor_parallel: int) -> tuple[float, float]:
        """Return weights of one layer that make latents of given features, and their size [-]."""
        del tensor_parallel
        return float(hidden_size * self.cache_size), float(self.cache_size)

    def projections(self, run: Pass, layers: int) -> Work:
        """Return the work of the matrices before and after the core, but for keys and values."""
        n, read = run.layout.tensor_parallel, self.input_size or run.stream.hidden_size
        head = self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim + self.gate_size
        made = self.q_lora_rank + self.cache_size + self.num_heads * head / n
        inner = read - run.stream.hidden_size + made
        depth = read + self.q_lora_rank + self.output_size / n
        weights = LatentHeads.weights(self, run.stream.hidden_size, n) - self.weights_of_latents(n)
        return matrix_work(run, layers, weights, inner, depth, kernels=3)

    def absorbed_projections(self, run: Pass, layers: int, batch: Batch, dtype: str) -> Work:
        """Return the work of the projections of keys and values as those of queries and results.

        Absorbed into these, they are a batched product before the core and one after it, at equal
        arithmetic: the latent itself is the key and the value.
        """
        heads = self.num_heads / run.layout.tensor_parallel
        depth = self.qk_nope_head_dim + self.kv_lora_rank
        values = 2 * heads * self.kv_lora_rank
        return self._made_of_latents(
            run, layers, batch.num_tokens, batch.share, dtype, values=values, depth=depth, kernels=2
        )

    def made_keys_and_values(
        self, run: Pass, layers: int, num_tokens: FloatArray, share: FloatArray
    ) -> Work:
        """Return the work of making keys and values of latents, but for what it writes."""
        dtype, depth = run.stream.weight_dtype, self.kv_lora_rank
        return self._made_of_latents(
            run, layers, num_tokens, share, dtype, values=0.0, depth=depth, kernels=1
        )

    def weights_of_latents(self, tensor_parallel: int) -> float:
        """Return the weights of one layer that make keys and values, on each GPU [-]."""
        heads = self.num_heads / tensor_parallel
        return heads * self.kv_lora_rank * (self.qk_nope_head_dim + self.v_head_dim)

    def _made_of_latents(
        self,
        run: Pass,
        layers: int,
        num_tokens: FloatArray,
        share: FloatArray,
        dtype: str,
        **product: float,
    ) -> Work:
        """Return the work of these matrices on tokens, of which a point has a share, or none."""
        work = blocks.linear(
            num_tokens,
            weights=layers * self.weights_of_latents(run.layout.tensor_parallel),
            value_bytes=run.stream.residual_bytes,
            dtype=run.stream.arithmetic_dtype(dtype),
            stored_dtype=dtype,
            **{name: layers * value for name, value in product.items()},
        )
        if np.all(share == 1):
            return work
        read, depth, kernels = (
            part * share for part in (work.weight_bytes, work.depth, work.kernels)
        )
        return replace(work, weight_bytes=read, depth=depth, kernels=kernels)

    def between_projections(self, run: Pass, layers: int) -> Work:
        """Return the work of norms of latents, rotation, writing to the cache, and gating."""
        heads = self.num_heads / run.layout.tensor_parallel
        turned = 2 * (heads + 1) * self.qk_rope_head_dim
        gated = heads * (2 * self.v_head_dim + self.gate_size) if self.gate_size else 0
        values = 2 * (self.q_lora_rank + self.kv_lora_rank) + turned + gated
        return between_matrices(run, layers, values, kernels=4 if gated else 3)


class LatentAttention(LatentHeads):
    """Multi-head latent attention (MLA); the cache holds one latent a token.

    It is run in its absorbed form, in which all heads attend to the latent itself, but for
    prompts: keys and values of each head are then made of the latents, those of the context too,
    as many queries make up for that. What is absorbed stays in 16 bits, as engines keep it
    (`MLAAttention.process_weights_after_loading` in vLLM 0.33). The core computes in 16 bits
    whatever the cache holds, but on data-center Blackwell, where it computes on 8-bit latents.
    """

    kind: Literal["latent_attention"] = "latent_attention"

    def sequence_bytes(
        self, entries: FloatArray, stream: Stream, tensor_parallel: int
    ) -> FloatArray:
        """Return what one layer keeps of a sequence on each GPU, the same on all [B]."""
        del tensor_parallel
        return entries * (self.cache_size * BYTES_PER_ELEMENT[stream.kv_dtype])

    def widened_bytes(self, stream: Stream, tensor_parallel: int) -> float:
        """Return what the matrices that are absorbed take beyond the dtype of the others [B]."""
        wider = BYTES_PER_ELEMENT[absorbed_dtype(stream)] - BYTES_PER_ELEMENT[stream.weight_dtype]
        return self.weights_of_latents(tensor_parallel) * wider

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        found = {
            "attention_projections": self.projections(run, layers),
            "elementwise": self.between_projections(run, layers),
        }
        decoded, prompts = (run.replica.of_kind(prompts=kind) for kind in (False, True))
        if decoded:
            dtype = absorbed_dtype(run.stream)
            found["absorbed_projections"] = self.absorbed_projections(run, layers, decoded, dtype)
            found["attention_core"] = core(
                run,
                layers,
                None,
                decoded,
                num_heads=self.num_heads / run.layout.tensor_parallel,
                num_groups=1,
                sizes=(self.cache_size, self.kv_lora_rank),
                kv_elements=float(self.cache_size),
                dtype=latent_arithmetic(run.stream.kv_dtype, run.compute_capability),
                kind="latent_attention",
            )
        return found | (self._prompts(run, layers, prompts) if prompts else {})

    def _prompts(self, run: Pass, layers: int, prompts: Batch) -> dict[str, Work]:
        """Return the work of prompts: their core, and keys and values, which are written and read.

        Those of their contexts are made anew.
        """
        stream, heads = run.stream, self.num_heads / run.layout.tensor_parallel
        key = self.qk_nope_head_dim + self.qk_rope_head_dim
        attended = prompt_core(
            run,
            layers,
            None,
            prompts,
            num_heads=heads,
            sizes=(key, self.v_head_dim),
            kv_elements=float(self.cache_size),
            kind="latent_prompt_attention",
        )
        entries = prompts.total(lambda group: distinct_entries(group, None))
        made_of_one = layers * heads * (key + self.v_head_dim)
        attended = with_keys_and_values(attended, entries, made_of_one, stream.residual_bytes)
        work = {
            "key_value_projections": self.made_keys_and_values(
                run, layers, prompts.num_tokens, prompts.share
            ),
            "prompt_attention": attended,
        }
        context = prompts.total(lambda group: group.context_length)
        if context.any():
            has_any = np.minimum(context, 1.0)  # weights are read where there is a context
            work["context_projections"] = self.made_keys_and_values(run, layers, context, has_any)
        return work


def absorbed_dtype(stream: Stream) -> str:
    """Return the dtype of matrices that are absorbed: of 16 bits or more, whatever others have."""
    return wider_dtype("bf16", stream.weight_dtype)


def latent_arithmetic(kv_dtype: str, compute_capability: float | None) -> str:
    """Return the dtype in which kernels of latent attention compute.

    Parameters
    ----------
    kv_dtype
        Dtype of the latents.
    compute_capability
        Of the GPU, None where there is none [-].

    Returns
    -------
    str
        That of the latents if they have 16 bits or more, or 8 on data-center Blackwell; else bf16.
    """
    is_native = 10 <= (compute_capability or 0) < 12 and kv_dtype == "fp8"
    return kv_dtype if is_native else wider_dtype("bf16", kv_dtype)


def matrix_work(
    run: Pass, layers: int, weights: float, inner: float, depth: float, *, kernels: int
) -> Work:
    """Return the work of the matrices before and after a mixer's core.

    Parameters
    ----------
    run
        The pass.
    layers
        Layers [-].
    weights
        Of one layer on each GPU [-].
    inner
        Values of a token between these matrices in one layer, written or read there [-].
    depth
        What the matrices of a layer read, the sum over them [-].
    kernels
        Products of one layer [-].

    Returns
    -------
    Work
        On one GPU.
    """
    stream = run.stream
    return blocks.linear(
        run.num_tokens,
        weights=layers * weights,
        values=layers * (2 * stream.hidden_size + inner),
        value_bytes=stream.residual_bytes,
        depth=layers * depth,
        kernels=layers * kernels,
        dtype=stream.arithmetic_dtype(stream.weight_dtype),
        stored_dtype=stream.weight_dtype,
    )


def between_matrices(run: Pass, layers: int, values: float, *, kernels: int) -> Work:
    """Return the work of small kernels between these matrices.

    Parameters
    ----------
    run
        The pass.
    layers
        Layers [-].
    values
        Read and written for a token in one layer [-].
    kernels
        Kernels of one layer [-].

    Returns
    -------
    Work
        On one GPU.
    """
    stream = run.stream
    return blocks.between(
        run.num_tokens,
        values=layers * values,
        value_bytes=stream.residual_bytes,
        kernels=layers * kernels,
        dtype=stream.activation_dtype,
    )
