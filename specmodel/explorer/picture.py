"""The picture of the explorer: speedup and target efficiency over the batch size."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from specmodel import plots
from specmodel.answers import SweetSpot
from specmodel.explorer.view import View

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 6.9, 2.6
"""Size of the figure, as in print [in]."""

_DOTS_PER_INCH = 200
_PAYS, _NEAR_PEAK, _LINE = "#e3f3ec", "#a9dcc6", "#0072b2"


def png(shown: View) -> bytes:
    """Return the picture as a PNG, fine enough for a page 900 pixels wide on a fine screen."""
    from matplotlib import rc_context

    written = BytesIO()
    with rc_context({"font.size": 8}):
        # time counts more than size: the picture goes no further than the page
        draw(shown).savefig(written, format="png", pil_kwargs={"compress_level": 1})
    return written.getvalue()


def draw(shown: View) -> Figure:
    """Return the two curves, the sweet spot shaded, what does not fit in memory hatched.

    Parameters
    ----------
    shown
        As `view` returns it.

    Returns
    -------
    Figure
        With two axes; no window knows it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=_DOTS_PER_INCH)
    FigureCanvasAgg(figure)  # keeps its renderer, so that measuring text is cheap
    # fixed margins, as a layout that measures the text takes as long as the drawing itself
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.3, top=0.96, wspace=0.2)
    left, right = figure.subplots(1, 2)
    plots.speedup(shown.table, left)
    plots.target_efficiency(shown.table, right)
    for ax in (left, right):
        _shade(shown.table, shown.spot, ax)
        legend = ax.get_legend()
        if legend:
            legend.remove()
    _mark_peak(shown.spot, left)
    # ends that move seldom, so that the eye sees the curve move
    left.set_ylim(0, max(2.0, np.ceil(2.4 * shown.table["speedup"].max()) / 2))
    right.set_ylim(0, 1.05)
    handles, labels = left.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=3, frameon=False)
    return figure


def _shade(table: pd.DataFrame, spot: SweetSpot, ax: Axes) -> None:
    """Shade where it pays, deeper where that is near the peak; hatch what does not fit."""
    fits, sizes = table["fits"], table["batch_size"]
    for low, high in spot.paying if fits.any() else ():
        # with an edge, so that a single batch size is seen
        ax.axvspan(low, high, color=_PAYS, linewidth=1, zorder=0, label="pays")
        near = max(low, spot.near_peak[0]), min(high, spot.near_peak[1])
        if near[0] <= near[1]:
            label = "pays, and above peak/√2"
            ax.axvspan(*near, color=_NEAR_PEAK, linewidth=1, zorder=0.1, label=label)
    if not fits.all():
        hatched = ax.axvspan(sizes[~fits].min(), sizes.max(), zorder=0, linewidth=0)
        hatched.set(facecolor="none", edgecolor="0.8", hatch="////", label="does not fit in memory")


def _mark_peak(spot: SweetSpot, ax: Axes) -> None:
    """Mark the peak with its value, inside the axes."""
    at, peak = spot.peak_batch_size, spot.peak_speedup
    side = "left" if at < 4 else "right" if at > 128 else "center"
    ax.plot(at, peak, marker="o", markersize=4, color=_LINE, zorder=3)
    backed = {"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.7, "linewidth": 0}
    text = f"{peak:.2f}x at {at}"
    ax.annotate(text, (at, peak), (0, 7), textcoords="offset points", ha=side, bbox=backed)
