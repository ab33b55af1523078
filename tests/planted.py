"""Measurements of kernels with parameters that are known, for tests of what fits them."""

import numpy as np
import pandas as pd

from specmodel import load_hardware
from specmodel.algebra.roofline import KernelParameters
from specmodel.fit import predicted_time

H200 = load_hardware("h200_sxm")
KINDS = ("experts", "gemm", "attention", "latent_attention", "recurrence")
TOKENS = (1, 4, 16, 64, 256, 512, 1024, 4096)
DTYPES = dict.fromkeys(KINDS, "bf16") | {"recurrence": "fp32"}
"""Dtype of weights, cache or state."""
SHAPES = {
    "experts": [
        (4096, 14336, 2, 8), (2048, 768, 8, 128), (6144, 2048, 8, 256), (4096, 192, 8, 128),
        (7168, 256, 8, 256),
    ],
    "gemm": [
        (4096, 14336), (8192, 8192), (5120, 27648), (8192, 28672), (16384, 5120), (7168, 18432),
        (16384, 256), (4096, 512), (8192, 384), (2048, 1024), (12288, 256), (6144, 512),
    ],
    "attention": [
        (32, 8, 128), (64, 8, 128), (16, 4, 128), (32, 8, 64), (40, 8, 128), (32, 2, 256),
    ],
    "latent_attention": [(h, 512, 64) for h in (128, 8, 64, 16, 96, 32)],
    "recurrence": [
        (*heads, 128, 128) for heads in ((16, 64), (4, 16), (16, 32), (2, 8), (96, 96), (16, 48))
    ],
}  # fmt: skip
CONTEXTS = [
    *((1, 1024), (1, 16384), (8, 512), (8, 8192)),
    *((64, 256), (64, 4096), (256, 256), (256, 2048)),
]
SIZES = {
    "experts": [(tokens, 3) for tokens in TOKENS],
    "gemm": [(tokens,) for tokens in TOKENS],
    "attention": CONTEXTS,
    "latent_attention": [(1, 1024), (8, 8192), (64, 32768), (256, 8192), (16, 131072)],
    "recurrence": [(1, 1), (8, 1), (64, 1), (256, 1), (1024, 1), (16, 2), (128, 4), (32, 8)],
}
COLUMNS = {
    "experts": "hidden_size expert_size experts_per_token num_experts num_tokens num_matrices",
    "gemm": "input_size output_size num_tokens",
    "attention": "num_heads num_kv_heads head_dim batch_size context_length",
    "latent_attention": "num_heads kv_lora_rank qk_rope_head_dim batch_size context_length",
    "recurrence": "num_key_heads num_value_heads key_head_dim value_head_dim batch_size"
    " query_tokens",
}
"""What shapes and sizes are of."""
STORED = dict.fromkeys(KINDS, "kv_dtype") | {"recurrence": "state_dtype"}
STORED |= {"experts": "weight_dtype", "gemm": "weight_dtype"}
PLANTED = {
    "experts": {
        "launch_time": 5e-6, "memory_efficiency": 0.85, "compute_efficiency": 0.7,
        "activation_efficiency": 0.6, "tile_rows": 24.0, "tile_growth": 0.2, "tile_width": 50.0,
    },
    "gemm": {
        "launch_time": 3e-6, "memory_efficiency": 0.8, "compute_efficiency": 0.75,
        "activation_efficiency": 0.6, "depth_time": 1e-9, "depth_limit": 2e4,
    },
    "attention": {
        "launch_time": 6e-6, "memory_efficiency": 0.9, "group_time": 3e-8, "ramp_time": 4e-6,
    },
    "latent_attention": {
        "launch_time": 6e-6, "memory_efficiency": 0.9, "compute_efficiency": 0.6,
        "group_time": 3e-8, "ramp_time": 4e-6,
    },
    "recurrence": {"launch_time": 3e-6, "memory_efficiency": 0.8},
}  # fmt: skip
"""Parameters inside the bounds of the fit [s] [-]."""


def points(kind: str) -> pd.DataFrame:
    """Every shape of a component at its sizes, bf16."""
    rows = [(*shape, *size) for shape in SHAPES[kind] for size in SIZES[kind]]
    table = pd.DataFrame(rows, columns=COLUMNS[kind].split())
    if kind == "experts":
        used = table["experts_per_token"] * table["num_tokens"]
        table["active_experts"] = np.minimum(table["num_experts"], used)
    return table.assign(**{STORED[kind]: DTYPES[kind]}, activation_dtype="bf16")


def planted(kind: str, sharpness: float = 4.0, noise: float = 0.0, **changes) -> pd.DataFrame:
    """A table of what planted parameters take; every third shape is there to judge."""
    rows = points(kind)
    parameters = KernelParameters(**(PLANTED[kind] | changes), sharpness=sharpness)
    factor = np.exp(noise * np.random.default_rng(7).standard_normal(len(rows)))
    shape = np.repeat(np.arange(len(SHAPES[kind])), len(rows) // len(SHAPES[kind]))
    return rows.assign(
        component=kind,
        hardware="h200_sxm",
        stack="mine",
        version="1.2.3",
        latency=predicted_time(kind, rows, H200, parameters) * factor,
        role=np.where(shape % 3 == 2, "judge", "fit"),
    )
