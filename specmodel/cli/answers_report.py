"""Answers in words, tables and JSON: returns text, prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specmodel.answers import Explanation
from specmodel.base.ranges import ranges_text, runs
from specmodel.base.text import Columns, align, align_blocks, wrap
from specmodel.base.units import format_si
from specmodel.cli.report import (
    assumed_text,
    assumptions,
    behind,
    deployment_fields,
    heading,
    json_text,
    place,
    verbs,
    warnings,
)
from specmodel.prediction.outcome import COLUMN_UNITS, Prediction

if TYPE_CHECKING:
    import pandas as pd

UNITS = COLUMN_UNITS | {
    "peak_batch_size": "request",
    "peak_speedup": "-",
    "near_peak_first": "request",
    "near_peak_last": "request",
    "largest_batch_size": "request",
    "tpot_plain": "s",
    "throughput_plain": "token/s",
    "throughput_per_gpu": "token/s",
    "value": "-",
}
"""Units of the columns of answers."""


def page(prediction: Prediction, verdict: str, *parts: str) -> str:
    """Return an answer: what runs where and the verdict, warnings, tables, what was assumed."""
    if (prediction.batch_size > prediction.max_batch_size).all():
        verdict = f"Nothing fits in memory. If it did: {verdict[:1].lower()}{verdict[1:]}"
    words = [verdict, *behind(prediction.deployment)]
    opening = "\n".join([heading(prediction.deployment), *map(wrap, words)])
    return "\n\n".join([opening, *warnings(prediction), *parts, assumptions(prediction)])


def compare_page(predictions: Mapping[str, Prediction], verdict: str, table: str) -> str:
    """Return a comparison: what is behind all, then what is behind each alternative only."""
    told = {
        name: [*behind(p.deployment), *(f"Warning: {warning}." for warning in p.warnings)]
        for name, p in predictions.items()
    }
    assumed = {name: p.assumptions.items() for name, p in predictions.items()}
    first = next(iter(predictions))
    shared = [line for line in told[first] if all(line in lines for lines in told.values())]
    common = dict(pair for pair in assumed[first] if all(pair in a for a in assumed.values()))
    parts = [wrap(verdict), *map(wrap, shared)]
    alone = []
    for number, name in enumerate(predictions, 1):
        rest = ", ".join(f"{key}\xa0{value}" for key, value in assumed[name] if key not in common)
        lines = [line for line in told[name] if line not in shared]
        lines += [f"Assumed: {rest}."] if rest else []
        alone += [wrap(f"[{number}] {line}").replace("\xa0", " ") for line in lines]
    return "\n\n".join(
        filter(None, ["\n".join(parts), table, "\n".join(alone), assumed_text(common)])
    )


def to_json(predictions: Mapping[str, Prediction], frame: pd.DataFrame) -> str:
    """Return rows as JSON with what they are about; what has no meaning is null, never NaN."""
    cases = [
        {"alternative": name, "deployment": deployment_fields(p.deployment)}
        | {"assumptions": p.assumptions, "warnings": list(p.warnings)}
        for name, p in predictions.items()
    ]
    rows = [
        {name: None if value != value else value for name, value in row.items()}
        for row in _records(frame)
    ]
    units = {name: UNITS[name] for name in frame if name in UNITS}
    return json_text({"cases": cases, "units": units, "rows": rows})


def sweet_spot_verdict(spots: pd.DataFrame, prediction: Prediction) -> str:
    """Return in a sentence or two where speculation pays most."""
    pays, denial = verbs(prediction.deployment)
    rows = _records(spots)
    best = max(rows, key=lambda row: row["peak_speedup"])
    where = place(best | {"batch_size": best["peak_batch_size"]}, rows)
    if round(best["peak_speedup"], 2) <= 1:
        return f"Speculation {denial}: at most {best['peak_speedup']:.2f}x, at {where}."
    near = ranges_text([(best["near_peak_first"], best["near_peak_last"])])
    return (
        f"Speculation {pays} most at {where}: {best['peak_speedup']:.2f}x. It {pays} at"
        f" {best['paying']}, and by {best['peak_speedup'] / 2**0.5:.2f}x (peak/√2) or more at"
        f" {near}. Considered: up to {best['largest_batch_size']}."
    )


def sweet_spot_table(spots: pd.DataFrame) -> str:
    """Return the sweet spots, a row a curve."""
    rows = _records(spots)
    gains = [row["peak_speedup"] > 1 for row in rows]
    near = [ranges_text([(row["near_peak_first"], row["near_peak_last"])]) for row in rows]
    columns: Columns = [
        ("draft\nlength", [f"{row['draft_length']}" for row in rows]),
        ("context", [f"{row['context_length']}" for row in rows]),
        ("peak\nspeedup", [f"{row['peak_speedup']:.2f}" for row in rows]),
        ("at batch\nsize", [f"{row['peak_batch_size']}" for row in rows]),
        ("peak/√2\nat", [text if gain else "-" for text, gain in zip(near, gains, strict=True)]),
        ("pays at", [row["paying"] or "-" for row in rows]),
    ]
    return align(columns, left=["pays at"])


def best_length_table(best: pd.DataFrame) -> str:
    """Return the largest speedup and its draft length where they fit, contexts across."""
    sizes, best = sorted(best["batch_size"].unique()), fitting(best)
    columns: Columns = []
    for context, rows in best.groupby("context_length"):
        cells = {row.batch_size: _gain(row) for row in rows.itertuples()}
        columns.append((f"context\n{context}", [cells.get(size, "-") for size in sizes]))
    first = ("batch\nsize", [f"{size}" for size in sizes])
    return f"Speedup (draft length):\n{align_blocks(first, columns)}"


def best_length_verdict(best: pd.DataFrame, prediction: Prediction) -> str:
    """Return in a sentence which lengths are best."""
    pays, denial = verbs(prediction.deployment)
    rows = [row | {"draft_length": None} for row in _records(fitting(best))]
    top = max(rows, key=lambda row: row["speedup"])
    if round(top["speedup"], 2) <= 1:
        return f"Speculation {denial} with any draft length: at most {top['speedup']:.2f}x."
    lengths = [row["best_draft_length"] for row in rows]
    idle = lengths.count(0)
    none = f"; none {pays} at {idle} of {len(rows)} points" if idle else ""
    longest = " (the longest considered)" if max(lengths) == prediction.draft_length.max() else ""
    span = ranges_text([(min(length for length in lengths if length), max(lengths))])
    return (
        f"Best draft length {span}{longest}; most gained at {place(top, rows)}:"
        f" {top['speedup']:.2f}x with {top['best_draft_length']}{none}."
    )


def break_even_table(table: pd.DataFrame) -> str:
    """Return the least acceptance rate by batch size where it fits, draft lengths across."""
    sizes, table = sorted(table["batch_size"].unique()), fitting(table)
    blocks = []
    for context, rows in table.groupby("context_length"):
        columns: Columns = []
        for length, cells in rows.groupby("draft_length"):
            rate = dict(zip(cells["batch_size"], cells["break_even_acceptance_rate"], strict=True))
            columns.append((f"length\n{length}", [_rate(rate.get(size)) for size in sizes]))
        title = f"context {context}\n" if table["context_length"].nunique() > 1 else ""
        first = ("batch\nsize", [f"{size}" for size in sizes])
        blocks.append(title + align_blocks(first, columns))
    return "\n\n".join(blocks)


def break_even_verdict(table: pd.DataFrame, prediction: Prediction) -> str:
    """Return in a sentence or two what is needed at the easiest and the hardest points."""
    pays, _ = verbs(prediction.deployment)
    rates = fitting(table).groupby(["batch_size", "context_length"])["break_even_acceptance_rate"]
    easiest = rates.min().rename("rate").reset_index()
    rows = [row | {"draft_length": None} for row in _records(easiest)]
    able = [row for row in rows if row["rate"] == row["rate"]]
    if not able:
        return "No acceptance rate makes speculation pay."
    least, most = (f(able, key=lambda row: row["rate"]) for f in (min, max))
    told = (
        f"With the easiest draft length, speculation {pays} from an acceptance rate of"
        f" {least['rate']:.2f} at {place(least, rows)}"
    )
    if most != least:
        told += f" to one of {most['rate']:.2f} at {place(most, rows)}"
    hopeless = len(rows) - len(able)
    return f"{told}." + (f" None {pays} at {hopeless} of {len(rows)} points." if hopeless else "")


def compare_verdict(table: pd.DataFrame) -> str:
    """Return which alternative gains most, and which is fastest, by batch size."""
    gains, times = [], []
    sizes, kept = [], fitting(table)
    for size, rows in kept.groupby("batch_size"):
        sizes.append(int(str(size)))
        best = rows.iloc[int(rows["speedup"].argmax())]
        gains.append(best["alternative"] if round(best["speedup"], 2) > 1 else "none")
        fastest = rows[rows["tpot"] <= rows["tpot"].min() * (1 + 1e-9)]["alternative"]
        times.append(" or ".join(fastest))
    gain, time = _by_batch(gains, sizes), _by_batch(times, sizes)
    if gain == time:
        return f"Largest speedup and least time per token: {gain}."
    return f"Largest speedup: {gain}. Least time per token: {time}."


def compare_table(table: pd.DataFrame) -> str:
    """Return alternatives side by side: speedup, best length, time per token; numbered."""
    names, sizes = list(table["alternative"].unique()), sorted(table["batch_size"].unique())
    table = fitting(table)
    columns: Columns = []
    for number, name in enumerate(names, 1):
        rows = {row.batch_size: row for row in table[table["alternative"] == name].itertuples()}
        cells = [
            f"{_gain(rows[size])} {_seconds(rows[size].tpot)}" if size in rows else "-"
            for size in sizes
        ]
        columns.append((f"[{number}]", cells))
    legend = [f"[{number}] {name}" for number, name in enumerate(names, 1)]
    first = ("batch\nsize", [f"{size}" for size in sizes])
    words = [*legend, "Speedup (draft length) and time per token:"]
    return "\n".join([*words, align_blocks(first, columns)])


def explain_tables(explanation: Explanation) -> str:
    """Return the two waterfalls, a column a point."""
    titles = {
        "target_efficiency": "Target efficiency, from 1: verifying takes no longer",
        "speedup": "Speedup, from all drafts accepted and no step longer",
    }
    frame, rows = explanation.to_frame(), explanation.prediction.rows()
    frame["point"] = frame.groupby(["quantity", "term"], sort=False).cumcount()
    many_contexts = len({row["context_length"] for row in rows}) > 1
    blocks = []
    for quantity, title in titles.items():
        of_quantity = frame[frame["quantity"] == quantity]
        terms = list(of_quantity["term"].unique())
        columns: Columns = []
        for row, (_, cells) in zip(rows, of_quantity.groupby("point"), strict=True):
            head = f"batch {row['batch_size']}\ndraft {row['draft_length']}"
            head += f"\ncontext {row['context_length']}" if many_contexts else ""
            columns.append((head, list(map(_step, cells["term"], cells["value"]))))
        blocks.append(f"{title}\n{align_blocks(('', terms), columns, left=[''])}")
    return "\n\n".join(blocks)


def explain_verdict(explanation: Explanation) -> str:
    """Return for each point what takes most."""
    prediction, sentences = explanation.prediction, []
    rows, ideal = prediction.rows(), explanation.ideal_speedup.ravel()
    for i, row in enumerate(rows):
        terms = {name: float(values.ravel()[i]) for name, values in explanation.speedup.items()}
        worst = [n for n in sorted(terms, key=lambda n: terms[n])[:2] if terms[n] < -0.005]
        taken = " and ".join(f"{name} {-terms[name]:.2f}" for name in worst)
        limit = "" if row["limited_by"] == "none" else f"; limited by {row['limited_by']}"
        sentences.append(
            f"At {place(row, rows)}: of {ideal[i]:.2f}x, {taken or 'nothing'} taken,"
            f" {row['speedup']:.2f}x left{limit}."
        )
    return " ".join(sentences)


def fitting(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that fit in memory; all, if none does."""
    return rows[rows["fits"]] if rows["fits"].any() else rows


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _by_batch(winners: list[str], sizes: list[int]) -> str:
    """Name the winner of each run of batch sizes."""
    found = runs(winners)
    if len(found) == 1:
        return f"{winners[0]} at every batch size"
    return "; ".join(f"{name} at {ranges_text([(sizes[i], sizes[j])])}" for i, j, name in found)


def _gain(row: Any) -> str:
    return f"{row.speedup:.2f} ({row.best_draft_length})"


def _seconds(value: float) -> str:
    return format_si(value, "s").replace(" ", "")


def _step(term: str, value: float) -> str:
    """Return a step of a waterfall; one that rounds to nothing is left open."""
    if term in ("ideal", "predicted"):
        return f"{value:.3f}"
    return "" if abs(value) < 5e-4 else f"{value:+.3f}"


def _rate(rate: float | None) -> str:
    return "-" if rate is None or rate != rate else f"{rate:.2f}"
