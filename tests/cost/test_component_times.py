"""Time of one component from its work, by hand: what kernels add to bytes and FLOPs."""

import math

import numpy as np
import pytest
from msgspec.structs import replace
from one_by_one import pass_time
from scipy import stats

from specmodel import deploy, load_architecture, load_hardware
from specmodel.core.algebra import ranks
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.algebra.routing import rate_of
from specmodel.core.cost import component_time, pass_work
from specmodel.core.cost.prefill import carried_prefill
from specmodel.core.layers import Layout, PassWork, Work, sequence_group
from specmodel.core.machines.engine import Overheads

PEAKS = {"memory.peak_bytes_per_s": 1e12, "dtype.bf16.peak_flops_per_s": 1e15}
GPU = load_hardware("h100_sxm").with_changes("hardware", PEAKS)
"""1 us reads a million bytes, and computes a thousand million FLOP."""
US = 1e-6


def seconds(work, **parameters):
    return float(component_time(work, GPU, KernelParameters(**parameters)).total_time)


def test_streams_share_the_bandwidth_and_activations_may_add():
    work = Work(weight_bytes=4e6, cache_bytes=3e6, activation_bytes=2e6)
    assert seconds(work) == pytest.approx(9 * US, rel=1e-12)
    assert seconds(work, memory_efficiency=0.5) == pytest.approx(18 * US, rel=1e-12)
    apart = seconds(work, memory_efficiency=0.5, activation_efficiency=4.0)
    assert apart == pytest.approx((14 + 0.5) * US, rel=1e-12)
    at_ridge_point = seconds(Work(flop=5e9, weight_bytes=5e6))  # by the data sheet
    assert at_ridge_point == pytest.approx(5 * 2**0.125 * US, rel=1e-12)


def test_a_ramp_lengthens_reads_by_what_its_kernels_take_to_start():
    """6 us of reads by three kernels of 2 us each: 6 + 6 * 6 / 12."""
    work = Work(weight_bytes=4e6, cache_bytes=2e6, kernels=3.0)
    for efficiency, expected in ((1.0, 9), (0.5, 12 + 12 * 6 / 18)):
        found = seconds(work, ramp_time=2 * US, memory_efficiency=efficiency)
        assert found == pytest.approx(expected * US, rel=1e-12)


def test_a_ramp_comes_before_the_walk_and_leaves_arithmetic_alone():
    work = Work(weight_bytes=2e6, flop=1e10, kernels=1.0, depth=4000.0)
    k = {"ramp_time": 2 * US, "depth_time": 1e-9, "depth_limit": 1e15, "sharpness": 2.0}
    ramped, walked, computed = 3.0, 4.0, 10.0
    assert seconds(work, **k) == pytest.approx(math.hypot(ramped, walked, computed) * US, rel=1e-9)


def test_a_walk_is_the_least_a_small_product_takes():
    """Two kernels of 3,000 each, cut into parts of at most 1,000: 750 steps of 4 ns each."""
    work = Work(weight_bytes=1.0, kernels=2.0, depth=6000.0)
    time = seconds(work, depth_time=4e-9, depth_limit=1000.0)
    assert time == pytest.approx(2 * 750 * 4e-9, rel=1e-9)


def test_narrow_matrices_are_read_with_padding_and_caches_are_not():
    work = Work(weight_bytes=4e6, cache_bytes=4e6, activation_bytes=1e6, width=40.0)
    assert seconds(work, tile_width=30.0) == pytest.approx((5 + 4 + 1) * US, rel=1e-12)


def test_results_lengthen_reads_of_weights_and_arithmetic_and_further_rows_read_again():
    """A fourth more for 100 terms beside 400; the second row of each of two matrices reads it."""
    sizes = {"kernels": 1.0, "depth": 400.0, "rows": 4.0, "spread": 2.0}
    work = Work(weight_bytes=4e6, cache_bytes=1e6, flop=8e9, **sizes)
    time = seconds(work, result_terms=100.0, reread_rows=64.0, sharpness=1.0)
    assert time == pytest.approx((2 * 5 + 1 + 10) * US, rel=1e-9)


def test_rows_are_padded_by_matrix_and_groups_added():
    """32 rows over 4 matrices, tiles of 6 rows: arithmetic as on 10 of 8; 1 us for each of 4."""
    work = Work(flop=8e9, rows=32.0, spread=4.0, groups=4.0)
    assert seconds(work, tile_rows=6.0) == pytest.approx(10 * US, rel=1e-12)
    both = seconds(work, tile_rows=6.0, group_time=1 * US, compute_efficiency=0.5)
    assert both == pytest.approx((20 + 4) * US, rel=1e-12)


def test_kernels_are_launched_one_after_another():
    work = Work(weight_bytes=1e6, kernels=4.0)
    part = component_time(work, GPU, KernelParameters(launch_time=2 * US), kernel_time=3 * US)
    assert part.launch_time == pytest.approx(20 * US, rel=1e-12)
    assert part.total_time == pytest.approx(21 * US, rel=1e-12)
    whole = PassWork({"a": work, "b": work}, np.ones(()))
    overheads = Overheads(kernel_time=3 * US, pass_time=50 * US)
    time = pass_time(whole, GPU, overheads=overheads)
    assert time.total_time == pytest.approx((2 * (1 + 12) + 50) * US, rel=1e-12)
    assert time.gpu_time == pytest.approx(26 * US, rel=1e-12)


def test_messages_wait_for_hops_and_bytes():
    link, network = GPU.link, GPU.network
    between = {"network_bytes": 3e6, "network_hops": 6.0}
    work = Work(link_bytes=1e6, collectives=2.0, link_hops=14.0, **between)
    in_node = 2 * link.collective_latency + 14 * link.hop_latency
    in_node += 1e6 / (link.peak_bytes_per_s * link.efficiency)
    between = 6 * network.hop_latency + 3e6 / network.peak_bytes_per_s
    assert seconds(work) == pytest.approx(in_node + between, rel=1e-12)
    alone = replace(work, collectives=0.0)
    assert seconds(alone) == pytest.approx(between, rel=1e-12)


def test_a_spread_of_popularity_has_the_moments_of_such_popularities(monkeypatch):
    """Experts at 128 quantiles of the law, and the correlation that they leave of 0.3."""
    rate = rate_of(np.asarray(1 / 16), 1.3)
    drawn = stats.gamma(1 / 1.69, scale=1.69 * rate).ppf((np.arange(128) + 0.5) / 128)
    popularity = -np.expm1(-drawn)
    popularity *= 8 / popularity.sum()
    least = popularity.var() / (15 / 256)
    asked = []
    monkeypatch.setattr(ranks, "busiest_tokens", lambda *a: asked.append(a) or np.ones(()))
    for c, told in [(0.3, {}), ((0.3 - least) / (1 - least), {"popularity": popularity})]:
        group = sequence_group(batch_size=16, tokens_per_sequence=4)
        model = load_architecture("qwen3-30b-a3b")
        pass_work(model, group, routing_correlation=c, layout=Layout(8, 8), **told)
    np.testing.assert_allclose(asked[0][:2], asked[1][:2], rtol=0.03)
    assert asked[0][2] == pytest.approx(asked[1][2], rel=0.1)


def test_prefill_of_the_others_while_each_makes_its_tokens():
    """Of 101 requests the other hundred prefill 0.1 s each while one makes a thousand tokens."""
    deployment, _ = deploy(target="qwen3-8b", hardware="h200")
    lengths = {"output_length": np.array(1000.0), "prompt_length": np.array(8192.0)}
    carried = carried_prefill(deployment, {"batch_size": np.array([101.0, 1.0]), **lengths}, 0.1)
    np.testing.assert_allclose(carried, [0.01, 0.0], rtol=1e-12)


@pytest.mark.parametrize(("prompt", "at_once"), [(8192, 1), (16384, 1), (4096, 2), (512, 16)])
def test_in_lockstep_a_request_meets_the_prompts_after_its_own_step(prompt, at_once):
    """Steps of 8,192 tokens read so many prompts of 16 at a time, one wave after another."""
    deployment, _ = deploy(target="qwen3-8b", hardware="h200")
    points = {"batch_size": 16.0, "prompt_length": prompt, "output_length": 100.0, "lockstep": True}
    given = {name: np.asarray(value) for name, value in points.items()}
    met, read = [], 0
    while read < 16:
        read += at_once
        met += [16 - read] * at_once
    assert float(carried_prefill(deployment, given, 100.0)) == pytest.approx(np.mean(met))


def test_typical_all_reduces_are_assumed_only_where_matrices_are_cut():
    """Nobody timed all-reduces on an A800; replicas of whole matrices have none."""
    told = {"target": "qwen3-30b-a3b", "hardware": "a800_sxm_80gb"}
    _, cut = deploy(**told, tensor_parallel=2)
    _, apart = deploy(**told, data_parallel=2, expert_parallel=2)
    assert cut["all_reduce"].kind == "typical_all_reduce"
    assert cut["all_reduce"].values["factor"] == pytest.approx(1.4, abs=0.05)
    assert "all_reduce" not in apart
