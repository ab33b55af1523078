"""Answers in words, tables and JSON: returns text, prints nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specmodel import __version__
from specmodel.answers import Explanation
from specmodel.outcome import Prediction
from specmodel.report import (
    JSON_SCHEMA_VERSION,
    assumed_text,
    assumptions,
    behind,
    deployment_fields,
    heading,
    warnings,
)
from specmodel.text import Columns, align, wrap
from specmodel.units import format_si

if TYPE_CHECKING:
    import pandas as pd


def page(prediction: Prediction, verdict: str, *parts: str) -> str:
    """Return an answer: what runs where and the verdict, warnings, tables, what was assumed."""
    if (prediction.batch_size > prediction.max_batch_size).all():
        verdict = f"Nothing fits in memory. If it did: {verdict[:1].lower()}{verdict[1:]}"
    opening = "\n".join([heading(prediction), *map(wrap, [verdict, *behind(prediction)])])
    return "\n\n".join([opening, *warnings(prediction), *parts, assumptions(prediction)])


def compare_page(predictions: Mapping[str, Prediction], verdict: str, table: str) -> str:
    """Return a comparison; what was assumed for all, and warnings for each."""
    found = list(predictions.values())
    told = dict.fromkeys(line for prediction in found for line in warnings(prediction))
    shared = {
        name: value
        for name, value in found[0].assumptions.items()
        if all(p.assumptions.get(name) == value for p in found)
    }
    return "\n\n".join([wrap(verdict), *told, table, assumed_text(shared)])


def pays_or_may(prediction: Prediction) -> str:
    """Return the verb of a verdict: without overheads of an engine, it only may."""
    return "may pay" if prediction.deployment.engine.is_ideal else "pays"


def to_json(predictions: Sequence[Prediction], frame: pd.DataFrame) -> str:
    """Return rows as JSON with what they are about; what has no meaning is null, never NaN."""
    document = {
        "schema_version": JSON_SCHEMA_VERSION,
        "version": __version__,
        "deployments": [deployment_fields(p.deployment) for p in predictions],
        "assumptions": [p.assumptions for p in predictions],
        "warnings": list(dict.fromkeys(w for p in predictions for w in p.warnings)),
        "rows": json.loads(frame.to_json(orient="records", double_precision=12)),
    }
    return json.dumps(document, indent=2, allow_nan=False)


def sweet_spot_verdict(spots: pd.DataFrame, pays: str) -> str:
    """Return in a sentence or two where speculation pays most."""
    best = spots.iloc[int(spots["peak_speedup"].argmax())]
    place = _place(best, spots)
    if best["peak_speedup"] <= 1:
        return (
            f"Speculation {pays} at no batch size: at most {best['peak_speedup']:.2f}x"
            f" at {best['peak_batch_size']}{place}."
        )
    low, high = best["near_peak"]
    width = ranges([(low, high)])
    return (
        f"Speculation {pays} at batch sizes {ranges(best['paying'])}{place}; most"
        f" at {best['peak_batch_size']}, {best['peak_speedup']:.2f}x; above"
        f" {best['peak_speedup'] / 2**0.5:.2f}x (peak/√2) at {width}. Considered: up to"
        f" {best['largest_batch_size']}."
    )


def sweet_spot_table(spots: pd.DataFrame) -> str:
    """Return the sweet spots, a row a curve."""
    rows = spots.to_dict("records")
    columns: Columns = [
        ("draft\nlength", [f"{row['draft_length']:.0f}" for row in rows]),
        ("context", [f"{row['context_length']:.0f}" for row in rows]),
        ("peak\nspeedup", [f"{row['peak_speedup']:.2f}" for row in rows]),
        ("at batch\nsize", [f"{row['peak_batch_size']}" for row in rows]),
        ("over peak/√2", ["{}-{}".format(*row["near_peak"]) for row in rows]),
        ("pays at", [ranges(row["paying"]) or "none" for row in rows]),
    ]
    return align(columns, left=["pays at"])


def best_length_table(best: pd.DataFrame) -> str:
    """Return the best draft length and its speedup where it fits, contexts across."""
    best = fitting(best)
    sizes = sorted(best["batch_size"].unique())
    columns: Columns = [("batch\nsize", [f"{size}" for size in sizes])]
    for context, rows in best.groupby("context_length"):
        cells = {
            row.batch_size: f"{row.best_draft_length} ({row.speedup:.2f})"
            for row in rows.itertuples()
        }
        columns.append((f"context\n{context}", [cells.get(size, "-") for size in sizes]))
    return align(columns)


def best_length_verdict(best: pd.DataFrame, pays: str) -> str:
    """Return in a sentence which lengths are best."""
    best = fitting(best)
    lengths = best["best_draft_length"]
    top = best.iloc[int(best["speedup"].argmax())]
    if top["best_draft_length"] == 0:
        return f"Speculation {pays} at none of these points."
    idle = int((lengths == 0).sum())
    none = f"; it does not pay at {idle} of {len(best)} points" if idle else ""
    span = f"{lengths.min()} to {lengths.max()}" if lengths.min() < lengths.max() else lengths.max()
    return (
        f"Best draft length {span}; most gained at batch size {top['batch_size']}, context"
        f" {top['context_length']}: {top['speedup']:.2f}x with {top['best_draft_length']}{none}."
    )


def break_even_table(table: pd.DataFrame) -> str:
    """Return the least acceptance rate by batch size, draft lengths across."""
    blocks = []
    for context, rows in table.groupby("context_length"):
        sizes = rows["batch_size"].unique()
        columns: Columns = [("batch\nsize", [f"{size}" for size in sizes])]
        for length, cells in rows.groupby("draft_length"):
            rates = cells["break_even_acceptance_rate"]
            columns.append((f"length\n{length}", [_rate(rate) for rate in rates]))
        title = f"context {context}\n" if table["context_length"].nunique() > 1 else ""
        blocks.append(title + align(columns))
    return "\n\n".join(blocks)


def break_even_verdict(table: pd.DataFrame) -> str:
    """Return in a sentence the least and the most that is needed."""
    rates = table["break_even_acceptance_rate"]
    if rates.isna().all():
        return "No acceptance rate makes speculation pay."
    easiest = table.groupby(["batch_size", "context_length"])["break_even_acceptance_rate"].min()
    low = table.iloc[int(rates.fillna(2.0).argmin())]
    size = easiest.index[int(easiest.fillna(-1.0).argmax())][0]
    hardest = f"; most at batch size {size}: {easiest.max():.2f}" if len(easiest) > 1 else ""
    return (
        "Acceptance rate from which speculation pays, with the easiest draft length: least at"
        f" batch size {low['batch_size']:.0f}: {low['break_even_acceptance_rate']:.2f}{hardest}."
    )


def compare_verdict(table: pd.DataFrame) -> str:
    """Return which alternative gains most, and which is fastest, by batch size."""
    table = fitting(table)
    winners = table.loc[table.groupby("batch_size")["speedup"].idxmax()]
    fastest = table.loc[table.groupby("batch_size")["tpot"].idxmin()]
    gains = _by_batch(winners)
    times = _by_batch(fastest)
    if gains == times:
        return f"Largest speedup and least time per token: {gains}."
    return f"Largest speedup: {gains}. Least time per token: {times}."


def compare_table(table: pd.DataFrame) -> str:
    """Return alternatives side by side: best length, speedup, time per token; numbered below."""
    names = list(table["alternative"].unique())
    table = fitting(table)
    sizes = sorted(table["batch_size"].unique())
    columns: Columns = [("batch\nsize", [f"{size}" for size in sizes])]
    for number, name in enumerate(names, 1):
        rows = {row.batch_size: row for row in table[table["alternative"] == name].itertuples()}
        columns.append((f"[{number}]", [_gain(rows.get(size)) for size in sizes]))
    legend = [f"[{number}] {name}" for number, name in enumerate(names, 1)]
    blocks = [align([columns[0], *columns[i : i + 4]]) for i in range(1, len(columns), 4)]
    return "\n\n".join(["\n".join(legend), *blocks])


def explain_tables(explanation: Explanation) -> str:
    """Return the two waterfalls, a column a point."""
    frame = explanation.to_frame()
    frame["point"] = frame.groupby(["quantity", "term"], sort=False).cumcount()
    blocks = []
    titles = {
        "target_efficiency": "Target efficiency, from 1: verifying takes no longer",
        "speedup": "Speedup, from all drafts accepted and no step longer",
    }
    for quantity, title in titles.items():
        rows = frame[frame["quantity"] == quantity]
        terms = list(rows["term"].unique())
        columns: Columns = [("", terms)]
        for _, cells in rows.groupby("point"):
            head = cells.iloc[0]
            values = dict(zip(cells["term"], cells["value"], strict=True))
            ends = ("ideal", "predicted")
            shown = [format(values[t], ".3f" if t in ends else "+.3f") for t in terms]
            shown = ["" if text in ("+0.000", "-0.000") else text for text in shown]
            columns.append((f"batch {head['batch_size']}\ndraft {head['draft_length']}", shown))
        blocks.append(f"{title}\n{align(columns, left=[''])}")
    return "\n\n".join(blocks)


def explain_verdict(explanation: Explanation) -> str:
    """Return for each point what takes most."""
    p = explanation.prediction
    sentences = []
    limits = explanation.limited_by.ravel()
    for i in range(p.speedup.size):
        terms = {name: float(values.ravel()[i]) for name, values in explanation.speedup.items()}
        worst = sorted(terms, key=lambda name: terms[name])[:2]
        ideal, gain = explanation.ideal_speedup.ravel()[i], p.speedup.ravel()[i]
        taken = " and ".join(f"{name} {-terms[name]:.2f}" for name in worst if terms[name] < 0)
        sentences.append(
            f"At batch size {p.batch_size.ravel()[i]:.0f}: of {ideal:.2f}x, {taken or 'nothing'}"
            f" taken, {gain:.2f}x left; limited by {limits[i]}."
        )
    return " ".join(sentences)


def ranges(runs: Sequence[Sequence[int]]) -> str:
    """Return runs of numbers as people write them."""
    return ", ".join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)


def fitting(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that fit in memory; all, if none does."""
    return rows[rows["fits"]] if rows["fits"].any() else rows


def _gain(row: Any) -> str:
    """Return speedup, best length and time per token."""
    if row is None:
        return "-"
    seconds = format_si(row.tpot, "s").replace(" ", "")
    return f"{row.speedup:.2f} ({row.best_draft_length}) {seconds}"


def _by_batch(winners: pd.DataFrame) -> str:
    """Name the winner of each run of batch sizes."""
    runs: list[list[Any]] = []
    for row in winners.sort_values("batch_size").itertuples():
        if runs and runs[-1][0] == row.alternative:
            runs[-1][2] = row.batch_size
        else:
            runs.append([row.alternative, row.batch_size, row.batch_size])
    if len(runs) == 1:
        return f"{runs[0][0]} at every batch size"
    return "; ".join(f"{name} at {ranges([(low, high)])}" for name, low, high in runs)


def _place(row: Any, rows: pd.DataFrame) -> str:
    names = {"draft_length": "draft length", "context_length": "context"}
    told = [f"{word} {row[name]:.0f}" for name, word in names.items() if rows[name].nunique() > 1]
    return f" ({', '.join(told)})" if told else ""


def _rate(rate: float) -> str:
    return "-" if rate != rate else f"{rate:.2f}"
