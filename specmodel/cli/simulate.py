"""The command that replays draft-length policies. Nothing heavy is imported before it runs."""

import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.base.text import Columns, align, table_width, wrap
from specmodel.cli.settings import (
    SETTINGS,
    Command,
    check_forms,
    detail_options,
    echo_warnings,
    flag,
    form_options,
    where_options,
)

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.replay import ReplayTimes, Variation
    from specmodel.replay.blocks import Source

DEFAULT_MAX_DRAFT_LENGTH = 7
DEFAULT_CONTEXT_LENGTH = 1024

_HINDSIGHT = ("best-fixed", "greedy", "oracle")
_CELLS = {
    "speedup": "{speedup:.3f}",
    "95 %": "{speedup_low:.2f}-{speedup_high:.2f}",
    "slow-\ndown": "{slowdown:.0%}",
    "tokens\na step": "{tokens_per_step:.2f}",
    "drafted\na step": "{drafted_tokens_per_step:.2f}",
    "in\ntests": "{test_share:.0%}",
    "TPOT\nmedian": "{tpot_p50}",
    "95th": "{tpot_p95}",
    "regret": "{regret:.0%}",
}
"""Titles of the columns for people, and their cells."""
_SPARE = ("95th", "drafted\na step", "TPOT\nmedian", "slow-\ndown", "in\ntests", "tokens\na step")
"""Columns that are left out where the table is too wide, the first one first."""


_OPTIONS: dict[str, tuple[type | str, str]] = {
    "step_times": (
        "FILE.csv",
        "Measured: draft_length, step_time; in place of target, drafter and hardware.",
    ),
    "trace": (
        "FILE|PRESET",
        "Acceptance: a trace, or a preset (specmodel list presets); with + a mix of presets.",
    ),
    "requests": (int, "Requests drawn from a preset.  [default: 300]"),
    "output_tokens": (int, "Output tokens of a request drawn from a preset.  [default: 512]"),
    "max_draft_length": (int, "Longest draft considered.  [default: 7]"),
    "context_length": (int, "KV entries before a step, the same for all.  [default: 1024]"),
    "drafter_upkeep": (
        float,
        "What a model drafter adds to a plain pass while it pauses.  [default: 0.025]",
    ),
    "timing_noise": (float, "Standard deviation of a step's time, relative.  [default: 0.02]"),
    "request_expert_spread": (
        float,
        "Of the experts a verify pass adds, by request, relative.  [default: 0.05]",
    ),
    "step_expert_spread": (float, "The same by step.  [default: 0.05]"),
    "timeline": ("FILE", "Draw one request: PNG, PDF or SVG."),
    "request": (int, "The one drawn.  [default: 0]"),
    "timeline_policy": ("NAME", "Its policy.  [default: cascade, or the last]"),
    "records": ("FILE.csv", "Write a row for each policy and request."),
}
"""By name: the type of a number, or what stands for a text in the help; and the help."""


def _own_options(command: Command) -> Command:
    for name, (kind, words) in reversed(_OPTIONS.items()):
        given: dict[str, Any] = {"metavar" if isinstance(kind, str) else "type": kind}
        command = click.option(flag(name), help=words, **given)(command)
    return command


@click.command(context_settings=SETTINGS)
@where_options(required=False)
@click.option(
    "--policy",
    "policies",
    metavar="LIST",
    help="none, fixed:K, best-fixed, table:FILE, cascade, goodput, sglang, bandit, greedy, oracle,"
    " module:Class; settings after colons.  [default: none, fixed:1 to fixed:3, best-fixed,"
    " cascade, oracle]",
)
@click.option("--suite", hidden=True)
@_own_options
@detail_options()
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes.")
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
        raise InputError("suite", suite, "python calibration/cascade.py of a checkout")
    import numpy as np

    from specmodel.base.files import write_text
    from specmodel.replay import simulate as replay, summarise
    from specmodel.replay.choices import choose

    _check_files(options)
    source, times, said = _replay_from(options)
    policies = _policies(options["policies"], times)
    luck = {"seed": options["seed"], "variation": _variation(options, times, said["assumptions"])}
    steps = None
    if options["timeline"] is not None:
        steps = _steps(source, times, policies, options, luck)
    chosen = [choose(policy, Path.cwd()) for policy in policies]
    with progress_bar(source.num_requests) as bar:
        shared = {"workers": options["workers"], "progress": bar.update}
        records = replay(source, times, chosen, **luck, **shared)
    summary = summarise(records, np.random.default_rng(options["seed"]))
    if steps is not None:
        from specmodel.show.plots.figures import TWO_COLUMNS, save_figure

        save_figure("timeline", steps, options["timeline"], "timeline", width=TWO_COLUMNS)
    if options["records"] is not None:
        write_text(options["records"], records.to_csv(index=False), "records")
    if as_json:
        click.echo(_json(said, times, summary))
        return
    echo_warnings(said["warnings"])
    click.echo(
        summary.to_csv(index=False) if as_csv else _text(said, times, summary), nl=not as_csv
    )


def refuse_given(options: dict[str, Any], names: Iterable[str], expected: str) -> None:
    """Refuse the first of these options that is given, because it would be without effect."""
    for name, value in _given(options, names).items():
        raise InputError(name, value, expected)


def plain_rows(table: "pd.DataFrame") -> list[Any]:
    """Return the rows of a table for JSON; what has no meaning is None, never NaN."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def progress_bar(length: int) -> Any:
    """Return a progress bar, which is hidden unless a person watches."""
    is_hidden = not sys.stderr.isatty()
    return click.progressbar(length=length, label="Replaying", file=sys.stderr, hidden=is_hidden)


def _given(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) not in (None, ())}


def _check_files(options: dict[str, Any]) -> None:
    """Refuse files that cannot be written, before anything is computed."""
    from specmodel.base.files import check_writable
    from specmodel.cli.trace import refuse_inputs
    from specmodel.show.plots.figures import check_figure

    if options["timeline"] is not None:
        check_figure("timeline", options["timeline"])
    if options["records"] is not None:
        if Path(options["records"]).suffix != ".csv":
            raise InputError("records", options["records"], "a .csv file")
        check_writable(options["records"], "records")
        refuse_inputs("records", options["records"], _inputs(options))


def _inputs(options: dict[str, Any]) -> dict[str, str | None]:
    """Return what may be a file that is read, by the option that names it."""
    names = ("trace", "step_times", "popularity", "target", "drafter", "hardware", "engine")
    tables = [name for name in (options["policies"] or "").split(",") if name.startswith("table:")]
    return {flag(name): options[name] for name in names} | {
        f"that of --policy {table}": table.partition(":")[2] for table in tables
    }


def _replay_from(options: dict[str, Any]) -> tuple["Source", "ReplayTimes", dict[str, Any]]:
    """Return the requests, the step times, and the heading, assumptions and warnings of these."""
    from specmodel.cli.trace import named_requests

    if options["trace"] is None:
        raise InputError("trace", None, "a trace file or a preset (specmodel list presets)")
    if options["timeline"] is None:
        refuse_given(options, ["request", "timeline_policy"], "--timeline FILE with it")
    source, requests, presets = named_requests(
        options["trace"], _given(options, ("requests", "output_tokens"))
    )
    times, what, assumed, is_lookup, warnings = _times(options, source)
    if options["max_draft_length"] is None:
        assumed["max_draft_length"] = times.max_draft_length
    others = [name for name in presets if name.endswith("-ngram") != is_lookup]
    if others and is_lookup is not None:
        kind = "n-gram look-up" if is_lookup else "a model or head"
        warnings += [f"the drafter is {kind}, but the acceptance that of {', '.join(others)}"]
    said = {"heading": f"{what}; {requests}", "assumptions": assumed, "warnings": warnings}
    return source, times, said


def _variation(
    options: dict[str, Any], times: "ReplayTimes", assumed: dict[str, Any]
) -> "Variation":
    """Return how much step times vary; what was not given is added to what is assumed."""
    from specmodel.replay import Variation

    names = [*vars(Variation())]
    variation = Variation(**_given(options, names))
    if not times.expert_time.any():
        refuse_given(options, names[1:], "none, as no step time depends on experts")
        names = names[:1]
    assumed |= {name: getattr(variation, name) for name in names if options[name] is None}
    return variation


def _times(
    options: dict[str, Any], source: "Source"
) -> tuple["ReplayTimes", str, dict[str, Any], bool | None, list[str]]:
    """Return the times, of what, what was assumed, whether the drafter looks up, and warnings."""
    import numpy as np

    from specmodel.cli.options import deployment_from
    from specmodel.cost.deploying import NAMES
    from specmodel.replay import read_replay_times, replay_times
    from specmodel.replay.times import DEFAULT_DRAFTER_UPKEEP

    own = {"context_length": DEFAULT_CONTEXT_LENGTH, "drafter_upkeep": DEFAULT_DRAFTER_UPKEEP}
    path = options["step_times"]
    if path is not None:
        for name in _given(options, (*NAMES, "changes", *own)):
            typed = flag("set" if name == "changes" else name)
            raise InputError("step_times", path, f"no {typed} with it: the times are given")
        times = read_replay_times(path)
        longest = _longest(options, min(times.max_draft_length, source.max_draft_length))
        return times.up_to(longest), f"Times of {Path(path).name}", {}, None, []
    for name in ("target", "drafter", "hardware"):
        if options[name] is None:
            raise InputError(name, None, "a name or path, or --step-times in place of all three")
    deployment, assumed = deployment_from(options)
    is_lookup = deployment.drafter.is_lookup
    if is_lookup:
        refuse_given(options, ["drafter_upkeep"], "a model or head as drafter with it")
        del own["drafter_upkeep"]
        assumed.pop("proposal_rate", None)
    longest = _longest(options, source.max_draft_length, deployment.drafter.block_size)
    values: dict[str, Any] = own | _given(options, own)
    times = replay_times(deployment, max_draft_length=longest, **values)
    assumed |= {name: value for name, value in own.items() if options[name] is None}
    what = f"{deployment.target.name} + {deployment.drafter.name} on {deployment.hardware.name}"
    warnings = deployment.warnings(np.ones(1), np.array([1.0, longest]))
    return times, what, assumed, is_lookup, [*warnings]


def _longest(options: dict[str, Any], known: int, block: int | None = None) -> int:
    """Return the longest draft considered: as asked, or the default within what is known."""
    asked, known = options["max_draft_length"], min(known, block or known)
    if asked is None:
        return min(DEFAULT_MAX_DRAFT_LENGTH, known)
    if not 1 <= asked <= known:
        expected = f"from 1 to {known}, the longest with acceptance and a step time"
        raise InputError("max_draft_length", asked, expected)
    return int(asked)


def _policies(typed: str | None, times: "ReplayTimes") -> list[str]:
    if typed is not None:
        return [name.strip() for name in typed.split(",")]
    lengths = range(1, min(3, times.max_draft_length) + 1)
    return ["none", *(f"fixed:{k}" for k in lengths), "best-fixed", "cascade", "oracle"]


def _steps(
    source: "Source",
    times: "ReplayTimes",
    policies: list[str],
    options: dict[str, Any],
    luck: dict[str, Any],
) -> "pd.DataFrame":
    """Return the steps of the request that is to be drawn."""
    from specmodel.replay import timeline
    from specmodel.replay.choices import choose

    chosen = options["timeline_policy"]
    if chosen is None:
        single = [name for name in policies if name != "best-fixed"]
        chosen = "cascade" if "cascade" in single else (single or policies)[-1]
    try:
        policy = choose(chosen, Path.cwd())
        return timeline(source, times, policy, request=options["request"] or 0, **luck)
    except InputError as error:
        if chosen in policies and chosen != "best-fixed":
            raise
        argument = re.sub(r"^policy\b", "timeline_policy", error.argument)
        raise InputError(argument, error.value, error.expected) from None


def _json(said: dict[str, Any], times: "ReplayTimes", summary: "pd.DataFrame") -> str:
    """Return everything for a program; numbers in full, in SI units."""
    import numpy as np

    from specmodel.show.report import json_text

    seconds = {name: np.asarray(value).tolist() for name, value in vars(times).items()}
    return json_text(said | {"step_times": seconds, "policies": plain_rows(summary)})


def _text(said: dict[str, Any], times: "ReplayTimes", summary: "pd.DataFrame") -> str:
    """Return everything for people: the relative step times, which decide, come first."""
    from specmodel.base.units import format_si
    from specmodel.show.report import assumed_text

    costs = ", ".join(f"{cost:.2f}" for cost in times.step_time / times.forward_time)
    plain = format_si(times.forward_time, "s")
    line = f"A plain pass takes {plain}; steps that verify 0, 1, ... draft tokens: {costs} of it."
    sections = ["\n".join([_fill(said["heading"]), wrap(line), _verdict(summary)]), _table(summary)]
    assumed = {
        name: f"{value:g}" if isinstance(value, float) else value
        for name, value in said["assumptions"].items()
    }
    return "\n\n".join([*sections, assumed_text(assumed)])


def _verdict(summary: "pd.DataFrame") -> str:
    """Return in a line or two which policy did best, and what Cascade did, if it was there."""
    rows: list[Any] = summary.to_dict("records")
    rows = [row for row in rows if row["policy"].split(":")[0] not in _HINDSIGHT]
    if not rows:
        return "Policies that know the trace only: bounds, nothing to deploy."
    best = max(rows, key=lambda row: row["speedup"])
    text = f"Best: {best['policy']}, {best['speedup']:.2f}x."
    if best["speedup"] <= 1:
        text = "Speculation does not pay under any of these policies."
    for row in rows:
        if row["policy"] == "cascade":
            text += " Cascade: {speedup:.2f}x, {test_share:.0%} of its steps in tests.".format(
                **row
            )
    return _fill(text)


def _table(summary: "pd.DataFrame") -> str:
    """Return the policies as a table of at most 80 columns; what does not fit is left out."""
    from specmodel.base.units import format_si

    rows: list[Any] = summary.to_dict("records")
    labels = _labels(summary["policy"])
    for row in rows:
        row |= {name: format_si(row[name], "s") for name in ("tpot_p50", "tpot_p95")}
    columns: Columns = [("policy", list(labels.values()))]
    for title, cell in _CELLS.items():
        columns.append((title, [cell.format(**row).replace("nan-nan", "-") for row in rows]))
    if summary["regret"].isna().all():
        columns.pop()
    for spare in _SPARE:
        if table_width(columns) > 80:
            columns = [column for column in columns if column[0] != spare]
    notes = [_fill(f"{label}: {name}") for name, label in labels.items() if label != name]
    return "\n".join([align(columns, left=("policy",)), *notes])


def _labels(names: Iterable[str], width: int = 20) -> dict[str, str]:
    """Return what policies are called in a table: long names by a number, explained below it."""
    labels = {name: name for name in names}
    for number, name in enumerate((name for name in labels if len(name) > width), start=1):
        mark = f" [{number}]"
        labels[name] = name.split(":")[0][: width - len(mark)] + mark
    return labels


def _fill(text: str) -> str:
    """Wrap what the user named: words that are too long for a line are cut."""
    return textwrap.fill(text, 80, break_on_hyphens=False)
