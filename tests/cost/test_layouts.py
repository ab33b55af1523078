"""Layouts of attention and experts: replicas, groups of GPUs, dtypes of parts, by closed forms."""

import math

import numpy as np
import pytest
from carried import added_by_prompt
from rows import cases, each_row, slow
from test_parallel import assert_mean, busiest, draw_counts, uniform_counts, work_of

from specmodel import decode, deploy, load_architecture, load_hardware
from specmodel.core.algebra import routing
from specmodel.core.base import BYTES_PER_ELEMENT
from specmodel.core.layers import Layout

ROUTED = "routed_experts"
EXPERTS_OF_QWEN = 48 * 128 * 3 * 2048 * 768
"""Weights of the routed experts of Qwen3-30B-A3B [-]."""

CUTS = [
    (cut, replicas, spread)
    for cut in (1, 2, 4)
    for replicas in (1, 2, 8)
    for spread in (1, 2, 4, 8)
    if cut * replicas % spread == 0
]
"""GPUs that attention is cut over, its replicas, and groups that experts are spread over [-]."""


def spread_over(cut, replicas, spread, per_node=8):
    return Layout(cut, spread, per_node, replicas)


@each_row(("cut", "replicas", "spread"), CUTS)
@each_row("name", ["qwen3-30b-a3b", "deepseek-v3"])
def test_gpus_hold_the_experts_once_and_the_rest_in_each_replica(name, cut, replicas, spread):
    model = load_architecture(name)
    experts = model.experts
    layers = model.feed_forwards[experts]
    routed = layers * experts.num_experts * experts.expert_parameters(model.hidden_size)
    routed *= BYTES_PER_ELEMENT[model.expert_dtype or model.weight_dtype]
    replica = cut * model.weight_bytes(Layout(cut)) - routed
    everywhere = cut * replicas * model.weight_bytes(spread_over(cut, replicas, spread))
    assert everywhere == pytest.approx(routed + replicas * replica, rel=1e-12)


@pytest.mark.parametrize("spread", [1, 2, 4, 8])
def test_attention_is_that_of_a_replica_and_experts_are_those_of_all(spread):
    """The experts of eight GPUs do the same whether attention is cut or replicated."""
    apart = work_of("qwen3-30b-a3b", spread_over(1, 8, spread)).components
    alone = work_of("qwen3-30b-a3b", Layout(), batch_size=8).components
    cut = work_of("qwen3-30b-a3b", Layout(8, spread)).components
    for field in ("flop", "weight_bytes", "cache_bytes", "activation_bytes"):
        for name in ("attention_core", "attention_projections", "lm_head", "router", "norms"):
            assert getattr(apart[name], field) == getattr(alone[name], field)
        assert getattr(apart[ROUTED], field) == getattr(cut[ROUTED], field)


@pytest.mark.parametrize(("cut", "replicas"), [(1, 8), (2, 4), (8, 1)])
def test_cut_experts_share_the_arithmetic_evenly(cut, replicas):
    one = work_of("qwen3-30b-a3b", Layout()).components[ROUTED]
    eight = work_of("qwen3-30b-a3b", spread_over(cut, replicas, 1)).components[ROUTED]
    assert 8 * eight.flop == pytest.approx(one.flop, rel=1e-12)
    assert 8 * eight.weight_bytes == pytest.approx(one.weight_bytes, rel=1e-12)
    assert (eight.width, eight.groups) == (768 / 8, one.groups)


def test_every_group_is_the_busiest_if_every_token_uses_all_experts():
    model = load_architecture("mixtral-8x7b").with_changes("t", {"experts_per_token": 8})
    one_expert = 32 * 3 * 4096 * 14336
    for cut, replicas, spread in [(4, 1, 2), (1, 4, 2), (2, 2, 1), (8, 1, 4), (2, 4, 2)]:
        part = work_of(model, spread_over(cut, replicas, spread)).components[ROUTED]
        gpus = cut * replicas
        assert part.weight_bytes == pytest.approx(2 * 8 * one_expert / gpus, rel=1e-12)
        assert part.flop == pytest.approx(2 * 256 * 8 * one_expert / gpus, rel=1e-12)
        assert part.width == 14336 * spread / gpus


LAWS = ((0.0, 0.3, 4), (0.5, 0.0, 16), (0.5, 0.2, 4), (0.5, 0.2, 128), (0.8, 0.1, 16))
"""Exponent of popularities, correlation, and sequences of four tokens [-]."""
OF_GROUPS = [
    (*cut, *law, (2, 16, 128)[(i + j) % 3])
    for i, cut in enumerate([(8, 1, 2), (1, 8, 4), (2, 8, 4)])
    for j, law in enumerate([(0.0, 0.0), (0.0, 0.3), (0.5, 0.2)])
]


@cases(
    "cut replicas spread exponent c sequences",
    *((1, 8, 8, *law) for law in LAWS),
    *slow(*OF_GROUPS),
)
def test_busiest_group_against_monte_carlo(cut, replicas, spread, exponent, c, sequences):
    """Experts are dealt to groups at random; all GPUs of a group do a share of its work."""
    max_error = 0.02 if spread == 8 else 0.03
    rng, s, trials = np.random.default_rng(9), 4, 300
    popularity = routing.zipf_popularity(128, 8, exponent)
    if exponent == c == 0:
        counts = uniform_counts(rng, 128, 8, sequences * s, trials)
    else:
        counts = draw_counts(rng, popularity, sequences, s, c, trials)
    most_experts, most_tokens = busiest(rng.permuted(counts, axis=1), spread)
    part = work_of(
        "qwen3-30b-a3b", spread_over(cut, replicas, spread), batch_size=sequences,
        context_length=0, routing_correlation=c, popularity=popularity,
    ).components[ROUTED]  # fmt: skip
    sliced = 48 * 3 * 2048 * 768 * spread / (cut * replicas)
    assert_mean(part.weight_bytes / (2 * sliced), most_experts, max_error)
    assert_mean(part.flop / (2 * sliced), most_tokens, 0.07 if exponent > 0.5 else max_error)


def test_tokens_of_replicas_are_gathered_and_sums_scattered():
    """Each GPU of eight sends 7/8 of the gathered tokens twice: all-gather and reduce-scatter."""
    for spread in (1, 2, 4):
        parts = work_of("qwen3-30b-a3b", spread_over(1, 8, spread)).components
        sent = parts["gather_scatter"]
        assert sent.link_bytes == pytest.approx(48 * 2 * 7 / 8 * 256 * 2048 * 2, rel=1e-12)
        assert (sent.network_bytes, sent.network_hops) == (0, 0)
        assert (sent.collectives, sent.link_hops) == (48 * 2, 48 * 2 * 7)
        assert not {"all_to_all", "all_reduce"} & parts.keys()
    whole = work_of("qwen3-30b-a3b", spread_over(1, 8, 8)).components
    assert "all_to_all" in whole
    assert "gather_scatter" not in whole


@pytest.mark.parametrize(("cut", "replicas"), [(2, 4), (4, 2), (2, 2)])
def test_gathering_sends_as_much_in_the_ways_of_both_engines(cut, replicas):
    """SGLang sums within a replica by a reduce-scatter and gathers slices over all GPUs; back too.

    vLLM sums by all-reduces in a replica, before and after it gathers over replicas.
    """
    parts = work_of("qwen3-30b-a3b", spread_over(cut, replicas, 1)).components
    n, tokens, row = cut * replicas, 256, 2048 * 2
    a_layer = (cut - 1) / cut * tokens / replicas + (n - 1) / n * tokens
    around = 2 * (cut - 1) / cut * tokens / replicas  # after the embedding
    logits = (cut - 1) / cut * tokens / replicas * 151936 * 2
    expected, summed = (48 * 2 * a_layer + around) * row + logits, parts["all_reduce"]
    assert summed.ranks == cut
    sent = parts["gather_scatter"].link_bytes + summed.link_bytes
    sent += 2 * (cut - 1) / cut * summed.reduced_bytes
    assert sent == pytest.approx(expected, rel=1e-12)


def test_replicas_of_several_nodes_gather_over_the_network():
    """Four replicas of four GPUs on nodes of eight: two in each, so that half crosses once."""
    near = work_of("qwen3-30b-a3b", spread_over(4, 4, 1, 16)).components["gather_scatter"]
    far = work_of("qwen3-30b-a3b", spread_over(4, 4, 1, 8)).components["gather_scatter"]
    gathered = 48 * 256 * 2048 * 2
    assert near.link_bytes == pytest.approx(gathered * 2 * 3 / 4, rel=1e-12)
    assert far.link_bytes == pytest.approx(gathered * 2 * 1 / 2, rel=1e-12)
    assert far.network_bytes == pytest.approx(gathered * 2 * 1 / 2 / 2, rel=1e-12)
    assert (far.link_hops, far.network_hops) == (48 * 2, 48 * 2)


@pytest.mark.parametrize(("name", "layers"), [("qwen3-30b-a3b", 48), ("deepseek-v3", 61)])
def test_cut_attention_sums_in_each_replica(name, layers):
    """After each block and the embedding, whether experts are cut or spread; logits gathered."""
    for layout in (spread_over(4, 1, 2), spread_over(4, 2, 1), spread_over(4, 2, 4)):
        assert work_of(name, layout).components["all_reduce"].reductions == 2 * layers + 1
    apart = work_of("qwen3-30b-a3b", spread_over(4, 2, 8)).components["all_reduce"]
    assert apart.reductions == 48 + 1


def test_dense_replicas_share_the_batch_and_nothing_else():
    base = {"target": "llama-3.1-8b", "hardware": "h100_sxm", "context_length": 1000}
    four = decode(**base, batch_size=64, data_parallel=4)
    one = decode(**base, batch_size=16)
    assert four.tpot == pytest.approx(one.tpot, rel=1e-12)
    assert four.throughput == pytest.approx(4 * one.throughput, rel=1e-12)
    assert four.memory_bytes == pytest.approx(one.memory_bytes, rel=1e-12)
    assert four.max_batch_size == 4 * one.max_batch_size
    alone = load_hardware("h100_sxm").with_changes("hardware", {"link": None, "network": None})
    apart = decode(**base | {"hardware": alone}, batch_size=64, data_parallel=16)
    assert apart.tpot == pytest.approx(decode(**base, batch_size=4).tpot, rel=1e-12)


@pytest.mark.parametrize("spread", [1, 2, 8])
def test_memory_of_a_gpu_is_its_share(spread):
    base = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "context_length": 1000}
    model = load_architecture("qwen3-30b-a3b")
    parallel = decode(**base, batch_size=20, data_parallel=8, expert_parallel=spread)
    kv = 1001 * 48 * 2 * 4 * 128 * 2
    weights = 2 * (model.total_parameters - EXPERTS_OF_QWEN * 7 / 8)
    expected = weights + math.ceil(20 / 8) * kv
    assert parallel.memory_bytes == pytest.approx(expected, rel=1e-12)
    assert parallel.max_batch_size % 8 == 0
    cut = decode(**base, batch_size=20, tensor_parallel=4, expert_parallel=min(spread, 4))
    copied = 48 * 2048 * 128 + 97 * 2048  # routers and norms
    weights = 2 * ((model.total_parameters - copied) / 4 + copied)
    assert cut.memory_bytes == pytest.approx(weights + 20 * kv / 4, rel=1e-12)


def test_replicas_prefill_side_by_side_and_share_the_experts():
    """A replica has its own prompts; experts see those of all, and one GPU alone takes longer."""
    base = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "context_length": 4352}
    load = {"prompt_length": 4096, "output_length": 256}
    idle, loaded = (decode(**base, batch_size=[8, 80], data_parallel=8, **x) for x in ({}, load))
    added = added_by_prompt(loaded.deployment, idle.tpot, 4096, np.array([8.0, 80.0]), 4352)
    carried = np.array([0, 9]) / 256 * added
    np.testing.assert_allclose(loaded.tpot - idle.tpot, carried, rtol=1e-9, atol=1e-15)
    alone = decode(**base, batch_size=80, **load)
    assert loaded.tpot[1] < alone.tpot
    prompts, prompt = (p.evaluation.prefill.work().components for p in (loaded, alone))
    for name in ("prompt_attention", "attention_projections", ROUTED):
        assert prompts[name].flop == pytest.approx(prompt[name].flop, rel=1e-12)


@pytest.mark.parametrize("drafter", ["mtp", "ngram"])
def test_dtypes_of_parts_are_those_of_a_what_if(drafter):
    base = {"target": "deepseek-v3", "hardware": "h200_sxm", "tensor_parallel": 8}
    base |= {"drafter": drafter}
    plain, _ = deploy(**base)
    dtypes = {"attention_dtype": "bf16", "mtp_dtype": "bf16"}
    given, assumed = deploy(**base, **dtypes)
    assert given.target == plain.target.with_changes("target", dtypes)
    assert "attention_dtype" not in assumed
    layout = given.layout
    mixers = given.target.mixers.items()
    weights = sum(count * mixer.weights(given.target.hidden_size, 8) for mixer, count in mixers)
    latents = sum(count * mixer.weights_of_latents(8) for mixer, count in mixers)
    wider = given.target.weight_bytes(layout) - plain.target.weight_bytes(layout)
    # absorbed matrices of a bf16 checkpoint are views, those of others copies in 16 bits
    expected = weights * (2 - BYTES_PER_ELEMENT["fp8_block"]) - 2 * latents
    assert wider == pytest.approx(expected, rel=1e-12)
    if drafter == "mtp":
        sizes = [d.drafter.architectures[0].weight_bytes(layout) for d in (plain, given)]
        assert sizes[1] > 1.5 * sizes[0]
