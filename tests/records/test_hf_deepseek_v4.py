"""Configurations of DeepSeek-V4: plans of layers, dtypes of checkpoints, and what is refused."""

import json
from pathlib import Path

import pytest

from specmodel.base.errors import InputError
from specmodel.records.architecture import Architecture, load_architecture

TABLE = json.loads((Path(__file__).parents[1] / "data/configurations.json").read_text())
FLASH = next(r["config"] for r in TABLE["read"] if "deepseek-ai--DeepSeek-V4-Flash" in r["names"])
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}
NVFP4 = FP8 | {
    "quant_algo": "MIXED_PRECISION",
    "moe_quant_algo": "NVFP4",
    "group_size": 16,
    "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}},
    "ignore": ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"],
}
NAMES = ["compressed_sparse_attention", "heavily_compressed_attention"]


@pytest.fixture
def read(tmp_path):
    def read_config(**changes):
        path = tmp_path / "config.json"
        config = {k: v for k, v in (FLASH | changes).items() if v is not None}
        path.write_text(json.dumps(config), encoding="utf-8")
        return Architecture.from_hf_config(path)

    return read_config


def ratios(model):
    return {group.mixer.ratio: group.count for group in model.layers}


def test_what_ships_is_what_the_configuration_says(read):
    shipped, model = (
        load_architecture("deepseek-v4-flash"),
        read(expert_dtype="fp4", quantization_config=FP8),
    )
    for name in ("mixers", "feed_forwards", "residuals", "mtp_layer", "num_norms", "parts"):
        assert getattr(shipped, name) == getattr(model, name)
    assert shipped.stream == model.stream


@pytest.mark.parametrize(("changes", "weights", "experts"), [
    ({"expert_dtype": "fp4", "quantization_config": FP8}, "fp8_block", "mxfp4"),
    ({"quantization_config": FP8 | {"expert_dtype": "fp4"}}, "fp8_block", "mxfp4"),
    ({"expert_dtype": "fp8", "quantization_config": FP8}, "fp8_block", None),
    ({"model_type": "deepseek_ref", "quantization_config": FP8}, "fp8_block", None),
    ({"expert_dtype": "fp4", "quantization_config": NVFP4}, "fp8_block", "fp4"),
    ({}, "bf16", None),
])  # fmt: skip
def test_dtypes_of_checkpoints(read, changes, weights, experts):
    """What is cached has 8 bits in all of them, as engines have it."""
    model = read(**changes)
    assert (model.weight_dtype, model.expert_dtype) == (weights, experts)
    assert model.kv_dtype == "fp8"


def test_file_beside_that_repeats_experts(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FLASH | {"quantization_config": NVFP4}))
    record = {"quant_algo": "MIXED_PRECISION", "quantized_layers": NVFP4["quantized_layers"]}
    beside = {"quantization": record | {"exclude_modules": NVFP4["ignore"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    with pytest.raises(InputError, match="expert_dtype: got None; expected fp4 or fp8"):
        Architecture.from_hf_config(tmp_path)
    given = FLASH | {"quantization_config": NVFP4, "expert_dtype": "fp4"}
    (tmp_path / "config.json").write_text(json.dumps(given))
    assert Architecture.from_hf_config(tmp_path).expert_dtype == "fp4"


def test_kinds_that_transformers_lists(read):
    types = ["sliding_attention"] * 2 + NAMES * 20 + NAMES[:1]
    listed = read(compress_ratios=None, layer_types=types)
    assert ratios(listed) == ratios(read()) == {0: 2, 4: 21, 128: 20}
    rates = dict(zip(NAMES, (4, 128), strict=True))
    assert ratios(read(compress_ratios=None, layer_types=types, compress_rates=rates)) == {
        0: 2, 4: 21, 128: 20
    }  # fmt: skip


def test_ratios_without_those_of_modules(read):
    assert ratios(read(compress_ratios=FLASH["compress_ratios"][:43])) == ratios(read())


@pytest.mark.parametrize(("changes", "message"), [
    ({"compress_ratios": [0] * 42}, "compress_ratios: got .*43 ratios"),
    ({"compress_ratios": None}, "compress_ratios: got None"),
    ({"compress_ratios": [0, 2, *FLASH["compress_ratios"][2:]]}, "compress_ratios: .*0, 4, 128"),
    ({"compress_ratios": [*FLASH["compress_ratios"][:-1], 4]}, "compress_ratios: .*modules"),
    ({"compress_ratios": None, "layer_types": NAMES * 21 + NAMES[:1], "compress_rates":
      {NAMES[0]: 8}}, "compress_rates: got"),
    ({"layer_types": NAMES * 21 + NAMES[:1]}, "layer_types: got .*compress_ratios"),
    ({"o_groups": 7}, "o_groups: got 7; .*divisor of num_attention_heads = 64"),
    ({"num_key_value_heads": 2}, "num_key_value_heads: got 2; expected 1"),
    ({"hc_mult": None}, "hc_mult: got None"),
    ({"sliding_window": None}, "sliding_window: got None"),
    ({"index_topk": None}, "index_topk: got None"),
    ({"kv_source_layer_ids": [2]}, "kv_source_layer_ids: got"),
    ({"index_kpool": 4}, "index_kpool: got 4"),
    ({"quantization_config": FP8}, "expert_dtype: got None; expected fp4 or fp8"),
    ({"quantization_config": NVFP4 | {"moe_quant_algo": "W4A8"}, "expert_dtype": "fp4"},
     "moe_quant_algo: got 'W4A8'"),
])  # fmt: skip
def test_what_is_not_understood_is_refused_by_its_key(read, changes, message):
    with pytest.raises(InputError, match=message) as error:
        read(**changes)
    assert "\n" not in str(error.value)
