"""The command that replays draft-length policies."""

import sys
from typing import Any

import click

from specmodel.commands.settings import SETTINGS, detail_options, where_options
from specmodel.errors import InputError


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
    default="none,fixed:1,fixed:2,fixed:3,best-fixed,cascade,oracle",
    metavar="LIST",
    help="none, fixed:K, best-fixed, table:FILE, cascade, goodput, sglang, bandit, greedy, oracle,"
    " module:Class; settings after colons.  [default: none,fixed:1,fixed:2,fixed:3,best-fixed,"
    "cascade,oracle]",
)
@click.option("--suite", type=click.Choice(["cascade"]), help="Redo the evaluation of a paper.")
@click.option(
    "--requests", type=int, default=300, show_default=True, help="Requests drawn from a preset."
)
@click.option(
    "--output-length",
    type=int,
    default=512,
    show_default=True,
    help="Output tokens of a request drawn from a preset.",
)
@click.option(
    "--max-draft-length", type=int, default=7, show_default=True, help="Longest draft considered."
)
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
@click.option("--request", type=int, default=0, show_default=True, help="The one drawn.")
@click.option(
    "--timeline-policy", metavar="NAME", help="Its policy.  [default: cascade, or the last]"
)
@click.option("--records", metavar="FILE.csv", help="Write a row for each policy and request.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
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
    if as_json and as_csv:
        raise InputError("csv", True, "one of --json and --csv")
    if suite is not None:
        _suite(options, as_json=as_json, as_csv=as_csv)
        return
    import numpy as np

    from specmodel import simulation_report as report
    from specmodel.figures import check_figure, save_figure
    from specmodel.profiles import write_text
    from specmodel.replay_options import replay_from
    from specmodel.simulation import simulate as replay_all
    from specmodel.simulation import summarise, timeline

    if options["timeline"] is not None:
        check_figure("timeline", options["timeline"])
    policies, seed = options["policies"].split(","), options["seed"]
    replay = replay_from(options)
    sys.path.insert(0, "")  # a policy of the user's own is in the current folder
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
    if options["records"] is not None:
        write_text(options["records"], records.to_csv(index=False), "records")
    if options["timeline"] is not None:
        chosen = options["timeline_policy"] or (
            "cascade" if "cascade" in policies else policies[-1]
        )
        steps = timeline(
            replay.source,
            replay.times,
            chosen,
            request=options["request"],
            seed=seed,
            variation=replay.variation,
        )
        save_figure("timeline", steps, options["timeline"], "timeline", rows=2)
    if as_json:
        click.echo(report.to_json(replay, summary))
        return
    for warning in replay.warnings:
        click.echo(f"specmodel: warning: {warning}", err=True)
    if as_csv:
        click.echo(summary.to_csv(index=False), nl=False)
        return
    sections = [
        f"{report.heading(replay)}\n{report.verdict(summary)}",
        report.table(summary),
        report.assumptions(replay),
    ]
    click.echo("\n\n".join(filter(None, sections)))


def _suite(options: dict[str, Any], *, as_json: bool, as_csv: bool) -> None:
    """Redo Cascade's evaluation: everything of the paper's set-up is settled there."""
    from specmodel import simulation_report as report
    from specmodel.simulation.claims import suite_choices, suite_claims
    from specmodel.simulation.suite import SuiteSettings, cascade_suite

    for name in ("target", "drafter", "hardware", "trace", "step_times", "timeline", "records"):
        if options[name] is not None:
            raise InputError(name, options[name], "none with --suite, which settles it")
    given = {name: options[name] for name in ("engine", "context_length", "seed")}
    settings = SuiteSettings(
        num_requests=options["requests"],
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
