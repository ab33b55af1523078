"""Draw lines and points over tokens, rates, time, iterations and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specmodel.core.prediction.table import seconds
from specmodel.show import labels
from specmodel.show.plots import frames, style
from specmodel.show.plots.batches import target_efficiency
from specmodel.show.plots.style import COLOURS, Axes, Style

_OUTDONE: Style = style.points(0, color="0.78", markersize=2)
_MOST_CHARACTERS = 28
_LOADED = "experts loaded over those\nof independent routing (×)"
_PHASES = {"baseline": "0.72", "test": "0.93"}
_MET = {"tpot_p90": "TPOT, p90 (ms)", "ttft_p90": "TTFT, p90 (ms)", "goodput": "in targets (%)"}
_WIDE = 50.0
"""Ratio of the largest time to the smallest above which the axis is logarithmic [-]."""
_SHADE: Style = {"color": "0.9", "linewidth": 0}
_STRIP = 1.02, 1.13
"""Ends of the strip of rates that are not carried, relative to the height of the axes [-]."""
_CARRIED = 0.8
"""Smallest served share of a rate at which the rate is carried [-]."""
_LENGTHS = ("draft_length", "best_draft_length")
_RATES = {"throughput_per_gpu": "/GPU", "throughput": " of all GPUs"}
_LOADS = {"request_rate": "rate of requests (requests/s)", "users": "users (requests)"}


def active_experts(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the experts that a sequence's tokens activate, relative to independent routing.

    Parameters
    ----------
    table, ax
        Table of `unions.measured_unions`: model, num_experts, experts_per_token, tokens, measured,
        law and independent; at most six models. A law fitted to a single measured point is not
        drawn.
    """
    numbers = ("num_experts", "experts_per_token", "tokens", "measured", "law", "independent")
    rows = frames.checked(table, numbers, ("model",), may_lack=("measured",))
    frames.need_positive(rows, "independent")
    models = frames.parts(rows, ["model", "num_experts", "experts_per_token"], "tokens", "models")
    handles = []
    for i, ((name, total, each), part) in enumerate(models):
        shares = part[["measured", "law"]].div(part["independent"], axis=0)
        if part["measured"].count() > 1:
            ax.plot(part["tokens"], shares["law"], **style.series(i, marker=""))
        label = labels.shortened(f"{name} ({total:g}/{each:g})", _MOST_CHARACTERS)
        dots = style.points(i, mfc="none", label=label)
        handles += ax.plot(part["tokens"], shares["measured"], **dots)
    fitted = style.key("fitted to points of its colour", "--", color="black", linewidth=1)
    handles += [fitted, style.unity(ax, "independent routing")]
    ax.set(xlabel="tokens of one sequence in a pass", ylabel=_LOADED)
    ax.locator_params(axis="x", integer=True, nbins=9)
    style.legend_above(ax, "measured (experts/top-k)", handles, side="right")
    return ax


def closed_loop(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw target efficiency over batch size by draft length: measured points, predicted lines.

    Parameters
    ----------
    table, ax
        Columns batch_size, draft_length, measured, predicted and spread, the standard deviation of
        repeats, for one target and context and at most six draft lengths. If there is a column
        quantity, only its rows of target_efficiency count.
    """
    if "quantity" in table:
        table = table[table["quantity"] == "target_efficiency"]
    names = ["batch_size", "draft_length", "measured", "predicted", "spread"]
    rows = frames.checked(table, names, may_lack=("spread",))
    frames.need_single(rows, "target", "context_length")
    rows = rows[names].rename(columns={"predicted": "target_efficiency"})
    return target_efficiency(rows.sort_values("draft_length"), ax)


def predicted_against_measured(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw predicted over measured times, log-log, with the identity and a band of 10 %.

    Parameters
    ----------
    table, ax
        Columns component, latency and predicted, in seconds, as in `validation.predict_measured`.
    """
    rows = frames.checked(table, ("latency", "predicted"), ("component",))
    frames.need_positive(rows, "latency", "predicted")
    times = rows[["latency", "predicted"]].to_numpy()
    line = np.array([0.8 * times.min(), 1.25 * times.max()])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color="0.85", linewidth=0, label="±10 %")
    ax.plot(line, line, color="0.3", linewidth=0.8)
    shape: Style = {"markeredgewidth": 0, "rasterized": True, "markersize": 2.5}
    kinds = sorted({*map(str, rows["component"])})
    frames.need_at_most(style.MOST_LINES, len(kinds), "components")
    keys = list[Any]()
    for i, kind in enumerate(kinds):
        part, dots = rows[rows["component"].map(str) == kind], style.points(i)
        ax.plot(part["latency"], part["predicted"], **(dots | shape))
        keys.append(style.key(labels.shortened(labels.words(kind), 30), **dots))
    ends = 0.9 * line[0], 1.1 * line[1]
    ax.set(xlim=ends, ylim=ends, xlabel="measured time", ylabel="predicted time")
    style.si_axis(ax.xaxis, ax.yaxis, unit="s")
    ax.set_aspect("equal")
    style.legend_above(ax, "", None, *keys)
    return ax


def timeline(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw draft length and phase over the iterations of a request, and utility below them.

    Parameters
    ----------
    table
        Columns draft_length, emitted_tokens, phase, utility (the policy's own, from its last trial)
        and window_utility, for one request, in order.
    axes
        Two axes that share the horizontal axis.
    """
    unknown = ("utility", "window_utility")
    table = frames.checked(table, ("draft_length", "emitted_tokens", *unknown), ("phase",), unknown)
    top, bottom = axes
    steps = np.arange(len(table) + 1)
    for phase, colour in _PHASES.items():
        is_on = table["phase"] == phase
        for ax, label in zip(axes, (phase, "_"), strict=True) if is_on.any() else ():
            shade: Style = {"color": colour, "label": label, "fill": True, "zorder": 0}
            ax.stairs(is_on, steps, transform=ax.get_xaxis_transform(), linewidth=0, **shade)
    top.stairs(table["emitted_tokens"] - 1, steps, color=COLOURS[2], fill=True, label="accepted")
    top.stairs(table["draft_length"], steps, color=COLOURS[0], label="draft length")
    top.set(ylabel="tokens per step", ylim=(0, None))
    utility, window = table["utility"], table["window_utility"]
    is_new = utility.notna() & (utility != utility.shift())
    style.unity(bottom)
    bottom.plot(steps[1:], window, color=COLOURS[0], linewidth=1, label="last 16 iterations")
    if is_new.any():
        dots = style.points(3, marker="o", markersize=2.5, label="trial, as measured")
        bottom.plot(steps[1:][is_new], utility[is_new], **dots)
    label = labels.titled(["utility"])
    bottom.set(xlabel="iterations of the request", ylabel=label, xlim=(0, len(table)))
    for ax in axes:
        style.legend_above(ax)
        ax.locator_params(axis="x", integer=True)
    return axes


def pareto(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw tokens per second and GPU over those per user, as fronts with and without speculation.

    Parameters
    ----------
    table, ax
        Columns batch_size, tpot, throughput_per_gpu or else throughput, and tpot_plain or else
        forward_time. A line marks tpot_target, if given. Points fit in memory and include all
        alternatives. A front joins points that no other point exceeds in both.
    """
    from matplotlib.collections import LineCollection

    rate = next((name for name in _RATES if name in table), "throughput")
    plain = "tpot_plain" if "tpot_plain" in table else "forward_time"
    rows = frames.checked(table, ("tpot", plain, rate))
    frames.need_positive(rows, "tpot", plain)
    frames.need_single(rows, "context_length")
    rows = rows[frames.fits(rows)].assign(layout=rows.get("alternative", ""))
    length = next((name for name in _LENGTHS if name in rows), None)
    ax.margins(0.12)
    handles, named, shapes = dict[str, Any](), list[Any](), dict[str, str]()
    has_layouts, num_outdone = rows["layout"].nunique() > 1, 0
    for i, (name, time) in enumerate({"plain decoding": plain, "speculative": "tpot"}.items()):
        per_step = rows[rate] * rows["tpot"]  # tokens a second and GPU are this over the time
        points = rows.assign(user=1 / rows[time], rate=per_step / rows[time])
        points = points.sort_values(["user", "rate"], ascending=False)
        is_ahead = points["rate"] > points["rate"].cummax().shift(fill_value=0.0)
        front, others = points[is_ahead], points[~is_ahead]
        ax.plot(others["user"], others["rate"], **_OUTDONE)
        num_outdone += len(others)
        look = style.series(i, label=name) | ({"marker": ""} if has_layouts else {})
        (handles[name],) = ax.plot(front["user"], front["rate"], **look)
        for layout, part in front.groupby("layout", sort=False) if has_layouts else ():
            shape = shapes.setdefault(str(layout), style.MARKERS[len(shapes) % len(style.MARKERS)])
            ax.plot(part["user"], part["rate"], **style.points(i, marker=shape))
        told = front["batch_size"].map("{:g}".format)
        told += front[length].map("/{:g}".format) if i and length else ""
        places = front[["user", "rate"]].to_numpy()
        named = [(own, [at], look) for own, at in zip(told, places, strict=True)] + named
        ends = [f"{time}_low", f"{time}_high"]
        if {*ends} <= {*front}:
            # both rates move with the time of a step, along lines through 0
            reach = 1 / front[ends].to_numpy()
            rates = per_step[front.index].to_numpy()[:, None] * reach
            strips: Style = style.band(COLOURS[i]) | {"linewidth": 3, "zorder": 1}
            ax.add_collection(LineCollection([*np.stack([reach, rates], axis=-1)], **strips))
            handles["80 %"] = style.swatch("80 % interval", **style.band(style.GREY))
    style.si_axis(ax.xaxis, ax.yaxis)
    ax.set(xlabel="output tokens/s/user", ylabel=f"output tokens/s{_RATES[rate]}")
    style.name_points(ax, named)
    for met, target in frames.targets(rows).items():
        handles[met] = ax.axvline(1 / target, label=f"{met} {seconds(target)}", **style.DOTTED)
    for layout, shape in shapes.items():
        dots = style.points(0, color="black", marker=shape)
        handles[layout] = style.key(labels.shortened(layout, 28), **dots)
    more = [style.key("worse than others", **_OUTDONE)] if num_outdone else []
    note = "numbers: batch size" + ("/draft length" if length else "")
    style.legend_above(ax, note, [*handles.values()], *more, side="right")
    return ax


def load_panels(table: pd.DataFrame) -> int:
    """Return the number of panels of `load`: 3, or 2 without targets."""
    return 3 if "goodput" not in table or table["goodput"].notna().any() else 2


def load(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw TPOT, TTFT and, with targets, the share within them, over the rate and by policy.

    Parameters
    ----------
    table
        Table of `specmodel load --csv`: policy, request_rate or users, tpot_p90, ttft_p90 and
        goodput, which is missing without a target; at most six policies. Lines mark tpot_target and
        ttft_target, if there are such columns.
    axes
        As many axes as `load_panels` says, which share the horizontal axis.
    """
    x = next((n for n in _LOADS if n in table and table[n].notna().any()), "request_rate")
    rows = frames.checked(table, (x, *_MET), ("policy",), may_lack=["goodput"])
    frames.need_positive(rows, x, "tpot_p90", "ttft_p90")
    policies, targets = frames.parts(rows, ["policy"], x, "policies"), frames.targets(rows)
    carried = _carried(rows)
    for ax, (met, label) in zip(axes, _MET.items(), strict=False):
        values = rows[met][carried] if carried.any() else rows[met]
        low, high = values.min(), values.max()
        for i, ((name,), part) in enumerate(policies):
            look = style.series(i, markersize=2 + len(policies) - i)  # smaller markers are on top
            inside = part[carried[part.index]]
            ax.plot(inside[x], inside[met], label=labels.shortened(str(name), 30), **look)
        style.counts_axis(ax, rows[x], "")
        if (told := label.partition(",")[0]) in targets:
            ax.axhline(targets[told], zorder=1, **style.DOTTED)
        ends = 0, 1.1 * high or 1
        if met != "goodput" and high > _WIDE * low:
            style.si_axis(ax.yaxis)
            ends = low / (high / low) ** 0.1, high * (high / low) ** 0.1
        ax.set(ylabel=label, ylim=ends)
        style.scaled(ax.yaxis, 100 if met == "goodput" else 1000)
    axes[-1].set_xlabel(_LOADS[x])
    more = [style.key("target", **style.DOTTED)] if targets else []
    more += [] if carried.all() else [style.swatch("not sustained: the queue grows", **_SHADE)]
    legend = style.legend_above(axes[0], "", None, *more)
    if legend and not carried.all():
        legend.set_bbox_to_anchor((0, _STRIP[1]), axes[0].transAxes)
        _strip(axes[0], [part[x][~carried[part.index]] for _, part in policies])
    return axes


def _strip(ax: Axes, sizes: Sequence[pd.Series[float]]) -> None:
    """Draw the rates at which the queue grows, by policy, in a strip above the axes.

    Latencies of a growing queue depend on the length of the run, so that they have no height.
    """
    ax.axvspan(*ax.get_xlim(), *_STRIP, clip_on=False, **_SHADE)
    at_top = style.side_by_side(ax, ax.get_xaxis_transform(), len(sizes))
    for i, places in enumerate(sizes):
        dots = style.points(i, markersize=3, mfc="none", clip_on=False, transform=at_top[i])
        if len(places):
            ax.plot(places, [sum(_STRIP) / 2] * len(places), **dots)


def _carried(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which rates the server carries; True where the table has no such information."""
    share = rows.get("carried_rate", np.inf) / rows.get("request_rate", 1.0)
    return frames.holds(rows, "is_steady") & np.logical_not(share < _CARRIED)


def drain(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw the share of time at each number of running requests, and its decrease over time.

    Parameters
    ----------
    table
        Table of ``specmodel load --drain --csv``: policy, makespan, and share_at_1, last_at_1,
        share_at_2 and so on; at most six policies. Below each line's end is the interval between
        makespan_low and makespan_high, if given.
    axes
        Two axes, over requests and over time.
    """
    sizes = [int(str(name)[8:]) for name in table.filter(regex=r"^last_at_[1-9]\d*$")] or [1]
    columns = [f"{kind}_at_{size}" for kind in ("share", "last") for size in sizes]
    ends = [*table.filter(["makespan_low", "makespan_high"])]
    rows = frames.checked(table, ("makespan", *columns, *ends), ("policy",), may_lack=columns)
    frames.need_distinct(rows, ["policy"])
    frames.need_at_most(style.MOST_LINES, len(rows), "policies")
    shares, times = axes
    cells = rows.set_index("policy")[columns].T
    style.grouped(shares, cells[: len(sizes)].fillna(0.0))
    for i, last in enumerate(cells[len(sizes) :].to_numpy().T):
        times.plot(last[::-1], sizes[::-1], drawstyle="steps-pre", **style.series(i))
    room = style.label_room(shares.xaxis, map(labels.count_label, sizes))
    step = int(len(sizes) * room // shares.bbox.width) + 1
    shares.set_xticks(range(0, len(sizes), step), map(labels.count_label, sizes[::step]))
    shares.set(xlabel="running requests, from", ylabel="share of time (%)")
    style.scaled(shares.yaxis, 100)
    if len(ends) == 2:
        bar: Style = {"alpha": 0.5, "linewidth": 3}
        below = sizes[0] * 0.8 ** (1 + np.arange(len(rows)))
        times.hlines(below, rows[ends[0]], rows[ends[1]], colors=COLOURS[: len(rows)], **bar)
        style.legend_above(times, "", [style.key("80 % interval of the end", color="0.35", **bar)])
    times.set(xlim=(0, None), xlabel="time (s)", ylabel="running requests, ≥")
    style.si_axis(times.yaxis)
    times.set_yticks(sizes, map(labels.count_label, sizes), size=style.SMALL)
    times.locator_params(axis="x", nbins=4)
    style.legend_above(shares)
    return axes
