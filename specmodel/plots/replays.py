"""Figures of draft-length policies: one request step by step, and policies compared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmodel.plots.frames import checked, need_at_most, need_distinct
from specmodel.plots.style import (
    COLOURS,
    KIND_COLOURS,
    Style,
    folded,
    legend_above,
    rows_axis,
    unity,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_POLICIES = 24
"""Policies that a figure compares [-]."""

_PHASES = {"baseline": "0.82", "test": "#f7e2b8"}
_HINDSIGHT = ("best-fixed", "greedy", "oracle")


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

    Raises
    ------
    InputError
        Names what the table lacks.
    """
    from matplotlib.ticker import MaxNLocator

    unknown = ("utility", "window_utility")
    numbers = ("draft_length", "emitted_tokens", *unknown)
    table = checked(table, numbers, ("phase",), may_lack=unknown)
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
    top.stairs(table["draft_length"], steps, color=KIND_COLOURS["experts"], label="draft length")
    top.set(ylabel="tokens", ylim=(0, None))
    utility, window = table["utility"], table["window_utility"]
    is_new = utility.notna() & (utility != utility.shift())
    unity(bottom)
    colour = KIND_COLOURS["gemm"]
    bottom.plot(steps[1:], window, color=colour, linewidth=1, label="last 16 iterations")
    if is_new.any():
        dots: Style = {"linestyle": "", "marker": "o", "markersize": 2.5}
        dots |= {"color": KIND_COLOURS["attention"], "label": "trial, as measured"}
        bottom.plot(steps[1:][is_new], utility[is_new], **dots)
    bottom.set(xlabel="iteration", ylabel="utility", xlim=(0, len(table)))
    for ax in axes:
        legend_above(ax)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return axes


def policies(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup of each policy with its interval, hollow for those that know the trace.

    Parameters
    ----------
    table
        As `replay.summarise` returns it: policy, speedup, speedup_low and speedup_high, which
        are missing where there was one request; a row for each policy, at most 24.
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
    ends = ("speedup_low", "speedup_high")
    rows = checked(table, ("speedup", *ends), ("policy",), may_lack=ends)
    need_distinct(rows, ("policy",))
    need_at_most(MOST_POLICIES, len(rows), "policies")
    names = rows["policy"].astype(str)
    knows = names.str.split(":").str[0].isin(_HINDSIGHT)
    unity(ax, vertical=True)
    style: Style = {"linestyle": "", "marker": "o", "markersize": 4, "color": COLOURS[0]}
    for part, face, label in (
        (rows[~knows], COLOURS[0], "policy"),
        (rows[knows], "white", "in hindsight, a bound"),
    ):
        reach = np.stack([part["speedup"] - part[ends[0]], part[ends[1]] - part["speedup"]])
        bars: Style = {"xerr": np.nan_to_num(reach).clip(min=0), "elinewidth": 0.8, "capsize": 2}
        if not part.empty:
            at = part.index.to_numpy()
            ax.errorbar(part["speedup"], at, label=label, mfc=face, **style, **bars)
    rows_axis(ax, [folded(name, 24) for name in names])
    ax.grid(axis="y", linewidth=0.3, color="0.85")
    ax.set_axisbelow(True)
    ax.set_xlabel("speedup, 95 % interval")
    legend_above(ax, side="right")
    return ax
