"""Heads in other formats: the open one, without a class, EAGLE-3.1, with keys of training."""

from configs import HEADS
from printed import refused
from rows import one_case
from test_block_configs import same

EAGLE3, DFLASH, DSPARK = HEADS["specforge"], HEADS["dflash"], HEADS["dspark"]
OPEN = {
    **{key: n for key, n in DFLASH.items() if key not in ("dflash_config", "block_size")},
    "architectures": ["DflashDraftModel"],
    "open_spec_config_version": "0.0.0",
    "speculative_config": {
        "method": "dflash",
        "speculative_tokens": 15,
        "verifier": "Qwen/Qwen3-30B-A3B",
        "target_layer_ids": [1, 12, 23, 34, 45],
        "target_layer_start_idx": 1,
        "draft_vocab_size": 32_000,
        "sample_from_anchor": False,
        "mask_token_id": 151_669,
        "sliding_window_non_causal": False,
        "training_framework": "vllm-project/speculators",
        "training_framework_version": "0.9.0",
    },
    "target_hidden_size": None,
    "speculators_metadata": {"verifier_architectures": ["Qwen3MoeForCausalLM"]},
}
"""As `DFlashSpeculatorConfig.to_dict` of speculators writes it since August 2026."""


def own(**changes):
    """Return the open format's object with other values."""
    return {"speculative_config": OPEN["speculative_config"] | changes}


def test_the_open_format_is_dflash_as_speculators_has_it(head):
    native = {"architectures": ["DFlashSpeculator"], "draft_vocab_size": 32_000}
    read, known = head(OPEN), head(DFLASH, **native)
    assert (read.kind, read.block_size) == (known.kind, known.block_size) == ("DFlash head", 15)
    assert [p.name for p in read.passes(7)] == [p.name for p in known.passes(7)]
    assert same(read, known)


@one_case(
    "changes block taps vocabulary",
    ({"sample_from_anchor": True}, 15, 5, 32_000),
    ({"speculative_tokens": 7, "target_layer_start_idx": 0}, 7, 5, 32_000),
    ({"target_layer_ids": [2, 24], "draft_vocab_size": None}, 15, 2, 151_936),
    ({"sliding_window_non_causal": True}, 15, 5, 32_000),
)
def test_values_of_the_open_format_say_sizes(head, changes, block, taps, vocabulary):
    read = head(OPEN, **own(**changes))
    (model,) = read.architectures
    assert read.block_size == block
    assert model.input_projection_size == taps * 2048
    assert model.vocabulary_size == vocabulary


@one_case(
    "changes fault",
    ({"open_spec_config_version": "1.0"}, "open_spec_config_version: got '1.0'; expected 0.0.0"),
    ({"architectures": ["DFlashDraftModel"]}, r"architectures: got .*\['DflashDraftModel'\]"),
    ({"speculative_config": None}, "speculative_config: got None; expected an object"),
    (own(method="eagle3"), "speculative_config method: got 'eagle3'; expected dflash"),
    (
        own(speculative_tokens=0),
        "speculative_config speculative_tokens: got 0; expected a whole number from 1",
    ),
    (own(num_experts=4), "num_experts: got 4; .*has a key specmodel does not know for qwen3"),
    (
        own(sample_from_anchor=1),
        "speculative_config sample_from_anchor: got 1; expected true or false",
    ),
)
def test_an_open_format_that_is_not_understood_is_refused(head, changes, fault):
    refused(rf"^drafter config.json ?{fault}", head, OPEN, **changes)


@one_case(
    "config more kind",
    (EAGLE3, {}, "EAGLE-3 head"),
    (EAGLE3, {"draft_vocab_size": None}, "EAGLE-3 head"),  # its eagle_config says so
    (EAGLE3, {"speculators_model_type": "peagle", "mask_token_id": 1}, "P-EAGLE head"),
    (DFLASH, {}, "DFlash head"),
    (DFLASH, {"speculators_model_type": "dflash"}, "DFlash head"),
    (DSPARK, {}, "DSpark head"),
    (DFLASH, {"dflash_config": DFLASH["dflash_config"] | {"markov_rank": 64}}, "DSpark head"),
)
def test_a_head_without_a_class_is_known_by_its_keys(head, config, more, kind):
    read = head(config | more, architectures=None)
    assert read.kind == kind
    assert same(read, head(config | more)) or "speculators_model_type" in more


def test_without_a_class_or_a_key_of_a_head_it_is_a_draft_model(head):
    plain = {key: n for key, n in EAGLE3.items() if key not in ("draft_vocab_size", "eagle_config")}
    assert head(plain, architectures=None).kind == "draft model"


@one_case(
    "changes",
    {"fc_norm": True, "norm_output": True},  # EAGLE-3.1, as SpecForge and NeMo write it
    {"fc_norm": True, "norm_output": True, "norm_before_fc": False},
    {"ttt_length": 7},
    {"ttt_steps": 3, "embed_requires_grad": True},
    {"training_time_test": 5},
)
def test_norms_and_keys_of_training_change_no_shape(head, changes):
    assert same(head(EAGLE3, **changes), head(EAGLE3))


@one_case("key", "medusa_num_heads", "hydra_num_heads", "lora_rank", "lm_head_rank_divisor")
def test_parts_that_are_not_modelled_are_refused_where_there_are_some(head, key):
    for value in (None, False, 0):
        assert same(head(EAGLE3, **{key: value}), head(EAGLE3))
    refused(f"config.json: got '{key}'. Not modelled: ", head, EAGLE3, **{key: 2})
