"""Models with recurrent layers, built with the numbers of their configurations."""

import json
from pathlib import Path

from specmodel import Architecture
from specmodel.core.base import build

LAYERS = json.loads((Path(__file__).parent / "data/hybrids.json").read_text(encoding="utf-8"))
"""Hidden size; number of recurrent layers (attention layers are a third as many); heads of both;
experts (number, number per token, width) or the width of a dense block."""


def made(name, layers, hidden_size, vocabulary_size):
    """Return a model with these groups of layers."""
    origin = {"schema_version": 2, "name": name, "source": "public configuration of the model"}
    sizes = {"hidden_size": hidden_size, "vocabulary_size": vocabulary_size}
    return build(Architecture, origin | sizes | {"layers": layers}, "model")


def hybrid(name, **changes):
    """Return a Qwen model with a gated delta net in three of four layers."""
    hidden, recurrent, (keys, values), (heads, kv_heads), block = LAYERS[name]
    net = {"kind": "gated_delta_net", "num_key_heads": keys, "num_value_heads": values}
    net |= {"key_head_dim": 128, "value_head_dim": 128, "conv_kernel": 4}
    attention = {"kind": "attention", "num_heads": heads, "num_kv_heads": kv_heads}
    attention |= {"head_dim": 256, "has_output_gate": True}
    shared = {"kind": "dense", "ffn_size": block}
    if isinstance(block, list):
        num_experts, used, width = block
        shared = {"kind": "experts", "num_experts": num_experts, "experts_per_token": used}
        shared |= {"expert_size": width, "num_shared_experts": 1, "shared_expert_size": width}
    groups = {"count": recurrent, "mixer": net}, {"count": recurrent // 3, "mixer": attention}
    layers = [group | {"feed_forward": shared} for group in groups]
    model = made(name, layers, hidden, 151936 if "Next" in name else 248320)
    return model.with_changes("target", changes) if changes else model


def one_delta_layer(num_heads):
    """Return a model with one layer of Kimi delta attention with heads of size 128."""
    mixer = {"kind": "kimi_delta_attention", "num_heads": num_heads, "head_dim": 128}
    layers = [{"count": 1, "mixer": mixer | {"conv_kernel": 4}}]
    return made("one layer", layers, 7168, 1000)
