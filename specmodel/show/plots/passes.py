"""Figures of what passes consist of: components under the roofs, and seconds by component."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.show.plots import frames
from specmodel.show.plots.style import (
    COLOURS,
    MARKERS,
    MOST_LINES,
    SMALL,
    Style,
    count_label,
    filled,
    kind_numbers,
    legend_above,
    shortened,
    si_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINT = ("batch_size", "draft_length", "context_length")
_ROOFS = ("peak_flops_per_s", "peak_bytes_per_s", "fitted_flops_per_s", "fitted_bytes_per_s")
_PASSES = {
    "forward": "P plain",
    "verify": "V verify",
    "first draft pass": "F first draft",
    "draft pass": "D draft",
    "prefill": "R prefill",
}
_MOST_SIZES = 6
_MOST_SHOWN = 7
_PALE = 0.35
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def roofline(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the components of a plain and a verify pass under the roofs of the GPU.

    The time of a component includes its launches and messages. Components without arithmetic are
    left out.

    Parameters
    ----------
    table, ax
        As `answers.pass_components` returns it, of one point.
    """
    numbers = (*_POINT, "time", "arithmetic_intensity", "flops_per_s", *_ROOFS)
    texts = ("pass", "component", "kind", "dtype")
    rows = frames.checked(table, numbers, texts, may_lack=numbers[4:])
    frames.need_single(rows, *_POINT)
    frames.need_distinct(rows, ("pass", "component"))
    is_shown = (rows["arithmetic_intensity"] > 0) & (rows["flops_per_s"] > 0)
    rows = rows[is_shown & rows["pass"].isin(["forward", "verify"])]
    if rows.empty:
        expected = "forward and verify passes"
        raise InputError(frames.ARGUMENT, "no component with arithmetic", expected)
    frames.need_positive(rows, *numbers[4:])
    intensity = rows["arithmetic_intensity"]
    peaks = rows["peak_flops_per_s"] / rows["peak_bytes_per_s"]
    low, high = intensity.min() / 2, 3 * max(intensity.max(), peaks.max())
    colours = {k: COLOURS[i % MOST_LINES] for k, i in kind_numbers(rows["kind"]).items()}
    handles = _roofs(ax, rows, np.geomspace(low, high, 200), colours)
    for i, (name, part) in enumerate(rows.groupby("component", sort=False)):
        colour = colours[part["kind"].iloc[0]]
        style: Style = {"color": colour, "marker": MARKERS[i % len(MARKERS)], "markersize": 4}
        places = part.sort_values("pass")[["arithmetic_intensity", "flops_per_s"]].to_numpy()
        ax.plot(*places.T, color=colour, linewidth=0.6, zorder=2)
        for pass_, place in zip(sorted(part["pass"]), places, strict=True):
            face = "white" if pass_ == "forward" else colour
            ax.plot(*place[:, None], mfc=face, linestyle="", label="_", **style)
        label = shortened(frames.words(str(name)), 24)
        handles += ax.plot([], [], linestyle="", label=label, **style)
    bottom, top = 0.4 * rows["flops_per_s"].min(), 3 * rows["peak_flops_per_s"].max()
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    si_axes(ax)
    note = "" if frames.fits(rows).all() else "\nof a batch that does not fit in memory"
    ax.set(xlabel="arithmetic intensity (FLOP/B)" + note, ylabel="attained (FLOP/s)")
    legend_above(ax, "hollow: plain pass, filled: verify pass", handles, side="right")
    return ax


def components(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the seconds of a plain, a verify and a draft pass by component, at some batch sizes.

    Parameters
    ----------
    table, ax
        As `answers.pass_components` returns it: batch_size, pass, component and time, of one
        draft length and context and at most six batch sizes. The seven components that take most
        are told apart.
    """
    rows = frames.checked(table, ("batch_size", "time"), ("pass", "component"))
    frames.need_single(rows, "draft_length", "context_length")
    frames.need_distinct(rows, ("batch_size", "pass", "component"))
    sizes = sorted(rows["batch_size"].unique())
    frames.need_at_most(_MOST_SIZES, len(sizes), "batch sizes")
    largest = rows.groupby("component")["time"].max().sort_values(ascending=False).index
    kept = list(largest[:_MOST_SHOWN])
    rows = rows.assign(shown=rows["component"].where(rows["component"].isin(kept), "others"))
    keys = ["batch_size", "pass", "shown"]
    bars = rows.groupby(keys)["time"].sum().unstack("shown", fill_value=0)
    bars = bars.reindex(pd.MultiIndex.from_frame(rows[keys[:2]].drop_duplicates()))
    # side by side, with a gap after each batch size
    of_bars, beyond = bars.index.get_level_values(0), {*rows["batch_size"][~frames.fits(rows)]}
    changes = np.concatenate([[0], np.cumsum(of_bars[1:] != of_bars[:-1])])
    places = np.arange(len(bars)) + 0.9 * changes
    scale, unit = next((s for s in _SCALES if bars.sum(axis=1).max() >= s[0]), _SCALES[-1])
    bottom = np.zeros(len(bars))
    styles = _styles(rows, [n for n in (*kept, "others") if n in bars])
    for name, style in styles.items():
        heights = bars[name].to_numpy() / scale
        label = shortened(frames.words(str(name)), 24)
        drawn = ax.bar(places, heights, 0.85, bottom, label=label, **style)
        for bar in itertools.compress(drawn, of_bars.isin(beyond)):
            bar.set_alpha(_PALE)
        bottom += heights
    _bar_axis(ax, bars.index, places)
    ax.set_xlabel(ax.get_xlabel() + ("\npale: does not fit in memory" if beyond else ""))
    ax.set(ylabel=f"time of a pass ({unit})", ylim=(0, 1.04 * bottom.max() or 1))
    legend_above(ax, side="right")
    return ax


def _styles(rows: pd.DataFrame, names: list[str]) -> dict[str, Style]:
    """Return the colour of the kind of each component, and a hatch that tells it from its like."""
    kinds = dict(rows.groupby("shown")["kind"].first()) if "kind" in rows else {}
    numbers = kind_numbers(map(str, kinds.values()))
    styles, used = {}, [0] * (MOST_LINES + 1)
    for name in names:
        is_known = name != "others" and name in kinds
        i = numbers[str(kinds[name])] % MOST_LINES if is_known else MOST_LINES
        styles[name] = filled(i, used[i])
        used[i] += 1
    return styles


def _roofs(ax: Axes, rows: pd.DataFrame, x: Any, colours: dict[str, str]) -> list[Any]:
    """Draw the roofs of the data sheet by dtype, and dashed those of fitted kernels by kind."""
    handles = []
    sheet = rows.drop_duplicates(["peak_flops_per_s", "peak_bytes_per_s"])
    for i, (_, row) in enumerate(sheet.iterrows()):
        peak, slope = row["peak_flops_per_s"], row["peak_bytes_per_s"]
        solid: Style = {"color": "0.6" if i else "black", "linewidth": 0.9}
        label = shortened(f"data sheet, {row['dtype']}", 24)
        handles += ax.plot(x, np.minimum(peak, x * slope), label=label, **solid)
        dotted: Style = solid | {"linestyle": ":", "linewidth": 0.7}
        handles.append(
            ax.axvline(peak / slope, label=f"ridge, {peak / slope:.0f} FLOP/B", **dotted)
        )
    fitted = rows[(rows["fitted_flops_per_s"] > 0) & (rows["fitted_bytes_per_s"] > 0)]
    drawn = set(zip(sheet["peak_flops_per_s"], sheet["peak_bytes_per_s"], strict=True))
    for _, row in fitted.sort_values("time", ascending=False).iterrows():
        ends = row["fitted_flops_per_s"], row["fitted_bytes_per_s"]
        if ends not in drawn:
            drawn.add(ends)
            dashed: Style = {"color": colours[row["kind"]], "linewidth": 0.8, "linestyle": "--"}
            label = frames.words(row["kind"])
            label += "" if len(sheet) == 1 else f" {row['dtype']}"
            roof = np.minimum(ends[0], x * ends[1])
            handles += ax.plot(x, roof, label=shortened(f"{label}, fitted", 24), **dashed)
    return handles


def _bar_axis(ax: Axes, index: pd.MultiIndex | pd.Index, places: Any) -> None:
    """Label the bars by the letter of their pass, and their groups by batch size below."""
    passes = index.get_level_values(1)
    letters = [_PASSES[name][0] if name in _PASSES else shortened(str(name), 3) for name in passes]
    sizes = index.get_level_values(0)
    centres = [places[sizes == size].mean() for size in sizes.unique()]
    ax.xaxis.remove_overlapping_locs = False  # keeps a letter where there is a batch size too
    ax.set_xticks(places, letters, minor=True, size=SMALL)
    ax.set_xticks(centres, [count_label(size) for size in sizes.unique()])
    ax.tick_params(axis="x", which="major", length=0, pad=12)
    ax.tick_params(axis="x", which="minor", length=0, pad=2)
    key = ", ".join(text for name, text in _PASSES.items() if name in set(passes))
    ax.set_xlabel(f"batch size (requests)\npass: {key}")
