"""Passes that carry several groups of sequences: decoding beside a chunk of a prompt."""

import numpy as np
import pytest
from msgspec.structs import asdict
from printed import refused

from specmodel import load_architecture
from specmodel.core.algebra.routing import zipf_popularity
from specmodel.core.cost import pass_work
from specmodel.core.layers import Layout, Work, sequence_group

DECODE = {"batch_size": 6, "tokens_per_sequence": 4, "context_length": 3000}
CHUNK = {"batch_size": 1, "tokens_per_sequence": 500, "context_length": 700}
CHUNK |= {"logits_per_sequence": 1}


def mixed_and_apart(name, layout=None):
    """One pass of both groups, and a pass of each."""
    decode, chunk = sequence_group(**DECODE), sequence_group(**CHUNK)
    model, layout = load_architecture(name), layout or Layout()
    how = {"layout": layout, "routing_correlation": 0.2}
    return [pass_work(model, groups, **how) for groups in ([decode, chunk], decode, chunk)]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v3", "qwen2-57b-a14b"])
def test_what_goes_by_token_or_by_sequence_adds_up_and_weights_are_read_once(name):
    """Tokens, attention pairs and KV bytes: full heads, windows, latents, shared experts."""
    mixed, decode, chunk = mixed_and_apart(name)
    for component, work in mixed.components.items():
        own = [one.components.get(component) for one in (decode, chunk)]
        for field in ("flop", "cache_bytes", "activation_bytes"):
            expected = pytest.approx(sum(getattr(one or Work(), field) for one in own), rel=1e-12)
            assert getattr(work, field) == expected, (component, field)
        if component != "routed_experts":
            assert {one.weight_bytes for one in own if one} == {work.weight_bytes}, component

    most = max(decode.active_experts, chunk.active_experts)
    assert most <= mixed.active_experts <= decode.active_experts + chunk.active_experts


def test_attention_of_two_groups_by_hand():
    """Every query sees its context and the queries before it; entries are read once each."""
    components = mixed_and_apart("llama-3.1-8b")[0].components
    core, prompt = components["attention_core"], components["prompt_attention"]
    decode = 6 * sum(range(3001, 3005))
    chunk = sum(range(701, 1201))
    assert (core.flop, prompt.flop) == (32 * 4 * 32 * 128 * decode, 32 * 4 * 32 * 128 * chunk)
    assert core.cache_bytes == 6 * (3004 + 4) * 32 * 2 * 8 * 128 * 2  # read, and written
    assert prompt.cache_bytes == (1200 + 500) * 32 * 2 * 8 * 128 * 2


def test_messages_add_up_over_groups():
    mixed, decode, chunk = mixed_and_apart("qwen2-57b-a14b", Layout(2))
    sent, *parts = (one.components["all_reduce"] for one in (mixed, decode, chunk))
    for field in ("link_bytes", "reduced_bytes"):
        expected = sum(getattr(part, field) for part in parts)
        assert getattr(sent, field) == pytest.approx(expected, rel=1e-12)
    for field in ("collectives", "reductions", "ranks"):
        assert {getattr(sent, field)} == {getattr(part, field) for part in parts}


def test_a_share_that_speculates_is_as_two_groups_but_for_the_union():
    model = load_architecture("qwen3-30b-a3b")
    share = sequence_group(**DECODE, speculating_share=0.5)
    three = DECODE | {"batch_size": 3}
    groups = [sequence_group(**three), sequence_group(**three | {"tokens_per_sequence": 1})]
    one, two = (pass_work(model, sequences).components for sequences in (share, groups))
    for component, work in one.items():
        for field in ("flop", "cache_bytes", "activation_bytes"):
            expected = pytest.approx(getattr(two[component], field), rel=1e-12)
            assert getattr(work, field) == expected, (component, field)


@pytest.mark.parametrize("exponent", [None, 0.7])
@pytest.mark.parametrize("correlation", [0.1, 0.4])
def test_union_of_a_mixture_against_monte_carlo(exponent, correlation):
    """Each sequence draws every expert's chance of use from a Beta law; its tokens follow it."""
    rng = np.random.default_rng(6)
    model = load_architecture("qwen3-30b-a3b").with_changes("m", {"popularity_spread": 0.0})
    trials, c = 2000, correlation
    E, k = model.num_experts, model.experts_per_token
    popularity = None if exponent is None else zipf_popularity(E, k, exponent)
    p = np.full(E, k / E) if popularity is None else popularity
    used = np.zeros((trials, E), dtype=bool)
    groups = {4: 3, 25: 2}  # sequences by their tokens
    for tokens, batch_size in groups.items():
        chance = rng.beta(p * (1 - c) / c, (1 - p) * (1 - c) / c, (batch_size, trials, E))
        used |= (rng.random((batch_size, trials, E)) < 1 - (1 - chance) ** tokens).any(axis=0)
    distinct = used.sum(axis=1)
    alike = [{"batch_size": B, "tokens_per_sequence": tokens} for tokens, B in groups.items()]
    sequences = [sequence_group(**point) for point in alike]
    work = pass_work(model, sequences, routing_correlation=c, popularity=popularity)
    assert abs(distinct.mean() - work.active_experts) < 4 * distinct.std() / np.sqrt(trials)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "llama-4-scout"])
@pytest.mark.parametrize("layout", [Layout(), Layout(2, 8)])
@pytest.mark.parametrize("exponent", [None, 0.5])
def test_group_cut_in_two_is_the_same_work(name, layout, exponent):
    model = load_architecture(name)
    E, k = model.num_experts, model.experts_per_token
    popularity = None if exponent is None else zipf_popularity(E, k, exponent)
    alike = {"tokens_per_sequence": [[3.0], [4.0]], "context_length": 100.0}
    routing = {"routing_correlation": 0.2, "popularity": popularity, "layout": layout}
    whole = pass_work(model, sequence_group(batch_size=[6.0, 12.0], **alike), **routing)
    parts = [sequence_group(batch_size=B, **alike) for B in ([2.0, 9.0], [4.0, 3.0])]
    cut = pass_work(model, parts, **routing)
    np.testing.assert_allclose(cut.active_experts, whole.active_experts, rtol=1e-12)
    for component, work in whole.components.items():
        for field, value in asdict(work).items():
            if field != "walk" and not isinstance(value, str):
                other = getattr(cut.components[component], field)
                np.testing.assert_allclose(other, value, rtol=1e-12)


@pytest.mark.parametrize("popularity", [None, [1.0] * 8])
def test_experts_that_every_token_uses_are_loaded_once(popularity):
    model = load_architecture("mixtral-8x7b").with_changes("target", {"experts_per_token": 8})
    groups = [sequence_group(batch_size=B, tokens_per_sequence=4.0) for B in (1.0, 3.0)]
    assert pass_work(model, groups, popularity=popularity).active_experts == pytest.approx(8)


def test_refuses_what_no_pass_carries():
    model = load_architecture("mixtral-8x7b")
    refused(r"sequences: got .*at least one group", pass_work, model, [])
    by_chance = sequence_group(batch_size=2.0, speculating_share=0.5, speculating_chance=0.6)
    refused("speculating_chance", pass_work, model, [by_chance, by_chance])
