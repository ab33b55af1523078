"""Write GGUF headers as llama.cpp's converters do for a configuration, without tensor data."""

import tomllib
from math import prod
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="needs gguf")

Q8_0, Q6_K, Q4_K = (gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q6_K", "Q4_K"))
MXFP4, F32, I32 = (gguf.GGMLQuantizationType[name] for name in ("MXFP4", "F32", "I32"))
FILE_TYPES = gguf.LlamaFileType
KEYS = tomllib.loads((Path(__file__).parent / "data/gguf_keys.toml").read_text(encoding="utf-8"))


def write(path, architecture, config, tensors, file_type=None, split=None):
    """Write the header of a model, and make the file as long as with its tensors.

    `split` is the number of a part and the number of parts; parts after the first have no sizes.
    """
    writer = gguf.GGUFWriter(path, architecture)
    if config:
        add_sizes(writer, config)
    if file_type is not None:
        writer.add_file_type(file_type)
    if split:
        writer.add_uint16("split.no", split[0])
        writer.add_uint16("split.count", split[1])
    size = 0
    for name, (sizes, kind) in tensors.items():
        block, taken = gguf.GGML_QUANT_SIZES[kind]
        held = prod(sizes) // block * taken
        size += -(-held // 32) * 32
        writer.add_tensor_info(name, sizes, np.dtype(np.float32), held, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size + 32)
    return path


def tensors_of(config, weights=Q8_0, head=Q8_0):
    """Return the tensors whose sizes or dtypes are read: embedding, head, some of a layer."""
    outer = (config["vocab_size"], config["hidden_size"])
    own = {"token_embd.weight": (outer, weights), "blk.0.attn_norm.weight": ((64,), F32)}
    if not config.get("tie_word_embeddings", config.get("tie_embedding")):
        own["output.weight"] = outer, head
    for i, kind in enumerate(config.get("layer_types", ())):
        if kind != "full_attention" or not config.get("attention_k_eq_v"):
            own[f"blk.{i}.attn_v.weight"] = (256, 256), weights
    return own | {"blk.0.attn_q.weight": ((2048, 2048), weights)}


def add_sizes(writer, config):
    """Write the keys of a configuration that converters write, and what they compute of them."""
    num_mtp = num_mtp_layers(writer.arch, config)
    writer.add_block_count(config["num_hidden_layers"] + num_mtp)
    writer.add_token_list([f"<{i}>" for i in range(300)])
    writer.add_token_types([1] * 300)
    writer.add_rope_freq_base(10_000.0)
    if num_mtp:
        writer.add_nextn_predict_layers(num_mtp)
    heads = kv_heads(writer.arch, config)
    if heads is not None:
        writer.add_head_count_kv(heads)
    for section in ["every", *KEYS["sections"].get(writer.arch, "").split()]:
        for key, names in KEYS[section].items():
            for name in names.split() if config.get(key) is not None else ():
                getattr(writer, f"add_{name}")(config[key])
        COMPUTED.get(section, lambda *_: None)(writer, config)
    COMPUTED.get(writer.arch, lambda *_: None)(writer, config)


def num_mtp_layers(architecture, config):
    """Return the number of blocks for multi-token prediction that the converter keeps."""
    if architecture not in ("glm4moe", "qwen35", "qwen35moe"):
        return 0
    return config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers") or 0


def kv_heads(architecture, config):
    """Return the number of key-value heads: 1 for latents, and a list if some layers have none."""
    heads = config.get("num_key_value_heads")
    if architecture == "deepseek2":
        return 1
    if architecture == "gemma4" and (full := config["num_global_key_value_heads"]) is not None:
        return [heads if kind == "sliding_attention" else full for kind in config["layer_types"]]
    if architecture not in ("lfm2", "lfm2moe", "granitehybrid"):
        return heads
    full, listed = ("full_attention", "attention"), config.get("layer_types")
    if listed:
        return [heads if kind in full else 0 for kind in listed]
    return [heads * (i in config["full_attn_idxs"]) for i in range(config["num_hidden_layers"])]


def _delta_net(writer, config):
    inner = config["linear_value_head_dim"] * config["linear_num_value_heads"]
    writer.add_ssm_inner_size(inner)
    writer.add_full_attention_interval(4)


def _latents(writer, config):
    rotary = config["qk_rope_head_dim"]
    writer.add_key_length(config["kv_lora_rank"] + rotary)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rotary)


def _gemma(writer, config):
    writer.add_key_length(config.get("head_dim", 256))
    writer.add_head_count_kv(config.get("num_key_value_heads", 4))


def _gemma4(writer, config):
    windowed = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_sliding_window_pattern(windowed)
    if config["use_double_wide_mlp"]:
        num_readers = config["num_kv_shared_layers"]
        own = [config["intermediate_size"]] * (len(windowed) - num_readers)
        writer.add_feed_forward_length(own + [2 * own[0]] * num_readers)


def _lfm2(writer, config):
    multiple, wide = config["block_multiple_of"], int(2 * config["block_ff_dim"] / 3)
    writer.add_feed_forward_length((wide + multiple - 1) // multiple * multiple)


def _mamba(writer, config):
    writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])


COMPUTED = {
    "delta_net": _delta_net, "latents": _latents, "gemma2": _gemma, "gemma3": _gemma,
    "gemma4": _gemma4, "lfm2": _lfm2, "mamba": _mamba,
}  # fmt: skip
