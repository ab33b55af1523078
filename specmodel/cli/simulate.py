"""``specmodel simulate``: its options, and the replay of policies that they ask for."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from specmodel import replay
from specmodel.base.errors import InputError
from specmodel.base.text import align, wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering, echo_warnings, progress_bar
from specmodel.cli.settings import flag, given, own, refuse_given, refuse_inputs
from specmodel.cli.where import where_options
from specmodel.prediction.table import Form, Row, columns_of, fitted
from specmodel.show import report
from specmodel.show.assumed import assumed_text
from specmodel.show.forms import Answer, plain_fields, records

DEFAULT_MAX_DRAFT_LENGTH = 7
DEFAULT_CONTEXT_LENGTH = 1024

_POLICIES = (
    "none, fixed:K, best-fixed, table:FILE, cascade, goodput, sglang, bandit, greedy, oracle,"
    " module:Class; settings after colons.  [default: none, fixed:1 to fixed:3, best-fixed,"
    " cascade, oracle]"
)
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
"""By name: the type, or a metavar for text; and the help."""

_HINDSIGHT = ("best-fixed", "greedy", "oracle")
_CELLS: dict[str, Form] = {
    "speedup": "{speedup:.3f}",
    "95 %": "{speedup_low:.2f}-{speedup_high:.2f}",
    "slow-\ndown": "{slowdown:.0%}",
    "tokens\na step": "{tokens_per_step:.2f}",
    "drafted\na step": "{drafted_tokens_per_step:.2f}",
    "in\ntests": "{test_share:.0%}",
    "TPOT\nmedian": lambda row: _seconds(row["tpot_p50"]),
    "95th": lambda row: _seconds(row["tpot_p95"]),
    "regret": "{regret:.0%}",
}
"""Columns of the table for people."""
_SPARE = ("95th", "drafted\na step", "TPOT\nmedian", "slow-\ndown", "in\ntests", "tokens\na step")
"""Columns that are dropped where the table is too wide, in this order."""


@settings.command()
@where_options(required=False)
@own("policy", "LIST", _POLICIES, to="policies")
@click.option("--suite", hidden=True)
@settings.options(*(own(name, kind, words) for name, (kind, words) in _OPTIONS.items()))
@settings.detail_options()
@own("seed", int, "Of all that is drawn.", default=0)
@own("workers", int, "Processes.", default=1)
@answering()
def simulate(*, suite: str | None, **options: Any) -> Answer:
    """Replay draft-length policies over an acceptance trace, at batch size 1.

    Every policy meets the same requests and the same luck. Speedups are over no speculation, with
    a 95 % interval over requests.

    \b
    Examples:
      specmodel simulate --target mixtral-8x7b --weight-dtype fp8 \\
          --drafter ngram --hardware rtx_6000_ada --memory-utilization 0.95 \\
          --trace code-ngram
      specmodel simulate --target olmoe-1b-7b --drafter eagle --hardware l4 \\
          --trace code-eagle+chat-eagle --requests 50 \\
          --policy none,cascade,cascade:backoff_factor=1,goodput,oracle --json
      specmodel simulate --step-times ./times.csv --trace ./trace.jsonl \\
          --policy none,my_module:MyPolicy --timeline ./request.png

    \b
    A policy of your own, in my_module.py of this folder:
      class MyPolicy:
          def propose(self):  # the next draft length, 0 for none
              return 3
          def observe(self, emitted_tokens, step_time):
              pass  # tokens that the step emitted, and its seconds
    Its __init__ may take step_time, max_draft_length, draft_lengths and
    generator, which are given, and settings: my_module:MyPolicy:window=20.
    All policies: specmodel list policies.
    """
    if suite is not None:
        raise InputError("suite", suite, "python calibration/cascade.py of a checkout")
    import numpy as np

    from specmodel.base.files import write_text
    from specmodel.replay.choices import choose

    _check_files(options)
    source, times, said = _replay_from(options)
    lengths = range(1, min(3, times.max_draft_length) + 1)
    usual = ["none", *(f"fixed:{k}" for k in lengths), "best-fixed", "cascade", "oracle"]
    typed = options["policies"]
    policies = usual if typed is None else [name.strip() for name in typed.split(",")]
    luck = {"seed": options["seed"], "variation": _variation(options, times, said["assumptions"])}
    steps = _steps(source, times, policies, options, luck) if options["timeline"] else None
    chosen = [choose(policy, Path.cwd()) for policy in policies]
    with progress_bar(source.num_requests) as bar:
        shared = {"workers": options["workers"], "progress": bar.update}
        requests = replay.simulate(source, times, chosen, **luck, **shared)
    summary = replay.summarise(requests, np.random.default_rng(options["seed"]))
    if steps is not None:
        from specmodel.show.plots.figures import TWO_COLUMNS, save_figure

        save_figure("timeline", steps, options["timeline"], "timeline", width=TWO_COLUMNS)
    if options["records"] is not None:
        write_text(options["records"], requests.to_csv(index=False), "records")
    if not options["as_json"]:
        echo_warnings(said["warnings"])
    known = {"fits": said["fits"]} if "fits" in said else {}  # unknown of measured times
    rows = [row | known for row in records(summary)]
    return Answer(
        page=lambda: _page(said, times, rows),
        fields=lambda: said | {"step_times": plain_fields(times), "policies": rows},
        rows=lambda: rows,
    )


def _check_files(options: dict[str, Any]) -> None:
    """Refuse files that cannot be written, before anything is computed."""
    from specmodel.base.files import check_writable
    from specmodel.show.plots.figures import check_figure

    if options["timeline"] is not None:
        check_figure("timeline", options["timeline"])
    if options["records"] is not None:
        if Path(options["records"]).suffix != ".csv":
            raise InputError("records", options["records"], "a .csv file")
        check_writable(options["records"], "records")
        names = ("trace", "step_times", "popularity", "target", "drafter", "hardware", "engine")
        inputs = {flag(name): options[name] for name in names}
        for policy in (options["policies"] or "").split(","):
            if policy.startswith("table:"):
                inputs[f"that of --policy {policy}"] = policy.partition(":")[2]
        refuse_inputs("records", options["records"], inputs)


def _replay_from(
    options: dict[str, Any],
) -> tuple[replay.blocks.Source, replay.ReplayTimes, dict[str, Any]]:
    """Return requests and step times, and their heading, assumptions and warnings."""
    from specmodel.cli.trace import named_requests

    if options["trace"] is None:
        raise InputError("trace", None, "a trace file or a preset (specmodel list presets)")
    if options["timeline"] is None:
        refuse_given(options, ["request", "timeline_policy"], "--timeline FILE with it")
    sizes = given(options, ("requests", "output_tokens"))
    source, requests, presets = named_requests(options["trace"], sizes)
    times, said, is_lookup = _times(options, source)
    if options["max_draft_length"] is None:
        said["assumptions"]["max_draft_length"] = times.max_draft_length
    others = [name for name in presets if name.endswith("-ngram") != is_lookup]
    if others and is_lookup is not None:
        kind = "n-gram look-up" if is_lookup else "a model or head"
        told = f"the drafter is {kind}, but the acceptance that of {', '.join(others)}"
        said["warnings"].append(told)
    said["heading"] += f"; {requests}"
    return source, times, said


def _variation(
    options: dict[str, Any], times: replay.ReplayTimes, assumed: dict[str, Any]
) -> replay.Variation:
    """Return how much step times vary; add what was not typed to what is assumed."""
    names = [*vars(replay.Variation())]
    variation = replay.Variation(**given(options, names))
    if not times.expert_time.any():
        refuse_given(options, names[1:], "none, as no step time depends on experts")
        names = names[:1]
    assumed |= {name: getattr(variation, name) for name in names if options[name] is None}
    return variation


def _times(
    options: dict[str, Any], source: replay.blocks.Source
) -> tuple[replay.ReplayTimes, dict[str, Any], bool | None]:
    """Return step times, what `_replay_from` says of them, and whether the drafter looks up."""
    import numpy as np

    from specmodel.cli.options import deployment_from
    from specmodel.cost.deploying import NAMES
    from specmodel.cost.memory import MemoryUse
    from specmodel.replay.times import DEFAULT_DRAFTER_UPKEEP

    own = {"context_length": DEFAULT_CONTEXT_LENGTH, "drafter_upkeep": DEFAULT_DRAFTER_UPKEEP}
    path = options["step_times"]
    if path is not None:
        for name in given(options, (*NAMES, "changes", *own)):
            typed = flag("set" if name == "changes" else name)
            raise InputError("step_times", path, f"no {typed} with it: the times are given")
        times = replay.read_replay_times(path)
        longest = _longest(options, min(times.max_draft_length, source.max_draft_length))
        said = {"heading": f"Times of {Path(path).name}", "assumptions": {}, "warnings": []}
        return times.up_to(longest), said, None
    for name in ("target", "drafter", "hardware"):
        if options[name] is None:
            raise InputError(name, None, "a name or path, or --step-times in place of all three")
    deployment, assumed = deployment_from(options, requests=1)
    is_lookup = deployment.drafter.is_lookup
    if is_lookup:
        refuse_given(options, ["drafter_upkeep"], "a model or head as drafter with it")
        del own["drafter_upkeep"]
        assumed.pop("proposal_rate", None)
    longest = _longest(options, source.max_draft_length, deployment.drafter.block_size)
    values: dict[str, Any] = own | given(options, own)
    times = replay.replay_times(deployment, max_draft_length=longest, **values)
    assumed |= {name: value for name, value in own.items() if options[name] is None}
    what = report.heading(deployment)
    memory = MemoryUse(deployment, values["context_length"], longest + 1)
    warnings = [
        *memory.warnings(np.ones(1), longest),
        *deployment.warnings(np.ones(1), np.array([1.0, longest])),
    ]
    said = {"heading": what, "assumptions": assumed, "warnings": warnings}
    return times, said | {"fits": bool(memory.max_batch_size >= 1)}, is_lookup


def _longest(options: dict[str, Any], known: int, block: int | None = None) -> int:
    """Return the longest draft considered, typed or default [token]."""
    asked, known = options["max_draft_length"], min(known, block or known)
    if asked is None:
        return min(DEFAULT_MAX_DRAFT_LENGTH, known)
    if not 1 <= asked <= known:
        expected = f"from 1 to {known}, the longest with acceptance and a step time"
        raise InputError("max_draft_length", asked, expected)
    return int(asked)


def _steps(
    source: replay.blocks.Source,
    times: replay.ReplayTimes,
    policies: list[str],
    options: dict[str, Any],
    luck: dict[str, Any],
) -> report.DataFrame:
    """Return the steps of the request to draw."""
    from specmodel.replay.choices import choose

    chosen = options["timeline_policy"]
    if chosen is None:
        single = [name for name in policies if name != "best-fixed"]
        chosen = "cascade" if "cascade" in single else (single or policies)[-1]
    try:
        policy = choose(chosen, Path.cwd())
        return replay.timeline(source, times, policy, request=options["request"] or 0, **luck)
    except InputError as error:
        if chosen in policies and chosen != "best-fixed":
            raise
        argument = re.sub(r"^policy\b", "timeline_policy", error.argument)
        raise InputError(argument, error.value, error.expected) from None


def _page(said: dict[str, Any], times: replay.ReplayTimes, rows: list[Row]) -> str:
    """Return the page for people: first the relative step times, which decide."""
    costs = ", ".join(f"{cost:.2f}" for cost in times.step_time / times.forward_time)
    plain = _seconds(times.forward_time)
    line = f"A plain pass takes {plain}; steps that verify 0, 1, ... draft tokens: {costs} of it."
    verdict = _verdict(rows) if said.get("fits", True) else report.if_it_fitted(_verdict(rows))
    sections = ["\n".join([_fill(said["heading"]), wrap(line), _fill(verdict)]), _table(rows)]
    values = said["assumptions"].items()
    assumed = {name: f"{v:g}" if isinstance(v, float) else v for name, v in values}
    return "\n\n".join([*sections, assumed_text(assumed)])


def _verdict(rows: list[Row]) -> str:
    """Say which policy did best, and how Cascade did if it was there."""
    rows = [row for row in rows if row["policy"].split(":")[0] not in _HINDSIGHT]
    if not rows:
        return "Policies that know the trace only: bounds, nothing to deploy."
    best = max(rows, key=lambda row: row["speedup"])
    text = f"Best: {best['policy']}, {best['speedup']:.2f}x."
    if best["speedup"] <= 1:
        text = "Speculation does not pay under any of these policies."
    for row in rows:
        if row["policy"] == "cascade":
            told = " Cascade: {speedup:.2f}x, {test_share:.0%} of its steps in tests."
            text += told.format_map(row)
    return text


def _table(rows: list[Row]) -> str:
    """Return a row for each policy, in at most 80 columns."""
    labels = _labels(row["policy"] for row in rows)
    forms: dict[str, Form] = {"policy": lambda row: labels[row["policy"]], **_CELLS}
    if all(row["regret"] is None for row in rows):
        del forms["regret"]
    columns, _ = fitted(columns_of(rows, forms.items()), _SPARE)
    notes = [_fill(f"{label}: {name}") for name, label in labels.items() if label != name]
    return "\n".join([align(columns, left=("policy",)), *notes])


def _labels(names: Iterable[str], width: int = 20) -> dict[str, str]:
    """Return the labels of policies; long names get a number that a note explains."""
    labels = {name: name for name in names}
    for number, name in enumerate((name for name in labels if len(name) > width), start=1):
        mark = f" [{number}]"
        labels[name] = name.split(":")[0][: width - len(mark)] + mark
    return labels


def _fill(text: str) -> str:
    """Wrap text with names that the user typed; longer words than a line are cut."""
    return textwrap.fill(text, 80, break_on_hyphens=False)


def _seconds(value: float) -> str:
    from specmodel.base.units import format_si  # which imports what help does not need

    return format_si(value, "s")
