"""Figures over the batch size: a line for each value of what else varies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MOST_MARKED = 20
_MOST_CHARACTERS = 36
_FOOT = 0.1
"""Share of the height that best draft lengths take below a line [-]."""
_APART = 0.04
"""Share of the width that two of them are apart at least [-]."""


def speedup(table: pd.DataFrame, ax: Axes, *, marks: bool = True) -> Axes:
    """Draw the speedup over the batch size, with a line for each set of other inputs.

    Parameters
    ----------
    table, ax
        Columns batch_size and speedup; a band between speedup_low and speedup_high, if given, is
        drawn of a single line, crosses are what was measured where there is such a column, and what
        does not fit in memory by max_batch_size or fits is pale. At most six lines, told apart by
        draft_length, context_length or other inputs such as target; best draft lengths, one for
        each batch size, make one line.
    marks
        Whether a dotted line stands where in_graph ends, if given, and numbers below a single line
        where best draft lengths change.

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
    """Draw the target efficiency over the batch size, with a line for each set of other inputs.

    Parameters
    ----------
    table, ax, marks
        As for `speedup`, with the column target_efficiency.
    """
    return over_batch_size(table, ax, "target_efficiency", marks=marks)


def over_batch_size(table: pd.DataFrame, ax: Axes, quantity: str, *, marks: bool = True) -> Axes:
    """Draw any column of numbers over the batch size, with a line for each set of other inputs.

    Parameters
    ----------
    table, ax, marks
        As for `speedup`, with the column that is the quantity.
    quantity
        Its name.
    """
    from matplotlib.patches import Patch

    ends = [f"{quantity}_low", f"{quantity}_high"]
    further = [name for name in (*ends, frames.MEASURED) if name in table]
    # nothing drafted has no interval
    rows = frames.checked(table, ["batch_size", quantity, *further], may_lack=further)
    frames.need_positive(rows, "batch_size")
    told, parts = frames.lines(rows, "batch_size", quantity)
    guide: Style = {"color": "black", "linewidth": 0.8}
    for i, (name, part) in enumerate(parts):
        _line(ax, part, quantity, i, style.shortened(name, _MOST_CHARACTERS))
    handles = ax.get_legend_handles_labels()[0]
    if len(parts) == 1 and {*ends} <= {*further}:
        band: Style = {"color": COLOURS[0], "alpha": 0.2, "linewidth": 0}
        part = parts[0][1]
        ax.fill_between(part["batch_size"], part[ends[0]], part[ends[1]], zorder=1, **band)
        handles.append(Patch(label="80 % interval", **band))
    if frames.MEASURED in rows:
        handles.append(style.key(frames.MEASURED, **style.points(5, marker="x")))
    if quantity in frames.RATIOS:
        style.unity(ax)
    if quantity == "speedup":
        handles.append(style.key("break-even", **guide))
    else:
        ax.set_ylim(0, None)
    ax.set_ylabel(frames.titled([quantity]))
    if frames.unit(quantity) == "s":
        style.in_milliseconds(ax.yaxis)
    style.counts_axis(ax, rows["batch_size"], frames.titled(["batch_size"]))
    if marks and _mark(ax, [part for _, part in parts]):
        handles.append(style.key("CUDA graphs end", linestyle=":", **guide))
    if not frames.fits(rows).all():
        pale: Style = {"color": "0.7", "markerfacecolor": "white", "marker": "o", "markersize": 3}
        handles.append(style.key("does not fit in memory", **pale))
    style.legend_above(ax, told, handles)
    return ax


def _line(ax: Axes, part: pd.DataFrame, quantity: str, i: int, label: str) -> None:
    """Draw points that fit in memory boldly, others palely, and measured ones as crosses."""
    x, y, inside = part["batch_size"], part[quantity], frames.fits(part)
    marker = style.MARKERS[i] if len(part) <= _MOST_MARKED else None
    bold = style.series(i, marker=marker)
    ax.plot(x[inside], y[inside], label=label or "predicted", **bold)
    if not inside.all():
        joined = ~inside | ~inside.shift(-1, fill_value=True)
        ax.plot(x[joined], y[joined], **(bold | {"alpha": 0.4, "marker": None}))
        points: Style = {"linestyle": "", "markerfacecolor": "white", "markersize": 3, "alpha": 0.6}
        ax.plot(x[~inside], y[~inside], **(bold | points))
    if frames.MEASURED in part:
        ax.plot(x, part[frames.MEASURED], **style.points(i, marker="x"))


def _mark(ax: Axes, parts: Sequence[pd.DataFrame]) -> bool:
    """Draw where CUDA graphs end, of one line the best draft lengths below; return whether any."""
    has_ends = False
    for i, part in enumerate(parts):
        held = part.get("in_graph", part["batch_size"]).astype(str)
        beyond = part["batch_size"][held == "False"]
        if not beyond.empty:
            colour = COLOURS[i] if len(parts) > 1 else "black"
            line: Style = {"color": colour, "linestyle": ":", "linewidth": 0.8, "zorder": 1}
            ax.axvline(beyond.iloc[0], _FOOT, **line)
            has_ends = True
    if len(parts) == 1 and "draft_length" in parts[0] and parts[0]["draft_length"].nunique() > 1:
        _number(ax, parts[0])
    return has_ends


def _number(ax: Axes, part: pd.DataFrame) -> None:
    """Write the best draft lengths below a line, where they change and have room."""
    low, high = ax.get_ylim()
    ax.set_ylim(low - _FOOT * (high - low), high)
    where, last = ax.get_xaxis_transform(), -1.0
    lengths = part["draft_length"]
    for size, length in part[lengths != lengths.shift()][["batch_size", "draft_length"]].to_numpy():
        place = ax.transAxes.inverted().transform(ax.transData.transform((size, 1)))[0]
        if place - last > _APART * max(1, len(f"{length:g}")):
            ax.text(size, 0.02, f"{length:g}", transform=where, ha="center", size=style.SMALL)
            last = place
    ax.set_xlabel(f"{ax.get_xlabel()}\nnumbers: draft length from there on")
