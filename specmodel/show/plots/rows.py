"""Draw figures with a row for each term, input or policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.prediction.table import seconds
from specmodel.show import labels
from specmodel.show.glossary import TABLES
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, SMALL, Axes, Style

MOST_INPUTS = 10
"""Largest number of inputs in a figure [-]."""

MOST_POINTS = 4
"""Largest number of waterfalls in a figure [-]."""

MOST_POLICIES = 24
"""Largest number of policies in a figure [-]."""

_WIDTH = 24
_TERMS = TABLES["terms"]
"""Short names of the terms of a waterfall."""
_VISIBLE = 0.03
"""Smallest swing, or share of the variance, that is drawn, relative to the largest [-]."""
_HINDSIGHT = ("best-fixed", "oracle")
_INTERVALS = {"predicted": ("errors of times", 5, 0.8), "simulated": ("noise of requests", 0, 2.2)}
_FACTORS = ("error", "factor", "host_speed")
"""Endings of names of inputs that are factors around 1."""
_QUANTITIES = ("target_efficiency", "speedup")


def num_points(table: pd.DataFrame) -> int:
    """Return the number of points in a table, at least 1 [-]."""
    return max(len(table.filter([*frames.POINT]).drop_duplicates()), 1)


def waterfalls(
    table: pd.DataFrame, axes: Sequence[Axes], *, outcome: str = "speedup"
) -> Sequence[Axes]:
    """Draw the losses from the ideal to the predicted speedup, or target efficiency.

    Parameters
    ----------
    table
        Table of `plan.Explanation.to_frame`: batch_size, draft_length, context_length, quantity,
        term and value, of at most four points. Terms that are 0 everywhere are omitted.
    axes
        One for each point, side by side.
    outcome
        As for `tornado`.
    """
    rows = frames.checked(table, (*frames.POINT, "value"), ("quantity", "term"))
    frames.need_distinct(rows, (*frames.POINT, "quantity", "term"))
    varying = [name for name in frames.POINT if rows[name].nunique() > 1]
    frames.need_at_most(MOST_POINTS, num_points(rows), "points")
    own = rows[rows["quantity"] == outcome]
    if own.empty:
        frames.refuse(", ".join(rows["quantity"].unique()), f"rows of {outcome}", "quantity")
    terms = own["term"][own.groupby("term")["value"].transform("any").astype(bool)].unique()
    named = _TERMS | ({"ideal": "verifying is free"} if outcome == "target_efficiency" else {})
    style.rows_axis(axes[0], [labels.folded(named.get(str(t), str(t)), _WIDTH) for t in terms])
    figure: Any = axes[0].figure
    figure.supxlabel(labels.titled([outcome]), size="medium")
    figure.draw_without_rendering()  # values have the room that the layout leaves
    for ax, (_, part) in zip(axes, own.groupby(list(frames.POINT), sort=False), strict=True):
        told = [] if frames.fits(part).all() else ["does\nnot fit"]
        told += [labels.count_label(part[name].iloc[0]) for name in varying]
        ax.set_xlim(0, 1.02 * max(own["value"].max(), 1))
        ax.set_title("\n".join(told), size=SMALL, pad=3)
        ax.locator_params(axis="x", nbins=4, steps=[1, 2, 5, 10])
        style.scaled(ax.xaxis, 1)
        ax.tick_params(axis="y", length=0, labelsize=SMALL)
        spec = ax.get_subplotspec()
        # the names of the panels' values, once
        if varying and (spec is None or spec.is_first_col()):
            of: Style = style.BESIDE | {"xycoords": "axes fraction", "ha": "right"}
            ax.annotate("\n".join(map(labels.words, varying)), (0, 1), (-3, 3), **of)
        _waterfall(ax, part.set_index("term")["value"].reindex(terms, fill_value=0.0))
    return axes


def tornado(table: pd.DataFrame, ax: Axes, *, outcome: str = "speedup") -> Axes:
    """Draw an outcome at both ends of the range of each input, the largest swing first.

    A line marks the outcome at nominal values of all inputs. A label marks ranges that are 80 %
    intervals.

    Parameters
    ----------
    table, ax
        Table of `sensitivity.tornado`, or of ``specmodel sensitivity --csv``. The figure shows at
        most ten inputs that move the outcome by at least 1 % of the largest swing. Acceptance is
        always among them if it does.
    outcome
        "speedup" or "target_efficiency".
    """
    rows = _inputs(table, "tornado", ("low", "high", "at_low", "at_high", "nominal"), outcome)
    ranges = rows.reindex(columns=["low", "high", "unit", "source"], fill_value="")
    ranges["unit"] = ranges["unit"].mask(rows["input"].str.endswith(_FACTORS), "×")
    rows["under"] = [f"\n{labels.span(*values)}" for values in ranges.itertuples(index=False)]
    swings = (rows["at_high"] - rows["at_low"]).abs()
    shown = _name_inputs(ax, rows, swings, labels.titled([outcome]))
    nominal = rows["nominal"].iloc[0]
    for i, (end, label) in enumerate({"high": "high end of the range", "low": "low end"}.items()):
        swing = shown[f"at_{end}"] - nominal
        ax.barh(np.arange(len(shown)), swing, 0.72, nominal, label=label, **style.filled(i))
    ax.axvline(nominal, color="black", linewidth=0.8, label=f"nominal, {nominal:.2f}")
    ax.use_sticky_edges = False
    ax.margins(x=0.08)
    style.legend_above(ax, side="right")
    return ax


def sobol(table: pd.DataFrame, ax: Axes, *, outcome: str = "speedup") -> Axes:
    """Draw the share of an outcome's variance that each input explains, by itself and in total.

    Parameters
    ----------
    table, ax, outcome
        As for `tornado`, from `sensitivity.sobol`, in order of the total index, with 95 %
        intervals.
    """
    indices = {"first_order": "first-order index", "total": "total index"}
    numbers = [f"{name}{end}" for name in indices for end in ("", "_low", "_high")]
    rows = _inputs(table, "sobol", numbers, outcome)
    label = labels.folded(f"share of the variance of the {labels.words(outcome)}", 36)
    shown = _name_inputs(ax, rows.assign(under=""), rows["total"], label)
    for i, (name, told) in enumerate(indices.items()):
        value, low = shown[name].clip(lower=0), shown[f"{name}_low"].clip(lower=0)
        bars = style.filled(1 + 3 * i) | {"error_kw": {"elinewidth": 0.9, "capsize": 2}}
        bars["xerr"] = _reach(value, low, shown[f"{name}_high"])
        ax.barh(np.arange(len(shown)) + (i - 0.5) * 0.36, value, 0.34, label=told, **bars)
    ax.set_xlim(0, max(1, shown["total_high"].max()))
    interval = style.key("95 % interval of sampling", color="black", linewidth=0.9)
    style.legend_above(ax, "", None, interval, side="right")
    return ax


def policies(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup of each policy with its interval; policies that know the trace are hollow.

    Parameters
    ----------
    table, ax
        Table of `simulate.summarise`: policy, speedup, speedup_low and speedup_high (missing with a
        single request), with a row for each policy, at most 24.
    """
    ends = ("speedup_low", "speedup_high")
    rows = frames.checked(table, ("speedup", *ends), ("policy",), may_lack=ends)
    _name_policies(ax, rows)
    alpha = 1.0 if frames.fits(rows).all() else 0.4
    knows = rows["policy"].astype(str).str.split(":").str[0].isin(_HINDSIGHT)
    at_1 = style.unity(ax, vertical=True)
    bars: Style = {"ecolor": COLOURS[0], "elinewidth": 0.8, "capsize": 2, "alpha": alpha}
    for label, part in {"online": rows[~knows], "best in hindsight, a bound": rows[knows]}.items():
        face, told = COLOURS[0] if label == "online" else "white", label if len(part) else None
        reach = _reach(part["speedup"], part[ends[0]], part[ends[1]])
        ax.errorbar(part["speedup"], part.index, xerr=reach, fmt="none", **bars)
        ax.plot(part["speedup"], part.index, **style.points(0, mfc=face, label=told, alpha=alpha))
    ax.grid(axis="y", linewidth=0.3, color="0.85")
    ax.set_axisbelow(True)
    ax.set_xlabel(labels.titled(["speedup"]) + ("" if alpha == 1 else "\ndoes not fit in memory"))
    interval = style.key("95 % interval of requests", color=COLOURS[0], linewidth=0.8)
    more = [interval] if rows[ends[0]].notna().any() else []
    style.legend_above(ax, "", None, at_1, *more, side="right")
    return ax


def policy_bars(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the speedup of each policy as a bar, in a group for each workload.

    Parameters
    ----------
    table, ax
        Columns workload, policy and speedup, with a row for each pair; at most six policies.
    """
    rows = frames.checked(table, ("speedup",), ("workload", "policy"))
    frames.need_distinct(rows, ("workload", "policy"))
    workloads, policies = ([*rows[name].unique()] for name in ("workload", "policy"))
    frames.need_at_most(style.MOST_LINES, len(policies), "policies")
    cells = rows.pivot(index="workload", columns="policy", values="speedup")
    style.grouped(ax, cells.loc[workloads, policies])
    at_1 = style.unity(ax)
    told = [labels.shortened(str(name), 40).replace("+", "+\n") for name in workloads]
    is_narrow = style.label_room(ax.xaxis, "\n".join(told).split("\n")) > ax.bbox.width / len(told)
    ax.set_xticks(range(len(told)), told, size=SMALL, rotation=90 if is_narrow else 0)
    ax.set(ylabel=labels.titled(["speedup"]), ylim=(0, None))
    style.legend_above(ax, "", None, at_1)
    return ax


def capacity(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the rate that each policy sustains within targets, with its two intervals.

    Parameters
    ----------
    table, ax
        As for `load`, or a row for each policy, at most 24: policy, capacity, and the ends of both
        intervals, such as predicted_low, which are missing if the capacity is 0. A line below the
        figure states the targets, if the table has columns for them.
    """
    ends = ("predicted_low", "predicted_high", "simulated_low", "simulated_high")
    found = frames.checked(table, ("capacity", *ends), ("policy",), may_lack=ends)
    rows = found.drop_duplicates(["policy", "capacity", *ends], ignore_index=True)
    _name_policies(ax, rows)
    values = rows["capacity"]
    ax.barh(rows.index, values, height=0.6, label="carried", **style.filled(4))
    for kind, (told, i, width) in _INTERVALS.items():
        reach = _reach(values, rows[f"{kind}_low"], rows[f"{kind}_high"])
        bars: Style = {"linestyle": "", "color": COLOURS[i], "elinewidth": width, "capsize": 2}
        ax.errorbar(values, rows.index, xerr=reach, label=f"80 % interval ({told})", **bars)
    within = ", ".join(f"{told} {seconds(value)}" for told, value in frames.targets(found).items())
    label = "sustained rate (requests/s)" + (f"\nwithin {within}" if within else "")
    ax.set(xlim=(0, None), xlabel=label)
    ax.xaxis.set_major_formatter(labels.count_label)
    style.legend_above(ax, side="right")
    return ax


def _name_policies(ax: Axes, rows: pd.DataFrame) -> None:
    """Label each row with its policy; refuse a policy with several rows."""
    frames.need_distinct(rows, ("policy",))
    frames.need_at_most(MOST_POLICIES, len(rows), "policies")
    style.rows_axis(ax, [labels.folded(str(name), _WIDTH) for name in rows["policy"]])


def _reach(values: pd.Series[float], low: pd.Series[float], high: pd.Series[float]) -> Any:
    """Return the lengths of intervals below and above values; 0 without an interval."""
    return np.maximum(np.nan_to_num(np.stack([values - low, high - values])), 0)


def _waterfall(ax: Axes, values: pd.Series[float]) -> None:
    """Draw both ends as bars from 0; each term starts where the bar before it ends."""
    is_end = np.isin(values.index, ["ideal", "predicted"])
    inner = np.where(is_end, 0.0, values)
    start = np.where(is_end, 0.0, values.iloc[0] + np.cumsum(inner) - inner)
    at = np.arange(len(values))
    colours = np.where(is_end, COLOURS[0], np.where(values < 0, COLOURS[1], COLOURS[2]))
    ax.barh(at, values, 0.7, start, color=colours, linewidth=0)
    for y, x, value, is_total in zip(at, start, values, is_end, strict=True):
        told = f"{value:.2f}" if is_total else f"{value:+.2f}"
        told = told.replace("-", "\N{MINUS SIGN}") if told.strip("+-0.") else "0.00"
        text = ax.annotate(told, (max(x, x + value), y), (2, 0), va="center", **style.BESIDE)
        box, to_data = text.get_window_extent(), ax.transData.inverted().transform
        if box.x1 > ax.bbox.x1:  # no room behind its bar: before it, or on it
            least = float(to_data((ax.bbox.x0 + 1.12 * box.width, 0))[0])
            text.set(ha="right", color="white" if is_total else "black", position=(-2, 0))
            text.xy = float(x + value if is_total else max(least, min(x, x + value))), float(y)
    reached = start + values.to_numpy()
    ax.plot([reached[:-1]] * 2, [at[:-1], at[1:]], color=style.GREY, linewidth=0.4, zorder=0)


def _inputs(table: pd.DataFrame, kind: str, numbers: Sequence[str], outcome: str) -> pd.DataFrame:
    """Return a row for each input with the numbers of an outcome, from either form of table."""
    if outcome not in _QUANTITIES:
        raise InputError("outcome", outcome, f"one of {nearest(outcome, _QUANTITIES)}")
    if "analysis" in table:
        rows = frames.checked(table, ("value",), ("analysis", "input", "output", "quantity"))
        rows = rows[rows["analysis"] == kind].fillna({"output": ""})
        if rows.empty:
            frames.refuse(kind, f"rows of {kind}", "analysis")
        rows = rows[rows["output"].isin(["", outcome])]
        frames.need_distinct(rows, ("input", "quantity"))
        told = rows[rows["quantity"] == "low"].set_index("input").filter(["unit", "source"])
        found = rows.pivot(index="input", columns="quantity", values="value")
        found = found.reindex(rows["input"].unique()).reindex(columns=[*numbers]).dropna()
        table = found.join(told).rename_axis("input").reset_index()
    elif "output" in table:
        table = table[table["output"] == outcome]
    if table.empty:
        frames.refuse(outcome, "an outcome that some range moves", "output")
    table = table.rename(columns=lambda name: str(name).removeprefix(f"{outcome}_"))
    return frames.checked(table, numbers, ("input",))


def _name_inputs(ax: Axes, rows: pd.DataFrame, sizes: pd.Series[float], label: str) -> pd.DataFrame:
    """Label the rows with the largest visible effects, at most ten, and return them.

    Acceptance is one of them if its effect is visible. The last label is on the rows that are not
    drawn.
    """
    frames.need_distinct(rows, ("input",))
    names = [labels.folded(labels.words(name), _WIDTH) for name in rows["input"]]
    seen = sizes[sizes >= _VISIBLE * sizes.max()].sort_values(ascending=False, kind="stable")
    is_known = rows["input"].loc[seen.index] == "acceptance_rate"
    kept = seen.mask(is_known, np.inf).nlargest(MOST_INPUTS).index
    shown = rows.loc[[i for i in seen.index if i in kept]]
    told, rest = list((names + rows["under"])[shown.index]), sizes.drop(shown.index)
    if not rest.empty:
        share = 100 * rest.max() / (sizes.max() or 1)
        told.append(f"{len(rest)} others: each\n≤ {np.ceil(share).clip(1):.0f} % of the largest")
    style.rows_axis(ax, told)
    ax.set_xlabel(label)
    return shown
