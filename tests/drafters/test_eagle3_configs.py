"""EAGLE-3 heads as their own ``config.json`` describes them."""

import json

import pytest
from configs import CONFIGS, HEADS
from printed import refused
from rows import each_row, faults, listed
from shapes import without_fields
from strategies import draft_bytes

from specmodel import deploy, load_architecture, load_drafter
from specmodel.core.drafters import drafter_kind

SGLANG_HEAD, SPECULATORS_HEAD = HEADS["specforge"], HEADS["speculators eagle3"]
"""As SpecForge and vLLM's speculators write it for Qwen3-30B-A3B."""
QWEN = "qwen3-30b-a3b"


def test_keys_that_tell_no_shape_are_passed_over_and_named(head):
    more = {"trained_by": "someone", "is_final": True}
    drafter = head(SPECULATORS_HEAD, **more)
    assert drafter.architectures[0].ignored_config_keys == tuple(more)
    _, assumed = deploy(target=QWEN, hardware="h100_sxm", drafter=drafter)
    assert assumed["ignored_config_key"] == "trained_by, is_final"


@pytest.mark.parametrize("config", [SGLANG_HEAD, SPECULATORS_HEAD], ids=["sglang", "speculators"])
def test_an_eagle3_head_is_read_from_its_config(head, config, tmp_path):
    drafter, derived = head(config), load_drafter("eagle3", load_architecture(QWEN))
    (read,), (own,) = drafter.architectures, derived.architectures
    assert without_fields(read) == without_fields(own)
    assert (drafter.kind, drafter.is_head) == ("EAGLE-3 head", True)
    path = tmp_path / "config.json"  # whose kind the schedule of an engine must say: no draft model
    assert drafter_kind(path, QWEN) == drafter_kind(str(path), QWEN) == "eagle3"
    assert len(drafter.passes(3)) == 2


@each_row(("changes", "fault"), faults("eagle3"))
def test_a_head_that_is_not_understood_is_refused_by_name(head, changes, fault):
    refused(rf"^drafter config.json\S* ?{fault}", head, SGLANG_HEAD, **changes)


def test_a_head_may_be_narrower_than_its_target(head):
    """It then embeds all tokens by itself, as SGLang's `set_embed` says; else it shares that."""
    narrow = head(SGLANG_HEAD, hidden_size=1024, target_hidden_size=2048)
    assert narrow.architectures[0].input_projection_size == 3 * 2048
    for drafter, ends in ((narrow, (151_936 + 32_000) * 1024), (head(SGLANG_HEAD), 32_000 * 2048)):
        (model,) = drafter.architectures
        deployment, _ = deploy(target=QWEN, hardware="b200", drafter=drafter)
        own = model.total_parameters - model.outer_parameters
        assert draft_bytes(deployment) == pytest.approx(2 * (own + ends), rel=1e-9)


@listed
def test_a_head_is_no_target(tmp_path, name):
    """Also where its layers look like a model's, and engines run them otherwise."""
    path = tmp_path / "config.json"
    config = SGLANG_HEAD | {"architectures": [name]} if name else SPECULATORS_HEAD
    path.write_text(json.dumps(config), encoding="utf-8")
    refused(r"^target config\.json architectures: got .*a draft head", load_architecture, path)


# What the classes of engines make of the keys


def test_classes_of_vllm_that_are_the_same_head(head):
    families = ("Llama", "Qwen3", "MiniMaxM2", "Qwen2_5vl", "Qwen3vl")
    named = [f"Eagle3{family}ForCausalLM" for family in families]
    for name in (*named, "LlamaForCausalLM"):  # the last as EAGLE's authors have it
        read = head(SGLANG_HEAD, architectures=[name]).architectures
        assert read == head(SGLANG_HEAD).architectures


def test_only_the_first_of_several_layers_reads_the_embedding(head):
    (model,) = head(SGLANG_HEAD, num_hidden_layers=3).architectures
    first, rest = model.layers
    assert first.mixer.weights(2048) == 29_360_128
    assert (rest.count, rest.mixer.weights(2048)) == (2, 18_874_368)
    assert model.sequence_bytes(100) == 3 * 100 * 2 * 4 * 128 * 2


def test_a_window_is_that_of_the_layers_whose_type_says_so(head):
    types = ["sliding_attention", "full_attention"]
    changes = {"num_hidden_layers": 2, "layer_types": types, "sliding_window": 1024}
    (model,) = head(SGLANG_HEAD, **changes).architectures
    assert [layer.mixer.window for layer in model.layers] == [1024, None]
    off = {"sliding_window": 4096, "use_sliding_window": False}
    assert head(SGLANG_HEAD, **off).architectures == head(SGLANG_HEAD).architectures


@listed
def test_features_that_are_projected(head, changes, taps):
    """Three unless told otherwise; a head may take the last alone, which is not projected."""
    (model,) = head(SGLANG_HEAD, **changes).architectures
    assert model.input_projection_size == taps * 2048


KIMI_HEAD = CONFIGS["moonshotai--Kimi-K2-Instruct"] | {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "deepseek_v3",
    "num_hidden_layers": 1, "draft_vocab_size": 32_000, "fc_norm": True, "norm_output": True,
    "quantization_config": None,
}  # fmt: skip
"""Keys that SGLang's `kimi_k25_eagle3.py` and vLLM's `deepseek_eagle3.py` read."""


@pytest.mark.parametrize("name", ["Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"])
def test_a_head_over_latents_reads_twice_the_width(head, name):
    """Only the matrix that makes the latents is wider; the block is dense."""
    drafter = head(KIMI_HEAD, target="kimi-k2", architectures=[name])
    (model,) = drafter.architectures
    h, (layer,) = 7168, model.layers
    by_head = 1536 * 64 * 192 + 512 * 64 * 256 + 64 * 128 * h
    assert layer.mixer.weights(h) == 2 * h * (1536 + 512 + 64) + by_head
    own = model.total_parameters - model.outer_parameters
    assert own == layer.mixer.weights(h) + 3 * h * 18_432 + 3 * h * h + 3 * h
    assert model.sequence_bytes(10) == 10 * 576 * 2
    names = {"target": "kimi-k2", "hardware": "b200", "tensor_parallel": 8}
    deploy(**names, drafter=drafter)
    refused(r"q_lora_rank: got None", head, KIMI_HEAD, target="kimi-k2", q_lora_rank=None)


EAGLE_HEAD = CONFIGS["meta-llama--Meta-Llama-3.1-8B"] | {"num_hidden_layers": 1}
EAGLE_HEAD |= {"torch_dtype": "float16"}
"""As the first version of EAGLE for Llama-3.1-8B."""


@pytest.mark.parametrize("name", ["EagleLlamaForCausalLM", "MistralForCausalLMEagle"])
def test_a_head_of_the_first_version_is_read_as_derived(head, name):
    """A projection of two widths, in every pass, and a layer that reads one."""
    read = head(EAGLE_HEAD, "llama-3.1-8b", architectures=[name])
    derived = load_drafter("eagle", load_architecture("llama-3.1-8b"))
    (own,), (other,) = read.architectures, derived.architectures
    assert (own.total_parameters, own.input_projection_size) == (other.total_parameters, 2 * 4096)
    assert own.layers[0].mixer.input_size is None
    assert drafter_kind(read, "llama-3.1-8b") == "eagle"
    assert [p.architecture is own for p in read.passes(3)] == [True, True]
