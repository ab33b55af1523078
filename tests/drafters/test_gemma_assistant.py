"""Gemma's assistants: draft heads that attend to caches of their target and keep none."""

import json
import re

import numpy as np
import pytest
from configs import CONFIGS

from specmodel import InputError, deploy, load_architecture, load_drafter
from specmodel.cost import MemoryUse, pass_work
from specmodel.drafters import drafter_kind
from specmodel.layers import sequence_group

GEMMA = CONFIGS["google--gemma-4-26B-A4B"]["text_config"]
TEXT = {key: GEMMA[key] for key in GEMMA if not re.search("expert|moe|^tie", key)} | {
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "intermediate_size": 4096,
    "num_kv_shared_layers": 4,
}
ASSISTANT = {
    "architectures": ["Gemma4AssistantForCausalLM"],
    "model_type": "gemma4_assistant",
    "backbone_hidden_size": 2816,
    "use_ordered_embeddings": False,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
    "text_config": TEXT,
}
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
    assert use.draft_weight_bytes == 2 * (COUNTED - NORMS_OF_HEADS)


def test_its_passes(read):
    first, later = read().passes(4.0)
    assert (float(first.tokens_per_sequence), float(first.count)) == (5, 1)
    assert (float(later.tokens_per_sequence), float(later.count)) == (1, 3)
    projection = pass_work(later.architecture, sequence_group(batch_size=1)).components
    assert projection["input_projection"].weight_bytes == 2 * (2 * 2816 + 2816) * 1024


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_ordered_embeddings": True}, "use_ordered_embeddings: got True; expected false"),
        ({"backbone_hidden_size": 5376}, "backbone_hidden_size: got 5376; .*target, 2816"),
        ({"text_config": {"model_type": "llama"}}, "text_config: got .*gemma4_text"),
        ({"text": {"enable_moe_block": True}}, "enable_moe_block: got True; expected False in"),
        ({"text": {"num_kv_shared_layers": 2}}, "num_kv_shared_layers: got 2; expected 4 in"),
        ({"text": {"hidden_size_per_layer_input": 256}}, "hidden_size_per_layer_input: got 256"),
        ({"text": {"num_global_key_value_heads": 4}}, "text_config: got 'other heads'"),
        ({"text": {"vocab_size": 1000}}, "text_config vocab_size: got 1000; .*262144"),
        ({"text": {"layer_types": None}}, "layer_types: got None; expected 4 entries"),
        ({"zeta": 2}, r"config\.json zeta: got 2; expected no such key"),
        ({"text": {"zeta": 2}}, "text_config zeta: got 2; expected no such key"),
        ({"text": {"sliding_window": 512}}, "text_config: got 'other heads'.*Gemma-4-26B-A4B"),
    ],
)
def test_what_is_no_assistant_of_the_target_is_refused(read, changes, message):
    with pytest.raises(InputError, match=message) as error:
        read(**changes)
    assert "\n" not in str(error.value)
