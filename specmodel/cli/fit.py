"""The command fit: kernels of a stack, or overheads of an engine, fitted to measurements."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.base.text import align, wrap
from specmodel.cli.report import seconds
from specmodel.cli.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from specmodel.calibrate.fitting import EngineFitting, KernelFitting


class FitGroup(click.Group):
    """A group whose command may be left out: ``fit FILE`` means ``fit kernels FILE``."""

    default = "kernels"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take what names no command as the arguments of the first."""
        if args and args[0] not in self.commands:
            args = [self.default, *args]
        return super().resolve_command(ctx, args)


@click.group(cls=FitGroup, context_settings=SETTINGS | {"ignore_unknown_options": True})
def fit() -> None:
    """Fit kernels (the default) or an engine to measurements.

    \b
    Examples:
      specmodel fit h200.csv --output h200.toml
      specmodel fit engine served.csv --name mine --output mine.toml \\
          --vary pass_time --vary draft_pass_time --vary reject_time
    """


@fit.command(context_settings=SETTINGS)
@click.argument("measurements")
@click.option("--output", required=True, metavar="FILE", help="Hardware profile to write.")
@click.option("--hardware", metavar="NAME|PATH", help="Profile to start from.  [default: measured]")
@click.option(
    "--measured-on", metavar="NAME", help="Says that a table of another device will do: its chip."
)
@click.option("--source", metavar="TEXT", help="What was measured.  [default: the file's name]")
def kernels(
    measurements: str,
    output: str,
    hardware: str | None,
    measured_on: str | None,
    source: str | None,
) -> None:
    """Fit kernels of a stack to a table of timings, and add them to a profile.

    Rows whose role is "fit" are fitted, those whose role is "judge" tell the error.
    """
    from specmodel.base.files import write_text
    from specmodel.base.records import spellings
    from specmodel.calibrate.fitting.kernels import fit_kernels, fitted_stack
    from specmodel.calibrate.measurements import read_measurements
    from specmodel.records.hardware import load_hardware
    from specmodel.records.profiles import hardware_text, with_stack

    _check_apart(output, measurements)
    table = read_measurements(measurements)
    device, stack, version = (str(table[n].iloc[0]) for n in ("hardware", "stack", "version"))
    name = hardware or device
    if device not in spellings(Path(name).stem) and measured_on != device:
        expected = f"{device}, as measured, or --measured-on {device} with it"
        raise InputError("hardware", name, expected)
    text = hardware_text(name)
    fits = fit_kernels(table, load_hardware(name))
    source = source or f"{Path(measurements).name}, measured on {device}"
    record = fitted_stack(fits, version=version, source=source, date=date.today().isoformat())
    write_text(output, with_stack(text, stack, record))
    click.echo(f"{fit_text(fits)}\n\nWritten: {output}, [fitted.{stack}]")


@fit.command(context_settings=SETTINGS)
@click.argument("measurements")
@click.option("--output", required=True, metavar="FILE", help="Engine profile to write.")
@click.option("--name", required=True, help="Name of the engine, for people.")
@click.option("--vary", multiple=True, required=True, help="Overhead to fit, a name; repeat.")
@click.option("--engine", metavar="NAME|PATH", help="Held overheads.  [default: ideal]")
@click.option("--stack", help="Stack whose kernels it runs.")
@click.option("--source", metavar="TEXT", help="What was measured.  [default: the file's name]")
@click.option("--version", default="", metavar="TEXT", help="Version of the engine measured.")
@click.option("--leave-out", multiple=True, metavar="COLUMN", help="Leave its values out in turn.")
def engine(measurements: str, output: str, **options: Any) -> None:
    """Fit overheads of an engine to a table of measured speedups or step times.

    Columns: target, drafter, hardware, tensor_parallel, batch_size, draft_length,
    context_length, quantity (speedup, relative_step_time, forward_time, step_time or
    target_efficiency) and value; step_efficiency in rows of speedup; where they are not
    as usual, expert_parallel and data_parallel.

    Overheads: kernel_time, pass_time, draft_kernel_time, draft_pass_time, reject_time,
    reject_time_per_request, reject_time_per_token.
    """
    from specmodel.base.files import write_text
    from specmodel.base.records import toml_text
    from specmodel.calibrate.fitting.engine import fit_engine, read_serving
    from specmodel.records.engine import load_engine

    _check_apart(output, measurements)
    table = read_serving(measurements)
    changes = {"name": options["name"], "source": options["source"] or Path(measurements).name}
    if options["stack"]:
        changes["stack"] = options["stack"]
    base = load_engine(options["engine"] or "ideal").with_changes("engine", changes)
    today = date.today().isoformat()
    how = {name: options[name] for name in ("leave_out", "version")}
    fitting = fit_engine(table, base, options["vary"], date=today, **how)
    write_text(output, toml_text(fitting.profile) + "\n")
    told = [_engine_text(fitting), _row_text(fitting, table), f"Written: {output}"]
    click.echo("\n\n".join(told))


def _check_apart(output: str, measurements: str) -> None:
    if Path(output).resolve() == Path(measurements).resolve():
        raise InputError("output", output, "another file than the measurements")


def fit_text(fits: Mapping[tuple[str, str], KernelFitting]) -> str:
    """Return fitted parameters, errors and warnings, a block for each kind and dtype."""
    blocks = []
    for (kind, dtype), fitting in fits.items():
        fit = fitting.fit
        title = (
            f"{kind} {dtype}: {fit.num_points} points fitted, {fit.num_judged} judged: error "
            f"{fit.mean_error:.1%} mean over shapes, {fit.median_error:.1%} median, "
            f"{fit.percentile_90_error:.1%} 90th percentile"
        )
        values = fitting.result.parameters | {"sharpness": fit.sharpness}
        lines = [wrap(title), *(f"  {name} = {value:.4g}" for name, value in values.items())]
        lines += [wrap(f"  Warning: {warning}.") for warning in fitting.result.warnings]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _engine_text(fitting: EngineFitting) -> str:
    """Return fitted overheads, errors and warnings."""
    fit = fitting.profile.fit
    found = [f"  {name} = {value:.4g} s" for name, value in fitting.result.parameters.items()]
    lines = [f"{fitting.profile.name}: {fitting.result.num_points} points", *found]
    lines.append(f"  mean error {fitting.result.mean_error:.1%}")
    for column, error in (fit.left_out_error if fit else {}).items():
        lines.append(f"  mean error with each {column} left out in turn {error:.1%}")
    lines += [wrap(f"  Warning: {warning}.") for warning in fitting.result.warnings]
    return "\n".join(lines)


def _row_text(fitting: EngineFitting, table: pd.DataFrame) -> str:
    """Return each row measured and predicted, as an aligned table."""
    quantity, measured = table["quantity"].tolist(), table["value"].astype(float)
    return align(
        [
            ("target", [Path(str(name)).name[:17] for name in table["target"]]),
            ("quantity", quantity),
            ("batch\nsize", [_ends(str(sizes).split()) for sizes in table["batch_size"]]),
            ("draft\nlength", [f"{length:g}" for length in table["draft_length"].astype(float)]),
            ("measured", list(map(_value, quantity, measured))),
            ("predicted", list(map(_value, quantity, fitting.predicted))),
            ("error", [f"{error:+.1%}" for error in fitting.result.residuals]),
        ],
        left=["target", "quantity"],
    )


def _value(quantity: str, value: float) -> str:
    return seconds(value) if quantity in ("forward_time", "step_time") else f"{value:.3f}"


def _ends(sizes: list[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"
