"""The command fit engine: overheads of an engine from a user's own benchmark files, or by name."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.base.text import align, wrap
from specmodel.cli import settings
from specmodel.show.report import assumed_text, heading, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from specmodel.fit import EngineFitting, EngineUpdate
    from specmodel.fit.measured import Run
    from specmodel.fit.update import Moved

_WITH_VARY = ("name", "engine", "stack", "source", "version", "vary", "leave_out")
_DRAFTING = ("draft_length", "tree_width", "verify_tokens")


@click.command(context_settings=settings.SETTINGS)
@click.argument("measurements", nargs=-1, required=True)
@click.option("--output", required=True, metavar="FILE", help="Engine profile to write.")
@click.option("--name", help="Name of the engine, for people.  [default: the profile's]")
@settings.where_options(required=False, engine="by the files")
@click.option("--draft-length", type=int, help="Of runs whose files do not tell it.")
@settings.option("tree_width")
@settings.option("verify_tokens")
@click.option("--context-length", type=int, help="KV entries of a sequence.  [default: the files']")
@settings.detail_options()
@click.option("--source", metavar="TEXT", help="What was measured.  [default: the files' names]")
@click.option("--version", default="", metavar="TEXT", help="Version of the engine measured.")
@click.option("--vary", multiple=True, help="Fit overheads by name instead, to one table; repeat.")
@click.option(
    "--leave-out", multiple=True, metavar="COLUMN", help="With --vary: leave out in turn."
)
def engine(measurements: tuple[str, ...], output: str, **options: Any) -> None:
    """Fit an engine to benchmarks of your own server: one plain and one speculative run do.

    Files are what `vllm bench serve --save-result` or SGLang's `bench_serving --output-file`
    writes, or CSV with any of tpot_ms, step_ms, tokens_per_s (also with base_ and spec_ in
    front) or speedup, and tokens_per_step, draft_length, topk, verify_tokens, concurrency,
    prompt_length, output_length. A shipped profile is moved as far as these runs tell; what
    they leave open stays as uncertain as it was, and `predict --interval` knows it.

    With --vary, overheads of that name are fitted to one table by least squares. Its columns:
    target, drafter, hardware, tensor_parallel, batch_size, draft_length, context_length,
    quantity (speedup, relative_step_time, forward_time, step_time or target_efficiency) and
    value; step_efficiency in rows of speedup. Overheads: kernel_time, pass_time,
    draft_kernel_time, draft_pass_time, reject_time, reject_time_per_request,
    reject_time_per_token, tree_time.

    \b
    Examples:
      specmodel fit engine plain.json eagle3.json --target gpt-oss-120b \\
          --drafter eagle3 --hardware h200_sxm --output mine.toml
      specmodel fit engine served.csv --name mine --output mine.toml \\
          --vary pass_time --vary draft_pass_time --vary reject_time
    """
    for path in measurements:
        check_apart(output, path)
    if options["vary"]:
        text = _by_name(measurements, output, options)
    else:
        text = _from_runs(measurements, output, options)
    click.echo(f"{text}\n\nWritten: {output}")


def check_apart(output: str, measurements: str) -> None:
    """Refuse to write over what is read."""
    if Path(output).resolve() == Path(measurements).resolve():
        raise InputError("output", output, "another file than the measurements")


def _from_runs(paths: Sequence[str], output: str, options: dict[str, Any]) -> str:
    """Move a profile to a user's runs, write it and say what became of it."""
    from specmodel.base.files import write_text
    from specmodel.base.records import toml_text
    from specmodel.cli.options import settings_from
    from specmodel.cost.deploying import resolve
    from specmodel.fit import update_engine
    from specmodel.fit.measured import (
        check_model,
        need_plain,
        read_benchmarks,
        served_runs,
    )
    from specmodel.machines.engine import load_engine

    _check_given(options)
    runs = [_with_length(run, options) for run in read_benchmarks(paths)]
    check_model(runs, options["target"])
    need_plain(runs)
    name, told = _start(runs, options)
    values = options | settings_from(options["changes"])
    _, assumed = resolve(values | {"engine": name}, prefix="set ")
    base = load_engine(name)
    rows = served_runs(runs, values | {"engine": name})
    how = {"date": date.today().isoformat(), "version": options["version"] or _version(runs)}
    update = update_engine(rows, base, **how)
    names = ", ".join(Path(path).name for path in paths)
    told_by = {
        "name": options["name"] or f"{base.name}, own runs",
        "source": options["source"] or f"{names}, from the profile {base.name}",
    }
    if options["stack"]:
        told_by["stack"] = options["stack"]
    profile = update.profile.with_changes("engine", told_by)
    deployment, _ = resolve(values | {"engine": profile}, prefix="set ")
    write_text(output, toml_text(profile) + "\n")
    notes = [wrap(f"Note: {run.batch_note}.") for run in runs if run.batch_note]
    notes += [wrap(text) for text in _unlike_texts(update)]
    parts = [
        f"{heading(deployment)}\n{wrap(f'From the profile {base.name}: {told}.')}",
        _runs_table(runs, update),
        "\n".join(notes),
        _moved_text(update.moved),
        assumed_text({n: v for n, v in assumed.items() if n != "engine"}),
    ]
    return "\n\n".join(filter(None, parts))


def _check_given(options: dict[str, Any]) -> None:
    for name in ("target", "drafter", "hardware"):
        if options[name] is None:
            expected = "what the files do not tell: a name or path"
            raise InputError(name, None, expected)
    if options["host_speed"] is not None:
        raise InputError("host_speed", options["host_speed"], "none: the runs tell it")
    if options["leave_out"]:
        raise InputError("leave_out", options["leave_out"][0], "--vary with it")


def _with_length(run: Run, options: dict[str, Any]) -> Run:
    """Return a run with the draft length that was typed, where its file tells none."""
    if run.draft_length is not None or options["draft_length"] is None:
        return run
    length, width, verified = (options[name] for name in _DRAFTING)
    return run.drafting(length, topk=width or 1, verify_tokens=verified)


def _start(runs: Sequence[Run], options: dict[str, Any]) -> tuple[str, str]:
    """Return the profile to start from, and why that one."""
    from specmodel.fit.measured.spellings import profile_of

    if options["engine"]:
        return options["engine"], "as told"
    named = {(run.engine, options["version"] or run.version) for run in runs if run.engine}
    if not named:
        raise InputError("engine", None, "a profile to start from, as the files name no engine")
    found = {profile_of(*pair)[0] for pair in named}
    if len(found) > 1:
        raise InputError("engine", ", ".join(sorted(found)), "one, as these files are of several")
    made, version = next(iter(named))
    return found.pop(), f"the files are of {' '.join(filter(None, [made, version]))}"


def _version(runs: Sequence[Run]) -> str:
    """Return the version that files name, empty if none or several are named."""
    named = {f"{run.engine} {run.version}" for run in runs if run.version}
    return named.pop() if len(named) == 1 else ""


def _runs_table(runs: Sequence[Run], update: EngineUpdate) -> str:
    """Return each run measured and predicted, before and after."""
    show = [seconds if run.quantity == "step_time" else "{:.3f}".format for run in runs]
    errors = update.predicted / update.measured - 1
    return align(
        [
            ("run", [_short(run.source) for run in runs]),
            ("batch\nsize", [f"{run.batch_size:.3g}" for run in runs]),
            ("draft\nlength", [str(run.draft_length) for run in runs]),
            ("tokens\na step", [f"{run.tokens_per_step:.3g}" for run in runs]),
            *(
                (title, [f(float(v)) for f, v in zip(show, values, strict=True)])
                for title, values in (
                    ("\nmeasured", update.measured),
                    ("predicted\nbefore", update.before),
                    ("\nnow", update.predicted),
                )
            ),
            ("\nerror", [f"{error:+.1%}" for error in errors]),
        ],
        left=["run"],
    )


def _short(source: str) -> str:
    """Return the end of where a run was read."""
    name = Path(source).name
    return name if len(name) <= 26 else f"...{name[-23:]}"


def _unlike_texts(update: EngineUpdate) -> list[str]:
    """Return what runs tell that hosts known do not, and that it is not all."""
    texts = []
    if update.is_unlike_known:
        per_request = float(update.profile.overheads.on_host().reject_time_per_request)
        texts.append(
            f"Note: {seconds(per_request)} for each request of a step with a draft explain these"
            " runs better than any host like known ones."
        )
    if excess := update.excess_speedup:
        how, takes = ("high", "more") if excess > 0 else ("low", "less")
        texts.append(
            f"Warning: speedups of these runs come out {abs(excess):.0%} too {how}, beyond what"
            f" errors of kernels and runs explain: steps with a draft take this engine {takes} time"
            " than its profile and the kernels know of, and predictions for other loads may be as"
            " wrong."
        )
    return texts


def _moved_text(moved: Sequence[Moved]) -> str:
    """Return what the runs told, and what they left open."""
    told = [item for item in moved if not item.is_open]
    lines = ["What the runs moved, with the 80 % that it was, and is, known to:"]
    rows = [
        ("", [f"  {item.name}" for item in told]),
        ("before", [_ends(item.name, item.before, item.spread_before) for item in told]),
        ("now", [_ends(item.name, item.after, item.spread_after) for item in told]),
    ]
    lines.append(align(rows, left=["", "before", "now"]) if told else "  nothing")
    left = ", ".join(item.name for item in moved if item.is_open)
    return "\n".join(lines) + (f"\n{wrap(f'Left open by them: {left}.')}" if left else "")


def _ends(name: str, value: float, spread: float) -> str:
    """Return a value and the central 80 % of what it may be."""
    from math import exp

    show = seconds if name.endswith("time") or "_per_" in name else "{:.2f}".format
    end = exp(1.2816 * spread)
    return f"{show(value)} ({show(value / end)} to {show(value * end)})"


def _by_name(paths: Sequence[str], output: str, options: dict[str, Any]) -> str:
    """Fit overheads by name to one table, write the engine and say how well they fit."""
    from specmodel.base.files import write_text
    from specmodel.base.records import toml_text
    from specmodel.fit.engine import fit_engine, read_serving
    from specmodel.machines.engine import load_engine

    if len(paths) > 1:
        raise InputError("measurements", " ".join(paths), "one table with --vary")
    for option, value in options.items():
        if option not in _WITH_VARY and value not in (None, ()):
            argument = "set" if option == "changes" else option
            raise InputError(argument, value, "none with --vary, whose table says what ran")
    if options["name"] is None:
        raise InputError("name", None, "a name of the engine, with --vary")
    table = read_serving(paths[0])
    changes = {"name": options["name"], "source": options["source"] or Path(paths[0]).name}
    if options["stack"]:
        changes["stack"] = options["stack"]
    base = load_engine(options["engine"] or "ideal").with_changes("engine", changes)
    today = date.today().isoformat()
    how = {name: options[name] for name in ("leave_out", "version")}
    fitting = fit_engine(table, base, options["vary"], date=today, **how)
    write_text(output, toml_text(fitting.profile) + "\n")
    return f"{_engine_text(fitting)}\n\n{_row_text(fitting, table)}"


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
            ("batch\nsize", [_range_of(str(sizes).split()) for sizes in table["batch_size"]]),
            ("draft\nlength", [f"{length:g}" for length in table["draft_length"].astype(float)]),
            ("measured", list(map(_value, quantity, measured))),
            ("predicted", list(map(_value, quantity, fitting.predicted))),
            ("error", [f"{error:+.1%}" for error in fitting.result.residuals]),
        ],
        left=["target", "quantity"],
    )


def _value(quantity: str, value: float) -> str:
    return seconds(value) if quantity in ("forward_time", "step_time") else f"{value:.3f}"


def _range_of(sizes: list[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"
