"""``specmodel validate``: errors on timings of kernels, and on measurements of whole engines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from specmodel import machines, measure
from specmodel.base.errors import InputError
from specmodel.cli import settings
from specmodel.cli.settings import own, refuse_given

if TYPE_CHECKING:
    import pandas as pd

_TITLES = {"percentile_90_error": "90 %", "mean_error": "mean", "median_error": "median"}
_SHARES = {*_TITLES, "bias"}


@settings.command()
@click.argument("profile", required=False)
@click.argument("measurements", required=False)
@own("serving", "FILE", "Judge whole engines: a table of measured ones.")
@own("ttft", bool, "Judge times to the first token, with --serving.")
@own("json", bool, "Print JSON, with --serving.", to="as_json")
@own("stack", "NAME", "Whose kernels.  [default: the table's]")
@own("max_error", float, "Status 1 if a component's mean error is above.")
@own("figure", "FILE", "Predicted against measured: PNG, PDF or SVG.")
@own("with_fallbacks", bool, "Judge fallback kernels too.")
def validate(  # noqa: PLR0913 - the options of a command
    profile: str | None,
    measurements: str | None,
    stack: str | None,
    max_error: float | None,
    figure: str | None,
    *,
    with_fallbacks: bool,
    serving: str | None,
    ttft: bool,
    as_json: bool,
) -> None:
    """Judge a hardware profile by a table of timings, or whole engines.

    Of timings, rows whose role is "judge" are judged; where a component has
    none, those fitted.

    With --serving, no profile and no timings are named. Its table has a row a
    run: model, dtype, system (GPU), backend (engine), gpus, isl, osl,
    concurrency and measured_tpot_ms of plain decoding; or, with and without
    speculation, target, weight_dtype, gpu, engine, num_gpus, tensor_parallel,
    drafter, draft_length, verify_tokens, batch_size_or_concurrency,
    tokens_per_step and speedup or spec_step_ms. What is not taken is counted.
    With --ttft, rows of plain decoding with measured_ttft_ms, at most 4
    requests at once and prompts of at least 4000 tokens are judged by that.
    """
    from specmodel.fit.validation import ALL_ROWS, error_table, predict_measured
    from specmodel.show.plots.figures import save_figure

    if max_error is not None and not 0 <= max_error < math.inf:
        raise InputError("max_error", max_error, "a number of at least 0")
    if serving is not None:
        others = {"profile": profile, "stack": stack, "with_fallbacks": with_fallbacks or None}
        refuse_given(others, others, "none with --serving")
        _judge_engines(serving, max_error, figure, ttft=ttft, as_json=as_json)
        return
    others = {"json": as_json or None, "ttft": ttft or None}
    refuse_given(others, others, "--serving FILE with it")
    if profile is None or measurements is None:
        missing = "PROFILE" if profile is None else "MEASUREMENTS"
        raise click.UsageError(f"Missing argument '{missing}', or --serving FILE.")
    hardware = machines.load_hardware(profile, "profile")
    table = measure.read_measurements(measurements)
    judged = predict_measured(table, hardware, stack, with_fallbacks=with_fallbacks)
    errors = error_table(judged)
    if figure is not None:
        save_figure("predicted_against_measured", judged, figure)
    click.echo(f"{hardware.name}\n\n{_error_text(errors)}")
    _check_error(errors[errors["rows"] == ALL_ROWS]["mean_error"].max(), max_error)


def _judge_engines(
    path: str, max_error: float | None, figure: str | None, *, ttft: bool, as_json: bool
) -> None:
    """Print how wrong predictions are on a table of measured engines."""
    from specmodel.cli.serving import judged_engines
    from specmodel.show import forms
    from specmodel.show.plots.figures import save_figure

    judged, answer = judged_engines(path, ttft=ttft)
    if figure is not None:
        times = judged[judged["quantity"] != "speedup"]
        drawn = times.rename(columns={"measured": "latency", "model": "component"})
        save_figure("predicted_against_measured", drawn, figure)
    click.echo(forms.as_json(answer) if as_json else forms.as_text(answer))
    _check_error(float(judged["error"].abs().mean()), max_error)


def _check_error(error: float, most: float | None) -> None:
    if most is not None and error > most:
        click.echo(f"specmodel: mean error {error:.3f} is above {most:g}", err=True)
        raise click.exceptions.Exit(1)


def _error_text(errors: pd.DataFrame) -> str:
    """Return errors by component and tokens as a table."""
    from specmodel.show.forms import records, table

    columns = {
        _TITLES.get(n, n): f"{{{n}:.1%}}" if n in _SHARES else f"{{{n}}}" for n in map(str, errors)
    }
    return table(records(errors), columns, left=["component", "dtype", "rows"])
