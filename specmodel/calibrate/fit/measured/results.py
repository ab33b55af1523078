"""One result of vLLM's, SGLang's, GuideLLM's or AIPerf's benchmark in JSON, read as a run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.calibrate.fit.measured.aliases import TABLES
from specmodel.calibrate.fit.measured.runs import Run, seen_batch
from specmodel.calibrate.fit.measured.tables import Cells, check_milliseconds
from specmodel.calibrate.measure.arguments import proposal_share, shares_reached
from specmodel.core.algebra.acceptance import conditional_acceptance, mean_tokens_per_step
from specmodel.core.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables
from specmodel.core.base.tables import as_number

NEAR_WHOLE = 0.05  # how far a run's mean draft length may be from a whole number [token]

FORMATS: str = TABLES["runs"]["formats"]
"""The accepted formats, for messages."""


_TOOLS = [
    defaultdict(str, row) for row in toml_tables(Path(__file__).parent / "data/tools.toml").values()
]
"""The tools whose results are read."""


def json_run(values: Any, source: str) -> Run:
    """Return the run of one result."""
    keys = list(values) if isinstance(values, dict) else []
    for tool in _TOOLS:
        if {*tool["marks"]} <= {*keys}:
            return _run(Cells(values, f"{source} "), source, tool)
    raise InputError(source, ", ".join(keys[:8]) or values, FORMATS)


def _run(found: Cells, source: str, tool: Mapping[str, Any]) -> Run:
    """Return the run of a result of this tool."""
    if found.find(tool["ended"]) is False:
        raise InputError(f"{found.prefix}{tool['ended']}", False, "a run that went on to its end")
    completed = found.positive(tool["completed"], "at least one finished request")
    expected = "milliseconds above 0: of streams with more than one token (AIPerf: --streaming;"
    expected += " vLLM: TPOT among --percentile-metrics)"
    tpot = found.positive(tool["tpot"], expected)
    check_milliseconds([tpot], f"{source} {tool['tpot']}")
    prompt = found.positive(tool["prompt_tokens"], "a positive number of tokens")
    output = found.positive(tool["output_tokens"], "a positive number of tokens")
    rate = found.positive(tool["throughput"], "tokens a second above 0")
    by_event = (found.number(tool["event"], strict=False) or tpot) / tpot
    asked = None
    if found.find(tool["concurrency"]) is not None and found.find(tool["rate"]) is None:
        asked = found.positive(tool["concurrency"], "requests at once, or null")
    own: dict[str, Any] = {"model": found.text(tool["model"]), "tokens_per_step": 1.0}
    if tool["engine"] == "sglang":
        own = _of_sglang(found)
    elif found.find(tool["drafts"]) not in (None, []):
        own |= _drafting(found, tool, output - completed)
    decoding = rate * max(1.0 - completed / output, 0.0) * tpot / 1e3
    return Run(
        **own,
        source=source,
        engine=tool["engine"],
        concurrency=asked,
        quantity="step_time",
        value=tpot / 1e3 * own["tokens_per_step"],
        batch_size=seen_batch(decoding, min(asked or completed, completed)),
        prompt_length=prompt / completed,
        output_length=output / completed,
        tokens_per_event=found.number(tool["tokens_per_event"], strict=False) or by_event,
    )


def _drafting(found: Cells, tool: Mapping[str, Any], emitted: float) -> dict[str, Any]:
    """Return draft length, acceptance, and the share of the steps of `emitted` tokens that draft.

    Tokens per step are counted of steps that draft.
    """
    drafts, drafted = (
        found.positive(n, "a positive number") for n in (tool["drafts"], tool["drafted"])
    )
    if tool["tokens_per_step"]:
        tokens = found.positive(tool["tokens_per_step"], "a positive number")
    else:
        tokens = 1.0 + (found.number(tool["accepted"]) or 0.0) / drafts
    mean = drafted / drafts
    length = round(min(max(mean, 1.0), MAX_DRAFT_LENGTH))
    if abs(mean - length) > NEAR_WHOLE:
        expected = "one draft length in a run: no schedule of lengths, no n-gram drafter"
        raise InputError(f"{found.prefix}{tool['drafted']}", f"{mean:.3g} a draft", expected)
    share = proposal_share(drafts, drafts * (tokens - 1), emitted)
    return {
        "draft_length": length,
        "verify_tokens": length + 1,
        "tokens_per_step": float(mean_tokens_per_step(tokens, share)),
        "proposal_rate": share,
        "acceptance_by_position": _by_position(found, tool, length),
    }


def _by_position(found: Cells, tool: Mapping[str, Any], length: int) -> tuple[float, ...]:
    """Return acceptance by position [-]; none unless each position of a draft has its rate."""
    told, counts = found.find(tool["reached"]), found.find(tool["histogram"])
    if isinstance(counts, dict):
        counts = [[counts.get(str(accepted), 0) for accepted in range(length + 1)]]
    if isinstance(counts, list):
        listed = (each for each in counts if isinstance(each, list))
        steps = [sum(map(as_number, each)) for each in zip(*listed, strict=False)]
        told = shares_reached(steps) if any(steps) else []
    reached = np.array([as_number(rate) for rate in told] if isinstance(told, list) else [])
    if len(reached) != length or not ((reached >= 0) & (reached <= 1)).all():
        return ()
    return tuple(conditional_acceptance(np.minimum.accumulate(reached)).tolist())


def _of_sglang(found: Cells) -> dict[str, Any]:
    """Return model, version, GPUs, acceptance, and the draft length that the server reported."""
    backend = found.text("backend")
    if not backend.startswith("sglang"):
        expected = "a backend sglang...: of others the file does not tell whether they speculate"
        raise InputError(f"{found.prefix}backend", backend, expected)
    # with separate servers, of the one that decodes
    told = found.find("server_info.decode") or found.find("server_info")
    told = told[0] if isinstance(told, list) else told
    info = Cells(told if isinstance(told, dict) else {}, found.prefix)
    own: dict[str, Any] = {"model": info.text("model_path"), "version": info.text("version")}
    own |= {"num_gpus": _num_gpus(info.values), "tokens_per_step": 1.0}
    if not found.find("accept_length") and not info.find("speculative_algorithm"):
        return own
    if info.find("speculative_adaptive"):
        expected = "one draft length in a run: --speculative-adaptive left out"
        raise InputError(f"{found.prefix}speculative_adaptive", True, expected)
    expected = "tokens per request and step (a run of some 40 steps at least)"
    own["tokens_per_step"] = found.positive("accept_length", expected)
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    numbers: list[Any] = [info.find(f"speculative_{name}") for name in names]
    if not all(isinstance(number, int) for number in numbers):
        return own | dict.fromkeys(("draft_length", "topk", "verify_tokens"))
    steps, topk, verified = numbers
    # a block drafter's steps are 1, however long its block
    length = verified - 1 if topk == 1 else steps
    return own | {"draft_length": length, "topk": topk, "verify_tokens": verified}


def _num_gpus(info: Mapping[str, Any]) -> int | None:
    """Return the GPUs of a server of SGLang [-], whose replicas share them if attention is cut."""
    shared = bool(info.get("enable_dp_attention"))
    degrees = [info.get(f"{kind}_size", 1) for kind in ("tp", "pp", *([] if shared else ["dp"]))]
    known = "tp_size" in info and all(isinstance(n, int) and 0 < n < 10**6 for n in degrees)
    return math.prod(degrees) if known else None
