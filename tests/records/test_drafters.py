"""Drafters: what a head has of its target, and what cannot be one."""

import pytest

from specmodel.base.errors import InputError
from specmodel.cost.deploy import deploy
from specmodel.records.architecture import load_architecture
from specmodel.records.drafters import (
    eagle3_drafter,
    eagle_drafter,
    load_drafter,
    ngram_drafter,
    parallel_drafter,
)

WIDE = load_architecture("llama-3.1-8b").with_changes("target", {"hidden_size": 10**7})


@pytest.mark.parametrize("build", [eagle_drafter, eagle3_drafter, parallel_drafter])
def test_a_head_wider_than_any_is_refused_in_one_line(build):
    with pytest.raises(InputError, match=r"^drafter\S* got [23]0000000; expected less than"):
        build(WIDE)


@pytest.mark.parametrize("seconds", [1e200, 1e308, 2e6, -1.0, float("nan")])
def test_a_look_up_ends_some_day(seconds):
    with pytest.raises(InputError, match=r"^lookup_time: got .*from 0 to 1e\+06"):
        ngram_drafter(lookup_time=seconds)


@pytest.mark.parametrize("argument", ["target", "drafter", "hardware", "engine"])
@pytest.mark.parametrize("value", [5, 1.5, ["mixtral-8x7b"], {"name": "x"}, b"h200_sxm"])
def test_what_is_neither_record_nor_name_nor_path_is_refused(argument, value):
    names = {"target": "mixtral-8x7b", "hardware": "h200_sxm", "drafter": "ngram"}
    with pytest.raises(InputError, match=rf"^{argument}: got .*a record, a name or a path"):
        deploy(**names | {argument: value})


@pytest.mark.parametrize("name", ["qwen2_0.5b", "Qwen2-0.5B", "qwen2-0.5b"])
def test_a_draft_model_may_be_spelt_as_a_target_may(name):
    target = load_architecture("qwen2-57b-a14b")
    assert load_drafter(name, target).name == "Qwen2-0.5B"


# Dtypes that follow from others


@pytest.mark.parametrize(
    ("hardware", "given", "activation"),
    [
        ("h200_sxm", {"weight_dtype": "fp8"}, "fp8"),
        ("h200_sxm", {"weight_dtype": "fp8", "activation_dtype": "bf16"}, "bf16"),
        ("h200_sxm", {"weight_dtype": "int4"}, "bf16"),
        ("h200_sxm", {"expert_dtype": "fp8"}, "bf16"),
        ("a100_sxm_80gb", {"weight_dtype": "fp8"}, "bf16"),
    ],
)
def test_fp8_weights_meet_fp8_activations_where_the_gpu_computes_in_fp8(
    hardware, given, activation
):
    deployment, assumed = deploy(
        target="mixtral-8x7b", hardware=hardware, drafter="ngram", tensor_parallel=2, **given
    )
    assert deployment.target.activation_dtype == activation
    assert assumed.get("activation_dtype") == (None if "activation_dtype" in given else activation)


def test_a_draft_model_of_another_vocabulary_is_refused():
    """Engines compare its tokens with the target's by number."""
    names = {"target": "mixtral-8x7b", "hardware": "h200_sxm"}
    with pytest.raises(
        InputError,
        match=r"^drafter: got 'Llama-3.2-1B, vocabulary_size 128256'; .*32000 of Mixtral",
    ):
        deploy(**names, drafter="llama-3.2-1b")
    draft = load_architecture("llama-3.2-1b").with_changes("drafter", {"vocabulary_size": 32_000})
    deploy(**names, drafter=draft)
    deploy(**names, drafter="eagle3")
