"""A replay in words, as a table, as JSON: returns text, prints nothing."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specmodel import __version__
from specmodel.base.text import Columns, align, column_width, wrap
from specmodel.base.units import format_si
from specmodel.cli.replay_options import Replay
from specmodel.replay.suite import DEFAULT_FIRST, PAPER, SuiteSettings

JSON_SCHEMA_VERSION = 1
_HINDSIGHT = ("best-fixed", "greedy", "oracle")
_SPARE = ("95th", "drafted\na step", "TPOT\nmedian", "slow-\ndown", "in\ntests", "tokens\na step")
"""Columns that are left out where the table is too wide, the first one first."""


def heading(replay: Replay) -> str:
    """Return what is replayed, and the relative step times, which decide."""
    times = replay.times
    costs = ", ".join(f"{cost:.2f}" for cost in times.step_time / times.forward_time)
    plain = format_si(times.forward_time, "s")
    line = f"A plain pass takes {plain}; steps that verify 0, 1, ... draft tokens: {costs} of it."
    return "\n".join([_fill(replay.heading), wrap(line)])


def verdict(summary: pd.DataFrame) -> str:
    """Return in a line or two which policy did best, and what Cascade did, if it was there."""
    rows = summary.to_dict("records")
    rows = [row for row in rows if row["policy"].split(":")[0] not in _HINDSIGHT]
    if not rows:
        return "Policies that know the trace only: bounds, nothing to deploy."
    best = max(rows, key=lambda row: row["speedup"])
    text = f"Best: {best['policy']}, {best['speedup']:.2f}x."
    if best["speedup"] <= 1:
        text = "Speculation does not pay under any of these policies."
    for row in rows:
        if row["policy"] == "cascade":
            text += (
                f" Cascade: {row['speedup']:.2f}x, {row['test_share']:.0%} of its steps in tests."
            )
    return _fill(text)


def table(summary: pd.DataFrame) -> str:
    """Return the policies as a table of at most 80 columns; what does not fit is left out."""
    rows, labels = summary.to_dict("records"), _labels(summary)
    columns: Columns = [
        ("policy", [labels[row["policy"]] for row in rows]),
        ("speedup", [f"{row['speedup']:.3f}" for row in rows]),
        ("95 %", [_interval(row["speedup_low"], row["speedup_high"]) for row in rows]),
        ("slow-\ndown", [f"{row['slowdown']:.0%}" for row in rows]),
        ("tokens\na step", [f"{row['tokens_per_step']:.2f}" for row in rows]),
        ("drafted\na step", [f"{row['drafted_tokens_per_step']:.2f}" for row in rows]),
        ("in\ntests", [f"{row['test_share']:.0%}" for row in rows]),
        ("TPOT\nmedian", [format_si(row["tpot_p50"], "s") for row in rows]),
        ("95th", [format_si(row["tpot_p95"], "s") for row in rows]),
    ]
    if summary["regret"].notna().any():
        columns.append(("regret", [f"{row['regret']:.0%}" for row in rows]))
    for spare in _SPARE:
        if sum(map(column_width, columns)) + 2 * (len(columns) - 1) > 80:
            columns = [column for column in columns if column[0] != spare]
    notes = [_fill(f"{label}: {name}") for name, label in labels.items() if label != name]
    return "\n".join([align(columns, left=("policy",)), *notes])


def assumptions(replay: Replay) -> str:
    """Return what was not given, in a paragraph."""
    items = ", ".join(f"{name} {_plain(value)}" for name, value in replay.assumptions.items())
    return wrap(f"Assumed: {items}.") if items else ""


def to_json(replay: Replay, summary: pd.DataFrame) -> str:
    """Return everything for a program; numbers in full, in SI units."""
    times = replay.times
    data: dict[str, Any] = {
        "schema_version": JSON_SCHEMA_VERSION,
        "version": __version__,
        "heading": replay.heading,
        "step_times": {
            "forward_time": times.forward_time,
            "paused_time": times.paused_time,
            "step_time": times.step_time.tolist(),
            "expert_time": times.expert_time.tolist(),
        },
        "policies": _plain_rows(summary),
        "assumptions": replay.assumptions,
        "warnings": list(replay.warnings),
    }
    return json.dumps(data, indent=2, default=_number, allow_nan=False)


def suite_text(settings: SuiteSettings, claims: pd.DataFrame, choices: pd.DataFrame) -> str:
    """Return the paper's figures beside ours, over all that the paper leaves open."""
    opening = (
        "Cascade's evaluation, redone: 5 MoEs, 7 workloads, n-gram drafting on an RTX 6000 Ada,"
        f" batch size 1, {settings.num_requests} requests a task, engine {settings.engine}, context"
        f" {settings.context_length}. Acceptance is that of presets for code edits, math and"
        " summaries by a dense 8B model, step times are predicted. Figures in %: ours at"
        f" {_middle_text(settings)}, and the range over routing correlations"
        f" {_list(settings.routing_correlations)}, outputs of {_list(settings.output_tokens)}"
        f" tokens and first draft lengths {_list(settings.first_draft_lengths)}. Look-up of 3 or"
        " more last tokens, as in the presets; of 1 or more, with the proposals that this adds as"
        " right as on licence texts; or, a bound, all wrong."
    )
    worst = [str(name) for name in claims if str(name).startswith("worst")]
    shown = [*PAPER, *(name for name in worst if name not in PAPER)]
    columns: Columns = [
        ("claim", shown),
        ("paper", [PAPER.get(name, "-") for name in shown]),
    ]
    for look_up in settings.look_ups:
        part = claims[claims["look_up"] == look_up]
        middle = part[_is_middle(part, settings)].iloc[0]
        cells = [_claim(name, middle[name], part[name].min(), part[name].max()) for name in shown]
        columns.append((f"look-up of\n{look_up}", cells))
    first = choices[choices["look_up"] == settings.look_ups[0]]
    effects: Columns = [("left open by the paper", first["choice"].astype(str).tolist())]
    for look_up in settings.look_ups:
        part = choices[choices["look_up"] == look_up]
        worst_cells = [f"{value:.1%}" for value in part["worst_slowdown"]]
        effects.append((f"{look_up}:\nworst", worst_cells))
        effects.append(("mean\nspeedup", [f"{value:.3f}" for value in part["mean_speedup"]]))
    tables = [align(columns, left=("claim",)), align(effects, left=("left open by the paper",))]
    return "\n\n".join([wrap(opening), *tables])


def suite_json(
    settings: SuiteSettings, pairs: pd.DataFrame, claims: pd.DataFrame, choices: pd.DataFrame
) -> str:
    """Return the runs of a suite for a program."""
    tables = {"pairs": pairs, "claims": claims, "choices": choices}
    data = {
        "schema_version": JSON_SCHEMA_VERSION,
        "version": __version__,
        "settings": vars(settings),
        "paper": PAPER,
        **{name: _plain_rows(table) for name, table in tables.items()},
    }
    return json.dumps(data, indent=2, default=_number, allow_nan=False)


def _is_middle(claims: pd.DataFrame, settings: SuiteSettings) -> pd.Series:
    correlation, length = settings.centre
    return (
        (claims["routing_correlation"] == correlation)
        & (claims["output_tokens"] == length)
        & (claims["first_draft_length"] == DEFAULT_FIRST)
    )


def _middle_text(settings: SuiteSettings) -> str:
    correlation, length = settings.centre
    return (
        f"routing correlation {correlation:g}, outputs of {length:g} tokens and a first draft"
        f" length of {DEFAULT_FIRST}"
    )


def _claim(name: str, value: float, low: float, high: float) -> str:
    if np.isnan(value):
        return "-"
    if "times" in name:
        return f"{value:.1f} {low:.1f}..{high:.1f}"
    if not name.startswith("pairs"):
        value, low, high = 100 * value, 100 * low, 100 * high
    return f"{value:.0f} {low:.0f}..{high:.0f}"


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _number(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _interval(low: float, high: float) -> str:
    return "-" if np.isnan(low) else f"{low:.2f}-{high:.2f}"


def _labels(summary: pd.DataFrame, width: int = 20) -> dict[str, str]:
    """Return what policies are called in a table: long names by a number, explained below it."""
    names = [str(name) for name in summary["policy"]]
    labels = {name: name for name in names}
    for number, name in enumerate((name for name in names if len(name) > width), start=1):
        mark = f" [{number}]"
        labels[name] = name.split(":")[0][: width - len(mark)] + mark
    return labels


def _fill(text: str) -> str:
    """Wrap what the user named: words that are too long for a line are cut."""
    return textwrap.fill(text, 80, break_on_hyphens=False)


def _plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table; what has no meaning is None, never NaN."""
    return [
        {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]
