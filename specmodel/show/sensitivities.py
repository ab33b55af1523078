"""What a point depends on most, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specmodel.base.text import align, wrap
from specmodel.prediction.table import Form, Row, columns_of, filler, fitted
from specmodel.show import report
from specmodel.show.facts import Fact, picked
from specmodel.show.forms import Answer, records
from specmodel.show.notes import si

if TYPE_CHECKING:
    from specmodel.answers.sensitivity import Sensitivity

_POINT = ("batch_size", "draft_length", "context_length")
_TOLD = (
    "Speedup {speedup:.2f}, target efficiency {target_efficiency:.2f}.",
    "Point: batch size {batch_size}, draft length {draft_length}, context {context_length}.",
    "Moves it most: {moves_most}, from {moves_most_low:.2f} to {moves_most_high:.2f}.",
    "Decides most of its variance: {decides_most}, {decides_most_share:.0%}.",
)
"""The headline, and the facts below it."""
_ENDS = ("low", "high")
_MOST_ROWS = 15
"""Rows of a table for people [-]."""

_VISIBLE = 0.005
"""Smallest effect that is visible with two decimals [-]."""
_WIDE = 0.3
"""Widest interval of a share that counts as settled [-]."""

_SOURCES = {
    "given": "given ones are uniform",
    "published": "routing_correlation and popularity_spread are uniform between what published"
    " models allow",
    "tasks": "acceptance_rate has the central 80 % of what one head reaches on different tasks,"
    " normal",
    "calibration": "the calibration's are the central 80 % of errors on shapes not fitted,"
    " lognormal, and of overheads of the engine, normal",
}
_ERRORS = {
    ".error": "a factor on kernels of a kind in both passes",
    ".verify_error": "one on the verify pass over that on the decode step",
    ".draft_error": "one on draft passes",
    "deployment.error": "one on all that GPUs do in any pass",
    "engine.error": "one on the whole step",
}


def answer(found: Sensitivity) -> Answer:
    """Return the analyses of a point in all forms."""
    facts = _facts(found)
    words = report.opening(_TOLD, facts, found.fits)
    return Answer(
        page=lambda: _page(found, words),
        facts=facts,
        fields=lambda: _fields(found),
        rows=lambda: records(found.tidy()),
        warnings=found.warnings,
        case=report.caption(found),
    )


def _facts(found: Sensitivity) -> dict[str, Fact]:
    """Return the outcome, where, and the inputs that move and decide most of the speedup."""
    facts = {name: Fact(value) for name, value in found.outcome.items()}
    facts |= {name: Fact(getattr(found.point, name)) for name in _POINT}
    ends = {"low": "speedup_at_low", "high": "speedup_at_high"}
    facts |= picked("moves_most", records(found.swings)[0], "input", **ends)
    decided = records(found.indices[found.indices["output"] == "speedup"])
    if decided:
        first = max(decided, key=lambda row: row["first_order"])
        first["first_order"] = min(first["first_order"], 1.0)  # an estimate may be beyond
        facts |= picked("decides_most", first, "input", share="first_order")
    return facts


def _page(found: Sensitivity, words: list[str]) -> str:
    """Return the answer for people, at most 80 columns wide."""
    tables = [
        _elasticity_table(records(found.elasticities)),
        _tornado_table(records(found.swings)) + _without_range(found),
        *(_sobol_table(found, output) for output in found.outcome),
    ]
    return report.page(found, words, *tables, notes=_notes(found))


def _elasticity_table(rows: list[Row]) -> str:
    """Return the change of the outcome in per cent, for an input 1 % higher."""
    columns: dict[str, Form] = {
        "1 % more of": "{input}",
        "value": lambda row: _value(row["value"], row["unit"]),
        "speedup": "{speedup:+.3f} %",
        "target\neff.": "{target_efficiency:+.3f} %",
    }
    most = max((abs(row["speedup"]) for row in rows[_MOST_ROWS:]), default=0.0)
    note = f"at most {most:.1g} % on the speedup"
    return _table(rows[:_MOST_ROWS], columns, len(rows[_MOST_ROWS:]), note)


def _tornado_table(rows: list[Row]) -> str:
    """Return the outcome at both ends of each range."""
    columns: dict[str, Form] = {
        "one at a time": "{input}",
        "range": lambda row: _range(row["low"], row["high"], row["unit"]),
        "speedup": "{speedup_at_low:.2f}>{speedup_at_high:.2f}",
        "target\neff.": "{target_efficiency_at_low:.2f}>{target_efficiency_at_high:.2f}",
    }
    both = "{{speedup_at_{0}:.2f}} {{target_efficiency_at_{0}:.2f}}"
    low, high = (filler(both.format(end)) for end in _ENDS)
    moved = [row for row in rows if low(row) != high(row)]
    shown = (moved or rows)[:_MOST_ROWS]
    return _table(shown, columns, len(rows) - len(shown), "which move neither in these digits")


def _without_range(found: Sensitivity) -> str:
    """Return a line on inputs of large elasticity that have no range; "" if all have one."""
    names = [name for name in found.elasticities["input"][:_MOST_ROWS] if name not in found.ranges]
    told = f"Not moved, as without a range (--range gives one): {', '.join(names)}."
    return f"\n{wrap(told)}" if names else ""


def _sobol_table(found: Sensitivity, output: str) -> str:
    """Return the shares of the variance of an output."""
    rows = records(found.indices[found.indices["output"] == output])
    words = output.replace("_", " ")
    if not rows:
        return wrap(f"No range moves the {words}.")
    columns: dict[str, Form] = {
        f"share of the variance\nof {words}": "{input}",
        "first-\norder": lambda row: _per_cent(min(row["first_order"], row["total"])),
        "95 %": lambda row: _interval(row, "first_order"),
        "\ntotal": lambda row: _per_cent(row["total"]),
        "95 % ": lambda row: _interval(row, "total"),
    }
    totals = [row["total"] for row in rows]
    count = max([1, *(i for i, own in enumerate(totals[:_MOST_ROWS], 1) if own >= _VISIBLE)])
    most = max(totals[count:], default=0.0)
    note = f"each at most {100 * most:.1g} % in total"
    table = _table(rows[:count], columns, len(rows[count:]), note)
    if any(row["first_order_high"] - row["first_order_low"] > _WIDE for row in rows):
        table += f"\nThese shares are not settled: more than {found.samples} samples."
    return table


def _table(rows: Sequence[Row], forms: dict[str, Form], rest: int, note: str) -> str:
    """Return rows in at most 80 columns, and a line about the rest."""
    columns, _ = fitted(columns_of(rows, forms.items()), [*forms][:0:-1])
    table = align(columns, left=[*forms][:1])
    return f"{table}\n{wrap(f'and {rest} more, {note}.')}" if rest > 0 else table


def _notes(found: Sensitivity) -> list[str]:
    """Return sentences on the sources of ranges, and on the errors among the inputs."""
    sources = {span.source for span in found.ranges.values()}
    told = "; ".join(text for source, text in _SOURCES.items() if source in sources)
    ranges = (
        f"Ranges: {told}. All vary independently, {found.samples} samples; intervals of shares by"
        " bootstrap."
    )
    names = [*found.elasticities["input"], *found.ranges]
    errors = [
        f"{end.lstrip('.')} {text}"
        for end, text in _ERRORS.items()
        if any(name.endswith(end) for name in names)
    ]
    return [ranges, f"Errors: {', '.join(errors)}."]


def _fields(found: Sensitivity) -> dict[str, Any]:
    """Return the fields of JSON, in SI units."""
    case = report.case_fields(found)
    return {
        "deployment": case.pop("deployment"),
        "point": {name: getattr(found.point, name) for name in _POINT},
        **found.outcome,
        "elasticities": records(found.elasticities),
        "tornado": records(found.swings),
        "sobol": records(found.indices),
        "laws": {name: span.law for name, span in found.ranges.items()},
        "samples": found.samples,
        **case,
    }


def _value(value: float, unit: str) -> str:
    return f"{value:.4g}" if unit in ("-", "token", "request") else si(value, unit)


def _range(low: float, high: float, unit: str) -> str:
    """Return both ends of a range; a unit that they share stands once."""
    first, last = (_value(end, unit).split(" ") for end in (low, high))
    if first[1:] == last[1:] or low == 0:
        first = first[:1]
    return f"{' '.join(first)}-{' '.join(last)}"


def _per_cent(share: float, unit: str = " %") -> str:
    """Return a share in per cent; estimates beyond 0 and 1 are cut."""
    return f"{100 * min(max(share, 0.0), 1.0):.0f}{unit}"


def _interval(row: dict[str, Any], name: str) -> str:
    return "-".join(_per_cent(row[f"{name}_{end}"], "") for end in ("low", "high"))
