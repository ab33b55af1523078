"""Figures of passes, inputs, policies and measurements draw the data they are given."""

import numpy as np
import pandas as pd
import pytest
from printed import refused
from rows import each_listed

pytest.importorskip("matplotlib")

from drawn import ax, bars, data, legend

from specmodel import InputError
from specmodel.show import plots


def passes():
    point = {"batch_size": 4, "draft_length": 3, "context_length": 512, "dtype": "bf16"}
    roofs = {"peak_flops_per_s": 8e14, "peak_bytes_per_s": 4e12}
    roofs |= {"fitted_flops_per_s": 6e14, "fitted_bytes_per_s": 3e12}
    rows = [
        ("forward", "routed_experts", "experts", 0.002, 2.0, 4e12),
        ("verify", "routed_experts", "experts", 0.003, 5.0, 9e12),
        ("forward", "embedding", "elementwise", 0.001, 0.0, 0.0),
        ("verify", "host", "host", 0.004, np.nan, np.nan),
        ("draft pass", "routed_experts", "experts", 0.0005, 1.0, 1e12),
    ]
    names = ["pass", "component", "kind", "time", "arithmetic_intensity", "flops_per_s"]
    return pd.DataFrame(rows, columns=names).assign(**point, **roofs)


def test_roofline_draws_components_under_the_roofs():
    drawn = plots.roofline(passes(), ax())
    assert [[2, 4e12], [5, 9e12]] in data(drawn.lines)
    hollow, filled = (line for line in drawn.lines if len(line.get_xdata()) == 1)
    assert data([hollow, filled]) == [[[2, 4e12]], [[5, 9e12]]]
    assert hollow.get_markerfacecolor() == "white" != filled.get_markerfacecolor()
    for line, peak, slope in ((drawn.lines[0], 8e14, 4e12), (drawn.lines[1], 6e14, 3e12)):
        x, y = line.get_data()
        np.testing.assert_allclose(y, np.minimum(peak, x * slope), rtol=1e-12)
        assert x[0] < 2
        assert x[-1] > 200
    assert legend(drawn) == ["data sheet, bf16, ridge 200 FLOP/B", "experts, fitted"]
    assert [text.get_text() for text in drawn.texts] == ["routed\nexperts"]


def test_components_stack_to_the_time_of_each_pass():
    drawn = plots.components(passes(), ax())
    tops = {}
    for left, bottom, width, height in bars(drawn):
        middle = round(left + width / 2, 9)
        assert bottom == pytest.approx(tops.get(middle, 0))
        tops[middle] = bottom + height
    assert list(tops.values()) == pytest.approx([0.003, 0.007, 0.0005])
    assert legend(drawn) == ["host", "routed experts", "embedding"]
    assert [text.get_text() for text in drawn.texts] == ["0.5"], "the time of a low bar"
    thin = passes()
    thin.loc[thin["component"] == "embedding", "time"] = 1e-4
    assert legend(plots.components(thin, ax())) == ["host", "routed experts", "others"]


def test_fronts_hold_what_no_other_outdoes_plain_and_with_speculation():
    """By GPU, of all alternatives that fit; plain rates are of the same batches."""
    rows = [  # alternative, TPOT with and without, tokens a second and GPU
        ("a", 0.01, 0.02, 100.0, True),
        ("a", 0.02, 0.05, 400.0, True),
        ("b", 0.02, 0.04, 300.0, True),
        ("b", 0.05, 0.05, 500.0, True),
        ("b", 0.1, 0.1, 900.0, False),
    ]
    names = ["alternative", "tpot", "tpot_plain", "throughput_per_gpu", "fits"]
    table = pd.DataFrame(rows, columns=names).assign(tpot_target=0.025, batch_size=[1, 8, 6, 9, 9])
    drawn = plots.pareto(table, ax())
    by_name = {line.get_label(): line.get_xydata().tolist() for line in drawn.lines}
    assert by_name["speculative"] == [[100, 100], [50, 400], [20, 500]]
    assert np.allclose(by_name["plain decoding"], [[50, 50], [25, 150], [20, 500]])
    assert by_name["TPOT 25ms"][0][0] == 40
    assert drawn.get_xlabel() == "output tokens/s/user"
    assert drawn.get_ylabel() == "output tokens/s/GPU"
    assert [text.get_text() for text in drawn.texts] == ["1", "8", "9", "1", "6", "9"]
    assert {"a", "b"} < {*legend(drawn)}, "layouts of the fronts"
    drawn.figure.draw_without_rendering()
    points = [p for line in drawn.lines for p in drawn.transData.transform(line.get_xydata())]
    assert not any(text.get_window_extent().count_contains(points) for text in drawn.texts)
    table["draft_length"] = [5, 5, 5, 3, 3]
    table["tpot_low"], table["tpot_high"] = table["tpot"] / 2, 2 * table["tpot"]
    drawn = plots.pareto(table, ax())
    told = [text.get_text() for text in drawn.texts]
    assert told == ["1/5", "8/5", "9/3", "1", "6", "9"]
    (first, *_) = drawn.collections[0].get_segments()
    assert np.allclose(first, [[200, 200], [50, 50]])
    assert "80 % interval" in legend(drawn)


def test_waterfalls_lead_from_the_ideal_to_the_predicted():
    values = {
        "target_efficiency": {"ideal": 1, "experts": -0.25, "KV": 0, "predicted": 0.75},
        "speedup": {"ideal": 4, "experts": -1, "drafting": -0.5, "predicted": 2.5},
    }
    rows = [(b, q, t, v) for b in (1, 8) for q, terms in values.items() for t, v in terms.items()]
    table = pd.DataFrame(rows, columns=["batch_size", "quantity", "term", "value"])
    table = table.assign(draft_length=3, context_length=9)
    spans = {}
    for outcome in values:
        drawn = plots.waterfalls(table, [ax(), ax()], outcome=outcome)
        spans[outcome] = [sorted((x, x + width)) for each in drawn for x, _, width, _ in bars(each)]
        assert [each.get_title() for each in drawn] == ["1", "8"]
        assert drawn[0].texts[0].get_text() == "batch size"
    assert spans["target_efficiency"] == [[0, 1], [0.75, 1], [0, 0.75]] * 2
    assert spans["speedup"] == [[0, 4], [3, 4], [2.5, 3], [0, 2.5]] * 2
    words = ["loading more experts", "the drafter's passes", "predicted"]
    assert [tick.get_text() for tick in drawn[0].get_yticklabels()][1:] == words
    (one,) = plots.waterfalls(table[table["batch_size"] == 8], [ax()])
    minus = "\N{MINUS SIGN}"
    told = ["4.00", f"{minus}1.00", f"{minus}0.50", "2.50"]
    assert [text.get_text() for text in one.texts] == told
    assert [text.xy[0] for text in one.texts] == [4, 3, 3, 2.5], "before a bar at the edge"
    assert {patch.get_linewidth() for patch in one.patches} == {0}, "a bar is as long as its value"
    small = table.replace({"value": {-0.5: -0.004}})
    assert [text.get_text() for text in plots.waterfalls(small, [ax(), ax()])[0].texts][3] == "0.00"
    alone = table[table["quantity"] == "target_efficiency"]
    refused(r"got 'target_efficiency'; expected rows of speedup", plots.waterfalls, alone, [ax()])


SWINGS = pd.DataFrame({"input": ["a", "b"], "low": [0.1, 2], "high": [0.2, 3]}).assign(
    speedup_at_low=[1.2, 1.5], speedup_at_high=[1.1, 0.5],
    target_efficiency_at_low=[0.2, 0.3], target_efficiency_at_high=[0.9, 0.4],
    speedup_nominal=1.15, target_efficiency_nominal=0.35,
)  # fmt: skip


@each_listed
def test_tornado_draws_both_ends_the_largest_swing_first(outcome, spans, order):
    drawn = plots.tornado(SWINGS, ax(), outcome=outcome)
    (nominal,) = drawn.lines
    middle = SWINGS[f"{outcome}_nominal"].iloc[0]
    assert set(nominal.get_xdata()) == {middle}
    high, low = np.split(np.array([x + width for x, _, width, _ in bars(drawn)]), 2)
    np.testing.assert_allclose(np.transpose([low, high]), spans, rtol=1e-12)
    assert {x for x, *_ in bars(drawn)} == {middle}
    assert [tick.get_text() for tick in drawn.get_yticklabels()] == order
    assert drawn.get_xlabel().startswith(outcome.replace("_", " "))
    assert drawn.yaxis_inverted()


def test_a_tornado_has_the_units_of_its_ranges():
    units = {"low": [2e-6, 9e11, 1], "high": [5e-6, 1.5e12, 8], "unit": ["s", "B/s", "request"]}
    table = pd.DataFrame({"input": ["a", "b", "c"], "speedup_at_low": 1.0, "speedup_nominal": 1.2})
    drawn = plots.tornado(table.assign(speedup_at_high=[2.0, 1.9, 1.8], **units), ax())
    told = [tick.get_text().split("\n")[1] for tick in drawn.get_yticklabels()]
    assert told == ["2 to 5 µs", "900 GB/s to 1.5 TB/s", "1 to 8 requests"]


SHARES = pd.DataFrame({"input": ["a", "b", "c"], "output": "speedup"}).assign(
    first_order=[0.1, 0.6, -0.001], first_order_low=[0.05, 0.5, -0.01],
    first_order_high=[0.2, 0.7, 0.0],
    total=[0.2, 0.7, 0.001], total_low=[0.1, 0.6, 0.0], total_high=[0.3, 0.8, 0.002],
)  # fmt: skip


def test_sobol_draws_shares_with_intervals_the_largest_first():
    drawn = plots.sobol(SHARES, ax())
    assert [width for _, _, width, _ in bars(drawn)] == [0.6, 0.1, 0.7, 0.2]
    ends = [path.get_segments() for path in drawn.collections]
    assert [[tuple(s[:, 0].round(9)) for s in part] for part in ends] == [
        [(0.5, 0.7), (0.05, 0.2)], [(0.6, 0.8), (0.1, 0.3)],
    ]  # fmt: skip
    told = ["first-order index", "total index", "95 % interval of sampling"]
    assert legend(drawn) == told
    assert not drawn.texts, "no text among the bars"
    assert drawn.get_yticklabels()[-1].get_text() == "1 others: each\n≤ 1 % of the largest"
    assert drawn.get_xlabel() == "share of the variance of the speedup"


def test_policies_stand_in_a_group_for_each_workload():
    rows = [(w, p, 1 + i + j / 10) for i, w in enumerate("ab") for j, p in enumerate(("x", "y"))]
    table = pd.DataFrame(rows, columns=["workload", "policy", "speedup"])
    drawn = plots.policy_bars(table, ax())
    assert [height for *_, height in bars(drawn)] == [1.0, 2.0, 1.1, 2.1]
    middles = [round(x + width / 2, 4) for x, _, width, _ in bars(drawn)]
    assert middles == [-0.2125, 0.7875, 0.2125, 1.2125]
    assert legend(drawn) == ["x", "y", "break-even"]
    refused("several rows at workload a, policy x", plots.policy_bars, pd.concat([table] * 2), ax())


def test_each_kind_of_kernel_has_its_points_beside_the_identity():
    times = {"component": ["experts", "gemm", "experts"], "latency": [1e-5, 2e-5, 3e-5]}
    drawn = plots.predicted_against_measured(pd.DataFrame(times).assign(predicted=2e-5), ax())
    found = [[[1e-5, 2e-5], [3e-5, 2e-5]], [[2e-5, 2e-5]]]
    assert data(drawn.lines[1:]) == found
    assert legend(drawn) == ["±10 %", "experts", "gemm"]


def test_a_drain_is_drawn_as_bars_and_as_what_runs_at_least():
    """Of two policies: from last_at_4 on fewer than four run, of which two at least."""
    shares = {"share_at_2": [0.25, 1], "share_at_4": [0.75, None]}
    lasts = {"last_at_2": [4.0, 3.0], "last_at_4": [1.0, None]}
    table = pd.DataFrame({"policy": ["a", "b"], "makespan": 4.0} | shares | lasts)
    top, bottom = plots.drain(table, [ax(), ax()])
    assert [height for *_, height in bars(top)] == [0.25, 0.75, 1, 0]
    first, second = (line.get_xydata() for line in bottom.lines)
    assert first.tolist() == [[1, 4], [4, 2]]
    assert np.isfinite(second).all(axis=1).tolist() == [False, True]
    assert {line.get_drawstyle() for line in bottom.lines} == {"steps-pre"}
    assert not bottom.collections
    ends = {"makespan_low": [3.0, 2.0], "makespan_high": [6.0, 5.0]}
    _, bottom = plots.drain(table.assign(**ends), [ax(), ax()])
    first, second = bottom.collections[0].get_segments()
    assert [first[:, 0].tolist(), second[:, 0].tolist()] == [[3, 6], [2, 5]]
    assert 2 > first[0, 1] > second[0, 1], "below the last of the lines, apart"
    assert legend(bottom) == ["80 % interval of the end"]


def test_lines_of_a_load_that_coincide_are_all_seen():
    table = pd.DataFrame({"policy": ["a", "a", "b", "b"], "request_rate": [1, 2] * 2})
    table = table.assign(tpot_p90=0.01, ttft_p90=[0.1, 9.0] * 2, goodput=1.0, ttft_target=1.0)
    axes = plots.load(table, [ax(), ax(), ax()])
    wide, thin = (line.get_linewidth() for line in axes[0].lines)
    assert wide == thin, "no rank"
    big, small = (line.get_markersize() for line in axes[0].lines)
    assert big > small
    assert [each.get_yscale() for each in axes] == ["linear", "log", "linear"]
    assert [1.0, 1.0] in [list(line.get_ydata()) for line in axes[1].lines]
    assert legend(axes[0]) == ["a", "b", "target"]


@pytest.mark.parametrize(
    "told", [{"is_steady": ["True", "False"] * 2}, {"carried_rate": [1.0, 1.5] * 2}]
)
def test_rates_that_are_not_carried_are_hollow_and_unjoined(told):
    table = pd.DataFrame({"policy": ["a", "a", "b", "b"], "request_rate": [1, 2] * 2})
    table = table.assign(tpot_p90=[0.01, 0.9] * 2, ttft_p90=[0.1, 99.0] * 2, goodput=np.nan, **told)
    axes = plots.load(table, [ax(), ax()])
    for each, top in zip(axes, (0.01, 0.1), strict=True):
        lines = [line for line in each.lines if line.get_label() in ("a", "b")]
        assert data(lines) == [[[1, top]]] * 2
        assert each.get_ylim()[1] < 2 * top, "what is not carried is out of the scale"
    hollow = [line for line in axes[0].lines if line.get_linestyle() == "None"]
    assert [line.get_xdata().tolist() for line in hollow] == [[2], [2]]
    assert {line.get_markerfacecolor() for line in hollow} == {"none"}
    (height,) = {line.get_ydata()[0] for line in hollow}
    assert height > 1, "a strip above the first axes, with one height for all policies"
    assert not any(line.get_linestyle() == "None" for line in axes[1].lines)
    assert legend(axes[0]) == ["a", "b", "not sustained: the queue grows"]


def test_what_a_closed_loop_measured_stands_beside_its_predictions():
    table = pd.DataFrame({"batch_size": [1, 8, 1, 8], "draft_length": [1, 1, 3, 3]})
    table = table.assign(measured=0.5, predicted=[0.6, 0.7, 0.8, 0.9], spread=0.1)
    drawn = plots.closed_loop(table, ax())
    lines = [line for line in drawn.lines if line.get_label() in ("1", "3")]
    assert data(lines) == [[[1, 0.6], [8, 0.7]], [[1, 0.8], [8, 0.9]]]
    assert {"predicted", "measured"} <= {*legend(drawn)}
    errors = [c.get_segments() for c in drawn.collections if c.get_segments()]
    assert np.allclose(errors, [[[[1, 0.4], [1, 0.6]], [[8, 0.4], [8, 0.6]]]] * 2)


def test_a_law_fitted_to_a_single_point_is_not_drawn():
    tokens = {"tokens": [1, 2, 4], "law": [2, 3, 5], "independent": [2, 4, 7]}
    table = pd.DataFrame(tokens).assign(model="a", num_experts=8, experts_per_token=2)
    for measured, found in (
        ([None, 3, 5], [[[1, 1], [2, 0.75], [4, 5 / 7]]]),
        ([None, 3, None], []),
    ):
        drawn = plots.active_experts(table.assign(measured=measured), ax())
        dots, unity = drawn.lines[-2:]
        assert data(drawn.lines[:-2]) == found, "over those of independent routing"
        assert dots.get_xydata()[1].tolist() == [2, 0.75]
        assert unity.get_ydata() == [1, 1]


def test_an_outcome_is_one_of_two():
    refused("outcome: got 'tpot'; expected one of", plots.tornado, SWINGS, ax(), outcome="tpot")
    with pytest.raises(InputError, match=r"table\.output: got 'target_efficiency'"):
        plots.sobol(SHARES, ax(), outcome="target_efficiency")
