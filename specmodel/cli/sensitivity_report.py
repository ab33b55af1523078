"""Sensitivities in words, as tables, as JSON and CSV: returns text, prints nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.text import Columns, align, column_width, wrap
from specmodel.base.units import format_si
from specmodel.cli import report
from specmodel.cli.report import assumed_text, behind, deployment_fields, json_text
from specmodel.cli.sensitivity_options import Sensitivity
from specmodel.sensitivity import OUTPUTS

MOST_ROWS = 15
"""Rows of a table for people [-]."""

_VISIBLE = 0.005
_WIDE = 0.3
_WORDS = {"speedup": "speedup", "target_efficiency": "target efficiency"}
_SOURCES = {
    "given": "given ones are uniform",
    "published": "routing_correlation is uniform between those of published models",
    "calibration": "the calibration's are the central 80 % of each parameter by itself,"
    " lognormal (normal for overheads of the engine)",
}
_ERRORS = {
    ".error": "a factor on kernels of a kind in both passes",
    ".verify_error": "one on the verify pass over that on the plain pass",
    ".draft_error": "one on draft passes",
    "engine.error": "one on the whole step",
}


def heading(found: Sensitivity) -> str:
    """Return what runs where, and the operating point."""
    point = found.point
    place = (
        f"batch size {point.batch_size}, draft length {point.draft_length},"
        f" context {point.context_length}"
    )
    return f"{report.heading(found.deployment)}\n{wrap(place)}"


def verdict(found: Sensitivity) -> str:
    """Return in three sentences the outcome, what moves it most, and what makes it uncertain."""
    speedup, efficiency = (found.outcome[name] for name in OUTPUTS)
    sentences = [f"Speedup {speedup:.2f}, target efficiency {efficiency:.2f}."]
    rows = found.elasticities.to_dict("records")
    rows = [row for row in rows if row["input"] != "draft_length" and "error" not in row["input"]]
    if rows:
        by = rows[0]["speedup"]
        verb = "raises" if by >= 0 else "lowers"
        sentences.append(f"A 1 % higher {rows[0]['input']} {verb} the speedup by {abs(by):.2g} %.")
    swing = found.swings.to_dict("records")[0]
    decided = found.indices[found.indices["output"] == "speedup"].to_dict("records")
    moved = f"{swing['speedup_at_low']:.2f} to {swing['speedup_at_high']:.2f}"
    ending = f"Of what is uncertain, {swing['input']} moves it most, from {moved}"
    if decided:
        first = max(decided, key=lambda row: row["first_order"])
        is_same = first["input"] == swing["input"]
        ending += f"{' and' if is_same else '; ' + first['input']} decides"
        ending += f" {_per_cent(first['first_order'])} of the variance"
    told = " ".join([*sentences, ending]) + "."
    return "\n".join(map(wrap, [told, *behind(found.deployment)]))


def elasticity_table(found: Sensitivity) -> str:
    """Return by how many per cent the outcome rises per per cent of an input."""
    rows = found.elasticities.to_dict("records")
    shown = rows[:MOST_ROWS]
    columns: Columns = [
        ("elasticity to", [row["input"] for row in shown]),
        ("value", [_value(row["value"], row["unit"]) for row in shown]),
        ("speedup", [f"{row['speedup']:+.3f}" for row in shown]),
        ("target\neff.", [f"{row['target_efficiency']:+.3f}" for row in shown]),
    ]
    rest = [abs(row["speedup"]) for row in rows[MOST_ROWS:]]
    return _with_rest(columns, len(rest), f"at most {max(rest, default=0.0):.1g} on the speedup")


def tornado_table(found: Sensitivity) -> str:
    """Return the outcome at both ends of each range."""
    rows = found.swings.to_dict("records")
    swings = [max(abs(r[f"{o}_at_high"] - r[f"{o}_at_low"]) for o in OUTPUTS) for r in rows]
    count = _rows_shown(swings)
    shown = rows[:count]
    columns: Columns = [
        ("one at a time", [row["input"] for row in shown]),
        ("range", [_range(row["low"], row["high"], row["unit"]) for row in shown]),
    ]
    for name, title in (("speedup", "speedup"), ("target_efficiency", "target\neff.")):
        ends = [(row[f"{name}_at_low"], row[f"{name}_at_high"]) for row in shown]
        columns.append((title, [f"{low:.2f}>{high:.2f}" for low, high in ends]))
    note = f"which move neither by more than {max(swings[count:], default=0.0):.1g}"
    return _with_rest(columns, len(rows) - count, note)


def sobol_tables(found: Sensitivity) -> list[str]:
    """Return the shares of the variance of each output that varies."""
    tables = []
    for output in OUTPUTS:
        rows = found.indices[found.indices["output"] == output].to_dict("records")
        count = _rows_shown([row["total"] for row in rows])
        shown = rows[:count]
        columns: Columns = [
            (f"share of the variance\nof {_WORDS[output]}", [row["input"] for row in shown]),
            ("by\nitself", [_per_cent(row["first_order"]) for row in shown]),
            ("95 %", [_interval(row, "first_order") for row in shown]),
            ("in\nall", [_per_cent(row["total"]) for row in shown]),
            ("95 % ", [_interval(row, "total") for row in shown]),
        ]
        if rows:
            most = max((row["total"] for row in rows[count:]), default=0.0)
            note = f"each at most {100 * most:.1g} % in all"
            tables.append(_with_rest(columns, len(rows) - count, note))
            if any(row["first_order_high"] - row["first_order_low"] > _WIDE for row in rows):
                tables[-1] += f"\nThese shares are not settled: more than {found.samples} samples."
        else:
            tables.append(wrap(f"No range moves the {_WORDS[output]}."))
    return tables


def assumptions(found: Sensitivity) -> str:
    """Return where ranges come from, what was assumed, and what names of errors mean."""
    sources = {span.source for span in found.ranges.values()}
    told = "; ".join(text for source, text in _SOURCES.items() if source in sources)
    ranges = (
        f"Ranges: {told}. All vary independently, {found.samples} samples; intervals of shares by"
        " bootstrap."
    )
    names = [*found.elasticities["input"], *found.ranges]
    errors = ", ".join(
        f"{end.lstrip('.')} {text}"
        for end, text in _ERRORS.items()
        if any(name.endswith(end) and (name == end or end[0] == ".") for name in names)
    )
    return "\n".join([wrap(ranges), wrap(f"Errors: {errors}."), assumed_text(found.assumptions)])


def to_json(found: Sensitivity) -> str:
    """Return everything for a program; numbers in full, in SI units."""
    point = found.point
    document = {
        "deployment": deployment_fields(found.deployment),
        "point": {
            "batch_size": point.batch_size,
            "draft_length": point.draft_length,
            "context_length": point.context_length,
        },
        **found.outcome,
        "elasticities": found.elasticities.to_dict("records"),
        "tornado": found.swings.to_dict("records"),
        "sobol": found.indices.to_dict("records"),
        "laws": {name: span.law for name, span in found.ranges.items()},
        "samples": found.samples,
        "assumptions": found.assumptions,
        "warnings": list(found.warnings),
    }
    return json_text(document)


def to_csv(found: Sensitivity) -> str:
    """Return one tidy table: analysis, input, output, quantity, value."""
    rows: list[dict[str, Any]] = []
    for row in found.elasticities.to_dict("records"):
        rows += [
            _tidy("elasticity", row["input"], name, "elasticity", row[name]) for name in OUTPUTS
        ]
    for row in found.swings.to_dict("records"):
        rows += [_tidy("tornado", row["input"], "", end, row[end]) for end in ("low", "high")]
        rows += [
            _tidy("tornado", row["input"], name, end, row[f"{name}_{end}"])
            for name in OUTPUTS
            for end in ("at_low", "at_high")
        ]
    for row in found.indices.to_dict("records"):
        quantities = [str(name) for name in row if name not in ("input", "output")]
        rows += [_tidy("sobol", row["input"], row["output"], q, row[q]) for q in quantities]
    return pd.DataFrame(rows).to_csv(index=False).rstrip("\n")


def _tidy(analysis: str, name: str, output: str, quantity: str, value: float) -> dict[str, Any]:
    return {
        "analysis": analysis,
        "input": name,
        "output": output,
        "quantity": quantity,
        "value": value,
    }


def _rows_shown(effects: list[float]) -> int:
    """Return how many rows to show: up to the last that rounding leaves visible, and one."""
    seen = [i + 1 for i, effect in enumerate(effects[:MOST_ROWS]) if effect >= _VISIBLE]
    return max([1, *seen])


def _with_rest(columns: Columns, rest: int, note: str) -> str:
    """Return a table of at most 80 columns, and what was left out in a line."""
    while sum(map(column_width, columns)) + 2 * (len(columns) - 1) > 80:
        columns = columns[:-1]
    table = align(columns, left=[columns[0][0]])
    return f"{table}\n{wrap(f'and {rest} more, {note}.')}" if rest else table


def _value(value: float, unit: str) -> str:
    if unit in ("-", "token", "request"):
        return f"{value:.4g}"
    return format_si(value, unit)


def _range(low: float, high: float, unit: str) -> str:
    """Return both ends, the unit once where the prefix is the same."""
    first, last = (_value(end, unit).split(" ") for end in (low, high))
    if first[1:] == last[1:] or low == 0:
        first = first[:1]
    return f"{''.join(first)}-{''.join(last)}"


def _per_cent(share: float) -> str:
    return f"{100 * np.clip(share, 0.0, 1.0):.0f} %"


def _interval(row: dict[Any, Any], name: str) -> str:
    """Return the ends in per cent; what is beyond 0 or 1 is the estimate's alone."""
    low, high = (100 * np.clip(row[f"{name}_{end}"], 0.0, 1.0) for end in ("low", "high"))
    return f"{low:.0f}-{high:.0f}"
