"""Write GGUF headers as llama.cpp's converters do for a configuration, without tensor data."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="needs gguf")

Q8_0, Q6_K, Q4_K = (gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q6_K", "Q4_K"))
MXFP4, F32, I32 = (gguf.GGMLQuantizationType[name] for name in ("MXFP4", "F32", "I32"))
FILE_TYPES = gguf.LlamaFileType
Tensors = dict[str, tuple[tuple[int, ...], Any]]


def write(
    path: Path,
    architecture: str,
    config: dict[str, Any],
    tensors: Tensors,
    file_type: int | None = None,
    split: tuple[int, int] | None = None,
) -> Path:
    """Write the header of a model, and make the file as long as with its tensors.

    `split` is the number of a part and the number of parts; parts after the first have no sizes.
    """
    writer = gguf.GGUFWriter(path, architecture)
    if config:
        of_every_model(writer, config)
        OF_FAMILY.get(architecture, lambda *_: None)(writer, config)
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


def tensors_of(config: dict[str, Any], weights: Any = Q8_0, head: Any = Q8_0) -> Tensors:
    """Return the tensors whose sizes or dtypes are read: embedding, head, some of a layer."""
    outer = (config["vocab_size"], config["hidden_size"])
    own = {"token_embd.weight": (outer, weights), "blk.0.attn_norm.weight": ((64,), F32)}
    if not config.get("tie_word_embeddings", config.get("tie_embedding")):
        own["output.weight"] = outer, head
    for i, kind in enumerate(config.get("layer_types", ())):
        if kind != "full_attention" or not config.get("attention_k_eq_v"):
            own[f"blk.{i}.attn_v.weight"] = (256, 256), weights
    return own | {"blk.0.attn_q.weight": ((2048, 2048), weights)}


def of_every_model(writer: Any, config: dict[str, Any]) -> None:
    """Write the keys that the converters' base class writes."""
    num_mtp = num_mtp_layers(writer.arch, config)
    writer.add_block_count(config["num_hidden_layers"] + num_mtp)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_token_list([f"<{i}>" for i in range(300)])
    writer.add_token_types([1] * 300)
    writer.add_rope_freq_base(10_000.0)
    for key, add in (
        ("max_position_embeddings", writer.add_context_length),
        ("intermediate_size", writer.add_feed_forward_length),
        ("num_attention_heads", writer.add_head_count),
        ("num_key_value_heads", writer.add_head_count_kv),
        ("head_dim", writer.add_key_length),
        ("head_dim", writer.add_value_length),
        ("num_local_experts", writer.add_expert_count),
        ("num_experts", writer.add_expert_count),
        ("num_experts_per_tok", writer.add_expert_used_count),
        ("top_k_experts", writer.add_expert_used_count),
        ("n_group", writer.add_expert_group_count),
        ("topk_group", writer.add_expert_group_used_count),
    ):
        value = config.get(key)
        if key == "num_key_value_heads":
            value = kv_heads(writer.arch, config)
        if value is not None:
            add(value)
    if num_mtp:
        writer.add_nextn_predict_layers(num_mtp)


def num_mtp_layers(architecture: str, config: dict[str, Any]) -> int:
    """Return the number of blocks for multi-token prediction that the converter keeps."""
    if architecture not in ("glm4moe", "qwen35", "qwen35moe"):
        return 0
    return config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers") or 0


def kv_heads(architecture: str, config: dict[str, Any]) -> int | list[int] | None:
    """Return the number of key-value heads: 1 for latents, and a list if some layers have none."""
    heads = config.get("num_key_value_heads")
    if architecture == "deepseek2":
        return 1
    if architecture not in ("lfm2", "lfm2moe", "granitehybrid"):
        return heads
    full, listed = ("full_attention", "attention"), config.get("layer_types")
    if listed:
        return [heads if kind in full else 0 for kind in listed]
    return [heads * (i in config["full_attn_idxs"]) for i in range(config["num_hidden_layers"])]


def _experts(writer: Any, config: dict[str, Any]) -> None:
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _delta_net(writer: Any, config: dict[str, Any]) -> None:
    if "moe_intermediate_size" in config:
        _experts(writer, config)
    value_heads = config["linear_num_value_heads"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(value_heads)
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * value_heads)
    writer.add_full_attention_interval(4)


def _as_deepseek(writer: Any, config: dict[str, Any]) -> None:
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])


def _latents(writer: Any, config: dict[str, Any]) -> None:
    _as_deepseek(writer, config)
    rank, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(rank + rotary)
    writer.add_value_length(rank)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rotary)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(rotary)


def _gpt_oss(writer: Any, config: dict[str, Any]) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])


def _gemma3(writer: Any, config: dict[str, Any]) -> None:
    writer.add_key_length(config.get("head_dim", 256))
    writer.add_head_count_kv(config.get("num_key_value_heads", 4))
    writer.add_sliding_window(config["sliding_window"])


def _gemma4(writer: Any, config: dict[str, Any]) -> None:
    num_readers = config["num_kv_shared_layers"]
    windowed = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_sliding_window(config["sliding_window"])
    writer.add_shared_kv_layers(num_readers)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern(windowed)
    writer.add_key_length(config["global_head_dim"])
    writer.add_key_length_swa(config["head_dim"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config["use_double_wide_mlp"]:
        own = [config["intermediate_size"]] * (len(windowed) - num_readers)
        writer.add_feed_forward_length(own + [2 * own[0]] * num_readers)
    full, heads = config["num_global_key_value_heads"], config["num_key_value_heads"]
    if full is not None:
        writer.add_head_count_kv([heads if is_windowed else full for is_windowed in windowed])


def _lfm2_moe(writer: Any, config: dict[str, Any]) -> None:
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_leading_dense_block_count(config["num_dense_layers"])
    writer.add_shortconv_l_cache(config["conv_L_cache"])


def _lfm2(writer: Any, config: dict[str, Any]) -> None:
    multiple, wide = config["block_multiple_of"], int(2 * config["block_ff_dim"] / 3)
    writer.add_feed_forward_length((wide + multiple - 1) // multiple * multiple)
    writer.add_shortconv_l_cache(config["conv_L_cache"])


def _granite_hybrid(writer: Any, config: dict[str, Any]) -> None:
    _granite(writer, config)
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_group_count(config["mamba_n_groups"])
    writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
    writer.add_ssm_time_step_rank(config["mamba_n_heads"])


def _granite(writer: Any, config: dict[str, Any]) -> None:
    if config.get("shared_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])


OF_FAMILY = {
    "qwen2moe": _experts,
    "qwen3moe": _experts,
    "qwen3vlmoe": _experts,
    "qwen3next": _delta_net,
    "qwen35": _delta_net,
    "qwen35moe": _delta_net,
    "deepseek2": _latents,
    "glm4moe": _as_deepseek,
    "dots1": _as_deepseek,
    "gpt-oss": _gpt_oss,
    "gemma2": _gemma3,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "lfm2": _lfm2,
    "lfm2moe": _lfm2_moe,
    "granitemoe": _granite,
    "granitehybrid": _granite_hybrid,
    "phimoe": lambda writer, config: writer.add_sliding_window(config["sliding_window"]),
    "minimax-m2": lambda writer, config: writer.add_expert_feed_forward_length(
        config["intermediate_size"]
    ),
}
