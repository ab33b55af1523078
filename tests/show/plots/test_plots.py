"""Figures draw the data they are given, with labels and units."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from printed import refused
from rows import cases, each_row, faults

pytest.importorskip("matplotlib")

from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from specmodel import InputError
from specmodel.show import plots
from specmodel.show.plots.style import folded, shortened


def test_labels_are_cut_in_the_middle_or_folded_after_a_mark():
    assert shortened("a-very-long-name", 9) == "a-ve…name"
    assert shortened("_$x$", 9) == r" _\$x\$"  # neither hidden from the legend nor a formula
    assert folded("kernels.gemm.bf16.launch_time", 18) == "kernels.gemm.\nbf16.launch_time"


def ax():
    return Figure().add_subplot()


def data(lines):
    return [line.get_xydata().tolist() for line in lines]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def bars(axes):
    """Left, bottom, width and height of each bar."""
    found = [c for c in axes.containers if isinstance(c, BarContainer)]
    patches = [patch for container in found for patch in container.patches]
    return [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in patches]


def curve(**columns):
    return pd.DataFrame({"batch_size": [4, 1, 1, 4], "draft_length": [3, 3, 5, 5]} | columns)


@pytest.mark.parametrize("kind", ["speedup", "target_efficiency"])
def test_a_line_for_each_draft_length_and_one_at_1(kind):
    drawn = getattr(plots, kind)(curve(**{kind: [1.4, 1.1, 0.9, 1.6]}), ax())
    named = [line for line in drawn.lines if line.get_label() in "35"]
    assert [line.get_label() for line in named] == ["3", "5"]
    assert data(named) == [[[1, 1.1], [4, 1.4]], [[1, 0.9], [4, 1.6]]]
    assert [[0, 1], [1, 1]] in data(drawn.lines)
    assert [text.get_text() for text in drawn.texts] == ["3", "5", "draft\nlength"]
    assert [text.get_color() for text in drawn.texts[:2]] == [line.get_color() for line in named]
    assert legend(drawn) == [{"speedup": "break-even"}.get(kind, "verifying is free")]
    assert drawn.get_xlabel() == "batch size (requests)"
    assert drawn.get_ylabel() == {"speedup": "speedup (×)"}.get(kind, "target efficiency")
    assert drawn.get_xscale() == "log"
    assert [tick.get_text() for tick in drawn.get_xticklabels()] == ["1", "4"]


def test_bands_span_the_intervals():
    table = pd.DataFrame({"batch_size": [1, 2], "speedup": [1.2, 1.5]})
    table = table.assign(speedup_low=[1.1, 1.3], speedup_high=[1.4, 1.9])
    drawn = plots.speedup(table, ax())
    (band,) = drawn.collections
    corners = {tuple(point) for point in band.get_paths()[0].vertices.tolist()}
    assert corners == {(1, 1.1), (2, 1.3), (1, 1.4), (2, 1.9)}
    assert "80 % interval" in legend(drawn)
    _, swatch, _ = drawn.get_legend().legend_handles
    assert swatch.get_facecolor() == tuple(band.get_facecolor()[0])
    both = pd.concat([table.assign(draft_length=1), table.assign(draft_length=3, speedup=1)])
    assert len(plots.speedup(both, ax()).collections) == 2


def test_a_line_breaks_where_cuda_graphs_end_and_both_parts_reach_it():
    """By doublings 1.0, 1.2 and 1.44 inside, then 1.728; 0.8 and 0.6 beyond, before them 3.2/3."""
    table = pd.DataFrame({"batch_size": [2, 4, 8, 32, 64], "max_graph_batch_size": 16})
    drawn = plots.speedup(table.assign(speedup=[1.0, 1.2, 1.44, 0.8, 0.6]), ax())
    inside, beyond, fall, _unity, edge = drawn.lines
    assert np.allclose(inside.get_xydata(), [[2, 1], [4, 1.2], [8, 1.44], [16, 1.728]])
    assert np.allclose(beyond.get_xydata(), [[16, 3.2 / 3], [32, 0.8], [64, 0.6]])
    assert np.allclose(fall.get_xydata(), [[16, 1.728], [16, 3.2 / 3]])
    assert [inside.get_markevery(), beyond.get_markevery()] == [[0, 1, 2], [1, 2]]
    assert "CUDA graphs end" in legend(drawn)
    assert edge.get_xdata() == [16, 16]
    single = plots.speedup(table[:4].assign(speedup=1), ax())
    assert data(single.lines)[:2] == [[[2, 1], [4, 1], [8, 1], [16, 1]], [[32, 1]]]
    alone = plots.speedup(table[:3].assign(speedup=1), ax())
    assert len(alone.lines) == 2, "a line and break-even"


@each_row(("quantity", "plain"), [
    ("tpot", [0.02, 0.04]), ("step_time", [0.02, 0.04]), ("throughput", [50, 200]),
])  # fmt: skip
def test_plain_decoding_stands_beside_times_and_rates(quantity, plain):
    table = pd.DataFrame({"batch_size": [1, 8], "forward_time": [0.02, 0.04], quantity: [1, 2]})
    drawn = plots.batches.over_batch_size(table, ax(), quantity)
    assert [line.get_ydata().tolist() for line in drawn.lines] == [[1, 2], plain]
    assert legend(drawn) == ["with speculation", "without speculation"]
    assert drawn.get_yscale() == ("log" if quantity == "throughput" else "linear")


def test_what_another_file_measured_belongs_to_the_lines_that_it_names():
    table = curve(speedup=[1.4, 1.1, 0.9, 1.6])
    told = pd.DataFrame({"batch_size": [2, 3], "draft_length": [5, 3], "speedup": [1.3, 1.2]})
    for measured, found in (
        (told, [[[3, 1.2]], [[2, 1.3]]]),
        (told[["batch_size", "speedup"]], [[[2, 1.3], [3, 1.2]]]),
    ):
        drawn = plots.speedup(table, ax(), measured=measured)
        assert data(line for line in drawn.lines if line.get_marker() == "x") == found
    for wrong, said in (
        (told.drop(columns="speedup"), "measured"),
        (told[:0], "no rows"),
        (told.assign(batch_size=0), "above 0"),
    ):
        with pytest.raises(InputError, match=said):
            plots.speedup(table, ax(), measured=wrong)


def test_what_was_measured_is_drawn_as_crosses():
    table = pd.DataFrame({"batch_size": [1, 4], "speedup": [1.2, 1.3], "measured": [1.1, None]})
    drawn = plots.speedup(table, ax())
    (crosses,) = (line for line in drawn.lines if line.get_marker() == "x")
    assert crosses.get_ydata()[0] == 1.1
    assert "measured" in legend(drawn)


@pytest.mark.parametrize("limit", [{"max_batch_size": 4}, {"fits": [True, True, False]}])
def test_what_does_not_fit_is_pale(limit):
    table = pd.DataFrame({"batch_size": [1, 4, 8], "speedup": [1.2, 1.3, 1.4]} | limit)
    drawn = plots.speedup(table, ax())
    *lines, unity = drawn.lines
    bold, pale, points = lines
    assert data([bold, pale, points]) == [[[1, 1.2], [4, 1.3]], [[4, 1.3], [8, 1.4]], [[8, 1.4]]]
    assert pale.get_alpha() < 1
    assert unity.get_ydata() == [1, 1]
    assert "does not fit in memory" in legend(drawn)
    assert "does not fit in memory" not in str(plots.speedup(table[:2], ax()).get_legend())


@cases(
    "columns told labels",
    ({"context_length": [512, 4096]}, "context length (tokens)", ["512", "4096"]),
    ({"target": ["a", "b"]}, "target", ["a", "b"]),
    ({"acceptance_rate": [0, 1], "tokens_per_step": [1, 3]}, "acceptance rate", ["0", "1"]),
)  # fmt: skip
def test_lines_are_told_apart_by_what_varies_and_no_result(columns, told, labels):
    one = pd.DataFrame(
        {"batch_size": [1, 2], "speedup": [1.1, 1.2], "limited_by": ["KV", "compute"]}
    )
    table = pd.concat([one.assign(**{k: v[i] for k, v in columns.items()}) for i in (0, 1)])
    drawn = plots.speedup(table, ax())
    *names, title = (text.get_text() for text in drawn.texts)
    assert (sorted(names), title) == (sorted(labels), told.partition(" (")[0].replace(" ", "\n"))
    assert legend(drawn) == ["break-even"]


def test_alternatives_of_one_setting_are_named_by_its_values_and_long_names_in_a_legend():
    table = pd.DataFrame(
        {"batch_size": [1, 1], "speedup": [1.1, 1.2], "alternative": ["k=2", "k=4"]}
    )
    assert [text.get_text() for text in plots.speedup(table, ax()).texts] == ["2", "4", "k"]
    table["alternative"] = ["a long name", "b"]
    assert legend(plots.speedup(table, ax())) == ["a long name", "b", "break-even"]


def written(drawn):
    return {text.get_position(): text.get_text() for text in drawn.texts}


def test_best_draft_length_writes_each_number_and_hatches_what_does_not_fit():
    points = {"batch_size": [1, 8, 1, 8], "context_length": [10, 10, 99, 99]}
    table = pd.DataFrame(points | {"best_draft_length": [4, 2, 3, 0]})
    drawn = plots.best_draft_length(table.assign(fits=["True", "True", "True", "False"]), ax())
    assert written(drawn) == {(0.5, 0.5): "4", (1.5, 0.5): "2", (0.5, 1.5): "3", (1.5, 1.5): "0"}
    mesh, *hatched = drawn.collections
    assert mesh.get_array().tolist() == [[4, 2], [3, 0]]
    (area,) = (collection for collection in hatched if collection.get_hatch())
    assert area.get_datalim(drawn.transData).extents.tolist() == [1, 1, 2, 2]
    assert "(tokens)" in drawn.get_title(loc="left")
    assert "hatched: does not fit" in drawn.get_title(loc="left")


@pytest.mark.parametrize(
    ("y", "label"),
    [("draft_length", "draft length (tokens)"), ("context_length", "context length (tokens)")],
)
def test_break_even_writes_rates_and_hatches_where_none_pays(y, label):
    points = {"batch_size": [1, 8, 1, 8], "context_length": 512, "draft_length": 3, y: [1, 1, 2, 2]}
    rates = {"break_even_acceptance_rate": [0.254, np.nan, 1, 0.5]}
    drawn = plots.break_even(pd.DataFrame(points | rates), ax())
    assert written(drawn) == {(0.5, 0.5): ".25", (0.5, 1.5): "1.00", (1.5, 1.5): ".50"}
    assert drawn.get_ylabel() == label
    assert "hatched: none pays" in drawn.get_title(loc="left")


def test_of_one_context_the_speedup_of_each_length_is_drawn_and_the_best_framed():
    points = {
        "batch_size": [1, 1, 8, 8],
        "draft_length": [0, 2, 0, 2],
        "fits": [True] * 3 + [False],
    }
    speedups = {"speedup": [1, 1.7, 0.9, 0.8], "best_draft_length": [2, 2, 0, 0]}
    table = pd.DataFrame(points | speedups | {"context_length": 512})
    drawn = plots.best_draft_length(table, ax())
    assert written(drawn) == {(0.5, 0.5): "1.00", (0.5, 1.5): "1.70", (1.5, 0.5): "0.90"}
    assert [frame.get_xy() for frame in drawn.patches] == [(0, 1), (1, 0)]
    longer = table.assign(context_length=4096, best_draft_length=0)
    drawn = plots.best_draft_length(pd.concat([table, longer]), ax())
    assert [text.get_text() for text in drawn.texts] == ["2", "0", "0", "0"]


def test_a_map_of_speedup_has_its_border_between_gains_and_losses_and_dots_beyond_graphs():
    table = pd.DataFrame({"batch_size": [1, 8, 1, 8], "acceptance_rate": [0.5, 0.5, 0.9, 0.9]})
    table = table.assign(speedup=[0.8, 0.7, 1.5, 0.9], max_graph_batch_size=4)
    drawn = plots.speedup_map(table, ax())
    assert written(drawn)[0.5, 1.5] == "1.50"
    *border, dots = drawn.lines
    assert data(border) == [[[1, 1], [1, 2]], [[0, 1], [1, 1]]]
    assert dots.get_xdata().tolist() == [1.9, 1.9]
    mesh = drawn.collections[0]
    assert [mesh.norm(value) for value in (1, 2)] == [0.5, pytest.approx(0.5 + 0.5 / 1.25)]


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
    for line, peak, slope in ((drawn.lines[0], 8e14, 4e12), (drawn.lines[2], 6e14, 3e12)):
        x, y = line.get_data()
        np.testing.assert_allclose(y, np.minimum(peak, x * slope), rtol=1e-12)
        assert x[0] < 2
        assert x[-1] > 200
    assert drawn.lines[1].get_xdata() == [200, 200]
    assert legend(drawn) == ["data sheet, bf16", "ridge, 200 FLOP/B", "experts, fitted"]
    assert [text.get_text() for text in drawn.texts] == ["routed experts"]


def test_components_stack_to_the_time_of_each_pass():
    drawn = plots.components(passes(), ax())
    tops = {}
    for left, bottom, width, height in bars(drawn):
        middle = round(left + width / 2, 9)
        assert bottom == pytest.approx(tops.get(middle, 0))
        tops[middle] = bottom + height
    assert list(tops.values()) == pytest.approx([3, 7, 0.5])
    assert legend(drawn) == ["host", "routed experts", "embedding"]


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
    assert drawn.texts[0].get_text() == "B=1"


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
        assert [each.get_title(loc="left") for each in drawn] == ["B 1", "B 8"]
    assert spans["target_efficiency"] == [[0, 1], [0.75, 1], [0, 0.75]] * 2
    assert spans["speedup"] == [[0, 4], [3, 4], [2.5, 3], [0, 2.5]] * 2
    words = ["loading more experts", "the drafter's passes", "predicted"]
    assert [tick.get_text() for tick in drawn[0].get_yticklabels()][1:] == words
    (one,) = plots.waterfalls(table[table["batch_size"] == 8], [ax()])
    assert [text.get_text() for text in one.texts] == ["4.00", "-1.00", "-0.50", "2.50"]
    assert [text.xy[0] for text in one.texts] == [4, 4, 3, 2.5]
    alone = table[table["quantity"] == "target_efficiency"]
    refused(r"got 'target_efficiency'; expected rows of speedup", plots.waterfalls, alone, [ax()])


SWINGS = pd.DataFrame({"input": ["a", "b"], "low": [0.1, 2], "high": [0.2, 3]}).assign(
    speedup_at_low=[1.2, 1.5], speedup_at_high=[1.1, 0.5],
    target_efficiency_at_low=[0.2, 0.3], target_efficiency_at_high=[0.9, 0.4],
    speedup_nominal=1.15, target_efficiency_nominal=0.35,
)  # fmt: skip


@cases(
    "outcome spans order",
    ("speedup", [(1.5, 0.5), (1.2, 1.1)], ["b\n2 to 3", "a\n0.1 to 0.2"]),
    ("target_efficiency", [(0.2, 0.9), (0.3, 0.4)], ["a\n0.1 to 0.2", "b\n2 to 3"]),
)
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
    assert told == ["2 to 5 us", "900 GB/s to 1.5 TB/s", "1 to 8 requests"]


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
    assert legend(drawn) == ["x", "y"]
    refused("several rows at workload a, policy x", plots.policy_bars, pd.concat([table] * 2), ax())


@each_row(("kind", "text", "fragments"), [(k, t, f) for k, t, *f in faults("figures")])
def test_a_table_that_cannot_be_drawn_is_refused_by_name(kind, text, fragments):
    axes = [ax()] if kind == "waterfalls" else ax()
    with pytest.raises(InputError) as caught:
        getattr(plots, kind)(pd.read_csv(StringIO(text)), axes)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_an_outcome_is_one_of_two():
    refused("outcome: got 'tpot'; expected one of", plots.tornado, SWINGS, ax(), outcome="tpot")
    with pytest.raises(InputError, match=r"table\.output: got 'target_efficiency'"):
        plots.sobol(SHARES, ax(), outcome="target_efficiency")
