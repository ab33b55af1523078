"""Passes that carry several groups of sequences: decoding beside a chunk of a prompt."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from one_by_one import pass_time
from strategies import architectures, hardware, layouts

from specmodel.algebra.routing import zipf_popularity
from specmodel.cost.deploying import deploy
from specmodel.cost.forward import pass_work
from specmodel.cost.latency import target_pass
from specmodel.layers.batch import Layout, SequenceGroup, sequence_group
from specmodel.layers.work import PassWork, Work
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture, load_architecture

DECODE = {"batch_size": 6, "tokens_per_sequence": 4, "context_length": 3000}
CHUNK = {
    "batch_size": 1,
    "tokens_per_sequence": 500,
    "context_length": 700,
    "logits_per_sequence": 1,
}


def mixed_and_apart(name: str, layout: Layout | None = None) -> tuple[PassWork, PassWork, PassWork]:
    """One pass of both groups, and a pass of each."""
    decode, chunk = sequence_group(**DECODE), sequence_group(**CHUNK)
    model, layout = load_architecture(name), layout or Layout()
    mixed, *apart = (
        pass_work(model, groups, layout=layout, routing_correlation=0.2)
        for groups in ([decode, chunk], decode, chunk)
    )
    return mixed, *apart


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v3", "qwen2-57b-a14b"])
def test_what_goes_by_token_or_by_sequence_adds_up_over_groups(name: str) -> None:
    """Tokens, attention pairs and KV bytes: full heads, windows, latents, shared experts."""
    mixed, decode, chunk = mixed_and_apart(name)
    for component, work in mixed.components.items():
        for field in ("flop", "cache_bytes", "activation_bytes"):
            own = (one.components.get(component, Work()) for one in (decode, chunk))
            parts = (getattr(one, field) for one in own)
            expected = pytest.approx(sum(parts), rel=1e-12)
            assert getattr(work, field) == expected, (component, field)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v3", "qwen2-57b-a14b"])
def test_weights_are_read_once_for_all_groups(name: str) -> None:
    mixed, decode, chunk = mixed_and_apart(name)
    for component in mixed.components.keys() - {"routed_experts"}:
        own = (one.components.get(component) for one in (mixed, decode, chunk))
        read = {one.weight_bytes for one in own if one}
        assert len(read) == 1, component
    most = max(decode.active_experts, chunk.active_experts)
    assert most <= mixed.active_experts <= decode.active_experts + chunk.active_experts


def test_attention_of_two_groups_by_hand() -> None:
    """Every query sees its context and the queries before it; entries are read once each."""
    components = mixed_and_apart("llama-3.1-8b")[0].components
    core, prompt = components["attention_core"], components["prompt_attention"]
    decode = 6 * sum(range(3001, 3005))
    chunk = sum(range(701, 1201))
    assert core.flop == 32 * 4 * 32 * 128 * decode
    assert prompt.flop == 32 * 4 * 32 * 128 * chunk
    assert core.cache_bytes == 6 * (3004 + 4) * 32 * 2 * 8 * 128 * 2  # read, and written
    assert prompt.cache_bytes == (1200 + 500) * 32 * 2 * 8 * 128 * 2


def test_only_the_last_token_of_a_chunk_has_logits() -> None:
    model = load_architecture("llama-3.1-8b")
    head = mixed_and_apart("llama-3.1-8b")[0].components["lm_head"]
    assert head.flop == 2 * model.head_parameters * (6 * 4 + 1)
    whole = sequence_group(**CHUNK | {"logits_per_sequence": None})
    assert pass_work(model, whole).components["lm_head"].flop == 2 * model.head_parameters * 500


def test_messages_add_up_over_groups() -> None:
    mixed, decode, chunk = mixed_and_apart("qwen2-57b-a14b", Layout(2))
    sent, *parts = (one.components["all_reduce"] for one in (mixed, decode, chunk))
    for field in ("link_bytes", "reduced_bytes"):
        expected = sum(getattr(part, field) for part in parts)
        assert getattr(sent, field) == pytest.approx(expected, rel=1e-12)
    for field in ("collectives", "reductions", "ranks"):
        assert {getattr(sent, field)} == {getattr(part, field) for part in parts}


def test_a_share_that_speculates_is_as_two_groups_but_for_the_union() -> None:
    model = load_architecture("qwen3-30b-a3b")
    share = sequence_group(**DECODE, speculating_share=0.5)
    three = DECODE | {"batch_size": 3}
    groups = [sequence_group(**three), sequence_group(**three | {"tokens_per_sequence": 1})]
    one, two = (pass_work(model, sequences).components for sequences in (share, groups))
    for component, work in one.items():
        for field in ("flop", "cache_bytes"):
            expected = pytest.approx(getattr(two[component], field), rel=1e-12)
            assert getattr(work, field) == expected, (component, field)


@given(
    architectures(),
    hardware(),
    st.floats(1, 1000),
    st.floats(1, 1000),
    st.floats(1, 64),
    st.floats(0, 1e5),
    st.floats(0, 1),
    st.data(),
)
def test_groups_that_are_alike_are_one_group(
    model: Architecture,
    gpu: HardwareProfile,
    first: float,
    second: float,
    tokens: float,
    context: float,
    correlation: float,
    data: st.DataObject,
) -> None:
    popularity = None
    if model.is_moe and data.draw(st.booleans()):
        popularity = zipf_popularity(model.num_experts, model.experts_per_token, 0.7)
    point = {
        "routing_correlation": correlation,
        "popularity": popularity,
        "layout": data.draw(layouts(model)),
    }

    def group(batch_size: float) -> SequenceGroup:
        return sequence_group(
            batch_size=batch_size, tokens_per_sequence=tokens, context_length=context
        )

    with np.errstate(divide="ignore"):  # log(1 - 1), where every sequence uses an expert
        two = pass_work(model, [group(first), group(second)], **point)
    one = pass_work(model, group(first + second), **point)
    assert two.active_experts == pytest.approx(one.active_experts, rel=1e-12)
    two_time, one_time = (pass_time(work, gpu).total_time for work in (two, one))
    assert two_time == pytest.approx(one_time, rel=1e-9)


@pytest.mark.parametrize("exponent", [None, 0.7])
@pytest.mark.parametrize("correlation", [0.1, 0.4])
def test_union_of_a_mixture_against_monte_carlo(exponent: float | None, correlation: float) -> None:
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
    sequences = [
        sequence_group(batch_size=batch_size, tokens_per_sequence=tokens)
        for tokens, batch_size in groups.items()
    ]
    work = pass_work(model, sequences, routing_correlation=c, popularity=popularity)
    assert abs(distinct.mean() - work.active_experts) < 4 * distinct.std() / np.sqrt(trials)


def test_a_chunk_of_a_prompt_is_timed_as_any_pass() -> None:
    """With one token's logits it saves the LM head of the others; beside decoding, it adds work."""
    deployment, _ = deploy(target="mixtral-8x7b", drafter="eagle", hardware="h200_sxm")
    chunk = {"batch_size": 1, "tokens_per_sequence": 512, "context_length": 0}
    every = target_pass(deployment, sequence_group(**chunk))
    last = sequence_group(**chunk, logits_per_sequence=1)
    one, decode = target_pass(deployment, last), sequence_group(batch_size=16, context_length=512)
    head = (part.components["lm_head"].total_time for part in (every, one))
    assert every.total_time - one.total_time == pytest.approx(np.subtract(*head), rel=1e-9)
    both = target_pass(deployment, [last, decode])
    apart = one.total_time + target_pass(deployment, decode).total_time
    assert one.total_time < both.total_time < apart
