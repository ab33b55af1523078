"""The command that replays draft-length policies."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.cli.settings import (
    SETTINGS,
    check_forms,
    detail_options,
    echo_warnings,
    form_options,
    where_options,
)

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.cli.replay_options import Replay

_OF_SUITE = ("requests", "engine", "context_length", "seed", "workers")


@click.command(context_settings=SETTINGS)
@where_options(required=False)
@click.option(
    "--step-times",
    metavar="FILE.csv",
    help="Measured: draft_length, step_time; in place of target, drafter and hardware.",
)
@click.option(
    "--trace",
    metavar="FILE|PRESET",
    help="Acceptance: a trace, or a preset (specmodel list presets); with + a mix of presets.",
)
@click.option(
    "--policy",
    "policies",
    metavar="LIST",
    help="none, fixed:K, best-fixed, table:FILE, cascade, goodput, sglang, bandit, greedy, oracle,"
    " module:Class; settings after colons.  [default: none, fixed:1 to fixed:3, best-fixed,"
    " cascade, oracle]",
)
@click.option(
    "--suite",
    type=click.Choice(["cascade"]),
    help="Redo the evaluation of a paper; engine vllm and context 512 unless given.",
)
@click.option("--requests", type=int, help="Requests drawn from a preset.  [default: 300]")
@click.option(
    "--output-tokens",
    type=int,
    help="Output tokens of a request drawn from a preset.  [default: 512]",
)
@click.option("--max-draft-length", type=int, help="Longest draft considered.  [default: 7]")
@click.option(
    "--context-length",
    type=int,
    help="KV entries before a step, the same for all.  [default: 1024]",
)
@detail_options()
@click.option(
    "--drafter-upkeep",
    type=float,
    help="What a model drafter adds to a plain pass while it pauses.  [default: 0.025]",
)
@click.option(
    "--timing-noise",
    type=float,
    help="Standard deviation of a step's time, relative.  [default: 0.02]",
)
@click.option(
    "--request-expert-spread",
    type=float,
    help="Of the experts a verify pass adds, by request, relative.  [default: 0.05]",
)
@click.option("--step-expert-spread", type=float, help="The same by step.  [default: 0.05]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes.")
@click.option("--timeline", metavar="FILE", help="Draw one request: PNG, PDF or SVG.")
@click.option("--request", type=int, help="The one drawn.  [default: 0]")
@click.option(
    "--timeline-policy", metavar="NAME", help="Its policy.  [default: cascade, or the last]"
)
@click.option("--records", metavar="FILE.csv", help="Write a row for each policy and request.")
@form_options()
def simulate(*, as_json: bool, as_csv: bool, suite: str | None, **options: Any) -> None:
    """Replay draft-length policies over an acceptance trace, at batch size 1.

    Every policy meets the same requests and the same luck. Speedups are over no speculation, with
    a 95 % interval over requests.

    \b
    Examples:
      specmodel simulate --target mixtral-8x7b --weight-dtype fp8 \\
          --drafter ngram --hardware rtx_6000_ada --trace code-ngram
      specmodel simulate --target olmoe-1b-7b --drafter eagle --hardware l4 \\
          --trace code-eagle+chat-eagle --requests 50 \\
          --policy none,cascade,cascade:backoff_factor=1,goodput,oracle --json
      specmodel simulate --step-times ./times.csv --trace ./trace.jsonl \\
          --policy none,my_module:MyPolicy --timeline ./request.png
    """
    check_forms(as_json, as_csv)
    if suite is not None:
        _suite(options, as_json=as_json, as_csv=as_csv)
        return
    import numpy as np

    from specmodel.base.files import write_text
    from specmodel.cli import simulation_report as report
    from specmodel.cli.replay_options import replay_from
    from specmodel.replay import simulate as replay_all
    from specmodel.replay import summarise

    _check_files(options)
    seed, replay, typed = options["seed"], replay_from(options), options["policies"]
    policies = replay.default_policies
    if typed is not None:
        policies = [name.strip() for name in typed.split(",")]
    with _current_folder():
        steps = None if options["timeline"] is None else _steps(replay, policies, options)
        with click.progressbar(
            length=replay.num_requests, label="Replaying", file=sys.stderr, hidden=_is_quiet()
        ) as bar:
            records = replay_all(
                replay.source,
                replay.times,
                policies,
                seed=seed,
                variation=replay.variation,
                workers=options["workers"],
                progress=bar.update,
            )
    summary = summarise(records, np.random.default_rng(seed))
    if steps is not None:
        from specmodel.plots.figures import TWO_COLUMNS, save_figure

        save_figure("timeline", steps, options["timeline"], "timeline", width=TWO_COLUMNS)
    if options["records"] is not None:
        write_text(options["records"], records.to_csv(index=False), "records")
    if as_json:
        click.echo(report.to_json(replay, summary))
        return
    echo_warnings(replay.warnings)
    if as_csv:
        click.echo(summary.to_csv(index=False), nl=False)
        return
    sections = [
        f"{report.heading(replay)}\n{report.verdict(summary)}",
        report.table(summary),
        report.assumptions(replay),
    ]
    click.echo("\n\n".join(filter(None, sections)))


def _check_files(options: dict[str, Any]) -> None:
    """Refuse files that cannot be written, before anything is computed."""
    from specmodel.base.files import check_writable
    from specmodel.plots.figures import check_figure

    if options["timeline"] is not None:
        check_figure("timeline", options["timeline"])
    if options["records"] is not None:
        if Path(options["records"]).suffix != ".csv":
            raise InputError("records", options["records"], "a .csv file")
        check_writable(options["records"], "records")


@contextmanager
def _current_folder() -> Iterator[None]:
    """Let a policy of the user's own be imported from the current folder."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _steps(replay: "Replay", policies: list[str], options: dict[str, Any]) -> "pd.DataFrame":
    """Return the steps of the request that is to be drawn."""
    from specmodel.replay import timeline

    chosen = options["timeline_policy"]
    if chosen is None:
        single = [name for name in policies if name != "best-fixed"]
        chosen = "cascade" if "cascade" in single else (single or policies)[-1]
    try:
        return timeline(
            replay.source,
            replay.times,
            chosen,
            request=options["request"] or 0,
            seed=options["seed"],
            variation=replay.variation,
        )
    except InputError as error:
        if chosen in policies and chosen != "best-fixed":
            raise
        argument = re.sub(r"^policy\b", "timeline_policy", error.argument)
        raise InputError(argument, error.value, error.expected) from None


def _suite(options: dict[str, Any], *, as_json: bool, as_csv: bool) -> None:
    """Redo Cascade's evaluation: everything of the paper's set-up is settled there."""
    from specmodel.base.units import check
    from specmodel.cli import simulation_report as report
    from specmodel.cli.replay_options import DEFAULT_REQUESTS, MOST, refuse_given
    from specmodel.replay.suite import SuiteSettings, cascade_suite, suite_choices, suite_claims

    settled = [name for name in options if name not in _OF_SUITE]
    refuse_given(options, settled, "none with --suite, which settles it")
    given = {name: options[name] for name in ("engine", "context_length", "seed")}
    requests = DEFAULT_REQUESTS if options["requests"] is None else options["requests"]
    settings = SuiteSettings(
        num_requests=int(check("requests", requests, minimum=1, maximum=MOST, whole=True)),
        **{name: value for name, value in given.items() if value is not None},
    )
    with click.progressbar(
        length=settings.num_cases, label="Replaying", file=sys.stderr, hidden=_is_quiet()
    ) as bar:
        pairs = cascade_suite(settings, workers=options["workers"], progress=bar.update)
    claims, choices = suite_claims(pairs), suite_choices(pairs)
    if as_json:
        click.echo(report.suite_json(settings, pairs, claims, choices))
    elif as_csv:
        click.echo(claims.to_csv(index=False), nl=False)
    else:
        click.echo(report.suite_text(settings, claims, choices))


def _is_quiet() -> bool:
    return not sys.stderr.isatty()
