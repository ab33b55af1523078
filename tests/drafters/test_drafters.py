"""Drafters: what a head has of its target, and what cannot be one."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import each_row, listed, values_of
from strategies import draft_bytes

from specmodel import deploy, load_architecture
from specmodel.core.cost import step_times
from specmodel.core.drafters import (
    Drafter,
    eagle3_drafter,
    eagle_drafter,
    load_drafter,
    mtp_drafter,
    ngram_drafter,
    parallel_drafter,
)
from specmodel.core.drafters.names import is_lookup, named_drafters
from specmodel.core.drafters.passes import DraftPasses
from specmodel.core.layers.blocks import linear

WIDE = load_architecture("llama-3.1-8b").with_changes("target", {"hidden_size": 10**7})


def test_no_head_is_wider_than_any_and_a_look_up_ends_some_day():
    for build in (eagle_drafter, eagle3_drafter, parallel_drafter):
        refused(r"^drafter\S* got [23]0000000; expected a whole number <=", build, WIDE)
    for seconds in (2e6, -1.0, float("nan")):
        refused(r"^lookup_time: got .*from 0 to 1e\+06", ngram_drafter, lookup_time=seconds)


@each_row("argument", ["target", "drafter", "hardware", "engine"])
@each_row("value", [5, ["mixtral-8x7b"], b"h200_sxm"])
def test_what_is_neither_record_nor_name_nor_path_is_refused(argument, value):
    names = {"target": "mixtral-8x7b", "hardware": "h200_sxm", "drafter": "ngram"}
    refused(rf"^{argument}: got .*a record, a name or a path", deploy, **names | {argument: value})


@each_row("argument", ["tensor_parallel", "expert_parallel", "draft_tensor_parallel"])
@each_row("value", [[1, 2], "two", 1.5, 0, float("inf"), 10**400])
def test_a_degree_is_one_whole_number(argument, value):
    names = {"target": "mixtral-8x7b", "hardware": "h200_sxm", "drafter": "eagle"}
    refused(rf"^{argument}: got .*; expected", deploy, **names | {argument: value})
    assert deploy(**names | {argument: np.int64(1)})[0].layout.num_gpus == 1


# Dtypes that follow from others


@listed
def test_fp8_weights_meet_fp8_activations_where_the_gpu_has_fp8(hardware, given, activation):
    names = {"target": "mixtral-8x7b", "hardware": hardware, "drafter": "ngram"}
    deployment, assumed = deploy(**names, tensor_parallel=2, **given)
    assert deployment.target.activation_dtype == activation
    assert assumed.get("activation_dtype") == (None if "activation_dtype" in given else activation)


def test_a_draft_model_of_another_vocabulary_is_refused():
    """Engines compare its tokens with the target's by number."""
    names = {"target": "mixtral-8x7b", "hardware": "h200_sxm"}
    message = r"^drafter: got 'Llama-3.2-1B, vocabulary_size 128256'; .*Mixtral-8x7B, 32000"
    refused(message, deploy, **names, drafter="llama-3.2-1b")
    draft = load_architecture("llama-3.2-1b").with_changes("drafter", {"vocabulary_size": 32_000})
    deploy(**names, drafter=draft)
    deploy(**names, drafter="eagle3")


# Heads as engines run them


def layer_of(head):
    (model,) = head.architectures
    (layer,) = model.layers
    return model, layer.mixer, layer.feed_forward


def test_eagle3_reads_the_embedding_beside_the_features():
    """q, k, v of 2h (SGLang's `llama_eagle3.py`): 29.4 million weights with 32 heads on 2048."""
    target = load_architecture("qwen3-30b-a3b")
    model, mixer, block = layer_of(eagle3_drafter(target))
    assert mixer.weights(2048) == 4096 * 2048 * 2 + 2 * 512 * 2048 * 2 + 4096 * 2048 == 29_360_128
    assert model.input_projection_size == 3 * 2048
    assert block.ffn_size == 12_288  # as SpecForge's head for it
    _, plain, block = layer_of(eagle_drafter(target))
    assert (plain.weights(2048), block.ffn_size) == (18_874_368, 3.5 * 2048)


@each_row(("name", "published"), values_of("engines.txt", "eagle3 widths"))
def test_width_of_eagle3_heads_as_published(name, published):
    """Of the heads that SpecForge publishes, by the shape of their targets."""
    names = {"target": name, "hardware": "b200", "tensor_parallel": 8}
    deployment, assumed = deploy(**names, drafter="eagle3")
    _, _, block = layer_of(deployment.drafter)
    assert block.ffn_size == published
    assert "draft_ffn_size" not in assumed


def test_width_of_other_eagle3_heads_is_a_rule_that_is_told():
    rules = ("mixtral-8x7b", 24_576, "6 x hidden_size"), ("llama-3.1-8b", 14_336, "as the target")
    for name, ffn_size, rule in rules:
        deployment, assumed = deploy(target=name, hardware="b200", drafter="eagle3")
        assert layer_of(deployment.drafter)[2].ffn_size == ffn_size
        assert assumed["draft_ffn_size"] == f"{ffn_size} ({rule})"
        assert "draft_head" not in assumed
        assert deployment.drafter.architectures[0].source == "derived from the target"
    given = eagle3_drafter(load_architecture("mixtral-8x7b"), ffn_size=1000)
    assert not given.assumed


def test_eagle3_has_grouped_attention_even_on_latent_attention():
    """The head of DeepSeek-V3 has 56 heads of 128 that share 8."""
    _, mixer, _ = layer_of(eagle3_drafter(load_architecture("deepseek-v3")))
    assert (mixer.num_heads, mixer.num_kv_heads, mixer.head_dim) == (56, 8, 128)
    assert layer_of(mtp_drafter(load_architecture("deepseek-v3")))[1].kind == "latent_attention"


@pytest.mark.parametrize("build", [eagle_drafter, eagle3_drafter, mtp_drafter])
def test_the_first_pass_of_a_head_carries_all_verified_tokens(build):
    target = load_architecture("qwen3-30b-a3b")
    first, rest = build(target).passes([0, 1, 3])
    np.testing.assert_array_equal(first.tokens_per_sequence[1:], [2, 4])
    np.testing.assert_array_equal(first.count, [0, 1, 1])
    assert (first.logits_per_sequence, rest.tokens_per_sequence) == (1, 1)
    np.testing.assert_array_equal(rest.count, [0, 0, 2])
    once = build is eagle3_drafter  # whose projection is of the target's features only
    assert (rest.architecture.input_projection_size == 0) == once
    assert rest.architecture.layers == first.architecture.layers
    tree, levels = build(target).passes(3, 25)
    assert (tree.tokens_per_sequence, levels.tokens_per_sequence) == (25, 8)


def test_looking_up_takes_longer_for_more_sequences():
    """The host looks up the draft of each sequence of a replica in turn; whole ones, of eight."""
    names = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm"}
    drafter = ngram_drafter(lookup_time=1e-4)
    point = {"draft_length": 3, "verify_tokens": 4, "context_length": 100}
    deployment, _ = deploy(**names, drafter=drafter)
    times = step_times(deployment, batch_size=[1, 16, 128], **point)
    np.testing.assert_allclose(times.draft_time, [1e-4, 16e-4, 128e-4], rtol=1e-12)
    spread, _ = deploy(**names, drafter=drafter, expert_parallel=8)
    times = step_times(spread, batch_size=[2, 8, 16, 128], **point)
    np.testing.assert_allclose(times.draft_time, [1e-4, 1e-4, 2e-4, 16e-4], rtol=1e-12)
    plain = step_times(deployment, batch_size=16, **point | {"draft_length": 0})
    assert plain.draft_time == 0


@pytest.mark.parametrize("name", named_drafters())
def test_a_row_makes_what_it_says(name):
    drafter = load_drafter(name, load_architecture("llama-3.1-70b"))
    row = named_drafters()[name]
    assert (drafter.kind, drafter.is_lookup) == (row.kind, is_lookup(name))
    assert (drafter.block_size is not None) == row.is_block


def test_a_drafter_brings_passes_of_its_own():
    """Medusa: as many heads as tokens, each a matrix and an LM head, and one launch for all."""
    target = load_architecture("llama-3.1-8b")
    h, size = target.hidden_size, target.vocabulary_size

    def heads(model, run):
        return {"heads": linear(run, 1, weights=h * h + h * size, values=2 * h + size, depth=h)}

    def each(model, gamma, drafted):
        first = np.minimum(gamma, 1.0)
        one = DraftPasses(model, np.ones(()), first, part=heads, takes_host=True)
        return one, replace(one, count=gamma - first, takes_host=False)

    made = Drafter(name="Medusa", parts=((target, each),), is_head=True, shares_lm_head=False)
    shared = replace(made, shares_lm_head=True)
    times, memory = [], []
    for drafter in (made, shared):
        deployment, _ = deploy(target=target, drafter=drafter, hardware="h100_sxm", engine="vllm")
        point = {"batch_size": 1.0, "draft_length": 3.0, "verify_tokens": 4.0}
        times.append(step_times(deployment, **point, context_length=100.0))
        memory.append(draft_bytes(deployment))
    read = sum(part.passes.count * part.each.total_time for part in times[0].draft_passes)
    assert 3 * (h * h + h * size) * 2 / 3.35e12 < read < 0.01
    first, others = (part.each for part in times[0].draft_passes)
    assert first.host_time == deployment.engine_seconds.draft_pass_time > others.host_time == 0
    assert memory[0] - memory[1] == size * h * 2
