"""Figures over the batch size: a line for each value of what else varies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_MARKED = 20
_MOST_CHARACTERS = 36
_WIDE = 8.0
"""Largest over least time from which their axis is logarithmic [-]."""
_FOOT = 0.1
"""Share of the height that best draft lengths take below a line [-]."""
_APART = 0.04
"""Share of the width that two of them are apart at least [-]."""
_AT_1 = {"speedup": "break-even", "utility": "break-even", "target_efficiency": "verifying is free"}
"""What 1 means."""
_WITHOUT = ("tpot_plain", "forward_time")
"""Columns from which plain decoding is known."""
_PLAIN = ("tpot", "throughput", "step_time")
"""Quantities that plain decoding has too."""


def speedup(
    table: pd.DataFrame, ax: Axes, *, marks: bool = True, measured: pd.DataFrame | None = None
) -> Axes:
    """Draw the speedup over the batch size, with a line for each set of other inputs.

    Parameters
    ----------
    table, ax
        Columns batch_size and speedup; a band between speedup_low and speedup_high, if given, is
        drawn of each line, and what does not fit in memory by max_batch_size or fits is pale. At
        most six lines, told apart by draft_length, context_length or other inputs such as target;
        best draft lengths, one for each batch size, make one line. Where a row's batch_size exceeds
        its max_graph_batch_size, the line breaks: both parts are continued to that size.
    marks
        Whether a dotted line stands where CUDA graphs end, and numbers below a single line where
        best draft lengths change.
    measured
        What was measured, drawn as crosses: columns batch_size and speedup, and those that tell
        lines apart where a cross belongs to one.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"batch_size": [1, 8], "speedup": [1.2, 1.5]})
    >>> speedup(table, Figure().add_subplot()).get_ylabel()
    'speedup (×)'
    """
    return over_batch_size(table, ax, "speedup", marks=marks, measured=measured)


def target_efficiency(
    table: pd.DataFrame, ax: Axes, *, marks: bool = True, measured: pd.DataFrame | None = None
) -> Axes:
    """Draw the target efficiency over the batch size, with a line for each set of other inputs.

    Parameters
    ----------
    table, ax, marks, measured
        As for `speedup`, with the column target_efficiency.
    """
    return over_batch_size(table, ax, "target_efficiency", marks=marks, measured=measured)


def over_batch_size(
    table: pd.DataFrame,
    ax: Axes,
    quantity: str,
    *,
    marks: bool = True,
    measured: pd.DataFrame | None = None,
) -> Axes:
    """Draw any column of numbers over the batch size, with a line for each set of other inputs.

    Plain decoding is drawn beside a time per token, a step and a throughput.

    Parameters
    ----------
    table, ax, marks, measured
        As for `speedup`, with the column that is the quantity.
    quantity
        Its name.
    """
    ends = (f"{quantity}_low", f"{quantity}_high")
    further = [n for n in (*ends, frames.GRAPHS, *_WITHOUT, frames.MEASURED) if n in table]
    # nothing drafted has no interval, and not every engine has graphs
    rows = frames.checked(table, ["batch_size", quantity, *further], may_lack=further)
    frames.need_positive(rows, "batch_size")
    title, names, lines = frames.lines(rows, "batch_size", quantity)
    named = [_line(ax, part, quantity, i, name) for i, (name, part) in enumerate(lines)]
    handles = _without(ax, rows, lines, quantity)
    if not (handles or len(lines) > 1 or lines[0][0]):
        handles.append(style.key("predicted", **style.series(0)))
    if {*ends} <= {*further}:
        handles.append(style.swatch("80 % interval", COLOURS[0] if len(lines) == 1 else style.GREY))
    if measured is None and frames.MEASURED in rows:
        measured = rows[rows[frames.MEASURED].notna()]
    if measured is not None:
        _crosses(ax, frames.measured(measured, quantity), names, lines)
        handles.append(style.key("measured", **style.crosses(5)))
    if quantity in _AT_1:
        style.unity(ax)
        handles.append(style.key(_AT_1[quantity], color="black", linewidth=0.8))
    graphs = _mark(ax, [part for _, part in lines]) if marks else []
    _axes(ax, rows, quantity)
    if marks and len(lines) == 1 and "draft_length" in rows and rows["draft_length"].nunique() > 1:
        _number(ax, lines[0][1])
    handles += graphs
    if not frames.fits(rows).all():
        pale: Style = {"color": "0.7", "markerfacecolor": "white", "marker": "o", "markersize": 3}
        handles.append(style.key("does not fit in memory", **pale))
    style.name_lines(ax, title, named, handles)
    return ax


def _crosses(
    ax: Axes, found: pd.DataFrame, names: Sequence[str], lines: Sequence[tuple[str, pd.DataFrame]]
) -> None:
    """Draw what was measured: of each line those that agree with it, or all in black."""
    shared = [name for name in names if name in found]
    for i, (_, part) in enumerate(lines if shared else lines[:1]):
        own = found.merge(part[shared].drop_duplicates()) if shared else found
        ax.plot(own["batch_size"], own["value"], **style.crosses(i if shared else 5))


def _axes(ax: Axes, rows: pd.DataFrame, quantity: str) -> None:
    """Give an axes its scales and labels: rates and wide times logarithmic, others from 0."""
    is_time, values = frames.unit(quantity) == "s", rows[quantity]
    if quantity == "throughput" or (is_time and values.max() > _WIDE * values.min() > 0):
        ax.set_yscale("log")
        style.si_axis(ax.yaxis)
    else:
        ax.set_ylim(0, None)
    ax.set_ylabel(frames.titled([quantity]))
    if is_time:
        style.in_milliseconds(ax.yaxis)
    style.counts_axis(ax, rows["batch_size"], frames.titled(["batch_size"]))


def _pieces(part: pd.DataFrame) -> tuple[list[pd.DataFrame], list[float]]:
    """Return the points within and beyond CUDA graphs in turn, and where each turn is [request].

    Several points are continued to there: column ``own`` is False of a point that continues others.
    """
    if frames.GRAPHS not in part:
        return [part.assign(own=True)], []
    beyond = part["batch_size"] > part[frames.GRAPHS]
    turns = (beyond != beyond.shift()).cumsum()
    pieces = [piece.assign(own=True) for _, piece in part.groupby(turns)]
    edges = list[float]()
    for i, (before, after) in enumerate(pairwise(list(pieces))):
        outside = after.iloc[0] if beyond[after.index[0]] else before.iloc[-1]
        last, first = before["batch_size"].iloc[-1], after["batch_size"].iloc[0]
        edges.append(float(np.clip(outside[frames.GRAPHS], last, first)))
        pieces[i] = pd.concat([pieces[i], _continued(before.iloc[::-1], edges[-1])])
        pieces[i + 1] = pd.concat([_continued(after, edges[-1]), after])
    return pieces, edges


def _continued(points: pd.DataFrame, edge: float) -> pd.DataFrame:
    """Return the point at which the line through the first two is at a batch size; none of one.

    What is positive goes on by powers of the batch size, as times and rates do.
    """
    first = points.iloc[:1].assign(batch_size=edge, own=False)
    if len(points) == 1:
        return points[:0]
    sizes = np.log2(points["batch_size"].to_numpy()[:2])
    share = (np.log2(edge) - sizes[0]) / (sizes[0] - sizes[1])
    names = points.select_dtypes("number").columns.drop("batch_size")
    near, next_ = points[names].to_numpy(dtype=float)[:2]
    is_power = (near > 0) & (next_ > 0)
    scale = np.where(is_power, next_, 1.0)
    powers = np.where(is_power, near, 1.0) * (np.where(is_power, near, 1.0) / scale) ** share
    first[names] = np.where(is_power, powers, near + share * (near - next_))[None]
    return first


def _line(ax: Axes, part: pd.DataFrame, quantity: str, i: int, name: str) -> style.End:
    """Draw points that fit in memory boldly, others palely; return where the line ends."""
    shape: Style = {"marker": style.MARKERS[i] if len(part) <= _MOST_MARKED else None}
    shape |= {"markerfacecolor": COLOURS[i], "markeredgecolor": COLOURS[i]}
    bold, (pieces, _) = style.series(i, **shape), _pieces(part)
    for piece in pieces:
        x, y, inside = piece["batch_size"], piece[quantity], frames.fits(piece)
        own = piece["own"].to_numpy()
        told = name if piece is pieces[0] else "_"
        every = list(np.flatnonzero(own[inside]))
        ax.plot(x[inside], y[inside], label=told, markevery=every, **bold)
        if not inside.all():
            joined = ~inside | ~inside.shift(-1, fill_value=True)
            ax.plot(x[joined], y[joined], **(bold | {"alpha": 0.4, "marker": None}))
            open_: Style = {"linestyle": "", "markerfacecolor": "white", "alpha": 0.6}
            ax.plot(x[~inside & own], y[~inside & own], **(bold | open_))
        if f"{quantity}_low" in piece and f"{quantity}_high" in piece:
            band = piece[f"{quantity}_low"], piece[f"{quantity}_high"]
            ax.fill_between(x, *band, zorder=1, color=COLOURS[i], alpha=0.2, linewidth=0)
    for before, after in pairwise(pieces):
        ends = before.iloc[-1], after.iloc[0]
        if any(end["own"] for end in ends):
            continue  # a single point has no line to the edge
        across = [end["batch_size"] for end in ends], [end[quantity] for end in ends]
        ax.plot(*across, color=COLOURS[i], linewidth=0.6)
    return style.End(style.shortened(name, _MOST_CHARACTERS), part[quantity].iloc[-1], bold)


def _without(
    ax: Axes, rows: pd.DataFrame, lines: Sequence[tuple[str, pd.DataFrame]], quantity: str
) -> list[Any]:
    """Draw plain decoding where the table has it, beside each line; return entries of a legend."""
    time = rows.get("tpot_plain", rows.get("forward_time"))
    if quantity not in _PLAIN or time is None:
        return []
    plain = rows["batch_size"] / time if quantity == "throughput" else time
    is_one = plain.groupby(rows["batch_size"]).nunique().max() == 1
    for i, (_, part) in enumerate(lines):
        colour = "black" if is_one else COLOURS[i]
        ax.plot(part["batch_size"], plain[part.index], color=colour, linewidth=0.8)
    label = "without speculation" + ("" if is_one else ", thin")
    with_ = [style.key("with speculation", **style.series(0))] if len(lines) == 1 else []
    return [*with_, style.key(label, color="black", linewidth=0.8)]


def _mark(ax: Axes, parts: Sequence[pd.DataFrame]) -> list[Any]:
    """Draw where CUDA graphs end; return the entry of a legend, none where they do not."""
    look: Style = {"linestyle": ":", "linewidth": 0.8}
    ends = [(edge, COLOURS[i]) for i, part in enumerate(parts) for edge in _pieces(part)[1]]
    edges = [edge for edge, _ in ends]
    for edge, colour in dict(ends).items():
        is_own = edges.count(edge) == 1 < len(parts)
        ax.axvline(edge, color=colour if is_own else "black", zorder=1, **look)
    return [style.key("CUDA graphs end", color="black", **look)] if ends else []


def _number(ax: Axes, part: pd.DataFrame) -> None:
    """Write the best draft lengths below a line, where they change and have room."""
    low, high = ax.get_ylim()
    is_log = ax.get_yscale() == "log"
    ax.set_ylim(low * (low / high) ** _FOOT if is_log else low - _FOOT * (high - low), high)
    where, last = ax.get_xaxis_transform(), -1.0
    lengths = part["draft_length"]
    for size, length in part[lengths != lengths.shift()][["batch_size", "draft_length"]].to_numpy():
        place = ax.transAxes.inverted().transform(ax.transData.transform((size, 1)))[0]
        if place - last > _APART * max(1, len(f"{length:g}")):
            told = ax.text(
                size, 0.02, f"{length:g}", transform=where, ha="center", size=style.SMALL
            )
            told.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
            last = place
    ax.set_xlabel(f"{ax.get_xlabel()}\nnumbers: draft length from there on")
