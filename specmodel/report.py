"""A prediction in words, as a table, as JSON: returns text, prints nothing."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from specmodel import __version__
from specmodel.latency import PassTime
from specmodel.prediction import COLUMN_UNITS, Prediction
from specmodel.records import Record
from specmodel.units import format_si

JSON_SCHEMA_VERSION = 1


def verdict(prediction: Prediction) -> str:
    """Return in a few lines whether speculation pays, where, by how much, and why not more."""
    rows = [row for row in prediction.rows() if row["draft_length"]]
    if not rows:
        return "No draft, no speculation: speedup 1 by definition."
    best = max(rows, key=lambda row: row["speedup"])
    bound = ""
    if prediction.deployment.engine.is_ideal:
        bound = "\n  upper bound: engine 'ideal' has no launch, host or sampling overhead"
    paying = sum(row["speedup"] > 1 for row in rows)
    if not paying:
        answer = f"Speculation does not pay: at best {_at(best)}."
    elif paying == len(rows):
        worst = min(rows, key=lambda row: row["speedup"])
        answer = f"Speculation pays at every point: best {_at(best)}, least {_at(worst)}."
    else:
        answer = f"Speculation pays at {paying} of {len(rows)} points: best {_at(best)}."
    lines = [answer + bound]
    if 0 < paying < len(rows):
        lines.append(f"  pays at {_paying_batches(rows)}")
    lines.append(f"  at the best point: {_why(best, prediction)}")
    return "\n".join(lines)


def table(prediction: Prediction) -> str:
    """Return the operating points as a table of at most 80 columns."""
    rows = prediction.rows()
    columns: dict[str, list[str]] = {"batch": [f"{row['batch_size']}" for row in rows]}
    for title, name in (("draft", "draft_length"), ("context", "context_length")):
        if len({row[name] for row in rows}) > 1:
            columns[title] = [f"{row[name]}" for row in rows]
    if prediction.deployment.target.is_moe:
        columns["experts"] = [
            f"{row['active_experts']:.0f}>{row['active_experts_verify']:.0f}" for row in rows
        ]
    columns |= {
        "forward": [_seconds(row["forward_time"]) for row in rows],
        "step": [_seconds(row["step_time"]) for row in rows],
        "target eff.": [f"{row['target_efficiency']:.3f}" for row in rows],
        "speedup": [f"{row['speedup']:.2f}" for row in rows],
        "break-even": [_optional(row["break_even_acceptance_rate"], ".2f") for row in rows],
        "best": [_optional(row["best_draft_length"], "d") for row in rows],
        "limited by": [row["limited_by"] for row in rows],
    }
    if _width(columns) > 80:
        del columns["step"]
    return _align(columns)


def assumptions(prediction: Prediction) -> str:
    """Return what was assumed because the user did not give it, wrapped to 80 columns."""
    words = [f"{name} {value}" for name, value in prediction.assumptions.items()]
    if not words:
        return "Assumed: nothing"
    lines = ["Assumed:"]
    for word in (f" {w}," for w in [*words[:-1]]):
        lines = _append(lines, word)
    return "\n".join(_append(lines, f" {words[-1]}"))


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
        cells: dict[str, list[str]] = {"component": [*names, "total"]}
        for title_of_pass, columns in passes.items():
            total = sum(times[i] for times in columns.values())
            seconds = [columns[name][i] if name in columns else None for name in names] + [total]
            cells[title_of_pass] = ["-" if s is None else _seconds(s) for s in seconds]
            cells[f"{title_of_pass} %"] = [
                "-" if s is None else f"{100 * s / total:.1f}" for s in seconds
            ]
        blocks.append(f"{title}\n{_align(cells, left='component')}")
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
    document = {
        "schema_version": JSON_SCHEMA_VERSION,
        "version": __version__,
        "assumptions": prediction.assumptions,
        "warnings": list(prediction.warnings),
        "units": COLUMN_UNITS,
        "rows": rows,
    }
    return json.dumps(document, indent=2, allow_nan=False)


def to_csv(prediction: Prediction) -> str:
    """Return the points as CSV; what has no meaning is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(COLUMN_UNITS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(prediction.rows())
    return text.getvalue().rstrip("\n")


def heading(prediction: Prediction) -> str:
    """Return one line that says what runs where."""
    d = prediction.deployment
    gpus = f"{d.tensor_parallel} x {d.hardware.name}" if d.tensor_parallel > 1 else d.hardware.name
    return f"{d.target.name} + {d.drafter.name} on {gpus}"


def record_text(record: Record, notes: dict[str, str]) -> str:
    """Return a record as TOML, which can be saved, edited and given by path; notes as comments."""
    lines = [f"# {name}: {value}" for name, value in notes.items()]
    return "\n".join(lines + _toml_lines(record.model_dump(exclude_none=True), ""))


def name_table(rows: Sequence[dict[str, str]]) -> str:
    """Return rows of one shape as an aligned table."""
    return _align({key: [row[key] for row in rows] for key in rows[0]}, left=next(iter(rows[0])))


def _toml_lines(data: dict[str, Any], prefix: str) -> list[str]:
    plain = {key: value for key, value in data.items() if not isinstance(value, dict)}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items()]
    for key, value in data.items():
        if isinstance(value, dict):
            nested = _toml_lines(value, f"{prefix}{key}.")
            has_own = any(not isinstance(inner, dict) for inner in value.values())
            lines += ["", f"[{prefix}{key}]", *nested] if has_own else nested
    return lines


def _passes(prediction: Prediction) -> dict[str, dict[str, list[float]]]:
    """Seconds of each component (and the host) of each pass, flat over the points."""
    times, shape = prediction.times, prediction.batch_size.shape
    kinds: dict[str, PassTime | None] = {
        "forward": times.forward,
        "verify": times.speculating,
        "draft pass": times.draft_pass,
    }
    passes = {}
    for kind, time in kinds.items():
        if time is not None:
            parts = {name: part.total_time for name, part in time.components.items()}
            if time.overhead_time:
                parts["host"] = np.asarray(time.overhead_time)
            passes[kind] = {
                name: np.ravel(np.broadcast_to(seconds, shape)).tolist()
                for name, seconds in parts.items()
            }
    return passes


def _at(row: dict[str, Any]) -> str:
    return f"{row['speedup']:.2f}x at batch size {row['batch_size']}"


def _paying_batches(rows: list[dict[str, Any]]) -> str:
    """Batch sizes at which any point pays, runs of neighbours written as ranges."""
    sizes = sorted({row["batch_size"] for row in rows})
    paying = {row["batch_size"] for row in rows if row["speedup"] > 1}
    runs: list[list[int]] = []
    for before, size in zip([None, *sizes], sizes, strict=False):
        if size in paying:
            if runs and runs[-1][-1] == before:
                runs[-1].append(size)
            else:
                runs.append([size])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return "batch sizes " + ", ".join(parts)


def _why(row: dict[str, Any], prediction: Prediction) -> str:
    parts = []
    if row["break_even_acceptance_rate"] is not None:
        parts.append(f"break-even acceptance rate {row['break_even_acceptance_rate']:.2f}")
    if row["best_draft_length"] is not None:
        longest = prediction.assumptions.get("max_draft_length")
        is_bound = row["best_draft_length"] == longest
        suffix = " (the longest considered)" if is_bound else ""
        parts.append(f"best draft length {row['best_draft_length']}{suffix}")
    parts.append(f"limited by {row['limited_by']}")
    return ",\n    ".join(parts)


def _seconds(value: float) -> str:
    return format_si(value, "s").replace(" ", "")


def _optional(value: Any, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(len, [title, *cells])) for title, cells in columns.items()) + 2 * (
        len(columns) - 1
    )


def _align(columns: dict[str, list[str]], left: str = "limited by") -> str:
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    widths = [max(map(len, [title, *cells])) for title, cells in columns.items()]
    aligned = [
        "  ".join(
            cell.ljust(width) if title == left else cell.rjust(width)
            for title, cell, width in zip(columns, line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join(aligned)


def _append(lines: list[str], word: str) -> list[str]:
    if len(lines[-1]) + len(word) <= 80:
        return [*lines[:-1], lines[-1] + word]
    return [*lines, "  " + word.strip()]
