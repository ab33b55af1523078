"""Figures over the batch size: a line for each value of what else varies, and letters along it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from specmodel.layers.work import CAUSES
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.transforms import BboxBase

_MOST_MARKED, _MOST_BANDS = 20, 3
_MOST_CHARACTERS = 36
_PLACES = [(0, 7), (0, -7), (5, 6), (-5, 6), (5, -6), (-5, -6), (9, 0), (-9, 0), (0, 10), (0, -10)]
"""Where letters may stand beside a point, in points of a font."""
_CHARACTERS = 1.9
"""Characters that a line holds for each size of its font."""
_CAUSES = {cause: cause[0].upper() for cause in CAUSES} | {"communication": "M"}
_LETTERS = {letter: cause for cause, letter in _CAUSES.items()} | {"G": "no CUDA graph"}
"""What bends a curve from a point on, by the letter that stands there."""


def speedup(table: pd.DataFrame, ax: Axes, *, marks: bool = True) -> Axes:
    """Draw the speedup over the batch size, a line for each value of what else varies.

    Parameters
    ----------
    table, ax
        Columns batch_size and speedup; bands between speedup_low and speedup_high, if given, are
        drawn for at most three lines, and what does not fit in memory by max_batch_size or fits is
        pale. At most six lines, told apart by draft_length, context_length or other inputs such as
        target; best draft lengths, one for each batch size, make one line.
    marks
        Whether letters stand where limited_by changes and where in_graph ends, if given, and
        numbers where best draft lengths change.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"batch_size": [1, 8], "speedup": [1.2, 1.5]})
    >>> speedup(table, Figure().add_subplot()).get_ylabel()
    'speedup (×)'
    """
    return over_batch_size(table, ax, "speedup", marks=marks)


def target_efficiency(table: pd.DataFrame, ax: Axes, *, marks: bool = True) -> Axes:
    """Draw the target efficiency over the batch size, a line for each value of what else varies.

    Parameters
    ----------
    table, ax, marks
        As for `speedup`, with the column target_efficiency.
    """
    return over_batch_size(table, ax, "target_efficiency", marks=marks)


def bands_told(kind: str, table: pd.DataFrame) -> str:
    """Say that intervals of a table are not drawn, if they are not though it has them."""
    if kind not in ("speedup", "target_efficiency") or f"{kind}_low" not in table:
        return ""
    _, parts = frames.lines(table, "batch_size", kind)
    told = f" Intervals are drawn of at most {_MOST_BANDS} lines; --where keeps some."
    return told if len(parts) > _MOST_BANDS else ""


def over_batch_size(table: pd.DataFrame, ax: Axes, quantity: str, *, marks: bool = True) -> Axes:
    """Draw any column of numbers over the batch size, a line for each value of what else varies.

    Parameters
    ----------
    table, ax, marks
        As for `speedup`, with the column that is the quantity.
    quantity
        Its name.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ends = [f"{quantity}_low", f"{quantity}_high"]
    further = [name for name in ends if name in table]
    # nothing drafted has no interval
    rows = frames.checked(table, ["batch_size", quantity, *further], may_lack=ends)
    frames.need_positive(rows, "batch_size")
    told, parts = frames.lines(rows, "batch_size", quantity)
    has_bands = {*ends} <= {*further} and len(parts) <= _MOST_BANDS
    band: Style = {"alpha": 0.2, "linewidth": 0}
    for i, (name, part) in enumerate(parts):
        if has_bands:
            reach = part["batch_size"], part[ends[0]], part[ends[1]]
            ax.fill_between(*reach, color=COLOURS[i], zorder=1, **band)
        _line(ax, part, quantity, i, style.shortened(name, _MOST_CHARACTERS))
    if quantity in frames.RATIOS:
        style.unity(ax)
    if quantity != "speedup":
        ax.set_ylim(0, None)
    ax.set_ylabel(frames.titled([quantity]))
    if frames.unit(quantity) == "s":
        style.in_milliseconds(ax.yaxis)
    style.counts_axis(ax, rows["batch_size"], frames.titled(["batch_size"]))
    if marks and len(parts) <= _MOST_BANDS:
        _mark(ax, [part for _, part in parts], quantity)
    handles = ax.get_legend_handles_labels()[0]
    if has_bands:
        of_all: Style = {"facecolor": style.PALE, "edgecolor": "0.6", "linewidth": 0.4}
        swatch = {"facecolor": COLOURS[0], **band} if len(parts) == 1 else of_all
        handles.append(Patch(label="80 % interval", **swatch))
    if not frames.fits(rows).all():
        pale: Style = {"color": "0.7", "markerfacecolor": "white", "marker": "o", "markersize": 3}
        handles.append(Line2D([], [], label="does not fit in memory", **pale))
    style.legend_above(ax, told, handles)
    return ax


def _line(ax: Axes, part: pd.DataFrame, quantity: str, i: int, label: str) -> None:
    """Draw the points that fit in memory boldly, and the others palely."""
    x, y, inside = part["batch_size"], part[quantity], frames.fits(part)
    marker = style.MARKERS[i] if len(part) <= _MOST_MARKED else None
    bold = style.series(i, marker=marker)
    ax.plot(x[inside], y[inside], label=label or "_none", **bold)
    if not inside.all():
        joined = ~inside | ~inside.shift(-1, fill_value=True)
        ax.plot(x[joined], y[joined], **(bold | {"alpha": 0.4, "marker": None}))
        points: Style = {"linestyle": "", "markerfacecolor": "white", "markersize": 3, "alpha": 0.6}
        ax.plot(x[~inside], y[~inside], **(bold | points))


def _mark(ax: Axes, parts: Iterable[pd.DataFrame], quantity: str) -> None:
    """Write draft lengths and letters where lines bend, and below the axis what they mean.

    What is written stands close to its point and clear of lines and of what else is written, or not
    at all.
    """
    from matplotlib.patheffects import withStroke

    ax.autoscale_view()  # which lines wait for
    lines = [line.get_path().transformed(line.get_transform()) for line in ax.lines]
    point = ax.figure.dpi / 72
    taken: list[BboxBase] = []
    used = set[str]()
    for i, part in enumerate(parts):
        own: Style = {"ha": "center", "va": "center", "size": 6, "color": COLOURS[i]}
        own["path_effects"] = [withStroke(linewidth=1.5, foreground="white")]
        for place, letters in _bends(part, quantity):
            text = ax.annotate(letters, place, (0, 0), textcoords="offset points", **own)
            for apart in _PLACES:
                text.set_position(apart)
                box = text.get_window_extent().padded(point)  # the layout may move lines
                is_inside = ax.bbox.containsx(box.x0) and ax.bbox.containsx(box.x1)
                is_inside &= ax.bbox.containsy(box.y0) and ax.bbox.containsy(box.y1)
                is_clear = not any(line.intersects_bbox(box, filled=False) for line in lines)
                if is_inside and is_clear and not box.count_overlaps(taken):
                    taken.append(text.get_window_extent())
                    used |= {*letters}
                    break
            else:
                text.remove()
    # blanks that no line is broken at
    told = [f"{n} {words}".replace(" ", "\xa0") for n, words in _LETTERS.items() if n in used]
    notes = ["numbers: draft length"] if any(map(str.isdigit, used)) else []
    notes += [f"limited by {', '.join(told)}"] if told else []
    size = float(ax.xaxis.label.get_fontsize()) * point
    note = textwrap.wrap("; ".join(notes), int(_CHARACTERS * ax.bbox.width / size))
    ax.set_xlabel("\n".join([ax.get_xlabel(), *note]))


def _bends(part: pd.DataFrame, quantity: str) -> list[tuple[tuple[float, float], str]]:
    """Return where a line bends: at another draft length, by another limit, or past CUDA graphs."""
    columns = ["draft_length", "limited_by", "in_graph"]
    told = part.reindex(columns=columns).astype(object).fillna("")
    has_lengths = told["draft_length"].nunique() > 1  # otherwise one for the whole line
    told["draft_length"] = told["draft_length"].map(frames.plain) if has_lengths else ""
    told["limited_by"] = told["limited_by"].map(_CAUSES).fillna("")
    told["in_graph"] = told["in_graph"].map(lambda holds: "G" * (str(holds) == "False"))
    changed = told.where(told != told.shift(fill_value=""), "").agg(" ".join, axis=1)
    places = zip(part["batch_size"], part[quantity], strict=True)
    letters = changed.str.split().str.join(" ")
    return [(place, told) for place, told in zip(places, letters, strict=True) if told]
