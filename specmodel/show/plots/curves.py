"""Figures of lines and points: over tokens, rates, time and iterations, and beside measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.core.prediction.table import seconds
from specmodel.show.plots import frames, style
from specmodel.show.plots.batches import target_efficiency
from specmodel.show.plots.style import COLOURS, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_ROOM = 0.01
"""Room around a batch size beside a point, in inches."""
_MOST_CHARACTERS = 28
_HEADROOM = 1.25
"""Height of an axes with a legend inside over that of its lines [-]."""
_LAWS = {"independent": ("independent routing", "--"), "law": ("correlated routing, fitted", "-")}
_PHASES = {"baseline": "0.72", "test": "0.93"}
_MET = {"tpot_p90": "TPOT, p90 (ms)", "ttft_p90": "TTFT, p90 (ms)", "goodput": "in targets (%)"}
_WIDE = 50.0
"""Largest over least time from which their axis is logarithmic [-]."""
_LENGTHS = ("draft_length", "best_draft_length")
_RATES = {"throughput_per_gpu": "/GPU", "throughput": " of all GPUs"}
_LOADS = {"request_rate": "rate of requests (requests/s)", "users": "users (requests)"}


def active_experts(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the experts that tokens of one sequence activate: measured, by the law, independent.

    Parameters
    ----------
    table, ax
        As `unions.measured_unions` returns it: model, num_experts, experts_per_token, tokens,
        measured, law and independent; at most six models. A law that was fitted to a single
        measured point is not drawn.
    """
    numbers = ("num_experts", "experts_per_token", "tokens", "measured", "law", "independent")
    rows = frames.checked(table, numbers, ("model",), may_lack=("measured",))
    models = frames.parts(rows, ["model", "num_experts", "experts_per_token"], "tokens", "models")
    handles = []
    for i, ((name, total, each), part) in enumerate(models):
        for law, (_, dashes) in _LAWS.items():
            if law != "law" or part["measured"].count() > 1:
                ax.plot(part["tokens"], part[law], **style.series(i, marker="", linestyle=dashes))
        label = style.shortened(f"{name} ({total:g}/{each:g})", _MOST_CHARACTERS)
        dots = style.points(i, mfc="none", label=label)
        handles += ax.plot(part["tokens"], part["measured"], **dots)
    laws = [style.key(*law, color="black", linewidth=1) for law in _LAWS.values()]
    ax.add_artist(ax.legend(handles=laws, loc="upper left", fontsize=style.SMALL, frameon=False))
    ax.set(xlabel="tokens of one sequence in a pass", ylabel="experts loaded per layer")
    # room for the laws' names
    ax.set_ylim(0, _HEADROOM * rows[["measured", *_LAWS]].max().max())
    ax.locator_params(axis="x", integer=True, nbins=9)
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
        Columns component, latency and predicted, in seconds, as `validation.predict_measured`
        gives.
    """
    rows = frames.checked(table, ("latency", "predicted"), ("component",))
    frames.need_positive(rows, "latency", "predicted")
    times = rows[["latency", "predicted"]].to_numpy()
    line = np.array([0.8 * times.min(), 1.25 * times.max()])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color="0.85", linewidth=0, label="±10 %")
    ax.plot(line, line, color="0.3", linewidth=0.8)
    shape: Style = {"markeredgewidth": 0, "rasterized": True, "markersize": 2.5}
    numbers = style.kind_numbers(map(str, rows["component"].unique()))
    frames.need_at_most(style.MOST_LINES, len(numbers), "components")
    keys = list[Any]()
    for kind, i in numbers.items():
        part, dots = rows[rows["component"].map(str) == kind], style.points(i)
        ax.plot(part["latency"], part["predicted"], **(dots | shape))
        keys.append(style.key(style.shortened(frames.words(kind), 30), **dots))
    ends = 0.9 * line[0], 1.1 * line[1]
    ax.set(xlim=ends, ylim=ends, xlabel="measured time", ylabel="predicted time")
    style.si_axis(ax.xaxis, ax.yaxis, unit="s")
    ax.set_aspect("equal")
    style.legend_above(ax, "", None, *keys)
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
    unknown = ("utility", "window_utility")
    table = frames.checked(table, ("draft_length", "emitted_tokens", *unknown), ("phase",), unknown)
    top, bottom = axes
    steps = np.arange(len(table) + 1)
    for phase, colour in _PHASES.items():
        is_on = table["phase"] == phase
        for ax, label in zip(axes, (phase, "_"), strict=True) if is_on.any() else ():
            shade: Style = {"color": colour, "label": label, "fill": True, "zorder": 0}
            ax.stairs(is_on, steps, transform=ax.get_xaxis_transform(), linewidth=0, **shade)
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
        ax.locator_params(axis="x", integer=True)
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
    lengths = next((rows[name] for name in _LENGTHS if name in rows), None)
    ax.margins(0.12)
    handles, fronts, taken = dict[str, Any](), list[Any](), list[Any]()
    for i, (name, time) in enumerate({"plain decoding": plain, "speculative": "tpot"}.items()):
        per_step = rows[rate] * rows["tpot"]  # tokens a second and GPU are this over the time
        points = rows.assign(user=1 / rows[time], rate=per_step / rows[time])
        ax.plot(points["user"], points["rate"], **style.points(i, markersize=1.5))
        front = points.sort_values(["user", "rate"], ascending=False)
        front = front[front["rate"] > front["rate"].cummax().shift(fill_value=0.0)]
        fronts.append(front.assign(length=lengths if i else None))
        (handles[name],) = ax.plot(front["user"], front["rate"], **style.series(i, label=name))
        ends = [f"{time}_low", f"{time}_high"]
        if {*ends} <= {*front}:
            # both rates move with the time of a step, along lines through 0
            reach = 1 / front[ends].to_numpy().T
            own: Style = style.band(COLOURS[i]) | {"linewidth": 3, "zorder": 1}
            ax.plot(reach, per_step[front.index].to_numpy() * reach, **own)
            handles["80 %"] = style.swatch("80 % interval", **style.band(style.GREY))
    style.si_axis(ax.xaxis, ax.yaxis)
    for i, front in reversed([*enumerate(fronts)]):
        _sizes(ax, front, COLOURS[i], taken)
    for told, target in frames.targets(rows).items():
        handles[told] = ax.axvline(1 / target, label=f"{told} {seconds(target)}", **style.DOTTED)
    ax.set(xlabel="output tokens/s/user", ylabel=f"output tokens/s{_RATES[rate]}")
    if "alternative" in rows and rows["alternative"].nunique() > 1:
        handles["other"] = style.key("other layouts", **style.points(1, markersize=1.5))
    note = "/draft length where it changes" if lengths is not None else ""
    style.legend_above(ax, f"numbers: batch size{note}", [*handles.values()], side="right")
    return ax


def _sizes(ax: Axes, front: pd.DataFrame, colour: str, taken: list[Any]) -> None:
    """Write batch sizes, and draft lengths where they change, where names have left room."""
    known = None
    own = style.BESIDE | {"color": colour} | style.halo()
    for x, y, size, length in front[["user", "rate", "batch_size", "length"]].to_numpy():
        told = f"{size:g}" + (f"/{length:g}" if length not in (None, known) else "")
        text = ax.annotate(told, (x, y), (3, 3), **own)
        if (box := text.get_window_extent().padded(_ROOM * ax.figure.dpi)).count_overlaps(taken):
            text.remove()
        else:
            known = length
            taken.append(box)


def load_panels(table: pd.DataFrame) -> int:
    """Return the panels of `load`: two where there were no targets."""
    return 3 if "goodput" not in table or table["goodput"].notna().any() else 2


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
    x = next((n for n in _LOADS if n in table and table[n].notna().any()), "request_rate")
    rows = frames.checked(table, (x, *_MET), ("policy",), may_lack=["goodput"])
    frames.need_positive(rows, x, "tpot_p90", "ttft_p90")
    policies = frames.parts(rows, ["policy"], x, "policies")
    targets = frames.targets(rows)
    for ax, (met, label) in zip(axes, _MET.items(), strict=False):
        for i, ((name,), part) in enumerate(policies):
            wide = len(policies) - 1 - i  # what lies below others is seen beside them
            look = style.series(i, linewidth=1 + 0.5 * wide, markersize=3 + wide)
            ax.plot(part[x], part[met], label=style.shortened(str(name), 30), **look)
        style.counts_axis(ax, rows[x], "")
        told, values = label.partition(",")[0], rows[met]
        if told in targets:
            ax.axhline(targets[told], zorder=1, **style.DOTTED)
        if met != "goodput" and values.max() > _WIDE * values.min():
            style.si_axis(ax.yaxis, unit="s")
            ax.set_ylabel(label.partition(" (")[0])
            continue
        ax.set(ylabel=label, ylim=(0, 1.1 * values.max() or 1))
        style.scaled(ax.yaxis, 100 if met == "goodput" else 1000)
    axes[-1].set_xlabel(_LOADS[x])
    more = [style.key("target", **style.DOTTED)] if targets else []
    style.legend_above(axes[0], "", None, *more)
    return axes


def drain(table: pd.DataFrame, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Draw the share of time at each number of running requests, and how they become fewer.

    Parameters
    ----------
    table
        As ``specmodel load --drain --csv`` prints it: policy, makespan, and share_at_1, last_at_1,
        share_at_2 and so on; at most six policies. The interval between makespan_low and
        makespan_high, if given, stands below each line's end.
    axes
        Two, over requests and over time.
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
    room = style.label_room(shares.xaxis, map(style.count_label, sizes))
    step = int(len(sizes) * room // shares.bbox.width) + 1
    shares.set_xticks(range(0, len(sizes), step), map(style.count_label, sizes[::step]))
    shares.set(xlabel="running requests, from", ylabel="share of time (%)")
    style.scaled(shares.yaxis, 100)
    if len(ends) == 2:
        bar: Style = {"alpha": 0.5, "linewidth": 3}
        below = sizes[0] * 0.8 ** (1 + np.arange(len(rows)))
        times.hlines(below, rows[ends[0]], rows[ends[1]], colors=COLOURS[: len(rows)], **bar)
        style.legend_above(times, "", [style.key("80 % interval of the end", color="0.35", **bar)])
    times.set(xlim=(0, None), xlabel="time (s)", ylabel="running requests, ≥")
    style.si_axis(times.yaxis)
    times.set_yticks(sizes, map(style.count_label, sizes), size=style.SMALL)
    times.locator_params(axis="x", nbins=4)
    style.legend_above(shares)
    return axes
