"""A prediction in words, as a table, as JSON: returns text, prints nothing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specmodel import __version__
from specmodel.base.ranges import ranges_text, runs
from specmodel.base.records import Record, toml_text
from specmodel.base.text import Columns, align, column_width, wrap
from specmodel.base.units import format_si
from specmodel.cost.deployment import Deployment
from specmodel.prediction.outcome import Prediction
from specmodel.records.kernels import KINDS, TYPICAL

JSON_SCHEMA_VERSION = 1

_IDEAL = (
    "Engine 'ideal' has no overhead: an upper bound on throughput. On the speedup, overhead of"
    " each pass acts up, of drafting and rejection down."
)


def verdict(prediction: Prediction) -> str:
    """Return in a few lines whether speculation pays, where, by how much, and why not more."""
    drafted = [row for row in prediction.rows() if row["draft_length"]]
    if not drafted:
        return "No draft, no speculation: speedup 1 by definition."
    rows = [row for row in drafted if row["batch_size"] <= row["max_batch_size"]]
    pays, denial = verbs(prediction.deployment)
    opening = "Speculation"
    if not rows:
        rows, opening = drafted, "Nothing fits in memory. If it did, speculation"
    elif len(rows) < len(drafted):
        opening = f"Of the {len(rows)} points that fit in memory: speculation"
    best = max(rows, key=lambda row: row["speedup"])
    worst = min(rows, key=lambda row: row["speedup"])
    if round(best["speedup"], 2) <= 1:
        answer = f"{opening} {denial}: {_at(best, rows)}."
    elif round(worst["speedup"], 2) > 1:
        least = f"; least {_at(worst, rows)}" if len(rows) > 1 else ""
        answer = f"{opening} {pays}: {_at(best, rows)}{least}."
    else:
        answer = f"{opening} {pays} at {_paying(rows)}; best {_at(best, rows)}."
    lines = [answer, why(best, rows, prediction), *behind(prediction.deployment)]
    return "\n".join(map(wrap, lines))


def why(row: dict[str, Any], rows: list[dict[str, Any]], prediction: Prediction) -> str:
    """Return in a sentence what decides the speedup of one of the rows of a prediction."""
    parts = [f"At {place(row, rows)}: target efficiency {row['target_efficiency']:.2f}"]
    if prediction.deployment.target.is_moe:
        total = prediction.deployment.target.num_experts
        before, after = row["active_experts"], row["active_experts_verify"]
        parts.append(f"experts loaded per layer {before:.0f} -> {after:.0f} of {total}")
    if row["break_even_acceptance_rate"] is not None:
        parts.append(f"break-even acceptance rate {row['break_even_acceptance_rate']:.2f}")
    if row["best_draft_length"] is not None:
        parts.append(f"best draft length {row['best_draft_length']}")
        if row["best_draft_length"] == prediction.max_draft_length:
            parts[-1] += " (the longest considered)"
    limit = "" if row["limited_by"] == "none" else f"; limited by {row['limited_by']}"
    return ", ".join(parts) + f"{limit}."


def table(prediction: Prediction) -> str:
    """Return the operating points as a table of at most 80 columns."""
    rows = prediction.rows()
    columns: Columns = [("batch\nsize", [f"{row['batch_size']}" for row in rows])]
    for title, name in (("draft\nlength", "draft_length"), ("context", "context_length")):
        if len({row[name] for row in rows}) > 1:
            columns.append((title, [f"{row[name]}" for row in rows]))
    if prediction.deployment.target.is_moe:
        loaded = [f"{r['active_experts']:.0f}>{r['active_experts_verify']:.0f}" for r in rows]
        columns.append(("experts\nloaded", loaded))
    columns += [
        ("forward\npass", [_seconds(row["forward_time"]) for row in rows]),
        ("step", [_seconds(row["step_time"]) for row in rows]),
        ("target\neff.", [f"{row['target_efficiency']:.3f}" for row in rows]),
        ("speedup", [f"{row['speedup']:.2f}" for row in rows]),
        *_interval_column(rows),
        ("break\neven", [_optional(row["break_even_acceptance_rate"], ".2f") for row in rows]),
        ("best\ndraft", [_optional(row["best_draft_length"], "d") for row in rows]),
        ("limited\nby", [row["limited_by"] for row in rows]),
    ]
    for spare in ("step", "forward\npass", "experts\nloaded"):
        if sum(map(column_width, columns)) + 2 * (len(columns) - 1) > 80:
            columns = [column for column in columns if column[0] != spare]
    return align(columns)


def _interval_column(rows: list[dict[str, Any]]) -> Columns:
    if "speedup_low" not in rows[0]:
        return []
    cells = [f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}" for row in rows]
    return [("80 %\ninterval", cells)]


def assumptions(prediction: Prediction) -> str:
    """Return what was assumed because the user did not give it, wrapped to 80 columns."""
    return assumed_text(prediction.assumptions)


def assumed_text(assumed: Mapping[str, Any]) -> str:
    """Return assumed values by name, wrapped to 80 columns."""
    words = [f"{name}\xa0{value}" for name, value in assumed.items()]
    return wrap(f"Assumed: {', '.join(words) or 'nothing'}.").replace("\xa0", " ")


def warnings(prediction: Prediction) -> list[str]:
    """Return what the reader must know, wrapped to 80 columns."""
    return [warning_text(warning) for warning in prediction.warnings]


def warning_text(warning: str) -> str:
    """Return a warning, wrapped to 80 columns."""
    return wrap(f"Warning: {warning}.")


def components(prediction: Prediction) -> str:
    """Return the time of each component of each pass, a table a point."""
    passes = _passes(prediction)
    names = list(dict.fromkeys(name for columns in passes.values() for name in columns))
    blocks = []
    for i, row in enumerate(prediction.rows()):
        title = (
            f"batch size {row['batch_size']}, draft length {row['draft_length']}, "
            f"context {row['context_length']}"
        )
        cells: Columns = [("component", [*names, "total"])]
        for kind, columns in passes.items():
            total = sum(times[i] for times in columns.values())
            seconds = [columns[name][i] if name in columns else None for name in names] + [total]
            cells.append((kind, ["-" if s is None else _seconds(s) for s in seconds]))
            shares = ["-" if s is None else f"{100 * s / total:.1f}" for s in seconds]
            cells.append(("%", shares))
        blocks.append(f"{title}\n{align(cells, left=['component'])}")
    return "\n\n".join(blocks)


def to_json(prediction: Prediction, *, with_components: bool = False) -> str:
    """Return the prediction as JSON; what has no meaning is null, never NaN."""
    rows = prediction.rows()
    if with_components:
        passes = _passes(prediction)
        for i, row in enumerate(rows):
            row["components"] = {
                kind: {name: float(times[i]) for name, times in columns.items()}
                for kind, columns in passes.items()
            }
    return json_text(
        {
            "deployment": deployment_fields(prediction.deployment),
            "assumptions": prediction.assumptions,
            "warnings": list(prediction.warnings),
            "units": prediction.units(),
            "rows": rows,
        }
    )


def json_text(fields: dict[str, Any]) -> str:
    """Return strict JSON, with the version of its form and of the package in front."""
    document = {"schema_version": JSON_SCHEMA_VERSION, "version": __version__} | fields
    return json.dumps(document, indent=2, allow_nan=False)


def deployment_fields(deployment: Deployment) -> dict[str, Any]:
    """Return what was predicted, so that a saved file can be told from another."""
    d = deployment
    return {
        "target": d.target.name,
        "drafter": d.drafter.name,
        "hardware": d.hardware.name,
        "engine": d.engine.name,
        "num_gpus": d.layout.num_gpus,
        "tensor_parallel": d.tensor_parallel,
        "expert_parallel": d.expert_parallel,
        "draft_tensor_parallel": d.draft_layout.tensor_parallel,
        "routing_correlation": d.routing_correlation,
        "proposal_rate": d.drafter.proposal_rate,
        "lookup_time": d.drafter.lookup_time,
    }


def to_csv(prediction: Prediction) -> str:
    """Return the points as CSV; what has no meaning is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(prediction.units()), lineterminator="\n")
    writer.writeheader()
    writer.writerows(prediction.rows())
    return text.getvalue().rstrip("\n")


def heading(deployment: Deployment) -> str:
    """Return target, drafter and GPUs, wrapped to 80 columns."""
    d = deployment
    count = d.layout.num_gpus
    gpus = f"{count} x {d.hardware.name}" if count > 1 else d.hardware.name
    if d.expert_parallel > 1:
        gpus += f" (tensor parallel {d.tensor_parallel}, expert parallel {d.expert_parallel})"
    return wrap(f"{d.target.name} + {d.drafter.name} on {gpus}")


def record_text(record: Record, notes: dict[str, str]) -> str:
    """Return a record as TOML, which can be saved, edited and given by path; notes as comments."""
    lines = [f"# {name}: {value}" for name, value in notes.items()]
    return "\n".join([*lines, toml_text(record)])


def name_table(rows: Sequence[dict[str, str]]) -> str:
    """Return rows of one shape as an aligned table."""
    names = list(rows[0])
    columns = [(name, [row[name] for row in rows]) for name in names]
    return align(columns, left=[names[0], names[-1]])


def _passes(prediction: Prediction) -> dict[str, dict[str, list[float]]]:
    """Seconds of each component (and the host) of each pass, flat over the points."""
    times, shape = prediction.times, prediction.batch_size.shape
    passes = {}
    for kind, time in times.passes.items():
        if time is not None:
            parts = {name: part.total_time for name, part in time.components.items()}
            if time.overhead_time:
                parts["host"] = np.asarray(time.overhead_time)
            passes[kind] = {
                name: np.ravel(np.broadcast_to(seconds, shape)).tolist()
                for name, seconds in parts.items()
            }
    return passes


def _at(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    return f"{row['speedup']:.2f}x at {place(row, rows)}"


def place(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return the batch size of a point, and of its other coordinates those that vary."""
    place = f"batch size {row['batch_size']}"
    for title, name in (("draft length", "draft_length"), ("context", "context_length")):
        if len({other[name] for other in rows}) > 1:
            place += f", {title} {row[name]}"
    return place


def _paying(rows: list[dict[str, Any]]) -> str:
    """Return batch sizes that pay, runs of neighbours as ranges; or a count if more varies."""
    paying = [row for row in rows if round(row["speedup"], 2) > 1]
    if len({(row["draft_length"], row["context_length"]) for row in rows}) > 1:
        return f"{len(paying)} of {len(rows)} points"
    sizes, good = sorted({r["batch_size"] for r in rows}), {r["batch_size"] for r in paying}
    found = [(sizes[i], sizes[j]) for i, j, pays in runs(size in good for size in sizes) if pays]
    return f"batch size{'s' if len(good) > 1 else ''} {ranges_text(found)}"


def _seconds(value: float) -> str:
    return format_si(value, "s").replace(" ", "")


def verbs(deployment: Deployment) -> tuple[str, str]:
    """Return what speculation does where it gains, and where not: without overheads, it may."""
    may = deployment.engine.is_ideal
    return ("may pay", "may not pay") if may else ("pays", "does not pay")


def behind(deployment: Deployment) -> list[str]:
    """Say in a sentence each whose kernels and engine were taken, and how wrong they were."""
    engine = deployment.engine
    told = f"Engine: {engine.name}"
    if engine.fit:
        left_out = engine.fit.left_out_error.get("target")
        told += f", fitted; off by {engine.fit.mean_error:.0%}"
        told += f", {left_out:.0%} on a target left out" if left_out else ""
    return [_kernels(deployment), _IDEAL if engine.is_ideal else f"{told}."]


def _kernels(deployment: Deployment) -> str:
    """Say whose kernels were taken, and how wrong they were on what was not fitted."""
    kernels, target, hardware = deployment.kernels, deployment.target, deployment.hardware.name
    if kernels.record is None:
        return "Kernels: the data sheet's peaks, which none reaches."
    told, is_held_out = [], True
    for kind in KINDS if target.is_moe else KINDS[1:]:
        stored = target.stream.stored_dtype(kind)
        dtype = kernels.record.dtype_of_fit(kind, stored, target.stream.arithmetic_dtype(stored))
        fit = kernels.record.fit(kind, stored, target.stream.arithmetic_dtype(stored))
        if fit:
            stand_in = f" (as {dtype})" if dtype != stored and stored != "fp16" else ""
            told.append(f"{kind}{stand_in} {fit.mean_error:.0%}")
            is_held_out &= fit.is_held_out
    errors = ", ".join(told)
    if kernels.stack == TYPICAL:
        return (
            f"Kernels: none were fitted on {hardware}; typical ones are assumed, off by {errors}"
            " on a GPU left out."
        )
    judged = "shapes not fitted" if is_held_out else "what was fitted"
    name = f"{kernels.stack} {kernels.record.version}"
    return f"Kernels: {name}, fitted; off by {errors} on {judged}."


def _optional(value: Any, spec: str) -> str:
    return "-" if value is None else format(value, spec)
