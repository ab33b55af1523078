"""``specmodel plot``: draw a table of another command as a figure."""

import sys
from contextlib import suppress
from inspect import signature
from typing import TYPE_CHECKING, Any

import click

from specmodel.cli.settings import command, options_of
from specmodel.core.base.errors import InputError, given, nearest, refuse_given
from specmodel.core.base.ranges import parse_numbers, parse_values

if TYPE_CHECKING:
    import pandas as pd

LEAST_WIDTH, MOST_WIDTH = 3.0, 20.0
"""Range of widths at which a figure is readable, in inches."""


@command()
@click.argument("kind")
@click.argument("table", required=False)
@options_of("plot")
def plot(kind: str, table: str | None, output: str, where: tuple[str, ...], **options: Any) -> None:
    """Draw a table as a figure for a paper.

    TABLE is a CSV file that another command printed with --csv, or - for a pipe. Each KIND of
    figure draws the table of these commands:

    \b
      speedup, target-efficiency    predict, sweep, compare; schedule (speedup)
      tpot, throughput, step-time   predict, sweep, compare (if in the table)
      pareto                        compare, predict
      active-experts                no TABLE: published measurements are drawn
      best-draft-length             predict --view lengths
      break-even                    break-even
      roofline, components          predict --components
      waterfalls                    predict --view terms
      tornado, sobol                sensitivity
      policies                      simulate
      load, capacity, drain         load
      predicted-against-measured    a CSV of component, latency and predicted
      closed-loop, timeline         tables from calibration/ or from Python

    \b
    Examples:
      specmodel predict --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --batch-size 1:256:x2 --draft-length 1,3,5 \\
          --acceptance-rate 0.7 --interval --csv \\
          | specmodel plot speedup - --output ./speedup.pdf
      specmodel plot active-experts --output unions.svg
    """
    from specmodel.core.base.tables import read_table
    from specmodel.show.plots import KINDS
    from specmodel.show.plots.figures import check_figure, kind_of, save_figure
    from specmodel.show.plots.frames import TEXT

    name = kind.replace("-", "_")
    drawn = kind_of(name)
    if drawn is None:
        known = nearest(kind.replace("_", "-"), [known.replace("_", "-") for known in KINDS])
        raise InputError("kind", kind, f"one of {known}")
    choices = given(options, ("outcome", "marks", "measured"))
    taken = signature(drawn.draw).parameters
    refuse_given(options, choices.keys() - taken.keys(), f"This has no effect in a plot of {kind}.")
    if "outcome" in choices:
        choices["outcome"] = choices["outcome"].replace("-", "_")
    inches = _width(options["width"] or "column")
    if "measured" in choices:
        choices["measured"] = read_table(choices["measured"], TEXT, "measured")
    check_figure("output", output)
    rows = _chosen(_table(name, table), where)
    has_title = bool(options["has_title"])
    save_figure(name, rows, output, "output", width=inches, has_title=has_title, **choices)
    click.echo(f"Wrote {output}.")


def _width(text: str) -> float:
    """Return the width of a figure in inches: of a column or a page of a paper, or as typed."""
    from specmodel.show.plots.figures import WIDTHS

    with suppress(ValueError):
        inches = WIDTHS.get(text) or float(text)
        if LEAST_WIDTH <= inches <= MOST_WIDTH:
            return inches
    expected = f"column, page, or a number of inches from {LEAST_WIDTH:g} to {MOST_WIDTH:g}"
    raise InputError("width", text, expected)


def _table(kind: str, path: str | None) -> "pd.DataFrame":
    """Return the table of a file or pipe, or the measured unions that ship."""
    from specmodel.core.base.tables import parse_csv, read_table
    from specmodel.show.plots.frames import ARGUMENT, TEXT

    if path is None:
        if kind != "active_experts":
            raise InputError(ARGUMENT, None, "a CSV file, or - for a pipe")
        from specmodel.plan.curves import measured_unions

        return measured_unions()
    if path == "-":
        return parse_csv(sys.stdin.buffer, TEXT, path, ARGUMENT)
    return read_table(path, TEXT, ARGUMENT)


def _chosen(table: "pd.DataFrame", where: tuple[str, ...]) -> "pd.DataFrame":
    """Return the rows that match every COLUMN=VALUES."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    for text in where:
        name, has_values, values = text.partition("=")
        if not has_values or name not in table:
            expected = f"COLUMN=VALUES with a column such as {nearest(name, map(str, table))}"
            raise InputError("where", text, expected)
        column = table[name]
        if is_numeric_dtype(column) and not is_bool_dtype(column):
            is_whole = (column.dropna() % 1 == 0).all()  # blank cells make whole numbers floats
            parse = parse_values if is_whole else parse_numbers
            is_chosen = column.isin(parse("where", values))
        else:
            texts = [values, *(value.strip() for value in values.split(","))]
            is_chosen = column.astype(str).isin(texts)
        if not is_chosen.any():
            some = ", ".join(map(str, column.unique()[:5]))
            raise InputError("where", text, f"values of this column, such as {some}")
        table = table[is_chosen]
    return table
