"""``specmodel sweep``: predict every combination of inputs, and print or write the results."""

from __future__ import annotations

import logging
import time
from typing import Any

import click
from click.core import ParameterSource

from specmodel.cli import settings
from specmodel.cli.output import echo_warnings, told_progress
from specmodel.cli.positionals import two_words
from specmodel.cli.predict import BATCH_SIZES
from specmodel.cli.settings import OPTIONS, option
from specmodel.core.base.errors import InputError
from specmodel.plan import sweeps

MOST_WITHOUT_YES = 1_000_000_000
"""Largest number of points that are computed without --yes [-]."""

_DEFAULTS = {"engine": "vllm", "drafter": "the model's usual drafter"}
_DEFAULTS |= {"draft_length": "the best length in each row", "batch_size": BATCH_SIZES}
_SINGLE = ("measured_draft_length", "max_draft_length", "task")
"""Options with one value for the whole sweep."""


def _axis(name: str) -> settings.Add:
    """Add a shared option that accepts a list or range in this command."""
    default = f"  [default: {_DEFAULTS[name]}]" if name in _DEFAULTS else ""
    return option(name, default, type=str, metavar="VALUE" if name in _SINGLE else "VALUES")


@settings.command()
@settings.options(two_words(), *map(_axis, OPTIONS), settings.ignore_option("target", "drafter"))
@settings.options_of("sweep")
def sweep(*, output: str | None, overwrite: bool, yes: bool, **options: Any) -> None:
    """Predict every combination of the lists and ranges that you give.

    If you give a single model, its usual drafter and its published acceptance are the defaults.
    Without --draft-length, each row uses the best draft length and shows it in column draft_length.

    From row to row, target, drafter, hardware and their settings vary slowest, in the order in
    which you type them, followed by --set. Prompt and output lengths, context length, batch size,
    draft length and verified tokens vary faster, in this order. Acceptance varies fastest. Numbers
    are float32.

    Column draft_time includes the CPU time that a step waits for. The wait in draft_time is shorter
    if the target's forward pass is longer, because the CPU works during the forward pass.

    \b
    Examples:
      specmodel sweep --target mixtral-8x7b,qwen3-30b-a3b --drafter ngram,eagle \\
          --hardware h100_sxm,h200_sxm --tensor-parallel 2 --batch-size 1:256 \\
          --draft-length 1:8 --acceptance-rate 0.3:0.9:0.1 \\
          --columns speedup,target_efficiency --output ./landscape.parquet
      specmodel sweep qwen3-30b-a3b h200 --set target.experts_per_token=2,4,8,16
      specmodel sweep qwen3-30b-a3b h200 --drafter eagle3 \\
          --batch-size 1,8,64 --draft-length 3 --acceptance-rate 0.7 \\
          --set hardware.memory.peak_bytes_per_s=4.8e12,8e12
    """
    from specmodel.cli.options import axes_from, words

    where = {"workers": options.pop("workers"), "client": options.pop("scheduler")}
    how: dict[str, Any] = {n: bool(options.pop(n)) for n in ("interval", "skip_impossible")}
    how["gpu_hour_price"] = options.pop("gpu_hour_price")
    columns = options.pop("columns")
    how["columns"] = columns and words("columns", columns)
    plan = sweeps.plan_sweep(axes_from(_in_order(options)), **how)
    if plan.num_points > MOST_WITHOUT_YES and not yes:
        expected = f"at most {MOST_WITHOUT_YES:,} points, or --yes to compute more"
        raise InputError("num_points", plan.num_points, expected)
    echo_warnings(plan.skipped, "skipped")
    logging.disable()  # Dask logs errors that are printed here in one line
    try:
        if output is None:
            for text in sweeps.csv_chunks(plan, **where):
                click.echo(text, nl=False)
        else:
            _write(plan, output, overwrite=overwrite, **where)
    finally:
        logging.disable(logging.NOTSET)
    for name, default in plan.defaults.items():
        echo_warnings([default], name)
    if misfits := plan.num_points - sum(part.fitting() for part in plan.parts()):
        which = "which" if "fits" in plan.columns else "which, with fits in --columns"
        remedy = "" if misfits < plan.num_points else "; use more GPUs with --tensor-parallel"
        total = f"{misfits:,} of {plan.num_points:,} points do not fit in memory"
        echo_warnings([f"{total}: column fits says {which}{remedy}"])


def _in_order(options: dict[str, Any]) -> dict[str, Any]:
    """Return options in the order in which the user typed them, words first."""
    del options["taken"]
    if count := options.pop("num_gpus"):
        options = options | {"hardware": f"{count}x{options['hardware']}"}
    typed = click.get_current_context().get_parameter_source
    first = (n for n in ("target", "hardware") if typed(n) != ParameterSource.COMMANDLINE)
    return {**{name: options[name] for name in first}, **options}


def _write(plan: sweeps.Plan, output: str, **how: Any) -> None:
    """Write a sweep with a progress bar; print the number of points, and of points kept."""
    start = time.perf_counter()
    try:
        with told_progress(plan.num_points, "points", "Sweeping") as tell:
            kept = sweeps.sweep_to_file(plan, output, progress=tell, **how)
    except KeyboardInterrupt:
        click.echo("specmodel: interrupted: the same command continues this sweep", err=True)
        raise click.exceptions.Exit(130) from None
    of_them = f" ({kept:,} of them kept from an earlier run)" if kept else ""
    rate = float(f"{(plan.num_points - kept) / (time.perf_counter() - start):.2g}")
    click.echo(f"{plan.num_points:,} points{of_them}, {rate:,.0f} points a second: {output}")
