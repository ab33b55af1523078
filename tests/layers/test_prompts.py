"""Prompts as passes: latent attention with keys and values of each head, and long sequences."""

import numpy as np
import pytest
from rows import each_row
from strategies import pass_of

from specmodel import deploy, load_architecture
from specmodel.core.algebra.experts import expert_use
from specmodel.core.cost import pass_work, prefill_pass
from specmodel.core.layers import sequence_group


def _product_of_all_factors(tokens, p, c):
    if p == 1:
        return 1.0
    before = np.arange(tokens, dtype=float)
    before[0] = 1.0 if c == 1 else 0.0
    unused = np.log1p(-p * (1 - c) / ((1 - c) + before * c))
    return 1 - (1 - p if c == 1 else np.exp(unused.sum()))


@each_row("tokens", [127, 129, 4096, 4097, 10**6])
@each_row("p", [1e-4, 0.25, 1.0])
@each_row("c", [0.0, 1e-6, 0.18, 1.0])
def test_use_of_an_expert_by_long_sequences_is_a_product_of_all_its_factors(tokens, p, c):
    expected = _product_of_all_factors(tokens, p, c)
    assert float(expert_use(tokens, p, c)) == pytest.approx(expected, abs=1e-12)


def _work(**group):
    return pass_of(load_architecture("deepseek-r1"), **group).components


def test_latent_attention_of_a_prompt_has_the_heads_of_training():
    tokens, context = 1000, 3000
    point = {"tokens_per_sequence": tokens, "context_length": context, "logits_per_sequence": 1}
    work = _work(batch_size=2, **point)
    assert "attention_core" not in work
    pairs = 2 * (tokens * context + tokens * (tokens + 1) / 2)
    assert work["prompt_attention"].flop == pytest.approx(61 * pairs * 128 * 2 * (192 + 128))
    assert work["prompt_attention"].kind == "latent_prompt_attention"
    made = 2 * context * 128 * 512 * (128 + 128)
    assert work["context_projections"].flop == pytest.approx(61 * 2 * made)
    assert work["lm_head"].flop == pytest.approx(2 * 2 * 129280 * 7168)


def test_attention_of_a_prompt_is_half_a_square_in_blocks_of_queries_and_keys():
    layers, heads, kv_heads, size, tokens = 32, 32, 8, 128, 1000
    model = load_architecture("llama-3.1-8b")
    group = sequence_group(batch_size=3, tokens_per_sequence=tokens, logits_per_sequence=1)
    work = pass_work(model, group).components["prompt_attention"]
    pairs = sum(range(1, tokens + 1))
    assert work.flop == 3 * layers * pairs * heads * 4 * size
    assert work.groups == pytest.approx(3 * layers * pairs * heads / 128**2)
    assert work.rows == 3 * tokens * heads / 128
    assert work.activation_bytes == 3 * layers * tokens * 2 * 2 * size * (heads + kv_heads)
    assert (work.kind, work.dtype, work.kernels) == ("prompt_attention", "bf16", layers)
    eight_bits = model.with_changes("target", {"kv_dtype": "fp8"})
    assert pass_work(eight_bits, group).components["prompt_attention"].dtype == "fp8"


@pytest.mark.parametrize("target", ["deepseek-r1", "llama-3.1-8b"])
def test_a_sequence_becomes_a_prompt_by_and_by(target):
    model = load_architecture(target)

    def work(tokens):
        point = {"batch_size": 2, "tokens_per_sequence": tokens, "context_length": 700}
        return pass_of(model, **point).components

    assert "prompt_attention" not in work(128)
    assert "attention_core" not in work(256)
    halfway = work(128 * 2**0.5)
    assert halfway["attention_core"].kernels == pytest.approx(halfway["prompt_attention"].kernels)


def test_short_sequences_are_decoded_and_mixtures_have_both():
    short = _work(batch_size=4, tokens_per_sequence=128, context_length=100)
    assert "prompt_attention" not in short
    plain = {"batch_size": 4, "context_length": 100}
    prompt = {"batch_size": 1, "tokens_per_sequence": 500, "logits_per_sequence": 1}
    groups = [sequence_group(**point) for point in (plain, prompt)]
    mixed = pass_work(load_architecture("deepseek-r1"), groups).components
    for name, alone in (("attention_core", _work(**plain)), ("prompt_attention", _work(**prompt))):
        for field in ("flop", "cache_bytes", "activation_bytes", "groups"):
            value = getattr(alone[name], field)
            assert getattr(mixed[name], field) == pytest.approx(value)
    assert "context_projections" not in mixed


@pytest.mark.parametrize("target", ["deepseek-r1", "qwen3-30b-a3b", "llama-3.1-8b"])
def test_prefill_grows_with_the_prompt_and_ends_at_the_peak(target):
    deployment, _ = deploy(target=target, hardware="h200_sxm", stack="datasheet")
    lengths = np.array([256.0, 1024.0, 4096.0, 8192.0, 131072.0])
    seconds = prefill_pass(deployment, lengths).total_time
    assert (np.diff(seconds / lengths)[:1] < 0).all()
    assert (np.diff(seconds) > 0).all()
    model = deployment.target
    least = 2 * lengths * (model.active_parameters - model.head_parameters)
    peak = deployment.hardware.peak_flops_per_s(model.activation_dtype)
    assert (seconds > least / peak).all()
    assert seconds[3] < 3 * least[3] / peak
