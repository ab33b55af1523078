"""Families that are read, those that are not, and models that see by what they hold.

A new family is a row in one of three tables, by what its layers have: it says in which columns of
`family.py` it differs from a dense Llama, or from a family like it.
"""

from specmodel.models.hf.families_dense import DENSE
from specmodel.models.hf.families_linear import RECURRENT
from specmodel.models.hf.families_moe import ROUTED
from specmodel.models.hf.family import Family

FAMILIES: dict[str, Family] = DENSE | ROUTED | RECURRENT
"""Families that are read, by `model_type` without the ending _text."""

OTHER_KINDS = {
    "linear attention": ("bailing_moe_linear", "olmo_hybrid"),
    "state-space layers": (
        "mamba", "mamba2", "falcon_mamba", "jamba", "zamba", "zamba2", "nemotron_h_puzzle",
    ),
    "streams and low-rank blocks beside its layers (altup_num_inputs, laurel_rank)": ("gemma3n",),
    "short convolutions in its layers": ("inkling2",),
}  # fmt: skip
"""Families that are refused, by what they have that no layer here describes."""

WRAPPERS = {
    "llama4": ("llama4_text",),
    "qwen3_vl": ("qwen3_vl_text",),
    "qwen3_vl_moe": ("qwen3_vl_moe_text",),
    "qwen3_5": ("qwen3_5_text",),
    "qwen3_5_moe": ("qwen3_5_moe_text",),
    "kimi_k25": ("kimi_k2", "deepseek_v3"),
    "kimi_k3": ("kimi_linear",),
    "glm5_next": ("glm5_next_text",),
    "deepseek_v41": ("deepseek_v41_text",),
    "bailing_moe_v3_vl": ("bailing_hybrid",),
    "mistral3": ("mistral", "ministral3", "mistral4", "deepseek_v3"),
    "kimi_vl": ("deepseek_v3",),
    "glm4v": ("glm4v_text",),
    "glm4v_moe": ("glm4v_moe_text",),
    "gemma3": ("gemma3_text",),
    "gemma4": ("gemma4_text",),
    "muse_glimmer": ("muse_glimmer_text",),
    "minimax_m3_vl": ("minimax_m3", "minimax_m3_text", "minimax_m3_vl_text"),
    "step3p7": ("step3p5",),
    "lfm2_vl": ("lfm2", "lfm2_moe"),
    "inkling_mm_model": ("inkling_text", "inkling_model"),
}
"""Models that see: by their `model_type`, the families that their `text_config` may have."""

FLAT = {"step3p7": "step3p5"}
"""Wrappers that are also published as the language model alone, and the family of that."""
