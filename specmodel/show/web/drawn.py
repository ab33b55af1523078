"""Figures of a page, by the project's own plots, and what they are drawn from."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from specmodel.drafters.by_name import drafter_kind
from specmodel.prediction.case import Case
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import predicted, with_known_intervals
from specmodel.show import plots
from specmodel.show.plots import style
from specmodel.show.plots.style import Style

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZES = sorted({round(2 ** (i / 4)) for i in range(37)})
"""Batch sizes of a curve [request]."""
_FONT_SIZE = 9
_WIDTH, _HEIGHT = 5.2, 3.0
"""Size of a figure, in inches."""
_ROW, _AROUND = 0.26, 0.83
"""Height of a row of a waterfall and of what stands around them, in inches."""
_INKS = {"#000000": "currentColor", "#114a98": "var(--line)", "#ffffff": "var(--paper)"}
"""Colours that follow the theme of a page."""


@cache
def _published() -> pd.DataFrame:
    with files("specmodel.show").joinpath("data/published_pairs.csv").open("rb") as file:
        return pd.read_csv(file)


def measured(prediction: Prediction) -> pd.DataFrame:
    """Return gains that were published of the model and the kind of drafter of a prediction."""
    d, rows = prediction.deployment, _published()
    is_of_model = rows["target"] == d.target.name.lower()
    return rows[is_of_model & (rows["drafter"] == drafter_kind(d.drafter, d.target))]


def curve(case: Case) -> tuple[Prediction, dict[str, int]]:
    """Return a case over batch sizes, and the last that graphs and memory hold [request]."""
    near = _ends(predicted(case.at(batch_size=_SIZES)))
    between = {size for low, high in near.values() for size in range(low, high + 1)}
    ends = _ends(predicted(case.at(batch_size=sorted(between)))) if between else {}
    beside = {size for pair in ends.values() for size in pair}
    points = predicted(case.at(batch_size=sorted({*_SIZES, *beside})))
    points = points if points.turned else with_known_intervals(points)
    return points, {name: last for name, (last, _) in ends.items()}


def _ends(prediction: Prediction) -> dict[str, tuple[int, int]]:
    """Return the last batch size that graphs and memory hold, and the next, where they do end."""
    sizes, found = prediction.batch_size.astype(int), {}
    for name, held in (("graphs", prediction.in_graph), ("memory", prediction.fits)):
        lost = np.flatnonzero(~held)
        if lost.size and lost[0]:
            found[name] = sizes[lost[0] - 1].item(), sizes[lost[0]].item()
    return found


def speedup(settings: Mapping[str, Prediction], memory: int | None, dots: pd.DataFrame) -> Figure:
    """Draw the speedup over the batch size: of one setting with its band, or of two.

    `memory` is the last batch size that it holds [request]; `dots` are what was measured.
    """
    figure, ax = _figure(_HEIGHT, left=0.125, bottom=0.22)
    tables = [p.to_frame() for p in settings.values()]
    if len(tables) > 1:
        names = ["batch_size", "speedup", "fits", "in_graph"]
        told = zip(tables, settings, strict=True)
        tables = [table[names].assign(setting=name) for table, name in told]
    plots.speedup(pd.concat(tables), ax)
    legend = ax.get_legend()
    handles: list[Any] = [*legend.legend_handles] if legend else []
    if memory:
        line: Style = {"color": "black", "linewidth": 0.8, "linestyle": (0, (6, 3)), "zorder": 1}
        handles.append(ax.axvline(memory, label="memory ends", **line))
    if len(dots):
        shape = style.points(2, marker="o", markerfacecolor="none", label="measured by others")
        handles += ax.plot(dots["batch_size"], dots["speedup"], **shape)
    ax.set_ylim(min(0.0, ax.get_ylim()[0]), None)
    legend = style.legend_above(ax, "", handles)
    if legend:  # as high as its lines
        figure.subplots_adjust(top=0.97 - legend.get_window_extent().height / figure.bbox.height)
    return figure


def waterfall(table: pd.DataFrame) -> Figure:
    """Draw what takes how much of the gain at one batch size."""
    count = int((table["value"][table["quantity"] == "speedup"] != 0).sum())
    height = _AROUND + _ROW * count
    figure, ax = _figure(height, left=0.36, bottom=0.58 / height, top=1 - 0.15 / height)
    plots.waterfalls(table, ax)
    return figure


def _figure(height: float, **margins: float) -> tuple[Figure, Axes]:
    """Return a figure with fixed margins, as a layout takes as long as the drawing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height))
    FigureCanvasAgg(figure)  # keeps its renderer, so that measuring text is cheap
    figure.subplots_adjust(right=0.97, **margins)
    return figure, figure.subplots()


def written(draw: Callable[[], Figure], kind: str) -> bytes:
    """Return what is drawn as SVG or PNG."""
    from matplotlib import rc_context

    file = BytesIO()
    same: Any = {"svg.fonttype": "none", "svg.hashsalt": "specmodel"}  # names in SVG, each time
    with rc_context({"font.size": _FONT_SIZE, **same}):
        draw().savefig(file, format=kind, dpi=200)
    return file.getvalue()


def inline(draw: Callable[[], Figure], name: str, words: str) -> Markup:
    """Return what is drawn as a part of a page: with names of its own, in colours of its theme."""
    _, _, svg = written(draw, "svg").decode().partition("<svg ")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for ink, themed in _INKS.items():
        svg = svg.replace(ink, themed)
    return Markup('<svg role="img" aria-label="{}" {}').format(escape(words), Markup(svg))
