"""The reader of config.json: every family against a shipped shape, and one test for each trap."""

import json

import pytest

from specmodel import hf_config
from specmodel.architecture import Architecture, load_architecture
from specmodel.errors import InputError


def shape(hidden, layers, heads, kv_heads, vocabulary, **keys):
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "torch_dtype": "bfloat16",
        **keys,
    }


def opt(hidden, layers, heads, ffn_size, **keys):
    return {
        "model_type": "opt",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "ffn_dim": ffn_size,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
        **keys,
    }


LLAMA = shape(4096, 32, 32, 8, 128256, model_type="llama", intermediate_size=14336)
MISTRAL = shape(4096, 32, 32, 8, 32000, model_type="mistral", intermediate_size=14336)
QWEN2 = shape(
    896, 24, 14, 2, 151936, model_type="qwen2", intermediate_size=4864, tie_word_embeddings=True
)
QWEN3 = shape(5120, 64, 64, 8, 151936, model_type="qwen3", intermediate_size=25600)
OPT = opt(7168, 48, 56, 28672)
MIXTRAL = shape(
    4096,
    32,
    32,
    8,
    32000,
    model_type="mixtral",
    num_local_experts=8,
    num_experts_per_tok=2,
    intermediate_size=14336,
)
PHIMOE = shape(
    4096,
    32,
    32,
    8,
    32064,
    model_type="phimoe",
    num_local_experts=16,
    num_experts_per_tok=2,
    intermediate_size=6400,
    sliding_window=131072,
)
OLMOE = shape(
    2048,
    16,
    16,
    16,
    50304,
    model_type="olmoe",
    num_experts=64,
    num_experts_per_tok=8,
    intermediate_size=1024,
)
QWEN2_MOE = shape(
    2048,
    24,
    16,
    16,
    151936,
    model_type="qwen2_moe",
    num_experts=60,
    num_experts_per_tok=4,
    moe_intermediate_size=1408,
    shared_expert_intermediate_size=5632,
    intermediate_size=5632,
)
QWEN3_MOE = shape(
    2048,
    48,
    32,
    4,
    151936,
    model_type="qwen3_moe",
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    intermediate_size=6144,
)
CONFIGS = [LLAMA, MISTRAL, QWEN2, QWEN3, OPT, MIXTRAL, PHIMOE, OLMOE, QWEN2_MOE, QWEN3_MOE]
DENSE = [LLAMA, MISTRAL, QWEN2, QWEN3, OPT]
MOE = [MIXTRAL, PHIMOE, OLMOE, QWEN2_MOE, QWEN3_MOE]
SWITCHED = [QWEN2, QWEN3, QWEN2_MOE, QWEN3_MOE]
SPARSE = [QWEN2_MOE, QWEN3_MOE]


def by_family(value):
    return value["model_type"] if isinstance(value, dict) and "model_type" in value else None


def each(configs):
    return pytest.mark.parametrize("config", configs, ids=by_family)


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


@pytest.fixture
def read(tmp_path):
    def read_config(config, **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config | changes), encoding="utf-8")
        return Architecture.from_hf_config(path)

    return read_config


def test_every_family_is_tested():
    assert {config["model_type"] for config in CONFIGS} == set(hf_config._FAMILIES)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("llama-3.1-8b", LLAMA),
        (
            "llama-3.1-70b",
            shape(8192, 80, 64, 8, 128256, model_type="llama", intermediate_size=28672),
        ),
        (
            "llama-3.2-1b",
            shape(
                2048,
                16,
                32,
                8,
                128256,
                model_type="llama",
                intermediate_size=8192,
                head_dim=64,
                tie_word_embeddings=True,
            ),
        ),
        ("qwen2-0.5b", QWEN2),
        ("qwen3-32b", QWEN3),
        ("opt-30b", OPT),
        ("opt-350m", opt(1024, 24, 16, 4096, word_embed_proj_dim=512)),
        ("mixtral-8x7b", MIXTRAL),
        ("phi-3.5-moe", PHIMOE),
        ("olmoe-1b-7b", OLMOE),
        ("qwen1.5-moe-a2.7b", QWEN2_MOE),
        ("qwen3-30b-a3b", QWEN3_MOE),
    ],
)
def test_config_gives_the_shipped_shape(read, name, config):
    mine, shipped = read(config), load_architecture(name)
    assert mine.total_parameters == shipped.total_parameters
    assert mine.active_parameters == shipped.active_parameters
    labels = {"name", "source"}
    assert mine.model_dump(exclude=labels) == shipped.model_dump(exclude=labels)


def test_mistral_7b(read):
    mistral = read(MISTRAL)
    assert mistral.total_parameters == pytest.approx(7.24e9, rel=0.001)
    assert not mistral.is_moe


def test_folder_gives_the_name(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MIXTRAL), encoding="utf-8")
    model = Architecture.from_hf_config(folder)
    assert model.name == "my-model"
    assert model == Architecture.from_hf_config(str(folder)) == load_architecture(folder)
    assert model == Architecture.from_hf_config(folder / "config.json")


def test_other_file_name_gives_the_name(tmp_path):
    path = tmp_path / "my-mixtral.json"
    path.write_text(json.dumps(MIXTRAL), encoding="utf-8")
    assert Architecture.from_hf_config(path).name == "my-mixtral"


def test_folder_without_config(tmp_path):
    with pytest.raises(InputError, match=r"config\.json"):
        Architecture.from_hf_config(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"", b"null", b"[" * 100_000])
def test_malformed_file(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"target: got '.*config\.json"):
        Architecture.from_hf_config(path)


# Sliding windows


@each(SWITCHED)
def test_window_switched_off(read, config):
    model = read(config, use_sliding_window=False, sliding_window=4096, max_window_layers=2)
    assert model.num_sliding_layers == 0
    assert model.sliding_window is None


@each(SWITCHED)
def test_window_switch_is_off_by_default(read, config):
    assert read(config, sliding_window=4096, max_window_layers=2).num_sliding_layers == 0


@each(SWITCHED)
@pytest.mark.parametrize("num_full", [0, 1, 21, 24])
def test_window_switched_on_above_max_window_layers(read, config, num_full):
    switch = {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": num_full}
    model = read(config, num_hidden_layers=24, **switch)
    assert model.num_sliding_layers == 24 - num_full
    assert model.sliding_window == (512 if num_full < 24 else None)


def test_max_window_layers_missing_is_28(read):
    model = read(QWEN3, use_sliding_window=True, sliding_window=512)
    assert model.num_sliding_layers == 64 - 28


def test_window_switched_on_without_a_window_takes_the_default(read):
    model = read(QWEN3, use_sliding_window=True, max_window_layers=60)
    assert (model.sliding_window, model.num_sliding_layers) == (4096, 4)


@pytest.mark.parametrize("value", ["false", 0, None])
def test_window_switch_must_be_boolean(read, value):
    with pytest.raises(InputError, match="use_sliding_window"):
        read(QWEN3, use_sliding_window=value)


@each([MISTRAL, MIXTRAL, PHIMOE])
def test_window_null_is_none(read, config):
    model = read(config, sliding_window=None)
    assert (model.sliding_window, model.num_sliding_layers) == (None, 0)


@each([MISTRAL, MIXTRAL, PHIMOE])
def test_window_without_switch_is_on_all_layers(read, config):
    model = read(config, sliding_window=1024)
    assert (model.sliding_window, model.num_sliding_layers) == (1024, 32)


@pytest.mark.parametrize(("config", "window"), [(MISTRAL, 4096), (MIXTRAL, None)], ids=by_family)
def test_window_missing_is_the_family_default(read, config, window):
    assert read(config).sliding_window == window


@pytest.mark.parametrize("window", ["4096", -1, True, 4096.0])
def test_window_of_another_type(read, window):
    with pytest.raises(InputError, match="sliding_window"):
        read(MISTRAL, sliding_window=window)


def test_layer_types_decide_which_layers_slide(read):
    layer_types = ["sliding_attention", "full_attention", "sliding_attention"]
    model = read(MISTRAL, num_hidden_layers=3, layer_types=layer_types, sliding_window=256)
    assert (model.sliding_window, model.num_sliding_layers) == (256, 2)


def test_layer_types_all_full(read):
    model = read(MISTRAL, layer_types=["full_attention"] * 32, sliding_window=256)
    assert (model.sliding_window, model.num_sliding_layers) == (None, 0)


def test_linear_attention_is_refused(read):
    with pytest.raises(InputError, match="layer_types"):
        read(QWEN3_MOE, layer_types=["linear_attention", "full_attention"] * 24)


@pytest.mark.parametrize(
    "layer_types",
    [
        "full_attention",
        {"full_attention": 32},
        [1] * 32,
        [["full_attention"]] * 32,
        [{}] * 32,
        ["sliding_attention"],
        ["sliding_attention"] * 33,
        [],
    ],
    ids=["text", "object", "numbers", "lists", "objects", "too short", "too long", "empty"],
)
def test_layer_types_that_do_not_fit(read, layer_types):
    with pytest.raises(InputError, match="layer_types"):
        read(MISTRAL, layer_types=layer_types)


# Dense layers among sparse ones


@each(SPARSE)
@pytest.mark.parametrize(
    ("listed", "num_dense"), [(None, 0), ([], 0), ([0, 3], 2), ([1, 1], 1), ([0, 99], 1)]
)
def test_mlp_only_layers(read, config, listed, num_dense):
    model = read(config, mlp_only_layers=listed)
    assert model.num_dense_layers == num_dense
    assert model.dense_ffn_size == (config["intermediate_size"] if num_dense else 0)
    assert model.num_moe_layers == config["num_hidden_layers"] - num_dense


@each(SPARSE)
@pytest.mark.parametrize("listed", ["0,1", 3, ["0"], [[0]], [0.0]])
def test_mlp_only_layers_of_another_type(read, config, listed):
    with pytest.raises(InputError, match="mlp_only_layers"):
        read(config, mlp_only_layers=listed)


@each(SPARSE)
@pytest.mark.parametrize(
    ("num_layers", "step", "num_dense"), [(24, 1, 0), (24, 2, 12), (5, 2, 3), (7, 3, 5), (3, 4, 3)]
)
def test_decoder_sparse_step(read, config, num_layers, step, num_dense):
    model = read(config, num_hidden_layers=num_layers, decoder_sparse_step=step)
    assert model.num_dense_layers == num_dense


def test_decoder_sparse_step_and_mlp_only_layers_overlap(read):
    changes = {"decoder_sparse_step": 2, "mlp_only_layers": [0, 1, 2]}
    assert read(QWEN2_MOE, **changes).num_dense_layers == 13


@pytest.mark.parametrize("step", [0, -1, "1", True])
def test_decoder_sparse_step_of_another_type(read, step):
    with pytest.raises(InputError, match="decoder_sparse_step"):
        read(QWEN2_MOE, decoder_sparse_step=step)


@each(SPARSE)
def test_dense_width_is_needed_only_by_dense_layers(read, config):
    bare = without(config, "intermediate_size")
    assert read(bare).dense_ffn_size == 0
    with pytest.raises(InputError, match="intermediate_size"):
        read(bare, mlp_only_layers=[0])


# Missing keys


@each([config for config in CONFIGS if config is not QWEN3])
def test_head_dim_missing(read, config):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    assert read(without(config, "head_dim")).head_dim == hidden // heads


def test_head_dim_of_qwen3_is_128(read):
    assert QWEN3["hidden_size"] // QWEN3["num_attention_heads"] == 80
    assert read(QWEN3).head_dim == 128
    assert read(QWEN3, head_dim=64).head_dim == 64


@each(CONFIGS)
def test_head_dim_null_is_missing(read, config):
    assert read(config, head_dim=None) == read(without(config, "head_dim"))


@each(CONFIGS)
def test_tie_word_embeddings_missing(read, config):
    model = read(without(config, "tie_word_embeddings"))
    assert model.has_tied_embeddings == (config is OPT)


@each(CONFIGS)
@pytest.mark.parametrize("is_tied", [True, False])
def test_tie_word_embeddings_given(read, config, is_tied):
    assert read(config, tie_word_embeddings=is_tied).has_tied_embeddings == is_tied


@pytest.mark.parametrize("value", ["true", 1])
def test_tie_word_embeddings_must_be_boolean(read, value):
    with pytest.raises(InputError, match="tie_word_embeddings"):
        read(LLAMA, tie_word_embeddings=value)


@pytest.mark.parametrize(
    ("config", "num_kv_heads"),
    [
        (LLAMA, 32),
        (MISTRAL, 8),
        (QWEN2 | {"num_attention_heads": 64, "head_dim": 14}, 32),
        (QWEN3, 32),
        (OPT, 56),
        (MIXTRAL, 8),
        (PHIMOE, 8),
        (OLMOE, 16),
        (QWEN2_MOE, 16),
        (QWEN3_MOE, 4),
    ],
    ids=by_family,
)
def test_num_key_value_heads_missing(read, config, num_kv_heads):
    assert read(without(config, "num_key_value_heads")).num_kv_heads == num_kv_heads


@each(CONFIGS)
def test_every_other_key_is_needed(read, config):
    defaulted = {
        "model_type",
        "torch_dtype",
        "num_key_value_heads",
        "head_dim",
        "tie_word_embeddings",
        "sliding_window",
    }
    if config in SPARSE:
        defaulted.add("intermediate_size")
    for key in config.keys() - defaulted:
        with pytest.raises(InputError, match=rf"config\.json {key}: got None"):
            read(without(config, key))


# Families and keys that are not understood


@pytest.mark.parametrize(
    "model_type",
    [
        "deepseek_v3",
        "kimi_k2",
        "llama4",
        "gpt_oss",
        "glm4_moe",
        "minimax",
        "mamba",
        "deepseek",
        "qwen3_next",
        "Mixtral",
        "",
    ],
)
@each([LLAMA, MIXTRAL])
def test_unknown_family_is_refused_by_name(read, model_type, config):
    with pytest.raises(InputError, match=f"model_type: got '{model_type}'.*mixtral"):
        read(config, model_type=model_type)


@pytest.mark.parametrize("model_type", [None, 3, ["llama"], {"llama": 1}])
def test_family_of_another_type(read, model_type):
    with pytest.raises(InputError, match="model_type"):
        read(LLAMA, model_type=model_type)


def test_family_missing(read):
    with pytest.raises(InputError, match="model_type"):
        read(without(LLAMA, "model_type"))


@each(DENSE)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_local_experts", 8),
        ("num_experts", 8),
        ("n_routed_experts", 64),
        ("num_experts_per_tok", 2),
        ("moe_intermediate_size", 1408),
        ("first_k_dense_replace", 1),
        ("decoder_sparse_step", 1),
        ("mlp_only_layers", [0]),
        ("kv_lora_rank", 512),
        ("num_nextn_predict_layers", 1),
        ("attention_chunk_size", 8192),
        ("linear_num_value_heads", 32),
    ],
)
def test_key_a_dense_family_does_not_know(read, config, key, value):
    with pytest.raises(InputError, match=rf"{key}: got .*{config['model_type']}"):
        read(config, **{key: value})


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (MIXTRAL, "num_experts"),
        (MIXTRAL, "moe_intermediate_size"),
        (OLMOE, "num_local_experts"),
        (QWEN3_MOE, "shared_expert_intermediate_size"),
        (QWEN2_MOE, "n_shared_experts"),
        (QWEN3_MOE, "first_k_dense_replace"),
        (MIXTRAL, "decoder_sparse_step"),
    ],
    ids=by_family,
)
def test_key_of_another_moe_family(read, config, key):
    with pytest.raises(InputError, match=f"{key}: got 2"):
        read(config, **{key: 2})


@each(CONFIGS)
def test_quantisation_is_refused(read, config):
    with pytest.raises(InputError, match="quantization_config"):
        read(config, quantization_config={"quant_method": "fp8"})


@each(CONFIGS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("router_aux_loss_coef", 0.001),
        ("norm_topk_prob", True),
        ("output_router_logits", True),
        ("quantization_config", None),
        ("n_routed_experts", None),
        ("num_nextn_predict_layers", 0),
        ("first_k_dense_replace", 0),
        ("rope_scaling", {"factor": 8.0}),
        ("attention_bias", True),
    ],
)
def test_harmless_keys_are_accepted(read, config, key, value):
    assert read(config, **{key: value}) == read(config)


# Values that do not fit


@each(CONFIGS)
@pytest.mark.parametrize("value", ["4096", True, -4096, 0, 4096.0, [4096], float("nan")])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "head_dim"])
def test_size_of_another_type(read, config, key, value):
    with pytest.raises(InputError, match=rf"config\.json {key}: got"):
        read(config, **{key: value})


@pytest.mark.parametrize("config", MOE, ids=by_family)
@pytest.mark.parametrize("value", ["2", True, -2, 0, 2.0])
def test_experts_per_token_of_another_type(read, config, value):
    with pytest.raises(InputError, match="num_experts_per_tok"):
        read(config, num_experts_per_tok=value)


def test_more_experts_per_token_than_experts(read):
    with pytest.raises(InputError, match="num_experts_per_tok: got 9"):
        read(MIXTRAL, num_experts_per_tok=9)


def test_kv_heads_that_do_not_divide(read):
    with pytest.raises(InputError, match="num_key_value_heads: got 5"):
        read(LLAMA, num_key_value_heads=5)


# Dtypes


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
@pytest.mark.parametrize(
    ("value", "dtype"), [("float16", "fp16"), ("float32", "fp32"), ("bfloat16", "bf16")]
)
def test_dtype(read, key, value, dtype):
    model = read(without(LLAMA, "torch_dtype"), **{key: value})
    assert (model.weight_dtype, model.activation_dtype, model.kv_dtype) == (dtype,) * 3


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
@pytest.mark.parametrize("value", ["float8_e4m3fn", "fp16", "auto", 16, ["float16"], {}])
def test_unknown_dtype_is_refused(read, key, value):
    with pytest.raises(InputError, match=f" {key}: got"):
        read(without(LLAMA, "torch_dtype"), **{key: value})
