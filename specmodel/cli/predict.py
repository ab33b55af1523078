"""``specmodel predict``: its options, and a prediction in words, as tables, as JSON and CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from specmodel.base.ranges import ranges_text, runs
from specmodel.base.text import Columns, align
from specmodel.cli import settings
from specmodel.prediction.table import SECONDS, Row, cell, table, varies
from specmodel.show import report

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


@click.command(context_settings=settings.SETTINGS)
@settings.where_options(required=True)
@settings.option("batch_size", required=True)
@settings.option("draft_length", required=True)
@settings.acceptance_options()
@settings.load_options()
@settings.option("verify_tokens")
@settings.option("tree_width")
@settings.option(
    "max_draft_length", help="Longest draft considered for the best one.  [default: 10]"
)
@settings.detail_options()
@click.option("--interval", is_flag=True, help="Add central 80 % intervals.")
@click.option(
    "--components", is_flag=True, help="Add the breakdown of each pass; CSV has it alone."
)
@settings.form_options()
def predict(*, as_json: bool, as_csv: bool, components: bool, **options: Any) -> None:
    """Predict target efficiency and speedup of speculative decoding.

    Give exactly one form of acceptance. All but the rate and the rates by position hold at the
    draft length they were measured at.

    \b
    Examples:
      specmodel predict --target qwen2-57b-a14b --drafter qwen2-0.5b \\
          --hardware a800_sxm_80gb --tensor-parallel 2 --batch-size 1:64:x2 \\
          --draft-length 4 --acceptance-rate 0.9 --context-length 512
      specmodel predict --target ./config.json --drafter ngram \\
          --proposal-rate 0.4 --hardware l40s --batch-size 1 --draft-length 1:5 \\
          --tokens-per-step 1.4 --measured-draft-length 3 --json
    """
    settings.check_forms(as_json, as_csv)
    from specmodel.cli.options import predict_from

    prediction = predict_from(options)
    if as_json:
        click.echo(to_json(prediction, with_components=components))
    elif as_csv:
        click.echo(to_csv(prediction, only_components=components))
        settings.echo_warnings(prediction.warnings)
    else:
        parts = [
            table(prediction, settings.screen_width()),
            component_tables(prediction) if components else "",
        ]
        click.echo(report.page(prediction, verdict(prediction), *parts))


def verdict(prediction: Prediction) -> list[str]:
    """Return in a few sentences whether speculation pays, where, how much, and why not more."""
    drafted = [row for row in prediction.rows() if row["draft_length"]]
    if not drafted:
        return ["No draft, no speculation: speedup 1 by definition."]
    rows = [row for row in drafted if row["batch_size"] <= row["max_batch_size"]]
    opening = "Speculation"
    if not rows:
        rows, opening = drafted, "Nothing fits in memory. If it did, speculation"
    elif len(rows) < len(drafted):
        these = f"{len(rows)} of {len(drafted)} points fit" if len(rows) > 1 else "One point fits"
        opening = f"{these} in memory, where speculation"
    best = max(rows, key=lambda row: row["speedup"])
    answer = f"{opening} {_gain(best, rows, report.verbs(prediction.deployment))}."
    return [answer, report.why(best, rows, prediction), *report.behind(prediction.deployment)]


def _gain(best: Row, rows: list[Row], verbs: tuple[str, str]) -> str:
    """Say whether speculation pays, and where most and least."""
    pays, denial = verbs
    worst = min(rows, key=lambda row: row["speedup"])
    if round(best["speedup"], 2) <= 1:
        return f"{denial}: {_at(best, rows)}"
    if round(worst["speedup"], 2) > 1:
        least = f"; least {_at(worst, rows)}" if len(rows) > 1 else ""
        return f"{pays}: {_at(best, rows)}{least}"
    return f"{pays} at {_paying(rows)}; best {_at(best, rows)}"


def _at(row: Row, rows: list[Row]) -> str:
    return f"{row['speedup']:.2f}x at {report.place(row, rows)}"


def _paying(rows: list[Row]) -> str:
    """Return batch sizes that pay, runs of neighbours as ranges; or a count if more varies."""
    paying = [row["batch_size"] for row in rows if round(row["speedup"], 2) > 1]
    if varies("draft_length", rows) or varies("context_length", rows):
        return f"{len(paying)} of {len(rows)} points"
    sizes, good = sorted({row["batch_size"] for row in rows}), set(paying)
    found = runs(size in good for size in sizes)
    spans = ranges_text((sizes[first], sizes[last]) for first, last, pays in found if pays)
    return f"batch size{'s' if len(good) > 1 else ''} {spans}"


def component_tables(prediction: Prediction) -> str:
    """Return the time of each component of each pass, a table a point."""
    rows, blocks = prediction.rows(), []
    title = "batch size {batch_size}, context {context_length}"
    if "draft_length" in rows[0]:
        title = "batch size {batch_size}, draft length {draft_length}, context {context_length}"
    for row, passes in zip(rows, _components(prediction), strict=True):
        names = list(dict.fromkeys(name for times in passes.values() for name in times))
        columns: Columns = [("component", [*names, "total"])]
        for kind, times in passes.items():
            total = sum(times.values())
            spent = [*map(times.get, names), total]
            shares = [None if time is None else 100 * time / total for time in spent]
            columns.append(
                (
                    kind.replace("first draft pass", "first\ndraft"),
                    [cell([time], SECONDS) for time in spent],
                )
            )
            columns.append(("%", [cell([share], "{:.0f}") for share in shares]))
        blocks.append(f"{title.format_map(row)}\n{align(columns, left=['component'])}")
    return "\n\n".join(blocks)


def _components(prediction: Prediction) -> list[dict[str, dict[str, float]]]:
    """Return for each point the seconds of each component, and of the host, by pass."""
    from specmodel.answers import pass_components

    table = pass_components(prediction)
    points: list[dict[str, dict[str, float]]] = [{} for _ in range(prediction.batch_size.size)]
    each = len(table) // len(points)  # the same components at every point
    spent = table[["pass", "component", "time"]].itertuples(index=False, name=None)
    for i, (kind, component, seconds) in enumerate(spent):
        points[i // each].setdefault(kind, {})[component] = seconds
    return points


def to_json(prediction: Prediction, *, with_components: bool = False) -> str:
    """Return the prediction as JSON; what has no meaning is null, never NaN."""
    rows = prediction.rows()
    if with_components:
        for row, passes in zip(rows, _components(prediction), strict=True):
            row["components"] = passes
    fields = report.case_fields(prediction) | {"units": prediction.units(), "rows": rows}
    return report.json_text(fields)


def to_csv(prediction: Prediction, *, only_components: bool = False) -> str:
    """Return the points as CSV, or instead the components of their passes."""
    if not only_components:
        return report.csv_text(prediction.rows(), prediction.units())
    from specmodel.answers import pass_components

    text: str = pass_components(prediction).to_csv(index=False)
    return text.rstrip("\n")
