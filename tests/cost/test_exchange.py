"""How tokens get to the experts of other GPUs, engine by engine."""

import pytest

import specmodel
from specmodel import load_engine
from specmodel.core.layers.engines import engine_code

DEEPEP = [(16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)]
"""GPUs, and microseconds of dispatch and combine: 128 tokens a GPU, 7,168 wide, 8 of 256 experts,
there in 8 bits and back in 16; H800, 400 Gb/s a GPU (DeepEP's README, low-latency kernels)."""


def spread(ranks, exchange, hardware="h800_sxm", **options):
    """DeepSeek-V3 with whole experts on so many GPUs, 128 requests each."""
    engine = load_engine("ideal").with_changes("engine", {"exchange": exchange})
    options = {"batch_size": 128 * ranks, "tensor_parallel": 1, "expert_parallel": ranks} | options
    return specmodel.decode("deepseek-v3", hardware, engine=engine, **options)


def sent(plain):
    """Seconds of messages to experts and back, in a layer."""
    times = plain.times.forward.components
    return sum(times[n].total_time for n in ("all_to_all", "gather_scatter") if n in times) / 58


@pytest.mark.parametrize(("ranks", "there", "back"), DEEPEP)
def test_copies_over_a_network_take_what_deepep_published(ranks, there, back):
    measured = (there + back) * 1e-6
    assert sent(spread(ranks, "copies")) == pytest.approx(measured, rel=0.10)


def test_inside_a_node_copies_wait_for_the_link_alone():
    """DeepEP published 191 us on eight H800, whose link nobody has timed for us."""
    plain = spread(8, "copies")
    assert sent(plain) == pytest.approx(191e-6, rel=0.25)
    work = plain.times.forward.work().components["all_to_all"]
    assert not work.network_bytes
    rows = 128 * 58 * 8 * 7168 * (1 + 4 / 128 + 2)
    assert work.link_bytes == pytest.approx(rows * 7 / 8, rel=1e-12)


def test_a_gpu_gets_a_token_once_or_once_for_each_of_its_experts():
    """A token of DeepSeek-V3 takes 4 of 8 groups, each on a GPU, and 8 copies."""
    works = [spread(8, name).times.forward.work() for name in ("ranks", "copies")]
    ranks, copies = (work.components["all_to_all"].link_bytes for work in works)
    assert copies / ranks == pytest.approx(8 / 4 * (3 + 4 / 128) / 3, rel=1e-12)


def test_engines_do_as_their_code_unless_told():
    assert (engine_code("vllm").exchange, engine_code("sglang").exchange) == ("gather", "copies")
    where = {"target": "deepseek-v3", "hardware": "h200_sxm", "expert_parallel": 8}
    for stack, name in (("vllm", "gather_scatter"), ("sglang", "all_to_all")):
        plain = specmodel.decode(**where, batch_size=64, stack=stack)
        found = {"gather_scatter", "all_to_all"} & plain.times.forward.components.keys()
        assert found == {name}
    with pytest.raises(specmodel.InputError, match=r"exchange: got 'deepep'; .* copies"):
        load_engine("vllm").with_changes("engine", {"exchange": "deepep"})
