"""Figures: a tidy table and an ``ax`` in, the ``ax`` out. Nothing is computed here."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_COLOURS = {"experts": "#0072b2", "gemm": "#e69f00", "attention": "#009e73"}
_MARKERS = {"experts": "o", "gemm": "^", "attention": "s"}


def closed_loop(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw target efficiency over batch size by draft length: measured points, predicted lines.

    Parameters
    ----------
    table
        Columns batch_size, draft_length, measured, predicted and spread, the standard deviation
        of repeats; of one target and context.
    ax
        Where to draw.

    Returns
    -------
    Axes
        The same.
    """
    colours = itertools.cycle(_COLOURS.values())
    for length, part in table.groupby("draft_length"):
        colour, rows = next(colours), part.sort_values("batch_size")
        ax.plot(rows["batch_size"], rows["predicted"], color=colour, linewidth=0.9)
        ax.errorbar(
            rows["batch_size"],
            rows["measured"],
            yerr=rows["spread"],
            linestyle="",
            marker="o",
            markersize=2.5,
            linewidth=0.6,
            color=colour,
            label=f"draft length {length}",
        )
    sizes = sorted(table["batch_size"].unique())
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
    ax.minorticks_off()
    ax.set(xlabel="batch size (requests)", ylabel="target efficiency", ylim=(0, 1.05))
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax


def predicted_against_measured(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw predicted over measured times, log-log, with the identity and a band of 10 %.

    Parameters
    ----------
    table
        Columns component, latency and predicted, in seconds.
    ax
        Where to draw.

    Returns
    -------
    Axes
        The same.
    """
    low = 0.8 * min(table["latency"].min(), table["predicted"].min())
    high = 1.25 * max(table["latency"].max(), table["predicted"].max())
    line = np.array([low, high])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color="0.85", linewidth=0, label="±10 %")
    ax.plot(line, line, color="0.3", linewidth=0.8)
    for kind, part in table.groupby("component", sort=True):
        ax.plot(
            part["latency"],
            part["predicted"],
            linestyle="",
            marker=_MARKERS.get(str(kind), "."),
            markersize=1.5,
            markeredgewidth=0,
            alpha=0.5,
            color=_COLOURS.get(str(kind), "0.5"),
            label=str(kind),
            rasterized=True,
        )
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    ax.set(xlabel="measured time (s)", ylabel="predicted time (s)")
    ax.set_aspect("equal")
    legend = ax.legend(frameon=False, fontsize="small", markerscale=3)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    return ax


_PHASES = {"baseline": "0.82", "test": "#f7e2b8"}


def timeline(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw draft length and phase over the iterations of a request, and below them utility.

    Parameters
    ----------
    table
        Columns draft_length, emitted_tokens, phase, utility (the policy's own, of its last trial)
        and window_utility; of one request, in order.
    axes
        Two, that share the horizontal axis.

    Returns
    -------
    sequence of Axes
        The same.
    """
    top, bottom = axes
    steps = np.arange(len(table) + 1)
    changes = np.flatnonzero(table["phase"] != table["phase"].shift())
    for start, end in itertools.pairwise([*changes, len(table)]):
        colour = _PHASES.get(table["phase"].iloc[start])
        for ax in axes if colour else ():
            ax.axvspan(start, end, color=colour, linewidth=0, zorder=0)
    for phase in ("baseline", "test"):
        if (table["phase"] == phase).any():
            top.fill_between([], [], color=_PHASES[phase], label=phase)
    accepted = table["emitted_tokens"] - 1
    top.stairs(accepted, steps, color="0.55", fill=True, label="accepted")
    top.stairs(table["draft_length"], steps, color=_COLOURS["experts"], label="draft length")
    top.set(ylabel="tokens", ylim=(0, None))
    utility, window = table["utility"], table["window_utility"]
    is_new = utility.notna() & (utility != utility.shift())
    bottom.axhline(1, color="0.3", linewidth=0.6)
    bottom.plot(steps[1:], window, color=_COLOURS["gemm"], linewidth=1, label="last 16 iterations")
    if is_new.any():
        bottom.plot(
            steps[1:][is_new],
            utility[is_new],
            linestyle="",
            marker="o",
            markersize=2.5,
            color=_COLOURS["attention"],
            label="trial, as measured",
        )
    bottom.set(xlabel="iteration", ylabel="utility", xlim=(0, len(table)))
    for ax in axes:
        ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return axes
