"""The work that rows of measured kernels timed is what a pass counts for a layer."""

import numpy as np
import pandas as pd
import pytest
from hybrids import hybrid, one_delta_layer
from rows import each_listed
from strategies import one_layer, pass_of

from specmodel import load_architecture
from specmodel.calibrate.fit import work_of
from specmodel.core.layers import Work

FIELDS = (
    *("flop", "weight_bytes", "activation_bytes", "cache_bytes", "kernels", "rows"),
    *("spread", "width", "groups", "depth"),
)
BF16 = {"activation_dtype": "bf16"}
ATTENDED = {"batch_size": 4, "context_length": 600}


def timed(kind: str, row: dict[str, object]) -> Work:
    return work_of(kind, pd.DataFrame([row]))


def check(work: Work, part: Work, *, layers: int = 1, leave_out: tuple[str, ...] = ()) -> None:
    """All numbers are alike; those of several layers are their sum."""
    for name in FIELDS:
        times = 1 if name in ("rows", "spread", "width", "depth") else layers
        if name not in leave_out:
            measured, counted = (np.ravel(getattr(w, name)) for w in (work, part))
            np.testing.assert_allclose(times * measured, counted, rtol=1e-12, err_msg=name)
    for name in ("kind", "dtype", "stored_dtype"):
        assert getattr(work, name) == getattr(part, name)


@each_listed
def test_experts_timed_are_those_of_one_layer_alone_or_with_their_router(name, tokens, dtype):
    given = ("weight_dtype", "expert_dtype", "activation_dtype")
    model = one_layer(load_architecture(name))
    model = model.with_changes("target", dict.fromkeys(given, dtype) if dtype else {})
    work = pass_of(model, batch_size=tokens, tokens_per_sequence=1, context_length=1000)
    names = ("hidden_size", "num_experts", "experts_per_token", "activation_dtype")
    row = {name: getattr(model, name) for name in names} | {"num_matrices": 3}
    row |= {"num_tokens": tokens, "active_experts": float(work.active_experts)}
    row |= {"expert_size": model.experts.expert_size}
    row |= {"weight_dtype": model.expert_dtype or model.weight_dtype}
    routed, router = work.components["routed_experts"], work.components["router"]
    check(timed("experts", row), routed)
    if name == "mixtral-8x7b":  # whose router has the dtype of its experts
        both = timed("experts", row | {"includes_router": 1})
        for field in ("flop", "weight_bytes", "activation_bytes", "kernels"):
            total = getattr(routed, field) + getattr(router, field)
            assert np.ravel(getattr(both, field)) == pytest.approx(total, rel=1e-12), field


@pytest.mark.parametrize("tokens", [1, 300])
def test_a_product_timed_is_that_of_the_head_and_a_norm_one_of_a_pass(tokens):
    model = load_architecture("llama-3.1-8b")
    work = pass_of(model, batch_size=tokens, tokens_per_sequence=1, context_length=0).components
    sizes = {"input_size": model.hidden_size, "output_size": model.vocabulary_size}
    row = {"num_tokens": tokens, **sizes, "weight_dtype": "bf16", **BF16}
    check(timed("gemm", row), work["lm_head"])
    row = {"num_tokens": tokens, "hidden_size": model.hidden_size, **BF16}
    norms = 2 * model.num_layers + 1
    check(timed("elementwise", row), work["norms"], layers=norms, leave_out=("depth", "width"))


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("queries", [1, 5])
def test_attention_timed_is_that_of_a_verify_pass(queries, kv_dtype):
    """Tables count the entries read; a pass also writes those of its own tokens."""
    model = load_architecture("qwen3-30b-a3b").with_changes("target", {"kv_dtype": kv_dtype})
    (mixer,) = model.mixers
    row = {name: getattr(mixer, name) for name in ("num_heads", "num_kv_heads", "head_dim")}
    row |= {**ATTENDED, "query_tokens": queries, "kv_dtype": kv_dtype, **BF16}
    points = {"tokens_per_sequence": queries, "context_length": 600 - queries}
    core = pass_of(model, batch_size=4, **points).components["attention_core"]
    work = timed("attention", row)
    check(work, core, layers=model.num_layers, leave_out=("cache_bytes",))
    counted = work.cache_bytes * model.num_layers * (1 + queries / 600)
    np.testing.assert_allclose(counted, core.cache_bytes, rtol=1e-12)


@pytest.mark.parametrize("queries", [1, 4])
def test_latent_attention_timed_is_that_of_a_pass(queries):
    sizes = {"num_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "kv_dtype": "bf16"}
    work = timed("latent_attention", {**ATTENDED, "query_tokens": queries, **sizes, **BF16})
    model = load_architecture("deepseek-v3")
    points = {"tokens_per_sequence": queries, "context_length": 600 - queries}
    core = pass_of(model, batch_size=4, **points).components["attention_core"]
    check(work, core, layers=model.num_layers, leave_out=("cache_bytes",))
    assert work.cache_bytes.item() == 4 * 600 * 576 * 2
    assert work.flop.item() == 4 * (queries * 600 - queries * (queries - 1) / 2) * 2 * 128 * 1088


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize(
    ("kind", "model", "heads"),
    [
        ("recurrence", hybrid("Qwen3.5-397B-A17B"), (16, 64)),
        ("kimi_recurrence", one_delta_layer(96), (96, 96)),
    ],
    ids=["gated delta net", "kimi"],
)
def test_a_recurrence_timed_is_that_of_a_pass(kind, model, heads, queries):
    sizes = dict(zip(("num_key_heads", "num_value_heads"), heads, strict=True))
    sizes |= {"key_head_dim": 128, "value_head_dim": 128, "state_dtype": "fp32"}
    work = timed(kind, {"batch_size": 4, "query_tokens": queries, **sizes, **BF16})
    part = pass_of(model, batch_size=4, tokens_per_sequence=queries).components["recurrence"]
    check(work, part, layers=model.layers[0].count)
    assert work.cache_bytes.item() == 4 * (1 + queries) * heads[1] * 128 * 128 * 4


def test_a_prompt_timed_is_that_of_a_pass():
    model = load_architecture("llama-3.1-8b")
    sizes = {"num_heads": 32, "num_kv_heads": 8, "key_head_dim": 128, "value_head_dim": 128}
    row = {"batch_size": 1, "query_tokens": 2048, "context_length": 2048, **sizes, **BF16}
    points = {"batch_size": 1, "tokens_per_sequence": 2048, "logits_per_sequence": 1}
    part = pass_of(model, **points).components["prompt_attention"]
    check(timed("prompt_attention", row | {"kv_dtype": "bf16"}), part, layers=32)
