"""``specmodel decode``: plain decoding, as tables, as JSON and CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from specmodel.cli import settings
from specmodel.cli.predict import component_tables, to_csv, to_json
from specmodel.prediction.table import Row, seconds, table
from specmodel.show import report

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


@click.command(context_settings=settings.SETTINGS)
@settings.where_options(required=True, has_drafter=False)
@settings.option("batch_size", required=True)
@settings.load_options()
@settings.detail_options(has_drafter=False)
@click.option("--interval", is_flag=True, help="Add central 80 % intervals.")
@click.option(
    "--components", is_flag=True, help="Add the breakdown of each pass; CSV has it alone."
)
@settings.form_options()
def decode(*, as_json: bool, as_csv: bool, components: bool, **options: Any) -> None:
    """Predict decoding without speculation: TPOT, throughput, memory.

    With the lengths of prompts and outputs, each step carries its share of the prefill of other
    requests, and the time of a prompt's prefill is printed.

    \b
    Examples:
      specmodel decode --target deepseek-r1 --hardware b200 \\
          --tensor-parallel 8 --batch-size 4:256:x2
      specmodel decode --target llama-3.1-70b --hardware h100_sxm \\
          --tensor-parallel 8 --batch-size 64 --prompt-length 8192 \\
          --output-length 1024 --components
    """
    settings.check_forms(as_json, as_csv)
    from specmodel.cli.options import decode_from

    decoded = decode_from(options)
    if as_json:
        click.echo(to_json(decoded, with_components=components))
    elif as_csv:
        click.echo(to_csv(decoded, only_components=components))
        settings.echo_warnings(decoded.warnings)
    else:
        parts = [
            table(decoded, settings.screen_width()),
            component_tables(decoded) if components else "",
        ]
        click.echo(report.page(decoded, verdict(decoded), *parts))


def verdict(decoded: Prediction) -> list[str]:
    """Return in a few sentences what a token takes, at most how many, and what limits it."""
    rows = decoded.rows()
    fitting = [row for row in rows if row["batch_size"] <= row["max_batch_size"]]
    opening = "" if fitting else "Nothing fits in memory. If it did: "
    rows = fitting or rows
    most = max(rows, key=lambda row: row["throughput"])
    told = [_at(most, rows)]
    least = min(rows, key=lambda row: row["tpot"])
    if least is not most:
        told.insert(0, _at(least, rows))
    return [f"{opening}{'; '.join(told)}.", *report.behind(decoded.deployment)]


def _at(row: Row, rows: list[Row]) -> str:
    rate = f"{row['throughput']:.0f} tokens/s of all requests"
    place = f"{seconds(row['tpot'])} a token at {report.place(row, rows)}"
    return f"{place}, {rate}, limited by {row['limited_by']}"
