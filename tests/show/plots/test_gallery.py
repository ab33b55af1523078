"""Figures of the gallery, from the commands of its page: no fault at the widths of print."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

import matplotlib as mpl
from colours import LEAST, closest
from figure_faults import faults, least_distance
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle, StepPatch
from rows import each_row, slow

from specmodel.show.plots import KINDS, figures
from specmodel.show.plots.figures import draw_figure
from specmodel.show.plots.style import COLOURS, PALE

ROOT = Path(__file__).parents[3]
GALLERY = runpy.run_path(str(ROOT / "docs" / "gallery.py"))
STORED = Path(__file__).parent / "capacity.csv"
"""What the gallery's search for capacities printed, which takes minutes without numba."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The table of each kind that the commands draw, and its settings."""
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
        for line in GALLERY["commands"]():
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
    figure = draw(kind, tables, width)
    assert faults(figure) == []
    assert least_distance(figure) >= LEAST


DRAWN = {
    "active_experts": ("law", "independent", "measured"),
    "capacity": ("capacity", "simulated_low", "simulated_high"),
    "closed_loop": ("measured", "predicted"),
    "load": ("tpot_p90", "ttft_p90", "goodput"),
    "policies": ("speedup", "speedup_low", "speedup_high"),
    "predicted_against_measured": ("latency", "predicted"),
    "timeline": ("draft_length", "window_utility"),
}
"""Columns whose every number is a place in the figure."""


@each_row("kind", DRAWN)
def test_the_numbers_of_a_table_are_where_things_are_drawn(kind, tables):
    found = []
    for ax in draw(kind, tables, 3.4).axes:
        found += [line.get_xydata() for line in ax.lines]
        found += [patch.get_data().values for patch in ax.patches if isinstance(patch, StepPatch)]
        found += [patch.get_bbox().extents for patch in ax.patches if isinstance(patch, Rectangle)]
        lines = (part for part in ax.collections if isinstance(part, LineCollection))
        found += [segment for part in lines for segment in part.get_segments()]
    places = np.concatenate([np.ravel(part).astype(float) for part in found]).round(9)
    table, _ = tables[kind]
    if kind == "closed_loop":
        table = table[table["quantity"] == "target_efficiency"]
    for column in DRAWN[kind]:
        numbers = table[column].astype(float).dropna()
        assert len(numbers)
        assert np.isin(numbers.round(9), places).all(), column


def test_the_page_shows_every_kind():
    assert sorted(GALLERY["pictures"]()) == sorted(KINDS)


def test_a_line_stands_where_graphs_end_and_numbers_where_lengths_change(tables):
    table = tables["speedup"][0]
    (ax,) = draw("speedup", tables, 3.4).axes
    best = table["draft_length"]
    changed = table[best != best.shift()]
    told = {(text.get_position()[0], text.get_text()) for text in ax.texts}
    assert told <= {*zip(changed["batch_size"], changed["draft_length"].astype(str), strict=True)}
    assert len(told) > len(changed) / 2
    (first, *_) = table["batch_size"][~table["in_graph"].astype(bool)]
    assert [first, first] in [list(line.get_xdata()) for line in ax.lines]
    assert ax.texts[0].get_window_extent().y1 < min(
        ax.transData.transform(ax.lines[0].get_xydata())[:, 1]
    )


def test_a_sweep_of_one_case_has_it_above_its_figure():
    rows = {"target": "mixtral-8x7b", "drafter": "eagle", "hardware": "h100_sxm"}
    table = pd.DataFrame({"batch_size": [1, 8], "speedup": [1.2, 1.5], "num_gpus": 2} | rows)
    assert draw_figure("speedup", table).get_suptitle() == "mixtral-8x7b + eagle on 2 x h100_sxm"
    table.loc[1, "target"] = "olmoe-1b-7b"
    assert draw_figure("speedup", table).get_suptitle() == ""


def test_colours_of_the_palette_are_told_apart_in_grey_and_by_the_colour_blind():
    least, told = closest({to_rgb(colour) for colour in (*COLOURS, PALE)})
    assert least >= LEAST, told
