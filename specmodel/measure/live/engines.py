"""What vLLM and SGLang say of themselves, and their names of counters, methods and options."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specmodel.base.errors import InputError
from specmodel.base.units import check
from specmodel.measure.live.answers import whole
from specmodel.measure.scrapes import ACCEPTED, BY_POSITION, DRAFTED, DRAFTS, samples

METHODS: dict[str, str] = {
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "draft_model": "STANDALONE",
    "dflash": "DFLASH",
    "ngram": "NGRAM",
}
"""Drafting methods by vLLM's names, with SGLang's names."""

COUNTERS: dict[str, dict[str, str]] = {
    "vllm": {
        "requests": "vllm:request_success_total",
        "prompt_tokens": "vllm:prompt_tokens_total",
        "output_tokens": "vllm:generation_tokens_total",
        "cached_tokens": "vllm:prompt_tokens_cached_total",
        "preemptions": "vllm:num_preemptions_total",
        "tpot_seconds": "vllm:request_time_per_output_token_seconds_sum",
        "tpot_count": "vllm:request_time_per_output_token_seconds_count",
        "drafts": DRAFTS,
        "draft_tokens": DRAFTED,
        "accepted_tokens": ACCEPTED,
    },
    "sglang": {
        "requests": "sglang:num_requests_total",
        "prompt_tokens": "sglang:prompt_tokens_total",
        "output_tokens": "sglang:generation_tokens_total",
        "cached_tokens": "sglang:cached_tokens_total",
        "preemptions": "sglang:num_retracted_requests_total",
        "tpot_seconds": "sglang:request_time_per_output_token_seconds_sum",
        "tpot_count": "sglang:request_time_per_output_token_seconds_count",
        "drafts": "sglang:spec_verify_calls_total",
    },
}
"""For each engine, the sample in a scrape that holds a count, summed over its labels. vLLM
counts tokens as they are made and requests as they end, SGLang all of them as a request ends."""

RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")
"""Requests in vLLM right now. SGLang's gauges are as old as its last line of log."""
_STARTED = "process_start_time_seconds"


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """Counters of an engine at one moment."""

    engine: str
    counts: Mapping[str, float]  # over all models and replicas; without what was not counted yet
    positions: tuple[float, ...] = ()  # accepted tokens by position, from vLLM; all it can draft
    running: float | None = None  # requests in the engine, if it says so
    started: float | None = None  # when the process began, if it says so [s]


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """What a server drafts."""

    draft_length: int | None  # in depth; None where it changes or the server does not say
    topk: int | None = 1  # branches of a tree per level; None where the server does not say
    verify_tokens: int | None = None


def read_scrape(text: str, where: str) -> Scrape | None:
    """Return the counters in the text of ``/metrics``; None where it is of neither engine."""
    sums, positions = defaultdict[str, float](float), defaultdict[int, float](float)
    for name, labels, value in samples(text, where):
        sums[name] += value
        if name == BY_POSITION and labels.get("position", "").isdecimal():
            positions[int(labels["position"])] += value
    engines = {name.partition(":")[0] for name in sums} & set(COUNTERS)
    if not engines:
        return None
    engine = engines.pop()
    named = COUNTERS[engine].items()
    for name in {*COUNTERS[engine].values(), *RUNNING, BY_POSITION, _STARTED} & set(sums):
        check(f"{where} {name}", sums[name], minimum=0.0, maximum=2.0**53)
    return Scrape(
        engine=engine,
        counts={what: sums[name] for what, name in named if name in sums},
        positions=tuple(positions[i] for i in sorted(positions)),
        running=sum(sums[name] for name in RUNNING) if RUNNING[0] in sums else None,
        started=sums.get(_STARTED),
    )


def growth(earlier: Scrape, later: Scrape) -> dict[str, float]:
    """Return what was counted between two scrapes; refuse those of a server that was restarted.

    A counter that the earlier scrape lacks began at 0.
    """
    names = COUNTERS[later.engine]
    expected = "a server that goes on counting: it was restarted meanwhile; rows are kept, and "
    expected += "the same command goes on"
    if earlier.engine != later.engine:
        raise InputError("server", later.engine, f"{earlier.engine} as before")
    if earlier.started != later.started:
        raise InputError(_STARTED, later.started, expected)
    for what, then in earlier.counts.items():
        if later.counts.get(what, 0.0) < then:
            raise InputError(names[what], later.counts.get(what), f"{then:.0f} or more, {expected}")
    if len(earlier.positions) != len(later.positions):
        raise InputError(BY_POSITION, len(later.positions), expected)
    grown = {what: now - earlier.counts.get(what, 0.0) for what, now in later.counts.items()}
    pairs = zip(earlier.positions, later.positions, strict=True)
    return grown | {f"position {i}": now - then for i, (then, now) in enumerate(pairs)}


def speculation(scrape: Scrape | None, info: Mapping[str, Any]) -> Speculation:
    """Return what a server drafts by SGLang's ``/server_info`` or vLLM's counters; else nothing."""
    if info.get("speculative_algorithm"):
        told = [info.get(f"speculative_{n}") for n in ("num_steps", "eagle_topk")]
        verified = whole(info.get("speculative_num_draft_tokens"))
        if info.get("speculative_adaptive") or not verified:
            return Speculation(draft_length=None, topk=None)
        steps, topk = (whole(n) or 1 for n in told)
        # a block drafter's steps are 1, however long its block
        length = verified - 1 if topk == 1 else steps
        return Speculation(draft_length=length, topk=topk, verify_tokens=verified)
    length = len(scrape.positions) if scrape else 0
    return Speculation(draft_length=length, verify_tokens=length + 1)


def launch_options(engine: str, draft_length: int, method: str, draft_model: str = "") -> str:
    """Return the options with which an engine drafts so many tokens, of both if it is neither."""
    if method not in METHODS:
        raise InputError("method", method, ", ".join(METHODS))
    if engine not in COUNTERS:
        both = (launch_options(name, draft_length, method, draft_model) for name in COUNTERS)
        return "  or  ".join(both)
    if engine == "vllm":
        if not draft_length:
            return "(no --speculative-config)"
        told: dict[str, Any] = {"method": method} | ({"model": draft_model} if draft_model else {})
        told["num_speculative_tokens"] = draft_length
        return f"--speculative-config '{json.dumps(told)}'"
    if not draft_length:
        return "--enable-metrics (and no --speculative-...)"
    words = ["--enable-metrics", f"--speculative-algorithm {METHODS[method]}"]
    words += [f"--speculative-draft-model-path {draft_model}"] if draft_model else []
    if method != "ngram":
        words += [f"--speculative-num-steps {draft_length}", "--speculative-eagle-topk 1"]
    else:
        words.append("--speculative-ngram-max-bfs-breadth 1")
    return " ".join([*words, f"--speculative-num-draft-tokens {draft_length + 1}"])
