"""Models whose layers a search cut: windows, widths and layers of which nothing is left."""

import pytest
from configs import flat, read

from specmodel import InputError

NAS = flat("nvidia--Llama-3_3-Nemotron-Super-49B-v1")


def changed(number, part, **keys):
    blocks = [dict(block) for block in NAS["block_configs"]]
    blocks[number][part] = blocks[number][part] | keys
    return {"block_configs": blocks}


def test_layers_have_what_the_search_left():
    """A window or another width of one layer; one with nothing left takes no part."""
    plain, kv = read(NAS), 2 * 8 * 128  # keys and values of eight heads
    windowed = read(NAS, **changed(0, "attention", window_length=64))
    assert plain.sequence_bytes(100) - windowed.sequence_bytes(100) == (100 - 64) * kv * 2
    narrow = read(NAS, **changed(1, "ffn", ffn_mult=None, intermediate_size=100))
    width = 28_672  # 5.25 x 8,192 x 2/3
    assert plain.total_parameters - narrow.total_parameters == 3 * 8192 * (width - 100)
    rounded = read(NAS, **changed(1, "ffn", ffn_mult=0.05))
    assert rounded.total_parameters - narrow.total_parameters == 3 * 8192 * (512 - 100)
    gone = changed(0, "attention", no_op=True)["block_configs"]
    gone[0]["ffn"] = {"no_op": True}
    assert read(NAS, block_configs=gone).num_layers == plain.num_layers - 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_configs": [{}]}, "block_configs: got '1 entries'; expected 80 objects"),
        (changed(1, "ffn", ffn_mult=0), r"block_configs\[1\].ffn ffn_mult: got 0"),
        (changed(1, "ffn", ffn_mult=None), r"\[1\].ffn intermediate_size: got None"),
        (changed(1, "ffn", replace_with_linear=True), r"\[1\].ffn replace_with_linear: got True"),
        (changed(1, "ffn", moe={"n": 4}), r"\[1\].ffn moe: got"),
        (changed(0, "attention", num_sink_tokens=4), "num_sink_tokens: got 4; expected false or"),
        (changed(0, "attention", n_heads_in_group=3), "n_heads_in_group: got 3; .*= 64"),
    ],
)
def test_blocks_that_are_not_understood(changes, message):
    with pytest.raises(InputError, match=message) as error:
        read(NAS, **changes)
    assert "\n" not in str(error.value)
