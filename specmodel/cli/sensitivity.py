"""``specmodel sensitivity``: what speedup and target efficiency at one point depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_named_range
from specmodel.base.text import Columns, align, table_width, wrap
from specmodel.cli import settings
from specmodel.show import report
from specmodel.show.report import records

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.answers.sensitivity.inputs import OperatingPoint
    from specmodel.answers.sensitivity.uncertainty import Range
    from specmodel.cost.deployment import Deployment

_POINT = ("batch_size", "draft_length", "context_length")

MOST_ROWS = 15
"""Rows of a table for people [-]."""

_VISIBLE = 0.005
"""Smallest effect that two decimals show [-]."""
_WIDE = 0.3
"""Width of an interval of a share from which the share is called not settled [-]."""

_SOURCES = {
    "given": "given ones are uniform",
    "published": "routing_correlation and popularity_exponent are uniform between what published"
    " models allow",
    "calibration": "the calibration's are the central 80 % of errors on shapes not fitted,"
    " lognormal, and of overheads of the engine, normal",
}
_ERRORS = {
    ".error": "a factor on kernels of a kind in both passes",
    ".verify_error": "one on the verify pass over that on the plain pass",
    ".draft_error": "one on draft passes",
    "deployment.error": "one on all that GPUs do in any pass",
    "engine.error": "one on the whole step",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity:
    """Three analyses of one operating point, and what they rest on.

    `outcome` is what is predicted there, by name; `swings` and `indices` are the tables of
    `tornado` and `sobol`.
    """

    deployment: Deployment
    point: OperatingPoint
    outcome: dict[str, float]
    ranges: dict[str, Range]
    elasticities: pd.DataFrame
    swings: pd.DataFrame
    indices: pd.DataFrame
    samples: int
    assumptions: dict[str, Any]
    warnings: tuple[str, ...]


@click.command(context_settings=settings.SETTINGS)
@settings.where_options(required=True)
@click.option("--batch-size", type=int, required=True, help="Sequences decoded together.")
@click.option(
    "--draft-length", type=int, required=True, help="Tokens drafted per sequence and step."
)
@settings.acceptance_options()
@click.option(
    "--context-length", type=int, help="KV entries per sequence before the step.  [default: 1024]"
)
@settings.detail_options()
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="NAME=LOW:HIGH",
    help="What is known of an input; uniform. Once for each.",
)
@click.option(
    "--samples",
    type=int,
    default=1024,
    show_default=True,
    help="Of the variance analysis, a power of two.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@settings.form_options()
def sensitivity(*, as_json: bool, as_csv: bool, **options: Any) -> None:
    """Tell what the speedup depends on most.

    Elasticities: per cent of outcome per per cent of an input. One at a time: the outcome at both
    ends of each range. Shares of the variance: Sobol' indices, all inputs varying at once. Ranges
    of kernels and engine come from their calibration, that of the routing correlation from
    published models unless it is given; --range adds others.

    \b
    Examples:
      specmodel sensitivity --target qwen3-30b-a3b --drafter eagle \\
          --hardware h200_sxm --batch-size 8 --draft-length 3 \\
          --acceptance-rate 0.7 --range acceptance_rate=0.6:0.8
      specmodel sensitivity --target mixtral-8x7b --drafter ngram \\
          --hardware l40s --tensor-parallel 4 --batch-size 1 \\
          --draft-length 3 --acceptance-rate 0.5 --proposal-rate 0.4 \\
          --range proposal_rate=0.2:0.6 --json
    """
    settings.check_forms(as_json, as_csv)
    found = sensitivity_from(options)
    if as_json:
        click.echo(to_json(found))
    elif as_csv:
        click.echo(to_csv(found))
        settings.echo_warnings(found.warnings)
    else:
        click.echo(to_text(found))


def sensitivity_from(options: dict[str, Any]) -> Sensitivity:
    """Return the analyses that the options of the command line ask for."""
    import numpy as np

    from specmodel.answers.sensitivity import analyses
    from specmodel.answers.sensitivity.evaluation import evaluate
    from specmodel.answers.sensitivity.inputs import OperatingPoint
    from specmodel.answers.sensitivity.uncertainty import uncertain_ranges
    from specmodel.base.units import check
    from specmodel.cli.options import acceptance_from, deployment_from
    from specmodel.cost.memory import MemoryUse
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH

    seed = int(check("seed", options["seed"], minimum=0, whole=True))
    given = _given_ranges(options["ranges"])
    deployment, assumed = deployment_from(options)
    given_point = {name: options[name] for name in _POINT}
    if given_point["context_length"] is None:
        given_point["context_length"] = assumed["context_length"] = DEFAULT_CONTEXT_LENGTH
    acceptance = acceptance_from(options)
    if acceptance.source:
        assumed["acceptance"] = acceptance.source
    point = OperatingPoint(**given_point, acceptance=acceptance)
    is_routing_known = "routing_correlation" not in assumed
    ranges = uncertain_ranges(deployment, point, given, routing_is_known=is_routing_known)
    swings = analyses.tornado(deployment, point, ranges)
    outputs = analyses.varying_outputs(swings)
    if not outputs:
        raise InputError("range", list(ranges), "a range that moves speedup or target efficiency")
    indices = analyses.sobol(
        deployment,
        point,
        ranges,
        samples=options["samples"],
        generator=np.random.default_rng(seed),
        outputs=outputs,
    )
    memory = MemoryUse(deployment, point.context_length, point.draft_length + 1)
    outcome = evaluate(deployment, point, {})
    return Sensitivity(
        deployment=deployment,
        point=point,
        outcome={name: value.item() for name, value in outcome.items()},
        ranges=ranges,
        elasticities=analyses.elasticities(deployment, point),
        swings=swings,
        indices=indices,
        samples=options["samples"],
        assumptions=assumed,
        warnings=(
            *memory.warnings(np.asarray(point.batch_size)),
            *deployment.warnings(np.asarray(point.batch_size), np.asarray(point.draft_length)),
        ),
    )


def _given_ranges(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    given: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, low, high = parse_named_range("range", text)
        if name in given:
            raise InputError(f"range {name}", text, "one range of each input")
        given[name] = (low, high)
    return given


def to_text(found: Sensitivity) -> str:
    """Return the answer for people, at most 80 columns wide."""
    point = found.point
    place = (
        f"batch size {point.batch_size}, draft length {point.draft_length},"
        f" context {point.context_length}"
    )
    words = [place, _verdict(found), *report.behind(found.deployment)]
    sections = [
        "\n".join([report.heading(found.deployment), *map(wrap, words)]),
        *map(report.warning_text, found.warnings),
        _elasticity_table(found.elasticities),
        _tornado_table(found.swings),
        *(_sobol_table(found, output) for output in found.outcome),
        _assumptions(found),
    ]
    return "\n\n".join(sections)


def _verdict(found: Sensitivity) -> str:
    """Return in three sentences the outcome, what moves it most, and what makes it uncertain."""
    speedup, efficiency = found.outcome.values()
    told = f"Speedup {speedup:.2f}, target efficiency {efficiency:.2f}."
    for row in records(found.elasticities):
        if row["input"] != "draft_length" and "error" not in row["input"]:
            verb, by = "raises" if row["speedup"] >= 0 else "lowers", abs(row["speedup"])
            told += f" A 1 % higher {row['input']} {verb} the speedup by {by:.2g} %."
            break
    swing = records(found.swings)[0]
    moved = f"{swing['speedup_at_low']:.2f} to {swing['speedup_at_high']:.2f}"
    told += f" Of what is uncertain, {swing['input']} moves it most, from {moved}"
    decided = records(found.indices[found.indices["output"] == "speedup"])
    if decided:
        first = max(decided, key=lambda row: row["first_order"])
        told += " and" if first["input"] == swing["input"] else f"; {first['input']}"
        told += f" decides {_per_cent(first['first_order'])} of the variance"
    return f"{told}."


def _elasticity_table(table: pd.DataFrame) -> str:
    """Return by how many per cent the outcome rises per per cent of an input."""
    shown, rest = table[:MOST_ROWS], table[MOST_ROWS:]
    columns: Columns = [
        ("elasticity to", shown["input"].tolist()),
        ("value", list(map(_value, shown["value"], shown["unit"]))),
        ("speedup", list(map("{:+.3f}".format, shown["speedup"]))),
        ("target\neff.", list(map("{:+.3f}".format, shown["target_efficiency"]))),
    ]
    most = rest["speedup"].abs().max()
    return _with_rest(columns, len(rest), f"at most {most:.1g} on the speedup")


def _tornado_table(table: pd.DataFrame) -> str:
    """Return the outcome at both ends of each range."""
    titles = {"speedup": "speedup", "target_efficiency": "target\neff."}
    rows = records(table)
    swings = [max(abs(r[f"{o}_at_high"] - r[f"{o}_at_low"]) for o in titles) for r in rows]
    count = _rows_shown(swings)
    columns: Columns = [
        ("one at a time", [row["input"] for row in rows[:count]]),
        ("range", [_range(row["low"], row["high"], row["unit"]) for row in rows[:count]]),
    ]
    for name, title in titles.items():
        ends = [(row[f"{name}_at_low"], row[f"{name}_at_high"]) for row in rows[:count]]
        columns.append((title, [f"{low:.2f}>{high:.2f}" for low, high in ends]))
    note = f"which move neither by more than {max(swings[count:], default=0.0):.1g}"
    return _with_rest(columns, len(rows) - count, note)


def _sobol_table(found: Sensitivity, output: str) -> str:
    """Return the shares of the variance of an output."""
    rows = records(found.indices[found.indices["output"] == output])
    words = output.replace("_", " ")
    if not rows:
        return wrap(f"No range moves the {words}.")
    totals = [row["total"] for row in rows]
    count = _rows_shown(totals)
    columns: Columns = [
        (f"share of the variance\nof {words}", [row["input"] for row in rows[:count]]),
        ("by\nitself", [_per_cent(row["first_order"]) for row in rows[:count]]),
        ("95 %", [_interval(row, "first_order") for row in rows[:count]]),
        ("in\nall", list(map(_per_cent, totals[:count]))),
        ("95 % ", [_interval(row, "total") for row in rows[:count]]),
    ]
    most = max(totals[count:], default=0.0)
    table = _with_rest(columns, len(rows) - count, f"each at most {100 * most:.1g} % in all")
    if any(row["first_order_high"] - row["first_order_low"] > _WIDE for row in rows):
        table += f"\nThese shares are not settled: more than {found.samples} samples."
    return table


def _assumptions(found: Sensitivity) -> str:
    """Return where ranges come from, what was assumed, and what names of errors mean."""
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
    words = [ranges, f"Errors: {', '.join(errors)}."]
    return "\n".join([*map(wrap, words), report.assumed_text(found.assumptions)])


def to_json(found: Sensitivity) -> str:
    """Return everything for a program; numbers in full, in SI units."""
    document = {
        "deployment": report.deployment_fields(found.deployment),
        "point": {name: getattr(found.point, name) for name in _POINT},
        **found.outcome,
        "elasticities": records(found.elasticities),
        "tornado": records(found.swings),
        "sobol": records(found.indices),
        "laws": {name: span.law for name, span in found.ranges.items()},
        "samples": found.samples,
        "assumptions": found.assumptions,
        "warnings": list(found.warnings),
    }
    return report.json_text(document)


def to_csv(found: Sensitivity) -> str:
    """Return one tidy table: analysis, input, output, quantity, value, unit."""
    import pandas as pd

    ends = [(f"{name}_{end}", name, end) for name in found.outcome for end in ("at_low", "at_high")]
    tables: dict[str, tuple[pd.DataFrame, list[tuple[str, str | None, str]]]] = {
        "elasticity": (found.elasticities, [(name, name, "elasticity") for name in found.outcome]),
        "tornado": (found.swings, [("low", "", "low"), ("high", "", "high"), *ends]),
        "sobol": (found.indices, [(name, None, name) for name in found.indices.columns[2:]]),
    }
    rows = [
        {
            "analysis": analysis,
            "input": row["input"],
            "output": row["output"] if output is None else output,
            "quantity": name,
            "value": row[column],
            "unit": row["unit"] if column in ("low", "high") else "-",
        }
        for analysis, (table, cells) in tables.items()
        for row in records(table)
        for column, output, name in cells
    ]
    return pd.DataFrame(rows).to_csv(index=False).rstrip("\n")


def _rows_shown(effects: list[float]) -> int:
    """Return how many rows to show: up to the last that rounding leaves visible, and one."""
    seen = [i + 1 for i, effect in enumerate(effects[:MOST_ROWS]) if effect >= _VISIBLE]
    return max([1, *seen])


def _with_rest(columns: Columns, rest: int, note: str) -> str:
    """Return a table of at most 80 columns, and what was left out in a line."""
    while table_width(columns) > 80:
        columns = columns[:-1]
    table = align(columns, left=[columns[0][0]])
    return f"{table}\n{wrap(f'and {rest} more, {note}.')}" if rest else table


def _value(value: float, unit: str) -> str:
    from specmodel.base.units import format_si

    return f"{value:.4g}" if unit in ("-", "token", "request") else format_si(value, unit)


def _range(low: float, high: float, unit: str) -> str:
    """Return both ends, the unit once where the prefix is the same."""
    first, last = (_value(end, unit).split(" ") for end in (low, high))
    if first[1:] == last[1:] or low == 0:
        first = first[:1]
    return f"{''.join(first)}-{''.join(last)}"


def _per_cent(share: float, unit: str = " %") -> str:
    """Return a share in per cent; only an estimate lies beyond 0 or 1."""
    return f"{100 * min(max(share, 0.0), 1.0):.0f}{unit}"


def _interval(row: dict[str, Any], name: str) -> str:
    return "-".join(_per_cent(row[f"{name}_{end}"], "") for end in ("low", "high"))
