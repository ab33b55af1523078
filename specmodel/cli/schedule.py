"""The command that schedules draft lengths by batch size."""

from typing import Any

import click

from specmodel.base.errors import InputError
from specmodel.cli.settings import (
    SETTINGS,
    acceptance_options,
    detail_options,
    echo_warnings,
    form_options,
    where_options,
)


@click.command(context_settings=SETTINGS)
@click.option(  # before the others, so that an error about a profile names --overheads
    "--engine",
    "serving_engine",
    required=True,
    type=click.Choice(["vllm", "tensorrt-llm", "sglang"]),
    help="Engine that is to take the schedule.",
)
@where_options(required=True, overheads=True)
@acceptance_options(one_length=False)
@click.option(
    "--context-length",
    metavar="VALUES",
    help="KV entries per sequence before the step; several count alike.  [default: 1024]",
)
@click.option("--max-draft-length", type=int, help="Longest draft considered.  [default: 10]")
@click.option(
    "--max-batch-size",
    type=int,
    help="Largest batch size of the schedule.  [default: what fits in memory, at most 512]",
)
@click.option(
    "--tolerance",
    type=float,
    help="Share of the best speedup that may be given up for fewer changes.  [default: 0.01]",
)
@detail_options()
@click.option("--fragment-only", is_flag=True, help="Print the engine's configuration only.")
@form_options(", a row a batch size")
def schedule(*, as_json: bool, as_csv: bool, fragment_only: bool, **options: Any) -> None:
    """Schedule draft lengths for an engine.

    At each batch size the draft length is one whose speedup is within the tolerance of the best
    there, 0 where none pays; the schedule changes it as seldom as that allows.

    \b
    Examples:
      specmodel schedule --engine vllm --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --acceptance-rate 0.7
      specmodel schedule --engine tensorrt-llm --target gpt-oss-120b \\
          --drafter eagle3 --hardware h200_sxm --context-length 1024,16384 \\
          --acceptance-by-position 0.8,0.7,0.6,0.5 --fragment-only
    """
    if as_json + as_csv + fragment_only > 1:
        name = "csv" if as_csv else "fragment_only"
        raise InputError(name, True, "one of --json, --csv and --fragment-only")
    from specmodel.cli import schedule_report as report
    from specmodel.cli.schedule_options import plan_from

    plan = plan_from(options)

    if as_json:
        click.echo(report.to_json(plan))
        return
    if not (as_csv or fragment_only):
        click.echo(report.to_text(plan))
        return
    click.echo(report.to_csv(plan) if as_csv else plan.fragment)
    echo_warnings(report.warnings(plan))
