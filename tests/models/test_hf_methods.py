"""Methods of quantisation of single tools: bytes by closed forms, what is left out, refusals.

Keys of records are those that each tool writes.
"""

import configs
import pytest
from configs import flat
from printed import refused
from rows import each_row, listed, values_of

from specmodel import InputError
from specmodel.core.layers import Layout

DENSE = flat("meta-llama--Meta-Llama-3.1-8B", num_hidden_layers=4)
MOE = flat("Qwen--Qwen3-30B-A3B", num_hidden_layers=4)
LINEAR = 4 * (2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336)
OUTER = 128_256 * 4096
"""Parameters of all linear layers of the dense model, and of its embedding or its LM head."""

AUTO = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
MLX = {"group_size": 64, "bits": 4, "mode": "affine"}
MXFP8 = {"quant_method": "mxfp8", "weight_block_size": [1, 32], "ignored_layers": ["lm_head"]}
FP_QUANT = {"quant_method": "fp_quant", "forward_dtype": "mxfp4", "forward_method": "abs_max"}
FP_QUANT |= {"hadamard_group_size": 32, "pseudoquantization": False, "transform_init": "hadamard"}
FP_QUANT |= {"store_master_weights": False, "modules_to_not_convert": ["lm_head"]}
ROWS = {"granularity": {"_type": "PerRow", "_data": {}, "_version": 1}}


def ao(kind, **data):
    return {"_type": kind, "_data": data, "_version": 2}


def torchao(form, **keys):
    return {"quant_method": "torchao", "quant_type": {"default": form}, **keys}


FLOAT8 = ao("Float8DynamicActivationFloat8WeightConfig", **ROWS)


def read(config, record, key="quantization_config"):
    return configs.read(config, **{key: record})


@each_row(
    ("record", "bits", "scales", "group", "activations"),
    values_of("quantisation.txt", "single tools"),
)
def test_bytes_of_linear_layers_with_their_scales(record, bits, scales, group, activations):
    model, plain = read(DENSE, record), read(DENSE, None)
    saved = plain.weight_bytes(Layout()) - model.weight_bytes(Layout())
    assert saved == pytest.approx(LINEAR * (2 - (bits + scales / group) / 8), rel=1e-12)
    assert model.activation_dtype == activations


@each_row("key", ["quantization", "quantization_config"])
@listed
def test_mlx_quantises_the_embedding_and_the_head_as_well(changes, bits, scales, group, key):
    """Also a tied one, and under either of the two keys that MLX writes."""
    for is_tied in (False, True):
        config = DENSE | {"tie_word_embeddings": is_tied}
        model, plain = read(config, MLX | changes, key), read(config, None)
        saved = plain.weight_bytes(Layout()) - model.weight_bytes(Layout())
        num_weights = LINEAR + OUTER * (1 if is_tied else 2)
        assert saved == pytest.approx(num_weights * (2 - (bits + scales / group) / 8), rel=1e-12)


def test_modules_of_mlx_with_bits_of_their_own():
    own = {f"model.layers.{i}.mlp.gate": MLX | {"bits": 8} for i in range(4)}
    down = {f"model.layers.{i}.self_attn.o_proj": MLX | {"bits": 8} for i in range(4)}
    experts = {f"model.layers.{i}.mlp.switch_mlp": MLX | {"group_size": 128} for i in range(4)}
    outer = {"model.embed_tokens": False, "lm_head": MLX | {"bits": 8}}
    model = read(MOE, MLX | own | down | experts | outer)
    assert (model.attention_dtype or model.weight_dtype) == "int4_g32"
    assert {group.output_dtype for group in model.layers} == {"int8_g32"}
    assert model.expert_dtype == "int4_g64"
    assert (model.outer_dtype, model.head_dtype) == ("bf16", "int8_g32")


def test_modules_of_auto_round_with_bits_of_their_own():
    named = {
        "lm_head": {"bits": 8, "group_size": 128},
        "model.layers.0.self_attn.q_proj": {"bits": 16, "data_type": "float"},
        r".*layers\.0\.self_attn\.(k|v|o)_proj": {"bits": 16},
        "model.layers.0.mlp.gate": {"bits": 16},
    }
    model = read(MOE, AUTO | {"extra_config": named, "block_name_to_quantize": "model.layers"})
    assert [group.mixer_dtype for group in model.layers] == ["bf16", None]
    assert (model.expert_dtype or model.weight_dtype) == "int4_g128"
    assert (model.outer_dtype, model.head_dtype) == ("bf16", "int8_g128")


def test_modules_of_torchao_with_a_format_of_their_own():
    int8, int4 = ao("Int8WeightOnlyConfig"), ao("Int4WeightOnlyConfig")
    named = {"_default": int4, "re:.*self_attn.*": int8, "model.layers.3.mlp.down_proj": None}
    named["model.layers.3.mlp.gate_proj"] = named["model.layers.3.mlp.up_proj"] = None
    model = read(DENSE, torchao(ao("FqnToConfig", fqn_to_config=named)))
    assert (model.attention_dtype, model.weight_dtype) == ("int8", "int4_g64")
    assert [(group.count, group.ffn_dtype) for group in model.layers] == [(3, None), (1, "bf16")]


@pytest.mark.parametrize("record", [FP_QUANT, torchao(FLOAT8)])
def test_experts_stay_in_16_bits_where_engines_quantise_linear_layers_alone(record):
    model = read(MOE, record)
    assert model.expert_dtype == "bf16"
    assert model.weight_dtype in ("mxfp4", "fp8")


def test_weights_of_mxfp8_may_name_what_is_left_out():
    model = read(MOE, MXFP8 | {"ignored_layers": ["lm_head", "re:.*self_attn.*"]})
    assert (model.expert_dtype or model.weight_dtype) == "mxfp8"
    assert (model.weight_dtype, model.head_dtype) == ("bf16", None)
    assert read(MOE, MXFP8 | {"ignored_layers": None}).head_dtype == "mxfp8"


@each_row(("record", "message"), values_of("quantisation.txt", "refused of single tools"))
def test_what_is_not_known_is_named(record, message):
    refused(message, read, DENSE, record)


def test_the_two_keys_of_mlx_must_agree():
    with pytest.raises(InputError, match=r"quantization: got .*the same as quantization_config"):
        read(DENSE | {"quantization_config": MLX | {"bits": 8}}, MLX, "quantization")
