"""A Qwen3-MoE of random weights and a drafter that is its first layers, as files.

Later layers of the target are damped: the more, the more often the drafter is right. Weights are
random, so routing is nearly balanced.
"""

from pathlib import Path
from typing import Any

from random_weights import describe, drawn, save

Shapes = dict[str, tuple[int, ...]]
"""Shapes of weights by their names in a checkpoint, or after the name of their layer."""

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
    "hidden_size": 1024, "intermediate_size": 2048, "moe_intermediate_size": 512,
    "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 32, "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "vocab_size": 8192, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu", "tie_word_embeddings": False,
    "attention_bias": False, "use_sliding_window": False, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
"""Eight layers of 32 experts: 0.9 GB in bf16, nearly all of them experts."""

DAMPING = 0.01
"""Of the outputs of later layers: drafts of one token are right nine times out of ten."""


def models(
    folder: Path,
    config: dict[str, Any] = CONFIG,
    damping: float = DAMPING,
    draft_layers: int = 1,
) -> None:
    """Write the target, the drafter that is its first layers, and a tokenizer of both."""
    weights = drawn(shapes(config))
    for name, weight in weights.items():
        if name.endswith(OUTPUTS) and _layer(name) >= draft_layers:
            weight *= damping
    first = {n: w for n, w in weights.items() if ".layers." not in n or _layer(n) < draft_layers}
    for kind, own_config, kept in (
        ("target", config, weights),
        ("drafter", config | {"num_hidden_layers": draft_layers}, first),
    ):
        describe(folder / kind, own_config)
        save(kept, folder / kind)


OUTPUTS = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
"""Ends of names of matrices whose products are added to what a layer was given."""


def _layer(name: str) -> int:
    return int(name.split(".")[2])


def shapes(config: dict[str, Any]) -> Shapes:
    """Return the shape of each weight of a Qwen3-MoE, by its name in a checkpoint."""
    found = ends(config)
    for layer in range(config["num_hidden_layers"]):
        block = {**norms(config), **attention(config), **experts(config)}
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    return found


def ends(config: dict[str, Any]) -> Shapes:
    """Return shapes of what comes before and after the layers."""
    vocabulary, h = config["vocab_size"], config["hidden_size"]
    embedding = {f"{name}.weight": (vocabulary, h) for name in ("model.embed_tokens", "lm_head")}
    return {**embedding, "model.norm.weight": (h,)}


def norms(config: dict[str, Any]) -> Shapes:
    """Return shapes of a layer's norms."""
    h = config["hidden_size"]
    return {f"{name}.weight": (h,) for name in ("input_layernorm", "post_attention_layernorm")}


def attention(config: dict[str, Any], gates: int = 0) -> Shapes:
    """Return shapes of grouped-query attention, with so many gates beside each query."""
    h, d = config["hidden_size"], config["head_dim"]
    q, kv = (d * config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    own: Shapes = {"q_proj": (q * (1 + gates), h), "k_proj": (kv, h)}
    own |= {"v_proj": (kv, h), "o_proj": (h, q), "q_norm": (d,), "k_norm": (d,)}
    return {f"self_attn.{name}.weight": shape for name, shape in own.items()}


def experts(config: dict[str, Any]) -> Shapes:
    """Return shapes of a router and its experts."""
    h, w, n = (config[k] for k in ("hidden_size", "moe_intermediate_size", "num_experts"))
    found: Shapes = {"mlp.gate.weight": (n, h)}
    for expert in range(n):
        found |= feed_forward(f"mlp.experts.{expert}", h, w)
    return found


def feed_forward(name: str, hidden_size: int, width: int) -> Shapes:
    """Return shapes of a gated feed-forward network."""
    up = {f"{name}.{part}_proj.weight": (width, hidden_size) for part in ("gate", "up")}
    return {**up, f"{name}.down_proj.weight": (hidden_size, width)}
