"""Commands that calibrate: dataset, calibrate, fit, validate. Nothing heavy is imported before."""

import math
import sys
from datetime import date
from pathlib import Path
from typing import Any

import click

from specmodel.base.errors import InputError
from specmodel.cli.settings import SETTINGS


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


@click.command(context_settings=SETTINGS)
@click.argument("hardware")
@click.argument("stack")
@click.argument("version")
@click.option("--output", required=True, metavar="FILE", help="CSV to write.")
def dataset(hardware: str, stack: str, version: str, output: str) -> None:
    """Write published kernel timings of a stack as a table of measurements.

    Needs the extra [datasets]; "specmodel list tables" names what there is.

    \b
    Example:
      specmodel dataset h200_sxm trtllm 1.3.0rc20 --output h200.csv
    """
    from specmodel.base.files import write_text
    from specmodel.calibrate.datasets import source_name
    from specmodel.calibrate.measurements import ROLES
    from specmodel.calibrate.published import published_measurements

    table = published_measurements(hardware, stack, version)
    head = f"# {source_name()}, {hardware}, {stack} {version}\n"
    write_text(output, head + table.to_csv(index=False))
    roles = table["role"].value_counts()
    counts = ", ".join(f"{roles.get(role, 0)} {role}" for role in ROLES)
    click.echo(f"Written: {output}\n{len(table)} points: {counts}")


@click.command(context_settings=SETTINGS)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), required=True, help="What to time.")
@click.option("--output", required=True, metavar="FILE.toml", help="Hardware profile to write.")
@click.option("--quick", "length", flag_value="quick", default="quick", help="Minutes (default).")
@click.option("--full", "length", flag_value="full", help="More repeats and points.")
@click.option("--tiny", "length", flag_value="tiny", hidden=True)
@click.option(
    "--hardware",
    metavar="NAME|PATH",
    help="Profile to start from.  [default: the device's, if any]",
)
def calibrate(device: str, output: str, length: str, hardware: str | None) -> None:
    """Time kernels of this machine with torch and fit a profile to them.

    Every timing is appended to FILE.csv at once, what it was taken on to FILE.json: a run that
    was interrupted goes on where it stopped when it is started again. Needs the extra [calibrate].

    \b
    Examples:
      specmodel calibrate --device cuda --output ./mine.toml
      specmodel predict --hardware ./mine.toml --stack torch ...
    """
    from specmodel import __version__
    from specmodel.base.files import write_text
    from specmodel.calibrate.measure.calibration import calibrate_rows, check_output
    from specmodel.calibrate.measure.device import find_device
    from specmodel.calibrate.measure.session import run_suite
    from specmodel.cli import calibration_report as report
    from specmodel.records.hardware import load_hardware

    rows = check_output(output)
    if hardware is not None:
        load_hardware(hardware)
    info = find_device(device)
    session = {"specmodel": __version__, "commit": _commit()}
    timings = run_suite(rows, info, length, session)  # type: ignore[arg-type] # a choice
    start = next(timings)
    done = start.done
    click.echo(f"{info.name}, torch {info.torch}", err=True)
    try:
        with click.progressbar(length=start.total, label="Timing", file=sys.stderr) as bar:
            bar.update(start.done)
            for progress in timings:
                done = progress.done
                bar.update(1)
    except KeyboardInterrupt:
        kept = f"{done} of {start.total} timings are in {rows}"
        click.echo(f"\nInterrupted: {kept}; the same command goes on from there.", err=True)
        raise
    made = calibrate_rows(rows, info, date=_today(), hardware=hardware)
    write_text(output, made.text)
    click.echo(report.calibration_text(made, start.total - start.done, start.total))
    click.echo(f"Written: {output}, [fitted.torch]; rows: {rows}")
    click.echo(f"To predict: --hardware {output} --stack torch\n")
    click.echo(report.fit_text(made.fits))
    click.echo(f"\n{report.left_out_text(made.fits)}")


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
    from specmodel.calibrate.fitting import fit_kernels, fitted_stack
    from specmodel.calibrate.measurements import read_measurements
    from specmodel.cli import calibration_report as report
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
    record = fitted_stack(fits, version=version, source=source, date=_today())
    write_text(output, with_stack(text, stack, record))
    click.echo(report.fit_text(fits))
    click.echo(f"\nWritten: {output}, [fitted.{stack}]")


@fit.command(context_settings=SETTINGS)
@click.argument("measurements")
@click.option("--output", required=True, metavar="FILE", help="Engine profile to write.")
@click.option("--name", required=True, help="Name of the engine, for people.")
@click.option("--vary", multiple=True, required=True, help="Overhead to fit; repeat.")
@click.option("--engine", metavar="NAME|PATH", help="Held overheads.  [default: ideal]")
@click.option("--stack", help="Stack whose kernels it runs.")
@click.option("--source", metavar="TEXT", help="What was measured.  [default: the file's name]")
@click.option("--leave-out", multiple=True, metavar="COLUMN", help="Leave its values out in turn.")
def engine(measurements: str, output: str, **options: Any) -> None:
    """Fit overheads of an engine to a table of measured speedups or step times.

    Columns: target, drafter, hardware, tensor_parallel, batch_size, draft_length,
    context_length, quantity (speedup, relative_step_time, forward_time, step_time or
    target_efficiency) and value; step_efficiency in rows of speedup.
    """
    from specmodel.base.files import write_text
    from specmodel.base.records import toml_text
    from specmodel.calibrate.fitting import fit_engine, read_serving
    from specmodel.cli import calibration_report as report
    from specmodel.records.engine import load_engine

    _check_apart(output, measurements)
    table = read_serving(measurements)
    changes = {"name": options["name"], "source": options["source"] or Path(measurements).name}
    if options["stack"]:
        changes["stack"] = options["stack"]
    base = load_engine(options["engine"] or "ideal").with_changes("engine", changes)
    fitting = fit_engine(
        table, base, options["vary"], date=_today(), leave_out=options["leave_out"]
    )
    write_text(output, toml_text(fitting.profile) + "\n")
    click.echo(report.engine_text(fitting))
    click.echo(f"\nWritten: {output}")


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
    from specmodel.cli import calibration_report as report
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
    click.echo(f"{hardware.name}\n\n{report.error_text(errors)}")
    worst = errors[errors["rows"] == ALL_ROWS]["mean_error"].max()
    if max_error is not None and worst > max_error:
        click.echo(f"specmodel: mean error {worst:.3f} is above {max_error:g}", err=True)
        raise click.exceptions.Exit(1)


def _check_apart(output: str, measurements: str) -> None:
    if Path(output).resolve() == Path(measurements).resolve():
        raise InputError("output", output, "another file than the measurements")


def _commit() -> str | None:
    """Return the commit of the checkout that this file is in; None if it is installed."""
    import subprocess

    root = Path(__file__).parents[2]
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    if not (root / "pyproject.toml").exists():
        return None
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _today() -> str:
    return date.today().isoformat()
