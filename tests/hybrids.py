"""Models with recurrent layers, built from records with the numbers of their configurations."""

import json

from specmodel import Architecture
from specmodel.core.base import as_table, build

LAYERS = {
    # hidden, GDN layers, key and value heads, attention heads and KV heads, feed-forward, tied
    "Qwen3.5-35B-A3B": (2048, 30, (16, 32), (16, 2), (256, 8, 512)),
    "Qwen3.5-122B-A10B": (3072, 36, (16, 64), (32, 2), (256, 8, 1024)),
    "Qwen3.5-397B-A17B": (4096, 45, (16, 64), (32, 2), (512, 10, 1024)),
    "Qwen3.5-27B": (5120, 48, (16, 48), (24, 4), 17408),
    "Qwen3.8-2.4T-A95B": (8192, 69, (16, 128), (64, 4), (512, 10, 2048)),
    "Qwen3-Next-80B-A3B": (2048, 36, (16, 32), (16, 2), (512, 10, 512)),
}
"""Hidden size, recurrent layers (a third as many attend), heads of both, and the experts (how
many, a token's and their width) or the width of a dense block."""


def made(name, layers, hidden_size, vocabulary_size):
    """Return a model of these groups of layers."""
    origin = {"schema_version": 2, "name": name, "source": "public configuration of the model"}
    sizes = {"hidden_size": hidden_size, "vocabulary_size": vocabulary_size}
    return build(Architecture, origin | sizes | {"layers": layers}, "model")


def hybrid(name, **changes):
    """Return a model of Qwen's with a gated delta net in three of four layers."""
    hidden, recurrent, (keys, values), (heads, kv_heads), block = LAYERS[name]
    net = {"kind": "gated_delta_net", "num_key_heads": keys, "num_value_heads": values}
    net |= {"key_head_dim": 128, "value_head_dim": 128, "conv_kernel": 4}
    attention = {"kind": "attention", "num_heads": heads, "num_kv_heads": kv_heads}
    attention |= {"head_dim": 256, "has_output_gate": True}
    shared = {"kind": "dense", "ffn_size": block}
    if isinstance(block, tuple):
        num_experts, used, width = block
        shared = {"kind": "experts", "num_experts": num_experts, "experts_per_token": used}
        shared |= {"expert_size": width, "num_shared_experts": 1, "shared_expert_size": width}
    layers = [
        {"count": count, "mixer": mixer, "feed_forward": shared}
        for count, mixer in ((recurrent, net), (recurrent // 3, attention))
    ]
    model = made(name, layers, hidden, 151936 if "Next" in name else 248320)
    return model.with_changes("target", changes) if changes else model


def toml_of(model):
    """Return the text of the file that a model would be read from."""
    fields = as_table(model, lambda field, value: value is not None)
    layers = fields.pop("layers")
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    for group in layers:
        lines += ["[[layers]]", f"count = {group['count']}"]
        for part in ("mixer", "feed_forward"):
            own = group.get(part, {})
            lines += [f"[layers.{part}]", *(f"{n} = {json.dumps(v)}" for n, v in own.items())]
    return "\n".join(lines) + "\n"


def one_delta_layer(num_heads):
    """Return a model of one layer of Kimi delta attention, heads of 128."""
    mixer = {"kind": "kimi_delta_attention", "num_heads": num_heads, "head_dim": 128}
    layers = [{"count": 1, "mixer": mixer | {"conv_kernel": 4}}]
    return made("one layer", layers, 7168, 1000)
