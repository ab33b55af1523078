"""Maps: a number for each cell of a grid, written in it where there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.plots.frames import checked, need_distinct, need_single
from specmodel.plots.style import SMALL, set_ticks, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HATCH = "//////"
_MOST_EDGED = 20


def best_draft_length(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the best draft length over batch size and context; what does not fit is hatched.

    Parameters
    ----------
    table
        As `answers.best_draft_lengths` returns it: batch_size, context_length, best_draft_length
        and fits, a row a point.
    ax
        Where to draw.

    Returns
    -------
    Axes
        The same.

    Raises
    ------
    InputError
        Names what the table lacks, or has twice.
    """
    rows = checked(table, ("batch_size", "context_length", "best_draft_length"), ("fits",))
    hatched = _does_not_fit(rows)
    rows = rows.assign(hatched=hatched)
    _draw(ax, rows, ("best_draft_length", "context_length"), lambda value: f"{value:g}")
    note = ", hatched: does not fit" if hatched.any() else ""
    _set_title(ax, f"best draft length (tokens){note}")
    ax.set_ylabel("context (tokens)")
    return ax


def break_even(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the acceptance rate from which speculation pays, over batch size and draft length.

    Parameters
    ----------
    table
        As `answers.break_even` returns it: batch_size, context_length, draft_length,
        break_even_acceptance_rate, missing where no rate pays, and, if known, fits; of one
        context, or of one draft length, over whose contexts it is then drawn.
    ax
        Where to draw.

    Returns
    -------
    Axes
        The same.

    Raises
    ------
    InputError
        Names what the table lacks, or has too much of.
    """
    quantity = "break_even_acceptance_rate"
    numbers = ("batch_size", "context_length", "draft_length", quantity)
    rows = checked(table, numbers, may_lack=(quantity,))
    y = "draft_length"
    if rows[y].nunique() == 1 and rows["context_length"].nunique() > 1:
        y = "context_length"
    else:
        need_single(rows, "context_length")
    too_large, hopeless = _does_not_fit(rows), rows[quantity].isna()
    rows = rows.assign(hatched=too_large | hopeless)
    _draw(ax, rows, (quantity, y), _rate)
    reasons = {"none pays": hopeless & ~too_large, "does not fit": too_large}
    told = " or ".join(reason for reason, holds in reasons.items() if holds.any())
    _set_title(ax, f"acceptance rate needed{', hatched: ' * bool(told)}{told}")
    ax.set_ylabel("draft length (tokens)" if y == "draft_length" else "context (tokens)")
    return ax


def _does_not_fit(rows: pd.DataFrame) -> pd.Series[bool]:
    return rows.get("fits", rows["batch_size"]).astype(str).str.lower() == "false"


def _draw(
    ax: Axes, rows: pd.DataFrame, names: tuple[str, str], write: Callable[[float], str]
) -> None:
    """Draw a cell for each point; numbers where they fit, else a colour bar."""
    quantity, y = names
    from matplotlib.ticker import MaxNLocator

    need_distinct(rows, ["batch_size", y])
    cells = rows.pivot(index=y, columns="batch_size", values=quantity)
    hatched = rows.pivot(index=y, columns="batch_size", values="hatched")
    edges = "white" if max(cells.shape) <= _MOST_EDGED else "none"
    mesh = ax.pcolormesh(cells.to_numpy(), cmap="cividis", edgecolors=edges, linewidth=0.2)
    lowest, highest = np.nanmin([*rows[quantity], np.inf]), np.nanmax([*rows[quantity], -np.inf])
    if lowest < highest:
        mesh.set_clim(lowest, highest)
    for i, j in np.argwhere(hatched.fillna(False).to_numpy(dtype=bool)):
        ax.fill_between(
            [j, j + 1], i, i + 1, facecolor="none", edgecolor="0.6", hatch=_HATCH, linewidth=0
        )
    _label_cells(ax, cells)
    if _has_room(ax, cells, write):
        _write(ax, mesh, cells, write)
    elif (figure := ax.get_figure()) is not None:
        bar = figure.colorbar(mesh, ax=ax, pad=0.02)
        bar.ax.tick_params(labelsize=SMALL)
        if lowest == round(lowest):
            bar.locator = MaxNLocator(integer=True)


def _label_cells(ax: Axes, cells: pd.DataFrame) -> None:
    """Label columns and rows with their counts, as many as have room."""
    ax.tick_params(length=2, labelsize=SMALL)
    for axis, counts in ((ax.xaxis, cells.columns), (ax.yaxis, cells.index)):
        set_ticks(axis, thinned({i + 0.5: float(count) for i, count in enumerate(counts)}))
    ax.set_xlabel("batch size (requests)")


def _has_room(ax: Axes, cells: pd.DataFrame, write: Callable[[float], str]) -> bool:
    """Return whether the longest number fits in a cell."""
    values = cells.to_numpy().ravel()
    longest = ax.text(0, 0, max(map(write, values[~np.isnan(values)]), key=len), size=SMALL)
    box = longest.get_window_extent()
    longest.remove()
    rows, columns = cells.shape
    return bool(
        box.width < 0.8 * ax.bbox.width / columns and 1.4 * box.height < ax.bbox.height / rows
    )


def _write(ax: Axes, mesh: Any, cells: pd.DataFrame, write: Callable[[float], str]) -> None:
    """Write each number, black on light cells, white on dark ones."""
    mesh.update_scalarmappable()
    values = cells.to_numpy()
    for (i, j), value in np.ndenumerate(values):
        if np.isnan(value):
            continue
        red, green, blue, _ = mesh.to_rgba(value)
        is_light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.46
        ax.text(
            j + 0.5,
            i + 0.5,
            write(value),
            ha="center",
            va="center",
            size=SMALL,
            color="black" if is_light else "white",
            gid=f"{cells.index[i]:g},{cells.columns[j]:g}",
        )


def _set_title(ax: Axes, text: str) -> None:
    ax.set_title(text, size=SMALL, loc="left", pad=3)


def _rate(value: float) -> str:
    """Return a rate in two digits, without the 0 before the point."""
    return f"{value:.2f}".removeprefix("0")
