"""Figures over the batch size: a line for each value of what else varies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.core.prediction.columns import with_interval
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_MOST_MARKED = 20
_MOST_CHARACTERS = 36
_WIDE = 8.0
"""Largest over least time from which their axis is logarithmic [-]."""
_BOX: Style = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
_FOOT = 0.12
"""Share of the height of a logarithmic axis below its lines, for numbers [-]."""
_APART = 0.04
"""Share of the width that two of them are apart at least [-]."""
_AT_1 = {"speedup": "break-even", "utility": "break-even", "target_efficiency": "verifying is free"}
"""What 1 means."""
_TIMES = [with_interval("tpot_plain"), with_interval("forward_time")]
"""Columns of plain decoding's time per token."""
_FURTHER = (frames.GRAPHS, frames.MEASURED, *_TIMES[0], *_TIMES[1])
"""Columns of limits, of what was measured and of plain decoding."""
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
        best draft lengths, one for each batch size, make one line. The line breaks beyond a row's
        max_graph_batch_size.
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
    further = [name for name in (*_ends(quantity), *_FURTHER) if name in table]
    # nothing drafted has no interval, and not every engine has graphs
    rows = frames.checked(table, ["batch_size", quantity, *further], may_lack=further)
    frames.need_positive(rows, "batch_size")
    title, names, lines = frames.lines(rows, "batch_size", quantity)
    named, edges = list[tuple[Any, float]](), list[list[float]]()
    for i, (name, part) in enumerate(lines):
        pieces, turns = _pieces(part)
        line = _line(ax, pieces, quantity, i, style.shortened(name, _MOST_CHARACTERS))
        named.append((line, part[quantity].iloc[-1]))
        edges.append(turns)
    handles = _without(ax, rows, lines, quantity)
    colour = style.GREY if handles or len(lines) > 1 else COLOURS[0]
    if measured is None and frames.MEASURED in rows:
        measured = rows[rows[frames.MEASURED].notna()]
    are_beside = style.are_beside([name for name, _ in lines])  # else their entries say it
    if are_beside and not handles and (measured is not None or not lines[0][0]):
        handles.append(style.key("predicted", **style.series(0, color=colour)))
    if {*_ends(quantity)} <= {*rows}:
        handles.append(style.swatch("80 % interval", **style.band(colour)))
    if measured is not None:
        _crosses(ax, frames.measured(measured, quantity), names, lines)
        handles.append(style.key("measured", **style.crosses(5)))
    if quantity in _AT_1:
        style.unity(ax)
        handles.append(style.break_even(_AT_1[quantity]))
    _axes(ax, rows, quantity)
    if marks:
        handles += _mark(ax, edges)
        if len(lines) == 1 and "draft_length" in rows and rows["draft_length"].nunique() > 1:
            _number(ax, lines[0][1])
    if not frames.fits(rows).all():
        pale = style.series(0, color="0.7", mfc="white")
        handles.append(style.key("does not fit in memory", **pale))
    style.name_lines(ax, title, named, handles)
    return ax


def _ends(quantity: str) -> list[str]:
    """Return the columns of the interval of a quantity."""
    return [f"{quantity}_low", f"{quantity}_high"]


def _crosses(ax: Axes, found: pd.DataFrame, names: Sequence[str], lines: frames.Lines) -> None:
    """Draw what was measured: of each line those that agree with it, or all in black."""
    shared = [name for name in names if name in found]
    for i, (_, part) in enumerate(lines if shared else lines[:1]):
        own = found.merge(part[shared].drop_duplicates()) if shared else found
        look = style.crosses(i if shared else 5) | {"elinewidth": 0.8, "capsize": 2}
        ax.errorbar(own["batch_size"], own["value"], yerr=own.get(frames.SPREAD), **look)


def _axes(ax: Axes, rows: pd.DataFrame, quantity: str) -> None:
    """Give an axes its scales and labels: rates and wide times logarithmic, others from 0."""
    is_time, values = frames.unit(quantity) == "s", rows[quantity]
    if quantity == "throughput" or (is_time and values.max() > _WIDE * values.min() > 0):
        ax.margins(y=_FOOT)
        style.si_axis(ax.yaxis)
    else:
        ax.set_ylim(0, None)
    ax.set_ylabel(frames.titled([quantity]))
    if is_time:
        style.scaled(ax.yaxis, 1000)
    style.counts_axis(ax, rows["batch_size"], frames.titled(["batch_size"]))


def _pieces(part: pd.DataFrame) -> tuple[list[pd.DataFrame], list[float]]:
    """Return the points within and beyond CUDA graphs in turn, and where each turn is [request]."""
    sizes, limits = part["batch_size"], part.get(frames.GRAPHS, pd.Series(np.inf, part.index))
    beyond = sizes > limits
    # of best lengths, the graphs of one may end before another is best
    turns = (beyond != beyond.shift()) | (~beyond & (sizes > limits.shift()))
    pieces = [piece for _, piece in part.groupby(turns.cumsum())]
    edges = list[float]()
    for before, after in pairwise(pieces):
        outside = after.iloc[0] if beyond[after.index[0]] else before.iloc[-1]
        ends = before["batch_size"].iloc[-1], after["batch_size"].iloc[0]
        edges.append(float(np.clip(outside[frames.GRAPHS], *ends)))
    return pieces, edges


def _line(ax: Axes, pieces: Sequence[pd.DataFrame], quantity: str, i: int, label: str) -> Line2D:
    """Draw points that fit in memory boldly, others palely; return the entry of a legend."""
    is_marked = sum(map(len, pieces)) <= _MOST_MARKED
    bold = style.series(i, marker=style.MARKERS[i] if is_marked else None)
    for piece in pieces:
        x, y, inside = piece["batch_size"], piece[quantity], frames.fits(piece)
        ax.plot(x[inside], y[inside], label=label if piece is pieces[0] else "_", **bold)
        if not inside.all():
            joined = ~inside | ~inside.shift(-1, fill_value=True)
            ax.plot(x[joined], y[joined], **(bold | {"alpha": 0.4, "marker": None}))
            open_: Style = {"linestyle": "", "markerfacecolor": "white", "alpha": 0.6}
            ax.plot(x[~inside], y[~inside], **(bold | open_))
        _band(ax, x, piece.filter(_ends(quantity)), COLOURS[i])
    return style.key(label, **bold)


def _band(ax: Axes, x: pd.Series[float], ends: pd.DataFrame, colour: str) -> None:
    """Draw a band between both ends of intervals, if there are both."""
    if len(ends.columns) == 2:
        band = style.band(colour) | {"zorder": 1}
        ax.fill_between(x, *ends.to_numpy().T, **band)
        if len(x) == 1:  # no area
            ax.vlines(x, *ends.to_numpy().T, **(band | {"linewidth": 4}))


def _without(ax: Axes, rows: pd.DataFrame, lines: frames.Lines, quantity: str) -> list[Any]:
    """Draw plain decoding where the table has it, beside each line; return entries of a legend."""
    times = next((rows.filter(names) for names in _TIMES if names[0] in rows), None)
    if quantity not in _PLAIN or times is None:
        return []
    sizes = rows["batch_size"]
    plain = (1 / times).mul(sizes, axis=0) if quantity == "throughput" else times
    is_one = plain.iloc[:, 0].groupby(sizes).nunique().max() == 1
    once = sizes.drop_duplicates().sort_values()
    for i, part in enumerate([once] if is_one else [part["batch_size"] for _, part in lines]):
        colour, own = "black" if is_one else COLOURS[i], plain.loc[part.index]
        ax.plot(part, own.iloc[:, 0], color=colour, linewidth=0.8)
        _band(ax, part, own.iloc[:, 1:], colour)
    handles = [style.key("with speculation", **style.series(0))] if len(lines) == 1 else []
    label = "without speculation" + ("" if is_one else ", thin")
    return [*handles, style.key(label, color="black", linewidth=0.8)]


def _mark(ax: Axes, edges: Sequence[Sequence[float]]) -> list[Any]:
    """Draw where CUDA graphs end; return the entry of a legend, none where they do not."""
    flat = [edge for own in edges for edge in own]
    for i, own in enumerate(edges):
        for edge in own:
            colour = COLOURS[i] if flat.count(edge) == 1 < len(edges) else "black"
            ax.axvline(edge, zorder=1, **(style.DOTTED | {"color": colour}))
    return [style.key("CUDA graphs end", **style.DOTTED)] if flat else []


def _number(ax: Axes, part: pd.DataFrame) -> None:
    """Write the best draft lengths below a line, where they change and have room."""
    lengths, last = part["draft_length"], -1.0
    for size, length in part[lengths != lengths.shift()][["batch_size", "draft_length"]].to_numpy():
        place = ax.transAxes.inverted().transform(ax.transData.transform((size, 1)))[0]
        if place - last > _APART * max(1, len(f"{length:g}")):
            own: Style = {"ha": "center", "size": style.SMALL, "bbox": _BOX}
            ax.text(size, 0.02, f"{length:g}", transform=ax.get_xaxis_transform(), **own)
            last = place
    ax.set_xlabel(f"{ax.get_xlabel()}\nnumbers: draft length from there on")
