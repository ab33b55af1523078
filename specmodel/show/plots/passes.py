"""Draw the components of passes: under the roofs of the GPU, and by their times."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from specmodel.show import labels
from specmodel.show.glossary import TABLES
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, MOST_LINES, SMALL, Axes, Style

_ROOFS = ("peak_flops_per_s", "peak_bytes_per_s", "fitted_flops_per_s", "fitted_bytes_per_s")
_PASSES = TABLES["passes"]
_MOST_SIZES = 6
_PALE = 0.35
_COLOURS = (*COLOURS[:-1], "0.5")
"""Colours of components; the roofs are black."""
_SEEN = 0.02
"""Smallest share of the longest pass at which a component has its own colour [-]."""
_LOW = 0.1
"""Share of the longest pass below which the time of a pass is written as text [-]."""


def roofline(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the components of a plain and a verify pass under the GPU's roofs.

    The time of a component includes its launches and messages. Components without arithmetic are
    omitted.

    Parameters
    ----------
    table, ax
        Table of `plan.pass_components`, for one point.
    """
    place = ["arithmetic_intensity", "flops_per_s"]
    texts = ("pass", "component", "kind", "dtype")
    rows = frames.checked(table, (*frames.POINT, "time", *place, *_ROOFS), texts, (*place, *_ROOFS))
    frames.need_single(rows, *frames.POINT)
    frames.need_distinct(rows, ("pass", "component"))
    rows = rows[(rows[place] > 0).all(axis=1) & rows["pass"].isin(["forward", "verify"])]
    if rows.empty:
        frames.refuse("no component with arithmetic", "forward and verify passes")
    frames.need_positive(rows, *place, *_ROOFS)
    peaks = rows["peak_flops_per_s"] / rows["peak_bytes_per_s"]
    intensity, named = rows["arithmetic_intensity"], list[Any]()
    low, high = intensity.min() / 2, 3 * max(intensity.max(), peaks.max())
    rows = rows.sort_values("time", ascending=False)
    colours = dict(zip(rows["component"].unique(), itertools.cycle(_COLOURS), strict=False))
    handles = _roofs(ax, rows, np.geomspace(low, high, 200), colours)
    groups = rows.groupby("component", sort=False)
    for (name, part), marker in zip(groups, itertools.cycle(style.MARKERS), strict=False):
        shape: Style = {"marker": marker, "markersize": 4, "linestyle": "", "color": colours[name]}
        both = part.sort_values("pass")
        ax.plot(*both[place].to_numpy().T, linewidth=0.6, zorder=2, color=colours[name])
        for pass_, *at in both[["pass", *place]].to_numpy():
            ax.plot(*at, mfc="white" if pass_ == "forward" else colours[name], label="_", **shape)
        ends = both[place].to_numpy()[::-1]
        named.append((labels.folded(labels.words(str(name)), 12), ends, shape))
    bottom, top = 0.4 * rows["flops_per_s"].min(), 3 * rows["peak_flops_per_s"].max()
    ax.set(xlim=(low, high), ylim=(bottom, top))
    style.si_axis(ax.xaxis, ax.yaxis)
    note = "" if frames.fits(rows).all() else "\nof a batch that does not fit in memory"
    ax.set(xlabel="arithmetic intensity (FLOP/B)" + note, ylabel="predicted (FLOP/s)")
    handles += style.name_points(ax, named)
    style.legend_above(ax, "hollow: decode step, filled: verify pass", handles, side="right")
    return ax


def components(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the seconds of a plain, a verify and a draft pass by component, at some batch sizes.

    Parameters
    ----------
    table, ax
        Table of `plan.pass_components`: batch_size, pass, component and time, for one draft length
        and context, and at most six batch sizes. The six longest components have their own colours.
    """
    rows = frames.checked(table, ("batch_size", "time"), ("pass", "component"))
    frames.need_single(rows, "draft_length", "context_length")
    frames.need_distinct(rows, ("batch_size", "pass", "component"))
    frames.need_at_most(_MOST_SIZES, rows["batch_size"].nunique(), "batch sizes")
    rows = rows.sort_values("batch_size", kind="stable")
    longest = rows.groupby(["batch_size", "pass"])["time"].sum().max()
    most = rows.groupby("component")["time"].max().sort_values(ascending=False)
    kept = [*most[most >= _SEEN * longest].index[:MOST_LINES]]
    rows = rows.assign(shown=rows["component"].where(rows["component"].isin(kept), "others"))
    keys = ["batch_size", "pass", "shown"]
    bars = rows.groupby(keys)["time"].sum().unstack("shown", fill_value=0)
    bars = bars.reindex(pd.MultiIndex.from_frame(rows[keys[:2]].drop_duplicates()))
    # side by side, with a gap after each batch size
    of_bars, beyond = bars.index.get_level_values(0), {*rows["batch_size"][~frames.fits(rows)]}
    places = np.arange(len(bars)) + 0.9 * pd.factorize(of_bars)[0]
    bottom = np.zeros(len(bars))
    for name in [n for n in (*kept, "others") if n in bars]:
        look = style.filled(kept.index(name) if name in kept else MOST_LINES)
        look["label"] = labels.shortened(labels.words(str(name)), 24)
        drawn = ax.bar(places, bars[name], 0.85, bottom, **look)
        for bar in itertools.compress(drawn, of_bars.isin(beyond)):
            bar.set_alpha(_PALE)
        bottom += bars[name].to_numpy()
    for x, height in zip(places, bottom, strict=True):
        if height < _LOW * bottom.max():  # too low to be read off the axis
            ax.annotate(f"{1e3 * height:.1g}", (x, height), (0, 2), ha="center", **style.BESIDE)
    _bar_axis(ax, bars.index, places)
    ax.set_xlabel(ax.get_xlabel() + ("\npale: does not fit in memory" if beyond else ""))
    ax.set(ylabel="time of a pass (ms)", ylim=(0, 1.04 * bottom.max() or 1))
    style.scaled(ax.yaxis, 1000)
    style.legend_above(ax, side="right")
    return ax


def _roofs(ax: Axes, rows: pd.DataFrame, x: Any, colours: dict[str, str]) -> list[Any]:
    """Draw the roofs of the data sheet by dtype, and a dashed roof of the slowest kernels."""
    roofs = dict[Any, tuple[str, Style]]()
    for *roof, dtype in rows[[*_ROOFS[:2], "dtype"]].to_numpy():
        look: Style = {"color": "0.6" if roofs else "black"}
        roofs.setdefault(tuple(roof), (f"data sheet, {dtype}", look))
    num_sheets, fitted = len(roofs), rows.dropna(subset=[*_ROOFS[2:]])[:1]
    for name, kind, dtype, *roof in fitted[["component", "kind", "dtype", *_ROOFS[2:]]].to_numpy():
        label = labels.words(kind) + ("" if num_sheets == 1 else f" {dtype}")
        look = {"color": colours[name], "linestyle": "--"}
        roofs.setdefault(tuple(roof), (f"{label}, fitted", look))
    for i, ((peak, slope), (told, look)) in enumerate(roofs.items()):
        label = labels.shortened(told, 24) + f", ridge {peak / slope:.0f} FLOP/B" * (i < num_sheets)
        ax.plot(x, np.minimum(peak, x * slope), label=label, linewidth=0.9, **look)
    return [*ax.lines]


def _bar_axis(ax: Axes, index: pd.MultiIndex | pd.Index, places: Any) -> None:
    """Label each bar with the letter of its pass, and each group of bars with its batch size."""
    sizes, passes = (index.get_level_values(level) for level in (0, 1))
    letters = [_PASSES[n][0] if n in _PASSES else labels.shortened(str(n), 3) for n in passes]
    centres = [places[sizes == size].mean() for size in sizes.unique()]
    ax.xaxis.remove_overlapping_locs = False  # keeps a letter where there is a batch size too
    ax.set_xticks(places, letters, minor=True, size=SMALL)
    ax.set_xticks(centres, [labels.count_label(size) for size in sizes.unique()])
    ax.tick_params(axis="x", which="major", length=0, pad=12)
    ax.tick_params(axis="x", which="minor", length=0, pad=2)
    key = ", ".join(text for name, text in _PASSES.items() if name in set(passes))
    ax.set_xlabel(f"{labels.titled(['batch_size'])}\npass: {key}")
