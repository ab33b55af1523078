"""Answers from predictions, against brute force, closed forms and MoESD's own definitions."""

import itertools
from importlib import import_module

import numpy as np
import pytest
from hybrids import hybrid
from hypothesis import given, settings, strategies as st
from printed import refused
from rows import each_row, faults, listed, values_of

from specmodel import ngram_drafter, predict
from specmodel.core.algebra import experts
from specmodel.plan import break_even, compare, explain, sweet_spot, sweet_spots
from specmodel.plan.curves import measured_unions
from specmodel.plan.explaining import SPEEDUP_TERMS, VERIFY_TERMS, shapley_values

QWEN = {
    "target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "a800_sxm_80gb",
    "tensor_parallel": 2, "engine": "vllm-moesd-2025", "context_length": 512,
}  # fmt: skip
CASES = {
    "draft model": QWEN,
    "eagle": {"target": "mixtral-8x7b", "drafter": "eagle", "hardware": "h100_sxm"}
    | {"tensor_parallel": 2},
    "n-gram": {"target": "qwen3-30b-a3b", "drafter": ngram_drafter(), "hardware": "h200_sxm"}
    | {"engine": "sglang"},
    "dense": {"target": "llama-3.1-8b", "drafter": "eagle3", "hardware": "l40s"},
    "expert parallel": {"target": "deepseek-v3", "drafter": "mtp", "hardware": "h200_sxm"}
    | {"expert_parallel": 16},
    "hybrid": {"target": hybrid("Qwen3.5-122B-A10B"), "drafter": "mtp", "hardware": "h200_sxm"}
    | {"tensor_parallel": 2, "engine": "ideal"},
}


def grid(name, **changes):
    given = CASES[name] | {"acceptance": 0.7, "batch_size": [1, 16, 128, 512]} | changes
    return predict(**{"draft_length": [[1], [3], [7]]} | given)


# sweet spots


def brute_spot(batch, gain):
    """Find the sweet spot from every pair of ends."""
    peak = max(range(len(batch)), key=lambda i: (gain[i], -i))
    runs = [
        (i, j)
        for i in range(len(batch))
        for j in range(i, len(batch))
        if all(g > 1 for g in gain[i : j + 1])
        and (i == 0 or gain[i - 1] <= 1)
        and (j == len(batch) - 1 or gain[j + 1] <= 1)
    ]
    bar = gain[peak] / 2**0.5
    low = high = peak
    while low > 0 and gain[low - 1] >= bar:
        low -= 1
    while high < len(batch) - 1 and gain[high + 1] >= bar:
        high += 1
    paying = tuple((batch[i], batch[j]) for i, j in runs)
    return batch[peak], gain[peak], paying, (batch[low], batch[high])


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from([0.5, 0.9, 1.0, 1.1, 1.4, 1.5, 2.0, 2.9])),
        min_size=1,
        max_size=12,
    )
)
def test_a_sweet_spot_is_what_looking_at_every_range_finds(steps):
    batch = list(itertools.accumulate(step for step, _ in steps))
    gain = [value for _, value in steps]
    spot = sweet_spot(batch, gain)
    found = (spot.peak_batch_size, spot.peak_speedup, spot.paying, spot.near_peak)
    assert found == brute_spot(batch, gain)


@each_row(("batch_size", "speedup", "match"), faults("curves"))
def test_curves_that_are_none_are_refused(batch_size, speedup, match):
    refused(match, sweet_spot, batch_size, speedup)


def test_sweet_spots_take_the_curves_apart_whatever_the_axes():
    batch = np.arange(1, 300)
    axes = {"draft_length": [[1], [4]], "acceptance": [0.5, 0.9]}
    table = sweet_spots(grid("draft model", batch_size=batch[:, None, None], **axes))
    points = list(itertools.product((1, 4), (0.5, 0.9)))
    for row, (length, rate) in zip(table.itertuples(), points, strict=True):
        alone = predict(**QWEN, batch_size=batch, draft_length=length, acceptance=rate)
        assert row.draft_length == length
        assert row.tokens_per_step == pytest.approx(float(alone.tokens_per_step[0]), rel=1e-12)
        spot = sweet_spot(batch, alone.speedup)
        assert row.peak_batch_size == spot.peak_batch_size
        assert row.peak_speedup == pytest.approx(spot.peak_speedup, rel=1e-12)
        assert row.paying == ", ".join(
            f"{low}-{high}" if high > low else f"{low}" for low, high in spot.paying
        )
        assert (row.near_peak_first, row.near_peak_last) == spot.near_peak


# best draft length, break-even, comparison


@each_row("name", CASES)
def test_what_is_compared_are_the_best_lengths_of_all(name):
    sizes, lengths = [1, 3, 40, 300], np.arange(1, 11)
    p = grid(name, batch_size=sizes, draft_length=lengths[:, None])
    idle = grid(name, batch_size=sizes, draft_length=0)
    table = compare({name: grid(name, batch_size=sizes, draft_length=None, max_draft_length=10)})
    assert table["best_draft_length"].tolist() == p.best_draft_length[0].astype(int).tolist()
    for i, row in enumerate(table.itertuples()):
        length = row.best_draft_length
        if length == 0:  # including the time that a loaded drafter needs
            assert row.speedup == pytest.approx(idle.speedup[i], rel=1e-12)
            assert row.tpot == pytest.approx(idle.tpot[i], rel=1e-12)
            assert row.limited_by == "none"
        else:
            fits = p.max_batch_size[:, i] >= row.batch_size
            could = p.speedup[fits | (name != "hybrid") | ~fits.any(), i]
            assert row.speedup == p.speedup[length - 1, i] == could.max() > idle.speedup[i]
            assert row.tpot == p.tpot[length - 1, i]
            assert row.limited_by == p.limited_by[length - 1, i]
            assert row.fits == fits[length - 1]
        assert row.tpot_plain == p.forward_time[0, i]
        assert row.tpot_plain / row.tpot == pytest.approx(row.speedup, rel=1e-12)
        assert row.throughput / row.throughput_plain == pytest.approx(row.speedup, rel=1e-12)


@each_row("name", CASES)
def test_the_least_rates_are_told_point_by_point(name):
    """That the speedup is one at them is a condition of `random_points`."""
    axes = {"draft_length": [[1], [4]], "context_length": [[[0]], [[4096]]]}
    p = grid(name, batch_size=[1, 8, 300], **axes)
    table, least = break_even(p), p.break_even_acceptance_rate
    np.testing.assert_array_equal(table["break_even_acceptance_rate"], least.ravel())
    for axis in ("batch_size", *axes):
        expected = np.broadcast_to(getattr(p, axis), least.shape).ravel()
        np.testing.assert_array_equal(table[axis], expected)
    assert table["fits"].tolist() == (p.max_batch_size >= p.batch_size).ravel().tolist()
    assert table["break_even_acceptance_rate"].between(0.001, 0.999).sum() > 6


def test_from_the_sure_rate_the_interval_is_above_one():
    point = {"target": "qwen3-30b-a3b", "hardware": "h100_sxm", "drafter": "eagle3"}
    point |= {"interval": True, "batch_size": [1, 64, 129], "draft_length": [[1], [3]]}
    rates = break_even(predict(**point, acceptance=0.0))["sure_acceptance_rate"]
    assert rates.isna().tolist() == [False] * 5 + [True]
    at_rates = predict(**point, acceptance=rates.fillna(1).to_numpy().reshape(2, 3))
    low = at_rates.intervals["speedup"].low.ravel()
    np.testing.assert_allclose(low[:5], 1, rtol=1e-9)
    assert low[5] < 1


def test_alternatives_keep_their_rows_and_share_gpus():
    points = {"batch_size": [1, 8], "draft_length": 3}
    found = {n: grid("n-gram", **points, tensor_parallel=n) for n in (1, 2)}
    table = compare({str(n): p for n, p in found.items()})
    assert table["alternative"].tolist() == ["1", "1", "2", "2"]
    for name, rows in table.groupby("alternative"):
        for column in ("batch_size", "speedup", "tpot", "fits"):
            np.testing.assert_array_equal(rows[column], getattr(found[int(name)], column))
    assert (table["throughput"] / table["throughput_per_gpu"]).tolist() == [1, 1, 2, 2]
    refused("at least one alternative", compare, {})


# Shapley values and waterfalls


def test_the_glove_game():
    """There is one left glove and two right ones, and a pair is worth 1: the left one gets 2/3."""
    worth = [float(c & 1 and bool(c & 6)) for c in range(8)]
    np.testing.assert_allclose(shapley_values(np.array(worth)), [2 / 3, 1 / 6, 1 / 6])


def test_the_waterfall_is_the_mean_over_orders_of_the_step_itself():
    """Only from numbers of the prediction: seconds by cause, and all orders of the causes."""
    p = predict(**QWEN, batch_size=24, draft_length=4, acceptance=0.8)
    growth, terms = p.times.growth_by_cause(), list(explain(p).speedup)
    seconds = [float(growth[cause]) for cause in terms[:-1]]
    assert sum(seconds) == pytest.approx(float(p.step_time - p.forward_time), rel=1e-12)
    assert terms[-1] == "rejection"
    orders = np.array([*itertools.permutations(range(len(terms)))])
    time = float(p.forward_time) + np.cumsum(np.append(seconds, 0.0)[orders], axis=1)
    is_rejected = np.cumsum(orders == len(terms) - 1, axis=1) > 0
    tokens = np.where(is_rejected, float(p.tokens_per_step), 5.0)
    changes = np.diff(tokens * float(p.forward_time) / time, axis=1, prepend=5.0)
    for i, value in enumerate(explain(p).speedup.values()):
        assert float(value) == pytest.approx(changes[orders == i].mean(), rel=1e-9, abs=1e-12)


def test_states_take_most_where_many_sequences_write_them():
    points = {"draft_length": [[5]], "context_length": 0, "batch_size": [1, 256]}
    terms = explain(grid("hybrid", **points)).target_efficiency
    few, many = terms["state"][0]
    assert few > -0.02
    assert many == min(term[0, 1] for term in terms.values())
    replay = explain(grid("hybrid", **points, state_rollback="replay")).target_efficiency
    assert replay["state"][0, 1] > 0.2 * many


@listed
def test_sweet_spots_are_of_one_axis_of_batch_sizes(batch_size, draft_length, message):
    p = predict(**QWEN, batch_size=batch_size, draft_length=draft_length, acceptance=0.7)
    refused(message, sweet_spots, p)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(sorted(CASES)),
    st.integers(1, 2000),
    st.integers(1, 12),
    st.floats(0, 1),
    st.integers(0, 60_000),
)
def test_anywhere_the_terms_sum(name, batch, length, rate, context):
    e = explain(
        grid(name, batch_size=batch, draft_length=length, acceptance=rate, context_length=context)
    )
    p = e.prediction
    total = float(e.ideal_speedup + sum(e.speedup.values()))
    assert total == pytest.approx(float(p.speedup), rel=1e-12, abs=1e-12)
    verified = 1 + float(sum(e.target_efficiency.values()))
    assert verified == pytest.approx(float(p.target_efficiency), abs=1e-12)
    rare = {"index"} if name == "hybrid" else {"state", "index"}
    assert tuple(e.target_efficiency) == tuple(t for t in VERIFY_TERMS if t not in rare)
    assert tuple(e.speedup) == tuple(t for t in SPEEDUP_TERMS if t not in rare)
    causes = {cause: float(worth) for cause, worth in [*e.speedup.items()][:-1]}
    assert p.limited_by == min(causes, key=causes.get)
    # without CUDA graphs, a longer pass hides more of the host's launches
    assert all(worth <= 1e-12 for cause, worth in causes.items() if cause != "overhead")


def test_nothing_is_taken_where_verifying_is_the_faster():
    """Without CUDA graphs, a longer pass hides more of the host's launches."""
    points = {"batch_size": 257, "draft_length": 1, "context_length": 5000}
    p = predict("qwen3-30b-a3b", "h200", drafter="ngram", engine="sglang", acceptance=0.6, **points)
    assert p.target_efficiency == 1
    assert not np.any([*explain(p).target_efficiency.values()])


def test_an_explanation_as_a_table_has_both_ends():
    """Also of a load, whose prefill takes its part."""
    load = {"prompt_length": 4096, "output_length": 512, "context_length": None}
    e = explain(grid("eagle", draft_length=[[1], [3]], **load))
    assert (e.speedup["prefill"][:, 1:] < 0).all()
    frame = e.to_frame()
    assert len(frame) == 8 * (len(e.target_efficiency) + len(e.speedup) + 4)
    for _, rows in frame.groupby(["quantity", "batch_size", "draft_length"]):
        assert [*rows["term"].iloc[[0, -1]]] == ["ideal", "predicted"]
        values = rows["value"].tolist()
        assert sum(values[:-1]) == pytest.approx(values[-1], abs=1e-12)


def test_explaining_some_points_at_a_time_changes_no_value(monkeypatch):
    found = explain(grid("eagle", batch_size=range(1, 41))).speedup
    monkeypatch.setattr(import_module("specmodel.plan.explaining"), "CHUNK", 7)
    for name, values in explain(grid("eagle", batch_size=range(1, 41))).speedup.items():
        np.testing.assert_allclose(values, found[name], rtol=1e-12, atol=1e-12)


UNIONS = measured_unions().dropna(subset="measured")


def _fit(rows):
    """Return the correlation with the least squared log error on rows, and the residuals."""
    columns = ("num_experts", "experts_per_token", "tokens", "measured")
    E, k, s, measured = (rows[name].to_numpy(float) for name in columns)
    grid = np.linspace(0, 1, 20_001)[:, None]
    log_error = np.log(experts.correlated_active_experts(1, s, E, k, grid) / measured)
    best = (log_error**2).sum(axis=1).argmin()
    return float(grid[best, 0]), np.expm1(log_error[best])


def test_the_unions_that_ship_are_those_published():
    names = ["model", "num_experts", "experts_per_token", "tokens", "measured"]
    assert sorted(UNIONS[names].values.tolist()) == values_of("cases/plan.txt", "published unions")


def test_correlated_union_meets_the_measured_ones():
    """With one parameter per model: mean error 4.5 %, largest 10 %, if a model has several rows."""
    fits = {model: _fit(part) for model, part in UNIONS.groupby("model")}
    residuals = np.concatenate([residual for _, residual in fits.values() if residual.size > 1])
    assert np.abs(residuals).mean() <= 0.045
    assert np.abs(residuals).max() <= 0.10
    told = UNIONS.groupby("model")["routing_correlation"].first().to_dict()
    assert told == pytest.approx({model: c for model, (c, _) in fits.items()}, abs=0.0006)
