"""Draw maps: grids of cells, with a number in each cell if it fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from specmodel.show import labels
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import SMALL, Axes, Style, label_room

_ACCEPTANCES = ("acceptance_rate", "accepted_fraction", "tokens_per_step")
_BEST, _NEEDED = "best_draft_length", "break_even_acceptance_rate"
_AS_GOOD = 0.99
"""Smallest share of the best speedup at which a draft length is called as good [-]."""
_MOST_EDGED = 20
_INSET = 0.06
"""Margin between a cell and its frame, as a share of the cell [-]."""
_DEEPEST = 8
"""Speedup, or its inverse, beyond which the colour does not change [-]."""
_LONG = 44
"""Length of a title that may start left of the axes [-]."""
_PALER = 1.5
"""Range of colours over the range of numbers, so that black text is readable on all [-]."""
_STEPS = [n * 10**power for power in range(6) for n in (1, 2, 3, 5)]
"""Steps between numbered cells."""


def best_draft_length(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup over batch size and draft length, or the best length over the context.

    Parameters
    ----------
    table, ax
        Columns batch_size, context_length, best_draft_length and fits. One context also has
        draft_length and speedup, with a row for each length. The figure frames the best length, and
        thinly the lengths within 1 % of it. For several contexts, it shows the best lengths, as a
        range if several are within 1 %, and with a star if the best loses. `plan.compare` returns a
        row for each point. Points that do not fit in memory are hatched.
    """
    more = ("draft_length", "speedup") if "draft_length" in table else table.filter(["speedup"])
    rows = frames.checked(table, ("batch_size", "context_length", _BEST, *more), ("fits",))
    if "draft_length" in rows and rows["context_length"].nunique() == 1:
        title = f"{labels.titled(['speedup'])}; at 0 the drafter stays loaded"
        return _draw(ax, rows, ("speedup", "draft_length"), title)
    told, title = rows[_BEST].map("{:g}".format), labels.titled([_BEST])
    if "draft_length" in rows:
        is_best, is_close = _judged(rows)
        close = rows[is_close].groupby(["batch_size", "context_length"])["draft_length"]
        rows = rows[is_best].join(close.agg(["min", "max"]), ["batch_size", "context_length"])
        are_alike = rows["min"] == rows["max"]
        ranges = rows["min"].map("{:g}–".format) + rows["max"].map("{:g}".format)
        told = told[rows.index].where(are_alike, ranges)
        rows = rows.assign(**{_BEST: (rows["min"] + rows["max"]) / 2})
        title += "" if are_alike.all() else "; a–b: within 1 %"
    loses = (rows.get("speedup", 1.0) < 1) & (rows[_BEST] > 0) & frames.fits(rows)
    told, title = told.where(~loses, told + "*"), title + ("; *: loses" if loses.any() else "")
    return _draw(ax, rows, (_BEST, "context_length"), title, told)


def speedup_map(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup over batch size and acceptance, and where it breaks even.

    Parameters
    ----------
    table, ax
        Columns batch_size, speedup, and acceptance_rate or else tokens_per_step, as in a sweep,
        with a row for each pair. Points that do not fit in memory are hatched.
    """
    y = next((name for name in _ACCEPTANCES if name in table), _ACCEPTANCES[0])
    rows = frames.checked(table, ("batch_size", y, "speedup"))
    return _draw(ax, rows, ("speedup", y), labels.titled(["speedup"]))


def break_even(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the acceptance rate from which speculation pays, over batch size and draft length.

    Parameters
    ----------
    table, ax
        Columns of `plan.break_even`: batch_size, context_length, draft_length,
        break_even_acceptance_rate (missing if no rate pays), and fits and max_graph_batch_size if
        known. With one context, the vertical axis is the draft length. With one draft length and
        several contexts, it is the context.
    """
    numbers = ("batch_size", "context_length", "draft_length", _NEEDED)
    rows = frames.checked(table, numbers, may_lack=(_NEEDED,))
    num_contexts, num_lengths = rows["context_length"].nunique(), rows["draft_length"].nunique()
    y = "context_length" if num_lengths == 1 < num_contexts else "draft_length"
    if y == "draft_length":
        frames.need_single(rows, "context_length")
    # two digits, without the 0 before the point
    told = rows[_NEEDED].map("{:.2f}".format).str.removeprefix("0")
    return _draw(ax, rows, (_NEEDED, y), "acceptance rate above which speculation pays", told)


def _judged(rows: pd.DataFrame) -> tuple[pd.Series[bool], pd.Series[bool]]:
    """Return which draft lengths are the best at their point, and which are as good."""
    is_best = rows["draft_length"] == rows[_BEST]
    point = [rows["batch_size"], rows["context_length"]]
    best = rows["speedup"].where(is_best).groupby(point).transform("max")
    return is_best, rows["speedup"] >= _AS_GOOD * best


def _frame(ax: Axes, rows: pd.DataFrame) -> list[Any]:
    """Frame the best draft length at each batch size and those as good; return legend entries."""
    from matplotlib.patches import Rectangle

    sizes, lengths = (sorted(rows[name].unique()) for name in ("batch_size", "draft_length"))
    inside = rows[frames.fits(rows)]
    is_best, is_close = _judged(inside)
    found = []
    for told, width, are in (("within 1 %", 0.6, is_close & ~is_best), ("best", 1.4, is_best)):
        look: Style = {"fill": False, "edgecolor": "black", "linewidth": width}
        for size, length in inside.loc[are, ["batch_size", "draft_length"]].to_numpy():
            corner = sizes.index(size) + _INSET, lengths.index(length) + _INSET
            ax.add_patch(Rectangle(corner, *[1 - 2 * _INSET] * 2, zorder=2 + width, **look))
        found += [style.swatch(told, **look)] if are.any() else []
    return found[::-1]


def _draw(ax: Axes, rows: pd.DataFrame, of: tuple[str, str], title: str, told: Any = None) -> Axes:
    """Draw a cell for each point, with a text in it if all texts fit, else with a colour bar.

    Batch sizes at which nothing fits in memory are left out, unless nothing fits at any.
    """
    quantity, y = of
    frames.need_distinct(rows, ["batch_size", y])
    told = rows[quantity].map("{:.2f}".format) if told is None else told
    held = frames.fits(rows).groupby(rows["batch_size"]).transform("any")
    held |= not held.any()
    left_out, rows = rows["batch_size"][~held].unique(), rows[held]
    handles = _frame(ax, rows) if of == ("speedup", "draft_length") else []
    too_large = ~frames.fits(rows)
    beyond = (rows["batch_size"] > rows.get(frames.GRAPHS, np.inf)) & ~too_large
    # points that do not fit have no number
    rows = rows.assign(told=told, value=rows[quantity].mask(too_large))
    cells, written = (rows.pivot(index=y, columns="batch_size")[n] for n in ("value", "told"))
    edges = "white" if max(cells.shape) <= _MOST_EDGED else "none"
    mesh = ax.pcolormesh(cells, edgecolors=edges, linewidth=0.2, **_colours(quantity, cells))
    if quantity == "speedup":
        handles += _border(ax, cells.to_numpy())
    if beyond.any():
        dots = style.points(5, marker=".", markersize=2)
        along = cells.columns.get_indexer(pd.Index(rows["batch_size"][beyond]))
        ax.plot(along + 0.85, cells.index.get_indexer(pd.Index(rows[y][beyond])) + 0.17, **dots)
        handles.append(style.key("beyond CUDA graphs", **dots))
    hopeless = rows[quantity].isna() & ~too_large
    blank = {"no rate pays": (hopeless, r"\\\\\\"), "does not fit": (too_large, "//////")}
    for name, (are, hatch) in blank.items():
        if are.any():
            area = rows.assign(is_so=are.where(are)).pivot(index=y, columns="batch_size")["is_so"]
            look: Style = {"facecolor": "none", "edgecolor": "0.6", "hatch": hatch, "linewidth": 0}
            ax.pcolor(area.to_numpy(dtype=float), **look)
            handles.append(style.swatch(name, **look))
    ax.tick_params(length=2, labelsize=SMALL)
    _number(ax.xaxis, cells.columns)
    _number(ax.yaxis, cells.index)
    if _has_room(ax, written[cells.notna()]):
        for i, j in np.argwhere(cells.notna().to_numpy()):
            place: Style = {"ha": "center", "va": "center", "size": SMALL}
            ax.text(j + 0.5, i + 0.5, str(written.to_numpy()[i, j]), **place)
    else:
        from matplotlib.ticker import MaxNLocator

        ticks = MaxNLocator(integer=True) if quantity == _BEST else None
        ax.figure.colorbar(mesh, ax=ax, pad=0.02, ticks=ticks).ax.tick_params(labelsize=SMALL)
    sizes = ", ".join(map(labels.count_label, left_out))
    note = f"\n{sizes}: nothing fits" if sizes else ""
    ax.set(xlabel=labels.titled(["batch_size"]) + note, ylabel=labels.titled([y]))
    style.legend_above(ax, title, handles, side="right" if len(title) > _LONG else "left")
    return ax


def _colours(quantity: str, cells: Any) -> Style:
    """Return the colours of a map: for a speedup from loss to gain, pale at 1; else from 0."""
    from matplotlib.colors import LogNorm, Normalize

    values = cells.to_numpy()
    if quantity != "speedup":
        most = _PALER * float(np.nanmax(values, initial=0.1))
        return {"cmap": "Blues", "norm": Normalize(0, most)}
    # a half is as deep as twice
    depths = np.abs(np.log2(values.clip(1 / _DEEPEST, _DEEPEST)))
    end = float(2 ** max(_PALER * np.nanmax(depths, initial=0), 1))
    return {"cmap": "RdBu", "norm": LogNorm(1 / end, end, clip=True)}


def _border(ax: Axes, values: Any) -> list[Any]:
    """Draw a line between gains and losses; return its legend entry if there are both."""
    gains = np.where(np.isnan(values), np.nan, values >= 1)
    line: Style = {"color": "black", "linewidth": 1, "linestyle": (0, (2, 1))}
    for axis in (1, 0):
        for i, j in np.argwhere(np.nan_to_num(np.diff(gains, axis=axis))):
            ax.plot([j + axis, j + 1], [i + 1 - axis, i + 1], zorder=2, **line)
    return [style.key("break-even", **line)] if {0, 1} <= {*gains.flat} else []


def _number(axis: Any, counts: pd.Index[Any]) -> None:
    """Label the cells along an axis, or every n-th cell if not all labels fit."""
    names = [labels.count_label(round(float(count), 4)) for count in counts]
    cell = getattr(axis.axes.bbox, "width" if axis.axis_name == "x" else "height") / len(counts)
    step = next(n for n in _STEPS if n * cell > label_room(axis, names) or n >= len(counts))
    axis.set_ticks(np.arange(len(counts))[::step] + 0.5, names[::step])


def _has_room(ax: Axes, written: Any) -> bool:
    """Return whether the longest text fits in a cell."""
    rows, columns = written.shape
    text = ax.text(0, 0, max(written.stack().dropna(), key=len, default=""), size=SMALL)
    box = text.get_window_extent()
    text.remove()
    is_narrow = box.width < 0.8 * ax.bbox.width / columns
    return bool(is_narrow and 1.4 * box.height < ax.bbox.height / rows)
