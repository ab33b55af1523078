"""Configurations of Kimi's models and of those that have its delta attention."""

import pytest
from configs import CONFIGS, flat, read
from strategies import pass_of

from specmodel import InputError

KIMI, LING = CONFIGS["transformers--kimi_linear"], CONFIGS["transformers--bailing_hybrid"]


def kinds(model):
    return {mixer.kind: count for mixer, count in model.mixers.items()}


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


@pytest.mark.parametrize(("changes", "size"), [
    ({}, 1), ({"gated_attention_proj_granularity_type": "element_wise"}, 128),
    ({"gated_attention_proj_granularity_type": None}, 0), ({"mla_use_output_gate": True}, 128),
])  # fmt: skip
def test_gates_that_latent_attention_is_said_to_have(changes, size):
    gates = {m.gate_size for m in read(LING | changes).mixers if m.kind == "latent_attention"}
    assert gates == {size}


K3, GLM = flat("moonshotai--Kimi-K3"), flat("zai-org--GLM-5.3-Flash")


def test_kimi_k3_and_glm_flash():
    """One attends to sums of 12 layers, the other has four residual streams."""
    assert read(K3).residuals.block_layers == 12
    assert read(K3).num_mtp_modules == 0
    assert read(GLM).residuals.num_streams == 4
    assert read(GLM, mhc=False).residuals is None


def test_pooled_index_keys():
    """A key for four tokens, of weights that a matrix makes of each and of places in the pool."""
    model = read(GLM)
    alone = model.with_changes("target", {"index_pool": 1})
    more = model.total_parameters - alone.total_parameters
    assert more == 11 * (4096 * 128 + 4 * 128)
    pooled, plain = (
        pass_of(one, batch_size=3, context_length=9999).components for one in (model, alone)
    )
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
    kept = [
        *delta, "lm_head", "attn_mha", "hyper_connection", "model.layers.3.hc_attn_fn",
        *(name.replace(".3.", f".{i}.") for i in range(3, 45, 4) for name in KEPT),
    ]  # fmt: skip
    model = read(GLM, quantization_config=FP8 | {"modules_to_not_convert": kept})
    found = {(stored.part.kind, stored.stream.weight_dtype) for stored in model.parts}
    assert found == {
        ("kimi_delta_attention", "bf16"),
        ("sparse_attention", "fp8_block"),
        ("dense", "fp8_block"),
        ("experts", "fp8_block"),
    }


def test_gates_of_a_delta_layer_are_kept_or_not_with_the_rest():
    record = FP8 | {"modules_to_not_convert": ["model.layers.0.self_attn.f_a_proj"]}
    with pytest.raises(InputError, match=r"modules_to_not_convert.*layer 0"):
        read(GLM, quantization_config=record)
