"""``specmodel calibrate``: time kernels of this machine and fit a profile to the times."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from specmodel import __version__
from specmodel.calibrate.measure.kernels import operators, suite
from specmodel.calibrate.measure.kernels.operators import Timed, timed_on
from specmodel.calibrate.measure.kernels.suite import Device, Length, shapes_of
from specmodel.cli.output import told_progress
from specmodel.cli.settings import command, options_of, own
from specmodel.core import machines
from specmodel.core.base.files import refusing
from specmodel.core.base.naming import own_folder
from specmodel.core.base.text import wrap
from specmodel.show.columns import duration
from specmodel.show.facts import Fact, lines
from specmodel.show.glossary import PAGES

if TYPE_CHECKING:
    from specmodel.calibrate.fit.calibration import Calibration
    from specmodel.calibrate.measure.kernels.device import DeviceInfo
    from specmodel.calibrate.measure.kernels.rows import RowFile


@command()
@click.argument("target", required=False, metavar="[MODEL]")
@options_of("calibrate")
@own("dtype", [*suite.DTYPES], "Activation dtype; use fp32 for a CPU without bf16.", default="bf16")
@own("weight_dtype", "NAME", "Weight dtype to time (repeatable).  [default: all]", multiple=True)
@own("stack", ["torch", *operators.STACKS], "Kernel library; torch fills in missing kernels.",
     default="torch")  # fmt: skip
@own("again", [*suite.COMPONENTS], "Kind of kernel to time again (repeatable).", multiple=True,
     metavar="KIND")  # fmt: skip
@click.option("--quick", "length", flag_value="quick", default="quick",
              help="Time few points, which takes minutes (the default).")  # fmt: skip
@click.option("--full", "length", flag_value="full", help="Time more points, with more repeats.")
@click.option("--tiny", "length", flag_value="tiny", hidden=True)
def calibrate(device: Device | None, output: str | None, **options: Any) -> None:
    """Time kernels of this machine with torch and fit a hardware profile to the timings.

    By default, the device is the GPU, or the CPU if there is no GPU. The default profile is named
    mine. With MODEL, only layers of this model are timed, instead of layers of many models.

    With --output FILE.toml, each timing is appended to FILE.csv. FILE.json describes the machine.
    If a run is interrupted, the same command continues the run. If a timing fails, only this timing
    is left out, and FILE.csv says why. --again KIND repeats all timings of one kind of kernel, and
    moves their old rows to FILE.dropped.csv. The command needs pip install '.[calibrate]'.

    \b
    Examples:
      specmodel calibrate
      specmodel predict qwen3-30b-a3b mine
      specmodel calibrate qwen3.6-35b-a3b --weight-dtype fp8_block \\
          --output ./qwen.toml
    """
    from specmodel.calibrate.fit.calibration import calibrate_rows, check_output
    from specmodel.calibrate.measure.kernels.device import find_device, found_kind
    from specmodel.calibrate.measure.kernels.rows import RowFile
    from specmodel.calibrate.measure.kernels.session import run_suite
    from specmodel.core.base.files import write_text
    from specmodel.show.calibrated import kernels

    hardware, again, is_dry = options["hardware"], options["again"], options["dry_run"]
    device = device or found_kind()
    if output is None:
        output = str(own_folder() / f"{machines.hardware.OWN}.toml")
        with refusing(output, "output", "a folder that can be written; or another `output`"):
            if not is_dry:
                own_folder().mkdir(parents=True, exist_ok=True)
    is_free = is_dry and Path(output).name  # "." has none
    rows = Path(output).with_suffix(".csv") if is_free else check_output(output)
    if hardware is not None:
        machines.load_hardware(hardware)
    is_there = not is_dry or rows.exists()
    info = find_device(device, options["dtype"]) if is_there else None
    timed, length = _timed(device, info, options), options["length"]
    info = info and replace(info, timed=timed)
    if is_dry or info is None:
        file = RowFile(rows, info.identity, {}, again) if info else None
        if file:
            file.read()
        click.echo(f"{_left_text(file, device, length, timed)}\nInto: {rows}")
        return
    timings = run_suite(rows, info, length, {"specmodel": __version__}, again)
    start = progress = next(timings)
    left = f"{start.total - start.done:,} of {start.total:,} timings left"
    click.echo(f"{info.name}, torch {info.torch}: {left}", err=True)
    try:
        with told_progress(start.total, "timings", "Timing", start.done) as tell:
            for progress in timings:  # noqa: B007 - said if it is interrupted
                tell(1)
    except KeyboardInterrupt:
        kept = f"{progress.done} of {start.total} timings are in {rows}"
        same = "the same command without --again" if again else "the same command"
        click.echo(f"\nInterrupted: {kept}; {same} continues this run.", err=True)
        raise
    made = calibrate_rows(rows, info, date=date.today().isoformat(), hardware=hardware)
    write_text(output, made.text)
    click.echo(calibration_text(made, start.total - start.done, start.total))
    click.echo(f"Written: {output}, [fitted.{timed.stack.fitted_as}]; rows: {rows}")
    dtypes = " --weight-dtype fp32 --kv-dtype fp32" if info.dtype == "fp32" else ""
    click.echo(_untimed(timed))
    name = machines.hardware.OWN if Path(output).parent == own_folder() else output
    click.echo(f"To predict: specmodel predict MODEL {name}{dtypes}\n")
    click.echo(kernels(made.fits))


def _timed(device: Device, info: DeviceInfo | None, options: dict[str, Any]) -> Timed:
    """Return the kernels to time: their stack and dtypes, and the shapes of a model."""
    from specmodel.core.cost.where import looked_up
    from specmodel.core.models.architecture import load_architecture

    wanted = options["weight_dtype"]
    capability = info.compute_capability if info else None
    stack = operators.find_stack(options["stack"], imports=not options["dry_run"])
    is_all = bool(wanted) or options["length"] != "tiny" or bool(stack.version)
    timed = timed_on(device, capability, wanted, stack) if is_all else operators.NO_MORE
    if (target := options["target"]) is None:
        return timed
    return replace(timed, shapes=shapes_of(load_architecture(looked_up("target", target, []))))


def _small(of: Counter[str]) -> str:
    quantised = ", ".join(f"{dtype} {count:,}" for dtype, count in of.items() if dtype)
    return f"  of them {quantised}" if quantised else ""


def _untimed(timed: Timed) -> str:
    """Return the kernels of an engine that are timed, and what is not timed with the reason."""
    alike = dict[str, list[str]]()
    for what, reason in timed.reasons.items():
        alike.setdefault(reason, []).append(what)
    told = [f"{', '.join(names)} ({reason})" for reason, names in alike.items()]
    head = list[str]()
    if engine := timed.stack.version and timed.stack.name:
        own = sorted(place for place, row in timed.rows.items() if row.get("stack") == engine)
        kinds = ", ".join(f"{kind} in {dtype or 'bf16'}" for kind, dtype in own) or "nothing here"
        called = f"{timed.stack.version}, called as {operators.STACKS[engine]['read']}"
        head = [f"Kernels of {engine} {called}: {kinds}; others of torch."]
    head += [f"Not timed: {'; '.join(told)}."] if told else []
    return "\n".join(map(wrap, head))


def _left_text(kept: RowFile | None, device: Device, length: Length, timed: Timed) -> str:
    """Return the number of timings left by kind and dtype of weights, and the time they need."""
    from specmodel.calibrate.measure.kernels.session import left_to_time

    left, total = left_to_time(device, length, kept, timed)
    seconds = sum(suite.about_seconds(device, point) for point, _ in left)
    head = f"{len(left):,} of {total:,} timings left, of {len({p.name for p, _ in left})} points, "
    counts = dict[str, Counter[str]]()
    for point, _ in left:
        counts.setdefault(point.component, Counter())[point.weight_dtype] += 1
    told = [f"  {kind:16}  {of.total():7,}{_small(of)}" for kind, of in counts.items()]
    head += f"in about {duration(seconds)}:"
    return "\n".join(filter(None, [wrap(head), *told, _untimed(timed)]))


def calibration_text(made: Calibration, timed: int, total: int) -> str:
    """Return the number of timings of a calibration, their noise, and its warnings."""
    facts = {"timings": Fact(total), "now": Fact(timed)}
    if made.noise["split_half"] == made.noise["split_half"]:  # repeats were timed: not NaN
        facts |= {name: Fact(value) for name, value in made.noise.items()}
    facts["launch_times"] = Fact(dict(made.launch_times), "s")
    if link := made.link:
        facts |= {
            "num_gpus": Fact(link.num_gpus),
            "latency": Fact(link.collective_latency + 2 * (link.num_gpus - 1) * link.hop_latency),
            "bytes_per_s": Fact(link.efficiency * link.peak_bytes_per_s / 1e9),
        }
    facts["num_skipped"] = Fact(len(made.skipped))
    facts["skipped"] = Fact(", ".join([*made.skipped][:3]))
    facts["reasons"] = Fact(", ".join(sorted({*made.skipped.values()})))
    anew = (f"{kind} is {why}; --again {kind} times it anew" for kind, why in made.doubtful.items())
    warnings = [f"Warning: {text}." for text in (*made.flags, *anew)]
    return "\n".join(map(wrap, [*lines(PAGES["calibrated"]["lines"], facts), *warnings]))
