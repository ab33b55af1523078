"""Result files of engine benchmarks, and tables that users keep of them, read as runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specmodel.algebra.acceptance import conditional_acceptance
from specmodel.base.errors import InputError
from specmodel.base.files import check_readable
from specmodel.base.tables import need_columns, parse_csv, read_table
from specmodel.fit.measured.cells import (
    as_number,
    check_milliseconds,
    number_in,
    positive_in,
    text_of,
)
from specmodel.fit.measured.runs import MOST_APART, Run, mean_range, seen_batch, with_repeats
from specmodel.measure.live.summaries import NEAR_WHOLE

MOST_BYTES = 1_000_000_000  # largest result file that is read [B]
MOST_SPREAD = 100.0  # largest difference of repeats over their median [-]


FORMATS = (
    "JSON of vllm bench serve --save-result or sglang.bench_serving --output-file, or CSV with "
    "speedup, tokens_per_s, tpot_ms or step_ms (base_..., spec_...)"
)
"""The accepted formats, for messages."""

_MEASURED = ("step_ms", "tpot_ms", "tokens_per_s")
"""Columns of what was measured of a run, the nearest to a step first; base_ and spec_ may
precede them where a row has one run without and one with speculation."""
_ALIASES = {
    "isl": "prompt_length",
    "osl": "output_length",
    "batch_size": "concurrency",
    "batch_size_or_concurrency": "concurrency",
    "target": "model",
}
_TEXTS = ("engine", "engine_version", "model", "target", "id", "notes")


def read_benchmarks(paths: Sequence[str | Path]) -> tuple[Run, ...]:
    """Return the runs in benchmark files, whose format their content tells.

    Parameters
    ----------
    paths
        Result files of ``vllm bench serve --save-result`` (or ``--append-result``) and of
        ``python -m sglang.bench_serving --output-file``, and CSV or Parquet tables.

    Returns
    -------
    tuple of Run
        In the order of files and rows; a plain run that several rows of a table repeat, once. An
        InputError names the file, the line or row, and the key or column that cannot be.

    Notes
    -----
    A step takes TPOT x tokens per step: both engines average TPOT over requests and leave out the
    first token, and both acceptance lengths count the token that the target adds. SGLang's
    acceptance is an average since its server started. Its files tell the draft length only if they
    hold what the server said of itself; otherwise `Run.drafting` sets it. vLLM before 0.14 writes
    nothing of drafts: such a run is a plain one whose events bring several tokens. For the batch
    see `seen_batch`.

    A row of a table may hold a plain run (`base_` columns), a speculative one (`spec_`), or
    both; tokens per second are those of all requests. The batch of a row is its column step_batch,
    as `specmodel measure-engine` writes it. Without that column it is computed by `seen_batch` if
    the row has both tokens per second and the time of a token or step, and else is the concurrency
    that the row names. Rows that a column usable calls false are passed over. A row's step_spread,
    by how much so many repeats differ, (largest - smallest) / median, gives the noise of its runs;
    where it is not there, runs of the same load do, as `with_repeats` finds them.
    """
    if not paths:
        raise InputError("benchmarks", "no file", FORMATS)
    return with_repeats([run for path in paths for run in _file_runs(Path(path))])


def _file_runs(path: Path) -> list[Run]:
    """Return the runs of one file."""
    check_readable(path, "benchmarks", "JSON, CSV or Parquet")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
            if not head:
                raise InputError("benchmarks", str(path), f"a file that is not empty: {FORMATS}")
            if head[:1] in (b"{", b"["):
                return _json_runs(path, size)
            if head[:4] == b"PAR1":
                return _table_runs(read_table(path, _TEXTS, "benchmarks"), path)
            if b"\0" in head:
                raise InputError("benchmarks", str(path), f"no binary file but {FORMATS}")
            file.seek(0)
            table = parse_csv(file, _TEXTS, str(path), "benchmarks", comments=False)
            return _table_runs(table, path)
    except OSError as error:
        reason = f"a readable file ({error.strerror or error})"
        raise InputError("benchmarks", str(path), reason) from None


# Result files in JSON


def _json_runs(path: Path, size: int) -> list[Run]:
    """Return the runs of JSON objects that follow one another, or of a list of them."""
    if size > MOST_BYTES:
        limit = f"a file of at most {MOST_BYTES / 1e9:g} GB: leave out --save-detailed"
        raise InputError("benchmarks", str(path), limit)
    found = list(_json_values(path))
    if len(found) == 1 and isinstance(found[0][1], list):
        entries = enumerate(found[0][1], start=1)
        found = [(f"{path} entry {number}", value) for number, value in entries]
    elif len(found) == 1:
        found = [(str(path), found[0][1])]
    if not found:
        raise InputError("benchmarks", str(path), "at least one result")
    return [_json_run(values, source) for source, values in found]


def _json_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield JSON values that follow one another, with the lines where they begin."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("benchmarks", str(path), "a JSON file in UTF-8") from None
    decode, anything, line, end = json.JSONDecoder().raw_decode, re.compile(r"\S"), 1, 0
    while found := anything.search(text, end):
        start = found.start()
        line += text.count("\n", end, start)
        where = f"{path} line {line}"
        try:
            value, end = decode(text, start)
        except (ValueError, RecursionError) as error:
            expected = f"well-formed JSON that is not cut off ({error})"
            raise InputError(where, text[start : start + 1000], expected) from None
        line += text.count("\n", start, end)
        yield where, value


def _json_run(values: Any, source: str) -> Run:
    """Return the run of one result."""
    keys = list(values) if isinstance(values, dict) else []
    if "completed" in keys:
        positive_in(values, "completed", source, "at least one finished request")
    if {"model_id", "duration"} <= set(keys):
        own = {"engine": "vllm", "model": text_of(values["model_id"])}
        return _engine_run(values, source, own | _vllm_drafting(values, source))
    if {"accept_length", "duration"} <= set(keys):
        return _engine_run(values, source, _sglang_drafting(values, source))
    raise InputError(source, ", ".join(keys[:8]) or values, FORMATS)


def _engine_run(values: Mapping[str, Any], source: str, own: Mapping[str, Any]) -> Run:
    """Return a run from the keys that both engines write, and from what is the engine's `own`."""
    completed = positive_in(values, "completed", source, "finished requests")
    tpot = _tpot(values, source)
    duration = positive_in(values, "duration", source, "seconds above 0")
    output_tokens, prompt_tokens = (
        positive_in(values, f"total_{kind}_tokens", source, "a positive number of tokens")
        for kind in ("output", "input")
    )
    asked = values.get("max_concurrency")
    if asked is not None:
        asked = positive_in(values, "max_concurrency", source, "requests at once, or null")
    decoding = max(output_tokens - completed, 0.0) / duration * tpot
    per_event = (
        number_in(values, "mean_itl_ms", f"{source} mean_itl_ms", strict=False) or tpot * 1e3
    )
    return Run(
        source=source,
        quantity="step_time",
        value=tpot * own.get("tokens_per_step", 1.0),
        batch_size=seen_batch(decoding, min(asked or completed, completed)),
        concurrency=asked,
        prompt_length=prompt_tokens / completed,
        output_length=output_tokens / completed,
        tokens_per_event=per_event / 1e3 / tpot,
        **own,
    )


def _tpot(values: Mapping[str, Any], source: str) -> float:
    """Return the mean time per output token after the first [s]."""
    expected = "milliseconds above 0: a benchmark of more than one token per request that streams "
    name = "mean_tpot_ms"
    tpot = positive_in(values, name, source, f"{expected}and keeps TPOT (--percentile-metrics)")
    check_milliseconds([tpot], f"{source} {name}")
    return tpot / 1e3


def _vllm_drafting(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return acceptance and draft length as vLLM counted them; nothing where it did not draft."""
    if "spec_decode_num_drafts" not in values:
        return {}
    counts = {
        name: positive_in(values, f"spec_decode_{name}", source, "a positive number")
        for name in ("num_drafts", "draft_tokens", "acceptance_length")
    }
    mean = counts["draft_tokens"] / counts["num_drafts"]
    length = max(round(mean), 1)
    if abs(mean - length) > NEAR_WHOLE:
        expected = "one draft length in a run: no schedule of lengths, no n-gram drafter"
        raise InputError(f"{source} spec_decode_draft_tokens", f"{mean:.3g} a draft", expected)
    return {
        "tokens_per_step": counts["acceptance_length"],
        "draft_length": length,
        "verify_tokens": length + 1,
        "acceptance_by_position": _by_position(values, length),
    }


def _by_position(values: Mapping[str, Any], length: int) -> tuple[float, ...]:
    """Return acceptance by position [-]; none unless each position of a draft has its rate."""
    told = values.get("spec_decode_per_position_acceptance_rates")
    reached = np.array([as_number(rate) for rate in told] if isinstance(told, list) else [])
    if len(reached) != length or not ((reached >= 0) & (reached <= 1)).all():
        return ()
    return tuple(conditional_acceptance(np.minimum.accumulate(reached)).tolist())


def _sglang_drafting(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return engine, model, acceptance, and what the server said of its draft length."""
    backend = text_of(values.get("backend", ""))
    if not backend.startswith("sglang"):
        expected = "a backend sglang...: of others the file does not tell whether they speculate"
        raise InputError(f"{source} backend", backend, expected)
    info = _server_info(values)
    own: dict[str, Any] = {"engine": "sglang", "model": text_of(info.get("model_path"))}
    own |= {"version": text_of(info.get("version")), "num_gpus": _num_gpus(info)}
    if not values["accept_length"] and not info.get("speculative_algorithm"):
        return own
    if info.get("speculative_adaptive"):
        expected = "one draft length in a run: --speculative-adaptive left out"
        raise InputError(f"{source} speculative_adaptive", True, expected)
    expected = "tokens per request and step (a run of some 40 steps at least)"
    own["tokens_per_step"] = positive_in(values, "accept_length", source, expected)
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    told: list[Any] = [info.get(f"speculative_{name}") for name in names]
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


def _server_info(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what SGLang's server said of itself; with separate servers, the one that decodes."""
    info = values.get("server_info")
    servers = info.get("decode") if isinstance(info, dict) else None
    first = servers[0] if isinstance(servers, list) and servers else info
    return first if isinstance(first, dict) else {}


# Tables


def _table_runs(table: pd.DataFrame, path: Path) -> list[Run]:
    """Return the runs of a table; a plain run that rows repeat, once."""
    table = _checked(table, path)
    runs: dict[Run, Run] = {}
    for number, row in enumerate(table.to_dict("records"), start=1):
        values = {str(column): value for column, value in row.items()}
        if str(values.get("usable")).lower() == "false":
            continue
        for run in _row_runs(values, f"{path} row {number}"):
            runs.setdefault(run if run.is_speculative else replace(run, source="", noise=0.0), run)
    if not runs:
        raise InputError(str(path), "no usable row", "at least one")
    return list(runs.values())


def _checked(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table with the names of columns that are used here, if it holds any measurement."""
    table.columns = pd.Index([str(column).strip().lower() for column in table.columns])
    for alias, name in _ALIASES.items():
        if name not in table:
            table = table.rename(columns={alias: name})
    need_columns(table, (), argument=str(path))
    names = [f"{kind}{name}" for kind, name in product(("", "base_", "spec_"), _MEASURED)]
    if not {"speedup", *names} & set(table):
        raise InputError(str(path), ", ".join(table.columns[:8]), FORMATS)
    for name in names:
        if name in table and name.endswith("_ms"):
            check_milliseconds(table[name], f"{path} {name}")
    return table


def _row_runs(values: Mapping[str, Any], source: str) -> Iterator[Run]:
    """Yield a row's plain run, its speculative one, and a speedup unless both of them tell it."""
    own: dict[str, Any] = {
        "source": source,
        "engine": text_of(values.get("engine")),
        "version": text_of(values.get("engine_version")),
        "model": text_of(values.get("model")),
        "concurrency": _cell(values, "concurrency", source),
        "prompt_length": number_in(values, "prompt_length", source, strict=False),
        "output_length": number_in(values, "output_length", source, strict=False),
        "noise": _noise(values, source),
    }
    # columns that name neither kind are of the one that the row is
    of_plain, of_drafts = ["base_"], ["spec_"]
    (of_drafts if _speculates(values, source) else of_plain).append("")
    base = _measured(values, source, of_plain)
    drafted = _measured(values, source, of_drafts)
    speedup = _cell(values, "speedup", source)
    if not base and not drafted and speedup is None:
        raise InputError(source, "no measured number", FORMATS)
    batch = _cell(values, "step_batch", source)
    if base:
        yield _timed(base, own, batch)
    if drafted or speedup is not None:
        own |= _row_drafting(values, source)
    if drafted:
        yield _timed(drafted, own, batch)
    if speedup is not None and not (base and drafted):
        yield Run(**own, quantity="speedup", value=speedup, batch_size=_nominal(own))


def _noise(values: Mapping[str, Any], source: str) -> float:
    """Return the standard error of a row's runs by how far repeats differ; 0 if unknown [-]."""
    spread, repeats = (_cell(values, name, source) or 0.0 for name in ("step_spread", "repeats"))
    if not 0.0 <= spread <= MOST_SPREAD:
        expected = f"(largest - smallest) / median of repeats, from 0 to {MOST_SPREAD:g}"
        raise InputError(f"{source} step_spread", spread, expected)
    return spread / mean_range(repeats) / repeats**0.5 if repeats >= 2.0 else 0.0


def _speculates(values: Mapping[str, Any], source: str) -> bool:
    """Return whether a row names a draft length or an acceptance."""
    length, tokens = (_cell(values, name, source) for name in ("draft_length", "tokens_per_step"))
    return bool(length) or (tokens is not None and tokens != 1.0)


def _measured(values: Mapping[str, Any], source: str, kinds: Sequence[str]) -> dict[str, float]:
    """Return what a row measured of one run, by the names of columns without base_ and spec_."""
    found = {}
    for kind, name in product(reversed(kinds), _MEASURED):
        number = _cell(values, f"{kind}{name}", source)
        if number is not None and number <= 0.0:
            raise InputError(f"{source} {kind}{name}", number, "a positive number")
        if number is not None:
            found[name] = number
    return found


def _row_drafting(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return acceptance, draft length and tree of a row; None where it has no draft length."""
    length, tokens = (_cell(values, name, source) for name in ("draft_length", "tokens_per_step"))
    if tokens is None:
        expected = "tokens per request and step, accepted and one more"
        raise InputError(f"{source} tokens_per_step", None, expected)
    topk, verified = (_cell(values, name, source) for name in ("topk", "verify_tokens"))
    if length is None:
        topk = verified = None
    else:
        topk = 1.0 if topk is None else topk
        verified = length + 1.0 if verified is None and topk == 1.0 else verified
    return {
        "tokens_per_step": tokens,
        "draft_length": _as_whole(length),
        "topk": _as_whole(topk),
        "verify_tokens": _as_whole(verified),
    }


def _timed(measured: Mapping[str, float], own: Mapping[str, Any], batch: float | None) -> Run:
    """Return a run with the time of a step and its batch, from what the row has of them."""
    tokens, rate = own.get("tokens_per_step", 1.0), measured.get("tokens_per_s", 0.0)
    if "step_ms" in measured:
        step = measured["step_ms"] / 1e3
    elif "tpot_ms" in measured:
        step = measured["tpot_ms"] / 1e3 * tokens
    else:
        step = _nominal(own) * tokens / measured["tokens_per_s"]
    if batch is None:
        has_both = rate > 0.0 and len(measured) > 1
        batch = _batch(rate * step / tokens, own) if has_both else _nominal(own)
    return Run(**own, quantity="step_time", value=step, batch_size=batch)


def _batch(decoding: float, own: Mapping[str, Any]) -> float:
    """Return the batch of a row that has tokens per second and the time of a token [request]."""
    asked = own["concurrency"]
    if asked is None:
        return max(decoding, 1.0)
    if decoding > (1.0 + MOST_APART) * asked:
        value = f"{decoding:.3g} requests by tokens_per_s x the time of a token"
        expected = f"at most the concurrency {asked:g}: output tokens of all requests, milliseconds"
        raise InputError(f"{own['source']} tokens_per_s", value, expected)
    return seen_batch(decoding, asked)


def _nominal(own: Mapping[str, Any]) -> float:
    """Return the requests at once that a row names [request]."""
    if own["concurrency"] is None:
        raise InputError(f"{own['source']} concurrency", None, "requests at once (or batch_size)")
    return float(own["concurrency"])


def _cell(values: Mapping[str, Any], name: str, source: str) -> float | None:
    return number_in(values, name, f"{source} {name}")


def _as_whole(number: float | None) -> Any:
    """Return a whole number as an int; the run refuses other numbers."""
    return int(number) if number is not None and number.is_integer() else number
