"""Heads and models that draft a block in one pass, as their own ``config.json`` describes them."""

import numpy as np
import pytest
from configs import HEADS, flat
from printed import refused
from rows import cases, each_row, faults, listed
from shapes import without_fields
from strategies import pass_of

from specmodel import load_architecture
from specmodel.core.drafters import dflash_drafter, drafter_kind, dspark_drafter, load_drafter
from specmodel.core.layers import Layout

QWEN = "qwen3-30b-a3b"
K3 = flat("moonshotai--Kimi-K3")
DFLASH, DSPARK = HEADS["dflash"], HEADS["dspark"]
"""As z-lab's and DeepSeek's heads for Qwen3 have it."""
OF_SPECULATORS = HEADS["speculators"]
LAYERS = OF_SPECULATORS["transformer_layer_config"]
KIMI = DSPARK | {key: K3[key] for key in K3 if "_head" in key or "_rank" in key}
KIMI |= {key: K3[key] for key in ("hidden_size", "vocab_size")} | {"head_dim": None}
KIMI |= {"architectures": ["K3DSparkModel"], "model_type": "k3_dspark", "num_target_layers": 5}
KIMI |= {"target_hidden_size": 7168, "intermediate_size": 18_432, "block_size": 8}
"""Keys of the class for Kimi-K3 in vLLM 0.33; widths of its block are not public."""


def same(one, other):
    first, second = ([*map(without_fields, each.architectures)] for each in (one, other))
    return first == second


def queries(drafter, length):
    found = {part.name: part for part in drafter.passes(length)}
    return float(found["draft pass"].tokens_per_sequence)


def test_dflash_is_read_from_its_config(head):
    drafter = head(DFLASH)
    assert same(drafter, dflash_drafter(load_architecture(QWEN)))
    assert same(head(DFLASH, architectures=["DFlashLagunaForCausalLM"]), drafter)
    assert (drafter.kind, drafter.block_size, queries(drafter, 15)) == ("DFlash head", 15, 16)
    assert drafter_kind(drafter, QWEN) == "dflash"


def test_dspark_is_read_from_its_config(head):
    drafter = head(DSPARK)
    assert same(drafter, dspark_drafter(load_architecture(QWEN)))
    assert (drafter.kind, drafter.block_size, queries(drafter, 7)) == ("DSpark head", 7, 7)
    for name in ("LingDSparkModel", "DSparkDraftModel"):
        assert same(head(DSPARK, architectures=[name], dspark_draft_topk=None), drafter)
    assert head(DSPARK, dspark_draft_topk=64).architectures[0].markov.num_candidates == 64


@listed
def test_whether_the_last_token_drafts(head, changes, block, more):
    """By vLLM's speculator: a block of N drafts N, or N - 1 where its first token is known."""
    drafter = head(DSPARK, **changes)
    assert (drafter.block_size, queries(drafter, block)) == (block, block + more)


@each_row(("kind", "own"), [("DFlash", {}), ("DSpark", {"markov_rank": 128})])
def test_heads_of_speculators(head, kind, own):
    """Their layers are nested, their vocabulary is reduced, and the anchor drafts only if told."""
    told = {"architectures": [f"{kind}Speculator"], "speculators_model_type": kind.lower()}
    for from_anchor, block in ((None, 7), (True, 8)):
        drafter = head(OF_SPECULATORS | told | own, sample_from_anchor=from_anchor)
        assert (drafter.block_size, queries(drafter, block)) == (block, 8)
    (model,) = drafter.architectures
    assert (model.vocabulary_size, model.num_layers) == (32_000, 5)
    assert model.input_projection_size == 5 * 2048
    if kind == "DSpark":  # a bias on draft tokens by one of the target's
        assert model.markov.table_parameters(model.around) == 151_936 * 128
        assert model.markov.parameters(model.around) == 32_000 * 128


def test_dspark_over_latents(head):
    """Entries of 512 + 64 that all GPUs have, made of features by 5 x 576 rows (dspark_mla.py)."""
    drafter = head(KIMI, "kimi-k3")
    (model,) = drafter.architectures
    assert model.sequence_bytes(np.array(1.0), 8) == 5 * 576 * 2
    made = pass_of(model, batch_size=4, tokens_per_sequence=9, part="context").components
    assert made["context_projections"].weight_bytes == 2 * 5 * 576 * 7168
    assert made["context_projections"].rows == 36


def test_a_quantised_head(head):
    """Layers have the dtype of the record; the projection, the ends and the Markov head 16 bits."""
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (plain,) = head(DSPARK).architectures
    (narrow,) = head(DSPARK, quantization_config=blocks).architectures
    assert narrow.weight_dtype == "fp8_block"
    in_layers = 5 * (2048 * 4096 * 2 + 2 * 2048 * 512 + 3 * 2048 * 6144)
    saved = plain.weight_bytes(Layout()) - narrow.weight_bytes(Layout())
    assert saved == pytest.approx(in_layers, rel=1e-3)
    left_out = ["lm_head", "re:.*fc", "markov_head*", "*self_attn*"]  # the last is of layers
    record = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": left_out}
    (model,) = head(DSPARK, quantization_config=record).architectures
    assert (model.weight_dtype, model.outer_dtype) == ("fp4", "bf16")
    assert dict(model.own_dtypes) == {"attention_dtype": "bf16"}


@listed
def test_windows_of_layers(head, own, kinds, windows):
    """By `use_swa` in all, by `layer_types` in those listed, else in none (qwen3_dflash.py)."""
    told = {"layer_types": kinds, "sliding_window": 4096, "use_sliding_window": True}
    drafter = head(DFLASH, dflash_config=DFLASH["dflash_config"] | own, **told)
    assert [group.mixer.window for group in drafter.architectures[0].layers] == windows


@each_row(("config", "changes", "fault"), [
    (HEADS[name], *row) for name in ("dflash", "dspark") for row in faults(name)
])  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(head, config, changes, fault):
    refused(f"^drafter config.json {fault}", head, config, **changes)


@listed
def test_p_eagle_is_read_from_its_config(head, told):
    """By its class, by speculators' name for it, or by the mask of an EAGLE-3 head."""
    plain = LAYERS | {"model_type": "llama", "num_hidden_layers": 1, "draft_vocab_size": 32_000}
    drafter = head(plain, **told)
    assert drafter.kind == "P-EAGLE head"
    assert [float(part.tokens_per_sequence) for part in drafter.passes(4)] == [5, 8]
    sequential = head(plain, architectures=["LlamaForCausalLMEagle3"])
    assert same(drafter, sequential)
    assert sequential.kind == "EAGLE-3 head"


def test_pard_is_read_from_its_config(head):
    """A model like any other, but for the token of its masks."""
    config = flat("meta-llama--Meta-Llama-3.1-8B", architectures=["LlamaForCausalLM"])
    drafter, model = head(config, "llama-3.1-8b", pard_token=128_002), head(config, "llama-3.1-8b")
    assert (drafter.kind, model.kind) == ("PARD model", "draft model")
    assert same(drafter, model)
    assert float(drafter.passes(6)[0].tokens_per_sequence) == 13


@pytest.mark.parametrize("name", ["DSparkDraftModel", "DFlashDraftModel"])
def test_a_dspark_head_of_specforge_is_read(head, name):
    """A file for a target of Qwen3's, with keys that change no shape."""
    nested = {key: DSPARK[key] for key in ("markov_rank", "target_layer_ids", "mask_token_id")}
    nested |= {"attention_mode": "full", "projector_type": "dspark", "confidence_head_alpha": 1.0}
    own = {"architectures": [name], "block_size": 7, "decoder_sparse_step": 1}
    read = head(DFLASH, dflash_config=nested | {"enable_confidence_head": True}, **own)
    derived = load_drafter("dspark", load_architecture(QWEN))
    (own,), (other,) = read.architectures, derived.architectures
    assert own.total_parameters == other.total_parameters
    assert (read.block_size, read.kind) == (7, "DSpark head")


@each_row("told", [{"hc_mult": 4}, {"target_hidden_size": 16_384}])
def test_a_head_may_read_all_streams_of_its_target(head, told):
    """81,920 features: five layers of four streams of 4096, as DeepSeek-V4-Flash's DFlash head."""
    sizes = {"hidden_size": 4096, "vocab_size": 129_280, "draft_vocab_size": 32_000}
    read = head(DFLASH, "deepseek-v4-flash", **sizes, **told)
    assert read.architectures[0].input_projection_size == 81_920


V4 = flat("deepseek-ai--DeepSeek-V4-Flash") | {
    "num_hidden_layers": 2, "num_nextn_predict_layers": 3, "compress_ratios": [4, 128, 0, 0, 0],
    "dspark_block_size": 7, "dspark_markov_rank": 256, "dspark_target_layer_ids": [40, 41, 42],
}  # fmt: skip
"""The widths of DeepSeek-V4-Flash, and keys of the class in vLLM 0.33; no file was at hand."""


@cases("name", "DSparkV4DraftModel", "DeepseekV4ForCausalLMDSpark", "DSparkDraftModel")
def test_dspark_head_of_deepseek_v4_is_read_as_by_its_name(head, name):
    read = head(V4, "deepseek-v4-flash", architectures=[name])
    derived = load_drafter("dspark", load_architecture("deepseek-v4-flash"))
    (own,), (other,) = read.architectures, derived.architectures
    assert own.total_parameters == other.total_parameters
    assert (read.block_size, read.kind) == (7, "DSpark head")
    gone = {"architectures": [name], "dspark_target_layer_ids": None}
    message = "dspark_target_layer_ids: got None; expected a list"
    refused(message, head, V4, "deepseek-v4-flash", **gone)
