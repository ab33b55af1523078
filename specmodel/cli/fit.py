"""``specmodel fit``: fit kernels or an engine to measurements, and check a fit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from shlex import quote
from typing import Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from specmodel.calibrate import fit, measure
from specmodel.calibrate.fit import measured
from specmodel.cli import settings
from specmodel.cli.helping import GroupedCommand, WholeList
from specmodel.cli.positionals import where_options
from specmodel.cli.settings import check_free
from specmodel.core import machines
from specmodel.core.base.errors import InputError, in_one_line, refuse_given
from specmodel.core.base.files import write_text
from specmodel.core.base.naming import spellings
from specmodel.core.base.text import command_lines
from specmodel.show import calibrated, forms
from specmodel.show.calibrated import as_options

_UNTOLD = "a name or path, as the files do not name one"
_NOT_TYPED_ON = (
    *("measurements", "output", "overwrite", "name", "target", "hardware", "engine", "stack"),
    *("draft_length", "tree_width", "verify_tokens", "source", "version", "force", "verbose"),
)
"""Options that the next command does not repeat, or repeats in another form."""
_DRAFTING = ("draft_length", "tree_width", "verify_tokens")


@click.group("fit", cls=WholeList)
def fit_group() -> None:
    """Fit kernel times or an engine's overheads to measurements, or check a fit.

    \b
    Examples:
      specmodel fit kernels h200.csv --output h200.toml
      specmodel fit engine plain.json eagle3.json --drafter eagle3 \\
          --hardware h200 --output mine.toml
      specmodel fit check h200.toml h200.csv
    """


@fit_group.command(cls=GroupedCommand)
@click.argument("measurements")
@settings.options_of("kernels")
def kernels(measurements: str, output: str, overwrite: bool, **options: str | None) -> None:
    """Fit the kernel times of a library to a table of timings, and add the fit to a profile.

    The fit uses rows with "fit" in column role. The error of the fit is measured on rows with
    "judge" in column role.
    """
    from specmodel.core.machines.profiles import hardware_text, with_stack

    check_free(output, measurements, overwrite=overwrite or options["hardware"] == output)
    table = measure.read_measurements(measurements)
    device, stack, version = (str(table[n].iloc[0]) for n in ("hardware", "stack", "version"))
    name = options["hardware"] or device
    if device not in spellings(Path(name).stem) and options["measured_on"] != device:
        expected = f"{device}, the GPU of the rows. To fit this one, add --measured-on {device}"
        raise InputError("hardware", name, expected)
    text = hardware_text(name)
    fits = fit.fit_kernels(table, machines.load_hardware(name))
    source = options["source"] or f"{_named(measurements)}, measured on {device}"
    record = fit.fitted_stack(fits, version=version, source=source, date=date.today().isoformat())
    write_text(output, with_stack(text, stack, record))
    click.echo(f"{calibrated.kernels(fits)}\n\nWritten: {output}, [fitted.{stack}]")


@fit_group.command(cls=GroupedCommand)
@click.argument("measurements", nargs=-1, required=True)
@settings.options_of("engine")
@where_options(required=False, engine="the engine in the files, or vllm", has_words=False)
@settings.options_of("runs")
def engine(
    measurements: tuple[str, ...], output: str | None, overwrite: bool, **options: Any
) -> None:
    """Fit an engine's overheads to benchmarks of your own server.

    One run without and one run with speculation are enough. Each file is a CSV, or a result of
    `vllm bench serve --save-result`, SGLang's `bench_serving --output-file`, GuideLLM, AIPerf,
    trtllm-bench, evalscope, llama-bench or InferenceX. docs/measuring.md describes all formats.

    A CSV has measurements in one of the columns tpot_ms, step_ms, tokens_per_s or speedup. If a row
    contains two runs, start the columns of the run without speculation with base_, and the columns
    of the run with speculation with spec_. The other columns are tokens_per_step, draft_length,
    topk, verify_tokens, concurrency, prompt_length and output_length.

    The fit starts from a profile that ships with specmodel and changes the parameters that your
    runs determine. Other parameters keep their value and their uncertainty, which the intervals of
    predictions include. Several files of the same load show how noisy the measurements are.
    The model is read from the files, unless you give --target.

    \b
    Examples:
      vllm bench serve --model openai/gpt-oss-120b --max-concurrency 16 \\
          --save-result --result-filename plain.json
      specmodel fit engine ./plain.json ./eagle3.json --drafter eagle3 \\
          --hardware h200 --output ./mine.toml
    """
    from specmodel.core.base.records import toml_text

    if output is not None:
        check_free(output, *measurements, overwrite=overwrite)
    runs, options = _read(measurements, options)
    update = _from_runs(runs, measurements, options)
    click.echo(update.view().report(verbose=options["verbose"]))
    refused = next((told for told in update.fit_warnings if told.is_refused), None)
    if output is None:
        click.echo("\nNot written: --output ./mine.toml writes the engine.")
        return
    if refused and not options["force"]:
        expected = f"{refused.expected}; to write it anyway, add --force"
        raise InputError("runs", refused.found, expected)
    write_text(output, toml_text(update.profile) + "\n")
    click.echo(f"\nWritten: {output}. To predict other loads of this server:")
    click.echo(_next_command(runs, output, options))


def _read(
    paths: Sequence[str], options: dict[str, Any]
) -> tuple[Sequence[measured.Run], dict[str, Any]]:
    """Return the runs of files, and options with the target and place that the files name."""
    from specmodel.calibrate.fit.measured.runs import shipped_name
    from specmodel.core.cost.where import NO_DRAFTER

    refuse_given(options, ["host_speed"], "The host speed is fitted to the runs. Remove it.")
    runs, told, note = measured.placed(measured.read_benchmarks(paths), options)
    named = measured.named_model(runs)
    target = named if options["target"] in (None, shipped_name(named)) else options["target"]
    taken = tuple(filter(None, [*options["taken"], note]))
    options = options | told | {"told": told, "taken": taken}
    for name, value in (("target", target), ("hardware", options["hardware"])):
        if not value:
            said = f"; their model {runs[0].model} does not ship" if runs[0].model else ""
            raise InputError(name, None, _UNTOLD + (said if name == "target" else ""))
    measured.check_model(runs, target)
    length, width, verified = (options[name] for name in _DRAFTING)
    if length is not None:
        tree = {"topk": width or 1, "verify_tokens": verified}
        counts = any(run.is_speculative for run in runs)
        runs = tuple(
            run.drafting(length, **tree)
            if run.draft_length is None or run.assumed or (run.may_draft and not counts)
            else run
            for run in runs
        )
    drafts = any(run.is_speculative for run in runs)
    drafter = None if options["drafter"] == NO_DRAFTER else options["drafter"]
    if drafter is None and drafts:
        raise InputError("drafter", None, f"{_UNTOLD} and some runs draft")
    untold = next((run for run in runs if run.may_draft), None)
    if drafter and untold and len(runs) > 1 and not drafts:
        raise InputError("drafter", drafter, f"--draft-length too: {untold.draft_note}")
    return runs, options | {"target": target, "drafter": drafter}


def _from_runs(
    runs: Sequence[measured.Run], paths: Sequence[str], options: dict[str, Any]
) -> fit.EngineUpdate:
    """Return a shipped profile, updated by the runs."""
    from specmodel.cli.options import manner_from, where_from
    from specmodel.core.cost.deploying import DEGREES
    from specmodel.core.cost.usual import deployed
    from specmodel.core.cost.where import what_ifs, where_of

    name = options["engine"] or _profile_of(runs, options)
    manner = manner_from(options, is_drafting=False)
    where = where_of(where_from(options | {"engine": name}), manner)
    laid_out, assumed = deployed(where)
    degrees = {degree: getattr(laid_out, degree) for degree in DEGREES}
    values = options | what_ifs(options["changes"]) | degrees
    base = machines.load_engine(name)
    rows = measured.served_runs(runs, values | {"engine": name})
    versions = {f"{run.engine} {run.version}" for run in runs if run.version}
    version = options["version"] or (versions.pop() if len(versions) == 1 else "")
    update = fit.update_engine(rows, base, date=date.today().isoformat(), version=version)
    names = ", ".join(map(_named, paths))
    told = {
        "name": options["name"] or f"{base.name} (own runs)",
        "source": options["source"] or f"{names}, from the profile {base.name}",
        **({"stack": options["stack"]} if options["stack"] else {}),
    }
    profile = update.profile.with_changes("engine", told)
    assumed = {n: v for n, v in assumed.items() if n not in ("engine", "host_speed")}
    dtype = None if options["weight_dtype"] else measured.named_checkpoint(options["target"])[1]
    if dtype:
        by_name = f"weights in {dtype}, as the name {options['target']} tells"
        assumed["names"] = "; ".join(filter(None, [assumed.get("names"), by_name]))
    return replace(update, profile=profile, assumptions=assumed)


def _profile_of(runs: Sequence[measured.Run], options: dict[str, Any]) -> str:
    """Return the profile to start from: that of the engine in the files."""
    from specmodel.calibrate.fit.measured.aliases import profile_of
    from specmodel.core.cost.deploying import DEFAULT_ENGINE

    named = {(run.engine, options["version"] or run.version) for run in runs if run.engine}
    try:
        found = {profile_of(*pair)[0] for pair in named} or {DEFAULT_ENGINE}
    except InputError as error:
        expected = "No such profile is shipped. Add --engine with one of specmodel list engines."
        raise InputError("engine", error.value, expected) from None
    if len(found) > 1:
        expected = "files of one engine, or --engine NAME"
        raise InputError("engine", ", ".join(sorted(found)), expected)
    return found.pop()


def _named(path: str) -> str:
    """Return the name of a file for a record; bytes that are not UTF-8 are escaped."""
    return in_one_line(Path(path).name)


def _next_command(runs: Sequence[measured.Run], output: str, options: dict[str, Any]) -> str:
    """Return the command that predicts with the engine, for the GPUs and acceptance of the runs."""
    from specmodel.core.cost.deploying import DEGREES
    from specmodel.core.cost.where import NO_DRAFTER

    context = click.get_current_context()
    gpu, num_gpus = options["hardware"], options["num_gpus"]
    gpus = quote(f"{num_gpus}x{gpu}" if num_gpus else gpu)
    model = "-" if context.params["target"] == "-" else options["target"]
    words = [f"specmodel predict {quote(model)} {gpus}"]
    for parameter in context.command.params:
        name = parameter.name or ""
        typed = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if typed and name not in _NOT_TYPED_ON and context.params[name] != NO_DRAFTER:
            values = context.params[name]
            for value in values if isinstance(values, tuple) else [values]:
                words.append(f"{parameter.opts[0]} {quote(str(value))}")
    degrees = {name: n for name, n in options["told"].items() if name in DEGREES}
    words += [as_options(degrees)] if max(degrees.values(), default=1) > 1 else []
    words.append(f"--engine {quote(output if '/' in output else f'./{output}')}")
    words += [*_acceptance(runs), *_lengths(runs)]
    return command_lines(words)


def _acceptance(runs: Sequence[measured.Run]) -> list[str]:
    """Return ``predict`` options for the acceptance of the runs with the longest draft."""
    kinds = [(run.draft_length or 0, run.topk or 1, run.verify_tokens) for run in runs]
    longest = max(kinds)
    same = [run for run, kind in zip(runs, kinds, strict=True) if kind == longest]
    return [as_options(measured.arguments_of_runs(same)[0])] if longest[0] else []


def _lengths(runs: Sequence[measured.Run]) -> list[str]:
    """Return ``predict`` options for the lengths of the runs; [] if the lengths differ."""
    from specmodel.calibrate.fit.measured.runs import SAME_LOAD

    names = ("prompt_length", "output_length")
    lengths = {name: [getattr(run, name) for run in runs] for name in names}
    if any(None in of or max(of) > SAME_LOAD * min(of) for of in lengths.values()):
        return []
    means = {name: max(round(sum(of) / len(of)), 1) for name, of in lengths.items()}
    return [as_options(means)]


@fit_group.command(cls=GroupedCommand)
@click.argument("profile", required=False)
@click.argument("measurements", required=False)
@settings.options_of("check")
def check(profile: str | None, measurements: str | None, **options: Any) -> None:
    """Compare a hardware profile with a table of timings, or engines with benchmark runs.

    Timings are compared with predictions on rows with "judge" in column role. A
    kind of kernel without "judge" rows is compared on the rows of its fit.

    With --serving, give neither PROFILE nor MEASUREMENTS. The --serving table
    has a row for each run. Runs without speculation have the columns model,
    dtype, system (GPU), backend (engine), gpus, isl, osl, concurrency and
    measured_tpot_ms. Runs with speculation have the columns target,
    weight_dtype, gpu, engine, num_gpus, tensor_parallel, drafter, draft_length,
    verify_tokens, batch_size_or_concurrency, tokens_per_step, and speedup or
    spec_step_ms. In columns model and target, write a name, the first
    letters of a name, or the path of a config.json. In column drafter, write a
    name such as eagle3, or draft model: NAME. Rows that cannot be used are
    listed with the reason. In the answer, bias is the mean of the signed errors.
    """
    from specmodel.core.base.units import check as check_number
    from specmodel.show.plots.figures import check_figure, save_figure

    if options["figure"] is not None:
        check_figure("figure", options["figure"])
    most = options["max_error"]
    if most is not None:
        check_number("max_error", most, minimum=0)
    asked = options | {"profile": profile}
    if options["serving"] is not None:
        refuse_given(asked, ["profile", "stack"], "This has no effect with --serving.")
        drawn, answer, error = _judge_engines(options)
    elif profile is None or measurements is None:
        missing = "PROFILE" if profile is None else "MEASUREMENTS"
        raise click.UsageError(f"Missing argument '{missing}', or --serving FILE.")
    else:
        drawn, answer, error = _judge_kernels(profile, measurements, options)
    if options["figure"] is not None:
        save_figure("predicted_against_measured", drawn, options["figure"])
    click.echo(forms.as_json(answer) if options["as_json"] else answer.report())
    if most is not None and error > most:
        click.echo(f"specmodel: mean error {error:.3f} is above {most:g}", err=True)
        raise click.exceptions.Exit(1)


def _judge_kernels(
    profile: str, measurements: str, options: dict[str, Any]
) -> tuple[forms.DataFrame, forms.Answer, float]:
    """Return rows to draw, the errors of a profile on timings, and the largest mean error [-]."""
    from specmodel.calibrate.fit.timed_work import ALL_ROWS, error_table, predict_measured

    hardware = machines.load_hardware(profile, "profile")
    rows = predict_measured(measure.read_measurements(measurements), hardware, options["stack"])
    errors = error_table(rows)
    most = float(errors[errors["rows"] == ALL_ROWS]["mean_error"].max())
    return rows, calibrated.judged_kernels(errors, hardware.name), most


def _judge_engines(options: dict[str, Any]) -> tuple[forms.DataFrame, forms.Answer, float]:
    """Return rows to draw, the errors on a table of measured engines, and the mean error [-]."""
    found = measured.judged_engines(options["serving"])
    drawn = found.rows[found.rows["quantity"] != "speedup"]
    drawn = drawn.rename(columns={"measured": "latency", "model": "component"})
    return drawn, found.view(), float(found.rows["error"].abs().mean())
