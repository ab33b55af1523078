"""Quantised checkpoints: the dtypes a config.json gives, and lists that cannot be said with them.

The configurations are made up; names of modules and keys are those of the families.
"""

import pytest
from rows import each_row

from specmodel.base.errors import InputError
from specmodel.base.records import build
from specmodel.models.architecture import Architecture
from specmodel.models.hf.config import architecture_fields

DENSE = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 100,
    "intermediate_size": 128,
}
MIXTRAL = DENSE | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK = DENSE | {
    "model_type": "deepseek_v3",
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
LLAMA4 = MIXTRAL | {"model_type": "llama4_text", "intermediate_size_mlp": 64}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
EVERYWHERE = ["lm_head", "model.embed_tokens", "model.layers.0.mlp.gate", "model.norm"]


def group(weights, activations=None, targets=("Linear",)):
    names = {8: ("float", 8), "int8": ("int", 8), 4: ("int", 4), "fp4": ("float", 4)}

    def spec(form):
        return form and dict(zip(("type", "num_bits"), names[form], strict=True))

    return {
        "weights": spec(weights),
        "input_activations": spec(activations),
        "targets": list(targets),
    }


def compressed(*groups, ignore=("lm_head",), **keys):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {f"group_{i}": one for i, one in enumerate(groups)},
        "ignore": list(ignore),
        **keys,
    }


def read(config, quantisation, **changes):
    """Dtypes of weights, routed experts, embedding, activations and KV cache."""
    whole = config | {"quantization_config": quantisation} | changes
    fields = architecture_fields(whole, "target config.json")
    names = ("weight_dtype", "expert_dtype", "embedding_dtype", "activation_dtype", "kv_dtype")
    return tuple(fields[name] for name in names)


def stored(config, quantisation):
    """Dtypes of attention and of its output, of dense layers, shared experts and routed ones."""
    fields = architecture_fields(config | {"quantization_config": quantisation}, "target")
    model = build(Architecture, {"schema_version": 2, "name": "", "source": "", **fields}, "")
    found = {}
    for one, layers in model.parts.items():
        kind = "attention" if "attention" in one.part.kind else one.part.kind
        dtypes = [one.stream.weight_dtype, *([one.output_dtype] if one.output_dtype else [])]
        dtypes += [one.stream.expert_dtype] if kind == "experts" else []
        found.setdefault(kind, []).append((layers, *dtypes))
    return found


def refuses(match, config, quantisation):
    with pytest.raises(InputError, match=rf"target config\.json quantization_config.*{match}"):
        read(config, quantisation)


ALL_FP8 = ("fp8", None, "bf16", "fp8", "bf16")
EXPERTS_FP8 = ("bf16", "fp8", None, "fp8", "bf16")
REST_FP8 = ("fp8", "bf16", "bf16", "bf16", "bf16")


@pytest.mark.parametrize("config", [DENSE, MIXTRAL, DEEPSEEK, LLAMA4])
@pytest.mark.parametrize("scheme", ["dynamic", "static"])
def test_fp8(config, scheme):
    in_blocks = {"weight_block_size": [128, 128], "fmt": "e4m3", "activation_scheme": scheme}
    assert read(config, FP8 | {"activation_scheme": scheme}) == ALL_FP8
    assert read(config, FP8 | in_blocks) == ("fp8_block", *ALL_FP8[1:])


def test_unquantised_parts_follow_the_dtype_of_the_checkpoint():
    fields = ("fp8", None, "fp16", "fp8", "fp16")
    assert read(MIXTRAL, FP8, torch_dtype="float16") == fields


@each_row("key", ["modules_to_not_convert", "ignored_layers", "ignore"])
@each_row(
    "names",
    [
        None,
        ["gate", "e_score_correction_bias", "lm_head"],
        ["model.layers.*.mlp.router", "re:.*shared_expert_gate$", r"re:.*mlp\.gate$", "*lm_head"],
        ["model.layers.1.input_layernorm", "re:.*_layernorm.*", "model.layers.2.self_attn.q_norm"],
        ["re:.*vision_model.*", "vision_tower.layers.0.self_attn.q_proj", "multi_modal_projector"],
        ["model.layers.4.self_attn", "model.layers.4.eh_proj", "mtp.layers.0.self_attn.q_proj"],
    ],
)
def test_lists_of_what_is_unquantised_anyhow(key, names):
    assert read(DEEPSEEK, FP8 | {key: names}) == ALL_FP8


LATENT_NAMES = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")


ATTENTION_BF16 = {
    "attention": [(4, "bf16")],
    "dense": [(1, "fp8")],
    "experts": [(3, "fp8", "fp8")],
}
"""Where attention alone is left out, dense layers and shared experts are narrow as well."""


@pytest.mark.parametrize(
    "names",
    [
        ["self_attn"],
        ["re:.*self_attn.*"],
        [r"re:.*self_attn.(q_a|q_b|kv_a|kv_b|o)_proj.*"],
        [f"model.layers.{i}.self_attn" for i in range(4)],
        [f"model.layers.{i}.self_attn.{name}" for i in range(4) for name in LATENT_NAMES],
    ],
)
def test_attention_left_out(names):
    assert stored(DEEPSEEK, FP8 | {"modules_to_not_convert": names}) == ATTENTION_BF16


def test_all_but_routed_experts_left_out():
    names = ["re:.*self_attn.*", "re:.*shared_experts.*"]
    names.append(r"re:.*mlp\.(gate|up|gate_up|down)_proj.*")
    assert read(DEEPSEEK, FP8 | {"modules_to_not_convert": names}) == EXPERTS_FP8


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (  # attention of the first layer, and the matrix after attention in all others
            ["layers.0.self_attn", *(f"layers.{i}.self_attn.o_proj" for i in (1, 2, 3))],
            {"attention": [(1, "bf16"), (3, "fp8", "bf16")]},
        ),
        (["model.layers.0*"], {"attention": [(1, "bf16"), (3, "fp8")], "dense": [(1, "bf16")]}),
        ([r"re:.*layers\.[0-2]\.self_attn.*"], {"attention": [(3, "bf16"), (1, "fp8")]}),
        (["self_attn.q_*", "self_attn.kv_*"], {"attention": [(4, "bf16", "fp8")]}),
        (["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"], {"dense": [(1, "bf16")]}),
        (
            ["self_attn", "mlp.shared_experts"],
            {"attention": [(4, "bf16")], "experts": [(3, "bf16", "fp8")]},
        ),
    ],
)
def test_parts_of_some_layers_left_out(names, expected):
    whole = {"attention": [(4, "fp8")], "dense": [(1, "fp8")], "experts": [(3, "fp8", "fp8")]}
    assert stored(DEEPSEEK, FP8 | {"modules_to_not_convert": names}) == whole | expected


def test_a_glob_of_a_layer_is_of_its_number_as_text():
    config = DENSE | {"num_hidden_layers": 12}
    names = ["model.layers.1*"]  # and 10 and 11, as engines match it
    assert stored(config, FP8 | {"ignore": names}) == {
        "attention": [(9, "fp8"), (3, "bf16")],
        "dense": [(9, "fp8"), (3, "bf16")],
    }
    names = ["model.layers.1.*"]
    assert stored(config, FP8 | {"ignore": names})["attention"] == [(11, "fp8"), (1, "bf16")]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (DEEPSEEK, ["mlp.experts"]),
        (DEEPSEEK, [f"model.layers.{i}.mlp.experts" for i in (1, 2, 3)]),
        (MIXTRAL, ["model.layers.*.block_sparse_moe.experts.*"]),
        (LLAMA4, ["feed_forward.experts"]),
    ],
)
def test_experts_left_out(config, names):
    assert read(config, FP8 | {"modules_to_not_convert": names}) == REST_FP8


@pytest.mark.parametrize(
    ("config", "names", "match"),
    [
        (DEEPSEEK, ["self_attn.q_a_proj"], "all modules of the attention"),
        (DEEPSEEK, ["mlp.experts.*.gate_proj"], "all modules of the experts"),
        (DEEPSEEK, ["re:.*gate.*"], "all modules of the dense layers"),
        (DEEPSEEK, ["model.layers.1.mlp.experts"], "all modules of the experts alike"),
        (DEEPSEEK, ["mlp.shared_experts.up_proj"], "all modules of the shared experts"),
        (DEEPSEEK, ["self_attn", "mlp"], "of attention, or of routed experts"),
        (DEEPSEEK, ["query_key_value"], r"got 'query_key_value'; expected attention, experts"),
        (DEEPSEEK, ["re:(self_attn"], "well-formed regex"),
        (DEEPSEEK, [3], "names of modules"),
        (DEEPSEEK, {"lm_head": 1}, "a list of names"),
    ],
)
def test_lists_that_cannot_be_represented(config, names, match):
    refuses(match, config, FP8 | {"modules_to_not_convert": names})


def test_names_of_parts_that_a_model_lacks_change_nothing():
    names = ["mlp.shared_experts", "re:.*shared_expert.*", r"re:.*mlp\.(gate|up|down)_proj.*"]
    assert read(MIXTRAL, FP8 | {"ignore": names}) == ALL_FP8
    assert read(DENSE, FP8 | {"ignore": ["block_sparse_moe.experts"]}) == ALL_FP8


def test_mxfp4_is_of_routed_experts_alone():
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", *EVERYWHERE]
    expected = ("bf16", "mxfp4", None, "bf16", "bf16")
    assert read(MIXTRAL, {"quant_method": "mxfp4"}) == expected
    assert read(MIXTRAL, {"quant_method": "mxfp4", "modules_to_not_convert": names}) == expected
    refuses("routed experts", DENSE, {"quant_method": "mxfp4"})
    refuses("routed experts", MIXTRAL, {"quant_method": "mxfp4", "ignore": ["experts"]})


@pytest.mark.parametrize("method", ["awq", "gptq"])
@pytest.mark.parametrize(("bits", "dtype"), [(4, "int4"), (8, "int8_g128")])
def test_weights_alone(method, bits, dtype):
    quantisation = {"quant_method": method, "bits": bits, "group_size": 128, "lm_head": False}
    assert read(MIXTRAL, quantisation) == (dtype, None, "bf16", "bf16", "bf16")


@pytest.mark.parametrize(
    "bits",
    [
        3,
        "4",
    ],
)
def test_other_numbers_of_bits_are_refused(bits):
    refuses(r"\.bits: got", MIXTRAL, {"quant_method": "awq", "bits": bits})


def test_gptq_rules():
    gptq = {"quant_method": "gptq", "bits": 4}
    rules = {r"-:.*mlp\.gate\..*": {}, "-:.*self_attn.*": {}}
    narrow = {"dense": [(1, "int4")], "experts": [(3, "int4", "int4")]}
    assert stored(DEEPSEEK, gptq | {"dynamic": rules}) == narrow | {"attention": [(4, "bf16")]}
    refuses(r"\.dynamic: got", DEEPSEEK, gptq | {"dynamic": rules | {"+:.*up.*": {"bits": 8}}})
    refuses(r"\.dynamic: got", DEEPSEEK, gptq | {"dynamic": ["-:.*"]})


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([group(8, 8)], ALL_FP8),
        ([group("int8", "int8")], ("int8", None, "bf16", "int8", "bf16")),
        ([group("fp4", "fp4")], ("fp4", None, "bf16", "fp4", "bf16")),
        ([group(8)], ("fp8", None, "bf16", "bf16", "bf16")),
        ([group(8, 8, ["re:.*mlp.experts.*"])], EXPERTS_FP8),
        ([group(8, 8, ["re:.*self_attn.*"]), group(8, 8, ["re:.*mlp.*"])], ALL_FP8),
    ],
)
def test_compressed_tensors(groups, expected):
    assert read(DEEPSEEK, compressed(*groups)) == expected


def test_compressed_tensors_of_experts_alone():
    left_out = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"]
    left_out.append(r"re:.*mlp\.(gate|up|gate_up|down)_proj.*")
    expected = ("bf16", "int4", None, "bf16", "bf16")
    assert read(DEEPSEEK, compressed(group(4), ignore=left_out)) == expected


def test_compressed_tensors_in_groups_of_32_are_mxfp4():
    mx = group("fp4")
    mx["weights"]["group_size"] = 32
    assert read(MIXTRAL, compressed(mx))[0] == "mxfp4"


@pytest.mark.parametrize(
    ("quantisation", "match"),
    [
        (compressed(group(8, 8), group(4)), "config_groups: got"),
        (compressed(group(None, 8)), r"group_0\.weights: got None"),
        (compressed({"weights": {"type": "int", "num_bits": 3}, "targets": []}), "num_bits"),
        (compressed(group(8, 8, ["Experts"])), r"targets: got 'Experts'"),
        (compressed(group(8, 8), ignore=[]), "LM head"),
        (compressed(group(8, 8), sparsity_config={"format": "2of4"}), "sparsity_config"),
        (compressed(group(8, 8), kv_cache_scheme={"num_bits": 2, "type": "int"}), "kv_cache"),
    ],
)
def test_compressed_tensors_that_are_not_understood(quantisation, match):
    refuses(match, MIXTRAL, quantisation)


def test_compressed_tensors_without_sparsity():
    keys = {"sparsity_config": {"format": "dense"}, "transform_config": {}}
    assert read(MIXTRAL, compressed(group(8, 8), **keys)) == ALL_FP8


@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        (None, "bf16"),
        ({"num_bits": 8, "type": "float"}, "fp8"),
        ({"num_bits": 8, "type": "int"}, "int8"),
    ],
)
def test_kv_cache_scheme(scheme, dtype):
    assert read(MIXTRAL, compressed(group(8, 8), kv_cache_scheme=scheme))[4] == dtype


@pytest.mark.parametrize(("algorithm", "dtype"), [("FP8", "fp8"), ("NVFP4", "fp4")])
def test_modelopt(algorithm, dtype):
    quantisation = {"quant_method": "modelopt", "quant_algo": algorithm}
    assert read(MIXTRAL, quantisation) == (dtype, None, "bf16", dtype, "bf16")
    assert read(MIXTRAL, quantisation | {"kv_cache_quant_algo": "FP8"})[4] == "fp8"
    left_out = {"exclude_modules": ["lm_head", "model.layers.*.self_attn*"]}
    assert read(MIXTRAL, quantisation | left_out)[:2] == ("bf16", dtype)


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"quant_algo": "MIXED_PRECISION"}, "quantized_layers: got None"),
        ({"quant_algo": "W4A8_INT"}, "quant_algo: got 'W4A8_INT'; expected one of: FP8"),
        ({"quant_algo": "NVFP4", "group_size": 32}, "group_size: got 32; expected 16"),
        ({"quant_algo": "FP8", "quantized_layers": {"lm_head": {}}}, "quantized_layers"),
    ],
)
def test_modelopt_that_is_not_understood(keys, match):
    refuses(match, MIXTRAL, {"quant_method": "modelopt"} | keys)


@pytest.mark.parametrize(
    "method",
    [
        "bitsandbytes",
        "",
    ],
)
def test_unknown_method_is_refused_by_name(method):
    quantisation = {"quant_method": method, "bits": 4}
    shown = repr(method).replace("[", r"\[").replace("]", r"\]")
    refuses(rf"\.quant_method: got {shown}; expected one of: fp8", MIXTRAL, quantisation)


@pytest.mark.parametrize("value", [])
def test_quantisation_of_another_type(value):
    refuses(": got .*an object", MIXTRAL, value)


@pytest.mark.parametrize("value", [None, {}])
def test_no_quantisation(value):
    fields = architecture_fields(MIXTRAL | {"quantization_config": value}, "target")
    assert fields["weight_dtype"] == fields["activation_dtype"] == fields["kv_dtype"] == "bf16"


@pytest.mark.parametrize("scheme", [["dynamic"]])
def test_unknown_activation_scheme(scheme):
    refuses("activation_scheme", MIXTRAL, FP8 | {"activation_scheme": scheme})


def test_quantised_lm_head_is_refused():
    refuses("lm_head: got True", MIXTRAL, {"quant_method": "gptq", "bits": 4, "lm_head": True})


def test_a_first_layer_in_16_bits_leaves_those_after_it_alone():
    """Layers are grouped by all that they say, also where a later one says less."""
    kept = {"modules_to_not_convert": [f"model.layers.0.self_attn.{x}_proj" for x in "qkvo"]}
    assert stored(MIXTRAL, FP8 | kept)["attention"] == [(1, "bf16"), (3, "fp8")]
