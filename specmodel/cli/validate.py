"""The command validate: errors on timings of kernels, and on measurements of whole engines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from specmodel.base.errors import InputError
from specmodel.base.text import align
from specmodel.cli.settings import SETTINGS

if TYPE_CHECKING:
    import pandas as pd

_TITLES = {"percentile_90_error": "90 %", "mean_error": "mean", "median_error": "median"}


@click.command(context_settings=SETTINGS)
@click.argument("profile", required=False)
@click.argument("measurements", required=False)
@click.option("--serving", metavar="FILE", help="Judge whole engines: a table of measured ones.")
@click.option("--ttft", is_flag=True, help="Judge times to the first token, with --serving.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with --serving.")
@click.option("--stack", metavar="NAME", help="Whose kernels.  [default: the table's]")
@click.option("--max-error", type=float, help="Status 1 if a component's mean error is above.")
@click.option("--figure", metavar="FILE", help="Predicted against measured: PNG, PDF or SVG.")
@click.option("--with-fallbacks", is_flag=True, help="Judge fallback kernels too.")
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
    from specmodel.machines.hardware import load_hardware
    from specmodel.measure.measurements import read_measurements
    from specmodel.show.plots.figures import save_figure

    if max_error is not None and not 0 <= max_error < math.inf:
        raise InputError("max_error", max_error, "a number of at least 0")
    if serving is not None:
        given = {"profile": profile, "stack": stack, "with_fallbacks": with_fallbacks or None}
        _refuse(given, "none with --serving")
        _judge_engines(serving, max_error, figure, ttft=ttft, as_json=as_json)
        return
    _refuse({"json": as_json or None, "ttft": ttft or None}, "--serving FILE with it")
    if profile is None or measurements is None:
        missing = "PROFILE" if profile is None else "MEASUREMENTS"
        raise click.UsageError(f"Missing argument '{missing}', or --serving FILE.")
    hardware = load_hardware(profile, "profile")
    table = read_measurements(measurements)
    judged = predict_measured(table, hardware, stack, with_fallbacks=with_fallbacks)
    errors = error_table(judged)
    if figure is not None:
        save_figure("predicted_against_measured", judged, figure)
    click.echo(f"{hardware.name}\n\n{_error_text(errors)}")
    _check_error(errors[errors["rows"] == ALL_ROWS]["mean_error"].max(), max_error)


def _refuse(given: Mapping[str, object], expected: str) -> None:
    """Refuse the first option that was given where it says nothing."""
    for name, value in given.items():
        if value is not None:
            raise InputError(name, value, expected)


def _judge_engines(
    path: str, max_error: float | None, figure: str | None, *, ttft: bool, as_json: bool
) -> None:
    """Print the errors on a table of measured engines."""
    from specmodel.cli.serving import serving_page
    from specmodel.show.plots.figures import save_figure

    page, document, judged = serving_page(path, ttft=ttft)
    if figure is not None:
        times = judged[judged["quantity"] != "speedup"]
        drawn = times.rename(columns={"measured": "latency", "model": "component"})
        save_figure("predicted_against_measured", drawn, figure)
    click.echo(document if as_json else page)
    _check_error(float(judged["error"].abs().mean()), max_error)


def _check_error(error: float, most: float | None) -> None:
    if most is not None and error > most:
        click.echo(f"specmodel: mean error {error:.3f} is above {most:g}", err=True)
        raise click.exceptions.Exit(1)


def _error_text(errors: pd.DataFrame) -> str:
    """Return errors by component and tokens as an aligned table."""
    columns = []
    for name, values in errors.items():
        form = "{:.1%}" if name == "bias" or name in _TITLES else "{}"
        columns.append((_TITLES.get(str(name), str(name)), [form.format(v) for v in values]))
    return align(columns, left=["component", "dtype", "rows"])
