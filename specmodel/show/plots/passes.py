"""Figures of what passes consist of: components under the roofs, and seconds by component."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.core.base.errors import InputError
from specmodel.show.glossary import TABLES
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, MOST_LINES, SMALL, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOFS = ("peak_flops_per_s", "peak_bytes_per_s", "fitted_flops_per_s", "fitted_bytes_per_s")
_PASSES = TABLES["passes"]
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
    place = ["arithmetic_intensity", "flops_per_s"]
    texts = ("pass", "component", "kind", "dtype")
    rows = frames.checked(table, (*frames.POINT, "time", *place, *_ROOFS), texts, (*place, *_ROOFS))
    frames.need_single(rows, *frames.POINT)
    frames.need_distinct(rows, ("pass", "component"))
    rows = rows[(rows[place] > 0).all(axis=1) & rows["pass"].isin(["forward", "verify"])]
    if rows.empty:
        expected = "forward and verify passes"
        raise InputError(frames.ARGUMENT, "no component with arithmetic", expected)
    frames.need_positive(rows, *place, *_ROOFS)
    peaks = rows["peak_flops_per_s"] / rows["peak_bytes_per_s"]
    intensity = rows["arithmetic_intensity"]
    low, high = intensity.min() / 2, 3 * max(intensity.max(), peaks.max())
    colours = {k: COLOURS[i % MOST_LINES] for k, i in style.kind_numbers(rows["kind"]).items()}
    handles = _roofs(ax, rows, np.geomspace(low, high, 200), colours)
    markers, named = itertools.cycle(style.MARKERS), list[Any]()
    largest_first = rows.sort_values("time", ascending=False)
    for (name, part), marker in zip(
        largest_first.groupby("component", sort=False), markers, strict=False
    ):
        colour = colours[part["kind"].iloc[0]]
        shape: Style = {"color": colour, "marker": marker, "markersize": 4, "linestyle": ""}
        x, y = part.sort_values("pass")[place].to_numpy().T
        ax.plot(x, y, color=colour, linewidth=0.6, zorder=2)
        for face, pass_ in (("white", "forward"), (colour, "verify")):
            dot = part[part["pass"] == pass_]
            ax.plot(dot[place[0]], dot[place[1]], mfc=face, label="_", **shape)
        label = style.shortened(frames.words(str(name)), 24)
        named.append((label, x[-1], y[-1], shape))
    bottom, top = 0.4 * rows["flops_per_s"].min(), 3 * rows["peak_flops_per_s"].max()
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    for axis in (ax.xaxis, ax.yaxis):
        style.si_axis(axis)
    note = "" if frames.fits(rows).all() else "\nof a batch that does not fit in memory"
    ax.set(xlabel="arithmetic intensity (FLOP/B)" + note, ylabel="attained (FLOP/s)")
    handles += [
        ax.plot([], [], label=label, **shape)[0] for label, *_, shape in _crowded(ax, named)
    ]
    style.legend_above(ax, "hollow: decode step, filled: verify pass", handles, side="right")
    return ax


def _crowded(ax: Axes, named: Sequence[tuple[str, float, float, Style]]) -> list[Any]:
    """Name points beside them, in the order given; return those that have no room for it."""
    taken, left = list[Any](), []
    for label, x, y, shape in named:
        own: Style = {"textcoords": "offset points", "size": SMALL, "color": shape["color"]}
        own |= style.halo()
        text = ax.annotate(label, (x, y), (4, -6), **own)
        box = text.get_window_extent()
        if box.x1 > ax.bbox.x1 or any(box.overlaps(other) for other in taken):
            text.remove()
            left.append((label, x, y, shape))
        else:
            taken.append(box)
    return left


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
    frames.need_at_most(_MOST_SIZES, rows["batch_size"].nunique(), "batch sizes")
    rows = rows.sort_values("batch_size", kind="stable")
    kept = [*rows.groupby("component")["time"].max().sort_values(ascending=False).index]
    kept = kept[:_MOST_SHOWN]
    rows = rows.assign(shown=rows["component"].where(rows["component"].isin(kept), "others"))
    keys = ["batch_size", "pass", "shown"]
    bars = rows.groupby(keys)["time"].sum().unstack("shown", fill_value=0)
    bars = bars.reindex(pd.MultiIndex.from_frame(rows[keys[:2]].drop_duplicates()))
    # side by side, with a gap after each batch size
    of_bars, beyond = bars.index.get_level_values(0), {*rows["batch_size"][~frames.fits(rows)]}
    places = np.arange(len(bars)) + 0.9 * pd.factorize(of_bars)[0]
    scale, unit = next((s for s in _SCALES if bars.sum(axis=1).max() >= s[0]), _SCALES[-1])
    bottom = np.zeros(len(bars))
    for name, look in _looks(rows, [n for n in (*kept, "others") if n in bars]).items():
        heights = bars[name].to_numpy() / scale
        label = style.shortened(frames.words(str(name)), 24)
        drawn = ax.bar(places, heights, 0.85, bottom, label=label, **look)
        for bar in itertools.compress(drawn, of_bars.isin(beyond)):
            bar.set_alpha(_PALE)
        bottom += heights
    _bar_axis(ax, bars.index, places)
    ax.set_xlabel(ax.get_xlabel() + ("\npale: does not fit in memory" if beyond else ""))
    ax.set(ylabel=f"time of a pass ({unit})", ylim=(0, 1.04 * bottom.max() or 1))
    style.legend_above(ax, side="right")
    return ax


def _looks(rows: pd.DataFrame, names: list[str]) -> dict[str, Style]:
    """Return the colour of the kind of each component, and a hatch that tells it from its like."""
    kinds = dict(rows.groupby("shown")["kind"].first()) if "kind" in rows else {}
    numbers = style.kind_numbers(map(str, kinds.values()))
    looks, used = {}, Counter[int]()
    for name in names:
        is_known = name != "others" and name in kinds
        i = numbers[str(kinds[name])] % MOST_LINES if is_known else MOST_LINES
        looks[name] = style.filled(i, used[i])
        used[i] += 1
    return looks


def _roofs(ax: Axes, rows: pd.DataFrame, x: Any, colours: dict[str, str]) -> list[Any]:
    """Draw the roofs of the data sheet by dtype, and dashed that of the kernels that take most."""
    handles = []
    sheet = rows.drop_duplicates(["peak_flops_per_s", "peak_bytes_per_s"])
    for i, (_, row) in enumerate(sheet.iterrows()):
        peak, slope = row["peak_flops_per_s"], row["peak_bytes_per_s"]
        solid: Style = {"color": "0.6" if i else "black", "linewidth": 0.9}
        label = style.shortened(f"data sheet, {row['dtype']}", 24)
        handles += ax.plot(x, np.minimum(peak, x * slope), label=label, **solid)
        ridge: Style = {"label": f"ridge, {peak / slope:.0f} FLOP/B", "linestyle": ":"}
        handles.append(ax.axvline(peak / slope, **(solid | ridge | {"linewidth": 0.7})))
    fitted = rows.sort_values("time", ascending=False).dropna(subset=[*_ROOFS[2:]])
    drawn = set(zip(sheet["peak_flops_per_s"], sheet["peak_bytes_per_s"], strict=True))
    for _, row in fitted[:1].iterrows():
        peak, slope = row["fitted_flops_per_s"], row["fitted_bytes_per_s"]
        if (peak, slope) not in drawn:
            label = frames.words(row["kind"]) + ("" if len(sheet) == 1 else f" {row['dtype']}")
            dashed: Style = {"label": style.shortened(f"{label}, fitted", 24), "linestyle": "--"}
            dashed |= {"color": colours[row["kind"]], "linewidth": 0.8}
            handles += ax.plot(x, np.minimum(peak, x * slope), **dashed)
    return handles


def _bar_axis(ax: Axes, index: pd.MultiIndex | pd.Index, places: Any) -> None:
    """Label the bars by the letter of their pass, and their groups by batch size below."""
    sizes, passes = (index.get_level_values(level) for level in (0, 1))
    letters = [_PASSES[n][0] if n in _PASSES else style.shortened(str(n), 3) for n in passes]
    centres = [places[sizes == size].mean() for size in sizes.unique()]
    ax.xaxis.remove_overlapping_locs = False  # keeps a letter where there is a batch size too
    ax.set_xticks(places, letters, minor=True, size=SMALL)
    ax.set_xticks(centres, [style.count_label(size) for size in sizes.unique()])
    ax.tick_params(axis="x", which="major", length=0, pad=12)
    ax.tick_params(axis="x", which="minor", length=0, pad=2)
    key = ", ".join(text for name, text in _PASSES.items() if name in set(passes))
    ax.set_xlabel(f"{frames.titled(['batch_size'])}\npass: {key}")
