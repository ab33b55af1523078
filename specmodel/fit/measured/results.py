"""One result of vLLM's, SGLang's, GuideLLM's or AIPerf's benchmark in JSON, read as a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from specmodel.algebra.acceptance import conditional_acceptance, mean_tokens_per_step
from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.base.errors import InputError
from specmodel.base.records import read_mapping
from specmodel.base.tables import as_number
from specmodel.fit.measured.runs import Run, seen_batch
from specmodel.fit.measured.tables import Cells, check_milliseconds
from specmodel.measure.arguments import proposal_share

NEAR_WHOLE = 0.05  # how far a run's mean draft length may be from a whole number [token]

FORMATS = (
    "JSON of vllm bench serve --save-result, sglang.bench_serving --output-file, GuideLLM or AIPerf"
    " (profile_export_aiperf.json), or CSV with speedup, tokens_per_s, tpot_ms or step_ms"
    " (base_..., spec_...)"
)
"""The accepted formats, for messages."""


class _Format(Struct, frozen=True, kw_only=True):
    """Where the result of a tool has what a run needs; a dot leads to a key within another."""

    marks: Sequence[str]  # keys that tell whose result it is
    completed: str  # requests that finished [request]
    prompt_tokens: str  # of these requests together [token]
    output_tokens: str  # of these requests together [token]
    throughput: str  # output tokens of all requests [token/s]
    tpot: str  # mean time per output token after the first [ms]
    event: str = ""  # mean time from one event of a stream to the next [ms]
    own: Callable[[Cells], dict[str, Any]]  # what was asked, and what drafted


def json_run(values: Any, source: str) -> Run:
    """Return the run of one result."""
    keys = list(values) if isinstance(values, dict) else []
    for form in _TOOLS:
        if {*form.marks} <= {*keys}:
            return _run(Cells(values, f"{source} "), source, form)
    raise InputError(source, ", ".join(keys[:8]) or values, FORMATS)


def _run(found: Cells, source: str, form: _Format) -> Run:
    """Return the run of a result of this form."""
    completed = found.positive(form.completed, "at least one finished request")
    expected = "milliseconds above 0: of streams with more than one token (AIPerf: --streaming;"
    expected += " vLLM: TPOT among --percentile-metrics)"
    tpot = found.positive(form.tpot, expected)
    check_milliseconds([tpot], f"{source} {form.tpot}")
    prompt = found.positive(form.prompt_tokens, "a positive number of tokens")
    output = found.positive(form.output_tokens, "a positive number of tokens")
    rate = found.positive(form.throughput, "tokens a second above 0")
    event = found.number(form.event, strict=False) or tpot
    own: dict[str, Any] = {"concurrency": None, "tokens_per_step": 1.0}
    own |= {"tokens_per_event": event / tpot} | form.own(found)
    if drafts := own.pop("drafts", None):
        tokens = own["tokens_per_step"]
        share = proposal_share(drafts, drafts * (tokens - 1), output - completed)
        own["tokens_per_step"] = float(mean_tokens_per_step(tokens, share))
        own["proposal_rate"] = share
    decoding = rate * max(1.0 - completed / output, 0.0) * tpot / 1e3
    return Run(
        **own,
        source=source,
        quantity="step_time",
        value=tpot / 1e3 * own["tokens_per_step"],
        batch_size=seen_batch(decoding, min(own["concurrency"] or completed, completed)),
        prompt_length=prompt / completed,
        output_length=output / completed,
    )


def _asked(found: Cells, path: str) -> float | None:
    """Return the requests at once that were asked for; None without a limit."""
    has_limit = found.find(path) is not None
    return found.positive(path, "requests at once, or null") if has_limit else None


def _drafting(found: Cells, paths: Sequence[str]) -> dict[str, Any]:
    """Return drafts, their length and tokens, by counts of drafts, drafted tokens and the tokens.

    These tokens are of a step that drafts.
    """
    drafts, drafted, tokens = (found.positive(path, "a positive number") for path in paths)
    mean = drafted / drafts
    length = round(min(max(mean, 1.0), MAX_DRAFT_LENGTH))
    if abs(mean - length) > NEAR_WHOLE:
        expected = "one draft length in a run: no schedule of lengths, no n-gram drafter"
        raise InputError(f"{found.prefix}{paths[1]}", f"{mean:.3g} a draft", expected)
    own = {"draft_length": length, "verify_tokens": length + 1}
    return own | {"tokens_per_step": tokens, "drafts": drafts}


def _by_position(told: Any, length: int) -> dict[str, Any]:
    """Return acceptance by position [-]; none unless each position of a draft has its rate."""
    reached = np.array([as_number(rate) for rate in told] if isinstance(told, list) else [])
    if len(reached) != length or not ((reached >= 0) & (reached <= 1)).all():
        return {}
    found = conditional_acceptance(np.minimum.accumulate(reached))
    return {"acceptance_by_position": tuple(found.tolist())}


def _reached(histogram: Iterable[Any]) -> list[float]:
    """Return shares of steps up to each position, by how many accepted 0, 1, ... tokens [-]."""
    steps = [as_number(count) for count in histogram]
    return [sum(steps[i:]) / sum(steps) for i in range(1, len(steps)) if sum(steps)]


# vLLM


def _vllm(found: Cells) -> dict[str, Any]:
    """Return engine, model, and the counts of drafts by vLLM, if there are any."""
    own: dict[str, Any] = {"engine": "vllm", "model": found.text("model_id")}
    own["concurrency"] = _asked(found, "max_concurrency")
    if "spec_decode_num_drafts" not in found.values:
        return own
    counts = ("num_drafts", "draft_tokens", "acceptance_length")
    drafting = _drafting(found, [f"spec_decode_{name}" for name in counts])
    rates = found.find("spec_decode_per_position_acceptance_rates")
    return own | drafting | _by_position(rates, drafting["draft_length"])


# SGLang


def _sglang(found: Cells) -> dict[str, Any]:
    """Return engine, model, acceptance, and the draft length that the server reported."""
    backend = found.text("backend")
    if not backend.startswith("sglang"):
        expected = "a backend sglang...: of others the file does not tell whether they speculate"
        raise InputError(f"{found.prefix}backend", backend, expected)
    info = _server_info(found)
    own: dict[str, Any] = {"engine": "sglang", "model": info.text("model_path")}
    own |= {"version": info.text("version"), "num_gpus": _num_gpus(info.values)}
    own["concurrency"] = _asked(found, "max_concurrency")
    if not found.find("accept_length") and not info.find("speculative_algorithm"):
        return own
    if info.find("speculative_adaptive"):
        expected = "one draft length in a run: --speculative-adaptive left out"
        raise InputError(f"{found.prefix}speculative_adaptive", True, expected)
    expected = "tokens per request and step (a run of some 40 steps at least)"
    own["tokens_per_step"] = found.positive("accept_length", expected)
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    told: list[Any] = [info.find(f"speculative_{name}") for name in names]
    if not all(isinstance(number, int) for number in told):
        return own | dict.fromkeys(("draft_length", "topk", "verify_tokens"))
    steps, topk, verified = told
    # a block drafter's steps are 1, however long its block
    length = verified - 1 if topk == 1 else steps
    return own | {"draft_length": length, "topk": topk, "verify_tokens": verified}


def _num_gpus(info: Mapping[str, Any]) -> int | None:
    """Return the GPUs of a server of SGLang [-], whose replicas share them if attention is cut."""
    shared = bool(info.get("enable_dp_attention"))
    degrees = [info.get(f"{kind}_size", 1) for kind in ("tp", "pp", *([] if shared else ["dp"]))]
    known = "tp_size" in info and all(isinstance(n, int) and 0 < n < 10**6 for n in degrees)
    return math.prod(degrees) if known else None


def _server_info(found: Cells) -> Cells:
    """Return the info of SGLang's server; with separate servers, of the one that decodes."""
    info, servers = found.find("server_info"), found.find("server_info.decode")
    first = servers[0] if isinstance(servers, list) and servers else info
    return Cells(first if isinstance(first, dict) else {}, found.prefix)


# GuideLLM


def _guidellm(found: Cells) -> dict[str, Any]:
    """Return the model, and drafts as the server counted them request by request, if it did."""
    own: dict[str, Any] = {"model": found.text("config.backend.model")}
    if found.find("config.strategy.rate") is None:  # beside a rate, the limit is a default
        own["concurrency"] = _asked(found, "config.strategy.max_concurrency")
    path = "metrics.iter_tokens_per_iteration.successful.mean"
    own["tokens_per_event"] = found.number(path, strict=False) or 1.0
    requests = found.find("requests.successful")
    told = [
        Cells({"request": request}, "").find("request.response_metrics.speculative_decoding")
        for request in (requests if isinstance(requests, list) else [])
    ]
    counted = [counts for counts in told if isinstance(counts, dict)]
    if not counted:
        return own
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafted, accepted = (sum(as_number(one.get(n)) for one in counted) for n in names)
    sums = {names[0]: steps, names[1]: drafted, "tokens_per_step": 1.0 + accepted / (steps or 1.0)}
    drafting = _drafting(Cells(sums, found.prefix), [*sums])
    lists = [one.get("acceptance_histogram") for one in counted]
    columns = zip(*(one for one in lists if isinstance(one, list)), strict=False)
    reached = _reached(sum(map(as_number, column)) for column in columns)
    return own | drafting | _by_position(reached, drafting["draft_length"])


# AIPerf


def _aiperf(found: Cells) -> dict[str, Any]:
    """Return the model, and drafts as AIPerf summed them over requests, if the server told them."""
    if found.find("is_complete") is False:
        raise InputError(f"{found.prefix}is_complete", False, "a run that went on to its end")
    own: dict[str, Any] = {"model": found.text("input_config.models.items.name")}
    own["concurrency"] = _asked(found, "input_config.phases.concurrency")
    if "total_spec_decode_steps" not in found.values:
        return own
    counts = ["total_spec_decode_steps", "total_draft_tokens"]
    counts += ["spec_decode_token_weighted_acceptance_length"]
    drafting = _drafting(found, [f"{name}.avg" for name in counts])
    length, path = drafting["draft_length"], "pooled_spec_decode_acceptance_histogram"
    reached = _reached(found.find(f"{path}.{i}") or 0 for i in range(length + 1))
    return own | drafting | _by_position(reached, length)


_OWN = {"vllm": _vllm, "sglang": _sglang, "guidellm": _guidellm, "aiperf": _aiperf}
_ROWS = read_mapping(Path(__file__).parent / "data/tools.toml", "tools")
_TOOLS = [_Format(own=_OWN[tool], **row) for tool, row in _ROWS.items()]
"""The tools whose results are read, the first whose marks a result has."""
