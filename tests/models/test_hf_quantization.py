"""Quantised checkpoints: the dtypes a config.json gives, and lists that cannot be said with them.

The configurations are made up; names of modules and keys are those of the families.
"""

from configs import flat
from printed import refused
from rows import each_row, listed, values_of

from specmodel import Architecture
from specmodel.core.base import build
from specmodel.core.models.hf.config import architecture_fields

DENSE = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
    "vocab_size": 100, "intermediate_size": 128,
}  # fmt: skip
MIXTRAL = DENSE | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
V3 = flat("deepseek-ai--DeepSeek-V3", num_hidden_layers=4, first_k_dense_replace=1)
DEEPSEEK = {key: V3[key] for key in V3 if key not in ("quantization_config", "torch_dtype")}
LLAMA4 = MIXTRAL | {"model_type": "llama4_text", "intermediate_size_mlp": 64}
NAMED = {"dense": DENSE, "mixtral": MIXTRAL, "deepseek": DEEPSEEK, "llama4": LLAMA4}
NAMED["mixtral in fp16"] = MIXTRAL | {"torch_dtype": "float16"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


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
        found.setdefault(kind, []).append([layers, *dtypes])
    return found


ALL_FP8 = ("fp8", None, "bf16", "fp8", "bf16")
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": False}


@each_row(("config", "record", "expected"), values_of("quantisation.txt", "keys of methods"))
def test_dtypes_by_the_keys_of_each_method(config, record, expected):
    assert read(NAMED[config], record) == tuple(expected)


@each_row("key", ["modules_to_not_convert", "ignored_layers", "ignore"])
@listed
def test_lists_of_what_is_unquantised_anyhow(key, names):
    assert read(DEEPSEEK, FP8 | {key: names}) == ALL_FP8


@listed
def test_parts_of_some_layers_left_out(names, expected):
    whole = {"attention": [[4, "fp8"]], "dense": [[1, "fp8"]], "experts": [[3, "fp8", "fp8"]]}
    assert stored(DEEPSEEK, FP8 | {"modules_to_not_convert": names}) == whole | expected


def test_a_glob_of_a_layer_is_of_its_number_as_text():
    config = DENSE | {"num_hidden_layers": 12}
    names = ["model.layers.1*"]  # and 10 and 11, as engines match it
    both = [[9, "fp8"], [3, "bf16"]]
    assert stored(config, FP8 | {"ignore": names}) == {"attention": both, "dense": both}
    names = ["model.layers.1.*"]
    assert stored(config, FP8 | {"ignore": names})["attention"] == [[11, "fp8"], [1, "bf16"]]
    rules = {"dynamic": {r"-:.*mlp\.gate\..*": {}, "-:.*self_attn.*": {}}}
    narrow = {"dense": [[1, "int4"]], "experts": [[3, "int4", "int4"]]}
    assert stored(DEEPSEEK, GPTQ | rules) == narrow | {"attention": [[4, "bf16"]]}


@each_row(("config", "record", "match"), values_of("quantisation.txt", "refused keys"))
def test_what_is_not_understood_is_named(config, record, match):
    refused(rf"target config\.json quantization_config.*{match}", read, NAMED[config], record)
