"""A Qwen3-Next of random weights with its block for multi-token prediction, as files.

Three layers of four are gated delta nets. All layers are damped, so that the next token depends on
the last one nearly alone, and so does the drafted one: the block hands on the token's embedding.
"""

from pathlib import Path
from typing import Any

import random_moe
from random_moe import OUTPUTS, Shapes, attention, ends, experts, feed_forward, norms
from random_weights import describe, drawn, save

LAYERS = (["linear_attention"] * 3 + ["full_attention"]) * 2

CONFIG: dict[str, Any] = random_moe.CONFIG | {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "layer_types": LAYERS,
    "shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.25,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 8,
    "linear_num_value_heads": 16, "linear_conv_kernel_dim": 4, "num_nextn_predict_layers": 1,
}  # fmt: skip
"""The Qwen3-MoE with other mixers and an expert more that all tokens take: 1.1 GB in bf16."""

DAMPING = 0.001
"""Of the outputs of all layers."""


def models(folder: Path, config: dict[str, Any] = CONFIG, damping: float = DAMPING) -> None:
    """Write the target, which brings its drafter, and a tokenizer."""
    import torch

    weights = drawn(shapes(config))
    for name, weight in weights.items():
        if name.endswith(OUTPUTS):
            weight *= damping
        elif "norm" in name and ".linear_attn." not in name:
            weight *= 0.0  # one is added to these
    h = config["hidden_size"]
    weights["mtp.fc.weight"] = torch.cat([torch.eye(h), torch.zeros(h, h)], dim=1)
    describe(folder / "target", config)
    save(weights, folder / "target")


def shapes(config: dict[str, Any]) -> Shapes:
    """Return the shape of each weight of a Qwen3-Next, by its name in a checkpoint."""
    h = config["hidden_size"]
    found = ends(config) | {"mtp.fc.weight": (h, 2 * h)}
    names = ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
    found |= {f"mtp.{name}.weight": (h,) for name in names}
    layers = [(f"model.layers.{i}", kind) for i, kind in enumerate(config["layer_types"])]
    for layer, kind in (*layers, ("mtp.layers.0", "full_attention")):
        mixer = attention(config, 1) if kind == "full_attention" else delta_net(config)
        block = {**norms(config), **mixer, **experts(config), **shared_expert(config)}
        found |= {f"{layer}.{name}": shape for name, shape in block.items()}
    return found


def delta_net(config: dict[str, Any]) -> Shapes:
    """Return shapes of a gated delta net."""
    h, keys, values, d_k, d_v, width = (
        config[name]
        for name in (
            "hidden_size", "linear_num_key_heads", "linear_num_value_heads",
            "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
        )
    )  # fmt: skip
    k, v = keys * d_k, values * d_v
    own: Shapes = {"in_proj_qkvz.weight": (2 * k + 2 * v, h), "in_proj_ba.weight": (2 * values, h)}
    own |= {"conv1d.weight": (2 * k + v, 1, width), "A_log": (values,), "dt_bias": (values,)}
    own |= {"norm.weight": (d_v,), "out_proj.weight": (h, v)}
    return {f"linear_attn.{name}": shape for name, shape in own.items()}


def shared_expert(config: dict[str, Any]) -> Shapes:
    """Return shapes of the expert that all tokens take and of its gate."""
    h, width = config["hidden_size"], config["shared_expert_intermediate_size"]
    return {
        **feed_forward("mlp.shared_expert", h, width),
        "mlp.shared_expert_gate.weight": (1, h),
    }
