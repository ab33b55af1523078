"""Rows of families whose layers all have attention and a dense block; columns: `family.py`."""

from dataclasses import replace

from specmodel.models.hf.family import MTP_KEYS, Family

WINDOWED = Family(has_windows=True, plan="interval", interval_key="sliding_window_pattern")
_GLM4 = Family(kv_heads=2, head_dim=128)
_GEMMA = Family(ties_embeddings=True, head_dim=256)
QWEN = Family(
    kv_heads=32,
    has_windows=True,
    sliding_window=4096,
    window_switch="use_sliding_window",
    first_windowed=28,
)

DENSE = {
    "llama": Family(),
    "arcee": Family(is_gated=False),
    "cohere2": replace(WINDOWED, interval=4, sliding_window=4096, ties_embeddings=True),
    "ernie4_5": Family(kv_heads=2, head_dim=128, ties_embeddings=True),
    "exaone4": replace(WINDOWED, interval=4, sliding_window=4096),
    "gemma": _GEMMA,
    "gemma2": replace(
        _GEMMA, has_windows=True, plan="interval", interval=2, kv_heads=4, sliding_window=4096
    ),
    "gemma3": replace(
        WINDOWED,
        head_dim=256,
        ties_embeddings=True,
        interval=6,
        kv_heads=4,
        sliding_window=4096,
    ),
    "glm": _GLM4,
    "glm4": _GLM4,
    "glm4v": _GLM4,
    "granite": Family(),
    "hunyuan_v1_dense": Family(),
    "mimo": replace(QWEN, harmless=MTP_KEYS),
    "ministral3": Family(),
    "mistral": Family(kv_heads=8, has_windows=True, sliding_window=4096),
    "muse_glimmer": replace(
        WINDOWED, kv_heads=2, head_dim=128, has_output_gate=True, interval=4, interval_key=None
    ),
    "nemotron-nas": Family(dense_size=None, own_rules="search", harmless="block_configs"),
    "olmo2": Family(),
    "olmo3": replace(WINDOWED, interval=4, interval_key=None, sliding_window=4096),
    "opt": Family(
        dense_size="ffn_dim",
        ties_embeddings=True,
        is_gated=False,
        positions_offset=2,
        harmless="_remove_final_layer_norm",
    ),
    "qwen2": QWEN,
    "qwen3": replace(QWEN, head_dim=128),
    "qwen3_vl": Family(kv_heads=32, head_dim=128),
    "seed_oss": Family(kv_heads=8, head_dim=128),
    "smollm3": Family(
        kv_heads=4,
        ties_embeddings=True,
        window_switch="use_sliding_window",
        harmless="no_rope_layer_interval no_rope_layers",
    ),
}
