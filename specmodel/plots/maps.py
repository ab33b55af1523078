"""Maps: a number for each cell of a grid, written in it where there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specmodel.plots.frames import checked, need_distinct, need_single
from specmodel.plots.style import SMALL, count_label, text_width

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
    hatched = rows["fits"].astype(str).str.lower() == "false"
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
        As `answers.break_even` returns it: batch_size, context_length, draft_length and
        break_even_acceptance_rate, missing where no rate pays; of one context, or of one draft
        length, over whose contexts it is then drawn.
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
    rows = rows.assign(hatched=rows[quantity].isna())
    _draw(ax, rows, (quantity, y), _rate)
    note = ", hatched: none pays" if rows["hatched"].any() else ""
    _set_title(ax, f"acceptance rate needed{note}")
    ax.set_ylabel("draft length (tokens)" if y == "draft_length" else "context (tokens)")
    return ax


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
    _ticks(ax, cells)
    if _has_room(ax, cells, write):
        _write(ax, mesh, cells, write)
    elif (figure := ax.get_figure()) is not None:
        bar = figure.colorbar(mesh, ax=ax, pad=0.02)
        bar.ax.tick_params(labelsize=SMALL)
        if lowest == round(lowest):
            bar.locator = MaxNLocator(integer=True)


def _ticks(ax: Axes, cells: pd.DataFrame) -> None:
    """Label rows and columns, thinned where they are many."""
    figure = ax.get_figure()
    dpi = figure.dpi if figure else 100
    width, height = ax.bbox.width / dpi, ax.bbox.height / dpi
    for axis, values, room in (
        (ax.xaxis, cells.columns, 0.9 * width / len(cells.columns)),
        (ax.yaxis, cells.index, 0.8 * height / len(cells.index)),
    ):
        labels = [count_label(float(value)) for value in values]
        widest = 0.14 if axis is ax.yaxis else max(map(text_width, labels)) + 0.05
        places = _ticked([float(value) for value in values], max(1, int(np.ceil(widest / room))))
        axis.set_ticks([place + 0.5 for place in places], [labels[i] for i in places], size=SMALL)
        axis.set_tick_params(length=2)
    ax.set_xlabel("batch size (requests)")


def _ticked(values: list[float], step: int) -> list[int]:
    """Return places at least `step` apart: of powers of two where not all have room."""
    if step == 1:
        return list(range(len(values)))
    powers = [i for i, value in enumerate(values) if value > 0 and np.log2(value) % 1 == 0]
    if len(powers) < 3:
        return list(range(0, len(values), step))
    chosen = [powers[-1]]
    for place in reversed(powers):
        if chosen[-1] - place >= step:
            chosen.append(place)
    return chosen[::-1]


def _has_room(ax: Axes, cells: pd.DataFrame, write: Callable[[float], str]) -> bool:
    figure = ax.get_figure()
    dpi = figure.dpi if figure else 100
    values = cells.to_numpy().ravel()
    widest = max(text_width(write(value)) for value in values[~np.isnan(values)])
    rows, columns = cells.shape
    across, down = 0.85 * ax.bbox.width / dpi / columns, 0.8 * ax.bbox.height / dpi / rows
    return bool(widest + 0.02 <= across and down >= 0.12)


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
