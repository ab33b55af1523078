"""What engines make of the same layers: what they read together, what they run side by side.

A row an engine, each figure from its source.
"""

import re
from math import inf
from typing import Any, Literal, TypeAlias, get_args

from specmodel.base.classes import dataclass

Exchange: TypeAlias = Literal["ranks", "copies", "gather"]
"""How tokens get to whole experts on other GPUs: once to each GPU that has any of theirs, once for
each of their experts, or all tokens to all GPUs."""

Beside: TypeAlias = Literal["router", "latent_projections", "routed_experts"]
"""What shared experts can run beside: neither waits for the other."""

Rows: TypeAlias = tuple[int, ...] | None
"""Tokens of a sequence that a kernel takes together, None for any number [token]."""


Multiples: TypeAlias = tuple[int, int]
"""What the model's width and the width of an expert's slice are padded to multiples of [-]."""

Limits: TypeAlias = tuple[tuple[int, float], ...]
"""Most bytes of an all-reduce by the GPUs that take part [-] [B]."""


@dataclass(frozen=True, kw_only=True)
class EngineCode:
    """What the code of an engine decides about the work of a pass.

    Parameters
    ----------
    index_rows
        Tokens of a sequence that read the index keys of sparse attention together, by the major
        compute capability of the GPU, 0 for all others [token].
    beside, beside_tokens
        Components that shared experts run beside, on a second stream, none if they take turns; and
        in passes of up to how many tokens [token].
    exchange
        How tokens get to whole experts where attention is data-parallel.
    fused_tokens
        Tokens of a pass up to which mixed residual streams are written back and read for the next
        block by one kernel; 0 if never [token].
    norm_limits, norm_tokens, norm_models
        Up to which all-reduces one kernel does each with the norm behind it, by the compute
        capability of the GPU, 0 for all others; in passes of up to how many tokens [token]; and how
        names of the models begin that are run so, an expression.
    mxfp4_multiples
        Multiples that the model's width and that of an expert's slice are padded to in experts of
        mxfp4, by the major compute capability of the GPU, 0 for all others [-]. Memory counts them;
        times have them already, as kernels were timed padded and are fitted to the sizes told.
    sparse_cache_capability
        Compute capability of GPUs from which sparse attention's cache has 8 bits unless told [-].
    batches_in_flight
        Batches whose tokens compressed attention has room for beside requests' own [-].
    """

    index_rows: tuple[tuple[int, Rows], ...] = ((9, (1, 2, 4)), (10, None), (0, (1, 2)))
    beside: tuple[Beside, ...] = ()
    beside_tokens: float = 0.0
    exchange: Exchange = "ranks"
    fused_tokens: float = 0.0
    norm_limits: tuple[tuple[float, Limits], ...] = ((0, ()),)
    norm_tokens: float = inf
    norm_models: str = ""
    mxfp4_multiples: tuple[tuple[int, Multiples], ...] = ((0, (1, 1)),)
    sparse_cache_capability: float = inf
    batches_in_flight: int = 0

    def rows_together(self, compute_capability: float | None) -> Rows:
        """Return the tokens of a sequence that read index keys together on a GPU [token]."""
        rows = dict(self.index_rows)
        return rows.get(int(compute_capability or 0), rows[0])

    def normed_tokens(
        self, model: str, compute_capability: float | None, gpus: int, row_bytes: float
    ) -> float:
        """Return the tokens of a pass up to which all-reduces are fused with norms [token]."""
        if not re.match(self.norm_models, model, re.IGNORECASE):
            return 0.0
        of_gpus = dict(self.norm_limits)
        limits = dict(of_gpus.get(compute_capability or 0, of_gpus[0]))
        return min(limits.get(gpus, 0) / row_bytes, self.norm_tokens)

    def padded_to(self, compute_capability: float | None) -> Multiples:
        """Return the multiples that experts of mxfp4 are padded to on a GPU [-]."""
        multiples = dict(self.mxfp4_multiples)
        return multiples.get(int(compute_capability or 0), multiples[0])


NO_ENGINE = EngineCode()
"""Kernels as vLLM's, one after another."""

_MIB = 2**20
_ANY = ((2, inf), (4, inf), (8, inf))

_LARGEST = 1e12
UNBOUNDED: dict[str, Any] = {
    "beside_tokens": _LARGEST,
    "fused_tokens": _LARGEST,
    "norm_tokens": _LARGEST,
}
UNBOUNDED |= {"norm_limits": ((0, _ANY),), "norm_models": "", "beside": get_args(Beside)}
"""What the ideal engine does in passes of any size, with the kernels of another."""

_CODES = {
    # Index keys: DeepGEMM's kernel for paged keys takes one, two or four tokens of a sequence on
    # Hopper, and any number on Blackwell (10.x), whose blocks of tokens pass over the same keys
    # while a cache holds them. Where the kernel does not take their number, vLLM 0.33 makes a
    # sequence of each token (`native_next_n_supported` in ``utils/deep_gemm.py``,
    # `_supports_native_decode` in ``v1/attention/backends/mla/indexer.py``).
    # Shared experts: up to VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD = 256 tokens
    # (``fused_moe/runner/shared_experts.py``), before the router (``moe_runner.py``).
    # Exchange: ``all2all_backend`` is "allgather_reducescatter" (``config/parallel.py``).
    # Experts of mxfp4: FlashInfer's kernels of TensorRT-LLM on Blackwell, elsewhere Triton's
    # (`mxfp4_round_up_hidden_size_and_intermediate_size` in ``fused_moe/oracle/mxfp4.py``).
    # Batches in flight: `max_concurrent_batches` in ``config/vllm.py``, which admits a request only
    # where windows and compressors have room for them (`max_admission_blocks_per_request`).
    # Streams: up to `_FUSED_POST_PRE_MAX_TOKENS` (``kernels/mhc/tilelang_kernels.py``).
    # All-reduces with norms: FlashInfer's, on by default from 0.17 on (`FI_ALLREDUCE_FUSION_MAX_
    # SIZE_MB` in ``passes/fusion/allreduce_rms_fusion.py`` of 0.33; eight GPUs of 10.3 had 2 MiB).
    "vllm": EngineCode(
        norm_limits=(
            (9.0, ((2, 64 * _MIB), (4, 2 * _MIB), (8, _MIB / 2))),
            (10.0, ((2, 64 * _MIB), (4, 32 * _MIB), (8, _MIB))),
            (10.3, ((2, 64 * _MIB), (4, 64 * _MIB), (8, 4 * _MIB))),
            (0, ()),
        ),
        beside_tokens=256.0,
        exchange="gather",
        fused_tokens=32.0,
        mxfp4_multiples=((10, (256, 128)), (0, (1, 64))),
        batches_in_flight=2,
    ),
    # Index keys: any number on Blackwell only, else each token by itself ("DG-native is SM100+
    # only" in ``layers/attention/dsa_backend.py`` of 0.5.23). Shared experts: wherever a CUDA graph
    # is captured (`forward_normal_dual_stream` in ``models/deepseek_v2.py``, ``glm4_moe.py`` and
    # ``qwen2_moe.py``), which is up to 512 requests.
    # Exchange: DeepEP's kernels of low latency, by ``--moe-a2a-backend deepep``, which spreads
    # whole experts over all GPUs: a copy for each expert, in 8 bits with scales, and back in 16.
    # Experts of mxfp4: likewise (`create_weights` in ``quantization/mxfp4.py``).
    # All-reduces with norms: FlashInfer's, of as many tokens (`FUSE_ALLREDUCE_MAX_BATCH_SIZE`), by
    # default in models of a list (`_FLASHINFER_ALLREDUCE_FUSION_ARCHS` in
    # ``arg_groups/overrides.py`` of 0.5.23; in ``server_args.py`` of 0.5.9 and 0.5.13).
    # Caches of sparse attention: "Setting KV cache dtype to ... for DeepSeek DSA", same files.
    "sglang": EngineCode(
        norm_limits=((9.0, _ANY), (10.0, _ANY), (10.3, _ANY), (0, ())),
        norm_tokens=2048.0,
        norm_models=r"deepseek|glm|gpt-oss|kimi-k2|qwen3.*-a\d|qwen3-next|qwen3\.5|nemotron",
        index_rows=((10, None), (0, (1,))),
        beside_tokens=512.0,
        exchange="copies",
        mxfp4_multiples=((10, (128, 128)), (0, (1, 64))),
        sparse_cache_capability=10.0,
    ),
    # Shared experts: likewise in CUDA graphs (`maybe_execute_in_parallel` of its
    # ``_torch/modules/multi_stream_utils.py``, which vLLM's of the same name cites).
    # All-reduces with norms: in these models (`RESIDUAL_RMS_NORM` in ``_torch/models`` of 1.x; that
    # of dense Qwen3 has none), as far as its workspace goes (`max_workspace_size_auto`).
    "trtllm": EngineCode(
        beside_tokens=512.0,
        norm_limits=((0, ((2, 16e6), (4, 8e6), (8, 8e6))),),
        norm_models=r"deepseek|glm|gpt-oss|kimi-k2|llama|minimax-m3|qwen3.*-a\d",
    ),
}


def has_code(stack: str) -> bool:
    """Tell whether the engine of a stack has a row in the table."""
    return stack in _CODES


def engine_code(stack: str | None) -> EngineCode:
    """Return the row of an engine, by the name of its stack."""
    return _CODES.get(stack or "", NO_ENGINE)
