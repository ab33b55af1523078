"""Experts behind a narrower width than the model's, counted by hand: Nemotron-3-Super's layer."""

import pytest
from strategies import pass_of

from specmodel import load_architecture
from specmodel.core.layers import Layout, RoutedExperts

H, LATENT, WIDTH, SHARED, EXPERTS, USED = 4096, 1024, 2688, 5376, 512, 22
FIELDS = {"num_experts": EXPERTS, "experts_per_token": USED, "expert_size": WIDTH}
FIELDS |= {"num_shared_experts": 1, "shared_expert_size": SHARED, "is_gated": False}
LAYER = RoutedExperts(**FIELDS, latent_size=LATENT)


def model(latent_size=LATENT, **changes):
    block = FIELDS | {"kind": "experts", "latent_size": latent_size}
    shape = {"hidden_size": H, "layers": [{"count": 3, "feed_forward": block}]}
    return load_architecture("llama-3.1-8b").with_changes("model", shape | changes)


def test_parameters_by_hand():
    expert, around = 2 * LATENT * WIDTH, 2 * H * LATENT
    always = H * EXPERTS + 2 * H * SHARED + around
    assert (LAYER.expert_parameters(H), LAYER.parameters(H)) == (expert, EXPERTS * expert + always)
    assert LAYER.active_parameters(H) == USED * expert + always


@pytest.mark.parametrize("gpus", [1, 4])
def test_projections_are_copied_to_each_gpu_and_left_in_16_bits(gpus):
    own, layout = model(weight_dtype="fp8", expert_dtype="fp4"), Layout(gpus, gpus)
    held = LAYER.weight_bytes(own.stream, layout)
    experts, shared = EXPERTS * 2 * LATENT * WIDTH / gpus * 0.5625, 2 * H * SHARED / gpus
    assert held == pytest.approx(experts + shared + (H * EXPERTS + 2 * H * LATENT) * 2, rel=1e-12)


@pytest.mark.parametrize("gpus", [1, 4])
def test_work_of_the_projections(gpus):
    part = pass_of(model(), batch_size=8, layout=Layout(gpus)).components["latent_projections"]
    assert (part.flop, part.weight_bytes) == (8 * 3 * 2 * (2 * H * LATENT), 3 * 2 * H * LATENT * 2)
    assert part.activation_bytes == 8 * 3 * 2 * (H + LATENT) * 2
    assert (part.kernels, part.depth, part.kind) == (6, 3 * (H + LATENT), "gemm")
    assert "latent_projections" not in pass_of(model(0), batch_size=8).components


def test_experts_read_and_move_rows_of_their_own_width():
    narrow, wide = (pass_of(model(size), batch_size=8).components for size in (LATENT, 0))
    one, other = narrow["routed_experts"], wide["routed_experts"]
    assert other.weight_bytes == one.weight_bytes * H / LATENT
    assert other.flop == one.flop * H / LATENT
    per_pair = 2 * LATENT + 2 * WIDTH + 2 * WIDTH + 2 * (1 + 1 / USED) * LATENT
    assert one.activation_bytes == pytest.approx(8 * USED * 3 * per_pair * 2, rel=1e-12)
    for name in ("router", "shared_experts"):
        assert narrow[name].flop == wide[name].flop


@pytest.mark.parametrize("name", ["all_to_all", "gather_scatter"])
def test_messages_carry_rows_of_that_width(name):
    whole = Layout(1, 8) if name == "all_to_all" else Layout(1, 4, data_parallel=8)
    sent = [pass_of(model(n), batch_size=64, layout=whole).components[name] for n in (LATENT, 0)]
    assert sent[1].link_bytes == pytest.approx(sent[0].link_bytes * H / LATENT, rel=1e-12)
    assert sent[0].link_hops == sent[1].link_hops


def test_one_all_reduce_of_the_width_of_the_model():
    cut = [pass_of(model(n), batch_size=8, layout=Layout(4)).components for n in (LATENT, 0)]
    assert cut[0]["all_reduce"].reduced_bytes == cut[1]["all_reduce"].reduced_bytes
