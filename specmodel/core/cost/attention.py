"""Find the attention kernels of an engine, and how they read the keys of a long sequence."""

from pathlib import Path

import numpy as np

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.cost.deployment import Deployment
from specmodel.core.drafters.published import is_named, rows_of
from specmodel.core.layers.work import Walk
from specmodel.core.models.architecture import Architecture

_DATA = Path(__file__).parent / "data"
_WIDEST_HEAD, _FLASH_BYTES, _FA2 = 256, 2.0, (8, 12)
"""Widest head of FlashAttention 2 [-], bytes of a number in its caches [B], and the major compute
capabilities of GPUs on which vLLM has no newer version of it."""

_FLASH_ROWS, _FLASH_SHARE, _FLASH_SHARES = 64, (0.89, 0.89), {8.0: (0.5, 0.73)}
"""Rows of queries that a block of FlashAttention 2 computes, few as they may be (``kBlockM`` of
``run_mha_fwd_splitkv_dispatch``), so that it takes 128 FLOP for each number of a key or value; and
at which share of its processor's peak it does, alone and where blocks fill the GPU, also by compute
capability. On an RTX 3090 eight rows of twelve heads of 256 took 0.375, 2.94 and 15.8 ms at 4,096,
32,768 and 200,000 keys, of 32 heads of 128 1.34 ms at 32,768 (vllm-project/flash-attention#193):
0.82, 0.84, 0.96 and 0.93 of it. On an A100 tensor cores take half as long, so that reads and
exponentials count: steps of Qwen3.8-27B with three MTP drafts grow from 24.2 ms at 552 entries to
48.8 at 32,052 (vLLM 0.28, cadamcat/dual-radeon-vllm); several blocks hide them in part, up to 0.73
(arXiv:2307.08691) [-]."""

_TRITON_KEYS_PER_S = 19.5e6
"""Keys that a block of Triton's attention reads [1/s]. Of Gemma 4 an SM of an A100 gets 67e9 B/s of
its L2 (5,120 B a clock for 108); a tile of 32 keys of 512 in 16 bits takes 1.0 us by that, 0.36 us
of products of 16 rows at the peak, and some 0.25 us to scale what was summed. Two steps published
at 44k entries (p26-336 and 337, in sight when this was written) ask for 11e6 in seconds, and for
24e6 beside a decode step of twice the time predicted. SGLang's, in tiles of 64 keys, read 21e6 in
an MI350X (sgl-project/sglang#27382) and in an RTX PRO 6000 at heads of 256 in 8 bits."""

_SGLANG_SEGMENTS = 5.0
"""Blocks of a verify pass that the eight of SGLang's Triton attention for decoding stand for, of
tiles half as long: they read 10e6 keys/s in an H100 (sgl-project/sglang#21775) to 16e6 [-]."""


def attention_walk(deployment: Deployment, model: Architecture) -> Walk | None:
    """Return how attention reads a model's keys if one block reads all of them, else None.

    FlashAttention 2 splits keys over blocks for a single query token only. It reads no 8-bit
    caches; FlashInfer reads them. Triton's attention in vLLM splits keys for a few tokens. In
    SGLang, it verifies as it prefills: each query head has one block, which reads all keys (0.5.23,
    ``extend_attention_fwd``; sgl-project/sglang#39316).
    """
    gpu, engine, mixers = deployment.hardware, deployment.engine, deployment.target.mixers
    widest = max((mixer.cached[1] for mixer in mixers if mixer.cached), default=0)
    kernels, size = _kernels_of(deployment, widest), BYTES_PER_ELEMENT[model.kv_dtype]
    if kernels == "triton":
        per_s = _TRITON_KEYS_PER_S * 2 * widest * size
        if engine.stack == "sglang":
            own = {"segments": _SGLANG_SEGMENTS, "processors": gpu.num_multiprocessors or np.inf}
            return Walk(split_tokens=1, bytes_per_s=per_s, **own)
        split = engine.split_tokens
        return Walk(split_tokens=split, segments=16, bytes_per_s=per_s) if split else None
    split = engine.flash_split_tokens
    if kernels != "flash_attn_2" or not split or size != _FLASH_BYTES:
        return None
    alone, full = _FLASH_SHARES.get(gpu.compute_capability or 0, _FLASH_SHARE)
    per_flop = alone / gpu.num_multiprocessors * _FLASH_BYTES / (2 * _FLASH_ROWS)
    processors = gpu.num_multiprocessors * full / alone
    return Walk(split_tokens=split, bytes_per_flop=per_flop, processors=processors)


def _kernels_of(deployment: Deployment, widest: int) -> str | None:
    """Return the name of the kernels that read the keys, None if they spread keys over blocks.

    `widest` is the width of the widest head with cached keys, 0 if there is none [-].

    By default, vLLM runs FlashAttention 2 on GPUs of compute capability 8 and 12. There, it runs
    Triton for all layers of a model with heads above 256 (``_get_backend_priorities``,
    ``fa_utils.py``, ``Gemma4Config``). SGLang's default depends on the target
    (``data/attention_backends.csv``).
    """
    target, told = deployment.target, deployment.engine.attention_backend
    major = int(deployment.hardware.compute_capability or 0)
    if not widest:  # latent attention, or none
        return None
    for row in rows_of("attention_backends.csv", _DATA) if major and not told else ():
        is_here = str(major) not in row["elsewhere"].split()
        if (
            row["stack"] == deployment.engine.stack
            and is_here
            and is_named(target.name, row["target"])
        ):
            return row["backend"]
    if told and told.startswith("triton"):
        return "triton"
    if major not in _FA2 or told not in (None, "flash_attn") or deployment.engine.stack == "sglang":
        return None
    return "triton" if widest > _WIDEST_HEAD else "flash_attn_2"
