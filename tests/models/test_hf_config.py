"""The reader of config.json: every family against a shipped shape, and one test for each trap."""

import json
import re
from dataclasses import replace

import pytest
from rows import each_row
from shapes import without_fields

from specmodel.base.errors import InputError
from specmodel.cost.deploying import deploy
from specmodel.models.architecture import Architecture, load_architecture
from specmodel.models.hf.drafting import mtp_fields
from specmodel.models.hf.keys import table
from specmodel.models.hf.reader import Reader

OTHER_TYPES = table("other_model_types")


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
DEEPSEEK = shape(
    2048,
    28,
    16,
    16,
    102400,
    model_type="deepseek",
    intermediate_size=10944,
    moe_intermediate_size=1408,
    n_routed_experts=64,
    num_experts_per_tok=6,
    n_shared_experts=2,
    first_k_dense_replace=1,
)
LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK_V2 = DEEPSEEK | LATENT | {"model_type": "deepseek_v2", "num_hidden_layers": 27}
DEEPSEEK_V3 = shape(
    7168,
    61,
    128,
    128,
    129280,
    model_type="deepseek_v3",
    n_group=8,
    topk_group=4,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    num_experts_per_tok=8,
    n_shared_experts=1,
    first_k_dense_replace=3,
    **LATENT | {"q_lora_rank": 1536},
)
KIMI_K2 = DEEPSEEK_V3 | {
    "n_group": 1,
    "topk_group": 1,
    "model_type": "kimi_k2",
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "vocab_size": 163840,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
}
GLM4_MOE = shape(
    4096,
    46,
    96,
    8,
    151552,
    model_type="glm4_moe",
    head_dim=128,
    intermediate_size=10944,
    moe_intermediate_size=1408,
    n_routed_experts=128,
    num_experts_per_tok=8,
    n_shared_experts=1,
    first_k_dense_replace=1,
)
MINIMAX_M2 = shape(
    3072,
    62,
    48,
    8,
    200064,
    model_type="minimax_m2",
    head_dim=128,
    intermediate_size=1536,
    num_local_experts=256,
    num_experts_per_tok=8,
)
GPT_OSS = shape(
    2880,
    24,
    64,
    8,
    201088,
    model_type="gpt_oss",
    head_dim=64,
    intermediate_size=2880,
    num_local_experts=32,
    num_experts_per_tok=4,
    sliding_window=128,
)
LLAMA4 = shape(
    5120,
    48,
    40,
    8,
    202048,
    model_type="llama4_text",
    intermediate_size=8192,
    intermediate_size_mlp=16384,
    num_local_experts=16,
    num_experts_per_tok=1,
)
DENSE = [LLAMA, MISTRAL, QWEN2, QWEN3, OPT]
LATENT_MOE = [DEEPSEEK_V2, DEEPSEEK_V3, KIMI_K2]
LEADING = [DEEPSEEK, *LATENT_MOE, GLM4_MOE]
MOE = [MIXTRAL, PHIMOE, OLMOE, QWEN2_MOE, QWEN3_MOE, *LEADING, MINIMAX_M2, GPT_OSS, LLAMA4]
CONFIGS = [*DENSE, *MOE]
FIXED_HEADS = [QWEN3, *LATENT_MOE, GLM4_MOE, MINIMAX_M2, GPT_OSS]
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
ONE_MODULE = {"num_nextn_predict_layers": 1}
SWITCHED = [QWEN2, QWEN3, QWEN2_MOE, QWEN3_MOE]
SPARSE = [QWEN2_MOE, QWEN3_MOE]


def by_family(value):
    return value["model_type"] if isinstance(value, dict) and "model_type" in value else None


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


@pytest.fixture
def read(tmp_path):
    def read_config(config, **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config | changes), encoding="utf-8")
        return Architecture.from_hf_config(path)

    return read_config


@pytest.fixture
def refusal(read):
    """The message with which a configuration is refused, empty if it is read."""

    def try_config(config, **changes):
        try:
            read(config, **changes)
        except InputError as error:
            return str(error)
        return ""

    return try_config


def windows(model):
    """How many layers have each window."""
    counts = {getattr(mixer, "window", None): n for mixer, n in model.mixers.items()}
    return {window: n for window, n in counts.items() if window}


def dense_layers(model):
    """How many layers have a dense feed-forward block of each width."""
    return {part.ffn_size: n for part, n in model.feed_forwards.items() if part.kind == "dense"}


def first_mixer(model):
    return next(iter(model.mixers))


def counted(width, count):
    return {width: count} if count else {}


@each_row(
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
        ("deepseek-moe-16b", DEEPSEEK),
        ("deepseek-v2-lite", DEEPSEEK_V2),
        ("deepseek-v3", DEEPSEEK_V3 | ONE_MODULE | {"quantization_config": FP8}),
        ("deepseek-r1", DEEPSEEK_V3 | ONE_MODULE | {"quantization_config": FP8}),
        ("kimi-k2", KIMI_K2 | {"quantization_config": FP8}),
        ("glm-4.5-air", GLM4_MOE | ONE_MODULE),
        ("minimax-m2.5", MINIMAX_M2 | {"num_mtp_modules": 1, "quantization_config": FP8}),
        ("gpt-oss-20b", GPT_OSS | {"quantization_config": MXFP4}),
        (
            "gpt-oss-120b",
            GPT_OSS
            | {"num_hidden_layers": 36, "num_local_experts": 128, "quantization_config": MXFP4},
        ),
        ("llama-4-scout", LLAMA4),
        (
            "llama-4-maverick",
            LLAMA4 | {"num_local_experts": 128, "interleave_moe_layer_step": 2},
        ),
    ],
)
def test_config_gives_the_shipped_shape(read, name, config):
    mine, shipped = read(config), load_architecture(name)
    assert mine.total_parameters == shipped.total_parameters
    assert mine.active_parameters == shipped.active_parameters
    labels = {"name", "source", "max_context_length"}
    assert without_fields(mine, labels) == without_fields(shipped, labels)


@each_row(
    ("config", "longest"),
    [
        ({}, None),
        ({"max_position_embeddings": 40_960}, 40_960),
        ({"max_position_embeddings": "long"}, None),
        ({"rope_scaling": {"factor": 4.0}}, None),
        (
            {
                "max_position_embeddings": 40_960,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                 "original_max_position_embeddings": 32_768},
            },
            131_072,
        ),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 4}}, 16_384),
        (
            {"max_position_embeddings": 131_072, "rope_parameters": {
                "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}},
            131_072,
        ),
        ({"max_position_embeddings": 8192, "rope_parameters": {"full_attention": {}}}, 8192),
    ],
)  # fmt: skip
def test_the_longest_context_is_the_stretched_one(read, config, longest):
    llama = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    assert read(llama | config).max_context_length == longest


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


def test_window_switched_off(read):
    for config in SWITCHED:
        model = read(config, use_sliding_window=False, sliding_window=4096, max_window_layers=2)
        assert windows(model) == {}, by_family(config)


def test_window_switch_is_off_by_default(read):
    for config in SWITCHED:
        model = read(config, sliding_window=4096, max_window_layers=2)
        assert windows(model) == {}, by_family(config)


@pytest.mark.parametrize("num_full", [0, 1, 21, 24])
def test_window_switched_on_above_max_window_layers(read, num_full):
    switch = {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": num_full}
    for config in SWITCHED:
        model = read(config, num_hidden_layers=24, **switch)
        assert windows(model) == counted(512, 24 - num_full), by_family(config)


def test_max_window_layers_missing_is_28(read):
    model = read(QWEN3, use_sliding_window=True, sliding_window=512)
    assert windows(model) == {512: 64 - 28}


def test_window_switched_on_without_a_window_takes_the_default(read):
    model = read(QWEN3, use_sliding_window=True, max_window_layers=60)
    assert windows(model) == {4096: 4}


@pytest.mark.parametrize("value", ["false", 0])
def test_window_switch_must_be_boolean(read, value):
    with pytest.raises(InputError, match="use_sliding_window"):
        read(QWEN3, use_sliding_window=value)


def test_window_without_switch_is_on_all_layers_unless_null(read):
    for config in (MISTRAL, MIXTRAL, PHIMOE):
        assert windows(read(config, sliding_window=1024)) == {1024: 32}, by_family(config)
        assert windows(read(config, sliding_window=None)) == {}, by_family(config)


def test_window_missing_is_the_family_default(read):
    assert windows(read(MISTRAL)) == {4096: 32}
    assert windows(read(MIXTRAL)) == {}


@pytest.mark.parametrize("window", ["4096", -1, True, 4096.0])
def test_window_of_another_type(read, window):
    with pytest.raises(InputError, match="sliding_window"):
        read(MISTRAL, sliding_window=window)


def test_layer_types_decide_which_layers_slide(read):
    layer_types = ["sliding_attention", "full_attention", "sliding_attention"]
    model = read(MISTRAL, num_hidden_layers=3, layer_types=layer_types, sliding_window=256)
    assert windows(model) == {256: 2}


def test_layer_types_all_full(read):
    model = read(MISTRAL, layer_types=["full_attention"] * 32, sliding_window=256)
    assert windows(model) == {}


def test_linear_attention_is_refused(read):
    with pytest.raises(InputError, match="layer_types: got 'linear_attention'"):
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


@pytest.mark.parametrize("types", [[1] * 61, [1] * 61 + [0], [0] * 62, [1, 0] * 31, 1, "1", {}])
def test_attention_type_list_with_linear_layers_is_refused(read, types):
    with pytest.raises(InputError, match=r"attn_type_list: .*linear attention"):
        read(MINIMAX_M2, attn_type_list=types)


def test_attention_type_list_of_ordinary_layers(read):
    keys = {"attn_type_list": [1] * 62, "layernorm_linear_attention_beta": 1.0}
    assert read(MINIMAX_M2, **keys) == read(MINIMAX_M2)


def test_alternate_layers_slide_by_default(read):
    model = read(without(GPT_OSS, "sliding_window"), num_hidden_layers=5)
    assert windows(model) == {128: 3}


def test_alternate_layers_by_name(read):
    layer_types = ["sliding_attention"] * 3 + ["full_attention"] * 21
    model = read(GPT_OSS, layer_types=layer_types, sliding_window=256)
    assert windows(model) == {256: 3}


def test_alternate_layers_need_a_window(read):
    with pytest.raises(InputError, match="sliding_window: got None"):
        read(GPT_OSS, sliding_window=None)


ROTARY = [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("keys", "num_chunked"),
    [
        ({}, 3),
        ({"no_rope_layers": []}, 3),
        ({"no_rope_layers": None}, 3),
        ({"no_rope_layer_interval": 2}, 2),
        ({"no_rope_layers": ROTARY}, 3),
        ({"no_rope_layers": [0, 0, 0, 1]}, 1),
        ({"no_rope_layers": [0] * 4}, 0),
        ({"layer_types": ["full_attention"] * 3 + ["chunked_attention"]}, 1),
        (
            {
                "layer_types": ["chunked_attention"] * 2 + ["full_attention", "chunked_attention"],
                "no_rope_layers": ROTARY,
            },
            3,
        ),
    ],
)
def test_chunked_layers(read, keys, num_chunked):
    model = read(LLAMA4, num_hidden_layers=4, attention_chunk_size=1024, **keys)
    assert windows(model) == counted(1024, num_chunked)


def test_chunk_missing_is_the_family_default(read):
    assert windows(read(LLAMA4)) == {8192: 36}


@pytest.mark.parametrize("rotary", ["1", [1] * 47, [2] * 48, [True] * 48, ["1"] * 48, {"a": 1}])
def test_no_rope_layers_of_another_type(read, rotary):
    with pytest.raises(InputError, match="no_rope_layers"):
        read(LLAMA4, no_rope_layers=rotary)


def test_layer_types_that_contradict_no_rope_layers(read):
    with pytest.raises(InputError, match=r"layer_types: .*no_rope_layers"):
        read(LLAMA4, no_rope_layers=[1] * 48, layer_types=["full_attention"] * 48)


@pytest.mark.parametrize("kind", ["sliding_attention", "linear_attention"])
def test_layer_type_of_another_family(read, kind):
    with pytest.raises(InputError, match="layer_types"):
        read(LLAMA4, layer_types=[kind] * 48)


# Nested configurations


def nested(text, **keys):
    return {
        "model_type": "llama4",
        "text_config": text,
        "vision_config": {"hidden_size": 8},
        **keys,
    }


def test_nested_text_config(read):
    assert read(nested(LLAMA4, torch_dtype="bfloat16")) == read(LLAMA4)
    assert read(nested(without(LLAMA4, "model_type"))) == read(LLAMA4)


@pytest.mark.parametrize("text", [None, [], "llama4_text", LLAMA, MIXTRAL, QWEN3_MOE])
def test_text_config_that_does_not_fit(read, text):
    with pytest.raises(InputError, match="text_config: got"):
        read(nested(text))


def test_outer_keys_count_where_the_inner_ones_are_missing(read):
    text = without(LLAMA4, "torch_dtype") | {"tie_word_embeddings": None}
    model = read(nested(text, torch_dtype="float16", tie_word_embeddings=True))
    assert model.weight_dtype == "fp16"
    assert model.has_tied_embeddings


@pytest.mark.parametrize(
    ("key", "outer", "inner"),
    [
        ("torch_dtype", "float16", "bfloat16"),
        ("quantization_config", FP8, MXFP4),
    ],
)
def test_outer_key_that_contradicts_the_inner_one(read, key, outer, inner):
    with pytest.raises(InputError, match=rf" {key}: got .*text_config\.{key}"):
        read(nested(LLAMA4 | {key: inner}, **{key: outer}))


@pytest.mark.parametrize(
    "keys", [{"quantization_config": FP8}, {"compression_config": {"format": "dense"}}]
)
def test_quantisation_beside_the_text_config(read, keys):
    if "quantization_config" in keys:
        assert read(nested(LLAMA4, **keys)) == read(nested(LLAMA4 | keys)) == read(LLAMA4 | keys)
        return
    for config in (nested(LLAMA4, **keys), nested(LLAMA4 | keys)):
        with pytest.raises(InputError, match="compression_config"):
            read(config)


# Names of one thing that contradict each other


@pytest.mark.parametrize(
    ("config", "key", "alias"),
    [
        (GPT_OSS, "num_experts_per_tok", "experts_per_token"),
        (GPT_OSS, "num_local_experts", "num_experts"),
        (MIXTRAL, "num_local_experts", "num_experts"),
        (MINIMAX_M2, "num_local_experts", "n_routed_experts"),
        (OLMOE, "num_experts", "num_local_experts"),
        (DEEPSEEK_V3, "n_routed_experts", "num_local_experts"),
        (LLAMA, "torch_dtype", "dtype"),
    ],
    ids=by_family,
)
def test_two_names_of_one_thing_agree(read, config, key, alias):
    assert read(config, **{alias: config[key]}) == read(config)
    other = "float16" if alias == "dtype" else 2 * config[key]
    with pytest.raises(InputError) as error:
        read(config, **{alias: other})
    assert key in str(error.value)
    assert alias in str(error.value)


# Dense layers among sparse ones


@pytest.mark.parametrize(("listed", "num_dense"), [(None, 0), ([], 0), ([0, 3], 2), ([1, 1], 1)])
def test_mlp_only_layers(read, listed, num_dense):
    for config in SPARSE:
        model = read(config, mlp_only_layers=listed)
        width = config["intermediate_size"]
        assert dense_layers(model) == counted(width, num_dense), by_family(config)
        assert model.num_layers == config["num_hidden_layers"]


@pytest.mark.parametrize("listed", ["0,1", 3, ["0"], [[0]], [0.0], [0, 99], [-1]])
def test_mlp_only_layers_of_another_type(refusal, listed):
    for config in SPARSE:
        assert "mlp_only_layers" in refusal(config, mlp_only_layers=listed), by_family(config)


@pytest.mark.parametrize(
    ("num_layers", "step", "num_dense"), [(24, 1, 0), (24, 2, 12), (5, 2, 3), (7, 3, 5), (3, 4, 3)]
)
def test_decoder_sparse_step(read, num_layers, step, num_dense):
    for config in SPARSE:
        model = read(config, num_hidden_layers=num_layers, decoder_sparse_step=step)
        assert sum(dense_layers(model).values()) == num_dense, by_family(config)


def test_decoder_sparse_step_and_mlp_only_layers_overlap(read):
    changes = {"decoder_sparse_step": 2, "mlp_only_layers": [0, 1, 2]}
    assert dense_layers(read(QWEN2_MOE, **changes)) == {5632: 13}


@pytest.mark.parametrize("step", [0, -1, "1", True])
def test_decoder_sparse_step_of_another_type(read, step):
    with pytest.raises(InputError, match="decoder_sparse_step"):
        read(QWEN2_MOE, decoder_sparse_step=step)


def test_dense_width_is_needed_only_by_dense_layers(read, refusal):
    for config in SPARSE:
        bare = without(config, "intermediate_size")
        assert dense_layers(read(bare)) == {}, by_family(config)
        assert "intermediate_size" in refusal(bare, mlp_only_layers=[0]), by_family(config)


@pytest.mark.parametrize(
    ("num_leading", "frequency", "num_dense"),
    [
        (0, 1, 0),
        (1, None, 1),
        (3, 1, 3),
        (99, 1, 8),
        (0, 2, 4),
        (1, 2, 5),
        (3, 2, 6),
        (1, 3, 6),
        (1, [0, 1, 0, 1, 1, 1, 1, 1], 2),
        (0, [1] * 8, 0),
    ],
)
def test_leading_dense_layers(read, num_leading, frequency, num_dense):
    keys = {"first_k_dense_replace": num_leading, "moe_layer_freq": frequency}
    for config in LEADING:
        model = read(config, num_hidden_layers=8, **keys)
        width = config["intermediate_size"]
        assert dense_layers(model) == counted(width, num_dense), by_family(config)
        assert model.num_layers == 8


@pytest.mark.parametrize("frequency", [0, -1, "1", [1] * 60, [True] * 61, [2] * 61, {}])
def test_moe_layer_freq_of_another_type(read, frequency):
    with pytest.raises(InputError, match="moe_layer_freq"):
        read(DEEPSEEK_V3, moe_layer_freq=frequency)


def test_moe_layer_freq_that_contradicts_the_leading_layers(read):
    with pytest.raises(InputError, match=r"moe_layer_freq: .*first_k_dense_replace = 3"):
        read(DEEPSEEK_V3, moe_layer_freq=[0, 0] + [1] * 59)


@pytest.mark.parametrize("number", [-1, "3", 1.0, None])
def test_first_k_dense_replace_of_another_type(read, number):
    with pytest.raises(InputError, match="first_k_dense_replace"):
        read(GLM4_MOE, first_k_dense_replace=number)


@pytest.mark.parametrize(
    ("keys", "num_dense"),
    [
        ({}, 0),
        ({"interleave_moe_layer_step": 1}, 0),
        ({"interleave_moe_layer_step": 2}, 24),
        ({"interleave_moe_layer_step": 5}, 39),
        ({"moe_layers": list(range(1, 48, 2)), "interleave_moe_layer_step": 2}, 24),
        ({"moe_layers": [0, 47]}, 46),
        ({"moe_layers": []}, 48),
        ({"moe_layers": None, "interleave_moe_layer_step": 2}, 24),
    ],
)
def test_interleaved_dense_layers(read, keys, num_dense):
    model = read(LLAMA4, **keys)
    assert dense_layers(model) == counted(16384, num_dense)


@pytest.mark.parametrize(
    ("key", "value"),
    [("moe_layers", "1"), ("moe_layers", ["1"]), ("interleave_moe_layer_step", 0)],
)
def test_interleaved_layers_of_another_type(read, key, value):
    with pytest.raises(InputError, match=key):
        read(LLAMA4, **{key: value})


# Shared experts


@pytest.mark.parametrize(("given", "num_shared"), [(0, 0), (None, 0), (1, 1), (3, 3)])
def test_shared_experts_by_number(read, given, num_shared):
    for config in LEADING:
        experts = read(config, n_shared_experts=given).experts
        size = config["moe_intermediate_size"] if num_shared else 0
        shared = (experts.num_shared_experts, experts.shared_expert_size)
        assert shared == (num_shared, size), by_family(config)


@pytest.mark.parametrize("value", [-1, "1", True, 1.0])
def test_shared_experts_of_another_type(read, value):
    with pytest.raises(InputError, match="n_shared_experts"):
        read(DEEPSEEK, n_shared_experts=value)


# Latent attention


def test_latent_attention(read):
    for config in LATENT_MOE:
        (mixer,) = read(config, num_key_value_heads=1, head_dim=64).mixers
        assert mixer.kind == "latent_attention", by_family(config)
        assert mixer.num_heads == config["num_attention_heads"], by_family(config)
        assert (mixer.v_head_dim, mixer.cache_size) == (128, 576), by_family(config)


@pytest.mark.parametrize(("rank", "expected"), [(None, 0), (0, 0), (1536, 1536)])
def test_query_latent_is_optional(read, rank, expected):
    assert first_mixer(read(DEEPSEEK_V2, q_lora_rank=rank)).q_lora_rank == expected


@pytest.mark.parametrize("key", LATENT)
def test_latent_widths_are_needed(refusal, key):
    for config in LATENT_MOE:
        assert f"{key}: got None" in refusal(without(config, key)), by_family(config)
        for value in ("512", True, -1, 64.0):
            assert key in refusal(config, **{key: value}), (by_family(config), value)


def test_ordinary_attention_of_a_family_with_leading_dense_layers(read):
    for config in (DEEPSEEK, GLM4_MOE):
        kinds = {mixer.kind for mixer in read(config).mixers}
        assert kinds == {"attention"}, by_family(config)


# Prediction of several tokens


def test_next_token_layers_are_left_out(read):
    for config in LEADING:
        plain = read(config)
        assert plain.num_mtp_modules == 0, by_family(config)
        plain = replace(plain, num_mtp_modules=1)
        for key in ("num_nextn_predict_layers", "num_mtp_layers"):
            assert read(config, **{key: 1}) == plain, (by_family(config), key)


def test_mtp_modules_are_no_layers_but_told(read):
    keys = {"use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 1}
    assert read(MINIMAX_M2, **keys) == replace(read(MINIMAX_M2), num_mtp_modules=3)
    both = {"num_mtp_modules": 7, "num_nextn_predict_layers": 1}  # as MiniMax-M3 has it
    assert mtp_fields(Reader(both, "config")) == {"num_mtp_modules": 7}
    for value in (-1, 1.5, "3", True, 65):
        with pytest.raises(InputError, match=r"num_mtp_modules: got .*from 0 to 64"):
            read(MINIMAX_M2, num_mtp_modules=value)


# Missing keys


def test_head_dim_missing(read):
    for config in CONFIGS:
        if config not in FIXED_HEADS:
            width = config["hidden_size"] // config["num_attention_heads"]
            mixer = first_mixer(read(without(config, "head_dim")))
            assert mixer.head_dim == width, by_family(config)


def test_head_dim_of_qwen3_is_128(read):
    assert QWEN3["hidden_size"] // QWEN3["num_attention_heads"] == 80
    assert first_mixer(read(QWEN3)).head_dim == 128
    assert first_mixer(read(QWEN3, head_dim=64)).head_dim == 64


def test_head_dim_missing_is_the_family_default(read):
    for config, head_dim in ((GPT_OSS, 64), (MINIMAX_M2, 128)):
        assert first_mixer(read(without(config, "head_dim"))).head_dim == head_dim


def test_head_dim_missing_where_heads_do_not_divide_the_width(read):
    """Rounded down, as vLLM 0.33, SGLang 0.5.23 and transformers do."""
    assert first_mixer(read(without(GLM4_MOE, "head_dim"))).head_dim == (
        GLM4_MOE["hidden_size"] // GLM4_MOE["num_attention_heads"]
    )


def test_head_dim_null_is_missing(read):
    for config in CONFIGS:
        missing = read(without(config, "head_dim"))
        assert read(config, head_dim=None) == missing, by_family(config)


def test_tie_word_embeddings(read):
    for config in CONFIGS:
        missing = read(without(config, "tie_word_embeddings"))
        assert missing.has_tied_embeddings == (config is OPT), by_family(config)
        for is_tied in (True, False):
            model = read(config, tie_word_embeddings=is_tied)
            assert model.has_tied_embeddings == is_tied, (by_family(config), is_tied)


@pytest.mark.parametrize("value", ["true", 1])
def test_tie_word_embeddings_must_be_boolean(read, value):
    with pytest.raises(InputError, match="tie_word_embeddings"):
        read(LLAMA, tie_word_embeddings=value)


KV_HEADS = [
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
    (DEEPSEEK, 16),
    (GLM4_MOE, 8),
    (MINIMAX_M2, 8),
    (GPT_OSS, 8),
    (LLAMA4, 8),
]
"""Configurations, and the heads that their families have where the key is missing."""


def test_num_key_value_heads_missing(read):
    for config, num_kv_heads in KV_HEADS:
        mixer = first_mixer(read(without(config, "num_key_value_heads")))
        assert mixer.num_kv_heads == num_kv_heads, by_family(config)


def test_groups_of_experts_divide_them_and_hold_what_a_token_takes(read, refusal):
    assert read(DEEPSEEK_V3).experts.groups_per_token == 4
    assert read(DEEPSEEK_V3, topk_method="greedy").experts.expert_groups == 1
    assert "a divisor of n_routed_experts = 256" in refusal(DEEPSEEK_V3, n_group=7)
    assert "from 1 to 8" in refusal(DEEPSEEK_V3, topk_group=9)


def test_every_other_key_is_needed(refusal):
    defaulted = {
        "model_type",
        "torch_dtype",
        "num_key_value_heads",
        "head_dim",
        "tie_word_embeddings",
        "sliding_window",
        "n_group",
        "topk_group",
    }
    for config in CONFIGS:
        optional = set(defaulted)
        if config in SPARSE:
            optional.add("intermediate_size")
        if config is LLAMA4:
            optional.add("intermediate_size_mlp")
        for key in config.keys() - optional:
            message = refusal(without(config, key))
            assert f"config.json {key}: got None" in message, (by_family(config), key)


# Families and keys that are not understood


NEAR = {
    "chatglm": "glm",
    "gpt2": "gpt_oss",
    "qwen3_5": "qwen3_5_text",
    "qwen3_vl": "qwen3_vl_text",
    "Mixtral": "mixtral",
    "Deepseek_V3": "deepseek_v3",
    "_text": "minimax_text_01",
    "": "afmoe.* more",
}
"""Families that are not known, and what is named instead."""


@pytest.mark.parametrize("model_type", NEAR)
def test_unknown_family_is_refused_by_name(refusal, model_type):
    for config in (LLAMA, MIXTRAL):
        message = refusal(config, model_type=model_type)
        assert re.search(f"(model_type|text_config): got .*{NEAR[model_type]}", message), message


@pytest.mark.parametrize("kind", OTHER_TYPES["refused"])
def test_other_kind_of_layer_is_refused_by_name(refusal, kind):
    for model_type in OTHER_TYPES["refused"][kind]:
        message = refusal(MIXTRAL, model_type=model_type)
        assert f"model_type: got '{model_type}'" in message
        assert f"this has {kind}, not known here" in message


@pytest.mark.parametrize("model_type", [None, 3, ["llama"], {"llama": 1}])
def test_family_of_another_type(read, model_type):
    with pytest.raises(InputError, match="model_type"):
        read(LLAMA, model_type=model_type)


def test_family_missing(read):
    with pytest.raises(InputError, match="model_type"):
        read(without(LLAMA, "model_type"))


@each_row(
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
        ("experts_per_token", 2),
        ("attn_type_list", [1, 0]),
        ("no_rope_layers", [1, 0]),
        ("v_head_dim", 128),
        ("index_topk", 2048),
        ("text_config", {"hidden_size": 1}),
        ("compression_config", {"format": "dense"}),
        ("use_mtp", True),
    ],
)
def test_key_a_dense_family_does_not_know(refusal, key, value):
    for config in DENSE:
        message = refusal(config, **{key: value})
        assert re.search(f"{key}: got .*{by_family(config)}", message), by_family(config)


@each_row(
    ("config", "key"),
    [
        (MIXTRAL, "num_experts"),
        (MIXTRAL, "moe_intermediate_size"),
        (OLMOE, "num_local_experts"),
        (QWEN3_MOE, "shared_expert_intermediate_size"),
        (QWEN2_MOE, "n_shared_experts"),
        (QWEN3_MOE, "first_k_dense_replace"),
        (MIXTRAL, "decoder_sparse_step"),
        (MIXTRAL, "num_nextn_predict_layers"),
        (DEEPSEEK, "kv_lora_rank"),
        (DEEPSEEK_V3, "index_topk"),
        (DEEPSEEK_V3, "decoder_sparse_step"),
        (GLM4_MOE, "kv_lora_rank"),
        (GLM4_MOE, "mlp_layer_types"),
        (MINIMAX_M2, "first_k_dense_replace"),
        (MINIMAX_M2, "shared_intermediate_size"),
        (GPT_OSS, "attention_chunk_size"),
        (LLAMA4, "moe_layer_freq"),
        (LLAMA4, "sliding_window"),
        (LLAMA4, "num_experts"),
    ],
)
def test_key_of_another_moe_family(read, config, key):
    with pytest.raises(InputError, match=f"{key}: got 2"):
        read(config, **{key: 2})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("router_aux_loss_coef", 0.001),
        ("norm_topk_prob", True),
        ("output_router_logits", True),
        ("quantization_config", None),
        ("shared_intermediate_size", 0),
        ("ssm_state_size", None),
        ("num_nextn_predict_layers", 0),
        ("compression_config", None),
        ("num_mtp_modules", 0),
        ("rope_scaling", {"rope_type": "default"}),
        ("attention_bias", True),
    ],
)
def test_harmless_keys_are_accepted(read, key, value):
    for config in CONFIGS:
        assert read(config, **{key: value}) == read(config), by_family(config)


# Values that do not fit


@pytest.mark.parametrize("value", ["4096", True, -4096, 0, 4096.0, [4096], float("nan")])
def test_size_of_another_type(refusal, value):
    for config in CONFIGS:
        keys = ["hidden_size", "num_hidden_layers", "vocab_size"]
        if config not in LATENT_MOE:
            keys.append("head_dim")
        for key in keys:
            message = refusal(config, **{key: value})
            assert f"config.json {key}: got" in message, (by_family(config), key)


@pytest.mark.parametrize("value", ["2", True, -2, 0, 2.0])
def test_experts_per_token_of_another_type(refusal, value):
    for config in MOE:
        message = refusal(config, num_experts_per_tok=value)
        assert "num_experts_per_tok" in message, by_family(config)


def test_more_experts_per_token_than_experts(read):
    with pytest.raises(InputError, match="num_experts_per_tok: got 9"):
        read(MIXTRAL, num_experts_per_tok=9)


def test_kv_heads_that_do_not_divide(read):
    with pytest.raises(InputError, match="num_key_value_heads: got 5"):
        read(LLAMA, num_key_value_heads=5)


# Dtypes


def test_a_file_of_quantisation_beside_the_config_is_read_unless_the_dtype_is_given(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    plain = load_architecture(tmp_path)
    beside = tmp_path / "hf_quant_config.json"
    record = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}
    beside.write_text(json.dumps({"quantization": record}), encoding="utf-8")
    for path in (tmp_path, tmp_path / "config.json"):
        assert load_architecture(path).weight_dtype == "fp4"
    names = {"hardware": "h200_sxm", "drafter": "ngram", "target": tmp_path}
    deployment, _ = deploy(**names, weight_dtype="fp8")
    fp8 = {"weight_dtype": "fp8", "activation_dtype": "fp8"}
    assert deployment.target == plain.with_changes("target", fp8)
    own = LLAMA | {"quantization_config": FP8}
    (tmp_path / "config.json").write_text(json.dumps(own), encoding="utf-8")
    with pytest.raises(InputError, match=r"quantization_config: .*fp8.*fp4, as hf_quant_config"):
        load_architecture(tmp_path)
    assert load_architecture(tmp_path, weight_dtype="fp4").weight_dtype == "fp4"


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
