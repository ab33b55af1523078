"""Figures of the gallery, from the commands of its page: no fault at the widths of print."""

import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

import matplotlib as mpl
from colours import LEAST, closest, distance, lab
from figure_faults import faults
from matplotlib.colors import to_rgb
from rows import each_row, slow

from specmodel.show.plots import KINDS, figures
from specmodel.show.plots.figures import draw_figure
from specmodel.show.plots.style import COLOURS, PALE

ROOT = Path(__file__).parents[3]
GALLERY = runpy.run_path(str(ROOT / "docs" / "gallery.py"))
STORED = Path(__file__).parent / "capacity.csv"
"""What the gallery's search for capacities printed, which takes minutes without numba."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory, pytestconfig):
    """The table of each kind that the commands draw, and its settings: two unless in a study."""
    drawn = {}

    def record(kind, table, path, argument="figure", **settings):
        settings.pop("width", None)
        drawn[kind] = table, settings
        assert Path(path).stem == kind

    folder = tmp_path_factory.mktemp("gallery")
    (folder / "notebooks").symlink_to(ROOT / "notebooks")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(figures, "save_figure", record)
        for line in GALLERY["commands"]()[: None if pytestconfig.getoption("slow") else 2]:
            if "--tpot-target" in line and " load " in line:
                GALLERY["run"](f"specmodel plot load {STORED} --output load.png")
                GALLERY["run"](f"specmodel plot capacity {STORED} --output capacity.png")
            else:
                GALLERY["run"](line)
    return drawn


def draw(kind, drawn, width):
    table, settings = drawn[kind]
    with mpl.rc_context({"font.size": figures.FONT_SIZE}):
        figure = figures.draw_figure(kind, table, width=width, **settings)
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("width", slow(3.4, 7.0))  # of a column and of a page
@each_row("kind", KINDS)
def test_a_figure_has_no_fault(kind, width, tables):
    assert faults(draw(kind, tables, width)) == []


def test_the_page_shows_every_kind():
    assert sorted(GALLERY["pictures"]()) == sorted(KINDS)


@pytest.mark.slow
def test_the_tornado_has_acceptance_a_nominal_line_and_80_per_cent(tables):
    figure = draw("tornado", tables, 3.4)
    (ax,) = figure.axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[0].startswith("acceptance rate\n80 %: ")
    (line,) = (line for line in ax.lines if str(line.get_label()).startswith("nominal"))
    table = tables["tornado"][0]
    nominal = table[(table["output"] == "speedup") & (table["quantity"] == "nominal")]["value"]
    assert set(line.get_xdata()) == set(nominal)


def test_a_line_stands_where_graphs_end_and_numbers_where_lengths_change(tables):
    table = tables["speedup"][0]
    (ax,) = draw("speedup", tables, 3.4).axes
    best = table["draft_length"]
    changed = table[best != best.shift()]
    told = {(text.get_position()[0], text.get_text()) for text in ax.texts}
    assert told <= {*zip(changed["batch_size"], changed["draft_length"].astype(str), strict=True)}
    assert len(told) > len(changed) / 2
    is_beyond = table["batch_size"] > table["max_graph_batch_size"]
    (first, *_), last = table["max_graph_batch_size"][is_beyond], table["batch_size"][~is_beyond]
    limit = max(first, last.max())  # shorter drafts are the best up to there
    assert [limit, limit] in [list(line.get_xdata()) for line in ax.lines]
    assert ax.texts[0].get_window_extent().y1 < min(
        ax.transData.transform(ax.lines[0].get_xydata())[:, 1]
    )


def test_each_of_several_lines_has_its_end_of_graphs(tables):
    table = tables["target_efficiency"][0]
    (ax,) = draw("target_efficiency", tables, 3.4).axes
    ends = {line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"}
    assert ends == {512 // (length + 1) for length in table["draft_length"].unique()}


def test_a_sweep_of_one_case_has_it_above_its_figure():
    rows = {"target": "mixtral-8x7b", "drafter": "eagle", "hardware": "h100_sxm"}
    table = pd.DataFrame({"batch_size": [1, 8], "speedup": [1.2, 1.5], "num_gpus": 2} | rows)
    titled = partial(draw_figure, "speedup", has_title=True)
    assert titled(table).get_suptitle() == "mixtral-8x7b + eagle on 2 x h100_sxm"
    table.loc[1, "target"] = "olmoe-1b-7b"
    assert titled(table).get_suptitle() == ""
    assert draw_figure("speedup", table[:1]).get_suptitle() == ""


def test_colours_of_the_palette_are_told_apart_in_grey_and_by_the_colour_blind():
    least, told = closest({to_rgb(colour) for colour in (*COLOURS, PALE)})
    assert least >= LEAST, told


def test_distances_are_those_of_the_standards():
    """White, black and sRGB's red as published for CIE L*a*b* under D65; a pair of Machado's."""
    assert np.allclose(lab((1, 1, 1)), [100, 0, 0], atol=0.02)
    assert np.allclose(lab((1, 0, 0)), [53.24, 80.09, 67.20], atol=0.05)
    assert distance((0, 0, 0), (1, 1, 1))[0] == pytest.approx(100, abs=0.1)
    red, green = (0.82, 0.35, 0.0), (0.50, 0.53, 0.0)
    assert distance(red, green)[0] < LEAST < np.linalg.norm(lab(red) - lab(green))
