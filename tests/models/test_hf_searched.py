"""Models whose layers a search cut, and language models published without their wrapper."""

import pytest
from configs import read

from specmodel import InputError

ATTENTION = {"no_op": False, "n_heads_in_group": 4, "window_length": None, "sparsify": None}
NONE = {"no_op": True, "n_heads_in_group": None}
NAS = {
    "model_type": "nemotron-nas",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": None,
    "intermediate_size": None,
    "vocab_size": 1000,
    "block_configs": [
        {"attention": ATTENTION, "ffn": {"ffn_mult": 4}},
        {"attention": NONE, "ffn": {"ffn_mult": 0.5, "replace_with_linear": False}},
        {"attention": NONE, "ffn": {"no_op": True}},
        {"attention": ATTENTION | {"window_length": 64}, "ffn": {"intermediate_size": 100}},
    ],
}


def changed(number, part, **keys):
    blocks = [dict(block) for block in NAS["block_configs"]]
    blocks[number][part] = blocks[number][part] | keys
    return {"block_configs": blocks}


def test_layers_have_what_the_search_left():
    model = read(NAS)
    kv = 2 * 2 * 128  # keys and values of two heads
    of_attention = 2 * 1024**2 + 1024 * kv
    widths = 2816 + 512 + 100  # 4 x 1024 x 2/3 and half of that in steps of 256, and as given
    norms = (2 + 1 + 0 + 2 + 1) * 1024
    assert model.total_parameters == 2 * 1000 * 1024 + 2 * of_attention + 3 * 1024 * widths + norms
    assert model.sequence_bytes(10) == 2 * 10 * kv * 2
    assert model.sequence_bytes(100) == (100 + 64) * kv * 2


def test_a_layer_with_nothing_left_takes_no_part():
    assert read(NAS).num_layers == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_configs": [{}]}, "block_configs: got '1 entries'; expected 4 objects"),
        (changed(1, "ffn", ffn_mult=0), r"block_configs\[1\].ffn ffn_mult: got 0"),
        (changed(1, "ffn", ffn_mult=None), r"\[1\].ffn intermediate_size: got None"),
        (changed(1, "ffn", replace_with_linear=True), r"\[1\].ffn replace_with_linear: got True"),
        (changed(1, "ffn", moe={"n": 4}), r"\[1\].ffn moe: got"),
        (changed(0, "attention", num_sink_tokens=4), "num_sink_tokens: got 4; expected false or"),
        (changed(0, "attention", n_heads_in_group=3), "n_heads_in_group: got 3; .*= 8"),
    ],
)
def test_blocks_that_are_not_understood(changes, message):
    with pytest.raises(InputError, match=message) as error:
        read(NAS, **changes)
    assert "\n" not in str(error.value)
