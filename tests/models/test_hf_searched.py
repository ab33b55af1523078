"""Models whose layers a search cut: sizes of their own, and layers of which nothing is left."""

import numpy as np
import pytest
from configs import CONFIGS, flat, read
from printed import refused
from rows import cases
from shapes import without_fields
from strategies import pass_of

from specmodel.core.cost import resolve
from specmodel.core.layers import Layout

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


@cases(
    "changes message",
    ({"block_configs": [{}]}, "block_configs: got '1 entries'; expected 80 objects"),
    (changed(1, "ffn", ffn_mult=0), r"block_configs\[1\].ffn ffn_mult: got 0"),
    (changed(1, "ffn", ffn_mult=None), r"\[1\].ffn intermediate_size: got None"),
    (changed(1, "ffn", replace_with_linear=True), r"\[1\].ffn replace_with_linear: got True"),
    (changed(1, "ffn", moe={"n": 4}), r"\[1\].ffn moe: got"),
    (changed(0, "attention", num_sink_tokens=4), "num_sink_tokens: got 4; expected false or"),
    (changed(0, "attention", n_heads_in_group=3), "n_heads_in_group: got 3; .*= 64"),
)
def test_blocks_that_are_not_understood(changes, message):
    refused(message, read, NAS, **changes)


# Nemotron-H after a search

NANO = CONFIGS["nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]
PATTERN = "MEM*EM-E"
PURPOSES = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
PLAIN = NANO | {"hybrid_override_pattern": PATTERN, "num_hidden_layers": 8, "moe_latent_size": 1024}
PLAIN |= {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}
HIDDEN, LATENT, EXPERTS, USED, WIDTH = 2688, 1024, 128, 6, 1856


def layers(**own):
    """Each layer's object, with keys of its own for those of some purposes."""
    return [{"block_type": PURPOSES[x], **own.get(PURPOSES[x], {})} for x in PATTERN]


def puzzle(**changes):
    return PLAIN | {"model_type": "nemotron_h_puzzle", "block_configs": layers()} | changes


def own_experts(**sizes):
    """The first layer of experts as they are, the others with sizes of their own."""
    found = layers()
    for i in (i for i, layer in enumerate(found) if i > 1 and layer["block_type"] == "moe"):
        found[i] |= sizes
    return found


def test_layers_that_differ_in_nothing_are_those_of_nemotron_h():
    assert without_fields(read(puzzle())) == without_fields(read(PLAIN))


HALVED = {"n_routed_experts": EXPERTS // 2, "moe_intermediate_size": WIDTH // 2}


def test_parameters_of_experts_by_layer():
    """Two of three layers have half the experts, of half the width: two matrices and a router."""
    plain, shape = read(PLAIN), read(puzzle(block_configs=own_experts(**HALVED)))
    routers = HIDDEN * EXPERTS // 2
    fewer = EXPERTS * 2 * LATENT * WIDTH * 3 // 4 + routers
    assert plain.total_parameters - shape.total_parameters == 2 * fewer
    less_used = USED * 2 * LATENT * WIDTH // 2 + routers
    assert plain.active_parameters - shape.active_parameters == 2 * less_used


def test_other_blocks_and_attention_by_layer():
    own = {"mlp": {"intermediate_size": 128}, "attention": {"sliding_window": 64}}
    shape = read(puzzle(block_configs=layers(**own)))
    assert read(PLAIN).total_parameters - shape.total_parameters == 2 * HIDDEN * (WIDTH - 128)
    assert [mixer.window for mixer in shape.mixers if not mixer.is_recurrent] == [64]


def test_each_layer_loads_the_union_of_its_own_experts():
    """E (1 - (1 - k/E)^t) experts of each layer, unrelated tokens, two matrices in 16 bits."""
    tokens = np.array([1, 3, 40])
    work = pass_of(read(puzzle(block_configs=own_experts(**HALVED))), batch_size=tokens)
    of_all, of_half = (n * (1 - (1 - USED / n) ** tokens) for n in (EXPERTS, EXPERTS // 2))
    loaded = (of_all + 2 * of_half / 2) * 2 * LATENT * WIDTH * 2
    assert work.components["routed_experts"].weight_bytes == pytest.approx(loaded)
    assert work.active_experts == pytest.approx(of_half)


def test_the_module_has_experts_of_its_own():
    module = [{"block_type": "attention"}, {"block_type": "moe", "n_routed_experts": 8}]
    shape = read(puzzle(mtp_block_configs=module))
    assert (shape.mtp_layer.feed_forward.num_experts, shape.mtp_layer.mixer.num_heads) == (8, 32)


@pytest.mark.parametrize(("changes", "match"), [
    ({"block_configs": None}, "block_configs: got None; .*a list of objects"),
    ({"block_configs": layers()[1:]}, "hybrid_override_pattern: got .*layers_block_type"),
    ({"block_configs": layers(moe={"num_experts_per_tok": 999})}, r"\[1\].*per_token: got 999"),
    ({"block_configs": layers(mamba={"mamba_num_heads": 3})}, r"\[0\] mamba_num_heads: got 3"),
    ({"block_configs": layers(mlp={"width": 3})}, r"\[6\] width: got 3; .*intermediate_size"),
    ({"block_configs": layers(mlp={"block_type": "x"})}, r"\[6\] block_type: got 'x'; .*mamba"),
    ({"mtp_block_configs": layers()[:2]}, "mtp_block_configs: got .*attention and moe"),
])  # fmt: skip
def test_what_is_not_known_is_named(changes, match):
    refused(match, read, puzzle(**changes))


def test_the_popularity_of_several_kinds_of_experts_is_refused():
    shape = read(puzzle(block_configs=own_experts(n_routed_experts=16)))
    for name in ("popularity", "popularity_exponent"):
        told = {"target": shape, "hardware": "h200_sxm", name: 0.5}
        refused(rf"^{name}: got 0.5\. .*several kinds of experts", resolve, told)


def test_experts_are_spread_evenly_in_every_layer():
    shape = read(puzzle(block_configs=own_experts(n_routed_experts=20)))
    assert shape.check_layout(Layout(expert_parallel=4, tensor_parallel=4)) is None
    refused(r"expert_parallel: got 8; .*20 experts", shape.check_layout, Layout(8, 8))
