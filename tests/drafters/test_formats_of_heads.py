"""Heads in other formats: the open one, without a class, EAGLE-3.1, with keys of training."""

from configs import HEADS
from printed import refused
from rows import listed, one_case
from test_block_configs import same

EAGLE3, DFLASH = HEADS["specforge"], HEADS["dflash"]
OPEN = HEADS["open"]
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


@listed
def test_values_of_the_open_format_say_sizes(head, changes, block, taps, vocabulary):
    read = head(OPEN, **own(**changes))
    (model,) = read.architectures
    assert read.block_size == block
    assert model.input_projection_size == taps * 2048
    assert model.vocabulary_size == vocabulary


@listed
def test_an_open_format_that_is_not_understood_is_refused(head, inner, outer, fault):
    refused(rf"^drafter config.json ?{fault}", head, OPEN, **own(**inner) | outer)


@listed
def test_a_head_without_a_class_is_known_by_its_keys(head, name, more, kind):
    config = HEADS[name] | more
    read = head(config, architectures=None)
    assert read.kind == kind
    assert same(read, head(config)) or "speculators_model_type" in more


def test_without_a_class_or_a_key_of_a_head_it_is_a_draft_model(head):
    plain = {key: n for key, n in EAGLE3.items() if key not in ("draft_vocab_size", "eagle_config")}
    assert head(plain, architectures=None).kind == "draft model"


@listed
def test_norms_and_keys_of_training_change_no_shape(head, changes):
    assert same(head(EAGLE3, **changes), head(EAGLE3))


@one_case("key", "medusa_num_heads", "hydra_num_heads", "lora_rank", "lm_head_rank_divisor")
def test_parts_that_are_not_modelled_are_refused_where_there_are_some(head, key):
    for value in (None, False, 0):
        assert same(head(EAGLE3, **{key: value}), head(EAGLE3))
    refused(f"config.json: got '{key}'. Not modelled: ", head, EAGLE3, **{key: 2})
