"""``specmodel load``: a server under load, what rates do and the largest within targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError, install
from specmodel.cli import settings
from specmodel.cli.answering import answering, echo_warnings, told_progress
from specmodel.cli.settings import given, own, refuse_given
from specmodel.cli.where import where_options
from specmodel.show import loads
from specmodel.show.forms import Answer

if TYPE_CHECKING:
    from specmodel.serving import Arrivals, Lengths, Requests, Study, Trial

_RATES = (
    "Tell what these requests a second do: 1,2,4 or 1:16:x2.  [default: of a file, its own; with a"
    " target, the largest rate is found]"
)
_POLICIES = (
    "none, fixed:K, schedule (the best length by batch), table:FILE, sglang, goodput,"
    " adaptive-verification (vLLM's, at mean survival); cascade and bandit with --policy-state"
    " server.  [default: none, fixed:3, schedule]"
)
_LOADS: dict[str, tuple[Any, str]] = {
    "request_rate": ("RATES", _RATES),
    "users": ("VALUES", "Users who each ask again when answered, in place of rates."),
    "arrivals": ("LAW", "poisson, gamma:CV or bursts:N.  [default: poisson]"),
}
_TRAFFIC: dict[str, tuple[Any, str]] = {
    "workload": (
        "NAME|FILE",
        "Lengths: chat, code, summaries, math, or CSV of arrival_time, prompt_tokens,"
        " output_tokens.  [default: chat]",
    ),
    "tpot_target": ("SECONDS", "Time per output token that a request should meet."),
    "ttft_target": ("SECONDS", "Time to the first token that a request should meet."),
}
_SEARCH: dict[str, tuple[Any, str]] = {
    "attainment": (
        float,
        "Share of the requests that should meet both targets.  [default: 0.9]",
    ),
    "workers": (int, "Processes that share the search.  [default: 1]"),
    "scheduler": ("ADDRESS", "A Dask cluster in their place."),
}
_LARGEST: dict[str, tuple[Any, str]] = {
    "for_rate": (float, "Requests a second for which replicas and GPUs are told."),
    "replications": (
        int,
        "Runs of other requests at each rate that is tried.  [default: 5; 2 of 1000 without numba]",
    ),
}
_SERVER: dict[str, tuple[Any, str]] = {
    "prompt_length": (int, "Tokens of every prompt, in place of the workload's."),
    "output_length": (int, "Tokens of every output, likewise."),
    "requests": (int, "Requests of a run.  [default: 2000]"),
    "policy": ("LIST", _POLICIES),
    "policy_state": (["request", "server"], "Whose state policies have that keep one a request."),
    "trace": ("FILE|PRESET", "Recorded acceptance of requests (specmodel list presets)."),
    "max_running": (int, "Most running requests: max_num_seqs.  [default: vLLM's for the GPU]"),
    "token_budget": (int, "Most tokens of a step: max_num_batched_tokens.  [default: vLLM's]"),
    "block_size": (int, "KV entries of a block.  [default: 16]"),
    "reserved_tokens": (
        int,
        "KV slots kept for drafts beyond a step's own.  [default: the longest draft]",
    ),
    "prefill_interval": (int, "Steps from one with prefill to the next.  [default: 1]"),
    "prefill": (
        "HOW",
        "together, or apart:N, N servers that prefill and hand on.  [default: together]",
    ),
    "prefix_hit_rate": (float, "Share of a prompt found in the prefix cache.  [default: 0]"),
}
_LIMITS = ("max_running", "token_budget", "block_size", "reserved_tokens", "prefill_interval")
_LONGEST = (
    "Longest draft of any policy.  [default: as far as acceptance is known or is drafted at once,"
    " at most 10; with --trace 3]"
)
_USUAL = 3
"""Draft length that is compared where none is typed, and the longest with a trace [token]."""
_TTFT, _SHARE = 1.0, 0.9
"""What is taken where nothing is typed [s] [-]."""
_DRAWN, _DRAWN_TOKENS = 500, 1000
"""Requests drawn from each preset of acceptance [request], and their tokens [token]."""
_MOST_STEPS = 300_000
"""Steps that are logged [-]."""
_RATES_TRIED = 11
"""Rates that are tried for a policy, about [-]."""


def _added(options: Mapping[str, tuple[Any, str]]) -> settings.Add:
    return settings.options(*(own(name, *told) for name, told in options.items()))


def for_load_options(words: str) -> settings.Add:
    """Add the options with which another command finds what carries most; `words` say what."""
    return settings.options(_added(_TRAFFIC), _added(_SEARCH), own("for_load", bool, words))


def refuse_without_load(options: Mapping[str, Any], *spared: str) -> None:
    """Refuse the options of `for_load_options` where no load is simulated, but for those spared."""
    if not options["for_load"]:
        names = [name for name in (*_TRAFFIC, *_SEARCH) if name not in spared]
        refuse_given(options, names, "--for-load with it")


@settings.command()
@where_options()
@_added(_LOADS | _TRAFFIC | _LARGEST)
@settings.price_option()
@_added(_SEARCH | _SERVER)
@settings.acceptance_options()
@settings.option("max_draft_length", words=_LONGEST)
@settings.detail_options()
@own("seed", int, "Of all that is drawn.", default=0)
@own("steps", bool, "Tell of each step, the first 300,000, of one load and policy.")
@answering(rows=": a row for each rate, those tried included", figure="load or capacity")
def load(**options: Any) -> Answer:
    """Simulate a server under load: what rates do, or the largest rate within targets.

    With --request-rate or --users it tells running batch, TPOT and TTFT of these loads by policy;
    without, and with a target, the largest rate that each policy carries, and what it costs.

    Requests come at random, wait, and are batched continuously as vLLM 0.33 schedules them; each
    policy meets the same requests and the same luck. Beside given rates stands TPOT in the steady
    state by formula; where requests wait ever longer, a row says that its load is not carried. For
    the largest, each rate has several runs of other requests: up by a quarter to the first at
    which too few meet both targets, then halved. The first interval is of these runs, the second
    of what predicted times may be off by.

    \b
    Examples:
      specmodel load qwen3-30b-a3b h100 --request-rate 1,2,4
      specmodel load qwen3.5-397b 8xb200 --request-rate 2:16:x2 \\
          --workload code --policy none,fixed:1,fixed:3,sglang \\
          --ttft-target 1s --tpot-target 20ms
      specmodel load gpt-oss-120b h200 --users 32 --prompt-length 1000 \\
          --output-length 500
      specmodel load qwen3-30b-a3b h100 --tpot-target 20ms
      specmodel load qwen3.5-397b 8xb200 --tpot-target 20ms \\
          --workload code --for-rate 40 --gpu-hour-price 4.5
    """
    from specmodel.serving import largest_rates, under_load

    notes = [loads.USUAL_POLICIES] if options["policy"] is None else []
    targets = _targets(options)
    is_given = given(options, ("request_rate", "users")) or options["steps"]
    policies = _policies(options)
    if not is_given and targets != (None, None):
        trial, assumed = trial_from(options, policies)
        with searching(options, len(policies)) as how:
            costs = {name: options[name] for name in ("for_rate", "gpu_hour_price")}
            rows, tried = largest_rates(trial, policies, **costs, **how)
        return loads.largest(trial, rows, tried, assumed, notes)
    study, assumed = _study(options, policies)
    every = _arrivals(options, study.lengths)
    expected = "a target with it, and no rates or users, as it is for the largest rate"
    refuse_given(options, (*_LARGEST, *_SEARCH), expected)
    if options["steps"]:
        if len(policies) * len(every) > 1:
            raise InputError("steps", True, "one load, and one policy with --policy")
        return loads.steps(study, study.run(policies[0], every[0], log_steps=_MOST_STEPS))
    with told_progress(len(every) * len(policies), "Serving", "runs") as tell:
        price = options["gpu_hour_price"]
        rows = under_load(study, every, policies, targets, gpu_hour_price=price, progress=tell)
    return loads.at_rates(study, rows, targets, assumed, notes)


@contextmanager
def searching(options: Mapping[str, Any], pieces: int) -> Iterator[dict[str, Any]]:
    """Yield where so many searches are computed and who is told; say if they will take minutes."""
    from specmodel.serving.run import has_numba

    if not has_numba():
        usual = "2 runs of 1000 requests at each rate by default, not 5 of 2000"
        echo_warnings([f"without numba this takes minutes, with {usual}: {install('fast')}"])
    workers = 1 if options["workers"] is None else options["workers"]
    with told_progress(_RATES_TRIED * pieces, "Serving", "rates tried") as tell:
        yield {"workers": workers, "client": options["scheduler"], "progress": tell}


def trial_from(
    options: dict[str, Any], policies: Sequence[str], *, must_meet: bool = True
) -> tuple[Trial, dict[str, Any]]:
    """Return what is tried under policies, and what was assumed.

    Of options that a command does not have, what is usual is taken.
    """
    from specmodel.serving import Arrivals, Targets, Trial
    from specmodel.serving.carried import check_alone
    from specmodel.serving.promises import RUNS
    from specmodel.serving.run import has_numba

    ttft, tpot = _targets(options)
    told: dict[str, Any] = {}
    if ttft is None and tpot is not None:
        ttft, told["ttft_target"] = _TTFT, f"{_TTFT:g}s"
    share = options["attainment"]
    if share is None:
        share = told["attainment"] = _SHARE
    targets = Targets(ttft=ttft, tpot=tpot, attainment=share)
    usual = dict(zip(("replications", "requests"), RUNS[has_numba()], strict=True))
    runs, requests = (usual | given(options, usual)).values()
    study, assumed = _study(options | {"requests": requests}, policies, is_drawn=True)
    told["requests"] = f"{requests} and more, {runs} times"
    law = Arrivals(request_rate=1.0, **_law(options.get("arrivals")))
    trial = Trial(study=study, targets=targets, replications=runs, arrivals=law)
    if must_meet:
        check_alone(trial, policies)
    return trial, assumed | told


def _study(
    options: dict[str, Any], policies: Sequence[str], *, is_drawn: bool = False
) -> tuple[Study, dict[str, Any]]:
    """Return what is compared, and what was assumed; lengths of a file may be drawn at random."""
    from specmodel.base.units import check
    from specmodel.cli.options import case_from
    from specmodel.serving import Study

    drafts = any(name != "none" for name in policies)
    asked, longest = (
        options["max_draft_length"],
        max(_number_of("fixed", name) for name in policies),
    )
    if asked is not None:
        check("max_draft_length", asked, minimum=1, whole=True)
    case = case_from(options)
    assumed = {**case.assumed}
    seed, acceptance = options.get("seed", 0), None
    trace = _trace(options["trace"], seed) if options.get("trace") else None
    if trace is not None:
        refuse_given(options, ("acceptance", "acceptance_rate", "tokens_per_step"), "no --trace")
        longest = max(asked or _USUAL, longest) if drafts else longest
    elif drafts:
        is_open = asked is None and any(
            n != "none" and not _number_of("fixed", n) for n in policies
        )
        longest = max(case.longest_draft() if is_open else asked or 1, longest)
        case.longest_draft(longest)  # refuses what is too long
        assumed |= case.longest_told(longest) if is_open else {}
        acceptance = case.known_acceptance
        assumed |= {"acceptance": acceptance.source} if acceptance.source else {}
    lengths, told = _lengths(options, is_drawn=is_drawn)
    study = Study(
        deployment=case.deployment,
        acceptance=acceptance,
        max_draft_length=longest,
        lengths=lengths,
        num_requests=2000 if options["requests"] is None else options["requests"],
        seed=seed,
        limits=tuple(given(options, _LIMITS).items()),
        policy_state=options.get("policy_state") or "request",
        trace=trace,
        prefix_hit_rate=options.get("prefix_hit_rate") or 0.0,
        prefill_servers=_servers(options.get("prefill")),
    )
    return study, assumed | told | {"scheduling": "as vLLM 0.33"}


def _policies(options: dict[str, Any]) -> list[str]:
    """Return the policies typed, or none, a draft as long as is usual and known, and a schedule."""
    from specmodel.cli.options import case_from

    text = options["policy"]
    if text is None:
        is_known = options["trace"] is None
        longest = options["max_draft_length"] or _USUAL
        longest = case_from(options).longest_draft() if is_known else longest
        text = f"none,fixed:{min(longest, _USUAL)},schedule"
    policies = [name.strip() for name in text.split(",")]
    if len({*policies}) < len(policies):
        raise InputError("policy", text, "policies, each once")
    return policies


def _number_of(kind: str, text: str) -> int:
    """Return N of kind:N, 0 of any other text [-]."""
    name, _, number = text.partition(":")
    return int(number) if name == kind and number.isascii() and number.isdecimal() else 0


def _servers(text: str | None) -> int:
    """Return how many servers prefill apart, 0 if the same server does both."""
    servers = _number_of("apart", text or "")
    if not servers and text not in (None, "together"):
        raise InputError("prefill", text, "together, or apart:N, such as apart:2")
    return servers


def _trace(name: str, seed: int) -> Any:
    """Return recorded acceptance, or requests drawn from presets."""
    from specmodel.cli.trace import named_requests
    from specmodel.replay.blocks import Sample
    from specmodel.replay.chance import TRACE, stream
    from specmodel.replay.traces import join_traces, sample_trace

    source, _, _ = named_requests(name, {})
    if not isinstance(source, Sample):
        return source
    drawn = [
        sample_trace(process, _DRAWN, _DRAWN_TOKENS, stream(seed, TRACE, i))
        for i, process in enumerate(source.processes)
    ]
    return join_traces(drawn)


def _lengths(
    options: dict[str, Any], *, is_drawn: bool
) -> tuple[Lengths | Requests, dict[str, Any]]:
    """Return lengths of requests, and what was assumed of them."""
    from specmodel.prediction.predicting import plain_points
    from specmodel.serving import Lengths, read_requests
    from specmodel.serving.requests import workload

    prompt, output = (options[n] for n in ("prompt_length", "output_length"))
    name = options["workload"]
    if prompt is not None or output is not None:
        refuse_given(options, ("workload",), "either a workload or lengths")
        plain_points(1, None, prompt, output)  # refuses what is no length, or lacks
        return Lengths(prompt_tokens=prompt, output_tokens=output, longest=max(prompt, output)), {}
    if name is not None and Path(name).suffix:
        alone = () if is_drawn else ("requests", "arrivals")
        refuse_given(options, alone, "none, as the file has them")
        return read_requests(name), {}
    return workload(name or "chat"), {} if name else {"workload": "chat"}


def _arrivals(options: dict[str, Any], lengths: Lengths | Requests) -> list[Arrivals]:
    """Return the loads asked for."""
    from specmodel.base.ranges import parse_numbers, parse_values
    from specmodel.base.units import check
    from specmodel.serving import Arrivals, Requests

    law = _law(options["arrivals"])
    if options["users"] is not None:
        refuse_given(options, ("request_rate", "arrivals"), "either rates or users")
        users = parse_values("users", options["users"])
        check("users", users, minimum=1, whole=True)
        return [Arrivals(users=int(n)) for n in users]
    if options["request_rate"] is not None:
        rates = parse_numbers("request_rate", options["request_rate"])
    elif isinstance(lengths, Requests):
        rates = [lengths.rate]
    else:
        expected = "requests a second, such as 1,2,4, or --users, or for the largest --tpot-target"
        raise InputError("request_rate", None, expected)
    check("request_rate", rates, above=0, maximum=1e6)
    return [Arrivals(request_rate=float(rate), **law) for rate in rates]


def _law(text: str | None) -> dict[str, Any]:
    """Return the process of arrivals: poisson, gamma:2 or bursts:8."""
    name, has_number, number = (text or "poisson").partition(":")
    field = {"gamma": ("variation", float), "bursts": ("burst", int)}.get(name)
    expected = "poisson, gamma:CV or bursts:N, such as gamma:2"
    if name == "poisson" and not has_number:
        return {}
    try:
        if field is not None:
            return {"process": name, field[0]: field[1](number)}
    except ValueError:
        pass
    raise InputError("arrivals", text, expected)


def _targets(options: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the targets of TTFT and TPOT, None where none is typed [s]."""
    from specmodel.base.units import parse_seconds

    ttft, tpot = (
        None if options[name] is None else parse_seconds(name, options[name])
        for name in ("ttft_target", "tpot_target")
    )
    return ttft, tpot
