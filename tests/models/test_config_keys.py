"""Keys of a config.json that nobody knows: named and refused, or ignored where asked to."""

import json

import pytest
from configs import flat
from msgspec.structs import replace
from printed import refused
from rows import faults

from specmodel import Architecture, load_architecture
from specmodel.core.cost import resolve
from specmodel.core.models.hf import family
from specmodel.core.models.hf.files import ignoring
from specmodel.core.models.hf.keys import harmless_keys

LLAMA = flat("meta-llama--Meta-Llama-3.1-8B")
ZETA = {"zeta_dense_every": 4}
TEXT = LLAMA | {"model_type": "qwen3_5_text", "layer_types": ["full_attention"] * 32}
WRAPPED = {"model_type": "qwen3_5", "text_config": TEXT}


@pytest.fixture
def write(tmp_path):
    def write_config(config, folder="model"):
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return path

    return write_config


def test_an_unknown_key_is_refused_with_its_value_and_a_remedy(write):
    expected = "^target config.json zeta_dense_every: got 4; expected no such key"
    told = refused(expected, Architecture.from_hf_config, write(LLAMA | ZETA))
    unknown = "config.json has a key specmodel does not know for llama: zeta_dense_every."
    remedy = "If it does not change tensor shapes, add ignore_keys=['zeta_dense_every']"
    assert f"{unknown} {remedy}" in told


def test_what_looks_like_a_typing_error_is_told(write):
    for typed, meant in (
        ("num_key_value_head", "num_key_value_heads"),
        ("rope_thetas", "rope_theta"),
    ):
        path = write(LLAMA | {typed: 3})
        refused(f"{typed}: got 3; .*perhaps {meant} is", Architecture.from_hf_config, path)


def test_keys_of_a_wrapper_and_of_its_model_are_refused(write):
    for config in (WRAPPED | ZETA, WRAPPED | {"text_config": WRAPPED["text_config"] | ZETA}):
        refused("zeta_dense_every: got 4", Architecture.from_hf_config, write(config))


def test_harmless_keys_change_nothing(write):
    plain = Architecture.from_hf_config(write(LLAMA))
    added = dict.fromkeys(harmless_keys() - {"max_position_embeddings"}, 7)
    assert Architecture.from_hf_config(write(added | LLAMA)) == plain
    for value in (None, False, 0, []):  # of an unknown key, which then says nothing
        assert Architecture.from_hf_config(write(LLAMA | dict.fromkeys(ZETA, value))) == plain


@pytest.fixture
def add_row(tmp_path, monkeypatch):
    """Append a table to the families, as whoever adds a family does."""

    def append(row):
        path = tmp_path / "families.toml"
        path.write_text(family.FAMILIES_FILE.read_text() + row, encoding="utf-8")
        monkeypatch.setattr(family, "FAMILIES_FILE", path)

    yield append
    family._read.cache_clear()


ROW = """
[zeta]
extends = "qwen3_moe"
experts = "zeta_experts"
other_names = { num_experts_per_tok = "zeta_topk", decoder_sparse_step = "zeta_dense_every" }
harmless = ["zeta_scale"]
"""


def test_a_family_with_keys_of_its_own_is_one_row(write, add_row):
    add_row(ROW)
    own = {"model_type": "zeta", "zeta_experts": 32, "zeta_topk": 4, "zeta_scale": 0.5}
    config = LLAMA | ZETA | own | {"num_hidden_layers": 9, "moe_intermediate_size": 256}
    model = Architecture.from_hf_config(write(config))
    kinds = [(part.kind, n) for part, n in model.feed_forwards.items()]
    assert kinds == [("dense", 7), ("experts", 2)]
    assert (model.num_experts, model.experts_per_token) == (32, 4)
    twice = write(config | {"num_experts_per_tok": 5})
    refused("zeta_topk: got 4; .*as num_experts_per_tok = 5", Architecture.from_hf_config, twice)


# Rows of families


@pytest.mark.parametrize(("column", "message"), faults("families"))
def test_a_row_at_fault_is_named_with_its_file_and_column(write, add_row, column, message):
    add_row(f"\n[zeta]\n{column}\n")
    config = LLAMA | {"model_type": "zeta"}
    refused(rf"^families\.toml {message}", Architecture.from_hf_config, write(config))


@pytest.mark.parametrize("row", ["\n[llama.zeta]\n", "\n[zeta]\nname = 'eta'\n"])
def test_a_row_is_a_table_with_columns_alone(write, add_row, row):
    add_row(row)
    refused(r"^families\.toml (llama\.)?zeta: got ", Architecture.from_hf_config, write(LLAMA))


# Keys that are ignored


def test_an_ignored_key_is_as_if_it_were_not_there(write):
    plain = Architecture.from_hf_config(write(LLAMA))
    told = Architecture.from_hf_config(write(LLAMA | ZETA), ignore_keys=("zeta_dense_every",))
    assert told.ignored_config_keys == ("zeta_dense_every",)
    assert plain.ignored_config_keys is None
    assert replace(told, ignored_config_keys=None) == plain
    nested = WRAPPED | {"text_config": WRAPPED["text_config"] | ZETA, "vision_config": ZETA}
    model = Architecture.from_hf_config(write(nested), ignore_keys=["zeta_dense_every"])
    assert model.ignored_config_keys == ("zeta_dense_every",)
    for path, keys, expected in (
        (write(LLAMA | ZETA), "zeta", "'zeta'; .*zeta_dense_every"),
        ("mixtral-8x7b", "zeta", r"\('zeta',\)\. Keys can be ignored only in"),
    ):
        refused(f"ignore_keys: got {expected}", load_architecture, path, ignore_keys=(keys,))


def test_keys_of_target_and_drafter_are_ignored_together(write):
    names = {"target": write(LLAMA | ZETA), "hardware": "h100_sxm"}
    names["drafter"] = write(LLAMA | ZETA | {"eta_rank": 2}, "draft")
    with ignoring(["zeta_dense_every", "eta_rank"]):
        _, assumed = resolve(names)
    assert assumed["ignored_config_key"] == "zeta_dense_every, eta_rank"
    refused("zeta_dense_every: got 4", resolve, names)
