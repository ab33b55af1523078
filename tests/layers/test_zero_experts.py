"""Experts without weights, double layers and embeddings of n-grams: LongCat, by hand."""

import numpy as np
import pytest
from configs import read
from strategies import pass_of

from specmodel import load_architecture, predict
from specmodel.algebra.ranks import rank_share
from specmodel.algebra.routing import zipf_popularity
from specmodel.base.errors import InputError
from specmodel.cost.deploying import resolve
from specmodel.drafters import mtp_drafter
from specmodel.layers.batch import Layout
from specmodel.layers.embeddings import NgramInputs
from specmodel.layers.feed_forward import RoutedExperts

MODEL = load_architecture("longcat-flash")
H, E, ZERO, K, WIDTH = 6144, 512, 256, 12, 2048
SMALL = {
    "model_type": "longcat_flash",
    "hidden_size": 256,
    "num_layers": 2,
    "num_attention_heads": 4,
    "kv_lora_rank": 64,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "vocab_size": 1000,
    "ffn_hidden_size": 512,
    "expert_ffn_hidden_size": 128,
    "n_routed_experts": 16,
    "moe_topk": 6,
    "zero_expert_num": 8,
    "zero_expert_type": "identity",
    "mla_scale_q_lora": True,
}
NGRAMS = {"ngram_vocab_size_ratio": 78, "emb_split_num": 4, "emb_neighbor_num": 3}


# Experts without weights


def test_a_token_uses_eight_of_twelve_on_average():
    assert MODEL.experts_per_token == 12
    assert MODEL.mean_experts_per_token == pytest.approx(8)
    assert MODEL.activation_ratio == K / (E + ZERO)
    one = pass_of(MODEL, batch_size=1)
    assert one.active_experts == pytest.approx(8)
    expert = 3 * H * WIDTH
    assert MODEL.total_parameters - MODEL.active_parameters == 131072 * H + 28 * (E - 8) * expert


@pytest.mark.parametrize(("batch", "tokens"), [(1, 4), (8, 1), (8, 4), (64, 8)])
def test_unions_are_those_of_draws(batch, tokens):
    rng, draws = np.random.default_rng(7), 200
    found = []
    for _ in range(draws):
        scores = rng.random((batch * tokens, E + ZERO))
        chosen = np.argpartition(scores, K, axis=1)[:, :K]
        found.append(np.unique(chosen[chosen < E]).size)
    ours = float(pass_of(MODEL, batch_size=batch, tokens_per_sequence=tokens).active_experts)
    assert abs(np.mean(found) - ours) < 4 * np.std(found) / np.sqrt(draws)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_ranks_that_a_token_uses_are_those_of_draws(ranks):
    rng, draws = np.random.default_rng(3), 4000
    scores = rng.random((draws, E + ZERO))
    chosen = np.argpartition(scores, K, axis=1)[:, :K]
    uses = (chosen < E // ranks).any(axis=1)  # those of the first rank
    share = rank_share(E, K, ranks, ZERO)
    assert abs(uses.mean() - share) < 4 * np.sqrt(share * (1 - share) / draws)
    assert share < rank_share(E, K, ranks)


def test_work_by_hand():
    parts = pass_of(MODEL, batch_size=6).components
    experts, router, zero = (parts[name] for name in ("routed_experts", "router", "zero_experts"))
    assert experts.flop == pytest.approx(28 * 6 * 8 * 2 * 3 * H * WIDTH)
    assert router.weight_bytes == 28 * H * (E + ZERO) * 2
    assert zero.activation_bytes == 28 * 6 * 5 * H * 2
    assert (zero.flop, zero.weight_bytes) == (0, 0)
    none = MODEL.with_changes("target", {"num_zero_experts": 0})
    assert "zero_experts" not in pass_of(none, batch_size=6).components
    assert none.mean_experts_per_token == 12


def test_popularity_is_that_of_experts_with_weights():
    uneven = zipf_popularity(E, MODEL.mean_experts_per_token, 0.7)
    assert uneven.sum() == pytest.approx(8)
    options = {"hardware": "h200_sxm", "drafter": "ngram", "draft_length": 3, "batch_size": 8}
    asked = {"target": MODEL, "acceptance": 0.5, "expert_parallel": 8, "tensor_parallel": 8}
    assert predict(**asked, **options, popularity=uneven).verify_time > 0
    where = {"target": MODEL, "hardware": "h200_sxm", "drafter": "ngram", "tensor_parallel": 8}
    ours = resolve(where | {"popularity_exponent": 0.7})[0].popularity
    np.testing.assert_array_equal(ours, uneven)
    with pytest.raises(InputError, match=r"popularity: got 'a sum of 12'; .*= 8$"):
        predict(**asked, **options, popularity=zipf_popularity(E, 12, 0.0))


def test_popularity_of_a_broken_number_of_experts():
    for mean in (0.5, 2.5, 3.0):
        shares = zipf_popularity(4, mean, [0.0, 1.0, 5.0])
        np.testing.assert_allclose(shares.sum(axis=-1), mean)
        assert (shares <= 1).all()
    np.testing.assert_array_equal(zipf_popularity(4, 2, 1.0), zipf_popularity(4, 2.0, 1.0))


def test_nothing_to_choose_from_has_no_zero_experts():
    with pytest.raises(InputError, match=r"num_zero_experts: got .*; expected 0"):
        MODEL.with_changes("target", {"num_experts": 1, "experts_per_token": 1})


@pytest.mark.parametrize("degree", [1, 8, 32])
def test_weights_of_each_gpu_add_up(degree):
    layout = Layout(tensor_parallel=min(degree, 8), expert_parallel=degree)
    block = next(part for part in MODEL.feed_forwards if isinstance(part, RoutedExperts))
    router = H * (E + ZERO) * 2
    own = block.weight_bytes(MODEL.stream, layout) - router
    assert own * degree == pytest.approx(E * 3 * H * WIDTH * 2)
    parts = pass_of(MODEL, batch_size=256, layout=layout).components
    assert np.isfinite(parts["routed_experts"].flop)


# Double layers and their module


def test_double_layers_have_two_mixers_and_one_set_of_experts():
    model = read(SMALL)
    assert sum(model.mixers.values()) == 4
    assert {type(part).__name__: n for part, n in model.feed_forwards.items()} == {
        "DenseFeedForward": 4,
        "RoutedExperts": 2,
    }
    assert model.num_norms == 4 * 2 + 1
    assert read(SMALL, num_hidden_layers=2) == read(SMALL, num_hidden_layers=4) == model
    assert read(SMALL, ffn_hidden_size=None, intermediate_size=512) == model
    reductions = pass_of(model, batch_size=1, layout=Layout(2)).components["all_reduce"].reductions
    assert reductions == 4 + 4 + 2 + 1


def test_the_module_has_no_experts():
    (head,) = mtp_drafter(MODEL).architectures
    assert not head.is_moe
    (block,) = head.feed_forwards
    assert block.ffn_size == 12288
    (mixer,) = head.mixers
    assert mixer in MODEL.mixers


def test_cuts_of_its_weights_speculate():
    p = predict(
        target=MODEL, hardware="h200_sxm", tensor_parallel=16, drafter="mtp", acceptance=0.8,
        draft_length=[0, 1, 3], batch_size=[[1], [64]], weight_dtype="fp8", engine="ideal",
    )  # fmt: skip
    assert (p.speedup[:, 0] == 1).all()
    assert (p.target_efficiency[:, 2] < p.target_efficiency[:, 1]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": None}, "num_layers: got None"),
        ({"num_hidden_layers": 3}, "num_hidden_layers: got 3; expected num_layers = 2, or twice"),
        ({"ffn_hidden_size": None}, "ffn_hidden_size: got None"),
        ({"intermediate_size": 511}, "intermediate_size: got 511; expected the same as ffn_"),
        ({"n_routed_experts": None}, "n_routed_experts: got None"),
        ({"n_routed_experts": 1}, "n_routed_experts: got 1"),
        ({"moe_topk": None}, "num_experts_per_tok: got None"),
        ({"moe_topk": 17}, "moe_topk: got 17; expected at most n_routed_experts"),
        ({"expert_ffn_hidden_size": None}, "moe_intermediate_size: got None"),
        ({"zero_expert_num": -1}, "zero_expert_num: got -1"),
        ({"zero_expert_type": "copy"}, "zero_expert_type: got 'copy'; expected identity"),
        ({"attention_method": "MHA"}, "attention_method: got 'MHA'; expected MLA"),
        ({"nextn_use_scmoe": True}, "nextn_use_scmoe: got True; .*not known here"),
        ({"kv_lora_rank": None}, "kv_lora_rank: got None"),
        ({"num_shared_experts": 1}, "num_shared_experts: got 1; .*not known here"),
    ],
)
def test_what_is_not_understood(changes, message):
    with pytest.raises(InputError, match=message) as error:
        read(SMALL, **changes)
    assert "\n" not in str(error.value)


def test_quantised_without_lists_of_names():
    record = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = read(SMALL, quantization_config=record)
    assert model.weight_dtype == "fp8_block"
    assert model.embedding_dtype == "bf16"
    listed = record | {"ignored_layers": ["model.layers.0*"]}
    message = r"quantization_config\.ignored_layers: got .*say weight_dtype"
    with pytest.raises(InputError, match=message):
        read(SMALL, quantization_config=listed)
    with pytest.raises(InputError, match=r"disable_quant_module: got \['mtp'\]"):
        read(SMALL, quantization_config=record, disable_quant_module=["mtp"])
    assert read(SMALL, disable_quant_module=["mtp"]) == read(SMALL)


# Embeddings of n-grams


def test_tables_are_looked_up_and_matrices_multiplied():
    """Eight tables of 78,001 rows and two more each, an eighth of the width each."""
    plain, model = read(SMALL, num_nextn_predict_layers=0), read(SMALL | NGRAMS)
    rows = sum(78_000 + 2 * i + 1 for i in range(8))
    assert model.ngram_inputs == NgramInputs(num_tables=8, num_rows=rows)
    grown = model.total_parameters - plain.total_parameters
    assert grown == rows * 32 + 8 * 32 * 256
    assert model.active_parameters - plain.active_parameters == 8 * 32 * 256
    on_one, on_two = (model.weight_bytes(Layout(n)) - plain.weight_bytes(Layout(n)) for n in (1, 2))
    assert on_one == grown * 2
    assert on_two == rows * 32 + 8 * 32 * 256 * 2
    one, other = (pass_of(m, batch_size=5).components for m in (plain, model))
    looked_up = other["embedding"].activation_bytes - one["embedding"].activation_bytes
    assert looked_up == 5 * 2 * 256 * 2
    assert other["ngram_projections"].weight_bytes == 8 * 32 * 256 * 2
    assert other["ngram_projections"].flop == 2 * 5 * 8 * 32 * 256
    # rows of 32 in, and the model's width of each out; their mean with the token's own is written
    assert other["ngram_projections"].activation_bytes == 5 * (8 * 32 + 8 * 256) * 2
    mean = other["elementwise"].activation_bytes - one["elementwise"].activation_bytes
    assert mean == 5 * (8 + 1 + 1) * 256 * 2
    reductions = pass_of(model, batch_size=1, layout=Layout(2)).components["all_reduce"].reductions
    assert reductions == 4 + 4 + 2 + 2


def test_tables_by_either_name_and_not_in_the_module():
    model = read(SMALL | NGRAMS)
    other = {"oe_vocab_size_ratio": 78, "oe_split_num": 4, "oe_neighbor_num": 3}
    assert read(SMALL | other).ngram_inputs == model.ngram_inputs
    lite = read(SMALL | NGRAMS | {"model_type": "longcat_flash_ngram"})
    assert lite.num_mtp_modules == 0
    assert lite.ngram_inputs == model.ngram_inputs
    (head,) = mtp_drafter(model).architectures
    assert head.ngram_inputs is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ngram_vocab_size_ratio": 0}, "ngram_vocab_size_ratio: got 0"),
        ({"ngram_vocab_size_ratio": "78"}, "ngram_vocab_size_ratio: got '78'"),
        ({"emb_split_num": None}, "emb_split_num: got None"),
        ({"emb_neighbor_num": None}, "emb_neighbor_num: got None"),
        ({"emb_neighbor_num": 1}, "emb_neighbor_num: got 1"),
        (
            {"emb_split_num": 3},
            "emb_split_num: got 3; expected a number of tables, here 6, that divides",
        ),
    ],
)
def test_tables_that_do_not_add_up(changes, message):
    with pytest.raises(InputError, match=message):
        read(SMALL | NGRAMS, **changes)
