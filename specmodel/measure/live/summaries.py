"""From the table of a measurement to runs as `fit engine` reads them, one for a load and round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from specmodel.algebra.acceptance import conditional_acceptance
from specmodel.measure.live.log import KEY, counted_rows

NEAR_WHOLE = 0.05  # how far a run's mean draft length may be from its draft length [token]
LOAD = KEY[:-1]  # columns that identify a load and round

COLUMNS = (
    *("id", "engine", "engine_version", "model", "draft_length", "topk", "verify_tokens"),
    *("concurrency", "prompt_length", "output_length", "tokens_per_step", "prompts", "step_ms"),
    *("tpot_ms", "tokens_per_s", "ttft_ms", "step_batch", "step_spread", "acceptance_by_position"),
    *("repeats", "requests", "usable", "notes"),
)
"""Columns of a summary."""

MOST_UNDRAFTED = 0.1  # share of steps without a draft that a run of one draft length may have [-]
MOST_SPREAD = 0.5
"""How much repeats may differ, (largest - smallest) / median [-]: the median of three that differ
by half is uncertain by 20 %, more than predictions without any measurement are off on average."""
_FOREIGN = ("of others", "not counted")  # words in the notes of runs that others disturbed


def summary(rows: Iterable[Mapping[str, str]], prompts: str = "random") -> pd.DataFrame:
    """Return the runs of a table, with repeats taken together, as `fit engine` reads them.

    Parameters
    ----------
    rows
        As `log.Log` wrote them; interrupted runs are passed over.
    prompts
        What prompts were, for the column of this name beside `tokens_per_step`: acceptance of
        random prompts is not that of traffic.

    Returns
    -------
    pandas.DataFrame
        A row for each load and round, in order. Times are in milliseconds. `tpot_ms` is the median
        over repeats of the mean over timed requests, `step_ms` the median of TPOT times tokens per
        step, and `step_spread` how much repeats of it differ, (largest - smallest) / median; NaN
        for one repeat. Beyond `MOST_SPREAD` the row is not usable, and a note says so.
        `acceptance_by_position` are rates given all tokens before, for the option of this name;
        `step_batch` is the batch that a request sees in a step, itself included. Repeats with
        traffic of others are left out; if all repeats have it, the row is not usable.

    Notes
    -----
    Tokens per step are the tokens after the first of each request, over the steps of requests that
    the engine counted. vLLM does not count steps without a draft, as an n-gram look-up leaves them:
    they are what remains of the tokens after one for each draft and the accepted ones. The other
    requests of a batch take part in each step of a request, except where they are prefilled: that
    is taken to be one step in a request's time, however long the prompt.

    Where more than `MOST_UNDRAFTED` of the steps have no draft, as under a schedule of draft
    lengths, the row is not of one draft length and not usable for a fit. Its times and rates are
    those that users of the server see.
    """
    groups: dict[tuple[str, ...], list[tuple[Mapping[str, str], list[Any]]]] = defaultdict(list)
    for run, requests in counted_rows(rows):
        groups[tuple(run[name] for name in LOAD)].append((run, requests))
    found = [_row(dict(zip(LOAD, load, strict=True)), runs) for load, runs in groups.items()]
    return pd.DataFrame(found, columns=pd.Index(COLUMNS)).assign(prompts=prompts)


def _row(load: Mapping[str, str], runs: Sequence[tuple[Mapping[str, str], list[Any]]]) -> Any:
    """Return the row of a load."""
    clean = [run for run in runs if not any(word in run[0]["note"] for word in _FOREIGN)]
    kept = clean or runs
    found = pd.DataFrame([_measured(run, requests) for run, requests in kept])
    timed = [r for _, requests in kept for r in requests if r["role"] == "timed"]
    last = kept[-1][0]
    per_step = found["tokens"].sum() / found["steps"].sum()
    is_scheduled = found["undrafted"].sum() > MOST_UNDRAFTED * found["steps"].sum()
    steps = (int(load["output_length"]) - 1) / per_step
    notes = {*found["note"], *"; ".join(run["note"] for run, _ in runs).split("; ")} - {""}
    times = _times(found)
    is_steady = not times["step_spread"] > MOST_SPREAD
    if not is_steady:
        notes.add(f"repeats differ by {times['step_spread']:.0%}: too much for a fit")
    return {
        "id": "-".join(["run", load["round"], *(load[n] for n in LOAD[1:])]),
        "engine": last["engine"],
        "engine_version": last["version"],
        "model": last["model"],
        "draft_length": int(load["draft_length"]),
        **{name: int(last[name] or 1) for name in ("topk", "verify_tokens")},
        "concurrency": int(load["concurrency"]),
        "prompt_length": fmean(float(r["prompt_tokens"]) for r in timed),
        "output_length": int(load["output_length"]),
        "tokens_per_step": per_step,
        **times,
        "step_batch": 1.0 + (int(load["concurrency"]) - 1.0) * steps / (steps + 1.0),
        "acceptance_by_position": _by_position([run for run, _ in kept]),
        "repeats": len(kept),
        "requests": len(timed),
        "usable": bool(clean) and not is_scheduled and is_steady,
        "notes": "; ".join(sorted(notes)),
    }


def _times(found: pd.DataFrame) -> dict[str, float]:
    """Return times and rates of a load, medians over its repeats."""
    steps = found["tpot"] * found["tokens"] / found["steps"]
    return {
        "step_ms": 1e3 * steps.median(),
        "tpot_ms": 1e3 * found["tpot"].median(),
        "tokens_per_s": found["tokens_per_s"].median(),
        "ttft_ms": 1e3 * found["ttft"].median(),
        "step_spread": (steps.max() - steps.min()) / steps.median() if steps[1:].size else nan,
    }


def _measured(run: Mapping[str, str], requests: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return what one run measured."""
    timed = [r for r in requests if r["role"] == "timed"]
    seconds = sum(float(r["latency"]) for r in timed)
    rate = int(run["concurrency"]) * sum(int(r["output_tokens"]) for r in timed) / seconds
    tokens, steps, undrafted, note = _steps(run, requests)
    streamed = [tpot for tpot in map(_tpot, timed) if tpot == tpot]
    tpot = fmean(streamed) if streamed else float(run["engine_tpot"] or "nan")
    if tpot != tpot:
        tpot, note = int(run["concurrency"]) / rate, "TPOT with prefill: no streams, no counters"
    return {
        "tpot": tpot,
        "ttft": fmean(float(r["first_token"] or "nan") for r in timed),
        "tokens_per_s": rate,
        "tokens": tokens,
        "steps": steps,
        "undrafted": undrafted,
        "note": note,
    }


def _tpot(row: Mapping[str, str]) -> float:
    """Return the time per token after the first; NaN where the answer was not streamed [s]."""
    if not row["first_token"] or row["note"]:  # or came late: when it ended was not seen
        return float("nan")
    decoding = float(row["latency"]) - float(row["first_token"])
    return decoding / (int(row["output_tokens"]) - 1)


def _steps(
    run: Mapping[str, str], requests: Sequence[Mapping[str, str]]
) -> tuple[float, float, float, str]:
    """Return tokens after the first [token], their steps, those without a draft [-], and notes."""
    if not int(run["draft_length"]):
        own = float(sum(int(r["output_tokens"]) - 1 for r in requests))
        return own, own, 0.0, ""
    names = ("output_tokens", "requests", "drafts", "draft_tokens", "accepted_tokens")
    made, count, drafts, drafted, accepted = (float(run[name] or 0) for name in names)
    tokens = made - count
    is_told = bool(accepted or not drafts)  # SGLang does not count accepted tokens
    undrafted = max(tokens - accepted - drafts, 0.0) if is_told else 0.0
    steps, notes = drafts + undrafted, []
    if undrafted > MOST_UNDRAFTED * steps:
        notes.append(f"{undrafted / steps:.0%} of steps drafted nothing")
    if drafted and abs(drafted / drafts - int(run["draft_length"])) > NEAR_WHOLE:
        mean = f"{drafted / drafts:.3g} tokens"
        notes.append(f"drafts of {mean}, not all of {run['draft_length']}")
    return tokens, steps, undrafted, "; ".join(notes)


def _by_position(runs: Sequence[Mapping[str, str]]) -> str:
    """Return rates of acceptance, given all tokens before, as ``predict`` takes them."""
    counts = [[float(n) for n in run["accepted_by_position"].split()] for run in runs]
    drafts = sum(float(run["drafts"] or 0) for run in runs)
    reached = [min(sum(c) / drafts, 1.0) for c in zip(*counts, strict=True)] if drafts else []
    if not reached:
        return ""
    rates = conditional_acceptance(np.minimum.accumulate(reached))
    return ",".join(f"{rate:.4f}" for rate in rates.tolist())
