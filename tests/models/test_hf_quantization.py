"""Quantised checkpoints: the dtypes a config.json gives, and lists that cannot be said with them.

The configurations are made up; names of modules and keys are those of the families.
"""

from configs import flat
from printed import refused
from rows import each_row, one_case

from specmodel import Architecture
from specmodel.base import build
from specmodel.models.hf.config import architecture_fields

DENSE = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
    "vocab_size": 100, "intermediate_size": 128,
}  # fmt: skip
MIXTRAL = DENSE | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
V3 = flat("deepseek-ai--DeepSeek-V3", num_hidden_layers=4, first_k_dense_replace=1)
DEEPSEEK = {key: V3[key] for key in V3 if key not in ("quantization_config", "torch_dtype")}
LLAMA4 = MIXTRAL | {"model_type": "llama4_text", "intermediate_size_mlp": 64}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


FORMS = {8: ("float", 8), "int8": ("int", 8), 4: ("int", 4), "fp4": ("float", 4)}


def group(weights, activations=None, targets=("Linear",)):
    specs = [
        form and dict(zip(("type", "num_bits"), FORMS[form], strict=True))
        for form in (weights, activations)
    ]
    return {"weights": specs[0], "input_activations": specs[1], "targets": list(targets)}


def compressed(*groups, ignore=("lm_head",), **keys):
    named = {f"group_{i}": one for i, one in enumerate(groups)}
    method = {"quant_method": "compressed-tensors", "config_groups": named}
    return method | {"ignore": list(ignore), **keys}


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


ALL_FP8 = ("fp8", None, "bf16", "fp8", "bf16")
EXPERTS_FP8 = ("bf16", "fp8", None, "fp8", "bf16")
REST_FP8 = ("fp8", "bf16", "bf16", "bf16", "bf16")
BLOCKS = {"weight_block_size": [128, 128], "fmt": "e4m3"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": False}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}
REST = ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
CACHE = {"num_bits": 8, "type": "float"}


@each_row(
    ("config", "quantisation", "expected"),
    [
        *((config, FP8, ALL_FP8) for config in (DENSE, MIXTRAL, DEEPSEEK, LLAMA4)),
        (DEEPSEEK, FP8 | BLOCKS | {"activation_scheme": "static"}, ("fp8_block", *ALL_FP8[1:])),
        (MIXTRAL | {"torch_dtype": "float16"}, FP8, ("fp8", None, "fp16", "fp8", "fp16")),
        (DENSE, FP8 | {"ignore": ["block_sparse_moe.experts"]}, ALL_FP8),
        (DEEPSEEK, FP8 | {"ignore": REST}, EXPERTS_FP8),
        (DEEPSEEK, FP8 | {"ignore": ["mlp.experts"]}, REST_FP8),
        (DEEPSEEK, FP8 | {"ignore": [f"layers.{i}.mlp.experts" for i in (1, 2, 3)]}, REST_FP8),
        (MIXTRAL, {"quant_method": "mxfp4"}, ("bf16", "mxfp4", None, "bf16", "bf16")),
        (MIXTRAL, GPTQ, ("int4", None, "bf16", "bf16", "bf16")),
        (MIXTRAL, GPTQ | {"quant_method": "awq", "bits": 8},
         ("int8_g128", None, "bf16", "bf16", "bf16")),
        (DEEPSEEK, compressed(group("int8", "int8")), ("int8", None, "bf16", "int8", "bf16")),
        (DEEPSEEK, compressed(group(8, 8, ["re:.*mlp.experts.*"])), EXPERTS_FP8),
        (DEEPSEEK, compressed(group(8, 8, ["re:.*attn.*"]), group(8, 8, ["re:.*mlp.*"])), ALL_FP8),
        (DEEPSEEK, compressed(group(4), ignore=["lm_head", *REST]),
         ("bf16", "int4", None, "bf16", "bf16")),
        (MIXTRAL, compressed(group(8, 8), kv_cache_scheme=CACHE), (*ALL_FP8[:4], "fp8")),
        (MIXTRAL, compressed(group(8, 8), kv_cache_scheme=CACHE | {"type": "int"}),
         (*ALL_FP8[:4], "int8")),
        (MIXTRAL, MODELOPT, ALL_FP8),
    ],
)  # fmt: skip
def test_dtypes_by_the_keys_of_each_method(config, quantisation, expected):
    assert read(config, quantisation) == expected


@each_row("key", ["modules_to_not_convert", "ignored_layers", "ignore"])
@one_case(
    "names",
    None,
    ["model.layers.*.mlp.router", "re:.*shared_expert_gate$", r"re:.*mlp\.gate$", "*lm_head"],
    ["e_score_correction_bias", "model.layers.1.input_layernorm", "re:.*_layernorm.*"],
    ["re:.*vision_model.*", "model.layers.4.self_attn", "mtp.layers.0.self_attn.q_proj"],
)
def test_lists_of_what_is_unquantised_anyhow(key, names):
    assert read(DEEPSEEK, FP8 | {key: names}) == ALL_FP8


@one_case(
    "names expected",
    (  # attention of the first layer, and the matrix after attention in all others
        ["layers.0.self_attn", *(f"layers.{i}.self_attn.o_proj" for i in (1, 2, 3))],
        {"attention": [(1, "bf16"), (3, "fp8", "bf16")]},
    ),
    (["model.layers.0*"], {"attention": [(1, "bf16"), (3, "fp8")], "dense": [(1, "bf16")]}),
    (["self_attn.q_*", "self_attn.kv_*"], {"attention": [(4, "bf16", "fp8")]}),
    ([r"re:.*self_attn.(q_a|q_b|kv_a|kv_b|o)_proj.*"], {"attention": [(4, "bf16")]}),
    (["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"], {"dense": [(1, "bf16")]}),
    (
        ["self_attn", "mlp.shared_experts"],
        {"attention": [(4, "bf16")], "experts": [(3, "bf16", "fp8")]},
    ),
)
def test_parts_of_some_layers_left_out(names, expected):
    whole = {"attention": [(4, "fp8")], "dense": [(1, "fp8")], "experts": [(3, "fp8", "fp8")]}
    assert stored(DEEPSEEK, FP8 | {"modules_to_not_convert": names}) == whole | expected


def test_a_glob_of_a_layer_is_of_its_number_as_text():
    config = DENSE | {"num_hidden_layers": 12}
    names = ["model.layers.1*"]  # and 10 and 11, as engines match it
    both = [(9, "fp8"), (3, "bf16")]
    assert stored(config, FP8 | {"ignore": names}) == {"attention": both, "dense": both}
    names = ["model.layers.1.*"]
    assert stored(config, FP8 | {"ignore": names})["attention"] == [(11, "fp8"), (1, "bf16")]
    rules = {"dynamic": {r"-:.*mlp\.gate\..*": {}, "-:.*self_attn.*": {}}}
    narrow = {"dense": [(1, "int4")], "experts": [(3, "int4", "int4")]}
    assert stored(DEEPSEEK, GPTQ | rules) == narrow | {"attention": [(4, "bf16")]}


@one_case(
    "config quantisation match",
    (DEEPSEEK, ["self_attn.q_a_proj"], "all modules of the attention"),
    (DEEPSEEK, ["mlp.experts.*.gate_proj"], "all modules of the experts"),
    (DEEPSEEK, ["re:.*gate.*"], "all modules of the dense layers"),
    (DEEPSEEK, ["model.layers.1.mlp.experts"], "all modules of the experts alike"),
    (DEEPSEEK, ["self_attn", "mlp"], "of attention, or of routed experts"),
    (DEEPSEEK, ["query_key_value"], "got 'query_key_value'; expected attention, experts"),
    (DEEPSEEK, ["re:(self_attn"], "well-formed regex"),
    (DEEPSEEK, [3], "names of modules"),
    (DEEPSEEK, FP8 | {"ignore": {"lm_head": 1}}, "a list of names"),
    (MIXTRAL, FP8 | {"activation_scheme": ["dynamic"]}, "activation_scheme"),
    (DENSE, {"quant_method": "mxfp4"}, "routed experts"),
    (MIXTRAL, GPTQ | {"bits": 3}, r"\.bits: got"),
    (MIXTRAL, GPTQ | {"lm_head": True}, "lm_head: got True"),
    (DEEPSEEK, GPTQ | {"dynamic": {"+:.*up.*": {"bits": 8}}}, r"\.dynamic: got"),
    (MIXTRAL, compressed(group(8, 8), group(4)), "config_groups: got"),
    (MIXTRAL, compressed(group(None, 8)), r"group_0\.weights: got None"),
    (MIXTRAL, compressed({"weights": {"type": "int", "num_bits": 3}, "targets": []}), "_bits"),
    (MIXTRAL, compressed(group(8, 8, ["Experts"])), "targets: got 'Experts'"),
    (MIXTRAL, compressed(group(8, 8), ignore=[]), "LM head"),
    (MIXTRAL, compressed(group(8, 8), kv_cache_scheme={"num_bits": 2, "type": "int"}), "cache"),
    (MIXTRAL, MODELOPT | {"quant_algo": "NVFP4", "group_size": 32}, "got 32; expected 16"),
    (MIXTRAL, MODELOPT | {"quantized_layers": {"lm_head": {}}}, "quantized_layers"),
)
def test_what_is_not_understood_is_named(config, quantisation, match):
    if isinstance(quantisation, list):
        quantisation = FP8 | {"ignore": quantisation}
    refused(rf"target config\.json quantization_config.*{match}", read, config, quantisation)
