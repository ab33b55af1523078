"""The command that tells what an outcome depends on."""

from typing import Any

import click

from specmodel.cli.settings import (
    SETTINGS,
    acceptance_options,
    check_forms,
    detail_options,
    echo_warnings,
    form_options,
    where_options,
)


@click.command(context_settings=SETTINGS)
@where_options(required=True)
@click.option("--batch-size", type=int, required=True, help="Sequences decoded together.")
@click.option(
    "--draft-length", type=int, required=True, help="Tokens drafted per sequence and step."
)
@acceptance_options()
@click.option(
    "--context-length", type=int, help="KV entries per sequence before the step.  [default: 1024]"
)
@detail_options()
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
@form_options()
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
    check_forms(as_json, as_csv)
    from specmodel.cli import sensitivity_report as report
    from specmodel.cli.report import warning_text
    from specmodel.cli.sensitivity_options import sensitivity_from

    found = sensitivity_from(options)
    if as_json:
        click.echo(report.to_json(found))
        return
    if as_csv:
        click.echo(report.to_csv(found))
        echo_warnings(found.warnings)
        return
    sections = [
        f"{report.heading(found)}\n{report.verdict(found)}",
        *map(warning_text, found.warnings),
        report.elasticity_table(found),
        report.tornado_table(found),
        *report.sobol_tables(found),
        report.assumptions(found),
    ]
    click.echo("\n\n".join(sections))
