"""Maps: a number for each cell of a grid, written in it where there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.show.plots import frames, style
from specmodel.show.plots.style import SMALL, Style, count_label, label_room

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

_ACCEPTANCES = ("acceptance_rate", "accepted_fraction", "tokens_per_step")
_BEST, _NEEDED = "best_draft_length", "break_even_acceptance_rate"
_AS_GOOD = 0.99
"""Share of the best speedup from which a draft length is as good [-]."""
_MOST_EDGED = 20
_PALER = 1.5
"""Range of colours over that of numbers, so that black is read on all of them [-]."""
_STEPS = [n * 10**power for power in range(6) for n in (1, 2, 3, 5)]
"""Every how manyth cell may be numbered."""


def best_draft_length(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup over batch size and draft length, or the best length over the context.

    Parameters
    ----------
    table, ax
        Columns batch_size, context_length, best_draft_length and fits; of one context with
        draft_length and speedup, a row for each length, of which the best is framed, and thinly
        those within 1 % of it. Of several contexts the best lengths alone are drawn, a row a
        point, as `answers.compare` returns them too. What does not fit is hatched.
    """
    rows = frames.checked(table, ("batch_size", "context_length", _BEST), ("fits",))
    if "draft_length" in rows and rows["context_length"].nunique() == 1:
        rows = frames.checked(rows, ("draft_length", "speedup"))
        title = f"{frames.titled(['speedup'])}; with 0 the drafter stays loaded"
        return _draw(ax, rows, ("speedup", "draft_length"), title, "{:.2f}".format)
    if "draft_length" in rows:
        rows = rows[rows["draft_length"] == rows[_BEST]]
    return _draw(ax, rows, (_BEST, "context_length"), frames.titled([_BEST]), "{:g}".format)


def speedup_map(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup over batch size and acceptance, and where it breaks even.

    Parameters
    ----------
    table, ax
        Columns batch_size, speedup, and acceptance_rate or else tokens_per_step, as a sweep has
        them, a row for each pair. What does not fit is hatched.
    """
    y = next((name for name in _ACCEPTANCES if name in table), _ACCEPTANCES[0])
    rows = frames.checked(table, ("batch_size", y, "speedup"))
    return _draw(ax, rows, ("speedup", y), frames.titled(["speedup"]), "{:.2f}".format)


def break_even(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the acceptance rate from which speculation pays, over batch size and draft length.

    Parameters
    ----------
    table, ax
        Columns of `answers.break_even`: batch_size, context_length, draft_length,
        break_even_acceptance_rate (missing where no rate pays), and fits if known. One context;
        or one draft length and several contexts, which are then the vertical axis.
    """
    numbers = ("batch_size", "context_length", "draft_length", _NEEDED)
    rows = frames.checked(table, numbers, may_lack=(_NEEDED,))
    num_contexts, num_lengths = rows["context_length"].nunique(), rows["draft_length"].nunique()
    y = "context_length" if num_lengths == 1 < num_contexts else "draft_length"
    if y == "draft_length":
        frames.need_single(rows, "context_length")
    # in two digits, without the 0 before the point
    title = "acceptance rate from which it pays"
    return _draw(ax, rows, (_NEEDED, y), title, lambda value: f"{value:.2f}".removeprefix("0"))


def _frame(ax: Axes, rows: pd.DataFrame) -> list[Any]:
    """Frame the best draft length of each batch size and those as good; return their keys."""
    from matplotlib.patches import Rectangle

    sizes, lengths = (sorted(rows[name].unique()) for name in ("batch_size", "draft_length"))
    inside = rows[frames.fits(rows)]
    is_best = inside["draft_length"] == inside[_BEST]
    best = inside[is_best].set_index("batch_size")["speedup"]
    is_close = inside["speedup"] >= _AS_GOOD * inside["batch_size"].map(best)
    found = []
    for told, width, are in (("within 1 %", 0.6, is_close & ~is_best), ("best", 1.4, is_best)):
        look: Style = {"fill": False, "edgecolor": "black", "linewidth": width}
        for size, length in inside.loc[are, ["batch_size", "draft_length"]].to_numpy():
            corner = sizes.index(size), lengths.index(length)
            ax.add_patch(Rectangle(corner, 1, 1, zorder=2 + width, clip_on=False, **look))
        found += [style.swatch(told, **look)] if are.any() else []
    return found[::-1]


def _draw(
    ax: Axes, rows: pd.DataFrame, names: tuple[str, str], title: str, write: Callable[[float], str]
) -> Axes:
    """Draw a cell for each point, with its number if that fits, otherwise with a colour bar."""
    quantity, y = names
    frames.need_distinct(rows, ["batch_size", y])
    handles = _frame(ax, rows) if names == ("speedup", "draft_length") else []
    too_large = ~frames.fits(rows)
    beyond = rows["batch_size"] > rows.get(frames.GRAPHS, np.inf)
    if quantity != _BEST:  # what does not fit has no number to be read
        rows = rows.assign(**{quantity: rows[quantity].mask(too_large)})
        beyond &= ~too_large
    cells = rows.pivot(index=y, columns="batch_size", values=quantity)
    edges = "white" if max(cells.shape) <= _MOST_EDGED else "none"
    mesh = ax.pcolormesh(cells, edgecolors=edges, linewidth=0.2, **_colours(quantity, cells))
    if quantity == "speedup":
        handles += _border(ax, cells.to_numpy())
    if beyond.any():
        dots: Style = {"linestyle": "", "marker": ".", "color": "black", "markersize": 2}
        at = cells.index.get_indexer(pd.Index(rows[y][beyond]))
        of = cells.columns.get_indexer(pd.Index(rows["batch_size"][beyond]))
        ax.plot(of + 0.9, at + 0.12, **dots)
        handles.append(style.key("beyond CUDA graphs", **dots))
    hopeless = rows[quantity].isna() & ~too_large
    blank = {"none pays": (hopeless, "...."), "does not fit": (too_large, "//////")}
    for told, (are, hatch) in blank.items():
        if are.any():
            area = rows.assign(is_so=are.where(are)).pivot(index=y, columns="batch_size")["is_so"]
            look: Style = {"facecolor": "none", "edgecolor": "0.6", "hatch": hatch, "linewidth": 0}
            ax.pcolor(area.to_numpy(dtype=float), **look)
            handles.append(style.swatch(told, **look))
    ax.tick_params(length=2, labelsize=SMALL)
    _number(ax.xaxis, cells.columns)
    _number(ax.yaxis, cells.index)
    if _has_room(ax, cells, write):
        for (i, j), value in np.ndenumerate(cells.to_numpy()):
            if not np.isnan(value):
                ax.text(j + 0.5, i + 0.5, write(value), ha="center", va="center", size=SMALL)
    else:
        from matplotlib.ticker import MaxNLocator

        ticks = MaxNLocator(integer=True) if quantity == _BEST else None
        bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, ticks=ticks)
        bar.ax.tick_params(labelsize=SMALL)
    ax.set(xlabel=frames.titled(["batch_size"]), ylabel=frames.titled([y]))
    style.legend_above(ax, title, handles)
    return ax


def _colours(quantity: str, cells: pd.DataFrame) -> Style:
    """Return the colours of a map: of a speedup from loss to gain, pale at 1; else from 0."""
    from matplotlib.colors import Normalize, TwoSlopeNorm

    most = _PALER * float(np.nanmax(cells.to_numpy(), initial=0.1))
    if quantity != "speedup":
        return {"cmap": "Blues", "norm": Normalize(0, most)}
    # as pale at a half as at twice, and so on
    return {"cmap": "RdBu", "norm": TwoSlopeNorm(1, 1 / max(most, 2), max(most, 2))}


def _border(ax: Axes, values: np.ndarray[Any, np.dtype[np.float64]]) -> list[Any]:
    """Draw a line between cells that gain and cells that lose; return its key if there are both."""
    gains = np.where(np.isnan(values), np.nan, values >= 1)
    line: Style = {"color": "black", "linewidth": 1, "linestyle": (0, (2, 1))}
    across, down = np.diff(gains, axis=1), np.diff(gains, axis=0)
    for i, j in np.argwhere(np.nan_to_num(across)):
        ax.plot([j + 1, j + 1], [i, i + 1], zorder=2, **line)
    for i, j in np.argwhere(np.nan_to_num(down)):
        ax.plot([j, j + 1], [i + 1, i + 1], zorder=2, **line)
    return [style.key("break-even", **line)] if np.nanmin(gains) < np.nanmax(gains) else []


def _number(axis: XAxis | YAxis, counts: pd.Index[Any]) -> None:
    """Label the cells along an axis, every n-th where the labels of all have no room."""
    labels = [count_label(round(float(count), 4)) for count in counts]
    cell = getattr(axis.axes.bbox, "width" if axis.axis_name == "x" else "height") / len(counts)
    room = label_room(axis, labels)
    step = next(n for n in _STEPS if n * cell > room or n >= len(counts))
    axis.set_ticks(np.arange(len(counts))[::step] + 0.5, labels[::step])


def _has_room(ax: Axes, cells: pd.DataFrame, write: Callable[[float], str]) -> bool:
    """Return whether the longest number fits in a cell."""
    values, (rows, columns) = cells.to_numpy(), cells.shape
    longest = max(map(write, values[~np.isnan(values)]), key=len, default="")
    text = ax.text(0, 0, longest, size=SMALL)
    box = text.get_window_extent()
    text.remove()
    is_narrow = box.width < 0.8 * ax.bbox.width / columns
    return bool(is_narrow and 1.4 * box.height < ax.bbox.height / rows)
