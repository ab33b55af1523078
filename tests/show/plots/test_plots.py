"""Figures draw the data they are given, with labels and units."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rows import each_listed, each_row, faults

pytest.importorskip("matplotlib")

from drawn import ax, data, legend, written

from specmodel import InputError
from specmodel.show import plots
from specmodel.show.labels import folded, shortened


def test_labels_are_cut_in_the_middle_or_folded_after_a_mark():
    assert shortened("a-very-long-name", 9) == "a-ve…name"
    assert shortened("_$x$", 9) == r" _\$x\$"  # neither hidden from the legend nor a formula
    assert folded("kernels.gemm.bf16.launch_time", 18) == "kernels.gemm.\nbf16.launch_time"


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
    beside = plots.speedup(both, ax())
    bars = beside.collections
    assert np.allclose(bars[0].get_segments(), [[[1, 1.1], [1, 1.4]], [[2, 1.3], [2, 1.9]]])
    moved = [each.get_transform().transform((1, 1))[0] for each in bars]
    assert moved[0] < moved[1], "beside one another"
    points = [line.get_transform().transform((1, 1))[0] for line in beside.lines[:2]]
    assert points == moved, "with their points"
    low, high = beside.get_ylim()
    assert low == 0
    assert high > 1.9


def test_a_line_breaks_where_cuda_graphs_end_and_only_what_was_computed_is_drawn():
    table = pd.DataFrame({"batch_size": [2, 4, 8, 32, 64], "max_graph_batch_size": 16})
    table["speedup"] = [1.0, 1.2, 1.44, 0.8, 0.6]
    drawn = plots.speedup(table, ax())
    inside, beyond, _unity, edge = drawn.lines
    assert data([inside, beyond]) == [[[2, 1], [4, 1.2], [8, 1.44]], [[32, 0.8], [64, 0.6]]]
    assert "CUDA graphs end" in legend(drawn)
    assert edge.get_xdata() == [16, 16]
    best = {"max_graph_batch_size": [16, 8, 8, 128, 128], "draft_length": [1, 3, 3, 1, 1]}
    one, other, _unity, edge, *_ = plots.speedup(table.assign(**best), ax()).lines
    assert data([one, other]) == [[[2, 1], [4, 1.2], [8, 1.44]], [[32, 0.8], [64, 0.6]]]
    assert edge.get_xdata() == [8, 8], "where the graphs of 3 end, though those of 1 do not"
    two = pd.concat([table.assign(draft_length=1), table.assign(draft_length=3, speedup=1.1)])
    ends = [leader.xy1 for leader in plots.speedup(two, ax()).patches]
    assert sorted(map(tuple, ends)) == [(8, 1.1), (8, 1.44)], "named where the longest run ends"
    alone = plots.speedup(table[:3], ax())
    assert len(alone.lines) == 2, "a line and break-even"
    ends = {"speedup_low": table["speedup"] - 0.1, "speedup_high": table["speedup"] + 0.2}
    *_, single = plots.speedup(table[:4].assign(**ends), ax()).collections
    assert np.allclose(single.get_segments(), [[[32, 0.7], [32, 1.0]]])


def test_curves_break_where_graphs_of_plain_decoding_end_too():
    table = pd.DataFrame({"batch_size": [2, 4, 8, 16], "speedup": [1.5, 0.5, 0.6, 1.4]})
    table = table.assign(max_graph_batch_size=2, max_graph_batch_size_plain=8.0, tpot=1.0)
    drawn = plots.speedup(table, ax())
    assert data(drawn.lines[:3]) == [[[2, 1.5]], [[4, 0.5], [8, 0.6]], [[16, 1.4]]]
    assert {line.get_xdata()[0] for line in drawn.lines[4:]} == {2, 8}
    assert legend(drawn)[-2:] == ["CUDA graphs end", "plain: CUDA graphs end"]
    forward = {"forward_time": [1.0, 1.1, 1.2, 3.0]}
    times = plots.batches.over_batch_size(table.assign(**forward), ax(), "tpot")
    assert data(times.lines[2:4]) == [[[2, 1], [4, 1.1], [8, 1.2]], [[16, 3]]]
    same = plots.speedup(table.assign(max_graph_batch_size=8), ax())
    assert legend(same)[-1] == "CUDA graphs end"


def test_a_curve_within_graphs_says_how_large_they_are():
    table = pd.DataFrame({"batch_size": [2, 4], "speedup": 1.5, "max_graph_batch_size": [128, 64]})
    told = plots.speedup(table.assign(max_graph_batch_size_plain=512), ax())
    assert legend(told)[-1] == "CUDA graphs to 512 tokens"
    requests = table.assign(max_graph_batch_size=256, max_graph_batch_size_plain=256)
    assert legend(plots.speedup(requests, ax()))[-1] == "CUDA graphs to 256 requests"


def test_what_was_measured_at_no_batch_size_is_a_level():
    table = pd.DataFrame({"batch_size": [1, 4], "speedup": [1.2, 1.3]})
    peak = pd.DataFrame({"batch_size": [None], "speedup": [1.4]})
    drawn = plots.speedup(table, ax(), measured=peak)
    (level,) = (line for line in drawn.lines if not line.get_clip_on())
    assert data([level]) == [[[0, 1.4]]]
    assert level.get_transform() == drawn.get_yaxis_transform(), "at the edge, at no batch size"
    assert "measured, batch size not given" in legend(drawn)


@each_row(("quantity", "plain"), [
    ("tpot", [0.02, 0.04]), ("step_time", [0.02, 0.04]), ("throughput", [50, 200]),
])  # fmt: skip
def test_plain_decoding_stands_beside_times_and_rates(quantity, plain):
    table = pd.DataFrame({"batch_size": [1, 8], "forward_time": [0.02, 0.04], quantity: [1, 2]})
    drawn = plots.batches.over_batch_size(table, ax(), quantity)
    assert [line.get_ydata().tolist() for line in drawn.lines] == [[1, 2], plain]
    assert legend(drawn) == ["with speculation", "without speculation"]
    assert drawn.get_yscale() == ("log" if quantity == "throughput" else "linear")
    ends = {"forward_time_low": [0.01, 0.02], "forward_time_high": [0.04, 0.08]}
    (band,) = plots.batches.over_batch_size(table.assign(**ends), ax(), quantity).collections
    low, high = ([25, 100], [100, 400]) if quantity == "throughput" else ends.values()
    corners = {*zip([1, 8] * 2, [*low, *high], strict=True)}
    assert {tuple(point) for point in band.get_paths()[0].vertices.tolist()} == corners


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


@each_listed
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


def test_best_draft_length_writes_each_number_and_hatches_what_does_not_fit():
    points = {"batch_size": [1, 8, 1, 8], "context_length": [10, 10, 99, 99]}
    table = pd.DataFrame(points | {"best_draft_length": [4, 2, 3, 0]})
    drawn = plots.best_draft_length(table.assign(fits=["True", "True", "True", "False"]), ax())
    assert written(drawn) == {(0.5, 0.5): "4", (1.5, 0.5): "2", (0.5, 1.5): "3"}
    mesh, *hatched = drawn.collections
    assert mesh.get_array().tolist() == [[4, 2], [3, None]]
    (area,) = (collection for collection in hatched if collection.get_hatch())
    assert area.get_datalim(drawn.transData).extents.tolist() == [1, 1, 2, 2]
    assert "(tokens)" in drawn.get_legend().get_title().get_text()
    assert legend(drawn) == ["does not fit"]


@each_listed
def test_break_even_writes_rates_and_has_two_hatches(y, label):
    points = {"batch_size": [1, 8, 1, 8], "context_length": 512, "draft_length": 3, y: [1, 1, 2, 2]}
    rates = {"break_even_acceptance_rate": [0.254, np.nan, 1, 0.5]}
    drawn = plots.break_even(pd.DataFrame(points | rates), ax())
    assert written(drawn) == {(0.5, 0.5): ".25", (0.5, 1.5): "1.00", (1.5, 1.5): ".50"}
    assert drawn.get_ylabel() == label
    assert legend(drawn) == ["no rate pays"]
    fits = {"fits": [True, True, True, False]}
    drawn = plots.break_even(pd.DataFrame(points | rates | fits), ax())
    assert written(drawn) == {(0.5, 0.5): ".25", (0.5, 1.5): "1.00"}
    assert legend(drawn) == ["no rate pays", "does not fit"]
    areas = [area for area in drawn.collections if area.get_hatch()]
    assert len({area.get_hatch() for area in areas}) == 2
    places = [area.get_datalim(drawn.transData).extents.tolist() for area in areas]
    assert places == [[1, 0, 2, 1], [1, 1, 2, 2]]


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
    assert [tuple(map(int, frame.get_xy())) for frame in drawn.patches] == [(0, 1), (1, 0)]
    assert legend(drawn) == ["best", "break-even", "does not fit"]
    close = plots.best_draft_length(table.assign(speedup=[1.69, 1.7, 0.9, 0.8]), ax())
    cells = [tuple(map(int, frame.get_xy())) for frame in close.patches]
    assert cells == [(0, 0), (0, 1), (1, 0)]
    thin, *best = (frame.get_linewidth() for frame in close.patches)
    assert thin < min(best)
    assert legend(close)[:2] == ["best", "within 1 %"]
    longer = table.assign(context_length=4096, best_draft_length=0, speedup=[1, 0.5, 0.9, 0.8])
    drawn = plots.best_draft_length(pd.concat([table, longer]), ax())
    assert [*written(drawn).values()] == ["2", "0", "0", "0"]
    losing = pd.concat(
        [table.assign(best_draft_length=2, fits=True, speedup=[1, 1.7, 0.5, 0.8]), longer]
    )
    drawn = plots.best_draft_length(losing, ax())
    assert [*written(drawn).values()] == ["2", "2*", "0", "0"], "0 is no draft"
    assert drawn.get_legend().get_title().get_text().endswith("*: loses")
    alike = pd.concat([table.assign(speedup=[1.69, 1.7, 0.9, 0.8]), longer.assign(fits=True)])
    told = plots.best_draft_length(alike, ax())
    assert written(told)[0.5, 0.5] == "0–2"
    assert "within 1 %" in told.get_legend().get_title().get_text()


def test_a_map_of_speedup_has_its_border_between_gains_and_losses_and_dots_beyond_graphs():
    table = pd.DataFrame({"batch_size": [1, 8, 1, 8], "acceptance_rate": [0.5, 0.5, 0.9, 0.9]})
    table = table.assign(speedup=[0.8, 0.7, 1.5, 0.9], max_graph_batch_size=4)
    drawn = plots.speedup_map(table, ax())
    assert written(drawn)[0.5, 1.5] == "1.50"
    *border, dots = drawn.lines
    assert data(border) == [[[1, 1], [1, 2]], [[0, 1], [1, 1]]]
    assert dots.get_xdata().tolist() == [1.85, 1.85]
    norm = drawn.collections[0].norm
    assert norm(1) == 0.5
    assert norm(1.5) - 0.5 == pytest.approx(0.5 - norm(1 / 1.5)), "a loss is as deep as its gain"
    assert norm(0) >= 0


def test_batch_sizes_of_which_nothing_fits_are_left_out_of_maps():
    table = pd.DataFrame({"batch_size": [1, 8, 64], "acceptance_rate": 0.5, "speedup": 1.2})
    drawn = plots.speedup_map(table.assign(fits=[True, True, False]), ax())
    assert [tick.get_text() for tick in drawn.get_xticklabels()] == ["1", "8"]
    assert drawn.get_xlabel().endswith("64: nothing fits")
    none = plots.speedup_map(table.assign(fits=False), ax())
    assert len(none.get_xticklabels()) == 3


@each_row(("kind", "text", "fragments"), [(k, t, f) for k, t, *f in faults("figures")])
def test_a_table_that_cannot_be_drawn_is_refused_by_name(kind, text, fragments):
    axes = [ax()] if kind == "waterfalls" else ax()
    with pytest.raises(InputError) as caught:
        getattr(plots, kind)(pd.read_csv(StringIO(text)), axes)
    for fragment in fragments:
        assert fragment in str(caught.value)
