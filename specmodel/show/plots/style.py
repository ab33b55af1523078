"""What figures share: colours, ticks that fit, legends above; no global style is changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from specmodel.core.layers.kinds import KINDS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

COLOURS = ("#114a98", "#ef7f1a", "#178446", "#4f0a38", "#79d3fb", "#000000")
"""Blue, orange, green, plum, sky and black, as light as 32, 65, 48, 16, 81 and 0 of 100: any two
are told apart in a grey print and by the colour-blind, and all from `PALE`."""

PALE = "#f4f4f4"
GREY = "0.35"
"""What is drawn of bands and ranges in a legend, and lines that guide the eye."""

MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*", "<", ">", "p", "h")
DOTTED: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 0.8}
"""A line at a limit or target."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (9, 2)))

MOST_LINES = len(COLOURS)
MOST_BESIDE = 4
"""Lines that are named beside their ends [-]."""
_MOST_BESIDE = 10
"""Characters of a name that is written there [-]."""
SMALL = "small"
"""Smallest size of text: 6.7 points where labels have 8."""
BESIDE: dict[str, Any] = {"textcoords": "offset points", "size": SMALL}
"""Text at some points from what it is of."""

_KINDS = ("experts", "gemm", "elementwise", *KINDS, "host")
"""Kinds of kernels in the order in which they take colours: first those of every model."""

Style: TypeAlias = dict[str, Any]
"""Keywords of matplotlib's artists."""

_MOST_COLUMNS = 7
_MOST_NAMED = 16
_MOST_WRITTEN = 1e6
_DIGIT = 0.64
"""Width of a digit over the size of its font."""


def series(i: int, **changes: Any) -> Style:
    """Return the style of a line, told from others by colour, dashes and marker."""
    own: Style = {"color": COLOURS[i], "linestyle": DASHES[i], "marker": MARKERS[i]}
    return own | {"linewidth": 1, "markersize": 3} | changes


def points(i: int, **changes: Any) -> Style:
    """Return the style of points without a line."""
    return series(i) | {"linestyle": "", "markersize": 4} | changes


def crosses(i: int) -> Style:
    """Return the style of what was measured, which stands out from lines."""
    return points(i, marker="x", markersize=5, markeredgewidth=1.2, zorder=4) | halo()


def halo() -> Style:
    """Return what lets marks and text be read on lines: a white edge around them."""
    from matplotlib.patheffects import withStroke

    return {"path_effects": [withStroke(linewidth=2.5, foreground="white")]}


def filled(i: int) -> Style:
    """Return the style of a bar; a colour beyond the last is white, for what is left."""
    if i < MOST_LINES:
        return {"facecolor": COLOURS[i], "linewidth": 0}
    return {"facecolor": "white", "edgecolor": "black", "linewidth": 0.4}


def key(label: str, linestyle: Any = "-", **look: Any) -> Line2D:
    """Return a legend entry for a look that no single artist has."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, linestyle=linestyle, **look)


def swatch(label: str, **look: Any) -> Patch:
    """Return a legend entry for an area."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look)


def band(colour: str) -> Style:
    """Return the style of an interval around a line."""
    return {"color": colour, "alpha": 0.2, "linewidth": 0}


def name_lines(ax: Axes, title: str, ends: list[tuple[Any, float]], handles: list[Any]) -> None:
    """Name lines beside their ends if they are few and their names short, else in a legend.

    `ends` are entries of a legend and the heights at which their lines end, `title` says what tells
    them apart, and `handles` are entries of the legend in any case.
    """
    named = [(line, height) for line, height in ends if line.get_label()]
    if named and are_beside([line.get_label() for line, _ in named]):
        _write_beside(ax, title, named)
        title, named = "", []
    legend_above(ax, title, [*(line for line, _ in named), *handles])


def are_beside(names: Sequence[str]) -> bool:
    """Return whether lines are few enough, and their names short enough, to be named at ends."""
    return len(names) <= MOST_BESIDE and all(len(name) <= _MOST_BESIDE for name in names)


def _write_beside(ax: Axes, title: str, ends: list[tuple[Any, float]]) -> None:
    """Write names on the right of an axes, apart from one another, below what they are of."""
    to_axes, x = ax.transData + ax.transAxes.inverted(), ax.get_xlim()[1]
    apart = 1.35 * _line_height(ax) / ax.bbox.height
    ends = sorted(ends, key=lambda end: end[1])
    heights = np.array([float(to_axes.transform((x, height))[1]) for _, height in ends])
    places = heights.copy()
    for i in range(1, len(places)):  # upwards, then all back by what that moved them in the mean
        places[i] = max(places[i], places[i - 1] + apart)
    places -= (places - heights).mean()
    places += max(0.0, apart / 2 - places[0]) - max(0.0, places[-1] - 1 + apart)
    write: Style = {"transform": ax.transAxes, "size": SMALL}
    for place, (line, _) in zip(places, ends, strict=True):
        ax.text(1.02, place, line.get_label(), color=line.get_color(), va="center", **write)
    # on lines of a word each, as narrow as the names below
    told = title.partition(" (")[0].replace(" ", "\n")
    ax.text(1.02, places[-1] + 0.8 * apart, told, color=GREY, va="bottom", **write)


def _line_height(ax: Axes) -> float:
    """Return the height of a line of small text [dot]."""
    from matplotlib.font_manager import FontProperties

    return 1.2 * FontProperties(size=SMALL).get_size_in_points() * ax.figure.dpi / 72


def kind_numbers(kinds: Iterable[str]) -> dict[str, int]:
    """Return the numbers in `COLOURS` and `MARKERS` of the kinds of kernels of a figure."""
    found = {*kinds}
    order = [*_KINDS, *sorted(found - {*_KINDS})]
    return {kind: i for i, kind in enumerate(sorted(found, key=order.index))}


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width` characters, cut in the middle, without formulas."""
    # a dollar would open a formula, and a first _ hide a label from its legend
    text = " ".join(text.split())
    if len(text) > width:
        head = width // 2
        text = f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def folded(text: str, width: int) -> str:
    """Return a label on at most two lines, broken after a mark or blank, cut if it is too long."""
    if len(text) <= width:
        return shortened(text, width)

    def cost(cut: int) -> tuple[bool, bool, int]:
        longest = max(len(text[:cut].rstrip()), len(text) - cut)
        return longest > width, text[cut - 1] not in ".: ", longest

    cut = min((m.end() for m in re.finditer(r"[\s.:_-]+(?=.)", text)), key=cost, default=width)
    return "\n".join(shortened(line, width) for line in (text[:cut].rstrip(), text[cut:]))


def count_label(value: float, _place: float = 0) -> str:
    """Return a count as a tick shows it: 512, 16384, 16k, 2M."""
    from matplotlib.ticker import EngFormatter

    is_short = value >= _MOST_WRITTEN or (value >= 1e4 and value % 1000 == 0)
    return EngFormatter(sep="")(value) if is_short else f"{value:.6g}"


def label_room(axis: XAxis | YAxis, labels: Iterable[str]) -> float:
    """Return how far apart ticks must be for the longest of their labels [dot]."""
    label = axis.get_major_ticks(1)[0].label1
    wide = _DIGIT * max(map(len, labels)) if axis.axis_name == "x" else 1.0
    # a fifth to spare: the layout may still narrow the axes for labels beside them
    return 1.2 * wide * float(label.get_fontsize()) * axis.axes.figure.dpi / 72


def counts_axis(ax: Axes, values: Iterable[float], label: str) -> None:
    """Give an axes a logarithmic horizontal axis of counts, with as many ticks as have room."""
    from matplotlib.ticker import FixedLocator, LogLocator

    sizes = sorted({float(value) for value in values})
    low, high = sizes[0], sizes[-1]
    margin = (high / low) ** 0.04 if high > low else 2.0
    ax.set_xscale("log", base=2)
    ax.set(xlim=(low / margin, high * margin), xlabel=label)
    ax.minorticks_off()
    room = label_room(ax.xaxis, map(count_label, sizes))
    most = max(2, round(ax.bbox.width / room))
    base = 2 if high < _MOST_WRITTEN else 10
    places = ax.transData.transform([(size, 1) for size in sizes])[:, 0]
    is_apart = len(sizes) <= _MOST_NAMED and np.diff(places).min(initial=np.inf) > room
    named = FixedLocator(sizes, nbins=None if is_apart else most)
    is_named = is_apart or high / low < base**2
    ax.xaxis.set_major_locator(named if is_named else LogLocator(base, numticks=most))
    ax.xaxis.set_major_formatter(count_label)


def si_axis(*axes: XAxis | YAxis, unit: str = "") -> None:
    """Make axes logarithmic, with metric prefixes, which have no small exponents."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

    for axis in axes:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        wide = LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 100 else (1.0,), numticks=6)
        axis.set_major_locator(wide if high > 10 * low else MaxNLocator(4))
        axis.set_major_formatter(EngFormatter(unit, sep=" " if unit else ""))
        axis.minorticks_off()


def legend_above(
    ax: Axes, title: str = "", handles: Sequence[Any] | None = None, *more: Any, side: str = "left"
) -> Legend | None:
    """Put a legend above the axes, where nothing is drawn, in as many columns as fit.

    `more` are entries after those given, or else after those of what is drawn.
    """
    # from the right, it may reach over the labels of the vertical axis
    found = [*(ax.get_legend_handles_labels()[0] if handles is None else handles), *more]
    room = 0.96 * (ax.bbox.width if side == "left" else ax.figure.bbox.width)
    own: Style = {"handles": found, "title": shortened(title, 56) or None, "frameon": False}
    own |= {"fontsize": SMALL, "title_fontsize": SMALL, "alignment": "left", "loc": f"lower {side}"}
    own |= {"bbox_to_anchor": (float(side == "right"), 1), "borderpad": 0, "borderaxespad": 0.3}
    own |= {"labelspacing": 0.25, "columnspacing": 1.0, "handlelength": 2.0, "handletextpad": 0.5}
    for columns in range(min(len(found), _MOST_COLUMNS), 0, -1):
        legend = ax.legend(ncols=columns, **own)
        if columns == 1 or legend.get_window_extent().width <= room:
            return legend
    return None


def unity(ax: Axes, *, vertical: bool = False) -> None:
    """Draw the line at 1, where speculation changes nothing."""
    (ax.axvline if vertical else ax.axhline)(1, color="black", linewidth=0.6, zorder=1)


def break_even(label: str = "break-even") -> Line2D:
    """Return the legend entry of the line at 1."""
    return key(label, color="black", linewidth=0.8)


def rows_axis(ax: Axes, names: Sequence[str]) -> None:
    """Give an axes a vertical axis of names, from the top down."""
    ax.set_yticks(range(len(names)), names, size=SMALL)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def scaled(axis: XAxis | YAxis, scale: float) -> None:
    """Give an axis ticks in a smaller unit: of seconds in milliseconds, of shares in per cent."""
    axis.set_major_formatter(lambda value, _: f"{scale * value:g}")


def grouped(ax: Axes, cells: pd.DataFrame) -> None:
    """Draw a group of bars for each row of a table, with a bar for each of its columns."""
    width, places = 0.85 / len(cells.columns), np.arange(len(cells))
    for i, (name, heights) in enumerate(cells.items()):
        at = places + (i - (len(cells.columns) - 1) / 2) * width
        ax.bar(at, heights, width, label=shortened(str(name), 24), **filled(i))
    ax.tick_params(axis="x", length=0, labelsize=SMALL)
