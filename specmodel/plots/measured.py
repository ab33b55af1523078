"""Figures of predictions beside measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specmodel.plots.frames import checked, need_at_most, need_distinct, need_positive
from specmodel.plots.style import (
    COLOURS,
    DASHES,
    KIND_COLOURS,
    KIND_MARKERS,
    MARKERS,
    MOST_LINES,
    SMALL,
    Style,
    counts_axis,
    legend_above,
    shortened,
    si_axes,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MANY = 300


def closed_loop(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw target efficiency over batch size by draft length: measured points, predicted lines.

    Parameters
    ----------
    table
        Columns batch_size, draft_length, measured, predicted and spread, the standard deviation
        of repeats; of one target and context. Where there is a column quantity, its rows of
        target_efficiency. At most six draft lengths.
    ax
        Where to draw.

    Returns
    -------
    Axes
        The same.

    Raises
    ------
    InputError
        Names what the table lacks, or has too much of.
    """
    if "quantity" in table:
        table = table[table["quantity"] == "target_efficiency"]
    numbers = ("batch_size", "draft_length", "measured", "predicted", "spread")
    rows = checked(table, numbers, may_lack=("spread",))
    need_positive(rows, "batch_size")
    need_distinct(rows, ("batch_size", "draft_length"))
    lengths = list(rows.groupby("draft_length"))
    need_at_most(MOST_LINES, len(lengths), "draft lengths")
    for i, (length, part) in enumerate(lengths):
        colour, part = COLOURS[i], part.sort_values("batch_size")
        sizes = part["batch_size"]
        ax.plot(sizes, part["predicted"], color=colour, linewidth=0.9, linestyle=DASHES[i])
        dots: Style = {"linestyle": "", "marker": MARKERS[i], "markersize": 2.5, "color": colour}
        dots |= {"linewidth": 0.6, "label": f"draft length {length:g}"}
        ax.errorbar(sizes, part["measured"], yerr=part["spread"], **dots)
    counts_axis(ax, rows["batch_size"], "batch size (requests)")
    ax.set(ylabel="target efficiency", ylim=(0, 1.05))
    ax.legend(frameon=False, fontsize=SMALL, loc="lower right")
    return ax


def predicted_against_measured(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw predicted over measured times, log-log, with the identity and a band of 10 %.

    Parameters
    ----------
    table
        Columns component, latency and predicted, in seconds; as `validation.predict_measured`
        returns it.
    ax
        Where to draw.

    Returns
    -------
    Axes
        The same.

    Raises
    ------
    InputError
        Names what the table lacks, or has too much of.
    """
    rows = checked(table, ("latency", "predicted"), ("component",))
    need_positive(rows, "latency", "predicted")
    low = 0.8 * min(rows["latency"].min(), rows["predicted"].min())
    high = 1.25 * max(rows["latency"].max(), rows["predicted"].max())
    line = np.array([low, high])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color="0.85", linewidth=0, label="±10 %")
    ax.plot(line, line, color="0.3", linewidth=0.8)
    shape: Style = {"linestyle": "", "markeredgewidth": 0, "rasterized": True}
    shape |= {"markersize": 1.5, "alpha": 0.5} if len(rows) > _MANY else {"markersize": 3}
    kinds = list(rows.groupby("component", sort=True))
    need_at_most(MOST_LINES, len(kinds), "components")
    for i, (kind, part) in enumerate(kinds):
        colour = KIND_COLOURS.get(str(kind), "0.5")
        marker = KIND_MARKERS.get(str(kind), MARKERS[i])
        style: Style = {"color": colour, "marker": marker, "label": shortened(str(kind), 30)}
        ax.plot(part["latency"], part["predicted"], **shape, **style)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    si_axes(ax)
    ax.set(xlabel="measured time (s)", ylabel="predicted time (s)")
    ax.set_aspect("equal")
    legend = legend_above(ax)
    for handle in legend.get_lines() if legend else ():
        handle.set(alpha=1, markersize=4)
    return ax
