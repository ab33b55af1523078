"""Gemma's assistants: draft heads that attend to caches of their target and keep none."""

import json
import re

import numpy as np
import pytest
from configs import CONFIGS
from printed import refused
from rows import each_row, faults, listed
from strategies import draft_bytes

from specmodel import deploy, load_acceptance, load_architecture, load_drafter
from specmodel.core.cost import MemoryUse, pass_work
from specmodel.core.drafters import drafter_kind
from specmodel.core.layers import Layout, sequence_group

GEMMA = CONFIGS["google--gemma-4-26B-A4B"]["text_config"]
TEXT = {key: GEMMA[key] for key in GEMMA if not re.search("expert|moe|^tie", key)}
TEXT |= {"hidden_size": 1024, "num_hidden_layers": 4, "intermediate_size": 4096}
TEXT |= {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "num_kv_shared_layers": 4}
ASSISTANT = {
    "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
    "backbone_hidden_size": 2816, "use_ordered_embeddings": False, "tie_word_embeddings": True,
    "dtype": "bfloat16", "text_config": TEXT,
}  # fmt: skip
COUNTED = 369_379_584
"""Parameters of transformers 5.23.0's model of this configuration, built without weights."""
NORMS_OF_HEADS = 3 * 256 + 512
TARGET = load_architecture("gemma-4-26b-a4b")


@pytest.fixture
def read(tmp_path):
    def read_config(target=TARGET, text=None, **changes):
        path = tmp_path / "config.json"
        config = ASSISTANT | {"text_config": TEXT | (text or {})} | changes
        path.write_text(json.dumps(config), encoding="utf-8")
        return load_drafter(path, target)

    return read_config


def test_parameters_are_those_of_the_model(read):
    (head,) = read().architectures
    assert head.total_parameters == COUNTED - NORMS_OF_HEADS


@listed
def test_published_assistants_are_taken_by_name_and_for_their_targets(name, counted):
    target = load_architecture(f"google/gemma-4-{name}-it")
    own = f"google/gemma-4-{name}-it-assistant"
    drafter, named = (load_drafter(typed, target) for typed in ("mtp", own))
    (head,) = drafter.architectures
    assert head.total_parameters == counted - NORMS_OF_HEADS
    assert named.architectures == drafter.architectures
    assert named.assumed == drafter.assumed == (("draft_head", f"published sizes ({head.source})"),)
    narrow = load_drafter(f"RedHatAI/gemma-4-{name}-it-assistant-FP8", target)
    assert narrow.architectures[0].weight_dtype == "fp8"


@listed
def test_no_other_drafter_is_taken_for_a_named_assistant(target, name, message):
    refused(message, load_drafter, name, load_architecture(target))


def test_acceptance_of_an_assistant_is_that_published_as_mtp():
    for preset in ("preset", "gemma-4-31b-mtp"):
        found = load_acceptance("gemma-4-31b", "mtp", preset)
        assert float(found.expected_tokens_per_step(5)) == pytest.approx(4.04, abs=0.01)


def test_a_head_over_clusters_copies_some_rows_for_each_token(read):
    """32 of 2,048 clusters, each of 128 tokens, by hand; a whole copy where the head is cut."""
    both = [read(use_ordered_embeddings=is_on) for is_on in (False, True)]
    (whole,), (head,) = (drafter.architectures for drafter in both)
    assert head.total_parameters == whole.total_parameters + 2048 * 1024
    work = pass_work(head, sequence_group(batch_size=3)).components
    assert work["lm_head"].weight_bytes == 2 * 2048 * 1024
    rows = 32 * 128
    assert float(work["head_rows"].activation_bytes) == 2 * 3 * (2048 + rows * (3 * 1024 + 2))
    half = Layout(tensor_parallel=2)
    more = head.weight_bytes(half) - whole.weight_bytes(half)
    assert more == 2 * (2048 + 262_144) * 1024
    works = [pass_work(part, sequence_group(batch_size=3), layout=half) for part in (whole, head)]
    messages = (work.components["all_reduce"] for work in works)
    assert [float(message.collectives) for message in messages] == [1, 0]


def test_a_unified_assistant_is_alike(read):
    """SGLang 0.5.23 runs its class as the other's, as FROZEN_KV_MTP."""
    assert drafter_kind(read(), TARGET) == "assistant"
    other = read(model_type="gemma4_unified_assistant", text={"model_type": "gemma4_unified_text"})
    assert other.architectures == read().architectures


def test_it_keeps_nothing_and_reads_what_the_target_keeps(read):
    drafter = read()
    (head,) = drafter.architectures
    assert float(head.sequence_bytes(np.array(1e5))) == 0
    one = sequence_group(batch_size=1, context_length=5000)
    core = pass_work(head, one).components["attention_core"]
    windowed, full = 3 * 1024 * 8 * 2 * 256, 5001 * 2 * 2 * 512
    assert float(core.cache_bytes) == 2 * (windowed + full)
    deployment, _ = deploy(target=TARGET, hardware="h200_sxm", drafter=drafter)
    use = MemoryUse(deployment, context_length=5000.0, verify_tokens=4.0)
    assert float(use.bytes_per_request) == float(TARGET.sequence_bytes(np.array(5004.0)))
    assert draft_bytes(deployment) == pytest.approx(2 * (COUNTED - NORMS_OF_HEADS), rel=1e-9)


def test_its_passes(read):
    first, later = read().passes(4.0)
    assert (float(first.tokens_per_sequence), float(first.count)) == (5, 1)
    assert (float(later.tokens_per_sequence), float(later.count)) == (1, 3)
    projection = pass_work(later.architecture, sequence_group(batch_size=1)).components
    assert projection["input_projection"].weight_bytes == 2 * (2 * 2816 + 2816) * 1024


@each_row(("changes", "message"), faults("gemma"))
def test_what_is_no_assistant_of_the_target_is_refused(read, changes, message):
    refused(message, read, **changes)
