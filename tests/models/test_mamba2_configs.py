"""Configurations with layers of Mamba-2: plans, names of one thing, quantised lists, refusals."""

import json

import pytest
from configs import CONFIGS, read
from rows import each_row
from strategies import pass_of

from specmodel import Architecture, InputError
from specmodel.layers.batch import Layout

NANO = CONFIGS["nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"] | {"num_hidden_layers": 5}
NANO |= {"hybrid_override_pattern": "MEM*-", "n_routed_experts": 4, "num_experts_per_tok": 2}
GRANITE = CONFIGS["transformers--granitemoehybrid"] | {"num_hidden_layers": 4}
GRANITE |= {"layer_types": ["mamba", "mamba", "attention", "mamba"]}
FALCON = CONFIGS["transformers--falcon_h1"]


# Plans


def test_module_by_letters_and_names():
    one = read(NANO, num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E")
    assert one.num_mtp_modules == 1
    assert read(NANO).num_mtp_modules == 0
    for names in (["attention", "moe"], ["full_attention", "moe"]):
        assert read(NANO, num_nextn_predict_layers=1, mtp_layers_block_type=names) == one


# Granite and Bamba


@each_row(
    ("changes", "dtype"),
    [({}, "bf16"), ({"dtype": "float32"}, "fp32"), ({"mamba_ssm_dtype": "float32"}, "fp32")],
)
def test_states_have_the_dtype_of_the_model_where_none_is_given(changes, dtype):
    mixers = read(GRANITE, **changes).mixers
    assert {m.state_dtype for m in mixers if m.kind == "mamba2"} == {dtype}


# Quantised


def expert_names(matrix):
    return [f"backbone.layers.1.mixer.experts.{i}.{matrix}" for i in range(4)]


def test_some_experts_alone_are_refused():
    beside = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", *expert_names("up_proj")]}
    with pytest.raises(InputError, match="some in layer 1'; expected all modules of the experts"):
        read(NANO, beside=beside)


def test_attention_and_a_state_space_side_by_side():
    """Each layer counts as two, of which the first has no norm and no block of its own."""
    model = read(FALCON)
    attention, rest = model.layers
    assert (attention.count, rest.count, attention.num_norms) == (32, 32, 0)
    assert (attention.mixer.kind, attention.feed_forward) == ("attention", None)
    assert (rest.mixer.kind, rest.feed_forward.kind) == ("mamba2", "dense")
    assert model.num_norms == 2 * 32 + 1


def test_both_side_by_side_are_summed_over_gpus():
    """Attention, state space and block each end on an all-reduce, as vLLM runs them."""
    found = pass_of(read(FALCON), batch_size=2, layout=Layout(2)).components
    assert found["all_reduce"].reductions == 3 * 32 + 1
    assert found["attention_core"].cache_bytes > 0
    assert found["recurrence"].cache_bytes == 2 * 32 * 1024 * 256 / 2 * 2 * 2


def test_width_of_a_state_space_beside_attention_may_follow_the_model():
    model = read(FALCON, mamba_d_ssm=None, mamba_d_head=64)
    mixer = next(mixer for mixer in model.mixers if mixer.kind == "mamba2")
    assert mixer.output_size == 2 * 4096


def test_quantised_layers_side_by_side_take_a_given_dtype(tmp_path):
    path = tmp_path / "config.json"
    config = FALCON | {"quantization_config": {"quant_method": "fp8"}}
    path.write_text(json.dumps(config), encoding="utf-8")
    model = Architecture.from_hf_config(path, weight_dtype="fp8")
    assert (model.weight_dtype, model.num_norms) == ("fp8", 2 * 32 + 1)
