"""Figures over the batch size, and of experts over the tokens of a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.plots.frames import checked, lines, need_at_most, need_distinct, need_positive
from specmodel.plots.style import (
    COLOURS,
    DASHES,
    GREY,
    MARKERS,
    MOST_LINES,
    Style,
    counts_axis,
    legend_above,
    shortened,
    unity,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MOST_MARKED = 20
_MOST_CHARACTERS = 36


def speedup(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup over the batch size, a line for each value of what else varies.

    Parameters
    ----------
    table
        Columns batch_size and speedup; bands are drawn between speedup_low and speedup_high, if
        given, and what does not fit in memory by max_batch_size or fits is pale. There may be six
        lines, told apart by draft_length, context_length or other inputs such as target.
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

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"batch_size": [1, 8], "speedup": [1.2, 1.5]})
    >>> speedup(table, Figure().add_subplot()).get_ylabel()
    'speedup'
    """
    return _over_batch_size(table, ax, "speedup", "speedup")


def target_efficiency(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the target efficiency over the batch size, a line for each value of what else varies.

    Parameters
    ----------
    table
        As for `speedup`, with the column target_efficiency.
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
    return _over_batch_size(table, ax, "target_efficiency", "target efficiency")


def active_experts(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the experts that tokens of one sequence activate: measured, by the law, independent.

    Parameters
    ----------
    table
        As `unions.measured_unions` returns it: model, num_experts, experts_per_token, tokens,
        measured, law and independent; at most six models.
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
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    numbers = ("num_experts", "experts_per_token", "tokens", "measured", "law", "independent")
    rows = checked(table, numbers, ("model",), may_lack=("measured",))
    models = list(rows.groupby(["model", "num_experts", "experts_per_token"], sort=False))
    need_at_most(MOST_LINES, len(models), "models")
    handles = []
    for i, ((name, total, each), part) in enumerate(models):
        need_distinct(part, ["tokens"])
        part, colour = part.sort_values("tokens"), COLOURS[i]
        ax.plot(part["tokens"], part["law"], color=colour, linewidth=1)
        ax.plot(part["tokens"], part["independent"], color=colour, linewidth=0.8, linestyle="--")
        style: Style = {"linestyle": "", "marker": MARKERS[i], "color": colour, "markersize": 4}
        label = shortened(f"{name} ({total:g}/{each:g})", _MOST_CHARACTERS)
        handles += ax.plot(part["tokens"], part["measured"], mfc="none", label=label, **style)
    handles.append(Line2D([], [], color=GREY, linewidth=1, label="law"))
    handles.append(Line2D([], [], color=GREY, linewidth=0.8, ls="--", label="independent"))
    ax.set(xlabel="tokens of one sequence in a pass", ylabel="experts loaded per layer")
    ax.set_ylim(0, None)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(ax, "measured (experts/top-k)", handles, side="right")
    return ax


def _over_batch_size(table: pd.DataFrame, ax: Axes, quantity: str, label: str) -> Axes:
    """Draw a quantity over the batch size, a line for each value of what else varies."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ends = [name for name in (f"{quantity}_low", f"{quantity}_high") if name in table]
    limit = [name for name in ("max_batch_size",) if name in table]
    rows = checked(table, ["batch_size", quantity, *ends, *limit])
    need_positive(rows, "batch_size")
    told, parts = lines(rows, "batch_size", quantity, MOST_LINES)
    for i, (name, part) in enumerate(parts):
        if len(ends) == 2:
            shape: Style = {"color": COLOURS[i], "alpha": 0.2 if len(parts) < 4 else 0.1}
            shape |= {"y1": part[ends[0]], "y2": part[ends[1]], "linewidth": 0, "zorder": 1}
            ax.fill_between(part["batch_size"], **shape)
        _line(ax, part, quantity, i, shortened(name, _MOST_CHARACTERS))
    unity(ax)
    ax.set_ylim(0 if quantity == "target_efficiency" else None, None)
    ax.set_ylabel(label)
    counts_axis(ax, rows["batch_size"], "batch size (requests)")
    handles = ax.get_legend_handles_labels()[0]
    if len(ends) == 2:
        handles.append(Patch(facecolor="0.8", label="80 % interval"))
    if not _fits(rows).all():
        pale: Style = {"color": "0.7", "markerfacecolor": "white", "marker": "o", "markersize": 3}
        handles.append(Line2D([], [], label="does not fit in memory", **pale))
    legend_above(ax, told, handles)
    return ax


def _fits(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which points fit in memory, as far as the table says."""
    if "fits" in rows:
        return rows["fits"].astype(str).str.lower() != "false"
    if "max_batch_size" in rows:
        return rows["batch_size"] <= rows["max_batch_size"]
    return rows["batch_size"] > 0


def _line(ax: Axes, part: pd.DataFrame, quantity: str, i: int, label: str) -> None:
    """Draw the points that fit in memory boldly, and the others palely."""
    x, y, fits = part["batch_size"], part[quantity], _fits(part)
    marker = MARKERS[i] if len(part) <= _MOST_MARKED else None
    style: Style = {"color": COLOURS[i], "linestyle": DASHES[i], "linewidth": 1, "marker": marker}
    ax.plot(x[fits], y[fits], label=label or "_none", markersize=3, **style)
    if not fits.all():
        joined = ~fits | ~fits.shift(-1, fill_value=True)
        ax.plot(x[joined], y[joined], **(style | {"alpha": 0.4, "marker": None}))
        points: Style = {"linestyle": "", "markerfacecolor": "white", "markersize": 3, "alpha": 0.6}
        ax.plot(x[~fits], y[~fits], **(style | points))
