"""Colours, ticks and legends that all figures share, without changes of the global style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from specmodel.show import labels

if TYPE_CHECKING:  # imported late, as commands must do without
    import matplotlib.axes
    from matplotlib.legend import Legend
    from pandas import DataFrame

COLOURS = ("#114a98", "#ef7f1a", "#178446", "#4f0a38", "#79d3fb", "#000000")
"""Blue, orange, green, plum, sky and black, with a lightness of 32, 65, 48, 16, 81 and 0 of 100.
They differ from each other and from `PALE` in grey print and for the colour-blind."""

PALE = "#f4f4f4"
GREY = "0.35"
"""Colour of bands and ranges in a legend, and of thin guide lines."""

MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*", "<", ">", "p", "h")
DOTTED: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 0.8}
"""A line at a limit or target."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 0.7)), (0, (6, 1, 1, 1, 1, 1)), (0, (9, 2)))

MOST_LINES = len(COLOURS)
MOST_BESIDE = 4
"""Largest number of lines that are named at their ends [-]."""
_MOST_BESIDE = 10
"""Largest length of a name at the end of a line [-]."""
SMALL = "small"
"""Smallest size of text: 6.7 points where labels have 8."""
BESIDE: dict[str, Any] = {"textcoords": "offset points", "size": SMALL}
"""Style of text at an offset from its object."""
_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
BOXED: dict[str, Any] = {"size": SMALL, "bbox": _BOX}
"""Style of text on top of other objects."""

Axes: TypeAlias = "matplotlib.axes.Axes"
Style: TypeAlias = dict[str, Any]
"""Keywords of matplotlib's artists."""

_BETWEEN = 100
"""Number of places along each part of a line that names must not cover."""
_MOST_NAMED = 16
_SUBS = (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)
"""Digits that a logarithmic axis may label, by the number that fit in a decade."""
_DIGIT = 0.64
"""Ratio of the width of a digit to the size of its font."""


def series(i: int, **changes: Any) -> Style:
    """Return the style of a line, which differs from others in colour, dashes and marker."""
    own: Style = {"color": COLOURS[i], "linestyle": DASHES[i], "marker": MARKERS[i]}
    return own | {"linewidth": 1, "markersize": 3} | changes


def points(i: int, **changes: Any) -> Style:
    """Return the style of points without a line."""
    return series(i) | {"linestyle": "", "markersize": 4} | changes


def crosses(i: int) -> Style:
    """Return the style of measurements: crosses with a white edge."""
    from matplotlib.patheffects import withStroke

    edge = {"path_effects": [withStroke(linewidth=2.5, foreground="white")]}
    return points(i, marker="x", markersize=5, markeredgewidth=1.2, zorder=4) | edge


def side_by_side(ax: Axes, trans: Any, count: int, apart: float = 4.5) -> list[Any]:
    """Return `count` transforms that move objects side by side, `apart` points from each other."""
    from matplotlib.transforms import ScaledTranslation

    far = apart / 72 * (np.arange(count) - (count - 1) / 2)
    return [trans + ScaledTranslation(x, 0, ax.figure.dpi_scale_trans) for x in far]


def filled(i: int) -> Style:
    """Return the style of a bar; beyond the last colour it is grey."""
    rest = {"facecolor": PALE, "edgecolor": "0.6", "linewidth": 0.3}
    return {"facecolor": COLOURS[i], "linewidth": 0} if i < MOST_LINES else rest


def key(label: str, linestyle: Any = "-", **look: Any) -> Any:
    """Return a legend entry for a line or marker."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, linestyle=linestyle, **look)


def swatch(label: str, **look: Any) -> Any:
    """Return a legend entry for an area."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look)


def band(colour: str) -> Style:
    """Return the style of an interval around a line."""
    return {"color": colour, "alpha": 0.2, "linewidth": 0}


def name_lines(ax: Axes, title: str, ends: list[tuple[Any, Any]], handles: list[Any]) -> None:
    """Name lines at their ends if they are few and their names are short, else in a legend.

    `ends` are legend entries and the points at which their lines end. `title` names the quantity
    that differs between lines. `handles` are further legend entries.
    """
    named = [(line, end) for line, end in ends if line.get_label()]
    if named and are_beside([line.get_label() for line, _ in named]):
        _write_beside(ax, title, named)
        legend_above(ax, "", handles)
        return
    legend_above(ax, title, [*(line for line, _ in named), *handles], side="right")


def are_beside(names: Sequence[str]) -> bool:
    """Return whether lines are few enough, and names short enough, to name lines at their ends."""
    return len(names) <= MOST_BESIDE and all(len(name) <= _MOST_BESIDE for name in names)


def _write_beside(ax: Axes, title: str, ends: list[tuple[Any, Any]]) -> None:
    """Write names to the right of the axes below their title, with leaders to their lines."""
    from matplotlib.patches import ConnectionPatch

    apart = label_room(ax.yaxis, [""]) / ax.bbox.height
    ends = sorted(ends, key=lambda end: float(end[1][1]))
    heights = (ax.transData + ax.transAxes.inverted()).transform([end for _, end in ends])[:, 1]
    places = heights.copy()
    for i in range(1, len(places)):  # upwards; then all names move back by the mean shift
        places[i] = max(places[i], places[i - 1] + apart)
    places -= (places - heights).mean()
    places += max(0.0, apart / 2 - places[0]) - max(0.0, places[-1] - 1 + apart)
    write: Style = {"transform": ax.transAxes, "size": SMALL}
    for place, (line, end) in zip(places, ends, strict=True):
        ax.text(1.05, place, line.get_label(), va="center", color=line.get_color(), **write)
        ways: Style = {"coordsA": line.get_transform(), "coordsB": ax.transAxes, "zorder": 1}
        ax.add_artist(ConnectionPatch(end, (1.04, place), color="0.7", linewidth=0.4, **ways))
    # a word per line, as narrow as the names below
    told = title.partition(" (")[0].replace(" ", "\n")
    ax.text(1.05, places[-1] + 0.8 * apart, told, color=GREY, va="bottom", **write)


def name_points(ax: Axes, named: Sequence[tuple[str, Any, Style]]) -> list[Any]:
    """Write names next to points, in the given order; return legend entries for the other names.

    A name is written at the first of its points where it covers no point, line or other name.
    """
    paths = ((line, line.get_transform().transform_path(line.get_path())) for line in ax.lines)
    joined = {line: 1 if line.get_linestyle() == "None" else _BETWEEN for line in ax.lines}
    drawn = np.vstack([path.interpolated(joined[line]).vertices for line, path in paths])
    taken, left = list[Any](), []
    for label, points, shape in named:
        for (x, y), dx, dy in product(points, (4, -4), (0, -8, 8)):
            own = BESIDE | {"color": shape["color"], "ha": "left" if dx > 0 else "right"} | BOXED
            text = ax.annotate(label, (x, y), (dx, dy), linespacing=1, va="center", **own)
            box = text.get_window_extent()
            is_inside = ax.bbox.x0 < box.x0 and box.x1 < ax.bbox.x1
            if is_inside and not (box.count_contains(drawn) or box.count_overlaps(taken)):
                taken.append(box)
                break
            text.remove()
        else:
            left.append(key(label.replace("\n", " "), **shape))
    return left


def label_room(axis: Any, labels: Iterable[str]) -> float:
    """Return the distance between ticks that the longest of their labels needs [dot]."""
    label = axis.get_major_ticks(1)[0].label1
    wide = _DIGIT * max(map(len, labels)) if axis.axis_name == "x" else 1.0
    # a third to spare: the layout may still narrow the axes for labels beside them
    return float(1.33 * wide * label.get_fontsize() * axis.axes.figure.dpi / 72)


def counts_axis(ax: Axes, values: Iterable[float], label: str, spare: float = 1.0) -> None:
    """Give an axes a logarithmic horizontal axis of counts, with as many ticks as fit.

    `spare` is the factor by which the layout may narrow the axes later.
    """
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    sizes = sorted({float(value) for value in values})
    low, high = sizes[0], sizes[-1]
    margin = (high / low) ** 0.04 if high > low else 2.0
    ax.set_xscale("log", base=2)
    ax.set(xlim=(low / margin, high * margin), xlabel=label)
    room = spare * label_room(ax.xaxis, map(labels.count_label, sizes))
    most = max(2, round(ax.bbox.width / room))
    base = 2 if high < labels.MOST_WRITTEN else 10
    places = ax.transData.transform([(size, 1) for size in sizes])[:, 0]
    is_apart = len(sizes) <= _MOST_NAMED and np.diff(places).min(initial=np.inf) > room
    named = FixedLocator(sizes, nbins=None if is_apart else most)
    is_named = is_apart or high / low < base**2
    ax.xaxis.set_major_locator(named if is_named else LogLocator(base, numticks=most))
    ax.xaxis.set_major_formatter(labels.count_label)
    ax.xaxis.set_minor_locator(FixedLocator(sizes) if len(sizes) <= _MOST_NAMED else NullLocator())
    ax.xaxis.set_minor_formatter(lambda *_: "")


def si_axis(*axes: Any, unit: str = "") -> None:
    """Make axes logarithmic, with metric prefixes instead of exponents."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

    for axis in axes:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        decades = np.log10(high / low)
        room = min(axis.axes.bbox.size) / label_room(axis, [f"100k {unit}".strip()])
        subs = next(subs for subs in _SUBS if len(subs) * decades <= room or subs == _SUBS[-1])
        wide = LogLocator(subs=subs, numticks=8 if len(subs) == 1 else 99)
        axis.set_major_locator(wide if decades > 1 else MaxNLocator(4))
        axis.set_major_formatter(EngFormatter(unit, sep=" " if unit else ""))
        axis.set_minor_locator(LogLocator(subs=range(1, 10), numticks=99))
        axis.set_minor_formatter(NullFormatter())


def legend_above(
    ax: Axes, title: str = "", handles: Sequence[Any] | None = None, *more: Any, side: str = "left"
) -> Legend | None:
    """Put a legend above the axes in as many columns as fit.

    The entries are `handles`, by default those of all labelled objects, and then `more`.
    """
    # a legend on the right may extend over the labels of the vertical axis
    found = [*(ax.get_legend_handles_labels()[0] if handles is None else handles), *more]
    spec = ax.get_subplotspec()
    widest = ax.figure.bbox.width / (spec.get_gridspec().ncols if spec else 1)
    room = 0.96 * (ax.bbox.width if side == "left" else widest)
    own: Style = {"handles": found, "title": labels.shortened(title, 56) or None, "frameon": False}
    own |= {"fontsize": SMALL, "title_fontsize": SMALL, "alignment": "left", "loc": f"lower {side}"}
    own |= {"bbox_to_anchor": (float(side == "right"), 1), "borderpad": 0, "borderaxespad": 0.3}
    own |= {"labelspacing": 0.25, "columnspacing": 1.0, "handlelength": 2.0, "handletextpad": 0.5}
    for columns in range(max(len(found), bool(title)), 0, -1):
        legend = ax.legend(ncols=columns, **own)
        if columns == 1 or legend.get_window_extent().width <= room:
            return legend
    return None


def unity(ax: Axes, label: str = "break-even", *, vertical: bool = False) -> Any:
    """Draw the line at 1, where speculation changes nothing; return its entry of a legend."""
    (ax.axvline if vertical else ax.axhline)(1, color="black", linewidth=0.6, zorder=1)
    return key(label, color="black", linewidth=0.8)


def rows_axis(ax: Axes, names: Sequence[str]) -> None:
    """Give an axes a vertical axis of names, the first name on top."""
    ax.set_yticks(range(len(names)), names, size=SMALL)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def scaled(axis: Any, scale: float) -> None:
    """Label an axis in a smaller unit: milliseconds for seconds, per cent for shares."""
    axis.set_major_formatter(lambda value, _: f"{scale * value:g}")


def grouped(ax: Axes, cells: DataFrame) -> None:
    """Draw a group of bars for each row of a table, with a bar for each of its columns."""
    width, places = 0.85 / len(cells.columns), np.arange(len(cells))
    for i, (name, heights) in enumerate(cells.items()):
        at = places + (i - (len(cells.columns) - 1) / 2) * width
        ax.bar(at, heights, width, label=labels.shortened(str(name), 24), **filled(i))
    ax.tick_params(axis="x", length=0, labelsize=SMALL)
