"""``specmodel fit``: kernels of a stack, or overheads of an engine, fitted to measurements."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmodel import machines, measure
from specmodel.base.errors import InputError
from specmodel.base.text import wrap
from specmodel.cli.fit_engine import engine
from specmodel.cli.settings import SETTINGS, own, refuse_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specmodel.fit import KernelFitting


class FitGroup(click.Group):
    """A group with a default command: ``fit FILE`` means ``fit kernels FILE``."""

    default = "kernels"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Put the default command in front of words that name none."""
        if args and args[0] not in self.commands:
            args = [self.default, *args]
        return super().resolve_command(ctx, args)


@click.group(cls=FitGroup, context_settings=SETTINGS | {"ignore_unknown_options": True})
def fit() -> None:
    """Fit kernels (the default) or an engine to measurements.

    \b
    Examples:
      specmodel fit h200.csv --output h200.toml
      specmodel fit engine plain.json eagle3.json --target gpt-oss-120b \\
          --drafter eagle3 --hardware h200_sxm --output mine.toml
    """


fit.add_command(engine)


@fit.command(context_settings=SETTINGS)
@click.argument("measurements")
@own("output", "FILE", "Hardware profile to write.", required=True)
@own("hardware", "NAME|PATH", "Profile to start from.  [default: measured]")
@own("measured_on", "NAME", "Says that a table of another device will do: its chip.")
@own("source", "TEXT", "What was measured.  [default: the file's name]")
def kernels(measurements: str, output: str, **options: str | None) -> None:
    """Fit kernels of a stack to a table of timings, and add them to a profile.

    Rows whose role is "fit" are fitted, those whose role is "judge" tell the error.
    """
    from specmodel.base.files import write_text
    from specmodel.base.records import spellings
    from specmodel.fit.kernels import fit_kernels, fitted_stack
    from specmodel.machines.profiles import hardware_text, with_stack

    refuse_inputs("output", output, {"the measurements": measurements})
    table = measure.read_measurements(measurements)
    device, stack, version = (str(table[n].iloc[0]) for n in ("hardware", "stack", "version"))
    name = options["hardware"] or device
    if device not in spellings(Path(name).stem) and options["measured_on"] != device:
        expected = f"{device}, as measured, or --measured-on {device} with it"
        raise InputError("hardware", name, expected)
    text = hardware_text(name)
    fits = fit_kernels(table, machines.load_hardware(name))
    source = options["source"] or f"{Path(measurements).name}, measured on {device}"
    record = fitted_stack(fits, version=version, source=source, date=date.today().isoformat())
    write_text(output, with_stack(text, stack, record))
    click.echo(f"{fit_text(fits)}\n\nWritten: {output}, [fitted.{stack}]")


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
