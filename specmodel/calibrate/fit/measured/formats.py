"""Read runs from result files of benchmarks, and from tables that users keep of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
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

NEAR_WHOLE = 0.05  # most difference of a run's mean draft length from a whole number [token]
MOST_SPREAD = 100.0  # largest difference of repeats over their median [-]
_TIMES = ("step", "tpot", "throughput")
_DRAFTING = ("draft_length", "topk", "verify_tokens", "tokens_per_step", "drafter")
_MOST_GPUS = 10**6
_PLACE = re.compile(" (line|entry) [0-9]+$")


def read_benchmarks(paths: Sequence[str | Path]) -> tuple[Run, ...]:
    """Return the runs in benchmark files. The content of a file shows its format.

    Parameters
    ----------
    paths
        Result files of the benchmarks in ``data/formats.toml``, and CSV or Parquet tables.

    Returns
    -------
    tuple of Run
        Runs in the order of files and rows. If rows of a table repeat a plain run, it is returned
        once. An InputError names the file, the line or row, and the invalid key or column.

    Notes
    -----
    The time of a step is TPOT x tokens per step. All tools exclude the first token from TPOT and
    average TPOT over requests (GuideLLM: over tokens). All acceptance lengths count the token that
    the target adds. SGLang's acceptance is an average since its server started. Files of SGLang
    contain the draft length only with the server's information; else `Run.drafting` sets it.

    GuideLLM and AIPerf record drafts if vLLM reports them for each request
    (``--per-request-spec-decode-metrics``). Without that option, and with vLLM before 0.14, files
    do not mention drafts. Such a run counts as plain, and its events contain several tokens. Runs
    of TensorRT-LLM's iterations are averaged by batch and draft length. `seen_batch` explains the
    batch.

    A row of a table may contain a plain run (`base_` columns), a speculative run (`spec_`
    columns), or both. Tokens per second are the total of all requests. A column step_batch gives
    the batch. Without it, `seen_batch` computes the batch if the row has both tokens per second
    and the time of a token or step; else the batch is the row's concurrency. Rows with a false
    value in the column usable are skipped. The column step_spread gives the noise: the difference
    of the largest and the smallest repeat, divided by their median.
    """
    if not paths:
        raise InputError("benchmarks", "no file", EXPECTED["formats"])
    return tuple(run for path in paths for run in _file_runs(Path(path)))


def _file_runs(path: Path) -> Iterator[Run]:
    """Yield the runs of one file: repeated plain runs once, and iterations as their mean."""
    alike: dict[Any, list[Run]] = defaultdict(list)
    reason = "at least one result"
    for source, values in records(path):
        try:
            runs = [_run(part, source) for part in _parts(values, source)]
        except Unused as unused:
            reason = f"{reason}; {unused}" if ";" not in reason else reason
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
    """Yield a record by the names of its format. A row of a user's table may have several runs."""
    row = cells(values, source)
    for path, (wrong, expected) in row.form.get("refuse", {}).items():
        if re.fullmatch(wrong, str(found := within(values, path)).lower()):
            raise InputError(f"{row.prefix}{path}", found, expected)
    row = replace(row, values={**row.values, **used(values, row.form.get("only", {}))})
    yield from [row] if row.form["marks"] else _kinds(row, Cells(values, row.prefix))


def _kinds(row: Cells, columns: Cells) -> Iterator[Cells]:
    """Yield a row's plain run, its speculative run, and its speedup unless both runs have times."""
    drafts = row.number("draft_length") or row.number("tokens_per_step") not in (None, 1.0)
    found: dict[str, dict[str, float]] = {"base_": {}, "spec_": {}}
    for kind, name in product(("", *found), _TIMES):
        column = f"{kind}{row.keys[name]}"
        if columns.number(column) is not None:
            # columns without a prefix belong to the kind of run that the row describes
            own = kind or ("spec_" if drafts else "base_")
            found[own][name] = columns.positive(column)
    speedup = None if all(found.values()) else row.number("speedup")
    if speedup is not None:
        found["speedup"] = {"speedup": speedup}
    if not any(found.values()):
        raise InputError(row.prefix.strip(), "no measured number", EXPECTED["formats"])
    rest = {**row.values, **dict.fromkeys((*_TIMES, "speedup"))}
    for kind, times in found.items():
        drafting = dict.fromkeys(_DRAFTING) if kind == "base_" else {"drafter": True}
        if times:
            yield replace(row, values=rest | drafting | times)


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
    drafts = _drafting(row, completed * (output - 1) if completed and output else 0.0, event)
    tokens = drafts["tokens_per_step"]
    seconds = step / 1e3 if step else tpot and tpot / 1e3 * tokens
    decoding = rate and rate * max(1 - 1 / output, 0) if completed and output else rate
    timed = _timed(row, seconds, decoding, tokens, is_alone)
    if "is_mean" in form:
        source = _PLACE.sub(f", {timed['batch_size']:g} at once", source)
    return Run(
        **drafts,
        **timed,
        source=source,
        engine=row.text("engine"),
        version=row.text("version"),
        model=form.get("called", {}).get(name := row.text("model"), name),
        place=tuple(place.items()),
        prompt_length=None if is_alone else prompt,
        output_length=None if is_alone else output,
        context_length=prompt + (output or 0.0) / 2 if is_alone and prompt is not None else None,
        noise=_noise(row),
        tokens_per_event=event,
    )


def _length(row: Cells, kind: str, completed: float | None) -> float | None:
    """Return the mean length of prompts or outputs [token].

    If a file contains only the longest lengths that were drawn, the mean output follows from
    times, and the mean prompt is shorter by the same factor.
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
    """Return the measured quantity of a run, its concurrency and its batch.

    `step` is the time of a step [s], `rate` the tokens per second of decoding requests [token/s].
    """
    completed, speedup, batch = map(row.number, ("completed", "speedup", "step_batch"))
    asked, is_open = row.number("concurrency", strict=False), (row.number("rate") or 0.0) > 0
    if row.form["marks"] and row.values.get("concurrency") is not None:
        asked = None if is_open else row.positive("concurrency", "requests at once, or null")
    quantity, value = "step_time" if speedup is None else "speedup", speedup or step
    if speedup is not None:
        batch = asked
    elif batch is None and rate and step and not is_alone:
        batch = _seen(row, rate * step / tokens, asked, completed)
    if asked and rate and not value:
        value = asked * tokens / rate
    batch = asked if batch is None else batch
    if batch is None or not value:
        expected = "the number of concurrent requests, or batch_size"
        raise InputError(f"{row.prefix}concurrency", None, expected)
    return {"quantity": quantity, "value": value, "concurrency": asked, "batch_size": batch}


def _seen(row: Cells, decoding: float, asked: float | None, completed: float | None) -> float:
    """Return the batch that a request sees if `decoding` requests decode on average [request]."""
    if asked and not completed and decoding > (1 + MOST_APART) * asked:
        value = f"{decoding:.3g} requests at once (tokens/s times TPOT)"
        expected = f"at most {asked:g}, the concurrency: is TPOT in ms, tokens/s without prompts?"
        raise InputError(row.called("throughput"), value, expected)
    most = min(asked or completed or 0.0, completed or asked or 0.0)
    return seen_batch(decoding, most) if most else max(decoding, 1.0)


def _place(row: Cells) -> dict[str, Any]:
    """Return the GPUs of a server and its degrees of parallelism, as far as they are recorded."""
    place = dict[str, Any]()
    with suppress(InputError):
        name = row.text("hardware").partition("-")[0]
        place |= {"hardware": shipped_gpu(name)} if name else {}
    tensor = row.values.get("tensor")
    others = [row.values.get(name) or 1 for name in ("pipeline", "expert", "data")]
    if not all(n in range(1, _MOST_GPUS) for n in (tensor, *others)):
        return place
    size, pipeline, expert, data = (int(n or 1) for n in (tensor, *others))
    is_shared = str(row.values.get("attention_data")).lower() == "true"
    place["num_gpus"] = gpus = size * pipeline * (1 if is_shared else data)
    if pipeline == 1 and (data == 1 or is_shared):
        replicas = gpus if is_shared and row.values.get("data") is None else data
        place |= zip(GPU_DEGREES, (max(gpus // replicas, 1), replicas, expert), strict=True)
    return place


def _noise(row: Cells) -> float:
    """Return the standard error of a row's runs, from the spread of repeats; 0 if unknown [-]."""
    spread, repeats = (row.number(name) or 0.0 for name in ("step_spread", "repeats"))
    if not 0.0 <= spread <= MOST_SPREAD:
        expected = f"(largest - smallest) / median of the repeats, from 0 to {MOST_SPREAD:g}"
        raise InputError(row.called("step_spread"), spread, expected)
    return spread / mean_range(repeats) / repeats**0.5 if repeats >= 2.0 else 0.0


def _drafting(row: Cells, emitted: float, event: float) -> dict[str, Any]:
    """Return the acceptance, draft length and tree of a run.

    `emitted` is the number of tokens that all decoding steps emitted, with and without a draft,
    `event` the tokens of an event of a stream [token].
    """
    if row.values.get("drafts") not in (None, []):
        return _counted(row, emitted)
    strict, form = not row.form["marks"], row.form
    tokens = None if "drafts" in row.keys else row.number("tokens_per_step", strict=strict)
    drafts = str(row.values.get("drafter") or "none").lower() not in ("none", "false", "off")
    if "by_events" in form and event > MOST_PER_EVENT:
        tokens, drafts = event, True
    if not drafts and (tokens or 0.0) <= 1.0:
        return {"tokens_per_step": 1.0}
    if tokens is None and "is_shortest" in form:
        raise Unused("a row with speculation has no tokens per step")
    if not tokens or tokens <= 0:
        raise InputError(row.called("tokens_per_step"), tokens, EXPECTED["tokens_per_step"])
    names, assumed = ("draft_length", "topk", "verify_tokens", "steps", "fraction"), ""
    length, topk, verified, steps, fraction = (row.number(n, strict=strict) for n in names)
    if steps and topk and verified:  # a block drafter makes one step for a block of any length
        length = verified - 1 if topk == 1 else steps
    elif fraction:
        length = _whole(row, "fraction", (tokens - 1) / fraction)
    elif "is_shortest" in form:
        length = max(ceil(tokens - 1 - 1e-6), 1)
        assumed = f"{row.prefix.strip()} has no draft length: {length} is assumed, the shortest"
        assumed += f" that gives {tokens:g} tokens per step; --draft-length sets another"
    if length is None:
        topk = verified = None
    else:
        topk = 1 if topk is None else topk
        verified = length + 1 if verified is None and topk == 1 else verified
    tree = {"draft_length": length, "topk": topk, "verify_tokens": verified}
    whole = {n: int(v) if v is not None and v == int(v) else v for n, v in tree.items()}
    return whole | {"tokens_per_step": tokens, "assumed": assumed}


def _counted(row: Cells, emitted: float) -> dict[str, Any]:
    """Return draft length and acceptance from counts, and the share of steps with a draft.

    The tokens per step of the file describe steps with a draft.
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
    """Return the draft length from a mean. Refuse a mean between two lengths."""
    length = round(min(max(mean, 1.0), MAX_DRAFT_LENGTH))
    if abs(mean - length) > NEAR_WHOLE:
        expected = "The draft length varied in this run. Use runs without a schedule or look-up."
        raise InputError(row.called(name), f"{mean:.3g} a draft", expected)
    return length


def _by_position(row: Cells, length: int) -> tuple[float, ...]:
    """Return acceptance by position [-]; () unless each position of a draft has its rate."""
    rates, counts = row.values.get("reached"), row.values.get("histogram")
    if isinstance(counts, dict):
        counts = [[counts.get(str(accepted), 0) for accepted in range(length + 1)]]
    if isinstance(counts, list):
        listed = (each for each in counts if isinstance(each, list))
        steps = [sum(map(as_number, each)) for each in zip(*listed, strict=False)]
        rates = shares_reached(steps) if any(steps) else []
    reached = np.array([as_number(rate) for rate in rates] if isinstance(rates, list) else [])
    if len(reached) != length or not ((reached >= 0) & (reached <= 1)).all():
        return ()
    return tuple(conditional_acceptance(np.minimum.accumulate(reached)).tolist())
