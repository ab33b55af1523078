"""Nemotron-H after a search: layers whose experts, blocks and attention have sizes of their own."""

import numpy as np
import pytest
from configs import read
from shapes import without_fields

from specmodel.base.errors import InputError
from specmodel.cost.deploying import resolve
from specmodel.cost.forward import pass_work
from specmodel.layers.batch import Layout, sequence_group

HIDDEN, LATENT, STATES = 256, 64, {"mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 8}
STATES |= {"ssm_state_size": 128, "conv_kernel": 4}
ROUTED = {"n_routed_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 96}
ROUTED |= {"moe_latent_size": LATENT, "n_shared_experts": 1}
ROUTED |= {"moe_shared_expert_intermediate_size": 128}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}
PATTERN = "MEM*EM-E"
PURPOSES = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
PLAIN = {"model_type": "nemotron_h", "hidden_size": HIDDEN, "vocab_size": 1000} | STATES
PLAIN |= {"hybrid_override_pattern": PATTERN, "intermediate_size": 512} | ROUTED | HEADS
PLAIN |= {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}


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
    labels = {"name", "source"}
    assert without_fields(read(puzzle()), labels) == without_fields(read(PLAIN), labels)


def test_parameters_of_experts_by_layer():
    """Two of three layers have half the experts, of half the width: two matrices and a router."""
    shape = read(puzzle(block_configs=own_experts(n_routed_experts=16, moe_intermediate_size=48)))
    fewer = 32 * 2 * LATENT * 96 - 16 * 2 * LATENT * 48 + HIDDEN * (32 - 16)
    assert read(PLAIN).total_parameters - shape.total_parameters == 2 * fewer
    assert read(PLAIN).active_parameters - shape.active_parameters == 2 * (
        4 * 2 * LATENT * 48 + HIDDEN * 16
    )


def test_other_blocks_and_attention_by_layer():
    own = {"mlp": {"intermediate_size": 128}, "attention": {"sliding_window": 64}}
    shape = read(puzzle(block_configs=layers(**own)))
    assert read(PLAIN).total_parameters - shape.total_parameters == 2 * HIDDEN * (512 - 128)
    windows = [
        group.mixer.window for group in shape.layers if group.mixer and not group.mixer.is_recurrent
    ]
    assert windows == [64]


def test_each_layer_loads_the_union_of_its_own_experts():
    """E (1 - (1 - k/E)^t) experts of each layer, unrelated tokens, two matrices in 16 bits."""
    shape = read(puzzle(block_configs=own_experts(n_routed_experts=16, moe_intermediate_size=48)))
    tokens = np.array([1, 3, 40])
    work = pass_work(
        shape, sequence_group(batch_size=tokens, tokens_per_sequence=1, context_length=100)
    )

    def loaded(experts, width, layer_count):
        union = experts * (1 - (1 - 4 / experts) ** tokens)
        return layer_count * union * 2 * LATENT * width * 2

    expected = loaded(32, 96, 1) + loaded(16, 48, 2)
    assert work.components["routed_experts"].weight_bytes == pytest.approx(expected)
    assert shape.num_experts == 16
    assert work.active_experts == pytest.approx(16 * (1 - (1 - 4 / 16) ** tokens))


def test_the_module_has_experts_of_its_own():
    module = [{"block_type": "attention"}, {"block_type": "moe", "n_routed_experts": 8}]
    shape = read(puzzle(mtp_block_configs=module))
    assert shape.mtp_layer.feed_forward.num_experts == 8
    assert shape.mtp_layer.mixer.num_heads == 8


@pytest.mark.parametrize(("changes", "match"), [
    ({"block_configs": None}, "block_configs: got None; .*a list of objects"),

    ({"block_configs": layers()[1:]}, "hybrid_override_pattern: got .*block_configs"),
    ({"block_configs": layers(moe={"num_experts_per_tok": 99})}, r"\[1\] num_experts_per_tok: got"),
    ({"block_configs": layers(mamba={"mamba_num_heads": 3})}, r"\[0\] mamba_num_heads: got 3"),
    ({"block_configs": layers(mlp={"width": 3})}, r"\[6\] width: got 3; .*intermediate_size"),
    ({"block_configs": layers(mlp={"block_type": "x"})}, r"\[6\] block_type: got 'x'; .*mamba"),
    ({"mtp_block_configs": layers()[:2]}, "mtp_block_configs: got .*attention and moe"),

])  # fmt: skip
def test_what_is_not_known_is_named(changes, match):
    with pytest.raises(InputError, match=match) as error:
        read(puzzle(**changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["popularity", "popularity_exponent"])
def test_the_popularity_of_several_kinds_of_experts_is_refused(name):
    shape = read(puzzle(block_configs=own_experts(n_routed_experts=16)))
    values = {"target": shape, "hardware": "h200_sxm", name: 0.5}
    with pytest.raises(InputError, match=rf"^{name}: got 0.5; .*several kinds of experts"):
        resolve(values)


def test_experts_are_spread_evenly_in_every_layer():
    shape = read(puzzle(block_configs=own_experts(n_routed_experts=20)))
    assert shape.check_layout(Layout(expert_parallel=4, tensor_parallel=4)) is None
    with pytest.raises(InputError, match=r"expert_parallel: got 8; .*20 experts"):
        shape.check_layout(Layout(expert_parallel=8, tensor_parallel=8))
