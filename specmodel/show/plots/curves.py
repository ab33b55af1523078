"""Figures of lines and points: over tokens, rates, time and iterations, and beside measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmodel.core.base.ranges import whole_of
from specmodel.core.prediction.table import seconds
from specmodel.show.plots import frames, style
from specmodel.show.plots.style import COLOURS, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_ROOM = 0.2
"""Inches from one batch size to the next along a front."""
_MANY, _MOST_CHARACTERS = 300, 36
_LAWS = {"law": "-", "independent": "--"}
_LAWS_TOLD = {"law": "with routing correlation, fitted", "independent": "independent routing"}
_PHASES = {"baseline": "0.72", "test": "0.93"}
_MET = {"tpot_p90": "TPOT, p90 (ms)", "ttft_p90": "TTFT, p90 (ms)", "goodput": "in targets (%)"}
_RATES = ("throughput_per_gpu", "throughput")
_LOADS = {"request_rate": "rate of requests (requests/s)", "users": "users (requests)"}


def active_experts(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the experts that tokens of one sequence activate: measured, by the law, independent.

    Parameters
    ----------
    table, ax
        As `unions.measured_unions` returns it: model, num_experts, experts_per_token, tokens,
        measured, law and independent; at most six models.
    """
    from matplotlib.ticker import MaxNLocator

    numbers = ("num_experts", "experts_per_token", "tokens", "measured", "law", "independent")
    rows = frames.checked(table, numbers, ("model",), may_lack=("measured",))
    models = frames.parts(rows, ["model", "num_experts", "experts_per_token"], "tokens", "models")
    handles = []
    for i, ((name, total, each), part) in enumerate(models):
        for law, dashes in _LAWS.items():
            ax.plot(part["tokens"], part[law], **style.series(i, linestyle=dashes, marker=""))
        label = style.shortened(f"{name} ({total:g}/{each:g})", _MOST_CHARACTERS)
        dots = style.points(i, mfc="none", label=label)
        handles += ax.plot(part["tokens"], part["measured"], **dots)
    black: Style = {"color": "black", "linewidth": 1}
    handles += [style.key(_LAWS_TOLD[law], linestyle=d, **black) for law, d in _LAWS.items()]
    ax.set(xlabel="tokens of one sequence in a pass", ylabel="experts loaded per layer")
    ax.set_ylim(0, None)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_above(ax, "measured (experts/top-k)", handles, side="right")
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
    rows = frames.checked(table, numbers, may_lack=("spread",)).sort_values("draft_length")
    frames.need_positive(rows, "batch_size")
    frames.need_positive(rows[rows["spread"] != 0], "spread")
    lengths = frames.parts(rows, ["draft_length"], "batch_size", "draft lengths")
    for i, ((length,), part) in enumerate(lengths):
        ax.plot(part["batch_size"], part["predicted"], **style.series(i, marker=""))
        dots = style.points(i, markersize=2.5, elinewidth=0.6, label=f"{length:g}")
        ax.errorbar(part["batch_size"], part["measured"], yerr=part["spread"], **dots)
    style.counts_axis(ax, rows["batch_size"], frames.titled(["batch_size"]))
    ax.set(ylabel=frames.titled(["target_efficiency"]), ylim=(0, None))
    title = f"{frames.titled(['draft_length'])}, points: measured"
    style.legend_above(ax, title, side="right")
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
    times = rows[["latency", "predicted"]].to_numpy()
    line = np.array([0.8 * times.min(), 1.25 * times.max()])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color="0.85", linewidth=0, label="±10 %")
    ax.plot(line, line, color="0.3", linewidth=0.8)
    shape: Style = {"markeredgewidth": 0, "rasterized": True}
    shape |= {"markersize": 1.5, "alpha": 0.5} if len(rows) > _MANY else {"markersize": 3}
    kinds = list(rows.groupby("component"))
    frames.need_at_most(style.MOST_LINES, len(kinds), "components")
    numbers = style.kind_numbers(str(kind) for kind, _ in kinds)
    for kind, part in kinds:
        label = style.shortened(frames.words(str(kind)), 30)
        dots = style.points(numbers[str(kind)], label=label)
        ax.plot(part["latency"], part["predicted"], **(dots | shape))
    ends = 0.9 * line[0], 1.1 * line[1]
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        style.si_axis(axis, "s")
    ax.set(xlabel="measured time", ylabel="predicted time")
    legend = style.legend_above(ax)
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
    for phase, colour in _PHASES.items():
        is_on = (table["phase"] == phase).to_numpy()
        for ax in axes if is_on.any() else ():
            reach: Style = {"transform": ax.get_xaxis_transform(), "where": np.repeat(is_on, 2)}
            shade: Style = {"label": phase if ax is top else None, "color": colour, "zorder": 0}
            ax.fill_between(np.repeat(steps, 2)[1:-1], 0, 1, linewidth=0, **reach, **shade)
    accepted = table["emitted_tokens"] - 1
    top.stairs(accepted, steps, color=COLOURS[2], fill=True, label="accepted")
    top.stairs(table["draft_length"], steps, color=COLOURS[0], label="draft length")
    top.set(ylabel="tokens per step", ylim=(0, None))
    utility, window = table["utility"], table["window_utility"]
    is_new = utility.notna() & (utility != utility.shift())
    style.unity(bottom)
    bottom.plot(steps[1:], window, color=COLOURS[0], linewidth=1, label="last 16 iterations")
    if is_new.any():
        dots = style.points(3, marker="o", markersize=2.5, label="trial, as measured")
        bottom.plot(steps[1:][is_new], utility[is_new], **dots)
    label = frames.titled(["utility"])
    bottom.set(xlabel="iterations of the request", ylabel=label, xlim=(0, len(table)))
    for ax in axes:
        style.legend_above(ax)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return axes


def pareto(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw tokens a second by GPU over those by user, plain and with speculation as two fronts.

    Parameters
    ----------
    table, ax
        Columns batch_size, tpot, throughput_per_gpu or else throughput, and tpot_plain or else
        forward_time; a line stands at tpot_target, if given. Points are those that fit in memory,
        of all alternatives together; a front joins those that no other outdoes in both.
    """
    rate = next((name for name in _RATES if name in table), "throughput")
    plain = "tpot_plain" if "tpot_plain" in table else "forward_time"
    rows = frames.checked(table, ("tpot", plain, rate))
    frames.need_positive(rows, "tpot", plain)
    frames.need_single(rows, "context_length")
    rows = rows[frames.fits(rows)]
    is_front = {}
    ax.margins(0.12)
    for i, (name, time) in enumerate({"plain decoding": plain, "speculative": "tpot"}.items()):
        points = rows.assign(user=1 / rows[time], rate=rows[rate] * rows["tpot"] / rows[time])
        ax.plot(points["user"], points["rate"], **style.points(i, markersize=1.5))
        front = points.sort_values(["user", "rate"], ascending=False)
        front = front[front["rate"] > front["rate"].cummax().shift(fill_value=0.0)]
        ax.plot(front["user"], front["rate"], **style.series(i, label=name))
        is_front[name] = front
    _batch_sizes(ax, is_front["speculative"])
    for told, target in frames.targets(rows).items():
        line: Style = {"color": "black", "linestyle": ":", "linewidth": 0.8}
        ax.axvline(1 / target, label=f"{told} {seconds(target)}", **line)
    ax.set(xlim=(0, None), ylim=(0, None), xlabel="output tokens/s/user")
    ax.set_ylabel("output tokens/s/GPU" if rate == _RATES[0] else "output tokens/s of all GPUs")
    several = "alternative" in rows and rows["alternative"].nunique() > 1
    style.legend_above(ax, "small: other layouts" if several else "")
    return ax


def _batch_sizes(ax: Axes, front: pd.DataFrame) -> None:
    """Write batch sizes beside the points of a front, where those before have left room."""
    last = None
    for _, row in front.iterrows():
        place = ax.transData.transform((row["user"], row["rate"]))
        if last is None or np.hypot(*(place - last)) > _ROOM * ax.figure.dpi:
            told = f"B={row['batch_size']:g}" if last is None else f"{row['batch_size']:g}"
            own: Style = {"textcoords": "offset points", "size": style.SMALL} | style.halo()
            ax.annotate(told, (row["user"], row["rate"]), (3, 3), **own)
            last = place


def load_panels(table: pd.DataFrame) -> int:
    """Return the panels of `load`: two where there were no targets."""
    has_targets = "goodput" not in table or table["goodput"].notna().any()
    return 3 if has_targets else 2


def load(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw TPOT, TTFT and, if there are targets, the share within them over the rate by policy.

    Parameters
    ----------
    table
        As `specmodel load --csv` prints it: policy, request_rate or users, tpot_p90, ttft_p90
        and goodput, which is missing where there was no target; at most six policies. Lines stand
        at tpot_target and ttft_target where there are such columns.
    axes
        As many as `load_panels` says, that share the horizontal axis.
    """
    x = next((name for name in _LOADS if name in table and table[name].notna().any()), "users")
    x = x if {*_LOADS} & {*table} else "request_rate"
    rows = frames.checked(table, (x, *_MET), ("policy",), may_lack=["goodput"])
    frames.need_positive(rows, x, "tpot_p90", "ttft_p90")
    policies = frames.parts(rows, ["policy"], x, "policies")
    for ax, (met, label) in zip(axes, _MET.items(), strict=False):
        for i, ((name,), part) in enumerate(policies):
            line = style.series(i, label=style.shortened(str(name), 30))
            ax.plot(part[x], part[met], **line)
        ax.set(ylabel=label, ylim=(0, 1.1 * rows[met].max() or 1))
        style.counts_axis(ax, rows[x], "")
    times, firsts, *shares = axes
    for told, target in frames.targets(rows).items():
        ax = times if told == "TPOT" else firsts
        ax.axhline(target, color="black", linestyle=":", linewidth=0.8, zorder=1)
    for ax in (times, firsts):
        style.in_milliseconds(ax.yaxis)
    for ax in shares:
        ax.set_ylim(-0.05, 1.05)
        style.in_percent(ax.yaxis)
    axes[-1].set_xlabel(_LOADS[x])
    handles = times.get_legend_handles_labels()[0]
    if frames.targets(rows):
        handles.append(style.key("target", color="black", linestyle=":", linewidth=0.8))
    style.legend_above(times, handles=handles)
    return axes


def drain(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw the share of time at each number of running requests, and how they become fewer.

    Parameters
    ----------
    table
        As ``specmodel load --drain --csv`` prints it: policy, makespan, and share_at_1, last_at_1,
        share_at_2 and so on; at most six policies.
    axes
        Two, over requests and over time.
    """
    found = [name.partition("last_at_")[2] for name in map(str, table)]
    sizes = [size for text in found if (size := whole_of(text))] or [1]
    columns = [f"{kind}_at_{size}" for kind in ("share", "last") for size in sizes]
    rows = frames.checked(table, ("makespan", *columns), ("policy",), may_lack=columns)
    frames.need_positive(rows, "makespan")
    frames.need_distinct(rows, ["policy"])
    frames.need_at_most(style.MOST_LINES, len(rows), "policies")
    shares, times = axes
    for i, (_, row) in enumerate(rows.iterrows()):
        line = style.series(i, label=style.shortened(str(row["policy"]), 30))
        shares.plot(sizes, row[[f"share_at_{size}" for size in sizes]].fillna(0.0), **line)
        times.plot(row[[f"last_at_{size}" for size in sizes]], sizes, **line)
    style.counts_axis(shares, sizes, "running requests, from")
    shares.set(ylabel="share of time (%)", ylim=(0, None))
    style.in_percent(shares.yaxis)
    times.set(yscale="log", xlim=(0, None), xlabel="last time with so many (s)")
    times.set_ylabel("running requests")
    style.si_axis(times.yaxis)
    times.locator_params(axis="x", nbins=4)
    style.legend_above(shares)
    return axes
