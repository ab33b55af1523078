"""The command validate: the errors of a hardware profile on a table of timings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from specmodel.base.errors import InputError
from specmodel.base.text import align
from specmodel.cli.settings import SETTINGS

if TYPE_CHECKING:
    import pandas as pd

_TITLES = {"percentile_90_error": "90 %", "mean_error": "mean", "median_error": "median"}


@click.command(context_settings=SETTINGS)
@click.argument("profile")
@click.argument("measurements")
@click.option("--stack", metavar="NAME", help="Whose kernels.  [default: the table's]")
@click.option("--max-error", type=float, help="Status 1 if a component's mean error is above.")
@click.option("--figure", metavar="FILE", help="Predicted against measured: PNG, PDF or SVG.")
@click.option("--with-fallbacks", is_flag=True, help="Judge fallback kernels too.")
def validate(
    profile: str,
    measurements: str,
    stack: str | None,
    max_error: float | None,
    figure: str | None,
    *,
    with_fallbacks: bool,
) -> None:
    """Judge a hardware profile by a table of timings.

    Rows whose role is "judge" are judged; where a component has none, those fitted.
    """
    from specmodel.calibrate.measurements import read_measurements
    from specmodel.calibrate.validation import ALL_ROWS, error_table, predict_measured
    from specmodel.plots.figures import save_figure
    from specmodel.records.hardware import load_hardware

    if max_error is not None and not 0 <= max_error < math.inf:
        raise InputError("max_error", max_error, "a number of at least 0")
    hardware = load_hardware(profile, "profile")
    table = read_measurements(measurements)
    judged = predict_measured(table, hardware, stack, with_fallbacks=with_fallbacks)
    errors = error_table(judged)
    if figure is not None:
        save_figure("predicted_against_measured", judged, figure)
    click.echo(f"{hardware.name}\n\n{_error_text(errors)}")
    worst = errors[errors["rows"] == ALL_ROWS]["mean_error"].max()
    if max_error is not None and worst > max_error:
        click.echo(f"specmodel: mean error {worst:.3f} is above {max_error:g}", err=True)
        raise click.exceptions.Exit(1)


def _error_text(errors: pd.DataFrame) -> str:
    """Return errors by component and tokens as an aligned table."""
    columns = []
    for name, values in errors.items():
        form = "{:.1%}" if name == "bias" or name in _TITLES else "{}"
        columns.append((_TITLES.get(str(name), str(name)), [form.format(v) for v in values]))
    return align(columns, left=["component", "dtype", "rows"])
