"""Read runs from result files of benchmarks, and from tables that users keep of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.aliases import shipped_gpu
from specmodel.calibrate.fit.measured.records import (
    EXPECTED,
    Cells,
    Unused,
    cells,
    check_milliseconds,
    records,
    used,
    within,
)
from specmodel.calibrate.fit.measured.runs import (
    MOST_APART,
    MOST_PER_EVENT,
    Run,
    mean_range,
    seen_batch,
)
from specmodel.calibrate.measure.arguments import proposal_share, shares_reached
from specmodel.core.algebra.acceptance import conditional_acceptance, mean_tokens_per_step
from specmodel.core.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import as_number
from specmodel.core.cost.deploying import GPU_DEGREES

NEAR_WHOLE = 0.05  # how far a run's mean draft length may be from a whole number [token]
MOST_SPREAD = 100.0  # largest difference of repeats over their median [-]
_TIMES = ("step", "tpot", "throughput")
_KINDS = ("", "base_", "spec_")  # what may precede the columns of these
_DRAFTING = ("draft_length", "topk", "verify_tokens", "tokens_per_step", "drafter")
_MOST_GPUS = 10**6
_PLACE = re.compile(" (line|entry) [0-9]+$")


def read_benchmarks(paths: Sequence[str | Path]) -> tuple[Run, ...]:
    """Return the runs in benchmark files, and infer each format from the content.

    Parameters
    ----------
    paths
        Result files of the benchmarks in ``data/formats.toml``, and CSV or Parquet tables.

    Returns
    -------
    tuple of Run
        In the order of files and rows; a plain run that several rows of a table repeat, once. An
        InputError names the file, the line or row, and the key or column that cannot be.

    Notes
    -----
    A step takes TPOT x tokens per step: all tools leave out the first token and average TPOT over
    requests (GuideLLM over tokens), and all acceptance lengths count the token that the target
    adds. SGLang's acceptance is an average since its server started. Its files tell the draft
    length only if they hold what the server said of itself; otherwise `Run.drafting` sets it.
    GuideLLM and AIPerf tell of drafts what vLLM tells them request by request, under
    ``--per-request-spec-decode-metrics``. Without it, and of vLLM before 0.14, files tell nothing
    of drafts: such a run is a plain one whose events bring several tokens. For the batch see
    `seen_batch`. Iterations of TensorRT-LLM are one run for each batch and draft length.

    A row of a table may hold a plain run (`base_` columns), a speculative one (`spec_`), or
    both; tokens per second are those of all requests. The batch of a row is its column step_batch.
    Without that column it is computed by `seen_batch` if
    the row has both tokens per second and the time of a token or step, and else is the concurrency
    that the row names. Rows that a column usable calls false are passed over. A row's step_spread,
    by how much so many repeats differ, (largest - smallest) / median, gives the noise of its runs.
    """
    if not paths:
        raise InputError("benchmarks", "no file", EXPECTED["formats"])
    return tuple(run for path in paths for run in _file_runs(Path(path)))


def _file_runs(path: Path) -> Iterator[Run]:
    """Yield the runs of one file: a plain run that rows repeat, once; the mean of iterations."""
    alike: dict[Any, list[Run]] = defaultdict(list)
    reason = "at least one result"
    for source, values in records(path):
        try:
            runs = [_run(part, source) for part in _parts(values, source)]
        except Unused as told:
            reason = f"{reason}; {told}" if ";" not in reason else reason
            continue
        for run in runs:
            is_one = run.is_speculative or run.source != source
            key = (run.source, run.quantity, run.draft_length)
            alike[key if is_one else replace(run, source="", noise=0.0)].append(run)
    if not alike:
        raise InputError(str(path), "no usable row", reason)
    for runs in alike.values():
        is_mean = len({run.source for run in runs}) == 1
        names = ("value", "tokens_per_step") if is_mean else ()
        yield replace(runs[0], **{n: fmean(getattr(run, n) for run in runs) for n in names})


def _parts(values: Any, source: str) -> Iterator[Cells]:
    """Yield a record by the names of its format; of a row of a user's table, its runs apart."""
    row = cells(values, source)
    for path, (wrong, expected) in row.form.get("refuse", {}).items():
        if re.fullmatch(wrong, str(found := within(values, path)).lower()):
            raise InputError(f"{row.prefix}{path}", found, expected)
    row = replace(row, values={**row.values, **used(values, row.form.get("only", {}))})
    yield from [row] if row.form["marks"] else _kinds(row, Cells(values, row.prefix))


def _kinds(row: Cells, own: Cells) -> Iterator[Cells]:
    """Yield a row's plain run, its speculative one, and its speedup unless both runs have times."""
    kinds = {kind: {n: own.number(f"{kind}{row.keys[n]}") for n in _TIMES} for kind in _KINDS}
    found = {kind: {n: v for n, v in each.items() if v is not None} for kind, each in kinds.items()}
    for kind, name in ((kind, name) for kind, each in found.items() for name in each):
        own.positive(f"{kind}{row.keys[name]}")
    speculates = row.number("draft_length") or row.number("tokens_per_step") not in (None, 1.0)
    # columns that name neither kind are of the one that the row is
    base, drafted = found["base_"], found["spec_"]
    base, drafted = (base, found[""] | drafted) if speculates else (found[""] | base, drafted)
    speedup = None if base and drafted else row.number("speedup")
    common = {n: cell for n, cell in row.values.items() if n not in (*_TIMES, "speedup")}
    if base:
        plain = {name: cell for name, cell in common.items() if name not in _DRAFTING}
        yield replace(row, values=plain | base)
    if drafted:
        yield replace(row, values=common | drafted | {"drafter": True})
    if speedup is not None:
        yield replace(row, values=common | {"speedup": speedup, "drafter": True})
    elif not base and not drafted:
        raise InputError(row.prefix.strip(), "no measured number", EXPECTED["formats"])


def _run(row: Cells, source: str) -> Run:
    """Return the run of a record."""
    form, place = row.form, _place(row)
    unit = form.get("milliseconds", 1.0)
    completed, rate, each = map(row.amount, ("completed", "throughput", "per_gpu"))
    is_alone = "is_alone" in form or (each is not None and each == row.number("all_per_gpu"))
    rate = each * place.get("num_gpus", 1) if each else rate
    prompt, output = (_length(row, kind, completed) for kind in ("prompt", "output"))
    step, tpot = (time and unit * time for time in map(row.amount, ("step", "tpot")))
    if tpot and form["marks"]:
        check_milliseconds([tpot], row.called("tpot"))
    event = unit * (row.number("event", strict=False) or 0.0)
    event = event / tpot if event and tpot else row.number("tokens_per_event", strict=False) or 1.0
    own = _drafting(row, completed * (output - 1) if completed and output else 0.0, event)
    seconds = step / 1e3 if step else tpot and tpot / 1e3 * own["tokens_per_step"]
    decoding = rate and rate * max(1 - 1 / output, 0) if completed and output else rate
    timed = _timed(row, seconds, decoding, own["tokens_per_step"], is_alone)
    at_once = f", {timed['batch_size']:g} at once"
    context = prompt + (output or 0.0) / 2 if is_alone and prompt is not None else None
    named: dict[str, Any] = {name: row.text(name) for name in ("engine", "version")}
    if not is_alone:
        named |= {"prompt_length": prompt, "output_length": output}
    return Run(
        **own,
        **timed,
        **named,
        source=_PLACE.sub(at_once, source) if form.get("is_mean") else source,
        model=form.get("called", {}).get(name := row.text("model"), name),
        place=tuple(place.items()),
        context_length=context,
        noise=_noise(row),
        tokens_per_event=event,
    )


def _length(row: Cells, kind: str, completed: float | None) -> float | None:
    """Return the mean length of prompts or outputs [token].

    Where only the longest that were drawn are told, outputs follow from times, and prompts are as
    much shorter.
    """
    length, total = row.amount(f"{kind}_length"), row.amount(f"{kind}_tokens")
    if total and completed:
        return total / completed
    tpot, whole, first = map(row.number, ("tpot", "whole", "first"))
    if tpot and whole and first and length:
        return length * ((whole - first) / tpot + 1) / (row.amount("output_length") or 1.0)
    return length


def _timed(
    row: Cells, step: float | None, rate: float | None, tokens: float, is_alone: bool
) -> dict[str, Any]:
    """Return what was measured, of a step [s], and how many requests decoded together."""
    completed, speedup, batch = map(row.number, ("completed", "speedup", "step_batch"))
    asked, is_open = row.number("concurrency", strict=False), (row.number("rate") or 0.0) > 0
    if row.form["marks"] and row.values.get("concurrency") is not None:
        asked = None if is_open else row.positive("concurrency", "requests at once, or null")
    if speedup is not None:
        batch, kind = asked, {"quantity": "speedup", "value": speedup}
    else:
        if batch is None and rate and step and not is_alone:
            batch = _seen(row, rate * step / tokens, asked, completed)
        step = asked * tokens / rate if asked and rate and not step else step
        kind = {"quantity": "step_time", "value": step or 0.0}
    batch = asked if batch is None else batch
    if batch is None or not kind["value"]:
        raise InputError(f"{row.prefix}concurrency", None, "concurrent requests (or batch_size)")
    return kind | {"concurrency": asked, "batch_size": batch}


def _seen(row: Cells, decoding: float, asked: float | None, completed: float | None) -> float:
    """Return the batch that a request sees, of so many that decode on average [request]."""
    if asked and not completed and decoding > (1 + MOST_APART) * asked:
        value = f"{decoding:.3g} requests, as tokens per second times TPOT"
        expected = f"at most the concurrency {asked:g}; give tokens/s of all requests, times in ms"
        raise InputError(row.called("throughput"), value, expected)
    most = min(asked or completed or 0.0, completed or asked or 0.0)
    return seen_batch(decoding, most) if most else max(decoding, 1.0)


def _place(row: Cells) -> dict[str, Any]:
    """Return the GPUs of a server, and its degrees of parallelism where a record tells them."""
    place = dict[str, Any]()
    with suppress(InputError):
        name = row.text("hardware").partition("-")[0]
        place |= {"hardware": shipped_gpu(name)} if name else {}
    told: list[Any] = [row.values.get(name) for name in ("tensor", "pipeline", "expert", "data")]
    tensor, pipeline, expert, data = (n or 1 if i else n for i, n in enumerate(told))
    if not all(type(n) is int and 0 < n < _MOST_GPUS for n in (tensor, pipeline, expert, data)):
        return place
    is_shared = str(row.values.get("attention_data")).lower() == "true"
    place["num_gpus"] = gpus = tensor * pipeline * (1 if is_shared else data)
    if pipeline == 1 and (data == 1 or is_shared):
        replicas = gpus if is_shared and told[-1] is None else data
        place |= zip(GPU_DEGREES, (max(gpus // replicas, 1), replicas, expert), strict=True)
    return place


def _noise(row: Cells) -> float:
    """Return the standard error of a row's runs by how far repeats differ; 0 if unknown [-]."""
    spread, repeats = (row.number(name) or 0.0 for name in ("step_spread", "repeats"))
    if not 0.0 <= spread <= MOST_SPREAD:
        expected = f"(largest - smallest) / median of the repeats, from 0 to {MOST_SPREAD:g}"
        raise InputError(row.called("step_spread"), spread, expected)
    return spread / mean_range(repeats) / repeats**0.5 if repeats >= 2.0 else 0.0


def _drafting(row: Cells, emitted: float, event: float) -> dict[str, Any]:
    """Return acceptance, draft length and tree; `emitted` tokens are of steps, drafting or not."""
    if row.values.get("drafts") not in (None, []):
        return _counted(row, emitted)
    strict = not row.form["marks"]
    tokens = None if "drafts" in row.keys else row.number("tokens_per_step", strict=strict)
    drafts = str(row.values.get("drafter") or "none").lower() not in ("none", "false", "off")
    if row.form.get("by_events") and event > MOST_PER_EVENT:
        tokens, drafts = event, True
    if not drafts and (tokens or 0.0) <= 1.0:
        return {"tokens_per_step": 1.0}
    if tokens is None and row.form.get("is_shortest"):
        raise Unused("a row with speculation has no tokens per step")
    if not tokens or tokens <= 0:
        raise InputError(row.called("tokens_per_step"), tokens, EXPECTED["tokens_per_step"])
    names, assumed = ("draft_length", "topk", "verify_tokens", "steps", "fraction"), ""
    length, topk, verified, steps, fraction = (row.number(n, strict=strict) for n in names)
    if steps and topk and verified:  # a block drafter's steps are 1, however long its block
        length = verified - 1 if topk == 1 else steps
    elif fraction:
        length = _whole(row, "fraction", (tokens - 1) / fraction)
    elif row.form.get("is_shortest"):
        length = max(ceil(tokens - 1 - 1e-6), 1)
        assumed = f"{row.prefix.strip()} has no draft length: {length} is assumed, the shortest"
        assumed += f" that gives {tokens:g} tokens per step; --draft-length sets another"
    if length is None:
        topk = verified = None
    else:
        topk = 1.0 if topk is None else topk
        verified = length + 1.0 if verified is None and topk == 1 else verified
    tree = dict(zip(names, (length, topk, verified), strict=False))
    whole = {n: int(v) if v is not None and v == int(v) else v for n, v in tree.items()}
    return whole | {"tokens_per_step": tokens, "assumed": assumed}


def _counted(row: Cells, emitted: float) -> dict[str, Any]:
    """Return draft length and acceptance as counted, and the share of steps that draft.

    Tokens per step are counted of steps that draft.
    """
    drafts, drafted = map(row.positive, ("drafts", "drafted"))
    if "tokens_per_step" in row.keys:
        tokens = row.positive("tokens_per_step")
    else:
        tokens = 1.0 + (row.number("accepted") or 0.0) / drafts
    length = _whole(row, "drafted", drafted / drafts)
    share = proposal_share(drafts, drafts * (tokens - 1), emitted)
    return {
        "draft_length": length,
        "verify_tokens": length + 1,
        "tokens_per_step": float(mean_tokens_per_step(tokens, share)),
        "proposal_rate": share,
        "acceptance_by_position": _by_position(row, length),
    }


def _whole(row: Cells, name: str, mean: float) -> int:
    """Return the draft length of a mean; refuse one between two."""
    length = round(min(max(mean, 1.0), MAX_DRAFT_LENGTH))
    if abs(mean - length) > NEAR_WHOLE:
        expected = "one draft length in each run, so no schedule of lengths and no n-gram drafter"
        raise InputError(row.called(name), f"{mean:.3g} a draft", expected)
    return length


def _by_position(row: Cells, length: int) -> tuple[float, ...]:
    """Return acceptance by position [-]; none unless each position of a draft has its rate."""
    told, counts = row.values.get("reached"), row.values.get("histogram")
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
