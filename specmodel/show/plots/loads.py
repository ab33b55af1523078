"""Figures of servers under load: what requests meet by rate, and which rate can be promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmodel.show.plots import frames
from specmodel.show.plots.style import (
    COLOURS,
    MOST_LINES,
    Style,
    filled,
    folded,
    legend_above,
    rows_axis,
    series,
    shortened,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MET = {"tpot_p90": "TPOT, p90 (s)", "ttft_p90": "TTFT, p90 (s)", "goodput": "in targets (%)"}
_MOST_POLICIES, _WIDTH, _MOST_CHARACTERS = 24, 24, 30


def load(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw TPOT, TTFT and the share of requests within targets over the rate, a line a policy.

    Parameters
    ----------
    table
        As `specmodel load --csv` prints it: policy, request_rate, tpot_p90, ttft_p90 and
        goodput; at most six policies.
    axes
        Three, that share the horizontal axis.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, PercentFormatter

    rows = frames.checked(table, ("request_rate", *_MET), ("policy",))
    frames.need_positive(rows, "request_rate", "tpot_p90", "ttft_p90")
    policies = list(rows.groupby("policy", sort=False))
    frames.need_at_most(MOST_LINES, len(policies), "policies")
    for i, (name, part) in enumerate(policies):
        frames.need_distinct(part, ["request_rate"])
        part = part.sort_values("request_rate")
        for ax, met in zip(axes, _MET, strict=True):
            label = shortened(str(name), _MOST_CHARACTERS)
            ax.plot(part["request_rate"], part[met], **series(i, label=label))
    low, high = rows["request_rate"].min(), rows["request_rate"].max()
    subs = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    axes[1].set_yscale("log")
    for ax, label in zip(axes, _MET.values(), strict=True):
        ax.set(xscale="log", ylabel=label)
        ax.xaxis.set_major_locator(LogLocator(subs=subs, numticks=9))
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.yaxis.set_major_formatter(EngFormatter(sep=""))
        ax.minorticks_off()
    axes[0].set_ylim(0, None)
    axes[1].yaxis.set_major_locator(LogLocator(numticks=5))
    axes[2].set_ylim(-0.05, 1.05)
    axes[2].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    axes[2].set_xlabel("rate of requests (requests/s)")
    legend_above(axes[0])
    return axes


def steps(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw running and waiting requests, the share of KV blocks and the draft length over time.

    Parameters
    ----------
    table
        As `specmodel load --steps --csv` prints it: time, running, waiting, kv_use, draft_length.
    axes
        Three, that share the horizontal axis.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    rows = frames.checked(table, ("time", "running", "waiting", "kv_use", "draft_length"))
    drawn = {"running": axes[0], "waiting": axes[0], "kv_use": axes[1], "draft_length": axes[2]}
    for name, ax in drawn.items():
        colour = COLOURS[name == "waiting"]
        ax.plot(rows["time"], rows[name], color=colour, linewidth=0.6, label=name)
        ax.set_ylim(0, None)
    for ax, label in zip(
        axes, ("requests", "KV in use (%)", "draft length\n(tokens)"), strict=True
    ):
        ax.set_ylabel(label)
    axes[1].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    axes[2].yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    axes[2].set_xlabel("time (s)")
    legend_above(axes[0])
    return axes


def capacity(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the rate that each policy carries, with its intervals by simulation and prediction.

    Parameters
    ----------
    table, ax
        As for `load`, or a row a policy: policy, capacity, and the ends of both intervals, such as
        predicted_low, which are missing where nothing is carried; at most 24 policies.
    """
    from matplotlib.ticker import EngFormatter

    ends = ("predicted_low", "predicted_high", "simulated_low", "simulated_high")
    found = frames.checked(table, ("capacity", *ends), ("policy",), may_lack=ends)
    rows = found.drop_duplicates(["policy", "capacity", *ends], ignore_index=True)
    frames.need_distinct(rows, ("policy",))
    frames.need_at_most(_MOST_POLICIES, len(rows), "policies")
    at, values = rows.index.to_numpy(), rows["capacity"]
    ax.barh(at, values, height=0.6, label="carried", **filled(4, 0))
    for kind, told, colour, width in (
        ("predicted", "times", COLOURS[5], 0.8),
        ("simulated", "other requests", COLOURS[0], 2.2),
    ):
        reach = [values - rows[f"{kind}_low"], rows[f"{kind}_high"] - values]
        bars: Style = {"linestyle": "", "color": colour, "elinewidth": width, "capsize": 2}
        reach = np.nan_to_num(np.stack(reach)).clip(min=0)
        ax.errorbar(values, at, xerr=reach, label=f"80 % interval ({told})", **bars)
    rows_axis(ax, [folded(str(name), _WIDTH) for name in rows["policy"]])
    ax.set_xlim(0, None)
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel("rate carried (requests/s)")
    legend_above(ax, side="right")
    return ax
