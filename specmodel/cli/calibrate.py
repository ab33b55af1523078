"""The command calibrate: time the kernels of this machine and fit a profile to them."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmodel.base.text import wrap
from specmodel.cli.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specmodel.calibrate.fitting import KernelFitting
    from specmodel.calibrate.measure.calibration import Calibration
    from specmodel.records.hardware import Link


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
    from specmodel.cli.fit import fit_text
    from specmodel.records.hardware import load_hardware

    rows = check_output(output)
    if hardware is not None:
        load_hardware(hardware)
    info = find_device(device)
    session = {"specmodel": __version__, "commit": _commit()}
    timings = run_suite(rows, info, length, session)  # type: ignore[arg-type] # a choice
    start = progress = next(timings)
    click.echo(f"{info.name}, torch {info.torch}", err=True)
    try:
        with click.progressbar(length=start.total, label="Timing", file=sys.stderr) as bar:
            bar.update(start.done)
            for progress in timings:  # noqa: B007 - how far it came is said if it is interrupted
                bar.update(1)
    except KeyboardInterrupt:
        kept = f"{progress.done} of {start.total} timings are in {rows}"
        click.echo(f"\nInterrupted: {kept}; the same command goes on from there.", err=True)
        raise
    made = calibrate_rows(rows, info, date=date.today().isoformat(), hardware=hardware)
    write_text(output, made.text)
    click.echo(calibration_text(made, start.total - start.done, start.total))
    click.echo(f"Written: {output}, [fitted.torch]; rows: {rows}")
    click.echo(f"To predict: --hardware {output} --stack torch\n")
    click.echo(f"{fit_text(made.fits)}\n\n{_left_out_text(made.fits)}")


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


def calibration_text(made: Calibration, timed: int, total: int) -> str:
    """Return what a calibration was made of, and what speaks against it, in lines for people."""
    noise = made.noise
    lines = [
        f"{total} timings, {timed} of them now. Repeats of a point differ by {noise.raw:.1%}, "
        f"their ratios to a reference timed right before and after by {noise.ratio:.1%}, medians "
        f"of odd and of even repeats by {noise.split_half:.1%}."
    ]
    launches = [f"{value * 1e6:.2g} us {how}" for how, value in made.launch_times.items()]
    if launches:
        lines.append(f"A kernel that does nothing takes {', '.join(launches)}.")
    if made.links:
        known, found = made.links
        text = f"All-reduce over {found.num_gpus} GPUs: {_link(found)}"
        lines.append(f"{text}; the profile has {_link(known)}." if known else f"{text}.")
    lines += [f"Warning: {flag}." for flag in made.flags]
    if made.skipped:
        reasons = ", ".join(sorted(set(made.skipped.values())))
        names = ", ".join(list(made.skipped)[:3])
        lines.append(f"Warning: {len(made.skipped)} points skipped ({reasons}), such as {names}.")
    return "\n".join(wrap(line) for line in lines)


def _link(link: Link) -> str:
    fixed = link.collective_latency + 2 * (link.num_gpus - 1) * link.hop_latency
    return f"{fixed * 1e6:.3g} us and {link.efficiency * link.peak_bytes_per_s / 1e9:.4g} GB/s"


def _left_out_text(fits: Mapping[tuple[str, str], KernelFitting]) -> str:
    """Return the errors on shapes left out of the fits, in one sentence."""
    told = [
        f"{kind} {fitting.fit.mean_error:.1%} (median {fitting.fit.median_error:.1%})"
        for (kind, _), fitting in fits.items()
        if fitting.fit.is_held_out
    ]
    return wrap(f"Mean error on shapes left out of the fit: {', '.join(told) or 'none was'}.")
