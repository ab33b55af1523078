"""``specmodel simulate``: its options, and the replay of policies that they ask for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from specmodel import replay
from specmodel.base.errors import InputError, given, refuse_given
from specmodel.cli import settings
from specmodel.cli.answering import answering, progress_bar
from specmodel.cli.settings import flag, own, refuse_inputs
from specmodel.cli.where import where_options
from specmodel.show import report
from specmodel.show.forms import Answer, records
from specmodel.show.replayed import fields_of, page

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
        "Acceptance: a trace, or a preset (specmodel list presets); with + a mix of presets."
        "  [required]",
    ),
    "requests": (int, "Requests drawn from a preset.  [default: 300]"),
    "output_tokens": (int, "Output tokens of a request drawn from a preset.  [default: 512]"),
    "runaway_share": (
        float,
        "Of requests drawn that repeat themselves until cut off; presets of code and chat know"
        " such requests.  [default: 0]",
    ),
    "max_draft_length": (int, "Longest draft considered.  [default: 7]"),
    "context_length": (
        int,
        "KV entries before the first step; each token adds one."
        "  [default: prompts that the trace has, or 1024]",
    ),
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


@settings.command()
@where_options(required=False)
@own("policy", "LIST", _POLICIES, to="policies")
@settings.options(*(own(name, kind, words) for name, (kind, words) in _OPTIONS.items()))
@own("fixed_context", bool, "Context does not grow in a request.", default=None)
@own(
    "policy_state",
    ["request", "server"],
    "Who keeps what a policy learned: each request, or eight servers that requests are dealt to."
    "  [default: as its source: servers for goodput and sglang]",
)
@settings.detail_options()
@own("seed", int, "Of all that is drawn.", default=0)
@own("workers", int, "Processes.", default=1)
@answering()
def simulate(**options: Any) -> Answer:
    """Replay draft-length policies over an acceptance trace, at batch size 1.

    Every policy meets the same requests and the same luck. Speedups are over no speculation: of the
    whole workload, with a 95 % interval over requests, and of single requests, the mean, the
    5th percentile and the worst. The oracle and best-fixed know the requests beforehand: bounds,
    not among the best. What policies do at larger batches is a matter of serving.

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
              pass  # tokens accepted + 1, the target's own; and seconds
    Its __init__ may take step_time, max_draft_length, draft_lengths and
    generator, which are given, and settings: my_module:MyPolicy:window=20.
    All policies: specmodel list policies.
    """
    import numpy as np

    from specmodel.base.files import write_text
    from specmodel.replay.choices import choose

    _check_files(options)
    source, times, said, behind = _replay_from(options)
    lengths = range(1, min(3, times.max_draft_length) + 1)
    usual = ["none", *(f"fixed:{k}" for k in lengths), "best-fixed", "cascade", "oracle"]
    typed = options["policies"]
    policies = usual if typed is None else [name.strip() for name in typed.split(",")]
    luck = {
        "seed": options["seed"],
        "variation": _variation(options, times, said["assumptions"]),
        "policy_state": options["policy_state"],
    }
    steps = _steps(source, times, policies, options, luck) if options["timeline"] else None
    chosen = [choose(policy, Path.cwd()) for policy in policies]
    with progress_bar(source.num_requests) as bar:
        shared = {"workers": options["workers"], "progress": bar.update}
        requests = replay.simulate(source, times, chosen, **luck, **shared)
    summary = replay.summarise(requests, np.random.default_rng(options["seed"]))
    if steps is not None:
        from specmodel.show.plots.figures import TWO_COLUMNS, save_figure

        steps = steps.assign(case=said["heading"])
        save_figure("timeline", steps, options["timeline"], "timeline", width=TWO_COLUMNS)
    if options["records"] is not None:
        write_text(options["records"], requests.to_csv(index=False), "records")
    known = {"fits": said["fits"]} if "fits" in said else {}  # unknown of measured times
    assumed = [replay.assumed(choice, options["policy_state"]) for choice in chosen]
    told = zip(records(summary), assumed, strict=True)
    rows = [row | known | {"assumed": text} for row, text in told]
    return Answer(
        page=lambda: page(said, times, rows, behind),
        fields=lambda: said | {"step_times": fields_of(times), "policies": rows},
        rows=lambda: rows,
        warnings=said["warnings"],
        case=said["heading"],
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
        names = ("trace", "step_times", "target", "drafter", "hardware", "engine")
        inputs = {flag(name): options[name] for name in names}
        inputs |= {
            f"that of --set {text}": text.partition("=")[2]
            for text in options["changes"]
            if text.startswith("popularity=")
        }
        for policy in (options["policies"] or "").split(","):
            if policy.startswith("table:"):
                inputs[f"that of --policy {policy}"] = policy.partition(":")[2]
        refuse_inputs("records", options["records"], inputs)


def _replay_from(
    options: dict[str, Any],
) -> tuple[replay.blocks.Source, replay.ReplayTimes, dict[str, Any], list[str]]:
    """Return requests, step times, their heading, assumptions and warnings, and what is behind."""
    from specmodel.replay.named import named_requests
    from specmodel.replay.traces import Trace

    if options["trace"] is None:
        raise InputError("trace", None, "a trace file or a preset (specmodel list presets)")
    if options["timeline"] is None:
        refuse_given(options, ["request", "timeline_policy"], "--timeline FILE with it")
    sizes = given(options, ("requests", "output_tokens", "runaway_share"))
    source, requests, presets = named_requests(options["trace"], sizes)
    if isinstance(source, Trace) and options["context_length"] is not None:
        source = replace(source, prompt_tokens=None)  # all begin as typed
    times, said, deployment = _times(options, source)
    said["warnings"] += _refusals(options)
    if options["max_draft_length"] is None:
        said["assumptions"]["max_draft_length"] = times.max_draft_length
    is_lookup = deployment and deployment.drafter.is_lookup
    others = [name for name in presets if name.endswith("-ngram") != is_lookup]
    if others and deployment:
        kind = "n-gram look-up" if is_lookup else "a model or head"
        told = f"the drafter is {kind}, but the acceptance that of {', '.join(others)}"
        said["warnings"].append(told)
    said["heading"] += f"; {requests}"
    return source, times, said, report.behind(deployment) if deployment else []


def _refusals(options: dict[str, Any]) -> list[str]:
    """Return what engines would say to a policy of theirs with this drafter or layout."""
    from specmodel.replay.policies.sglang import METHODS

    names = [name.strip() for name in (options["policies"] or "").split(",")]
    if not any(name.split(":")[0] == "sglang" for name in names):
        return []
    reasons = []
    if options["drafter"] is not None and options["drafter"] not in METHODS:
        reasons.append(f"it adapts {', '.join(METHODS)} only, not {options['drafter']}")
    if (options["data_parallel"] or 1) > 1:
        reasons.append("it does not adapt under data-parallel attention")
    return [f"SGLang would keep a static draft length: {reason}" for reason in reasons]


def _growth(options: dict[str, Any], source: replay.blocks.Source) -> tuple[float, float]:
    """Return the context of the first step of all requests, and how much it may grow [token]."""
    typed = options["context_length"]
    if isinstance(source, replay.Sample):
        start, longest = DEFAULT_CONTEXT_LENGTH, source.longest_tokens
    else:
        start, longest = DEFAULT_CONTEXT_LENGTH, int(source.output_tokens.max())
        prompts = source.prompt_tokens
        if typed is None and prompts is not None and not options["fixed_context"]:
            start = int(prompts.min())
            longest = int((prompts + source.output_tokens).max()) - start
    start = start if typed is None else typed
    return start, 0 if options["fixed_context"] else longest


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
) -> tuple[replay.ReplayTimes, dict[str, Any], report.Deployment | None]:
    """Return step times, what `_replay_from` says of them, and the deployment they are of."""
    import numpy as np

    from specmodel.cli.options import deployment_from
    from specmodel.cost.deploying import NAMES
    from specmodel.cost.memory import MemoryUse
    from specmodel.replay.times import DEFAULT_DRAFTER_UPKEEP

    own = {"context_length": DEFAULT_CONTEXT_LENGTH, "drafter_upkeep": DEFAULT_DRAFTER_UPKEEP}
    path = options["step_times"]
    if path is not None:
        for name in given(options, (*NAMES, "changes", *own, "fixed_context")):
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
    if deployment.drafter.is_lookup:
        refuse_given(options, ["drafter_upkeep"], "a model or head as drafter with it")
        del own["drafter_upkeep"]
        assumed.pop("proposal_rate", None)
    longest = _longest(options, source.max_draft_length, deployment.drafter.block_size)
    own["context_length"], growth = _growth(options, source)
    values: dict[str, Any] = own | given(options, own)
    times = replay.replay_times(deployment, max_draft_length=longest, growth=growth, **values)
    assumed |= {name: value for name, value in own.items() if options[name] is None}
    if growth:
        assumed["growth_of_context"] = growth
    what = report.heading(deployment)
    memory = MemoryUse(deployment, values["context_length"] + growth, longest + 1)
    warnings = [
        *memory.warnings(np.ones(1), longest),
        *deployment.warnings(np.ones(1), np.array([1.0, longest])),
    ]
    said = {"heading": what, "assumptions": assumed, "warnings": warnings}
    return times, said | {"fits": bool(memory.max_batch_size >= 1)}, deployment


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
