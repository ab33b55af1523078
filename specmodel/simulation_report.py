"""A replay in words, as a table, as JSON: returns text, prints nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specmodel import __version__
from specmodel.replay_options import Replay
from specmodel.simulation.claims import PAPER
from specmodel.simulation.suite import DEFAULT_FIRST, SuiteSettings, middle
from specmodel.text import Columns, align, wrap
from specmodel.units import format_si

JSON_SCHEMA_VERSION = 1
_HINDSIGHT = ("best-fixed", "greedy", "oracle")


def heading(replay: Replay) -> str:
    """Return what is replayed, and the relative step times, which decide."""
    times = replay.times
    costs = ", ".join(f"{cost:.2f}" for cost in times.step_time / times.forward_time)
    plain = format_si(times.forward_time, "s")
    line = f"A plain pass takes {plain}; steps that verify 0, 1, ... draft tokens: {costs} of it."
    return "\n".join([wrap(replay.heading), wrap(line)])


def verdict(summary: pd.DataFrame) -> str:
    """Return in a line or two which policy did best, and what Cascade did, if it was there."""
    rows = [row for row in summary.to_dict("records") if row["policy"] not in _HINDSIGHT]
    if not rows:
        return "Policies that know the trace only: bounds, nothing to deploy."
    best = max(rows, key=lambda row: row["speedup"])
    text = f"Best: {best['policy']}, {best['speedup']:.2f}x."
    if best["policy"] == "none":
        text = "Speculation does not pay under any of these policies."
    for row in rows:
        if row["policy"] != "cascade":
            continue
        text += f" Cascade: {row['speedup']:.2f}x, {row['test_share']:.0%} of its steps in tests."
    return wrap(text)


def table(summary: pd.DataFrame) -> str:
    """Return the policies as a table of at most 80 columns."""
    rows = summary.to_dict("records")
    columns: Columns = [
        ("policy", [_short(row["policy"]) for row in rows]),
        ("speedup", [f"{row['speedup']:.3f}" for row in rows]),
        ("95 %", [f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}" for row in rows]),
        ("slow-\ndown", [f"{row['slowdown']:.0%}" for row in rows]),
        ("tokens\na step", [f"{row['tokens_per_step']:.2f}" for row in rows]),
        ("drafted\na step", [f"{row['drafted_tokens_per_step']:.2f}" for row in rows]),
        ("in\ntests", [f"{row['test_share']:.0%}" for row in rows]),
        ("TPOT\nmedian", [format_si(row["tpot_p50"], "s") for row in rows]),
        ("95th", [format_si(row["tpot_p95"], "s") for row in rows]),
    ]
    if summary["regret"].notna().any():
        columns.append(("regret", [f"{row['regret']:.0%}" for row in rows]))
    return align(columns, left=("policy",))


def assumptions(replay: Replay) -> str:
    """Return what was not given, in a paragraph."""
    items = ", ".join(f"{name} {_plain(value)}" for name, value in replay.assumptions.items())
    return wrap(f"Assumed: {items}.") if items else ""


def to_json(replay: Replay, summary: pd.DataFrame) -> str:
    """Return everything for a program; numbers in full, in SI units."""
    times = replay.times
    rows = summary.astype(object).where(summary.notna(), None).to_dict("records")
    data: dict[str, Any] = {
        "schema_version": JSON_SCHEMA_VERSION,
        "specmodel": __version__,
        "heading": replay.heading,
        "step_times": {
            "forward_time": times.forward_time,
            "paused_time": times.paused_time,
            "step_time": times.step_time.tolist(),
            "expert_time": times.expert_time.tolist(),
        },
        "policies": rows,
        "assumptions": replay.assumptions,
        "warnings": list(replay.warnings),
    }
    return json.dumps(data, indent=2, default=_number)


def suite_text(settings: SuiteSettings, claims: pd.DataFrame, choices: pd.DataFrame) -> str:
    """Return the paper's figures beside ours, over all that the paper leaves open."""
    opening = (
        "Cascade's evaluation, redone: 5 MoEs, 7 workloads, n-gram drafting on an RTX 6000 Ada,"
        f" batch size 1, {settings.num_requests} requests a task, engine {settings.engine}, context"
        f" {settings.context_length}. Acceptance is that of presets for code edits, math and"
        " summaries by a dense 8B model, step times are predicted. Ours: at"
        f" {_middle_text(settings)}; in brackets, the range over routing correlations"
        f" {_list(settings.routing_correlations)}, outputs of {_list(settings.output_lengths)}"
        f" tokens and first draft lengths {_list(settings.first_draft_lengths)}."
    )
    worst = [str(name) for name in claims if str(name).startswith("worst")]
    shown = [*PAPER, *(name for name in worst if name not in PAPER)]
    columns: Columns = [
        ("claim", shown),
        ("paper", [PAPER.get(name, "-") for name in shown]),
    ]
    for fewest in settings.min_ngrams:
        part = claims[claims["min_ngram"] == fewest]
        middle = part[_is_middle(part, settings)].iloc[0]
        cells = [_claim(name, middle[name], part[name].min(), part[name].max()) for name in shown]
        columns.append((f"look-up of {fewest}\nor more tokens", cells))
    first = choices[choices["min_ngram"] == settings.min_ngrams[0]]
    effects: Columns = [("left open by the paper", first["choice"].astype(str).tolist())]
    for fewest in settings.min_ngrams:
        part = choices[choices["min_ngram"] == fewest]
        worst_cells = [f"{value:.1%}" for value in part["worst_slowdown"]]
        effects.append((f"{fewest}+: worst\nslowdown", worst_cells))
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
        "specmodel": __version__,
        "settings": vars(settings),
        "paper": PAPER,
        **{name: table.astype(object).to_dict("records") for name, table in tables.items()},
    }
    return json.dumps(data, indent=2, default=_number)


def _is_middle(claims: pd.DataFrame, settings: SuiteSettings) -> pd.Series:
    correlation, length = middle(settings.routing_correlations), middle(settings.output_lengths)
    return (
        (claims["routing_correlation"] == correlation)
        & (claims["output_length"] == length)
        & (claims["first_draft_length"] == DEFAULT_FIRST)
    )


def _middle_text(settings: SuiteSettings) -> str:
    correlation, length = middle(settings.routing_correlations), middle(settings.output_lengths)
    return (
        f"routing correlation {correlation:g}, outputs of {length:g} tokens and a first draft"
        f" length of {DEFAULT_FIRST}"
    )


def _claim(name: str, value: float, low: float, high: float) -> str:
    if "times" in name:
        return f"{value:.1f} ({low:.1f} to {high:.1f})"
    if name.startswith("pairs"):
        return f"{value:.0f} ({low:.0f} to {high:.0f})"
    return f"{value:.0%} ({low:.0%} to {high:.0%})"


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _number(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(name: str, width: int = 24) -> str:
    return name if len(name) <= width else name[: width - 3] + "..."
