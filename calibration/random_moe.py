"""A Qwen3-MoE of random weights, a drafter that is its first layers, and a tokenizer, as files.

Later layers of the target are damped: the more, the more often the drafter is right. Weights are
random, so routing is nearly balanced.
"""

import json
from pathlib import Path
from typing import Any

from specmodel.base.files import write_text

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
    import torch

    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.empty(shape).normal_(0.0, shape[-1] ** -0.5, generator=generator)
        if len(shape) > 1
        else torch.ones(shape)
        for name, shape in shapes(config).items()
    }
    for name, weight in weights.items():
        is_output = name.endswith(("o_proj.weight", "down_proj.weight"))
        if is_output and int(name.split(".")[2]) >= draft_layers:
            weight *= damping
    first = {n: w for n, w in weights.items() if ".layers." not in n or _layer(n) < draft_layers}
    for kind, own_config, kept in (
        ("target", config, weights),
        ("drafter", config | {"num_hidden_layers": draft_layers}, first),
    ):
        describe(folder / kind, own_config)
        save({name: weight.to(torch.bfloat16) for name, weight in kept.items()}, folder / kind)


def describe(folder: Path, config: dict[str, Any]) -> None:
    """Write a configuration and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", json.dumps(config, indent=2))
    for name, text in tokenizer(config["vocab_size"]).items():
        write_text(folder / name, json.dumps(text))


def _layer(name: str) -> int:
    return int(name.split(".")[2])


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a Qwen3-MoE, by its name in a checkpoint."""
    h, w, d = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    q, kv = (d * config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    vocabulary = config["vocab_size"]
    found = {"model.embed_tokens": (vocabulary, h), "model.norm": (h,), "lm_head": (vocabulary, h)}
    for layer in (f"model.layers.{i}" for i in range(config["num_hidden_layers"])):
        found |= {
            f"{layer}.{name}": (h,) for name in ("input_layernorm", "post_attention_layernorm")
        }
        attention = {"q_proj": (q, h), "k_proj": (kv, h), "v_proj": (kv, h), "o_proj": (h, q)}
        attention |= {"q_norm": (d,), "k_norm": (d,)}
        found |= {f"{layer}.self_attn.{name}": shape for name, shape in attention.items()}
        found[f"{layer}.mlp.gate"] = (config["num_experts"], h)
        for expert in range(config["num_experts"]):
            block = {"gate_proj": (w, h), "up_proj": (w, h), "down_proj": (h, w)}
            found |= {f"{layer}.mlp.experts.{expert}.{n}": shape for n, shape in block.items()}
    return {f"{name}.weight": shape for name, shape in found.items()}


def save(weights: dict[str, Any], folder: Path) -> None:
    """Write weights in bf16 as a file of safetensors: a header in JSON, then the bytes."""
    import torch

    header, end = {}, 0
    for name, weight in weights.items():
        start, end = end, end + 2 * weight.numel()
        shape = list(weight.shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for weight in weights.values():
            file.write(weight.contiguous().view(torch.uint8).numpy().tobytes())


def tokenizer(size: int) -> dict[str, Any]:
    """Return files of a tokenizer of so many words, t0 and t1 at the beginning and the end."""
    words = {f"t{i}": i for i in range(size)}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": None, "model": {"type": "WordLevel", "vocab": words, "unk_token": "t2"},
    }  # fmt: skip
    ends = {"bos_token": "t0", "eos_token": "t1", "unk_token": "t2"}
    return {
        "tokenizer.json": whole,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **ends},
    }
