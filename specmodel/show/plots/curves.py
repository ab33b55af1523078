"""Figures of lines and points: over batch size, tokens and iterations, and against measurements."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmodel.layers.work import CAUSES
from specmodel.show.plots import frames
from specmodel.show.plots.style import (
    COLOURS,
    MARKERS,
    MOST_LINES,
    PALE,
    Style,
    counts_axis,
    kind_numbers,
    legend_above,
    points,
    series,
    shortened,
    si_axes,
    unity,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MOST_MARKED, _MANY, _MOST_BANDS = 20, 300, 3
_MOST_CHARACTERS = 36
_PLACES = [(0, 7), (0, -7), (5, 6), (-5, 6), (5, -6), (-5, -6), (9, 0), (-9, 0), (0, 10), (0, -10)]
"""Where letters may stand beside a point, in points of a font."""
_CHARACTERS = 1.9
"""Characters that a line holds for each size of its font."""
_PHASES = {"baseline": "0.72", "test": "0.93"}
_CAUSES = {cause: cause[0].upper() for cause in CAUSES} | {"communication": "M"}
_LETTERS = {letter: cause for cause, letter in _CAUSES.items()} | {"G": "no CUDA graph"}
"""What bends a curve from a point on, by the letter that stands there."""


def speedup(table: pd.DataFrame, ax: Axes, *, marks: bool = True) -> Axes:
    """Draw the speedup over the batch size, a line for each value of what else varies.

    Parameters
    ----------
    table, ax
        Columns batch_size and speedup; bands between speedup_low and speedup_high, if given, are
        drawn for at most three lines, and what does not fit in memory by max_batch_size or fits is
        pale. At most six lines, told apart by draft_length, context_length or other inputs such as
        target; best draft lengths, one for each batch size, make one line.
    marks
        Whether letters stand where limited_by changes and where in_graph ends, if given, and
        numbers where best draft lengths change.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"batch_size": [1, 8], "speedup": [1.2, 1.5]})
    >>> speedup(table, Figure().add_subplot()).get_ylabel()
    'speedup (×)'
    """
    return _over_batch_size(table, ax, "speedup", marks)


def target_efficiency(table: pd.DataFrame, ax: Axes, *, marks: bool = True) -> Axes:
    """Draw the target efficiency over the batch size, a line for each value of what else varies.

    Parameters
    ----------
    table, ax, marks
        As for `speedup`, with the column target_efficiency.
    """
    return _over_batch_size(table, ax, "target_efficiency", marks)


def active_experts(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the experts that tokens of one sequence activate: measured, by the law, independent.

    Parameters
    ----------
    table, ax
        As `unions.measured_unions` returns it: model, num_experts, experts_per_token, tokens,
        measured, law and independent; at most six models.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    numbers = ("num_experts", "experts_per_token", "tokens", "measured", "law", "independent")
    rows = frames.checked(table, numbers, ("model",), may_lack=("measured",))
    models = list(rows.groupby(["model", "num_experts", "experts_per_token"], sort=False))
    frames.need_at_most(MOST_LINES, len(models), "models")
    handles = []
    for i, ((name, total, each), part) in enumerate(models):
        frames.need_distinct(part, ["tokens"])
        part = part.sort_values("tokens")
        for law, dashes in (("law", "-"), ("independent", "--")):
            ax.plot(part["tokens"], part[law], **series(i, linestyle=dashes, marker=""))
        label = shortened(f"{name} ({total:g}/{each:g})", _MOST_CHARACTERS)
        style = points(i, mfc="none", label=label)
        handles += ax.plot(part["tokens"], part["measured"], **style)
    handles.append(Line2D([], [], color="black", linewidth=1, label="law"))
    handles.append(Line2D([], [], color="black", linewidth=1, ls="--", label="independent"))
    ax.set(xlabel="tokens of one sequence in a pass", ylabel="experts loaded per layer")
    ax.set_ylim(0, None)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(ax, "measured (experts/top-k)", handles, side="right")
    return ax


def closed_loop(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw target efficiency over batch size by draft length: measured points, predicted lines.

    Parameters
    ----------
    table, ax
        Columns batch_size, draft_length, measured, predicted and spread, the standard deviation
        of repeats; of one target and context. Where there is a column quantity, its rows of
        target_efficiency. At most six draft lengths.
    """
    if "quantity" in table:
        table = table[table["quantity"] == "target_efficiency"]
    numbers = ("batch_size", "draft_length", "measured", "predicted", "spread")
    rows = frames.checked(table, numbers, may_lack=("spread",))
    frames.need_positive(rows, "batch_size")
    frames.need_distinct(rows, ("batch_size", "draft_length"))
    lengths = list(rows.groupby("draft_length"))
    frames.need_at_most(MOST_LINES, len(lengths), "draft lengths")
    for i, (length, part) in enumerate(lengths):
        part = part.sort_values("batch_size")
        sizes = part["batch_size"]
        ax.plot(sizes, part["predicted"], **series(i, marker=""))
        dots = points(i, markersize=2.5, elinewidth=0.6, label=f"{length:g}")
        ax.errorbar(sizes, part["measured"], yerr=part["spread"], **dots)
    counts_axis(ax, rows["batch_size"], frames.titled(["batch_size"]))
    ax.set(ylabel=frames.titled(["target_efficiency"]), ylim=(0, None))
    title = f"{frames.titled(['draft_length'])}, points: measured"
    legend_above(ax, title, side="right")
    return ax


def predicted_against_measured(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw predicted over measured times, log-log, with the identity and a band of 10 %.

    Parameters
    ----------
    table, ax
        Columns component, latency and predicted, in seconds, as `validation.predict_measured`
        gives.
    """
    rows = frames.checked(table, ("latency", "predicted"), ("component",))
    frames.need_positive(rows, "latency", "predicted")
    low = 0.8 * min(rows["latency"].min(), rows["predicted"].min())
    high = 1.25 * max(rows["latency"].max(), rows["predicted"].max())
    line = np.array([low, high])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color="0.85", linewidth=0, label="±10 %")
    ax.plot(line, line, color="0.3", linewidth=0.8)
    shape: Style = {"markeredgewidth": 0, "rasterized": True}
    shape |= {"markersize": 1.5, "alpha": 0.5} if len(rows) > _MANY else {"markersize": 3}
    kinds = list(rows.groupby("component", sort=True))
    frames.need_at_most(MOST_LINES, len(kinds), "components")
    numbers = kind_numbers(str(kind) for kind, _ in kinds)
    for kind, part in kinds:
        style = points(numbers[str(kind)], label=shortened(frames.words(str(kind)), 30))
        ax.plot(part["latency"], part["predicted"], **(style | shape))
    ends = 0.9 * low, 1.1 * high
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    si_axes(ax)
    ax.set(xlabel="measured time (s)", ylabel="predicted time (s)")
    ax.set_aspect("equal")
    legend = legend_above(ax)
    for handle in legend.get_lines() if legend else ():
        handle.set(alpha=1, markersize=4)
    return ax


def timeline(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw draft length and phase over the iterations of a request, and below them utility.

    Parameters
    ----------
    table
        Columns draft_length, emitted_tokens, phase, utility (the policy's own, of its last trial)
        and window_utility; of one request, in order.
    axes
        Two, that share the horizontal axis.
    """
    from matplotlib.ticker import MaxNLocator

    unknown = ("utility", "window_utility")
    numbers = ("draft_length", "emitted_tokens", *unknown)
    table = frames.checked(table, numbers, ("phase",), may_lack=unknown)
    top, bottom = axes
    steps = np.arange(len(table) + 1)
    changes = np.flatnonzero(table["phase"] != table["phase"].shift())
    for start, end in itertools.pairwise([*changes, len(table)]):
        colour = _PHASES.get(table["phase"].iloc[start])
        for ax in axes if colour else ():
            ax.axvspan(start, end, color=colour, linewidth=0, zorder=0)
    for phase in ("baseline", "test"):
        if (table["phase"] == phase).any():
            top.fill_between([], [], color=_PHASES[phase], label=phase)
    accepted = table["emitted_tokens"] - 1
    top.stairs(accepted, steps, color=COLOURS[2], fill=True, label="accepted")
    top.stairs(table["draft_length"], steps, color=COLOURS[0], label="draft length")
    top.set(ylabel="tokens per step", ylim=(0, None))
    utility, window = table["utility"], table["window_utility"]
    is_new = utility.notna() & (utility != utility.shift())
    unity(bottom)
    bottom.plot(steps[1:], window, color=COLOURS[0], linewidth=1, label="last 16 iterations")
    if is_new.any():
        dots = points(3, marker="o", markersize=2.5, label="trial, as measured")
        bottom.plot(steps[1:][is_new], utility[is_new], **dots)
    bottom.set(
        xlabel="iterations of the request", ylabel=frames.titled(["utility"]), xlim=(0, len(table))
    )
    for ax in axes:
        legend_above(ax)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return axes


def bands_told(kind: str, table: pd.DataFrame) -> str:
    """Say that intervals of a table are not drawn, if they are not though it has them."""
    if kind not in ("speedup", "target_efficiency") or f"{kind}_low" not in table:
        return ""
    _, parts = frames.lines(table, "batch_size", kind, MOST_LINES)
    told = f" Intervals are drawn of at most {_MOST_BANDS} lines; --where keeps some."
    return told if len(parts) > _MOST_BANDS else ""


def _over_batch_size(table: pd.DataFrame, ax: Axes, quantity: str, marks: bool) -> Axes:
    """Draw a quantity over the batch size, a line for each value of what else varies."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ends = [name for name in (f"{quantity}_low", f"{quantity}_high") if name in table]
    limit = [name for name in ("max_batch_size",) if name in table]
    numbers = ["batch_size", quantity, *ends, *limit]
    rows = frames.checked(table, numbers, may_lack=ends)  # nothing drafted has no interval
    frames.need_positive(rows, "batch_size")
    told, parts = frames.lines(rows, "batch_size", quantity, MOST_LINES)
    has_bands = len(ends) == 2 and len(parts) <= _MOST_BANDS
    pins = []
    band: Style = {"alpha": 0.2, "linewidth": 0}
    for i, (name, part) in enumerate(parts):
        if has_bands:
            reach = part["batch_size"], part[ends[0]], part[ends[1]]
            ax.fill_between(*reach, color=COLOURS[i], zorder=1, **band)
        _line(ax, part, quantity, i, shortened(name, _MOST_CHARACTERS))
        pins += [(i, x, y, letters) for x, y, letters in _bends(part, quantity)]
    pins = pins if marks and len(parts) <= _MOST_BANDS else []
    unity(ax)
    if quantity == "target_efficiency":
        ax.set_ylim(0, None)
    ax.set_ylabel(frames.titled([quantity]))
    counts_axis(ax, rows["batch_size"], frames.titled(["batch_size"]))
    _pin(ax, pins, [part[["batch_size", quantity]].to_numpy(float) for _, part in parts])
    handles = ax.get_legend_handles_labels()[0]
    if has_bands:
        of_all: Style = {"facecolor": PALE, "edgecolor": "0.6", "linewidth": 0.4}
        swatch = {"facecolor": COLOURS[0], **band} if len(parts) == 1 else of_all
        handles.append(Patch(label="80 % interval", **swatch))
    if not frames.fits(rows).all():
        pale: Style = {"color": "0.7", "markerfacecolor": "white", "marker": "o", "markersize": 3}
        handles.append(Line2D([], [], label="does not fit in memory", **pale))
    legend_above(ax, told, handles)
    return ax


def _bends(part: pd.DataFrame, quantity: str) -> list[tuple[float, float, str]]:
    """Return where a line bends: at another draft length, by another limit, or past CUDA graphs."""
    columns = ("draft_length", "limited_by", "in_graph")
    values = part.reindex(columns=columns).astype(object).fillna("")
    if values["draft_length"].nunique() < 2:
        values["draft_length"] = ""  # one for the whole line
    lengths = map(frames.plain, values["draft_length"])
    letters = [_CAUSES.get(str(cause), "") for cause in values["limited_by"]]
    outside = ["G" * (str(holds) == "False") for holds in values["in_graph"]]
    found, before = [], [""] * len(columns)
    for x, y, *now in zip(
        part["batch_size"], part[quantity], lengths, letters, outside, strict=True
    ):
        changed = [new for new, old in zip(now, before, strict=True) if new != old]
        found.append((x, y, " ".join(filter(None, changed))))
        before = now
    return [bend for bend in found if bend[2]]


def _pin(ax: Axes, bends: list[tuple[int, float, float, str]], drawn: Sequence[np.ndarray]) -> None:
    """Write draft lengths and letters where lines bend, and below the axis what they mean.

    `drawn` are the points of lines. What is written stands close to its point and clear of lines
    and of what else is written, or not at all.
    """
    from matplotlib.patheffects import withStroke

    point, used = ax.figure.dpi / 72, set[str]()
    taken = [_along(ax.transData.transform(line) / point) for line in drawn]
    (left, low), (right, high) = ax.bbox.get_points() / point
    for i, x, y, letters in bends:
        at = ax.transData.transform((x, y)) / point
        room = np.array([2 * len(letters) + 1, 4])
        for place in (at + np.array(apart) for apart in _PLACES):
            is_inside = (place - room > (left, low)).all() and (place + room < (right, high)).all()
            if is_inside and all(
                (np.abs(place - other) > room).any(axis=1).all() for other in taken
            ):
                taken.append(place[None] + room * [[-1, 0], [0, 0], [1, 0]])
                used |= {*letters}
                up: Style = {"xytext": place - at, "textcoords": "offset points"}
                style: Style = {"ha": "center", "va": "center", "size": 6, "color": COLOURS[i]}
                style["path_effects"] = [withStroke(linewidth=1.5, foreground="white")]
                ax.annotate(letters, (x, y), **up, **style)
                break
    # blanks that no line is broken at
    told = [f"{n} {words}".replace(" ", "\xa0") for n, words in _LETTERS.items() if n in used]
    notes = [f"limited by {', '.join(told)}"] if told else []
    notes = ["numbers: draft length", *notes] if any(map(str.isdigit, used)) else notes
    if notes:
        size = float(ax.xaxis.label.get_fontsize())
        width = int(_CHARACTERS * ax.bbox.width / point / size)
        note = textwrap.fill("; ".join(notes), width)
        ax.set_xlabel(f"{ax.get_xlabel()}\n{note}")


def _along(points: np.ndarray) -> np.ndarray:
    """Return points two apart or less along a line through points, in points of a font."""
    steps = [
        start + (end - start) * np.linspace(0, 1, 2 + int(np.hypot(*(end - start)) / 2))[:, None]
        for start, end in itertools.pairwise(points)
    ]
    return np.concatenate([points, *steps])


def _line(ax: Axes, part: pd.DataFrame, quantity: str, i: int, label: str) -> None:
    """Draw the points that fit in memory boldly, and the others palely."""
    x, y, inside = part["batch_size"], part[quantity], frames.fits(part)
    style = series(i, marker=MARKERS[i] if len(part) <= _MOST_MARKED else None)
    ax.plot(x[inside], y[inside], label=label or "_none", **style)
    if not inside.all():
        joined = ~inside | ~inside.shift(-1, fill_value=True)
        ax.plot(x[joined], y[joined], **(style | {"alpha": 0.4, "marker": None}))
        points: Style = {"linestyle": "", "markerfacecolor": "white", "markersize": 3, "alpha": 0.6}
        ax.plot(x[~inside], y[~inside], **(style | points))
