"""Draw figures over the batch size, with a line for each value of other inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from specmodel.core.prediction.columns import with_interval
from specmodel.show import labels
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, Axes, Style

_MOST_MARKED = 20
_MOST_CHARACTERS = 36
_WIDE = 8.0
"""Largest over least time from which their axis is logarithmic [-]."""
_APART_BARS = 2.2
"""Points between two lines that have intervals."""
_GRAPHS = dict.fromkeys((frames.GRAPHS, frames.PLAIN_GRAPHS), np.inf)
"""Columns of the end of CUDA graphs, with the value of rows without an end."""
_PLAIN_END: Style = style.DOTTED | {"linestyle": (0, (5, 2, 1, 2))}
"""Style of the line where CUDA graphs of plain decoding end."""
Table: TypeAlias = pd.DataFrame
Edges: TypeAlias = list[tuple[float, int]]
"""Batch sizes where CUDA graphs end, with the number of the line, -1 of plain decoding."""
_FOOT = 0.12
"""Share of the height of a logarithmic axis below its lines, for numbers [-]."""
_APART = 0.04
"""Smallest distance between two of these numbers, as a share of the width [-]."""
_AT_1 = {"speedup": "break-even", "utility": "break-even", "target_efficiency": "verifying is free"}
"""Meaning of the line at 1, by quantity."""
_TIMES = [with_interval("tpot_plain"), with_interval("forward_time")]
"""Columns of the time per token of plain decoding."""
_FURTHER = (frames.GRAPHS, frames.PLAIN_GRAPHS, frames.MEASURED, *_TIMES[0], *_TIMES[1])
"""Columns of limits, of measurements and of plain decoding."""
_LEVEL: Style = {"marker": 0, "markersize": 6, "markeredgewidth": 2, "linestyle": ""}
"""A tick on the left of an axes."""
_PLAIN = ("tpot", "throughput", "step_time")
"""Quantities that plain decoding has too."""


def speedup(table: Table, ax: Axes, *, marks: bool = True, measured: Table | None = None) -> Axes:
    """Draw the speedup over the batch size, with a line for each set of other inputs.

    Parameters
    ----------
    table, ax
        Columns batch_size and speedup. Each line has a band between speedup_low and speedup_high,
        if given, and is pale where max_batch_size or fits says that it does not fit in memory. At
        most six lines differ in draft_length, context_length or other inputs such as target. Best
        draft lengths, one for each batch size, make one line. The line breaks beyond a row's
        max_graph_batch_size, and a ratio beyond max_graph_batch_size_plain.
    marks
        Whether to draw a dotted line where CUDA graphs end, and numbers below a single line where
        the best draft length changes.
    measured
        Measurements to draw as crosses: columns batch_size and speedup, and the columns that
        distinguish lines if a cross belongs to one. A missing batch size gives a tick to
        the left of the axes.

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
    table: Table, ax: Axes, *, marks: bool = True, measured: Table | None = None
) -> Axes:
    """Draw the target efficiency over the batch size, with a line for each set of other inputs.

    Parameters
    ----------
    table, ax, marks, measured
        As for `speedup`, with the column target_efficiency.
    """
    return over_batch_size(table, ax, "target_efficiency", marks=marks, measured=measured)


def over_batch_size(
    table: Table, ax: Axes, quantity: str, *, marks: bool = True, measured: Table | None = None
) -> Axes:
    """Draw any column of numbers over the batch size, with a line for each set of other inputs.

    Figures of the time per token, the step time and the throughput also have plain decoding.

    Parameters
    ----------
    table, ax, marks, measured
        As for `speedup`, with the column that is the quantity.
    quantity
        Its name.
    """
    further = [name for name in (*_ends(quantity), *_FURTHER) if name in table]
    # rows without a draft have no interval, and not every engine has graphs
    rows = frames.checked(table, ["batch_size", quantity, *further], may_lack=further)
    frames.need_positive(rows, "batch_size")
    rows = rows.assign(**{name: rows.get(name, np.inf) for name in _GRAPHS}).fillna(_GRAPHS)
    title, names, lines = frames.lines(rows, "batch_size", quantity)
    named, edges = list[tuple[Any, Any]](), Edges()
    marker = {} if max(len(part) for _, part in lines) <= _MOST_MARKED else {"marker": None}
    limits = [frames.GRAPHS] if quantity in _PLAIN else [*_GRAPHS]
    are_moved = {*_ends(quantity)} <= {*rows} and not marker
    count = len(lines) + (quantity in _PLAIN)  # plain decoding is last
    places = style.side_by_side(ax, ax.transData, count, are_moved * _APART_BARS)
    for i, (name, part) in enumerate(lines):
        look = style.series(i, label=labels.shortened(name, _MOST_CHARACTERS), **marker)
        look["transform"], pieces = places[i], _pieces(part, limits, i, edges)
        longest = max(pieces, key=lambda piece: np.ptp(np.log(piece["batch_size"])))
        ends = part if quantity == "throughput" else longest  # leaders would cross rising lines
        named.append((style.key(**look), ends[["batch_size", quantity]].to_numpy()[-1]))
        for piece in pieces:
            _line(ax, piece, quantity, look, _turn(i, lines))
            look["label"] = "_"
    handles = _without(ax, rows, lines, quantity, edges, places)
    colour = style.GREY if handles or len(lines) > 1 else COLOURS[0]
    if measured is None and frames.MEASURED in rows:
        measured = rows[rows[frames.MEASURED].notna()]
    are_beside = style.are_beside([name for name, _ in lines])  # else their legend entries do
    if are_beside and not handles and (measured is not None or not lines[0][0]):
        handles.append(style.key("predicted", **style.series(0, color=colour, **marker)))
    handles += _interval_key(rows, quantity, colour, len(lines))
    handles += _crosses(ax, measured, quantity, names, lines)
    if quantity in _AT_1:
        handles.append(style.unity(ax, _AT_1[quantity]))
    _axes(ax, rows, quantity, 1.2 if are_beside and lines[0][0] else 1)
    if marks:
        handles += _mark(ax, edges, len(lines)) or _told(rows)
        _number(ax, lines)
    if not frames.fits(rows).all():
        pale = style.series(0, color="0.7", mfc="white", **marker)
        handles.append(style.key("does not fit in memory", **pale))
    style.name_lines(ax, title, named, handles)
    return ax


def _interval_key(rows: Table, quantity: str, colour: str, num_lines: int) -> list[Any]:
    """Return the legend entry for intervals, a band or bars; [] without intervals."""
    if not {*_ends(quantity)} <= {*rows}:
        return []
    bar: Style = {"color": colour, "marker": "|", "markersize": 8, "markeredgewidth": 0.7}
    area = style.swatch("80 % interval", **style.band(colour))
    return [area if num_lines == 1 else style.key("80 % interval", "", **bar)]


def _ends(quantity: str) -> list[str]:
    """Return the columns of the interval of a quantity."""
    return [f"{quantity}_low", f"{quantity}_high"]


def _turn(i: int, lines: frames.Lines) -> float | None:
    """Return the offset of the bars of line `i` between two places; None for a single line."""
    return i / len(lines) if len(lines) > 1 else None


def _crosses(ax: Axes, found: Any, quantity: str, by: list[str], lines: frames.Lines) -> list[Any]:
    """Draw measurements, in the colour of the line to which they belong, or all in black.

    A measurement at an unknown batch size is a tick on the left. Return legend entries.
    """
    if found is None:
        return []
    found = frames.measured(found, quantity)
    shared = [name for name in by if name in found]
    for i, (_, part) in enumerate(lines if shared else lines[:1]):
        own = found.merge(part[shared].drop_duplicates()) if shared else found
        at, no_size = own[own["batch_size"].notna()], own[own["batch_size"].isna()]
        look = style.crosses(i if shared else 5) | {"elinewidth": 0.8, "capsize": 2}
        ax.errorbar(at["batch_size"], at["value"], yerr=at.get(frames.SPREAD), **look)
        at_edge = _LEVEL | {"color": look["color"], "transform": ax.get_yaxis_transform()}
        if len(no_size):
            ax.plot([0] * len(no_size), no_size["value"], clip_on=False, **at_edge)
    is_known = found["batch_size"].notna()
    level = style.key("measured, batch size not given", color="black", **_LEVEL)
    told = {style.key("measured", **style.crosses(5)): is_known.any(), level: ~is_known.all()}
    return [entry for entry, is_drawn in told.items() if is_drawn]


def _axes(ax: Axes, rows: Table, quantity: str, spare: float) -> None:
    """Set scales and labels: logarithmic for rates and wide ranges of times, others from 0."""
    is_time, values = labels.unit(quantity) == "s", rows[quantity]
    if quantity == "throughput" or (is_time and values.max() > _WIDE * values.min() > 0):
        ax.margins(y=_FOOT)
        style.si_axis(ax.yaxis)
    else:
        ax.set_ylim(0, None)
    ax.set_ylabel(labels.titled([quantity]))
    if is_time:
        style.scaled(ax.yaxis, 1000)
    style.counts_axis(ax, rows["batch_size"], labels.titled(["batch_size"]), spare)


def _pieces(part: pd.DataFrame, limits: Sequence[str], i: int, edges: Edges) -> list[pd.DataFrame]:
    """Return the pieces of a line between the ends of CUDA graphs in the columns `limits`.

    `edges` receives these ends [request], with the number `i` of the line or -1 for plain decoding.
    """
    sizes, every = part["batch_size"], pd.Series(False, part.index)
    for name in limits:
        most, before = part[name], part[name].shift()
        beyond = sizes > most
        # the graphs of one draft length may end before another length is best
        turns = (beyond != beyond.shift(fill_value=beyond.iloc[0])) | (~beyond & (sizes > before))
        ends = most.where(beyond, before)[turns].clip(sizes.shift()[turns], sizes[turns])
        edges += [(end, i if name == frames.GRAPHS else -1) for end in ends]
        every |= turns
    return [piece for _, piece in part.groupby(every.cumsum())]


def _line(ax: Axes, piece: Table, quantity: str, look: Style, turn: float | None) -> None:
    """Draw points and their intervals; points that do not fit in memory are pale."""
    x, y, inside = piece["batch_size"], piece[quantity], frames.fits(piece)
    joined = ~inside | ~inside.shift(-1, fill_value=True)
    drawn = [*piece.filter([quantity, *_ends(quantity)])]  # moved lines do not set the limits
    ax.update_datalim(piece.melt("batch_size", drawn)[["batch_size", "value"]])
    ax.plot(x[inside], y[inside], **look)
    if not inside.all():
        pale: Style = look | {"label": "_", "alpha": 0.4}
        ax.plot(x[joined], y[joined], **pale | {"marker": None})
        hollow: Style = {"linestyle": "", "markerfacecolor": "white", "alpha": 0.6}
        ax.plot(x[~inside], y[~inside], **pale | hollow)
    for are, alpha in ((inside, 0.2), (joined, 0.08)):
        _intervals(ax, piece[are], _ends(quantity), look, alpha, turn)


def _intervals(ax: Axes, part: Table, ends: Any, line: Style, alpha: float, turn: Any) -> None:
    """Draw intervals as a band, or as bars at the points, if the table has both ends."""
    if len(part.filter(ends).columns) < 2 or part.empty:
        return
    x, (low, high) = part["batch_size"], part[ends].to_numpy().T
    look = style.band(line["color"]) | {"zorder": 1, "alpha": alpha}
    if turn is None and len(x) > 1:
        ax.fill_between(x, low, high, **look)
        return
    look |= {"linewidth": 4} if turn is None else {"linewidth": 0.7, "alpha": 3.5 * alpha}
    places = 2 ** (turn or 0) * np.geomspace(x.min(), x.max(), 2 + int(np.log2(x.max() / x.min())))
    some = np.searchsorted(x, places).clip(max=len(x) - 1) if len(x) > _MOST_MARKED else slice(None)
    ax.vlines(x.to_numpy()[some], low[some], high[some], transform=line["transform"], **look)


def _without(ax: Axes, rows: Table, lines: Any, quantity: str, edges: Edges, at: Any) -> list[Any]:
    """Draw plain decoding for each line, if the table has it; return legend entries."""
    times = next((rows.filter(names) for names in _TIMES if names[0] in rows), None)
    if quantity not in _PLAIN or times is None:
        return []
    plain = (1 / times).mul(rows["batch_size"], axis=0) if quantity == "throughput" else times
    plain = plain.set_axis([quantity, *_ends(quantity)][: len(times.columns)], axis=1)
    plain = plain.join(rows[["batch_size", *_GRAPHS]])
    is_one = plain.groupby("batch_size")[quantity].nunique().max() == 1
    once = plain.drop_duplicates("batch_size").sort_values("batch_size")
    thin = {"linewidth": 0.8, "markersize": 3, "marker": "." * (len(once) <= _MOST_MARKED)}
    for i, part in enumerate([once] if is_one else [plain.loc[own.index] for _, own in lines]):
        look = thin | {"color": "black" if is_one else COLOURS[i]}
        look["transform"] = at[-1] if is_one else at[i]
        for piece in _pieces(part, [frames.PLAIN_GRAPHS], i, edges):
            _line(ax, piece, quantity, look, _turn(i, lines))
    handles = [style.key("with speculation", **style.series(0))] if len(lines) == 1 else []
    label = "without speculation" + ("" if is_one else ", thin")
    return [*handles, style.key(label, color="black", **thin)]


def _mark(ax: Axes, edges: Edges, num_lines: int) -> list[Any]:
    """Draw the ends of CUDA graphs; return legend entries."""
    told = dict[str, Any]()
    for edge in dict.fromkeys(edge for edge, _ in edges):
        own = {i for other, i in edges if other == edge}
        look = _PLAIN_END if own == {-1} else style.DOTTED
        name = "plain: CUDA graphs end" if own == {-1} else "CUDA graphs end"
        colour = COLOURS[min(own)] if len(own) == 1 < num_lines and own != {-1} else "black"
        ax.axvline(edge, zorder=1, **look | {"color": colour})
        told[name] = style.key(name, **look)
    return [told[name] for name in sorted(told)]


def _told(rows: Table) -> list[Any]:
    """Return the size of CUDA graphs as a legend entry, if all rows have the same size."""
    most = rows[frames.PLAIN_GRAPHS].unique()
    if len(most) != 1 or np.isinf(most[0]):
        return []
    unit = "requests" if (rows[frames.GRAPHS] == most[0]).all() else "tokens"
    return [style.key(f"CUDA graphs to {most[0]:g} {unit}", "")]


def _number(ax: Axes, lines: frames.Lines) -> None:
    """Write the best draft lengths below a single line, where they change and fit."""
    part = lines[0][1]
    if len(lines) > 1 or "draft_length" not in part or part["draft_length"].nunique() == 1:
        return
    lengths, last = part["draft_length"], -1.0
    for size, length in part[lengths != lengths.shift()][["batch_size", "draft_length"]].to_numpy():
        place = ax.transAxes.inverted().transform(ax.transData.transform((size, 1)))[0]
        if place - last > _APART * max(1, len(f"{length:g}")):
            where = ax.get_xaxis_transform()
            ax.text(size, 0.02, f"{length:g}", ha="center", transform=where, **style.BOXED)
            last = place
    ax.set_xlabel(f"{ax.get_xlabel()}\nnumbers: draft length from this batch size on")
