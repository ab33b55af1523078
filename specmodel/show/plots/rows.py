"""Figures with a row for each term, input or policy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError, nearest
from specmodel.base.units import format_si
from specmodel.show.plots import frames
from specmodel.show.plots.style import (
    COLOURS,
    GREY,
    SMALL,
    Style,
    filled,
    folded,
    legend_above,
    points,
    rows_axis,
    rows_that_fit,
    unity,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_INPUTS = 10
"""Inputs that a figure shows, the largest first [-]."""

MOST_POINTS = 4
"""Points whose waterfalls stand side by side [-]."""

MOST_POLICIES = 24
"""Policies that a figure compares [-]."""

_WIDTH = 24
_VISIBLE = 0.01
"""Least swing, or share of the variance, that is drawn, over the largest [-]."""
_HINDSIGHT = ("best-fixed", "greedy", "oracle")
_QUANTITIES = ("target_efficiency", "speedup")
_POINT = ("batch_size", "draft_length", "context_length")


def waterfalls(
    table: pd.DataFrame, axes: Sequence[Axes], *, outcome: str | None = None
) -> Sequence[Axes]:
    """Draw what leads from the ideal to the predicted target efficiency, and speedup.

    Parameters
    ----------
    table
        As `answers.Explanation.to_frame` returns it: batch_size, draft_length, context_length,
        quantity, term and value, of at most four points. Terms that are 0 throughout are left
        out.
    axes, outcome
        Two, of target efficiency and of speedup, or one of the outcome of these.
    """
    if outcome is not None:
        _check_outcome(outcome)
    quantities = (outcome,) if outcome else _QUANTITIES
    rows = frames.checked(table, (*_POINT, "value"), ("quantity", "term"))
    frames.need_distinct(rows, (*_POINT, "quantity", "term"))
    varying = [name for name in _POINT if rows[name].nunique() > 1]
    points = list(rows.groupby(list(_POINT), sort=False))
    frames.need_at_most(MOST_POINTS, len(points), "points")
    for ax, quantity in zip(axes, quantities, strict=True):
        own = rows[rows["quantity"] == quantity]
        if own.empty:
            found = ", ".join(rows["quantity"].unique())
            expected = f"rows of {quantity} as well, or {found} as the outcome"
            raise InputError(f"{frames.ARGUMENT}.quantity", found, expected)
        moving = own.groupby("term", sort=False)["value"].apply(lambda v: bool(v.abs().max() > 0))
        terms = list(moving[moving].index)
        for i, (_, part) in enumerate(points):
            label = ", ".join(f"{part[name].iloc[0]:g}" for name in varying)
            is_inside = bool(frames.fits(part).all())
            label += "" if is_inside else f"{' ' * bool(label)}(does not fit in memory)"
            part = part[part["quantity"] == quantity]
            values = part.set_index("term")["value"].reindex(terms, fill_value=0.0)
            _waterfall(ax, values, (i, len(points)), label, is_inside=is_inside)
        rows_axis(ax, [folded(str(term), _WIDTH) for term in terms])
        ax.set(xlim=(0, 1.03 * max(ax.get_xlim()[1], 1)), xlabel=frames.titled([quantity]))
    legend_above(axes[0], frames.titled(varying), side="right")
    for ax in axes if len(points) == 1 else ():  # bars of several are too thin
        _write(ax)
    return axes


def tornado(table: pd.DataFrame, ax: Axes, *, outcome: str = "speedup") -> Axes:
    """Draw an outcome at both ends of the range of each input, the largest swing first.

    A line stands where all inputs have their values; which ranges hold 80 % is said at each.

    Parameters
    ----------
    table, ax
        As `sensitivity.tornado` returns it, or as ``specmodel sensitivity --csv`` prints it. The
        inputs that move the outcome by 1 % of the largest swing or more are drawn, at most ten,
        acceptance among them.
    outcome
        "speedup" or "target_efficiency".
    """
    _check_outcome(outcome)
    ends = [f"{outcome}_{end}" for end in ("at_low", "at_high", "nominal")]
    columns = ("low", "high", *ends)
    if "analysis" in table:
        table = _wide(table, "tornado", columns, outcome)
    rows = frames.checked(table, columns, ("input",))
    frames.need_distinct(rows, ("input",))
    swings = (rows[ends[1]] - rows[ends[0]]).abs()
    details = [rows.get(name, itertools.repeat("")) for name in ("unit", "source")]
    ranges = map(_range, rows["low"], rows["high"], *details)
    names = [folded(frames.words(name), _WIDTH) for name in rows["input"]]
    rows["label"] = [f"{name}\n{span}" for name, span in zip(names, ranges, strict=False)]
    shown = _largest(ax, rows, swings)
    places = np.arange(len(shown))
    low, high, nominal = shown[ends[0]], shown[ends[1]], rows[ends[2]].iloc[0]
    ax.barh(places, high - low, 0.55, low, color="0.85", edgecolor="none")
    ax.axvline(nominal, color="black", linewidth=0.8, label=f"nominal, {nominal:.2f}")
    ax.plot(low, places, label="low end", **points(0, mfc="white"))
    ax.plot(high, places, label="high end of the range", **points(0))
    _inputs_axis(ax, shown, swings, frames.titled([outcome]))
    least, most = min(high.min(), low.min(), nominal), max(high.max(), low.max(), nominal)
    margin = 0.08 * (most - least or 0.1)
    ax.set_xlim(least - margin, most + margin)
    legend_above(ax, side="right")
    return ax


def sobol(table: pd.DataFrame, ax: Axes, *, outcome: str = "speedup") -> Axes:
    """Draw which share of the variance of an outcome each input decides, by itself and in all.

    Parameters
    ----------
    table, ax, outcome
        As for `tornado`, from `sensitivity.sobol`: by the total index, with 95 % intervals.
    """
    _check_outcome(outcome)
    indices = ("first_order", "total")
    numbers = [f"{name}{end}" for name in indices for end in ("", "_low", "_high")]
    if "analysis" in table:
        table = _wide(table, "sobol", [f"{outcome}_{name}" for name in numbers], outcome)
        table.columns = table.columns.str.removeprefix(f"{outcome}_")
        table["output"] = outcome
    rows = frames.checked(table, numbers, ("input", "output"))
    rows = rows[rows["output"] == outcome]
    if rows.empty:
        raise InputError(
            f"{frames.ARGUMENT}.output", outcome, f"rows of {outcome}, which no range moves"
        )
    frames.need_distinct(rows, ("input",))
    rows = rows.assign(label=[folded(frames.words(name), _WIDTH) for name in rows["input"]])
    shown = _largest(ax, rows, rows["total"])
    places = np.arange(len(shown))
    for i, (name, told) in enumerate(
        zip(indices, ("first-order index", "total index"), strict=True)
    ):
        value = shown[name].clip(lower=0)
        low, high = shown[f"{name}_low"].clip(lower=0), shown[f"{name}_high"]
        style = filled(i, i) | {"error_kw": {"linewidth": 0.6, "ecolor": "0.2"}}
        style["xerr"] = [side.clip(lower=0).tolist() for side in (value - low, high - value)]
        ax.barh(places + (i - 0.5) * 0.36, value, 0.34, label=told, **style)
    label = f"share of the variance\nof {frames.words(outcome)} (of 1)"
    _inputs_axis(ax, shown, rows["total"], label)
    ax.set_xlim(0, None)
    legend_above(ax, "95 % intervals (sampling)", side="right")
    return ax


def policies(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup of each policy with its interval, hollow for those that know the trace.

    Parameters
    ----------
    table, ax
        As `replay.summarise` returns it: policy, speedup, speedup_low and speedup_high, which
        are missing where there was one request; a row for each policy, at most 24.
    """
    ends = ("speedup_low", "speedup_high")
    rows = frames.checked(table, ("speedup", *ends), ("policy",), may_lack=ends)
    frames.need_distinct(rows, ("policy",))
    frames.need_at_most(MOST_POLICIES, len(rows), "policies")
    names = rows["policy"].astype(str)
    inside = bool(frames.fits(rows).all())
    knows = names.str.split(":").str[0].isin(_HINDSIGHT)
    unity(ax, vertical=True)
    for part, face, label in (
        (rows[~knows], COLOURS[0], "policy"),
        (rows[knows], "white", "in hindsight, a bound"),
    ):
        reach = np.stack([part["speedup"] - part[ends[0]], part[ends[1]] - part["speedup"]])
        places, pale = (part["speedup"], part.index.to_numpy()), 1 if inside else 0.4
        if not part.empty:
            bars: Style = {"elinewidth": 0.8, "capsize": 2, "ecolor": COLOURS[0], "alpha": pale}
            ax.errorbar(*places, xerr=np.nan_to_num(reach).clip(min=0), fmt="none", **bars)
            ax.plot(*places, **points(0, mfc=face, label=label, alpha=pale))
    rows_axis(ax, [folded(name, _WIDTH) for name in names])
    ax.grid(axis="y", linewidth=0.3, color="0.85")
    ax.set_axisbelow(True)
    note = "" if inside else "\ndoes not fit in memory"
    ax.set_xlabel(f"{frames.titled(['speedup'])}\n95 % interval (requests){note}")
    legend_above(ax, side="right")
    return ax


def _waterfall(
    ax: Axes, values: pd.Series[float], place: tuple[int, int], label: str, *, is_inside: bool
) -> None:
    """Draw the ends as bars from 0, and the terms as bars from where the one before ended.

    Bars of a point that does not fit in memory are hollow. Each ends in a line, by which one too
    short for its colour is seen.
    """
    i, count = place
    is_end = np.isin(values.index, ["ideal", "predicted"])
    inner = np.where(is_end, 0.0, values)
    start = np.where(is_end, 0.0, values.iloc[0] + np.cumsum(inner) - inner)
    height = 0.8 / count
    at = np.arange(len(values)) + (i - (count - 1) / 2) * height
    ax.barh(at, values, height, start, label=label or "_", **filled(i, i, is_hollow=not is_inside))
    reached = start + values.to_numpy()
    for x, y, value in zip(reached, at, values, strict=True):
        if value:
            ax.plot([x, x], [y - height / 2, y + height / 2], color=COLOURS[i], linewidth=0.8)
    for k in range(len(values) - 1):
        ax.plot([reached[k]] * 2, at[k : k + 2], color=GREY, linewidth=0.4, zorder=0)


def _write(ax: Axes) -> None:
    """Write into each bar its value, where it has room."""
    ax.figure.figure.draw_without_rendering()  # the layout narrows axes for the names of rows
    for bars in ax.containers:
        for bar in bars:
            place = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
            colour = "black" if bar.get_facecolor()[:3] == (1, 1, 1) else "white"
            style: Style = {"ha": "center", "va": "center_baseline", "size": SMALL}
            told = ax.text(*place, f"{bar.get_width():.2f}", color=colour, **style)
            if told.get_window_extent().width > 0.9 * bar.get_window_extent().width:
                told.remove()


def _wide(table: pd.DataFrame, analysis: str, columns: Sequence[str], outcome: str) -> pd.DataFrame:
    """Return an analysis of a tidy table with a row for each input."""
    rows = frames.checked(table, ("value",), ("analysis", "input", "output", "quantity"))
    rows = rows[rows["analysis"] == analysis].fillna({"output": ""})
    if rows.empty:
        raise InputError(f"{frames.ARGUMENT}.analysis", analysis, f"rows of {analysis}")
    frames.need_distinct(rows, ("input", "output", "quantity"))
    name = (rows["output"] + "_" + rows["quantity"]).str.removeprefix("_")
    found = rows.assign(name=name)[name.isin(columns)]
    if found.empty:
        raise InputError(f"{frames.ARGUMENT}.output", outcome, "an outcome that some range moves")
    wide = found.pivot(index="input", columns="name", values="value")
    for told in ("unit", "source") if "low" in columns else ():
        if told in found:
            wide[told] = found[found["name"] == "low"].set_index("input")[told]
    return wide.reindex(rows["input"].unique()).dropna().rename_axis("input").reset_index()


def _range(low: float, high: float, unit: str, source: str) -> str:
    """Return both ends of a range, the unit once where the prefix is the same, and what it is."""
    told = {"calibration": "80 %: ", "tasks": "80 %: ", "": ""}.get(source, f"{source}: ")
    if unit in ("", "-", "token", "request"):
        return f"{told}{low:.3g} to {high:.3g}" + (f" {unit}s" if unit not in ("", "-") else "")
    (first, of_first), (last, of_last) = (format_si(end, unit).split(" ") for end in (low, high))
    return f"{told}{first if of_first == of_last else f'{first} {of_first}'} to {last} {of_last}"


def _largest(ax: Axes, rows: pd.DataFrame, effects: pd.Series[float]) -> pd.DataFrame:
    """Return the rows with the largest effects: those that can be seen and have room, or one.

    Acceptance is one of them if it can be seen.
    """
    order = effects.sort_values(ascending=False, kind="stable")
    seen = order.index[order >= _VISIBLE * order.iloc[0]]
    lines = 1 + int(rows["label"].loc[seen[:MOST_INPUTS]].str.count("\n").max())
    kept = seen[: min(MOST_INPUTS, rows_that_fit(ax, lines))]
    known = seen[rows["input"].loc[seen] == "acceptance_rate"].difference(kept)
    return rows.loc[[*kept[: len(kept) - len(known) or 1], *known]]


def _inputs_axis(ax: Axes, shown: pd.DataFrame, effects: pd.Series[float], label: str) -> None:
    """Name the inputs that are drawn, and below say how many are not, and how little they do."""
    rows_axis(ax, list(shown["label"]))
    rest = effects.drop(shown.index)
    if not rest.empty:
        share = 100 * rest.max() / (effects.max() or 1)
        label += f"\n{len(rest)} more, at most\n{np.ceil(share).clip(1):.0f} % of the largest"
    ax.set_xlabel(label)


def _check_outcome(outcome: str) -> None:
    if outcome not in _QUANTITIES:
        raise InputError("outcome", outcome, f"one of {nearest(outcome, _QUANTITIES)}")
