"""Experts without weights, double layers and embeddings of n-grams: LongCat, by hand."""

import numpy as np
import pytest
from configs import CONFIGS, read
from printed import refused
from strategies import pass_of

from specmodel import InputError, load_architecture, mtp_drafter
from specmodel.core.algebra.routing import zipf_popularity
from specmodel.core.cost import resolve
from specmodel.core.layers import Layout
from specmodel.core.layers.embeddings import NgramInputs

MODEL = load_architecture("longcat-flash")
H, E, ZERO, K, WIDTH = 6144, 512, 256, 12, 2048
SMALL = CONFIGS["transformers--longcat_flash"] | {"num_layers": 2, "vocab_size": 1000}
NGRAMS = {"ngram_vocab_size_ratio": 78, "emb_split_num": 4, "emb_neighbor_num": 3}


# Experts without weights


def test_a_token_uses_eight_of_twelve_on_average():
    assert (MODEL.experts_per_token, MODEL.mean_experts_per_token) == (12, pytest.approx(8))
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


def test_work_by_hand():
    parts = pass_of(MODEL, batch_size=6).components
    experts, router, zero = (parts[name] for name in ("routed_experts", "router", "zero_experts"))
    assert experts.flop == pytest.approx(28 * 6 * 8 * 2 * 3 * H * WIDTH)
    assert router.weight_bytes == 28 * H * (E + ZERO) * 2
    assert (zero.activation_bytes, zero.flop, zero.weight_bytes) == (28 * 6 * 5 * H * 2, 0, 0)
    none = MODEL.with_changes("target", {"num_zero_experts": 0})
    assert "zero_experts" not in pass_of(none, batch_size=6).components
    assert none.mean_experts_per_token == 12


def test_popularity_is_that_of_experts_with_weights():
    uneven = zipf_popularity(E, MODEL.mean_experts_per_token, 0.7)
    assert uneven.sum() == pytest.approx(8)
    assert zipf_popularity(4, 2.5, 1.0).sum() == pytest.approx(2.5)
    where = {"target": MODEL, "hardware": "h200_sxm", "drafter": "ngram", "tensor_parallel": 8}
    for name, value in (("popularity_exponent", 0.7), ("popularity", uneven)):
        np.testing.assert_array_equal(resolve(where | {name: value})[0].popularity, uneven)
    with pytest.raises(InputError, match=r"popularity: got 'a sum of 12'; .*= 8$"):
        resolve(where | {"popularity": zipf_popularity(E, 12, 0.0)})


def test_a_single_expert_is_no_choice():
    changes = {"num_experts": 1, "experts_per_token": 1}
    refused(r"num_experts: got 1; expected .* 2", MODEL.with_changes, "target", changes)


# Double layers and their module


def test_double_layers_have_two_mixers_and_one_set_of_experts():
    model = read(SMALL)
    assert sum(model.mixers.values()) == 4
    counts = {type(part).__name__: n for part, n in model.feed_forwards.items()}
    assert counts == {"DenseFeedForward": 4, "RoutedExperts": 2}
    assert model.num_norms == 4 * 2 + 1
    reductions = pass_of(model, batch_size=1, layout=Layout(2)).components["all_reduce"].reductions
    assert reductions == 4 + 4 + 2 + 1


def test_quantised_without_lists_of_names():
    record = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = read(SMALL, quantization_config=record)
    assert (model.weight_dtype, model.embedding_dtype) == ("fp8_block", "bf16")
    listed = record | {"ignored_layers": ["model.layers.0*"]}
    message = r"quantization_config ignored_layers: got .*Give weight_dtype"
    refused(message, read, SMALL, quantization_config=listed)
    with pytest.raises(InputError, match=r"disable_quant_module: got \['mtp'\]"):
        read(SMALL, quantization_config=record, disable_quant_module=["mtp"])


# Embeddings of n-grams


def test_tables_are_looked_up_and_matrices_multiplied():
    """Eight tables of 78,001 rows and two more each, an eighth of the width each."""
    plain, model = read(SMALL, num_nextn_predict_layers=0), read(SMALL | NGRAMS)
    rows = sum(78_000 + 2 * i + 1 for i in range(8))
    assert model.ngram_inputs == NgramInputs(num_tables=8, num_rows=rows)
    tables, matrices = rows * H / 8, 8 * H / 8 * H
    assert model.total_parameters - plain.total_parameters == tables + matrices
    assert model.active_parameters - plain.active_parameters == matrices
    for gpus in (1, 2):
        more = model.weight_bytes(Layout(gpus)) - plain.weight_bytes(Layout(gpus))
        assert more == (tables / gpus + matrices) * 2
    one, other = (pass_of(m, batch_size=5).components for m in (plain, model))
    looked_up = other["embedding"].activation_bytes - one["embedding"].activation_bytes
    assert looked_up == 5 * 2 * H * 2
    projections = other["ngram_projections"]
    assert (projections.weight_bytes, projections.flop) == (matrices * 2, 2 * 5 * matrices)
    # rows of H / 8 in, and the model's width of each out; their mean with the token's is written
    assert projections.activation_bytes == 5 * (H + 8 * H) * 2
    mean = other["elementwise"].activation_bytes - one["elementwise"].activation_bytes
    assert mean == 5 * (8 + 1 + 1) * H * 2
    reductions = pass_of(model, batch_size=1, layout=Layout(2)).components["all_reduce"].reductions
    assert reductions == 4 + 4 + 2 + 2


def test_tables_by_either_name_and_not_in_the_module():
    model = read(SMALL | NGRAMS)
    other = {"oe_vocab_size_ratio": 78, "oe_split_num": 4, "oe_neighbor_num": 3}
    assert read(SMALL | other).ngram_inputs == model.ngram_inputs
    lite = read(SMALL | NGRAMS | {"model_type": "longcat_flash_ngram"})
    assert (lite.num_mtp_modules, lite.ngram_inputs) == (0, model.ngram_inputs)
    (head,) = mtp_drafter(model).architectures
    assert head.ngram_inputs is None
    assert [block.ffn_size for block in head.feed_forwards] == [12288]  # no experts
