"""Maps: a number for each cell of a grid, written in it where there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.show.plots import frames
from specmodel.show.plots.style import SMALL, Style, set_ticks, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_EDGED = 20


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
    best, both = "best_draft_length", ("draft_length", "speedup")
    has_lengths = "draft_length" in table and table["context_length"].nunique() == 1
    numbers = ("batch_size", "context_length", best, *(both if has_lengths else ()))
    rows = frames.checked(table, numbers, ("fits",))
    rows = rows.assign(hatched=~frames.fits(rows))
    reason = "does not fit" if rows["hatched"].any() else ""
    if has_lengths:
        rows["speedup"] = rows["speedup"].mask(rows["hatched"])
        _draw(ax, rows, both[::-1], lambda value: f"{value:.1f}")
        _frame(ax, rows)
        _label(ax, "speedup, framed: the best", reason, "draft_length")
        return ax
    if "draft_length" in rows:
        rows = rows[rows["draft_length"] == rows[best]]
    _draw(ax, rows, (best, "context_length"), lambda value: f"{value:g}")
    _label(ax, "best draft length (tokens)", reason, "context_length")
    return ax


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
        As `answers.break_even` returns it: batch_size, context_length, draft_length,
        break_even_acceptance_rate, missing where no rate pays, and, if known, fits; of one
        context, or of one draft length, over whose contexts it is then drawn.
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
    # in two digits, without the 0 before the point
    _draw(ax, rows, (quantity, y), lambda value: f"{value:.2f}".removeprefix("0"))
    reasons = {"none pays": hopeless & ~too_large, "does not fit": too_large}
    told = " or ".join(reason for reason, holds in reasons.items() if holds.any())
    _label(ax, "acceptance rate needed", told, y)
    return ax


def _draw(
    ax: Axes, rows: pd.DataFrame, names: tuple[str, str], write: Callable[[float], str]
) -> None:
    """Draw a cell for each point, with its number if that fits, otherwise with a colour bar."""
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import MaxNLocator

    quantity, y = names
    frames.need_distinct(rows, ["batch_size", y])
    cells = rows.pivot(index=y, columns="batch_size", values=quantity)
    hatched = rows.pivot(index=y, columns="batch_size", values="hatched")
    edges = "white" if max(cells.shape) <= _MOST_EDGED else "none"
    mesh = ax.pcolormesh(cells.to_numpy(), cmap="cividis", edgecolors=edges, linewidth=0.2)
    places = np.argwhere(hatched.to_numpy(dtype=float) == 1)  # NaN where there is no point
    squares = [[(j, i), (j + 1, i), (j + 1, i + 1), (j, i + 1)] for i, j in places.tolist()]
    lines: Style = {"facecolor": "none", "edgecolor": "0.6", "hatch": "//////", "linewidth": 0}
    ax.add_collection(PolyCollection(squares, **lines))
    ax.tick_params(length=2, labelsize=SMALL)
    for axis, counts in ((ax.xaxis, cells.columns), (ax.yaxis, cells.index)):
        set_ticks(axis, thinned({i + 0.5: float(count) for i, count in enumerate(counts)}))
    if _has_room(ax, cells, write):
        _write(ax, mesh, cells, write)
    elif (figure := ax.get_figure()) is not None:
        bar = figure.colorbar(mesh, ax=ax, pad=0.02)
        bar.ax.tick_params(labelsize=SMALL)
        if (rows[quantity] % 1 == 0).all():
            bar.locator = MaxNLocator(integer=True)


def _has_room(ax: Axes, cells: pd.DataFrame, write: Callable[[float], str]) -> bool:
    """Return whether the longest number fits in a cell."""
    values = cells.to_numpy().ravel()
    written = max(map(write, values[~np.isnan(values)]), key=len, default="")
    text = ax.text(0, 0, written, size=SMALL)
    box, (rows, columns) = text.get_window_extent(), cells.shape
    text.remove()
    across, down = ax.bbox.width / columns, ax.bbox.height / rows
    return bool(box.width < 0.8 * across and 1.4 * box.height < down)


def _write(ax: Axes, mesh: Any, cells: pd.DataFrame, write: Callable[[float], str]) -> None:
    """Write each number, black on light cells, white on dark ones."""
    style: Style = {"ha": "center", "va": "center", "size": SMALL}
    for (i, j), value in np.ndenumerate(cells.to_numpy()):
        if not np.isnan(value):
            # perceived lightness of a colour: the weights of red, green and blue of ITU-R BT.601
            is_light = np.dot(mesh.to_rgba(value)[:3], (0.3, 0.59, 0.11)) > 0.46
            colour = "black" if is_light else "white"
            ax.text(j + 0.5, i + 0.5, write(value), color=colour, **style)


def _label(ax: Axes, title: str, hatched: str, y: str) -> None:
    """Say what is drawn, and why cells are hatched if any are."""
    note = f", hatched: {hatched}" if hatched else ""
    ax.set_title(title + note, size=SMALL, loc="left", pad=3)
    ax.set_xlabel("batch size (requests)")
    ax.set_ylabel("draft length (tokens)" if y == "draft_length" else "context (tokens)")
