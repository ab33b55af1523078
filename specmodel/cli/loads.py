"""Loads as commands take them: options, arrivals, lengths, policies, targets and their study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.cli.settings import given, refuse_given

if TYPE_CHECKING:
    from specmodel.serving.requests import Arrivals, Lengths, Requests
    from specmodel.serving.study import Study

_RATES = "Requests a second: 1,2,4 or 1:16:x2.  [default: of a file, its own]"
_POLICIES = (
    "none, fixed:K, schedule (the best length by batch), table:FILE, sglang, goodput,"
    " adaptive-verification (vLLM's, at mean survival); cascade and bandit with --policy-state"
    " server.  [default: none, fixed:3, schedule]"
)
OPTIONS: dict[str, tuple[Any, str]] = {
    "request_rate": ("RATES", _RATES),
    "users": ("VALUES", "Users who each ask again when answered, in place of rates."),
    "arrivals": ("LAW", "poisson, gamma:CV or bursts:N.  [default: poisson]"),
    "workload": (
        "NAME|FILE",
        "Lengths: chat, code, summaries, math, or CSV of arrival_time, prompt_tokens,"
        " output_tokens.  [default: chat]",
    ),
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
    "ttft_target": ("SECONDS", "Time to the first token that a request should meet."),
    "tpot_target": ("SECONDS", "Time per output token that a request should meet."),
}
LIMITS = ("max_running", "token_budget", "block_size", "reserved_tokens", "prefill_interval")
_USUAL = 3
"""Draft length that is compared where none is typed, and the longest with a trace [token]."""
LONGEST = (
    "Longest draft of any policy.  [default: as far as acceptance is known or is drafted at once,"
    " at most 10; with --trace 3]"
)
USUAL_POLICIES = (
    "Policies: fixed:K drafts K tokens in each step, schedule as many as are best for the requests"
    " that run, none never."
)
NINETY = "90 % of requests stay below the columns so named."
"""What is said below tables of policies under load."""
_DRAWN, _DRAWN_TOKENS = 500, 1000
"""Requests drawn from each preset of acceptance [request], and their tokens [token]."""


def study_from(options: dict[str, Any], policies: list[str]) -> tuple[Study, dict[str, Any]]:
    """Return what is compared, and what was assumed in it."""
    from specmodel.base.units import check
    from specmodel.cli.options import (
        acceptance_from,
        deployment_from,
        longest_draft,
        longest_told,
    )
    from specmodel.serving.study import Study

    drafts = any(name != "none" for name in policies)
    asked, longest = options["max_draft_length"], max(map(_fixed_length, policies))
    if asked is not None:
        check("max_draft_length", asked, minimum=1, whole=True)
    deployment, assumed = deployment_from(options)
    trace = _trace(options["trace"], options["seed"])
    acceptance = _acceptance_of(trace) if trace else None
    if drafts and trace is not None:
        longest = max(asked or _USUAL, longest)
    elif drafts:
        is_open = asked is None and any(n != "none" and not _fixed_length(n) for n in policies)
        longest = max(longest_draft(options) if is_open else asked or 1, longest)
        longest_draft(options | {"max_draft_length": longest})  # refuses what is too long
        assumed |= longest_told(options, longest) if is_open else {}
        acceptance = acceptance_from(options)
        assumed |= {"acceptance": acceptance.source} if acceptance.source else {}
    if trace is not None:
        refuse_given(options, ("acceptance", "acceptance_rate", "tokens_per_step"), "no --trace")
    lengths, told = _lengths(options)
    study = Study(
        deployment=deployment,
        acceptance=acceptance or _none_accepted(),
        max_draft_length=longest,
        lengths=lengths,
        num_requests=2000 if options["requests"] is None else options["requests"],
        seed=options["seed"],
        limits=tuple(given(options, LIMITS).items()),
        policy_state=options["policy_state"] or "request",
        trace=trace,
        prefix_hit_rate=options["prefix_hit_rate"] or 0.0,
        prefill_servers=_servers(options["prefill"]),
    )
    return study, assumed | told | {"scheduling": "as vLLM 0.33"}


def typed_policies(options: dict[str, Any]) -> list[str]:
    """Return the policies typed, or none, a draft as long as is usual and known, and a schedule."""
    from specmodel.cli.options import longest_draft

    text = options["policy"]
    if text is None:
        is_known = options["trace"] is None
        longest = longest_draft(options) if is_known else options["max_draft_length"] or _USUAL
        text = f"none,fixed:{min(longest, _USUAL)},schedule"
    policies = [name.strip() for name in text.split(",")]
    if len({*policies}) < len(policies):
        raise InputError("policy", text, "policies, each once")
    return policies


def named(policy: str) -> str:
    """Return a policy as a sentence names it."""
    return "plain decoding" if policy == "none" else policy


def _fixed_length(policy: str) -> int:
    """Return the draft length of fixed:K, 0 of any other policy [token]."""
    name, _, length = policy.partition(":")
    return int(length) if name == "fixed" and length.isascii() and length.isdecimal() else 0


def _servers(text: str | None) -> int:
    """Return how many servers prefill apart, 0 if the same server does both."""
    how, _, number = (text or "together").partition(":")
    if how == "together" and not number:
        return 0
    if how == "apart" and number.isascii() and number.isdecimal() and int(number) > 0:
        return int(number)
    raise InputError("prefill", text, "together, or apart:N, such as apart:2")


def _none_accepted() -> Any:
    from specmodel.algebra.acceptance import Acceptance

    return Acceptance(acceptance_rate=0.0)


def _trace(name: str | None, seed: int) -> Any:
    """Return recorded acceptance, or requests drawn from presets."""
    if name is None:
        return None
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


def _acceptance_of(trace: Any) -> Any:
    """Return the acceptance by position that gives the mean tokens per step of a trace."""
    from specmodel.algebra.acceptance import Acceptance, acceptance_from_lengths
    from specmodel.replay.traces.statistics import steps_at

    lengths = range(1, min(trace.max_draft_length, 16) + 1)
    rates = acceptance_from_lengths([steps_at(trace, length)[0] for length in lengths])
    return Acceptance(acceptance_by_position=rates.tolist())


def _lengths(options: dict[str, Any]) -> tuple[Lengths | Requests, dict[str, Any]]:
    """Return lengths of requests, and what was assumed of them."""
    from specmodel.serving.requests import Lengths, read_requests, workload

    typed = given(options, ("prompt_length", "output_length"))
    name = options["workload"]
    if len(typed) == 1:
        missing = next(n for n in ("prompt_length", "output_length") if n not in typed)
        raise InputError(missing, None, f"a length, with --{next(iter(typed)).replace('_', '-')}")
    if typed:
        refuse_given(options, ("workload",), "either a workload or lengths")
        prompt, output = (typed[n] for n in ("prompt_length", "output_length"))
        for argument, value in typed.items():
            if value < 1:
                raise InputError(argument, value, "a whole number of at least 1")
        return Lengths(prompt_tokens=prompt, output_tokens=output, longest=max(prompt, output)), {}
    if name is not None and Path(name).suffix:
        refuse_given(options, ("requests", "arrivals"), "none, as the file has them")
        return read_requests(name), {}
    return workload(name or "chat"), {} if name else {"workload": "chat"}


def typed_loads(options: dict[str, Any], lengths: Lengths | Requests) -> list[Arrivals]:
    """Return the loads asked for."""
    from specmodel.base.ranges import parse_numbers, parse_values
    from specmodel.base.units import check
    from specmodel.serving.requests import Arrivals, Requests

    law = typed_law(options["arrivals"])
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
        raise InputError("request_rate", None, "requests a second, such as 1,2,4, or --users")
    for rate in rates:
        if not 0 < rate < 1e6:
            raise InputError("request_rate", rate, "numbers above 0")
    return [Arrivals(request_rate=float(rate), **law) for rate in rates]


def typed_law(text: str | None) -> dict[str, Any]:
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


def typed_targets(options: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the targets of TTFT and TPOT, None where none is typed [s]."""
    from specmodel.base.units import parse_seconds

    ttft, tpot = (
        None if options[name] is None else parse_seconds(name, options[name])
        for name in ("ttft_target", "tpot_target")
    )
    return ttft, tpot
