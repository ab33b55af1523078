"""Draw the curve of a page, and return its data."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from msgspec.structs import replace

from specmodel.core.drafters.by_name import drafter_kind
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predicted, with_known_intervals
from specmodel.show import plots
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import Style

_LARGEST = 512
"""Largest batch size of a curve [request]."""
_SIZES = {round(2 ** (i / 4)) for i in range(37)}
_OF_SEVERAL = ["batch_size", "speedup", frames.GRAPHS, frames.PLAIN_GRAPHS, "fits"]
_DRAWN = (*_OF_SEVERAL, "draft_length")
_SAME, _OTHER = "same GPUs and engine", "other set-ups"
_FONT_SIZE = 10
_SIZE = (6.0, 2.8)
"""Of a figure, in inches."""
_INKS = {
    "#000000": "currentColor",
    "#ffffff": "var(--paper)",
    "#114a98": "var(--line)",
    "#178446": "var(--mark)",
}
"""CSS colours of the page's theme, by colour of the figure."""


@cache
def _published() -> pd.DataFrame:
    with files("specmodel.show").joinpath("data/published_pairs.csv").open("rb") as file:
        return pd.read_csv(file)


def measured(prediction: Prediction) -> pd.DataFrame:
    """Return published gains of the model and the kind of drafter of a prediction.

    Column `of` says whether engine, GPU and number of GPUs are those of the prediction.
    """
    d, rows = prediction.deployment, _published()
    is_of_model = rows["target"] == d.target.name.lower()
    found = rows[is_of_model & (rows["drafter"] == drafter_kind(d.drafter, d.target))]
    names = found["hardware"].map(lambda name: load_hardware(name).name)
    is_same = (names == d.hardware.name) & (found["num_gpus"] == d.layout.num_gpus)
    is_same &= found["engine"] == d.engine.stack
    return found.assign(of=np.where(is_same, _SAME, _OTHER))


def curve(case: Case) -> tuple[Prediction, dict[str, int]]:
    """Return a case over batch sizes, and the largest ones within graphs and memory [request].

    The names are "graphs", "plain" (graphs of plain decoding) and "memory".
    """
    every = predicted(case.at(batch_size=range(1, _LARGEST + 1)))
    is_lost = {
        "graphs": ~every.in_graph,
        "plain": every.batch_size > every.max_graph_batch_size_plain,
        "memory": ~every.fits,
    }
    lost = {name: np.flatnonzero(are) for name, are in is_lost.items()}
    ends = {name: int(places[0]) for name, places in lost.items() if places.size and places[0]}
    beside = {size + more for size in ends.values() for more in (0, 1)}
    points = predicted(case.at(batch_size=sorted(_SIZES | beside)))
    points = replace(points, shown=tuple(each for each in points.shown if each.name in _DRAWN))
    return (points if points.turned else with_known_intervals(points)), ends


def speedup(settings: Mapping[str, Prediction], memory: int | None, dots: pd.DataFrame) -> Figure:
    """Draw the speedup over the batch size: of one setting with its interval, or of two settings.

    `memory` is the largest batch size that fits [request]; `dots` are measurements.
    """
    figure = Figure(figsize=_SIZE)
    FigureCanvasAgg(figure)  # keeps its renderer, so that measuring text is cheap
    figure.subplots_adjust(
        right=0.97, left=0.11, bottom=0.24
    )  # matplotlib's layout takes as long as the rest
    ax = figure.subplots()
    tables = [p.to_frame() for p in settings.values()]
    if len(tables) > 1:  # without bands and lengths
        told = zip((table[_OF_SEVERAL] for table in tables), settings, strict=True)
        tables = [table.assign(setting=name) for table, name in told]
    plots.speedup(pd.concat(tables), ax)
    legend = ax.get_legend()
    handles: list[Any] = []
    own = [*legend.legend_handles] if legend else []
    is_shared = any(memory and (np.asarray(line.get_xdata()) == memory).all() for line in ax.lines)
    for handle in own:
        if handle and is_shared and handle.get_label() == "CUDA graphs end":
            handle.set_label("CUDA graphs and memory end")  # both are one line
    if memory and not is_shared:
        line: Style = {"color": "black", "linewidth": 0.8, "linestyle": (0, (6, 3)), "zorder": 1}
        handles.append(ax.axvline(memory, label="memory ends", **line))
    for words, rows in dots.groupby("of"):
        face = {} if words == _SAME else {"markerfacecolor": "none"}
        shape = style.points(2, marker="o", label=f"measured, {words}", **face)
        handles += ax.plot(rows["batch_size"], rows["speedup"], **shape)
    low, high = ax.get_ylim()
    ax.set_ylim(min(0.0, low), max(high, 1.05 * dots["speedup"].max()) if len(dots) else high)
    if legend and (handles or is_shared):
        legend = style.legend_above(ax, "", [*own, *handles])
    beyond = max((text.get_window_extent().x1 for text in ax.texts), default=0) - figure.bbox.width
    if beyond > 0:  # names beside the ends of lines
        figure.subplots_adjust(right=0.95 - beyond / figure.bbox.width)
    if legend:  # as high as its lines
        figure.subplots_adjust(top=0.97 - legend.get_window_extent().height / figure.bbox.height)
    return figure


def written(draw: Callable[[], Figure], kind: str) -> bytes:
    """Return the figure that `draw` makes, as SVG or PNG."""
    file = BytesIO()
    same: Any = {"svg.fonttype": "none", "svg.hashsalt": "specmodel"}  # names in SVG, each time
    with rc_context({"font.size": _FONT_SIZE, **same}):
        draw().savefig(file, format=kind, dpi=200)
    return file.getvalue()


def inline(draw: Callable[[], Figure], words: str) -> Markup:
    """Return a figure as inline SVG in the colours of the theme; `words` describe it."""
    before, _, rest = written(draw, "svg").decode().partition("<metadata>")
    svg = before.partition("<svg ")[2] + rest.partition("</metadata>")[2]
    for ink, themed in _INKS.items():
        svg = svg.replace(ink, themed)
    return Markup('<svg role="img" aria-label="{}" {}').format(words, Markup(svg))
