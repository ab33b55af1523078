"""Components of passes, compared with hand-counted work and with the times of the passes."""

import numpy as np
import pytest

from specmodel import load_architecture, load_hardware, ngram_drafter, predict
from specmodel.core.algebra.experts import correlated_active_experts
from specmodel.plan import pass_components

WHERE = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "acceptance": 0.7}


@pytest.fixture(scope="module")
def prediction():
    where = WHERE | {"drafter": "eagle3", "engine": "sglang", "routing_correlation": 0.2}
    where["popularity"] = "equal"
    return predict(**where, batch_size=[1, 16], draft_length=[[3], [5]], context_length=0)


def test_passes_sum_to_their_times_point_by_point(prediction) -> None:
    table, p = pass_components(prediction), prediction
    names = ["batch_size", "draft_length"]
    points = table[names].drop_duplicates()
    assert points.to_numpy().tolist() == [[1, 3], [16, 3], [1, 5], [16, 5]]
    sums = table.groupby([*names, "pass"])["time"].sum().unstack()
    sums = sums.loc[list(points.itertuples(index=False, name=None))]
    np.testing.assert_allclose(sums["forward"], p.forward_time.ravel(), rtol=1e-12)
    np.testing.assert_allclose(sums["verify"], p.verify_time.ravel(), rtol=1e-12)
    lengths = np.repeat([3, 5], 2)
    drafting = sums["first draft pass"] + (lengths - 1) * sums["draft pass"]
    np.testing.assert_allclose(drafting, p.draft_time.ravel(), rtol=1e-12)


@pytest.mark.parametrize(("kind", "tokens"), [("forward", 1), ("verify", 4)])
def test_experts_do_two_flop_a_weight_and_read_the_union(prediction, kind, tokens) -> None:
    table = pass_components(prediction).set_index(
        ["batch_size", "draft_length", "pass", "component"]
    )
    row, a = table.loc[(16, 3, kind, "routed_experts")], load_architecture("qwen3-30b-a3b")
    weights = 3 * a.hidden_size * a.experts.expert_size
    flop = 2 * 16 * tokens * a.experts_per_token * weights * a.num_layers
    assert row["flop"] == pytest.approx(flop, rel=1e-12)
    union = correlated_active_experts(16, tokens, a.num_experts, a.experts_per_token, 0.2)
    read = 2 * union * weights * a.num_layers
    assert read < row["bytes"] < 1.1 * read
    assert row["arithmetic_intensity"] == pytest.approx(row["flop"] / row["bytes"], rel=1e-12)
    assert row["flops_per_s"] == pytest.approx(row["flop"] / row["time"], rel=1e-12)


def test_roofs_are_those_of_the_data_sheet_and_of_the_fit(prediction) -> None:
    table, h200 = pass_components(prediction), load_hardware("h200_sxm")
    parts = table[table["component"] != "host"]
    assert set(parts["peak_flops_per_s"]) == {h200.dtype["bf16"].peak_flops_per_s}
    assert set(parts["peak_bytes_per_s"]) == {h200.memory.peak_bytes_per_s}
    fit = h200.fitted["sglang"].experts["bf16"]
    experts = parts[parts["kind"] == "experts"]
    shares = experts["fitted_bytes_per_s"] / experts["peak_bytes_per_s"]
    assert shares.to_list() == pytest.approx([fit.memory_efficiency] * len(experts))
    shares = experts["fitted_flops_per_s"] / experts["peak_flops_per_s"]
    assert shares.to_list() == pytest.approx([fit.compute_efficiency] * len(experts))


def test_on_the_data_sheet_nothing_is_above_its_roof() -> None:
    asked = {"drafter": "ngram", "engine": "ideal", "stack": "datasheet"}
    p = predict(**WHERE, **asked, batch_size=[1, 64], draft_length=3)
    table = pass_components(p)
    assert set(table["pass"]) == {"forward", "verify"}
    assert "host" not in set(table["component"])
    busy = table[table["flop"] > 0]
    slope = busy["arithmetic_intensity"] * busy["peak_bytes_per_s"]
    roof = np.minimum(busy["peak_flops_per_s"], slope)
    assert (busy["flops_per_s"] <= roof * (1 + 1e-12)).all()
    assert (busy["flops_per_s"] > 0.9 * roof).all()
    assert busy["peak_share"].to_numpy() == pytest.approx(busy["flops_per_s"] / roof, rel=1e-12)


def test_shares_of_the_data_sheet_count_hidden_time_and_no_bytes_of_a_cache() -> None:
    """vLLM overlaps shared and routed experts; bytes in the L2 cache are not read from memory."""
    p = predict("deepseek-v3", "8xh200", engine="vllm", acceptance=0.7, batch_size=[1, 16])
    table = pass_components(p)
    busy = table[table["flop"] > 0]
    assert (busy["hidden_time"] > 0).any()
    whole = busy["time"] + busy["hidden_time"]
    assert (busy["flops_per_s"] * whole).to_numpy() == pytest.approx(busy["flop"], rel=1e-12)
    memory = busy["bytes"] / (whole * busy["peak_bytes_per_s"])
    of_peak = np.maximum(memory, busy["flops_per_s"] / busy["peak_flops_per_s"])
    assert (busy["peak_share"] <= of_peak * (1 + 1e-12)).all()
    is_read = ~busy["kind"].isin(["gemm", "elementwise"])
    assert busy["peak_share"][is_read].to_numpy() == pytest.approx(of_peak[is_read], rel=1e-12)


def test_a_verify_pass_is_one_with_proposals() -> None:
    """If a look-up seldom proposes, the other requests of the batch verify one token each."""
    tokens = []
    for drafter in (ngram_drafter(), ngram_drafter(proposal_rate=0.25)):
        p = predict(**WHERE, drafter=drafter, batch_size=8, draft_length=3)
        flop = pass_components(p).set_index(["component", "pass"])["flop"]["lm_head"]
        tokens.append(flop["verify"] / flop["forward"])
    chance = 1 - 0.75**8
    assert tokens == pytest.approx([4, 1 + 3 * 0.25 / chance], rel=1e-12)
