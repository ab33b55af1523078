"""``specmodel fit``: kernels of a stack, or overheads of an engine, fitted to measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import click

from specmodel import fit, machines, measure
from specmodel.base.errors import InputError, in_one_line
from specmodel.base.files import write_text
from specmodel.base.text import wrap
from specmodel.cli import settings
from specmodel.cli.fitted import (
    doubts_text,
    moved_text,
    next_command,
    run_notes,
    runs_table,
    speedups_text,
    unlike_texts,
)
from specmodel.cli.helping import GroupedCommand, WholeList
from specmodel.cli.settings import check_free, overwrite_option, own, refuse_given, refuse_inputs
from specmodel.cli.where import where_options
from specmodel.fit import measured
from specmodel.show import report
from specmodel.show.assumed import assumed_text, what_if_text

_UNTOLD = "what the files do not tell: a name or path"
_NO_DRAFTS = "a run that drafts: no file counts drafts; none, where all runs are plain"
_DRAFTING = ("draft_length", "tree_width", "verify_tokens")
_BENCHMARKS = (".json", ".jsonl")


class FitGroup(WholeList):
    """A group with a default: ``fit FILE`` means ``fit kernels FILE``, of benchmarks ``engine``."""

    @staticmethod
    def default(word: str) -> str:
        """Return the command that stands before a word that is none."""
        return "engine" if word.endswith(_BENCHMARKS) else "kernels"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Put a command in front of words that name none."""
        if args and args[0] not in self.commands:
            args = [self.default(args[0]), *args]
        return super().resolve_command(ctx, args)


@click.group(
    "fit", cls=FitGroup, context_settings=settings.SETTINGS | {"ignore_unknown_options": True}
)
def fit_group() -> None:
    """Fit kernels (the default) or an engine to measurements.

    \b
    Examples:
      specmodel fit h200.csv --output h200.toml
      specmodel fit engine plain.json eagle3.json --drafter eagle3 \\
          --hardware h200 --output mine.toml
    """


@fit_group.command(context_settings=settings.SETTINGS, cls=GroupedCommand)
@click.argument("measurements")
@own("output", "FILE", "Hardware profile to write.", required=True)
@overwrite_option()
@own("hardware", "NAME|PATH", "Profile to start from.  [default: measured]")
@own("measured_on", "NAME", "Says that a table of another device will do: its chip.")
@own("source", "TEXT", "What was measured.  [default: the file's name]")
def kernels(measurements: str, output: str, overwrite: bool, **options: str | None) -> None:
    """Fit kernels of a stack to a table of timings, and add them to a profile.

    Rows whose role is "fit" are fitted, those whose role is "judge" tell the error.
    """
    from specmodel.base.naming import spellings
    from specmodel.machines.profiles import hardware_text, with_stack

    refuse_inputs("output", output, {"the measurements": measurements})
    check_free(output, overwrite=overwrite or options["hardware"] == output)
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


@fit_group.command(context_settings=settings.SETTINGS, cls=GroupedCommand)
@click.argument("measurements", nargs=-1, required=True)
@own("output", "FILE", "Engine profile to write.  [default: none, the fit is shown]")
@overwrite_option()
@own("name", str, "Name of the engine, for people.  [default: the profile's]")
@where_options(required=False, engine="by the files, else vllm", has_words=False)
@own("draft_length", int, "Of runs whose files do not tell it, as where no drafts were counted.")
@settings.options("tree_width", "verify_tokens")
@own("context_length", int, "KV entries of a sequence.  [default: the files']")
@settings.detail_options()
@own("source", "TEXT", "What was measured.  [default: the files' names]")
@own("version", "TEXT", "Version of the engine measured.", default="", show_default=False)
@own("force", bool, "Write a fit that no server seems able to have made.")
def engine(
    measurements: tuple[str, ...], output: str | None, overwrite: bool, **options: Any
) -> None:
    """Fit an engine to benchmarks of your own server: one plain and one speculative run do.

    Files are what `vllm bench serve --save-result`, SGLang's `bench_serving --output-file`,
    GuideLLM or AIPerf writes (docs/measuring.md), or CSV with any of tpot_ms, step_ms, tokens_per_s
    (also with base_ and spec_ in front) or speedup, and tokens_per_step, draft_length, topk,
    verify_tokens, concurrency, prompt_length, output_length. A shipped profile is moved as far as
    these runs tell; what they leave open stays as uncertain as it was, and `predict --interval`
    knows it. Files of one load tell each other's noise. The model is the one that the files name,
    unless --target names another. The command that predicts with what was fitted is printed last.

    \b
    Examples:
      vllm bench serve --model openai/gpt-oss-120b --max-concurrency 16 \\
          --save-result --result-filename plain.json
      specmodel fit engine ./plain.json ./eagle3.json --drafter eagle3 \\
          --hardware h200 --output ./mine.toml
    """
    from specmodel.base.records import toml_text

    if output is not None:
        for path in measurements:
            refuse_inputs("output", output, {"the measurements": path})
        check_free(output, overwrite=overwrite)
    runs, options = _read(measurements, options)
    update, page = _from_runs(runs, measurements, options)
    click.echo(page)
    refused = next((doubt for doubt in update.doubts if doubt.is_refused), None)
    if output is None:
        click.echo("\nNot written: --output ./mine.toml writes the engine.")
        return
    if refused and not options["force"]:
        expected = f"{refused.expected}; --force writes it all the same"
        raise InputError("runs", refused.found, expected)
    write_text(output, toml_text(update.profile) + "\n")
    click.echo(f"\nWritten: {output}. To predict other loads of this server:")
    click.echo(next_command(runs, output, options["target"], options["num_gpus"]))


def _read(
    paths: Sequence[str], options: dict[str, Any]
) -> tuple[Sequence[measured.Run], dict[str, Any]]:
    """Return the runs of files, and options with the target that they name."""
    refuse_given(options, ["host_speed"], "none: the runs tell it")
    runs = measured.read_benchmarks(paths)
    target = options["target"] or measured.named_model(runs)
    for name, value in (("target", target), ("hardware", options["hardware"])):
        if not value:
            said = f"; their model {runs[0].model} does not ship" if runs[0].model else ""
            raise InputError(name, None, _UNTOLD + (said if name == "target" else ""))
    measured.check_model(runs, target)
    gpus, typed = {run.num_gpus for run in runs if run.num_gpus}, options["num_gpus"]
    if typed and gpus - {typed}:
        expected = f"{(gpus - {typed}).pop()}, on which the server of these files ran"
        raise InputError("hardware", f"{typed} GPUs", expected)
    if len(gpus) == 1:
        options = options | {"num_gpus": gpus.pop()}
    length, width, verified = (options[name] for name in _DRAFTING)
    if length is not None:
        tree = {"topk": width or 1, "verify_tokens": verified}
        counts = any(run.is_speculative for run in runs)
        runs = tuple(
            run.drafting(length, **tree)
            if run.draft_length is None or (run.may_draft and not counts)
            else run
            for run in runs
        )
    for run in runs:
        if run.draft_length is None:
            expected = f"that of {run.source}, whose file does not tell it"
            raise InputError("draft_length", None, expected)
    drafts = any(run.is_speculative for run in runs)
    if options["drafter"] is None and drafts:
        raise InputError("drafter", None, f"{_UNTOLD}, as some runs draft")
    if options["drafter"] and len(runs) > 1 and not drafts:
        untold = next((run for run in runs if run.may_draft), None)
        expected = f"--draft-length too: {untold.draft_note}" if untold else _NO_DRAFTS
        raise InputError("drafter", options["drafter"], expected)
    measured.need_plain(runs)
    return runs, options | {"target": target}


def _from_runs(
    runs: Sequence[measured.Run], paths: Sequence[str], options: dict[str, Any]
) -> tuple[fit.EngineUpdate, str]:
    """Return a shipped profile updated by a user's runs, and what to print."""
    from specmodel.cli.options import deployment_from
    from specmodel.cost.deploying import DEGREES, resolve
    from specmodel.cost.usual import what_ifs

    name, told = _start(runs, options)
    laid_out, assumed = deployment_from(options | {"engine": name})
    degrees = {degree: getattr(laid_out, degree) for degree in DEGREES}
    values = options | what_ifs(options["changes"]) | degrees
    base = machines.load_engine(name)
    rows = measured.served_runs(runs, values | {"engine": name})
    versions = {f"{run.engine} {run.version}" for run in runs if run.version}
    version = options["version"] or (versions.pop() if len(versions) == 1 else "")
    update = fit.update_engine(rows, base, date=date.today().isoformat(), version=version)
    names = ", ".join(map(_named, paths))
    told_by = {
        "name": options["name"] or f"{base.name} (own runs)",
        "source": options["source"] or f"{names}, from the profile {base.name}",
    }
    if options["stack"]:
        told_by["stack"] = options["stack"]
    update = replace(update, profile=update.profile.with_changes("engine", told_by))
    deployment, _ = resolve(values | {"engine": update.profile}, prefix="changes ")
    opening = [report.heading(deployment), *what_if_text(assumed)]
    opening.append(f"Started from the profile {base.name}, {told}.")
    parts = [
        "\n".join(map(wrap, opening)),
        runs_table(runs, update),
        speedups_text(update, rows),
        "\n".join(map(wrap, [*run_notes(runs, rows), *unlike_texts(update)])),
        doubts_text(update, deployment, runs, rows),
        "" if any(doubt.is_refused for doubt in update.doubts) else moved_text(update),
        assumed_text({n: v for n, v in assumed.items() if n not in ("engine", "host_speed")}),
    ]
    return update, "\n\n".join(filter(None, parts))


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


def _named(path: str) -> str:
    """Return the name of a file, which need not be UTF-8, as a record keeps it."""
    return in_one_line(Path(path).name)
