"""``specmodel fit``: kernels of a stack, or overheads of an engine, fitted to measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmodel import fit, machines, measure
from specmodel.base.errors import InputError, in_one_line
from specmodel.base.files import write_text
from specmodel.base.text import align, wrap
from specmodel.cli import settings
from specmodel.cli.helping import WholeList
from specmodel.cli.settings import own, refuse_given, refuse_inputs
from specmodel.cli.where import where_options
from specmodel.fit import measured
from specmodel.prediction.table import seconds
from specmodel.show import report
from specmodel.show.assumed import assumed_text, what_if_text

if TYPE_CHECKING:
    from specmodel.fit.measured.tables import Served

_UNTOLD = "what the files do not tell: a name or path"
_DRAFTING = ("draft_length", "tree_width", "verify_tokens")


class FitGroup(WholeList):
    """A group with a default command: ``fit FILE`` means ``fit kernels FILE``."""

    default = "kernels"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Put the default command in front of words that name none."""
        if args and args[0] not in self.commands:
            args = [self.default, *args]
        return super().resolve_command(ctx, args)


@click.group(
    "fit", cls=FitGroup, context_settings=settings.SETTINGS | {"ignore_unknown_options": True}
)
def fit_group() -> None:
    """Fit kernels (the default) or an engine to measurements.

    \b
    Examples:
      specmodel fit h200.csv --output h200.toml
      specmodel fit engine plain.json eagle3.json --target gpt-oss-120b \\
          --drafter eagle3 --hardware h200_sxm --output mine.toml
    """


@fit_group.command(context_settings=settings.SETTINGS)
@click.argument("measurements")
@own("output", "FILE", "Hardware profile to write.", required=True)
@own("hardware", "NAME|PATH", "Profile to start from.  [default: measured]")
@own("measured_on", "NAME", "Says that a table of another device will do: its chip.")
@own("source", "TEXT", "What was measured.  [default: the file's name]")
def kernels(measurements: str, output: str, **options: str | None) -> None:
    """Fit kernels of a stack to a table of timings, and add them to a profile.

    Rows whose role is "fit" are fitted, those whose role is "judge" tell the error.
    """
    from specmodel.base.naming import spellings
    from specmodel.machines.profiles import hardware_text, with_stack

    refuse_inputs("output", output, {"the measurements": measurements})
    table = measure.read_measurements(measurements)
    device, stack, version = (str(table[n].iloc[0]) for n in ("hardware", "stack", "version"))
    name = options["hardware"] or device
    if device not in spellings(Path(name).stem) and options["measured_on"] != device:
        expected = f"{device}, as measured, or --measured-on {device} with it"
        raise InputError("hardware", name, expected)
    text = hardware_text(name)
    fits = fit.fit_kernels(table, machines.load_hardware(name))
    source = options["source"] or f"{_named(measurements)}, measured on {device}"
    record = fit.fitted_stack(fits, version=version, source=source, date=date.today().isoformat())
    write_text(output, with_stack(text, stack, record))
    click.echo(f"{fit_text(fits)}\n\nWritten: {output}, [fitted.{stack}]")


def fit_text(fits: Mapping[tuple[str, str], fit.KernelFitting]) -> str:
    """Return fitted parameters, errors and warnings, a block for each kind and dtype."""
    blocks = []
    for (kind, dtype), fitting in fits.items():
        found = fitting.fit
        title = (
            f"{kind} {dtype}: {found.num_points} points fitted, {found.num_judged} judged: error "
            f"{found.mean_error:.1%} mean over shapes, {found.median_error:.1%} median, "
            f"{found.percentile_90_error:.1%} 90th percentile"
        )
        values = fitting.result.parameters | {"sharpness": found.sharpness}
        lines = [wrap(title), *(f"  {name} = {value:.4g}" for name, value in values.items())]
        lines += [wrap(f"  Warning: {warning}.") for warning in fitting.result.warnings]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


@fit_group.command(context_settings=settings.SETTINGS)
@click.argument("measurements", nargs=-1, required=True)
@own("output", "FILE", "Engine profile to write.", required=True)
@own("name", str, "Name of the engine, for people.  [default: the profile's]")
@where_options(required=False, engine="by the files, else vllm", has_words=False)
@own("draft_length", int, "Of runs whose files do not tell it.")
@settings.options("tree_width", "verify_tokens")
@own("context_length", int, "KV entries of a sequence.  [default: the files']")
@settings.detail_options()
@own("source", "TEXT", "What was measured.  [default: the files' names]")
@own("version", "TEXT", "Version of the engine measured.", default="", show_default=False)
@own("force", bool, "Take a fit that is like no known host's.", default=None)
@click.option("--vary", hidden=True, multiple=True)
def engine(measurements: tuple[str, ...], output: str, **options: Any) -> None:
    """Fit an engine to benchmarks of your own server: one plain and one speculative run do.

    Files are what `vllm bench serve --save-result` or SGLang's `bench_serving --output-file`
    writes, or CSV with any of tpot_ms, step_ms, tokens_per_s (also with base_ and spec_ in
    front) or speedup, and tokens_per_step, draft_length, topk, verify_tokens, concurrency,
    prompt_length, output_length. A shipped profile is moved as far as these runs tell; what
    they leave open stays as uncertain as it was, and `predict --interval` knows it. Files of one
    load tell each other's noise. A fit that is like no known host's, as to runs on other GPUs
    than named, is refused without --force.

    \b
    Example:
      specmodel fit engine plain.json eagle3.json --target gpt-oss-120b \\
          --drafter eagle3 --hardware h200_sxm --output mine.toml
    """
    for path in measurements:
        refuse_inputs("output", output, {"the measurements": path})
    if options["vary"]:
        elsewhere = "none: python calibration/overheads.py of a checkout fits overheads by name"
        raise InputError("vary", options["vary"][0], elsewhere)
    click.echo(f"{_from_runs(measurements, output, options)}\n\nWritten: {output}")


def _from_runs(paths: Sequence[str], output: str, options: dict[str, Any]) -> str:
    """Update a shipped profile by a user's runs, write it, and return what to print."""
    from specmodel.base.records import toml_text
    from specmodel.cli.options import deployment_from, settings_from
    from specmodel.cost.deploying import DEGREES, resolve

    _check_given(options)
    runs = measured.read_benchmarks(paths)
    if options["draft_length"] is not None:
        length, width, verified = (options[name] for name in _DRAFTING)
        typed = {"topk": width or 1, "verify_tokens": verified}
        runs = tuple(r.drafting(length, **typed) if r.draft_length is None else r for r in runs)
    if options["drafter"] is None and any(run.draft_length for run in runs):
        raise InputError("drafter", None, f"{_UNTOLD}, as some runs draft")
    if options["drafter"] and len(runs) > 1 and not any(run.draft_length for run in runs):
        expected = "a run that drafts: no file counts drafts; none, where all runs are plain"
        raise InputError("drafter", options["drafter"], expected)
    measured.check_model(runs, options["target"])
    measured.need_plain(runs)
    name, told = _start(runs, options)
    laid_out, assumed = deployment_from(options | {"engine": name})
    degrees = {degree: getattr(laid_out, degree) for degree in DEGREES}
    values = options | settings_from(options["changes"]) | degrees
    base = machines.load_engine(name)
    rows = measured.served_runs(runs, values | {"engine": name})
    versions = {f"{run.engine} {run.version}" for run in runs if run.version}
    version = options["version"] or (versions.pop() if len(versions) == 1 else "")
    how: dict[str, Any] = {"version": version, "force": bool(options["force"])}
    update = fit.update_engine(rows, base, date=date.today().isoformat(), **how)
    names = ", ".join(map(_named, paths))
    told_by = {
        "name": options["name"] or f"{base.name} (own runs)",
        "source": options["source"] or f"{names}, from the profile {base.name}",
    }
    if options["stack"]:
        told_by["stack"] = options["stack"]
    profile = update.profile.with_changes("engine", told_by)
    deployment, _ = resolve(values | {"engine": profile}, prefix="set ")
    write_text(output, toml_text(profile) + "\n")
    notes = [wrap(f"Note: {run.batch_note}.") for run in runs if run.batch_note]
    notes += [wrap(text) for text in _noise_texts(rows) + _unlike_texts(update)]
    opening = [report.heading(deployment), *what_if_text(assumed)]
    opening.append(f"Started from the profile {base.name}, {told}.")
    parts = [
        "\n".join(map(wrap, opening)),
        _runs_table(runs, update),
        "\n".join(notes),
        _moved_text(update),
        assumed_text({n: v for n, v in assumed.items() if n not in ("engine", "host_speed")}),
    ]
    return "\n\n".join(filter(None, parts))


def _check_given(options: dict[str, Any]) -> None:
    for name in ("target", "hardware"):
        if options[name] is None:
            raise InputError(name, None, _UNTOLD)
    refuse_given(options, ["host_speed"], "none: the runs tell it")


def _start(runs: Sequence[measured.Run], options: dict[str, Any]) -> tuple[str, str]:
    """Return the profile to start from, and why it was chosen."""
    from specmodel.cost.deploying import DEFAULT_ENGINE
    from specmodel.fit.measured.spellings import profile_of

    if options["engine"]:
        return options["engine"], "which --engine names"
    named = {(run.engine, options["version"] or run.version) for run in runs if run.engine}
    if not named:
        return DEFAULT_ENGINE, "the default, as neither --engine nor a file names one"
    found = {profile_of(*pair)[0] for pair in named}
    if len(found) > 1:
        raise InputError("engine", ", ".join(sorted(found)), "one, as these files are of several")
    made, version = next(iter(named))
    return found.pop(), f"as the files are of {' '.join(filter(None, [made, version]))}"


def _runs_table(runs: Sequence[measured.Run], update: fit.EngineUpdate) -> str:
    """Return each run measured and predicted, before and after."""
    names, quantities = [Path(run.source).name for run in runs], [run.quantity for run in runs]
    errors = update.predicted / update.measured - 1
    columns = [
        ("run", [name if len(name) <= 26 else f"...{name[-23:]}" for name in names]),
        ("batch\nsize", [f"{run.batch_size:.3g}" for run in runs]),
        ("draft\nlength", [str(run.draft_length) for run in runs]),
        ("tokens\na step", [f"{run.tokens_per_step:.3g}" for run in runs]),
        (
            "step\nmeasured" if {*quantities} == {"step_time"} else "\nmeasured",
            list(map(_value, quantities, update.measured)),
        ),
        ("predicted\nbefore", list(map(_value, quantities, update.before))),
        ("\nnow", list(map(_value, quantities, update.predicted))),
        ("\nerror", [f"{error:+.1%}" for error in errors]),
    ]
    return align(columns, left=["run"])


def _noise_texts(rows: Sequence[Served]) -> list[str]:
    """Return how well repeats tell the times of runs, if there are any."""
    known = sorted((row.noise, row.row) for row in rows if row.noise)
    if not known:
        return []
    (middle, _), (most, worst) = known[len(known) // 2], known[-1]
    return [
        f"Noise: by how far repeats differ, a run is known to {middle:.1%} (at worst {most:.1%},"
        f" {Path(worst).name}), a speedup of two to {2**0.5 * middle:.1%}; noisy runs count less."
    ]


def _unlike_texts(update: fit.EngineUpdate) -> list[str]:
    """Return notes on runs that no known host explains, or that overheads do not explain."""
    texts = [f"Warning: forced: {doubt}" for doubt in update.doubts]
    if update.is_unlike_known:
        per_request = float(update.profile.overheads.on_host().reject_time_per_request)
        texts.append(
            f"Note: {seconds(per_request)} for each request of a step with a draft explain these"
            " runs better than any host like known ones."
        )
    if excess := update.excess_speedup:
        how, takes = ("high", "longer") if excess > 0 else ("low", "shorter")
        texts.append(
            f"Warning: the fit predicts speedups of these runs {abs(excess):.0%} too {how}, more"
            " than errors of kernels and runs explain: on this server, steps with a draft are"
            f" {takes} than predicted, for a reason that is not modelled. Speedups at other loads"
            " may be as wrong."
        )
    return texts


def _moved_text(update: fit.EngineUpdate) -> str:
    """Return which parameters the runs moved, and which they leave open."""
    told = [item for item in update.moved if not item.is_open]
    lines = ["What the runs moved, with the 80 % that it was, and is, known to:"]
    rows = [
        ("", [f"  {item.name}" for item in told]),
        ("before", [_ends(item.name, item.before, item.spread_before) for item in told]),
        ("now", [_ends(item.name, item.after, item.spread_after) for item in told]),
    ]
    lines.append(align(rows, left=["", "before", "now"]) if told else "  nothing")
    left = ", ".join(
        f"{item.name} {_shown(item.name, item.after)}" for item in update.moved if item.is_open
    )
    if left:
        lines.append(wrap(f"Left open by them, and written as is likeliest: {left}."))
    return "\n".join(lines)


def _ends(name: str, value: float, spread: float) -> str:
    """Return a value and its central 80 % interval."""
    from math import exp

    from specmodel.base.units import NORMAL_80

    end = exp(NORMAL_80 * spread)
    low, high = _shown(name, value / end), _shown(name, value * end)
    return f"{_shown(name, value)} ({low} to {high})"


def _shown(name: str, value: float) -> str:
    """Return an overhead as a time, a factor as a number."""
    is_time = name.endswith("time") or "_per_" in name
    return seconds(value) if is_time else f"{value:.2f}"


def _named(path: str) -> str:
    """Return the name of a file, which need not be UTF-8, as a record keeps it."""
    return in_one_line(Path(path).name)


def _value(quantity: str, value: float) -> str:
    """Return a time, or a ratio, as a cell."""
    is_time = quantity in ("forward_time", "step_time")
    return seconds(float(value)) if is_time else f"{value:.3f}"
