"""Configurations with delta attention, as of Kimi's models, and with layers of Mamba-2."""

import json

import pytest
from configs import CONFIGS, flat, kinds, read
from printed import refused
from strategies import pass_of

from specmodel import Architecture
from specmodel.core.layers import Layout

KIMI, LING = CONFIGS["transformers--kimi_linear"], CONFIGS["transformers--bailing_hybrid"]


def test_names_that_transformers_writes():
    """Its default has 21 and 6 layers, and 49.133e9 parameters."""
    generic = {key: KIMI[key] for key in KIMI if key != "linear_attn_config"}
    generic |= {"linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
    types = ["full_attention" if i and i % 4 == 0 else "linear_attention" for i in range(27)]
    model = read(generic, layer_types=types)
    assert kinds(model) == {"kimi_delta_attention": 21, "latent_attention": 6}
    assert model.total_parameters / 1e9 == pytest.approx(49.133, abs=5e-4)


def test_gates_of_full_rank():
    nested = KIMI["linear_attn_config"] | {"use_full_rank_gate": True}
    mixer = next(iter(read(KIMI, linear_attn_config=nested).mixers))
    assert (mixer.has_low_rank_decay, mixer.has_low_rank_gate) == (True, False)
    ling = next(iter(read(LING).mixers))
    assert (ling.has_low_rank_decay, ling.has_low_rank_gate) == (False, False)


def test_gates_that_latent_attention_is_said_to_have():
    key = "gated_attention_proj_granularity_type"
    told = ({}, 1), ({key: "element_wise"}, 128), ({key: None}, 0)
    for changes, size in (*told, ({"mla_use_output_gate": True}, 128)):
        mixers = read(LING | changes).mixers
        assert {m.gate_size for m in mixers if m.kind == "latent_attention"} == {size}


K3, GLM = flat("moonshotai--Kimi-K3"), flat("zai-org--GLM-5.3-Flash")


def test_kimi_k3_and_glm_flash():
    """One attends to sums of 12 layers, the other has four residual streams."""
    assert (read(K3).residuals.block_layers, read(K3).num_mtp_modules) == (12, 0)
    assert read(GLM).residuals.num_streams == 4
    assert read(GLM, mhc=False).residuals is None


def test_pooled_index_keys():
    """A key for four tokens, of weights that a matrix makes of each and of places in the pool."""
    model = read(GLM)
    alone = model.with_changes("target", {"index_pool": 1})
    more = model.total_parameters - alone.total_parameters
    assert more == 11 * (4096 * 128 + 4 * 128)
    point = {"batch_size": 3, "context_length": 9999}
    pooled, plain = (pass_of(one, **point).components for one in (model, alone))
    assert pooled["indexer"].cache_bytes * 4 == pytest.approx(plain["indexer"].cache_bytes)
    assert pooled["indexer"].flop * 4 == plain["indexer"].flop
    name = "index_selection"
    assert pooled[name].activation_bytes * 4 == pytest.approx(plain[name].activation_bytes)
    assert pooled["attention_core"].cache_bytes == plain["attention_core"].cache_bytes


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
KEPT = [f"model.layers.3.self_attn.{name}" for name in ("kv_b_proj", "indexer.wq_b", "indexer.wk")]


def test_what_is_absorbed_and_the_indexer_may_be_kept_in_16_bits():
    """As GLM-5.3-Flash in blocks of fp8, which keeps all matrices of its delta layers."""
    names = ("q", "k", "v", "o", "f_a", "f_b", "g_a", "g_b")
    delta = [f"model.layers.{i}.self_attn.{n}_proj" for i in range(45) if i % 4 != 3 for n in names]
    kept = [name.replace(".3.", f".{i}.") for i in range(3, 45, 4) for name in KEPT]
    kept += [*delta, "lm_head", "attn_mha", "hyper_connection", "model.layers.3.hc_attn_fn"]
    model = read(GLM, quantization_config=FP8 | {"modules_to_not_convert": kept})
    found = {stored.part.kind: stored.stream.weight_dtype for stored in model.parts}
    assert found.pop("kimi_delta_attention") == "bf16"
    assert found == dict.fromkeys(("sparse_attention", "dense", "experts"), "fp8_block")


def test_gates_of_a_delta_layer_are_kept_or_not_with_the_rest():
    record = FP8 | {"modules_to_not_convert": ["model.layers.0.self_attn.f_a_proj"]}
    refused(r"modules_to_not_convert.*layer 0", read, GLM, quantization_config=record)


# Layers of Mamba-2

NANO = CONFIGS["nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"] | {"num_hidden_layers": 5}
NANO |= {"hybrid_override_pattern": "MEM*-", "n_routed_experts": 4, "num_experts_per_tok": 2}
GRANITE = CONFIGS["transformers--granitemoehybrid"] | {"num_hidden_layers": 4}
GRANITE |= {"layer_types": ["mamba", "mamba", "attention", "mamba"]}
FALCON = CONFIGS["transformers--falcon_h1"]


def test_module_by_letters_and_names():
    one = read(NANO, num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E")
    assert (one.num_mtp_modules, read(NANO).num_mtp_modules) == (1, 0)
    for names in (["attention", "moe"], ["full_attention", "moe"]):
        assert read(NANO, num_nextn_predict_layers=1, mtp_layers_block_type=names) == one


def test_states_have_the_dtype_of_the_model_where_none_is_given():
    told = {"float16": "dtype", "float32": "mamba_ssm_dtype"}
    for changes, dtype in ({}, "bf16"), *(({key: n}, f"fp{n[5:]}") for n, key in told.items()):
        mixers = read(GRANITE, **changes).mixers
        assert {m.state_dtype for m in mixers if m.kind == "mamba2"} == {dtype}


def test_some_experts_alone_are_refused():
    kept = [f"backbone.layers.1.mixer.experts.{i}.up_proj" for i in range(4)]
    beside = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", *kept]}
    refused("some in layer 1'; expected all modules of the experts", read, NANO, beside=beside)


def test_attention_and_a_state_space_side_by_side():
    """Each layer counts as two, of which the first has no norm and no block of its own."""
    model = read(FALCON)
    attention, rest = model.layers
    assert (attention.count, rest.count, attention.num_norms) == (32, 32, 0)
    assert (attention.mixer.kind, attention.feed_forward) == ("attention", None)
    assert (rest.mixer.kind, rest.feed_forward.kind) == ("mamba2", "dense")
    assert model.num_norms == 2 * 32 + 1

    # attention, state space and block each end on an all-reduce, as vLLM runs them
    found = pass_of(read(FALCON), batch_size=2, layout=Layout(2)).components
    assert found["all_reduce"].reductions == 3 * 32 + 1
    assert found["attention_core"].cache_bytes > 0
    assert found["recurrence"].cache_bytes == 2 * 32 * 1024 * 256 / 2 * 2 * 2
    model = read(FALCON, mamba_d_ssm=None, mamba_d_head=64)
    mixer = next(mixer for mixer in model.mixers if mixer.kind == "mamba2")
    assert mixer.output_size == 2 * 4096


def test_quantised_layers_side_by_side_take_a_given_dtype(tmp_path):
    path = tmp_path / "config.json"
    config = FALCON | {"quantization_config": {"quant_method": "fp8"}}
    path.write_text(json.dumps(config), encoding="utf-8")
    model = Architecture.from_hf_config(path, weight_dtype="fp8")
    assert (model.weight_dtype, model.num_norms) == ("fp8", 2 * 32 + 1)
