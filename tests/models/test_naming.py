"""Names as people type them: shipped, short, their beginnings, and ids of a hub's local cache."""

import json

import pytest
from printed import refused
from shapes import CONFIG

from specmodel import InputError, list_hardware, load_architecture, load_drafter, load_hardware
from specmodel.core.base.naming import cached_snapshot, is_id, known_name
from specmodel.core.machines.hardware import SHORT


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of a hub with one model, whose file is a link to a blob, as clients keep it."""
    cache = tmp_path / "hub"
    model = cache / "models--mistralai--Mixtral-8x7B-v0.1"
    snapshot = model / "snapshots" / "0a1b2c"
    (model / "blobs").mkdir(parents=True)
    (model / "refs").mkdir()
    snapshot.mkdir(parents=True)
    (model / "refs" / "main").write_text("0a1b2c")
    (model / "blobs" / "ffff").write_text(json.dumps(CONFIG))
    (snapshot / "config.json").symlink_to("../../blobs/ffff")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return cache


def test_short_names_mean_the_sxm_card_of_80_gb_or_the_only_one():
    assert {*SHORT.values()} <= {*list_hardware()}
    assert all("sxm" in SHORT[name] for name in ("a100", "a800", "h100", "h200", "h800"))
    assert load_hardware("H100") == load_hardware(SHORT["h100"])
    assert load_hardware("a100").memory.capacity_bytes >= 80e9


def test_several_beginnings_are_listed_but_a_whole_name_goes_before():
    assert known_name("qwen3-32b", ["qwen3-32b", "qwen3-32b-long"], "target") == "qwen3-32b"
    assert known_name("zzz", ["qwen3-32b"], "target") is None
    with pytest.raises(InputError, match="full name: mixtral-8x22b, mixtral-8x7b"):
        known_name("mixtral", ["mixtral-8x22b", "mixtral-8x7b", "olmoe-1b-7b"], "target")


def test_an_id_in_the_local_cache_is_read_and_named_for_the_model(hub):
    model = load_architecture("mistralai/Mixtral-8x7B-v0.1")
    assert (model.name, model.num_experts) == ("Mixtral-8x7B-v0.1", 8)
    assert load_drafter("mistralai/Mixtral-8x7B-v0.1", model).architectures[0].name == model.name


def test_the_id_of_a_repository_of_gguf_is_a_name_though_it_is_in_the_local_cache(hub):
    (hub / "models--mistralai--Mixtral-8x7B-v0.1").rename(hub / "models--me--Mixtral-8x7B-GGUF")
    assert cached_snapshot("me/Mixtral-8x7B-GGUF")
    assert load_architecture("me/Mixtral-8x7B-GGUF").weight_dtype == "q4_k_m"


def test_an_id_that_ends_in_a_shipped_name_is_that_model(hub):
    """And one that is not there says where was looked."""
    message = r"local cache \(.*hub\), or a known name such as qwen3-30b"
    refused(message, load_architecture, "Qwen/Qwen3-30B-A3B-Turbo")
    model = load_architecture("qwen3-30b-a3b")
    assert load_architecture("Qwen/Qwen3-30B-A3B") == model
    assert load_drafter("Qwen/Qwen3-30B-A3B", model).architectures[0].name == model.name


def test_what_is_broken_in_the_cache_is_no_snapshot(hub):
    refs = hub / "models--mistralai--Mixtral-8x7B-v0.1" / "refs" / "main"
    for text in ("../../..", "dddd", ""):
        refs.write_text(text)
        assert cached_snapshot("mistralai/Mixtral-8x7B-v0.1") is None


def test_the_cache_is_where_clients_keep_it(tmp_path, monkeypatch):
    """By the last of these variables that is set."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HF_HOME", raising=False)
    told = {"XDG_CACHE_HOME": "c/huggingface/hub", "HF_HOME": "b/hub", "HF_HUB_CACHE": "a"}
    for variable, folder in told.items():
        monkeypatch.setenv(variable, str(tmp_path / folder[0]))
        model = tmp_path / folder / "models--a--b"
        (model / "refs").mkdir(parents=True)
        (model / "snapshots" / "ab").mkdir(parents=True)
        (model / "refs" / "main").write_text("ab\n")
        assert cached_snapshot("a/b") == model / "snapshots" / "ab"


def test_a_folder_goes_before_an_id(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mistralai" / "Mixtral-8x7B-v0.1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_local_experts": 16}))
    assert load_architecture("mistralai/Mixtral-8x7B-v0.1").num_experts == 16


def test_paths_are_no_ids():
    assert is_id("a/b")
    paths = ("../a", "./a/b", "/a/b", "a/b/c", "a/b.toml", "a/b.json", "ab")
    assert not any(map(is_id, paths))
