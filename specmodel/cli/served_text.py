"""What ``specmodel measure-engine`` prints of what it measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from specmodel.base.text import wrap
from specmodel.prediction.table import Form, Row
from specmodel.show import forms

_MOST_NOTES = 5
_Load = tuple[int, int, int]


def served_text(table: forms.DataFrame, draft_lengths: Sequence[int]) -> str:
    """Return the summary for people, with the drift and warnings from its notes.

    Speedups are against the mean of plain rounds, `draft_lengths` those that were asked for.
    """
    rows = forms.records(table)
    is_compared = any(row["draft_length"] for row in rows)
    plain = defaultdict[_Load, list[Row]](list)
    for row in rows:
        if not row["draft_length"]:
            plain[_load(row)].append(row)
    drift = _drift_text(plain, draft_lengths) if is_compared else ""
    means = {load: fmean(own["tpot_ms"] for own in rounds) for load, rounds in plain.items()}
    for row in rows:
        alone = means.get(_load(row))
        row["speedup"] = alone and row["tpot_ms"] and alone / row["tpot_ms"]
        row |= {name: row[name] and row[name] / 1e3 for name in ("ttft_ms", "tpot_ms", "step_ms")}
    notes = [wrap(f"Warning: {row['id']}: {row['notes']}.") for row in rows if row["notes"]]
    more = len(notes) - _MOST_NOTES
    told = [*notes[:_MOST_NOTES], *([f"({more} more in the column notes)"] if more > 0 else [])]
    return "\n\n".join(filter(None, [forms.table(rows, _COLUMNS), drift, "\n".join(told)]))


def _drift_text(plain: Mapping[_Load, Sequence[Row]], draft_lengths: Sequence[int]) -> str:
    """Return by how much plain steps took longer in the last plain round than in the first."""
    drifts = {
        "{} x {}/{}".format(*load): own[-1]["step_ms"] / own[0]["step_ms"] - 1.0
        for load, own in plain.items()
        if len(own) > 1
    }
    if drifts:
        each = ", ".join(f"{change:+.1%} at {load}" for load, change in drifts.items())
        return wrap(
            f"Drift: from the first plain round to the last, a step changed by {each} (requests at"
            " once x tokens in/out). Speedups are against their mean; one that is nearer to 1 than"
            " that is neither gain nor loss."
        )
    if not plain or not draft_lengths[-1]:
        return ""
    again = ",".join(map(str, [*draft_lengths, 0]))
    return wrap(
        "Whether the machine drifted is not known: restart the server without speculation, and go"
        f" on with --draft-length {again} for a closing plain round."
    )


def _load(row: Row) -> _Load:
    """Return what identifies a load, with and without speculation."""
    return row["concurrency"], round(row["prompt_length"]), row["output_length"]


_COLUMNS: dict[str, Form] = {
    "draft\nlength": "{draft_length}",
    "requests\nat once": "{concurrency}",
    "tokens\nin/out": lambda row: "{1}/{2}".format(*_load(row)),
    "first\ntoken": "{ttft_ms:s}",
    "\nTPOT": "{tpot_ms:s}",
    "tokens\na step": "{tokens_per_step:.3g}",
    "\nstep": "{step_ms:s}",
    "repeats\ndiffer": "{step_spread:.1%}",
    "\nspeedup": "{speedup:.2f}",
}
