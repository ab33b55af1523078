"""Tokens whose logits are computed and gathered: the last of a prompt, all that are verified.

An engine picks the rows that it samples from before the LM head (`logits_indices` in vLLM): one of
a whole prompt, none of a chunk with more to come, each of a verified draft and its first token.
"""

import pytest
from carried import draft_prefill_pass
from rows import cases, each_listed

from specmodel import deploy, load_architecture
from specmodel.core.cost import pass_work, prefill_pass, target_pass
from specmodel.core.layers import Layout, sequence_group

H, VOCABULARY, LAYERS = 4096, 128256, 32
"""Llama-3.1-8B."""
DEPLOYED = {"target": "llama-3.1-8b", "hardware": "h200_sxm", "drafter": "ngram"}


def assert_head(parts, *, rows, tokens, gpus):
    """The LM head runs on `rows` of the `tokens` in the pass, its columns cut over GPUs."""
    head = parts["lm_head"]
    assert head.flop == 2 * rows * H * VOCABULARY / gpus
    assert head.weight_bytes == H * VOCABULARY / gpus * 2
    assert (head.activation_bytes, head.rows) == (rows * (H + VOCABULARY / gpus) * 2, rows)
    if gpus == 1:
        assert "all_reduce" not in parts
        return
    messages = parts["all_reduce"]
    # a ring that gathers: each GPU hands on all logits of 16 bits but its own share
    assert messages.link_bytes == pytest.approx(rows * VOCABULARY * 2 * (gpus - 1) / gpus)
    assert (messages.collectives, messages.link_hops) == (1, gpus - 1)
    assert messages.reduced_bytes == tokens * (2 * LAYERS + 1) * H * 2


BESIDE = {"target": "llama-3.1-70b", "drafter": "llama-3.1-8b"}


@cases(
    "read changes prompt",
    *((prefill_pass, {"tensor_parallel": n}, p) for n in (1, 2, 8) for p in (1, 512, 8192)),
    (prefill_pass, {"tensor_parallel": 2, "data_parallel": 4}, 1000),
    (draft_prefill_pass, BESIDE | {"tensor_parallel": 4}, 3000),
)
def test_a_prompt_has_logits_of_its_last_token(read, changes, prompt):
    """Each replica has one of its own; a draft model reads it too."""
    deployment, _ = deploy(**DEPLOYED | changes)
    layout = deployment.layout if read is prefill_pass else deployment.draft_layout
    parts = read(deployment, prompt).work().components
    assert_head(parts, rows=1, tokens=prompt, gpus=layout.tensor_parallel)


@pytest.mark.parametrize("gpus", [1, 4])
@each_listed
def test_rows_of_the_head(sequences, tokens, logits, rows, gpus):
    given = {"tokens_per_sequence": tokens, "logits_per_sequence": logits}
    group = sequence_group(batch_size=sequences, **given)
    work = pass_work(load_architecture("llama-3.1-8b"), group, layout=Layout(gpus))
    assert_head(work.components, rows=rows, tokens=sequences * tokens, gpus=gpus)


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_chunk_beside_decoding_adds_one_row(gpus):
    verified = sequence_group(batch_size=6, tokens_per_sequence=4, context_length=3000)
    chunk = sequence_group(batch_size=1, tokens_per_sequence=500, logits_per_sequence=1)
    deployment, _ = deploy(**DEPLOYED, tensor_parallel=gpus)
    parts = target_pass(deployment, [verified, chunk]).work().components
    assert_head(parts, rows=6 * 4 + 1, tokens=6 * 4 + 500, gpus=gpus)


def test_only_sequences_with_a_draft_have_several_rows():
    """A quarter of eight sequences verifies three drafted tokens, the others carry one token."""
    group = sequence_group(batch_size=8, tokens_per_sequence=4, speculating_share=0.25)
    work = pass_work(load_architecture("llama-3.1-8b"), group, layout=Layout(2))
    assert_head(work.components, rows=2 * 4 + 6, tokens=2 * 4 + 6, gpus=2)


def test_logits_of_several_nodes_cross_the_network_once():
    """Two nodes of eight: in a ring between them, each GPU sends the half of a sixteenth."""
    group = sequence_group(batch_size=3, tokens_per_sequence=500, logits_per_sequence=1)
    model = load_architecture("llama-3.1-70b")
    messages = pass_work(model, group, layout=Layout(16)).components["all_reduce"]
    row = VOCABULARY * 2
    assert messages.link_bytes == pytest.approx(3 * row * 7 / 8)
    reduced = 3 * 500 * (2 * 80 + 1) * 8192 * 2
    crossing = 2 * (1 / 2) / 8  # an all-reduce of two, of what each GPU of a node has
    assert messages.network_bytes == pytest.approx(crossing * reduced + crossing / 2 * 3 * row)


@pytest.mark.parametrize("gpus", [1, 4])
def test_embeddings_for_each_layer_are_made_and_gathered_for_all_tokens(gpus):
    """A table of 256 values a layer, as in Gemma: of all tokens, where logits are of the last only.

    One matrix, cut over GPUs, makes as much of a token again, which is gathered; a sum and a gate
    read two values and write one. Of each layer, two matrices go to 256 values and back.
    """
    size, made, tokens = 256, LAYERS * 256, 3 * 500
    group = sequence_group(batch_size=3, tokens_per_sequence=500, logits_per_sequence=1)
    bare = load_architecture("llama-3.1-8b")
    inputs = {"vocabulary_size": VOCABULARY, "size": size}
    model = bare.with_changes("target", {"layer_inputs": inputs})
    parts, less = (pass_work(one, group, layout=Layout(gpus)).components for one in (model, bare))
    around = H + made / gpus + LAYERS * (H + size + size + H)
    assert parts["layer_inputs"].activation_bytes == tokens * around * 2
    weights, norms = H * made / gpus + 2 * LAYERS * H * size, LAYERS * H + size
    assert parts["layer_inputs"].weight_bytes == pytest.approx(2 * weights, abs=2 * norms)
    assert parts["layer_inputs"].flop == pytest.approx(tokens * 2 * weights, rel=1e-3)
    assert parts["layer_inputs"].depth == H + LAYERS * (H + size)
    assert parts["layer_inputs"].kernels == 1 + 2 * LAYERS
    more = parts["elementwise"].activation_bytes - less["elementwise"].activation_bytes
    assert more == tokens * 2 * (2 + 1) * made * 2
    looked_up = parts["embedding"].activation_bytes - less["embedding"].activation_bytes
    assert looked_up == tokens * 2 * made * 2
    if gpus > 1:
        sent, before = parts["all_reduce"], less["all_reduce"]
        gathered = tokens * made * 2 * (gpus - 1) / gpus
        assert sent.link_bytes - before.link_bytes == pytest.approx(gathered, rel=1e-12)
        assert sent.reduced_bytes - before.reduced_bytes == tokens * made * 2
        assert (sent.collectives, sent.reductions) == (2, before.reductions + 1)
        assert sent.link_hops - before.link_hops == gpus - 1
