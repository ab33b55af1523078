"""``specmodel load``: a server under load, what rates do and the largest within targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from specmodel.base.errors import given, install, refuse_given
from specmodel.cli import settings
from specmodel.cli.output import answering, echo_warnings, told_progress
from specmodel.cli.positionals import where_options
from specmodel.cli.settings import own
from specmodel.show import loads
from specmodel.show.forms import Answer

_RATES = (
    "Tell what these requests a second do: 1,2,4 or 1:16:x2.  [default: of a file, its own; with a"
    " target, the largest rate is found]"
)
_POLICIES = (
    "none, fixed:K, schedule (the best length by batch), table:FILE, below:B:K, sglang, goodput,"
    " adaptive-verification (vLLM's, at mean survival); cascade and bandit with --policy-state"
    " server.  [default: none, fixed:3, schedule; of a drain, what pays]"
)
_LOADS: dict[str, tuple[Any, str]] = {
    "request_rate": ("RATES", _RATES),
    "users": ("VALUES", "Users who each ask again when answered, in place of rates."),
    "arrivals": ("LAW", "poisson, gamma:CV or bursts:N.  [default: poisson]"),
}
_DRAINS: dict[str, tuple[Any, str]] = {
    "drain": (int, "Prompts that are all there at once, to be answered to the end."),
    "samples": (int, "Answers to each prompt of a drain.  [default: 1]"),
    "servers": (int, "Servers that share a drain; the slowest decides.  [default: 1]"),
    "finished": (float, "Share of the answers that a drain waits for.  [default: 1]"),
    "by_formula": (bool, "Drain by formula alone, at the lengths expected of a law."),
}
_TRAFFIC: dict[str, tuple[Any, str]] = {
    "workload": (
        "NAME|FILE",
        "Lengths: chat, code, summaries, math, lognormal:FILE, or a recording: CSV of arrival_time,"
        " prompt_tokens, output_tokens; Azure's, BurstGPT's, Mooncake's, Qwen-Bailian's; vLLM's"
        " --save-detailed, AIPerf's records.  [default: chat]",
    ),
    "time_window": ("FROM:TO", "Part of a recording: seconds since its first, or as 10m:1h."),
    "time_unit": (["s", "ms", "us", "ns"], "Unit of its times.  [default: by columns and times]"),
    "hash_block": (int, "Tokens that one of its hash_ids names.  [default: by prompts]"),
    "tpot_target": ("SECONDS", "Time per output token that a request should meet."),
    "ttft_target": ("SECONDS", "Time to the first token that a request should meet."),
}
_SEARCH: dict[str, tuple[Any, str]] = {
    "attainment": (float, "Share of the requests that should meet both targets.  [default: 0.9]"),
    "workers": (int, "Processes that share the search.  [default: 1]"),
    "scheduler": ("ADDRESS", "A Dask cluster in their place."),
}
_LARGEST: dict[str, tuple[Any, str]] = {
    "for_rate": (float, "Requests a second for which replicas and GPUs are told."),
    "replications": (
        int,
        "Runs of other requests at each rate that is tried.  [default: 5; 2 of 500 without numba]",
    ),
}
_BY_REQUEST = (
    "How much requests differ in what is accepted: standard deviation of the logit of a token's"
    " acceptance, tokens per step in all kept; 0.24 is typical of mathematics, 0.45 of code and"
    " chat.  [default: 0]"
)
_SERVER: dict[str, tuple[Any, str]] = {
    "prompt_length": (
        "LENGTH",
        "Tokens of every prompt, in place of the workload's, or lognormal:MEAN:SPREAD.",
    ),
    "output_length": ("LENGTH", "Tokens of every output, likewise."),
    "requests": (
        int,
        "Requests of a run; of a file, drawn from it.  [default: 2000; of a file, its own]",
    ),
    "policy": ("LIST", _POLICIES),
    "policy_state": (["request", "server"], "Whose state policies have that keep one a request."),
    "trace": ("FILE|PRESET", "Recorded acceptance of requests (specmodel list presets)."),
    "acceptance_by_request": (float, _BY_REQUEST),
    "max_running": (int, "Most running requests: max_num_seqs.  [default: vLLM's for the GPU]"),
    "token_budget": (int, "Most tokens of a step: max_num_batched_tokens.  [default: vLLM's]"),
    "prefill": (
        "HOW",
        "together, or disaggregated:N, N servers that prefill and hand on.  [default: together]",
    ),
    "prefix_hit_rate": (float, "Share of a prompt found in the prefix cache.  [default: 0]"),
    "shared_prefix": (int, "Tokens that all prompts begin with, cached after the first request."),
}
_LONGEST = (
    "Longest draft of any policy.  [default: as far as acceptance is known or is drafted at once,"
    " at most 10; with --trace 3]"
)
_WITH_LOAD = (
    "--for-load with it, which simulates requests that come and wait; of a steady batch predict and"
    " compare have --tpot-target"
)
_RATES_TRIED = 11
"""Rates that are tried for a policy, about [-]."""


def for_load_options(words: str) -> settings.Add:
    """Add the options of a load to another command; `words` is the help of --for-load."""
    return settings.options(settings.owned(_TRAFFIC | _SEARCH), own("for_load", bool, words))


def refuse_without_load(options: Mapping[str, Any], *spared: str) -> None:
    """Refuse the options of `for_load_options` where no load is simulated, but for those spared."""
    if not options["for_load"]:
        names = [name for name in (*_TRAFFIC, *_SEARCH) if name not in spared]
        refuse_given(options, names, _WITH_LOAD)


@settings.command()
@where_options()
@settings.owned(_LOADS | _DRAINS | _TRAFFIC | _LARGEST)
@settings.PRICE
@settings.owned(_SEARCH | _SERVER)
@settings.acceptance_options()
@settings.option("max_draft_length", words=_LONGEST)
@settings.detail_options(of="load")
@settings.SEED
@answering(rows=": a row for each rate, those tried included", figure="load, capacity or drain")
def load(**options: Any) -> Answer:
    """Simulate a server under load: what rates do, or the largest rate within targets.

    With --request-rate or --users it tells running batch, TPOT and TTFT of these loads by policy;
    without, and with a target, the largest rate that each policy carries, and what it costs.

    Requests come at random, wait, and are batched continuously as vLLM 0.33 schedules them; each
    policy meets the same requests and the same noise. Beside given rates stands TPOT in the steady
    state by formula; where requests wait ever longer, a row says that its load is not carried. For
    the largest, each rate has several runs of other requests: up by a quarter to the first at
    which too few meet both targets, then halved. The first interval is of these runs, the second
    of what predicted times may be off by.

    With --drain all prompts are there at once, as in rollouts and offline batches: how long until
    all answers are done, at which batch sizes, and what speculation saves.

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
      specmodel load qwen3-30b-a3b h200 --drain 64 --samples 4 \\
          --prompt-length 200 --output-length lognormal:1000:0.8
    """
    from specmodel.serving.asked import FOR_LARGEST, load_question

    question = load_question(arguments_of_load(options))
    if question.trial is not None:
        with searching(options, len(question.policies)) as how:
            return loads.answer(question.answered(**how))
    refuse_given(options, ("workers", "scheduler"), FOR_LARGEST)
    with told_progress(max(len(question.loads), 1) * len(question.policies), "runs") as tell:
        found: Answer = question.answered(progress=tell).view()
        return found


@contextmanager
def searching(options: Mapping[str, Any], pieces: int) -> Iterator[dict[str, Any]]:
    """Yield workers, client and progress bar for `pieces` searches; warn if numba is missing."""
    from specmodel.serving.run import has_numba

    if not has_numba():
        usual = "2 short runs at each rate by default, rates 3 % apart, up to a tenth too much"
        echo_warnings([f"without numba the search is coarse, with {usual}: {install('fast')}"])
    workers = 1 if options["workers"] is None else options["workers"]
    with told_progress(_RATES_TRIED * pieces, "rates tried") as tell:
        yield {"workers": workers, "client": options["scheduler"], "progress": tell}


def arguments_of_load(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a case and a load from options, by name."""
    from specmodel.cli.options import arguments_from

    if not options.get("for_load", True):
        return arguments_from(options) | given(options, ["tpot_target"])
    from specmodel.serving.asked import OF_LOADS

    typed = given(options, ("prompt_length", "output_length"))
    laws = {name: value for name, value in typed.items() if ":" in str(value)}
    told = arguments_from(options | dict.fromkeys(laws))
    return told | given(options, (*OF_LOADS, "for_load")) | laws
