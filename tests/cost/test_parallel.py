"""Models spread over GPUs: the busiest rank by Monte Carlo, what is sent, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from printed import refused
from rows import cases, each_row, faults, listed, one_case, values_of
from strategies import pass_of

from specmodel import decode, deploy, load_architecture, load_engine, load_hardware, predict
from specmodel.core.algebra import experts
from specmodel.core.algebra.acceptance import proposals
from specmodel.core.algebra.collectives import all_reduce_time
from specmodel.core.algebra.ranks import busiest_experts, busiest_share, busiest_tokens
from specmodel.core.base import BYTES_PER_ELEMENT, as_table
from specmodel.core.cost import MemoryUse
from specmodel.core.cost.passes import links_of
from specmodel.core.layers import LatentAttention, Layout

ROUTED = "routed_experts"


def draw_counts(rng, popularity, sequences, s, c, trials):
    """Tokens of each expert in each trial: sequences with Beta-distributed use of each expert."""
    p = np.broadcast_to(popularity, (trials, sequences, popularity.size))
    if c > 0:
        p = rng.beta(p * (1 - c) / c, (1 - p) * (1 - c) / c)
    return rng.binomial(s, p).sum(axis=1)


def uniform_counts(rng, E, k, tokens, trials):
    """Tokens of each expert when every token uses exactly k of E, all equally likely."""
    chosen = rng.random((trials, tokens, E)).argpartition(k, axis=-1)[..., :k]
    flat = chosen.reshape(trials, -1) + E * np.arange(trials)[:, None]
    return np.bincount(flat.ravel(), minlength=trials * E).reshape(trials, E)


def busiest(counts, ranks):
    """The most experts, and the most tokens, that a rank has in each trial."""
    by_rank = counts.reshape(counts.shape[0], ranks, -1)
    return (by_rank > 0).sum(-1).max(1), by_rank.sum(-1).max(1)


def assert_mean(estimate, drawn, max_error):
    """Within four standard errors of the mean of what was drawn, beside the law's own error."""
    slack = 4 * drawn.std(ddof=1) / np.sqrt(drawn.size) + max_error * drawn.mean()
    assert abs(float(estimate) - drawn.mean()) <= slack


@each_row("tokens", [1, 3, 8, 40])
@each_row("ranks", [2, 4, 8, 16])
@each_row(("E", "k"), [(256, 8), (128, 8), (64, 6)])
def test_busiest_rank_against_monte_carlo(E, k, ranks, tokens):
    counts = uniform_counts(np.random.default_rng(6), E, k, tokens, trials=300)
    most_experts, most_tokens = busiest(counts, ranks)
    active = experts.active_experts(tokens, E, k)
    max_error = 0.09 if tokens * k < ranks else 0.035  # fewer pairs than ranks
    assert_mean(busiest_experts(active, E, ranks), most_experts, max_error)
    mean, variance = (np.asarray(tokens * k / E * x) for x in (1, 1 - k / E))
    assert_mean(busiest_tokens(mean, variance, variance, E, ranks), most_tokens, max_error)


@each_row("rate", [0.28, 0.44, 0.63, 0.95])
@each_row("ranks", [4, 8, 16])
@each_row("size", [1, 2, 8, 32, 128])
def test_where_most_sequences_speculate_against_monte_carlo(size, ranks, rate):
    most = np.random.default_rng(8).binomial(size, rate, (20_000, ranks)).max(axis=1)
    chance, share = proposals(rate, np.asarray(float(size * ranks)))
    estimate = size * busiest_share(np.asarray(float(size)), share, chance, ranks)
    assert_mean(estimate, most[most > 0], max_error=0.07)


def test_all_wait_for_the_replica_that_verifies_a_draft():
    """Of sequences one on each replica, one that speculates keeps all waiting."""
    chance, share = proposals(0.44, np.asarray(4.0))
    few = {"speculating_share": share, "speculating_chance": chance}
    some, all_do = (work_of("phi-3.5-moe", Layout(1, 16), batch_size=4, **s) for s in (few, {}))
    for name in ("attention_core", "attention_projections", "all_to_all"):
        assert some.components[name].flop == all_do.components[name].flop
        assert some.components[name].link_bytes == all_do.components[name].link_bytes
    assert some.active_experts < all_do.active_experts


@given(st.sampled_from([(256, 8), (128, 16), (64, 8), (384, 32), (16, 16)]), st.floats(0.1, 0.999))
def test_busiest_rank_never_falls_as_more_experts_load(shape, x):
    E, ranks = shape
    here, more = busiest_experts(np.array([x * E, x * E * 1.001]), E, ranks)
    assert here * (1 - 1e-12) <= more <= here * 1.01
    assert x * E / ranks * (1 - 1e-12) <= here <= E / ranks


def work_of(name, layout, **point):
    full = {"batch_size": 64, "tokens_per_sequence": 4, "context_length": 1000} | point
    model = load_architecture(name) if isinstance(name, str) else name
    return pass_of(model, **full, layout=layout)


def test_expert_parallel_under_load_reads_each_expert_once():
    many = {"batch_size": 10_000}
    cut = work_of("minimax-m2.5", Layout(8, 1), **many).components[ROUTED]
    spread = work_of("minimax-m2.5", Layout(8, 8), **many).components[ROUTED]
    assert spread.weight_bytes == pytest.approx(cut.weight_bytes, rel=1e-12)
    assert cut.flop < spread.flop < 1.1 * cut.flop


def test_all_to_all_sends_a_copy_to_each_rank_of_the_top_k():
    """A rank of 16 of 128 experts holds any of a token's 8 with chance 1 - C(112, 8)/C(128, 8)."""
    sent = work_of("qwen3-30b-a3b", Layout(1, 8)).components["all_to_all"]
    chance = 1 - math.comb(112, 8) / math.comb(128, 8)
    tokens = 64 / 8 * 4
    expected = 48 * tokens * 7 * chance * 2048 * (2 + 2)
    assert (sent.link_bytes, sent.network_bytes) == (pytest.approx(expected, rel=1e-12), 0)
    two_nodes = work_of("qwen3-30b-a3b", Layout(1, 16)).components["all_to_all"]
    assert two_nodes.network_bytes == pytest.approx(two_nodes.link_bytes * 8 / 7, rel=1e-12)
    one_other = work_of("qwen3-30b-a3b", Layout(1, 2)).components["all_to_all"]
    assert one_other.link_bytes <= 48 * 64 / 2 * 4 * 2048 * (2 + 2)


@cases(
    "name layout",
    ("deepseek-v3", Layout(8)), ("llama-3.1-70b", Layout(32)), ("qwen3-30b-a3b", Layout(1, 8)),
    ("opt-350m", Layout(1)),
)  # fmt: skip
def test_memory_holds_what_a_saturated_pass_reads(name, layout):
    """Every weight is read once by a large pass, but for the input embedding and its positions.

    Decoding reads absorbed matrices in 16 bits; those of the checkpoint stay for prompts.
    """
    model = load_architecture(name)
    work = pass_of(model, batch_size=1e6, tokens_per_sequence=1, context_length=0, layout=layout)
    read = sum(float(np.asarray(part.weight_bytes)) for part in work.components.values())
    unread = (model.outer_parameters - model.head_parameters) / layout.tensor_parallel
    held = model.weight_bytes(layout)
    size, cut = BYTES_PER_ELEMENT[model.weight_dtype], layout.tensor_parallel
    latent = [pair for pair in model.mixers.items() if isinstance(pair[0], LatentAttention)]
    latents = sum(count * mixer.weights_of_latents(cut) for mixer, count in latent)
    for_prompts = size * latents if size < 2 else 0
    assert held == pytest.approx(read + 2 * unread + for_prompts, rel=1e-9)


def test_a_draft_model_shares_the_batch_with_the_replicas():
    base = {"target": "qwen3-235b-a22b", "hardware": "h200_sxm", "drafter": "qwen2-0.5b"}
    base |= {"engine": "ideal", "draft_tensor_parallel": 1}
    point = {"draft_length": 3, "acceptance": 0.7, "context_length": 1000}
    spread = predict(**base, **point, batch_size=2048, expert_parallel=8)
    alone = predict(**base, **point, batch_size=256)
    np.testing.assert_allclose(spread.draft_time, alone.draft_time, rtol=1e-12)


def test_fullest_replica_decides_the_largest_batch():
    p = predict(
        target="deepseek-v3", drafter="ngram", hardware="h200_sxm", expert_parallel=16,
        batch_size=[1, 16, 17], draft_length=1, acceptance=0.7, context_length=100_000,
    )  # fmt: skip
    one, full, over = p.memory_bytes
    assert one == full < over
    assert (p.max_batch_size % 16 == 0).all()


ALL_REDUCED = {"target": "llama-3.1-70b", "drafter": "ngram", "tensor_parallel": 8}
ALL_REDUCED |= {"draft_length": 1, "acceptance": 0.8, "context_length": 1000}
REDUCTIONS = 2 * 80 + 1


def test_all_reduces_that_nothing_was_fitted_to_are_rings():
    """As a profile of an earlier version has them: latencies, and bytes at one efficiency."""
    fitted = load_hardware("h100_sxm")
    assert fitted.link.all_reduce
    hardware = fitted.with_changes("hardware", {"link.all_reduce": {}})
    p = predict(**ALL_REDUCED, hardware=hardware, batch_size=4)
    link = hardware.link
    latency = (REDUCTIONS + 1) * link.collective_latency
    latency += (REDUCTIONS + 0.5) * 14 * link.hop_latency
    sent = 4 * 2 * (REDUCTIONS * 8192 + 128256 / 2) * 1.75
    sent /= link.efficiency * link.peak_bytes_per_s
    measured = p.times.forward.components["all_reduce"].total_time
    assert measured == pytest.approx(latency + sent, rel=1e-12)


@pytest.mark.parametrize(("stack", "taken"), [("trtllm", "trtllm"), ("datasheet", "typical")])
def test_all_reduces_take_the_fit_of_their_stack(stack, taken):
    """4 tokens of 16 KB are small, 4,096 large: one-shot 7 times the bytes, two-shot 1.75 times."""
    hardware = load_hardware("h100_sxm")
    link, rate = hardware.link, hardware.link.peak_bytes_per_s
    fit = link.all_reduce[taken]
    times = predict(**ALL_REDUCED, hardware=hardware, stack=stack, batch_size=[4, 4096]).times
    small, large = times.forward.components["all_reduce"].link_time
    size, one = 4 * 8192 * 2, fit.one_shot_latency + 7 * fit.one_shot_hop_latency
    one += 7 * size / (fit.one_shot_efficiency * rate)
    two = fit.two_shot_latency + 7 * fit.two_shot_hop_latency
    two += 4**fit.contention * 1.75 * 1024 * size / (fit.two_shot_efficiency * rate)
    gather = link.collective_latency + 7 * link.hop_latency
    per_token = 128256 * 1.75 / (link.efficiency * rate)
    assert small == pytest.approx(REDUCTIONS * one + gather + 4 * per_token, rel=1e-3)
    assert large == pytest.approx(REDUCTIONS * two + gather + 4096 * per_token, rel=1e-9)


@listed
@each_row("n", [1, 2, 8])
def test_gpus_that_share_a_cache_read_and_send_their_parts(name, layers, heads, entry, sizes, n):
    """64 sequences of 1,000 entries verify four tokens, on eight GPUs."""
    if n not in load_architecture(name).token_cuts(8):
        return
    alone, shared = (work_of(name, Layout(8, decode_context_parallel=i)).components for i in (1, n))
    core, read_and_written = shared["attention_core"], 64 * (1004 + 4)
    assert core.cache_bytes == pytest.approx(read_and_written * layers * entry * 2 / n, rel=1e-12)
    assert core.flop == alone["attention_core"].flop  # n times the heads, a part of the entries
    assert core.rows == n * alone["attention_core"].rows
    if n == 1:
        assert "context_exchange" not in shared
        return
    own = heads / 8
    queries, outputs, sums = (n * own * size for size in (sizes[0] * 2, sizes[1] * 2, 4 * n))
    sent = 256 * layers * (queries + outputs + sums) * (n - 1) / n
    assert shared["context_exchange"].link_bytes == pytest.approx(sent, rel=1e-12)
    assert shared["context_exchange"].collectives == 3 * layers
    assert shared["context_exchange"].link_hops == 3 * layers * (n - 1)
    moved = 256 * layers * n * own * (2 * sizes[0] + 4 * sizes[1]) * 2
    assert shared["context_merge"].activation_bytes == pytest.approx(moved, rel=1e-12)


def test_prompts_gather_the_latents_of_their_context():
    layout, prompt = Layout(8, decode_context_parallel=4), {"batch_size": 2, "context_length": 8192}
    work = work_of("deepseek-v3", layout, tokens_per_sequence=4096, **prompt).components
    latents = 2 * 8192 * 61 * 576 * 2
    assert work["context_gather"].link_bytes == pytest.approx(latents * 3 / 4, rel=1e-12)
    assert "context_exchange" not in work


@each_row("name", ["qwen3-235b-a22b", "llama-3.1-8b", "qwen3-8b", "qwen3.5-397b-a17b"])
@each_row("tensor", [1, 2, 4, 8, 16, 32])
def test_tokens_of_grouped_heads_are_cut_as_vllm_checks(name, tensor):
    """As `verify_with_parallel_config` of vLLM 0.33, of numbers that the model's card has."""
    heads, kv_heads = {"qwen3-235b-a22b": (64, 4), "qwen3.5-397b-a17b": (32, 2)}.get(name, (32, 8))
    most = tensor // kv_heads if tensor > kv_heads else 1
    even = [n for n in range(2, most + 1) if not heads // kv_heads % n and not tensor % n]
    assert load_architecture(name).token_cuts(tensor) == [1, *even]


def test_latents_are_shared_and_recurrent_states_stay_on_each_gpu():
    """Of Kimi-K3's layers 24 keep latents of 576 numbers, cut by tokens; the others are states."""
    held = []
    for n in (1, 8):
        cut = {"tensor_parallel": 8, "decode_context_parallel": n, "drafter": "ngram"}
        where = {"target": "kimi-k3", "hardware": "b300", "engine": "ideal", "stack": "datasheet"}
        deployment, _ = deploy(**where, **cut)
        held.append(MemoryUse(deployment, 32_768 - 4, 4).bytes_per_request)
    latents = 24 * 32_768 * 576 * 2
    assert held[0] - held[1] == pytest.approx(latents * 7 / 8, rel=1e-12)


def test_tokens_that_a_cache_holds_are_those_of_a_published_log():
    """vLLM's recipe for Kimi-K2-Thinking on eight H200 (November 2025): 46.80 GiB are left."""
    for n, tokens in ((1, 715_072), (8, 5_721_088)):
        cut = {"tensor_parallel": 8, "decode_context_parallel": n}
        deployment, _ = deploy(target="kimi-k2", hardware="h200", **cut)
        each = MemoryUse(deployment, 0, 1).bytes_per_request
        assert 46.80 * 2**30 / each == pytest.approx(tokens, rel=1e-4)


def test_draft_heads_that_cannot_share_a_cache_keep_it_whole():
    """A head of latents shares as its target does; one with a key-value head on each GPU cannot."""
    cut = {"tensor_parallel": 8, "decode_context_parallel": 8}
    for drafter, n in (("mtp", 8), ("eagle3", 1), ("ngram", 8)):
        deployment, _ = deploy(target="deepseek-v3", hardware="h200", drafter=drafter, **cut)
        assert deployment.draft_layout.decode_context_parallel == n


@each_row(("target", "changes", "argument"), faults("layouts"))
def test_what_does_not_fit_is_refused(target, changes, argument):
    names = {"target": target, "drafter": "ngram", "hardware": "h200_sxm"} | changes
    refused(rf"^{argument}: got", deploy, **names)


def test_hardware_without_a_link_stays_alone():
    alone = load_hardware("h200_sxm").with_changes("hardware", {"link": None, "network": None})
    where = {"target": "mixtral-8x7b", "drafter": "ngram", "hardware": alone}
    refused("^tensor_parallel: got 2; expected 1", deploy, **where, tensor_parallel=2)
    refused("^draft_tensor_parallel: got 2", replace, deploy(**where)[0], draft_tensor_parallel=2)


@one_case("engine target hardware gpus limit", *values_of("engines.txt", "fused norms"))
def test_norms_in_all_reduces_launch_nothing_up_to_a_limit(engine, target, hardware, gpus, limit):
    where = {"target": target, "hardware": hardware, "tensor_parallel": gpus}
    sizes = np.array([1, 64, 300, 700, 3000, 5000])
    plain = load_engine(engine)
    engines = plain, replace(plain, fuses_norms=False)
    both = (decode(**where, engine=each, batch_size=sizes).times.forward for each in engines)
    own, others = (forward.work().components["norms"] for forward in both)
    model = load_architecture(target)
    shares = np.clip(2 - sizes / limit, 0, 1) if limit else 0.0 * sizes
    assert model.num_norms == 2 * model.num_layers + 1  # one behind each all-reduce
    np.testing.assert_allclose(others.kernels - own.kernels, shares * model.num_norms)
    read = sizes * shares * model.num_norms * 2 * model.hidden_size
    np.testing.assert_allclose(others.activation_bytes - own.activation_bytes, read)


@each_row(("hardware", "engine", "timed"), values_of("engines.txt", "all-reduces"))
def test_sglang_before_0_5_12_sums_by_the_kernel_of_vllm(hardware, engine, timed):
    own, _ = deploy(target="qwen3-32b", hardware=hardware, engine=engine)
    links = links_of(own.hardware, own.kernels.link_stack)
    assert links.link
    assert links.all_reduce
    peak, sizes = links.link.peak_bytes_per_s, np.array([8192.0, 65536.0])
    found = [all_reduce_time(sizes, gpus, peak, links.all_reduce) for gpus in (2, 4, 8)]
    np.testing.assert_allclose(1e6 * np.array(found), timed, rtol=0.16)


def test_norms_over_all_heads_sum_squares_over_gpus():
    model = load_architecture("minimax-m2.5")
    groups = as_table(model)["layers"]
    plain = [g | {"mixer": g["mixer"] | {"norms_all_heads": False}} for g in groups]
    by_heads = model.with_changes("m", {"layers": plain})
    works = [pass_of(each, batch_size=3, layout=Layout(4)) for each in (model, by_heads)]
    own, others = (work.components["all_reduce"] for work in works)
    assert own.reductions - others.reductions == 62
    assert own.reduced_bytes - others.reduced_bytes == 3 * 62 * 8


@pytest.mark.parametrize(("drafter", "gpus"), [("qwen3-0.6b", 4), ("qwen2-0.5b", 2)])
def test_a_draft_model_is_cut_as_its_target_or_as_evenly_as_it_can_be(drafter, gpus):
    """16 heads go over four GPUs; 14 over two, as vLLM would refuse four."""
    target = {"qwen3-0.6b": "qwen3-14b", "qwen2-0.5b": "qwen2-57b-a14b"}[drafter]
    own, told = deploy(target=target, drafter=drafter, hardware="h200_sxm", tensor_parallel=4)
    assert own.draft_layout.tensor_parallel == told["draft_tensor_parallel"] == gpus
