"""Maps: a number for each cell of a grid, written in it where there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.show.plots import frames
from specmodel.show.plots.style import SMALL, Style, count_label, folded, label_room

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

_ACCEPTANCES = ("acceptance_rate", "accepted_fraction", "tokens_per_step")
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
        draft_length and speedup, a row for each length, of which the best is framed. Of several
        contexts the best lengths alone are drawn, a row a point, as `answers.compare` returns
        them too. What does not fit is hatched.
    """
    best = "best_draft_length"
    rows = frames.checked(table, ("batch_size", "context_length", best), ("fits",))
    rows = rows.assign(hatched=~frames.fits(rows))
    note = ", hatched: does not fit" if rows["hatched"].any() else ""
    if "draft_length" in rows and rows["context_length"].nunique() == 1:
        rows = frames.checked(rows, ("draft_length", "speedup"))
        rows["speedup"] = rows["speedup"].mask(rows["hatched"])
        title = f"speedup, framed: the best, 0: the drafter stays loaded{note}"
        _draw(ax, rows, ("speedup", "draft_length"), _two_digits, title)
        _frame(ax, rows)
        return ax
    if "draft_length" in rows:
        rows = rows[rows["draft_length"] == rows[best]]
    title = f"best draft length (tokens){note}"
    _draw(ax, rows, (best, "context_length"), lambda value: f"{value:g}", title)
    return ax


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
    hatched = ~frames.fits(rows)
    rows = rows.assign(hatched=hatched, speedup=rows["speedup"].mask(hatched))
    note = ", hatched: does not fit" if hatched.any() else ""
    _draw(ax, rows, ("speedup", y), _two_digits, f"speedup{note}")
    return ax


def _two_digits(value: float) -> str:
    return f"{value:.2f}"


def _frame(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw a frame around the best draft length of each batch size."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    edge = [withStroke(linewidth=2.4, foreground="white")]
    style: Style = {"fill": False, "edgecolor": "black", "path_effects": edge, "clip_on": False}
    sizes, lengths = (sorted(rows[name].unique()) for name in ("batch_size", "draft_length"))
    best = rows[(rows["draft_length"] == rows["best_draft_length"]) & ~rows["hatched"]]
    for size, length in zip(best["batch_size"], best["draft_length"], strict=True):
        corner = sizes.index(size), lengths.index(length)
        ax.add_patch(Rectangle(corner, 1, 1, linewidth=1, zorder=3, **style))


def break_even(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the acceptance rate from which speculation pays, over batch size and draft length.

    Parameters
    ----------
    table, ax
        Columns of `answers.break_even`: batch_size, context_length, draft_length,
        break_even_acceptance_rate (missing where no rate pays), and fits if known. One context;
        or one draft length and several contexts, which are then the vertical axis.
    """
    quantity = "break_even_acceptance_rate"
    numbers = ("batch_size", "context_length", "draft_length", quantity)
    rows = frames.checked(table, numbers, may_lack=(quantity,))
    num_contexts, num_lengths = rows["context_length"].nunique(), rows["draft_length"].nunique()
    y = "context_length" if num_lengths == 1 < num_contexts else "draft_length"
    if y == "draft_length":
        frames.need_single(rows, "context_length")
    too_large, hopeless = ~frames.fits(rows), rows[quantity].isna()
    blank = rows[quantity].mask(too_large)  # what does not fit has no number to be read
    rows = rows.assign(hatched=too_large | hopeless, **{quantity: blank})
    reasons = {"none pays": hopeless & ~too_large, "does not fit": too_large}
    told = " or ".join(reason for reason, holds in reasons.items() if holds.any())
    title = "acceptance rate needed" + (f", hatched: {told}" if told else "")
    # in two digits, without the 0 before the point
    _draw(ax, rows, (quantity, y), lambda value: f"{value:.2f}".removeprefix("0"), title)
    return ax


def _draw(
    ax: Axes, rows: pd.DataFrame, names: tuple[str, str], write: Callable[[float], str], title: str
) -> None:
    """Draw a cell for each point, with its number if that fits, otherwise with a colour bar."""
    from matplotlib.ticker import MaxNLocator

    quantity, y = names
    frames.need_distinct(rows, ["batch_size", y])
    cells = rows.pivot(index=y, columns="batch_size", values=quantity)
    hatched = rows[rows["hatched"]].pivot(index=y, columns="batch_size", values="hatched")
    edges = "white" if max(cells.shape) <= _MOST_EDGED else "none"
    mesh = ax.pcolormesh(cells, edgecolors=edges, linewidth=0.2, **_colours(quantity, cells))
    if quantity == "speedup" and _border(ax, cells.to_numpy()):
        title += ", dashed: break-even"
    beyond = rows[rows["batch_size"] > rows.get(frames.GRAPHS, np.inf)]
    if len(beyond):
        sizes, others = pd.Index(beyond["batch_size"]), pd.Index(beyond[y])
        x, y_ = cells.columns.get_indexer(sizes) + 0.9, cells.index.get_indexer(others) + 0.12
        ax.plot(x, y_, ".", color="black", markersize=2)
        title += ", dots: beyond CUDA graphs"
    lines: Style = {"facecolor": "none", "edgecolor": "0.6", "hatch": "//////", "linewidth": 0}
    ax.pcolor(hatched.reindex_like(cells).to_numpy(dtype=float), **lines)
    ax.tick_params(length=2, labelsize=SMALL)
    _number(ax.xaxis, cells.columns)
    _number(ax.yaxis, cells.index)
    if _has_room(ax, cells, write):
        own: Style = {"ha": "center", "va": "center", "size": SMALL}
        for (i, j), value in np.ndenumerate(cells.to_numpy()):
            if not np.isnan(value):
                ax.text(j + 0.5, i + 0.5, write(value), **own)
    else:
        bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
        bar.ax.tick_params(labelsize=SMALL)
        if (rows[quantity] % 1 == 0).all():
            bar.locator = MaxNLocator(integer=True)
    width = int(ax.bbox.width / label_room(ax.xaxis, "0"))
    ax.set_title(folded(title, max(width, len(title) // 2 + 9)), size=SMALL, loc="left", pad=3)
    ax.set(xlabel=frames.titled(["batch_size"]), ylabel=frames.titled([y]))


def _colours(quantity: str, cells: pd.DataFrame) -> Style:
    """Return the colours of a map: of a speedup from loss to gain, pale at 1; else from 0."""
    from matplotlib.colors import Normalize, TwoSlopeNorm

    most = _PALER * float(np.nanmax(cells.to_numpy(), initial=0.1))
    if quantity != "speedup":
        return {"cmap": "Blues", "norm": Normalize(0, most)}
    # as pale at a half as at twice, and so on
    return {"cmap": "RdBu", "norm": TwoSlopeNorm(1, 1 / max(most, 2), max(most, 2))}


def _border(ax: Axes, values: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Draw a line between cells that gain and cells that lose; return whether there are both."""
    gains = np.where(np.isnan(values), np.nan, values >= 1)
    line: Style = {"color": "black", "linewidth": 1, "linestyle": (0, (2, 1)), "zorder": 2}
    across, down = np.diff(gains, axis=1), np.diff(gains, axis=0)
    for i, j in np.argwhere(np.nan_to_num(across)):
        ax.plot([j + 1, j + 1], [i, i + 1], **line)
    for i, j in np.argwhere(np.nan_to_num(down)):
        ax.plot([j, j + 1], [i + 1, i + 1], **line)
    return bool(np.nanmin(gains) < np.nanmax(gains))


def _number(axis: XAxis | YAxis, counts: pd.Index[Any]) -> None:
    """Label the cells along an axis, every n-th where the labels of all have no room."""
    labels = [count_label(round(float(count), 4)) for count in counts]
    cell = getattr(axis.axes.bbox, "width" if axis.axis_name == "x" else "height") / len(counts)
    room = label_room(axis, labels)
    step = next(n for n in _STEPS if n * cell > room or n >= len(counts))
    # from a multiple of their distance on: of 33 to 100 every tenth are 40, 50, 60
    pairs = zip(counts[:step], counts[step:], strict=False)
    start = next((i for i, (a, b) in enumerate(pairs) if a % (b - a) == 0), 0)
    axis.set_ticks(np.arange(len(counts))[start::step] + 0.5, labels[start::step])


def _has_room(ax: Axes, cells: pd.DataFrame, write: Callable[[float], str]) -> bool:
    """Return whether the longest number fits in a cell."""
    values = cells.to_numpy().ravel()
    written = max(map(write, values[~np.isnan(values)]), key=len, default="")
    text = ax.text(0, 0, written, size=SMALL)
    box, (rows, columns) = text.get_window_extent(), cells.shape
    text.remove()
    across, down = ax.bbox.width / columns, ax.bbox.height / rows
    return bool(box.width < 0.8 * across and 1.4 * box.height < down)
