"""``specmodel serve``: a deployment under load, simulated request by request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.text import listed, wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering, told_progress
from specmodel.cli.settings import given, own, refuse_given
from specmodel.cli.where import where_options
from specmodel.prediction.table import Form, Row, seconds
from specmodel.show import report
from specmodel.show.assumed import assumed_text
from specmodel.show.forms import Answer, fitted_table

if TYPE_CHECKING:
    from specmodel.cost.deployment import Deployment
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
_LIMITS = ("max_running", "token_budget", "block_size", "reserved_tokens", "prefill_interval")
_CELLS: dict[str, Form] = {
    "requests\n/s": lambda row: (
        "-" if row["request_rate"] is None else f"{row['request_rate']:.3g}"
    ),
    "users": lambda row: "-" if row["users"] is None else f"{row['users']}",
    "policy": "{policy}",
    "running": "{running:.1f}",
    "\nTPOT": lambda row: seconds(row["tpot"]),
    "TPOT by\nformula": lambda row: _or_dash(row["tpot_closed"]),
    "TPOT\n90 %": lambda row: seconds(row["tpot_p90"]),
    "TTFT\nmedian": lambda row: seconds(row["ttft_p50"]),
    "TTFT\n90 %": lambda row: seconds(row["ttft_p90"]),
    "meet\nboth": lambda row: "-" if row["goodput"] is None else f"{row['goodput']:.0%}",
    "carried": lambda row: "yes" if row["is_steady"] else "no",
}
"""Columns of the table for people."""
_TIMES = ("tpot", "tpot_p90", "ttft", "ttft_p50", "ttft_p90", "interval_p99")
UNITS = {
    **dict.fromkeys((*_TIMES, "tpot_closed", "ttft_closed", "time", "step_time"), "s"),
    **dict.fromkeys(("running", "running_closed", "users", "waiting", "decoding"), "request"),
    **dict.fromkeys(("request_rate", "carried_rate", "largest_rate_closed"), "request/s"),
    **dict.fromkeys(("tokens_per_step", "drafted_tokens_per_step"), "token"),
    **dict.fromkeys(("draft_length", "emitted_tokens"), "token"),
    "throughput": "token/s",
}
_USUAL = 3
"""Draft length that is compared where none is typed, and the longest with a trace [token]."""
LONGEST = (
    "Longest draft of any policy.  [default: as far as acceptance is known or is drafted at once,"
    " at most 10; with --trace 3]"
)
_MOST_STEPS = 300_000
"""Steps that are logged [-]."""
_DRAWN, _DRAWN_TOKENS = 500, 1000
"""Requests drawn from each preset of acceptance [request], and their tokens [token]."""
_MOST_TOLD = 4
"""Loads that the headline tells one by one [-]."""
_SPARE = ("TPOT\n90 %", "TTFT\n90 %", "TPOT by\nformula")


@settings.command()
@where_options()
@settings.options(*(own(name, *told) for name, told in OPTIONS.items()))
@settings.acceptance_options()
@settings.option("max_draft_length", words=LONGEST)
@settings.detail_options()
@own("seed", int, "Of all that is drawn.", default=0)
@own("steps", bool, "Tell of each step, the first 300,000, of one load and policy.")
@answering()
def serve(**options: Any) -> Answer:
    """Simulate a server under load: running batch, TPOT and TTFT by rate and policy.

    Requests come at random, wait, and are batched continuously as vLLM 0.33 schedules them; each
    policy meets the same requests and the same luck. Beside it stands TPOT in the steady state by
    formula. Where requests wait ever longer, a row says that its load is not carried.

    \b
    Examples:
      specmodel serve qwen3-30b-a3b h100 --request-rate 1,2,4
      specmodel serve qwen3.5-397b 8xb200 --request-rate 2:16:x2 \\
          --workload code --policy none,fixed:1,fixed:3,sglang \\
          --ttft-target 1s --tpot-target 20ms
      specmodel serve gpt-oss-120b h200 --users 32 --prompt-length 1000 \\
          --output-length 500
    """
    from specmodel.serving.study import not_carried, under_load

    policies = typed_policies(options)
    study, assumed = study_from(options, policies)
    loads = typed_loads(options, study.lengths)
    targets = typed_targets(options)
    if options["steps"]:
        return _steps(study, policies, loads)
    with told_progress(len(loads) * len(policies), "Serving", "runs") as tell:
        rows = under_load(study, loads, policies, targets, tell)
    warnings = [_not_carried(rate, most) for rate, most in not_carried(rows).items()]
    used = study.scheduler(drafts=True)
    said = {name: getattr(used, name) for name in _LIMITS}
    assumed |= {name: value for name, value in said.items() if options[name] is None}
    if study.first_token_time:
        added = f"{seconds(study.first_token_time)} (HTTP, tokenization, as fitted)"
        assumed["first_token_time"] = added
    fields = {
        "case": report.heading(study.deployment),
        "assumptions": assumed,
        "warnings": warnings,
        "scheduler": said,
        "units": {name: UNITS.get(name, "-") for name in rows[0]},
        "rows": rows,
    }
    return Answer(
        page=lambda: _page(study.deployment, rows, assumed, warnings, targets),
        fields=lambda: fields,
        rows=lambda: rows,
        warnings=warnings,
        case=report.heading(study.deployment),
    )


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
        limits=tuple(given(options, _LIMITS).items()),
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


def _steps(study: Study, policies: list[str], loads: list[Arrivals]) -> Answer:
    """Return the steps of one run; a page says how many, and the most of what ran."""
    if len(policies) * len(loads) > 1:
        raise InputError("steps", True, "one load, and one policy with --policy")
    rows = study.run(policies[0], loads[0], log_steps=_MOST_STEPS).step_rows
    running, waiting, used = (max(r[n] for r in rows) for n in ("running", "waiting", "kv_use"))
    told = f"{len(rows)} steps in {seconds(rows[-1]['time'])}, with at most {running:.0f} requests"
    told += f" running, {waiting:.0f} waiting and {used:.0%} of KV blocks in use."
    fields = {
        "case": report.heading(study.deployment),
        "units": {name: UNITS.get(name, "-") for name in rows[0]},
        "rows": rows,
    }
    page = wrap(f"{told} --csv has a row a step, which plot steps draws.")
    return Answer(page=lambda: page, fields=lambda: fields, rows=lambda: rows)


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


def _page(
    deployment: Deployment,
    rows: list[Row],
    assumed: dict[str, Any],
    warnings: list[str],
    targets: tuple[float | None, float | None],
) -> str:
    """Return the page for people: which policy is fastest at which load, then the table."""
    left_out = {"users" if rows[0]["users"] is None else "requests\n/s"}
    left_out |= {"meet\nboth"} if rows[0]["goodput"] is None else set()
    left_out |= {"carried"} if all(row["is_steady"] for row in rows) else set()
    forms = [(title, form) for title, form in _CELLS.items() if title not in left_out]
    words = [wrap(_verdict(rows)), wrap(report.heading(deployment))]
    words += [wrap(line) for line in report.behind(deployment)]
    told = [wrap(f"Warning: {warning}.") for warning in warnings]
    asked = dict(zip(("TTFT\n90 %", "TPOT\n90 %"), targets, strict=True))
    spare = sorted(_SPARE, key=lambda title: asked.get(title) is not None)
    table = fitted_table(rows, forms, spare, left=("policy",))
    note = "TPOT counts each token once; 90 % of requests stay below the columns so named."
    return "\n\n".join(["\n".join(words), *told, table, wrap(note), assumed_text(assumed)])


def _verdict(rows: list[Row]) -> str:
    """Say at each load, of many at both ends, which policies have the least time per token."""
    key = "request_rate" if rows[0]["users"] is None else "users"
    loads = [*dict.fromkeys(row[key] for row in rows)]
    told, last = list[str](), ""
    for load in loads if len(loads) <= _MOST_TOLD else (loads[0], loads[-1]):
        own = [row for row in rows if row[key] == load]
        steady = [row for row in own if row["is_steady"]]
        where = requests_a_second(load) if key == "request_rate" else f"{load} users"
        if not steady:
            told, last = [*told, f"{where} are not carried"], ""
            continue
        least = min(row["tpot"] for row in steady)
        best = [row["policy"] for row in steady if seconds(row["tpot"]) == seconds(least)]
        named = f"{listed(best)} {'is' if len(best) == 1 else 'are'} fastest"
        text = f"at {where} {'likewise' if named == last else named}, {seconds(least)} a token"
        plain = next((row for row in own if row["policy"] == "none"), None)
        if plain is not None and "none" not in best:
            how = f"{plain['tpot'] / least:.2f}x faster than without drafts"
            text += f", {how if plain['is_steady'] else 'a load not carried without drafts'}"
        told, last = [*told, text], named
    text = "; ".join(told)
    return f"{text[0].upper()}{text[1:]}."


def _not_carried(rate: float, most: float) -> str:
    """Say that no policy carries a rate, and about how much is carried [request/s]."""
    edge = f"at most about {most:.3g}"
    if rate >= most:
        return f"{requests_a_second(rate)} are not carried by any policy: {edge}"
    near = f"near what is carried, {edge} by formula, more --requests tell"
    return f"at {requests_a_second(rate)} requests wait ever longer under all policies; {near}"


def requests_a_second(rate: float) -> str:
    """Return a rate in words."""
    return f"{rate:.3g} request{'' if rate == 1 else 's'}/s"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else seconds(value)
