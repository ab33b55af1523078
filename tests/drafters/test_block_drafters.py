"""Drafters that draft a block in one pass: parameters, bytes and passes by hand, and limits."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import cases, each_row

from specmodel import deploy, load_architecture, predict
from specmodel.core.cost import MemoryUse, pass_work, step_times
from specmodel.core.cost.latency import draft_pass
from specmodel.core.drafters import dflash_drafter, drafter_kind, dspark_drafter, eagle3_drafter
from specmodel.core.drafters.by_name import load_drafter
from specmodel.core.drafters.kinds.eagle import p_eagle_drafter
from specmodel.core.drafters.kinds.models import pard_drafter, suffix_drafter
from specmodel.core.drafters.passes import markov_step
from specmodel.core.layers import Layout, sequence_group

QWEN = load_architecture("qwen3-30b-a3b")
"""Hidden size 2048, 32 query and 4 key-value heads of 128, 151,936 tokens."""
V4 = load_architecture("deepseek-v4-flash")
WHERE = {"target": QWEN, "hardware": "h200_sxm", "engine": "ideal", "stack": "datasheet"}


def deployed(drafter, **given):
    return deploy(**WHERE | given, drafter=drafter)[0]


def steps(deployment, draft_length, batch_size=4.0, context_length=1000.0):
    return step_times(
        deployment, batch_size=np.asarray(batch_size), draft_length=np.asarray(float(draft_length)),
        verify_tokens=np.asarray(draft_length + 1.0), context_length=np.asarray(context_length),
    )  # fmt: skip


# Parameters and bytes


def test_parameters_of_dflash_by_hand():
    """Five layers of a dense Qwen3, five features side by side, the target's embedding and head."""
    (head,) = dflash_drafter(QWEN).architectures
    attention = 2048 * 4096 * 2 + 2 * 2048 * 512
    layer, norms = attention + 3 * 2048 * 6144, (2 * 5 + 1) * 2048
    ends = 2 * 151_936 * 2048
    assert head.total_parameters == 5 * layer + 5 * 2048 * 2048 + norms + ends


def test_parameters_of_dspark_are_those_of_dflash_and_a_markov_head():
    """Table and matrix of rank 256 over the vocabulary, and a vector that tells confidence."""
    (plain,), (chained,) = (d(QWEN).architectures for d in (dflash_drafter, dspark_drafter))
    more = 2 * 151_936 * 256 + 2048 + 256
    assert chained.total_parameters - plain.total_parameters == more
    for degree in (1, 4):  # each GPU has all of it
        layout = Layout(tensor_parallel=degree)
        assert chained.weight_bytes(layout) - plain.weight_bytes(layout) == 2 * more


def test_cache_of_five_layers_as_published():
    """10,240 B a token: five layers of 4 key-value heads of 128 in 16 bits (layers in use)."""
    (head,) = dflash_drafter(QWEN).architectures
    assert head.sequence_bytes(np.array(1.0)) == 10_240
    alone, beside = (MemoryUse(deployed(d), 1000, 8) for d in ("ngram", "dflash"))
    assert beside.bytes_per_request - alone.bytes_per_request == 1008 * 10_240


@pytest.mark.parametrize("degree", [1, 8])
def test_memory_of_a_head_leaves_out_the_ends_it_shares(degree):
    """The projection is copied to each GPU, layers are cut, keys of 4 heads at most in four."""
    both = [deployed(drafter, tensor_parallel=degree) for drafter in ("ngram", "dflash")]
    kept = [MemoryUse(deployment, 1000, 8).weight_bytes for deployment in both]
    by_head = 5 * (2048 * 4096 * 2 + 3 * 2048 * 6144) / degree
    keys = 5 * 2 * 2048 * 512 / min(degree, 4)
    norms, features = 11 * 2048, 5 * 2048 * 2048
    assert kept[1] - kept[0] == pytest.approx(2 * (by_head + keys + norms + features), rel=1e-12)


# Passes


@pytest.mark.parametrize("length", [0, 1, 7])
@cases(
    "drafter tokens",
    (dflash_drafter(QWEN), {"context": 1, "draft pass": 1}),
    (dspark_drafter(QWEN), {"context": 1, "draft pass": 0, "Markov step": None}),
)
def test_passes_of_a_block(drafter, tokens, length):
    """As vLLM 0.33: K + 1 features; K masks after the anchor, or K tokens of which it is one."""
    found = {part.name: part for part in drafter.passes(length)}
    assert list(found) == list(tokens)
    for name, more in tokens.items():
        assert found[name].count == (length if more is None else min(length, 1))
        if length:
            assert found[name].tokens_per_sequence == (1 if more is None else length + more)
            assert found["draft pass"].logits_per_sequence == length
    assert not found["draft pass"].is_causal


@pytest.mark.parametrize("length", [0, 1, 12])
def test_passes_of_heads_and_models_with_masks(length):
    """Slots that vLLM 0.33 adds to the K + 1 verified: K - 1 for P-EAGLE, K for PARD."""
    head = p_eagle_drafter(QWEN).passes(length)
    model = pard_drafter(load_architecture("llama-3.2-1b")).passes(length)
    assert all(part.count == min(length, 1) for part in (*head, *model))
    if length:
        assert [float(part.tokens_per_sequence) for part in head] == [length + 1, 2 * length]
        assert [float(part.tokens_per_sequence) for part in model] == [2 * length + 1]
        assert [float(parts[-1].logits_per_sequence) for parts in (head, model)] == [length, length]


# Work


def test_dflash_with_one_mask_is_a_pass_of_two_tokens():
    """But that the first of them sees the second: one pair of query and key a head more."""
    drafter = dflash_drafter(QWEN)
    (head,) = drafter.architectures
    layers = replace(head, input_projection_size=0)
    deployment = deployed(drafter)
    drafted = steps(deployment, 1).draft_passes[1].each.work()
    point = {"tokens_per_sequence": 2, "context_length": 1000, "logits_per_sequence": 1}
    plain = draft_pass(deployment, layers, sequence_group(batch_size=4.0, **point)).work()
    assert drafted.components.keys() == plain.components.keys()
    for name, work in drafted.components.items():
        one = plain.components[name]
        more = 4 * 5 * 32 * 2 * (128 + 128) * (name == "attention_core")
        assert work.flop == pytest.approx(one.flop + more, rel=1e-12), name
        for field in ("weight_bytes", "cache_bytes", "activation_bytes", "kernels", "rows"):
            assert np.allclose(getattr(work, field), getattr(one, field)), (name, field)


def test_context_reads_projections_of_features_and_of_keys_and_values():
    """K + 1 tokens of each sequence, no queries, no feed-forward block, no logits."""
    (head,) = dflash_drafter(QWEN).architectures
    group = sequence_group(batch_size=3, tokens_per_sequence=4)
    work = pass_work(head, group, part="context", layout=Layout(tensor_parallel=2)).components
    features, keys = work["input_projection"], work["context_projections"]
    assert (features.weight_bytes, features.flop) == (2 * 5 * 2048 * 2048, 12 * 2 * 5 * 2048 * 2048)
    assert (keys.weight_bytes, keys.kernels) == (2 * 5 * 2048 * 2 * 512 / 2, 1)
    shared = ("split", "rms_norm", "rotary_embedding")  # for all layers, and each stores its own
    assert work["elementwise"].kernels == len(shared) + 5
    assert set(work) == {"input_projection", "norms", "context_projections", "elementwise"}


def test_context_of_quantised_weights_is_a_product_for_each_layer():
    (head,) = dflash_drafter(QWEN).architectures
    narrow = head.with_changes("drafter", {"weight_dtype": "fp8"})
    group = sequence_group(batch_size=3, tokens_per_sequence=4)
    work = pass_work(narrow, group, part="context").components
    assert work["context_projections"].kernels == 5
    assert work["context_projections"].weight_bytes == 5 * 2048 * 2 * 512
    assert work["input_projection"].weight_bytes == 2 * 5 * 2048 * 2048  # in 16 bits


@pytest.mark.parametrize("degree", [1, 8])
def test_a_markov_step_reads_its_whole_matrix_on_each_gpu(degree):
    (head,) = dspark_drafter(QWEN).architectures
    group = sequence_group(batch_size=16)
    layout = Layout(tensor_parallel=degree)
    work = pass_work(head, group, part=markov_step, layout=layout).components
    assert work["markov_bias"].weight_bytes == 2 * 256 * 151_936
    assert work["markov_bias"].flop == 16 * 2 * 256 * 151_936
    assert set(work) == {"markov_bias", "markov_choice"}


def test_a_markov_head_that_looks_at_some_candidates_reads_their_rows_alone():
    """As vLLM 0.33 runs `dspark_draft_topk`: all logits still pass through the choice."""
    (head,) = dspark_drafter(QWEN).architectures
    some = replace(head, markov=replace(head.markov, num_candidates=64))
    group = sequence_group(batch_size=16)
    whole, part = (pass_work(h, group, part=markov_step).components for h in (head, some))
    assert set(part) == {"markov_choice"}
    rows = 16 * 64 * 256 * 2
    unread = 16 * 151_936 * 2  # the bias of all others, which is no longer read
    sizes = [float(work["markov_choice"].activation_bytes) for work in (part, whole)]
    moved = sizes[0] - sizes[1]
    assert moved == pytest.approx(rows - unread)


def test_only_the_layers_wait_for_the_host():
    """The engine replays one graph a round: features, layers and all steps of the Markov head."""
    parts = steps(deployed("dspark", engine="vllm", stack="vllm"), 7).draft_passes
    hosts = [float(part.each.host_time) for part in parts]
    assert hosts[1] > 0
    assert hosts[0] == hosts[2] == 0


def test_p_eagle_with_one_token_is_eagle3_with_one_token():
    """Two verified tokens, no mask, one token drafted: the same work, projected apart."""
    shallow = p_eagle_drafter(QWEN, num_layers=1, vocabulary_size=32_000)
    one, other = (steps(deployed(d), 1) for d in (eagle3_drafter(QWEN), shallow))
    assert other.draft_time == pytest.approx(float(one.draft_time), rel=1e-9)


# Names and bad input


def test_suffix_is_a_look_up_like_ngram():
    same = [float(steps(deployed(d), 5).step_time) for d in ("ngram", "suffix")]
    assert same[0] == same[1]
    timed = suffix_drafter(lookup_time=1e-3)
    assert float(steps(deployed(timed), 5).draft_time) == pytest.approx(4e-3)


@pytest.mark.parametrize(("name", "most"), [("dflash", 15), ("dspark", 7)])
def test_a_draft_beyond_the_block_is_refused_in_one_line(name, most):
    """And how to have a longer one is told where nothing is published for the target."""
    drafter = load_drafter(name, QWEN)
    drafter.check_draft(np.array(float(most)), most + 1)
    message = rf"^draft_length: got {most + 1}; .*at most {most}, the .*colon"
    refused(message, drafter.check_draft, np.array(most + 1.0), most + 2)
    assert predict(**WHERE, drafter=name, batch_size=1, acceptance=0.7).best_draft_length <= most


@pytest.mark.parametrize("name", ["dflash", "dspark", "p-eagle"])
def test_a_tree_is_refused_in_one_line(name):
    message = r"^verify_tokens: got 12; expected draft_length \+ 1 \(a chain\), as .* no trees"
    refused(message, deployed(name).drafter.check_draft, np.array(7.0), 12)
    message = r"^tree_width: got 4; expected 1 \(a chain\), as .* drafts no trees"
    refused(message, deployed, name, tree_width=4)


def test_drafters_that_cannot_be_are_refused():
    refused("^block_size: got 1; expected .* 2", dflash_drafter, QWEN, block_size=1)
    refused("^drafter: got 'pard'. No PARD model for Qwen3-30B", load_drafter, "pard", QWEN)
    refused("^drafter: got 'DSpark head, for a target", deployed, dspark_drafter(V4))
    refused("^ffn_size: got 8. A head of .* has experts", dspark_drafter, V4, ffn_size=8)
    for name in ("dspark:", "dspark:0", "dspark:x", "dspark:2000", "eagle3:3"):
        refused(f"^drafter: got '{name}'; expected .*block", load_drafter, name, QWEN)


# Heads with layers of their target, and heads that are published


def test_dspark_of_deepseek_v4_by_hand():
    """Three layers like its module, features of three layers, and experts in 4 bits."""
    (head,) = dspark_drafter(V4).architectures
    (group,) = head.layers
    assert (group.count, group.mixer.window, group.mixer.ratio) == (3, 128, 0)
    module = V4.mtp_layer
    layer = module.mixer.weights(4096) + module.feed_forward.parameters(4096)
    mixed = head.residuals.parameters(head.around)
    markov = 2 * 129_280 * 256 + 4096 + 256
    ends, norms = 2 * 129_280 * 4096, 7 * 4096
    assert head.total_parameters == 3 * layer + 3 * 4096**2 + mixed + markov + ends + norms
    assert head.stream.expert_dtype == "mxfp4"


def test_cache_of_deepseek_v4s_head_is_a_window():
    """Of 128 tokens of 584 bytes in each of three layers, and as many more as are drafted."""
    given = {"target": V4, "hardware": "b300", "tensor_parallel": 4}
    alone, beside = (MemoryUse(deployed(d, **given), 100_000, 8) for d in ("ngram", "dspark"))
    kept = float(beside.bytes_per_request - alone.bytes_per_request)
    assert kept == pytest.approx(3 * (128 + 7) * 584, rel=1e-3)


def test_context_of_deepseek_v4s_head_is_a_key_for_each_layer():
    """One product of 3 x 512 rows in 8 bits on each GPU (`context_wkv_proj` in vLLM 0.33)."""
    (head,) = dspark_drafter(V4).architectures
    group = sequence_group(batch_size=2, tokens_per_sequence=8)
    layout = Layout(tensor_parallel=4)
    made = pass_work(head, group, part="context", layout=layout).components["context_projections"]
    assert made.flop == 16 * 2 * 3 * 512 * 4096
    assert (made.weight_bytes, made.kernels) == (pytest.approx(3 * 512 * 4096, rel=1e-3), 1)


def test_p_eagle_has_its_layers_and_the_vocabulary_of_its_target():
    """By hand: projection, a first layer that reads two widths, others like it, LM head, norms."""
    h, width, heads, kv = 2048, 6 * 2048, 32 * 128, 2 * 4 * 128
    given = {"ffn_size": width}
    one, four = (p_eagle_drafter(QWEN, num_layers=n, **given).architectures[0] for n in (1, 4))
    layer = h * (heads + kv) + heads * h + 3 * h * width
    assert four.total_parameters - one.total_parameters == pytest.approx(3 * layer, rel=1e-3)
    small = p_eagle_drafter(QWEN, vocabulary_size=32_000, **given).architectures[0]
    fewer = (QWEN.vocabulary_size - 32_000) * h
    assert four.total_parameters - small.total_parameters == pytest.approx(fewer, rel=1e-9)


def test_heads_as_published():
    """Five layers over latents for Kimi-K3, whose recipe drafts 8; else what is usual is told."""
    given = {"target": "kimi-k3", "hardware": "b200", "tensor_parallel": 8}
    deployment, told = deploy(**given, drafter="dspark")
    assert deployment.drafter.block_size == 8
    assert not {"draft_layers", "draft_block"} & {*told}
    _, told = deploy(**given | {"target": "glm-5.3"}, drafter="dspark")
    assert (told["draft_layers"], told["draft_block"]) == ("5 (usual)", "7 (usual)")
    own = dspark_drafter(load_architecture("glm-5.3"), num_layers=8, block_size=4)
    assert (own.block_size, dict(own.assumed).keys()) == (4, {"draft_ffn_size"})


@each_row(("name", "longest"), [("dspark:8", 8), ("DFlash:9", 8), ("dflash", 15)])
def test_a_name_takes_the_size_of_a_block_after_a_colon(name, longest):
    drafter = load_drafter(name, QWEN)
    assert drafter.block_size == longest
    assert drafter_kind(name, QWEN) == drafter_kind(drafter, QWEN) == name.partition(":")[0].lower()
    told = dict(drafter.assumed)
    assert ("draft_block" in told) == (":" not in name)
