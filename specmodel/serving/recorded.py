"""Recorded requests from files: our own tables, public traces, and records of benchmarks."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.base.files import check_readable, parsed_json
from specmodel.base.notes import Note
from specmodel.base.tables import MOST_BYTES, as_numbers, numbers, read_table
from specmodel.base.units import FloatArray
from specmodel.replay.traces.files import json_lines
from specmodel.serving.requests import LONGEST, MOST_REQUESTS, Requests

_ARGUMENT, _CACHED, _PHASE = "workload", "hash_ids", "metadata.benchmark_phase"
_BLOCK = 512
"""Tokens of a block that Mooncake's hash_ids name [token]."""
_LATEST = 1e19
"""Largest time that a file may have, in its unit: nanoseconds since 1970 are above 1e18 [-]."""
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
"""Units of a window, how long each is [s]."""
_HEAD = 100
"""Lines of a file that tell its kind, of which the first may be of failed requests [-]."""
_RARE, _LONG = 0.02, 1000.0
"""A rate below which whole times that go on for so long look like milliseconds [request/s] [-]."""


class _Format(NamedTuple):
    """Where a kind of file has what a request needs; a dot leads to a key within another.

    `name` is whose it is. `time`, `prompt` and `output` are when a request came, and its lengths: a
    file that has all three is of this kind. There are `per_second` units of time in a second, 0 for
    dates. With `is_by_end`, requests stand in the order in which they ended, or nearly in that of
    arrival.
    """

    name: str
    time: str
    prompt: str
    output: str
    per_second: float = 1.0
    is_by_end: bool = False

    @property
    def columns(self) -> tuple[str, str, str]:
        """The names of the three columns that identify the format."""
        return self.time, self.prompt, self.output


OURS = _Format("specmodel", "arrival_time", "prompt_tokens", "output_tokens")
FORMATS = (
    OURS,
    _Format("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", per_second=0),
    _Format("BurstGPT", "Timestamp", "Request tokens", "Response tokens"),
    _Format("Mooncake", "timestamp", "input_length", "output_length", per_second=1e3),
    _Format("vLLM", "start_times", "input_lens", "output_lens", is_by_end=True),
    _Format(
        *("AIPerf", "metadata.request_start_ns"),
        *("metrics.input_sequence_length.value", "metrics.output_sequence_length.value"),
        per_second=1e9,
        is_by_end=True,
    ),
)
"""The kinds of files that are read, the first whose columns a file has."""
_EXPECTED = (
    "columns arrival_time, prompt_tokens and output_tokens, or a trace of Azure, BurstGPT or"
    " Mooncake, the result of vllm bench serve --save-detailed, or AIPerf's profile_export.jsonl"
)


def read_requests(path: str | Path, time_window: str | None = None) -> Requests:
    """Return recorded requests, the first of which comes at 0.

    Parameters
    ----------
    path
        A .csv or .parquet file with the columns arrival_time [s], prompt_tokens and output_tokens,
        or one of `FORMATS`, in .csv, .parquet, .jsonl or .json.
    time_window
        FROM:TO, which part of it is taken: seconds since its first request, or such as 10m:1h.

    Notes
    -----
    Requests must be in the order of arrival; those of vLLM and AIPerf are sorted. In files of
    others, requests without an output token failed, and are left out. Mooncake's hash_ids tell
    which leading blocks of a prompt came before: those are cached, as in a cache without bound. Of
    a file with more than `MOST_REQUESTS` the first so many are read, in which a window must end.
    """
    table, form = _table(Path(path))
    notes, is_whole = list[Note](), len(table) <= MOST_REQUESTS
    if form is not OURS:
        failed = table[form.output].isna() | (as_numbers(table[form.output]) == 0)
        table, count = table[~failed], int(failed.sum())
        notes += [Note("failed_left_out", {"count": count})] if count else []
    if table.empty:
        raise InputError(_ARGUMENT, str(path), "at least one request")
    times = _seconds(table, form)
    prompts, outputs = (
        numbers(table, name, minimum=1, maximum=LONGEST, whole=True, argument=_ARGUMENT)
        for name in (form.prompt, form.output)
    )
    falls, order = np.flatnonzero(np.diff(times) < 0), np.argsort(times, kind="stable")
    if len(falls) and not form.is_by_end:
        row = int(falls[0]) + 1
        expected = f"times that never fall, as in row {row} after {times[row - 1]:g} s"
        raise InputError(f"{_ARGUMENT}.{form.time}", float(times[row]), expected)
    if len(falls):
        notes.append(Note("sorted_by_arrival", {"name": form.name}))
    times = times[order] - times[order[0]]
    kept = _inside(times, time_window, str(path), is_whole=is_whole)
    order, times = order[kept], times[kept]
    cached = table[_CACHED].to_numpy(np.int64)[order] if _CACHED in table else None
    times = times - times[0]
    rate = len(times) / times[-1] if times[-1] >= _LONG else np.inf
    if form is OURS and rate < _RARE and (times == np.floor(times)).all():
        notes.append(Note("perhaps_milliseconds", {"rate": rate}))
    return Requests(
        arrival_time=times,
        prompt_tokens=prompts[order].astype(np.int64),
        output_tokens=outputs[order].astype(np.int64),
        cached_tokens=cached,
        notes=tuple(notes),
    )


def _table(path: Path) -> tuple[pd.DataFrame, _Format]:
    """Return the needed columns of at most `MOST_REQUESTS` + 1 requests, and the format."""
    if path.suffix == ".jsonl":
        return _from_lines(path)
    if path.suffix == ".json":
        return _from_result(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(_ARGUMENT, str(path), "a .csv, .parquet, .jsonl or .json file")
    table = read_table(path, (), _ARGUMENT, most=MOST_REQUESTS + 1)
    form = _format_of([*table])
    return table[[*form.columns]], form


def _format_of(names: list[str]) -> _Format:
    form = next((form for form in FORMATS if {*form.columns} <= {*names}), None)
    if form is None:
        raise InputError(_ARGUMENT, ", ".join(names[:8]) or "no columns", _EXPECTED)
    return form


def _from_lines(path: Path) -> tuple[pd.DataFrame, _Format]:
    """Return the columns of JSON lines, without warm-up requests, and the format."""
    lines = (record for _, record in json_lines(path, _ARGUMENT))
    head = [*islice(lines, _HEAD)]
    if not head:
        raise InputError(_ARGUMENT, str(path), f"at least one request: {_EXPECTED}")
    own = dict.fromkeys(name for record in head if isinstance(record, dict) for name in record)
    told = [name for form in FORMATS for name in form.columns if any(_at(r, name) for r in head)]
    form = _format_of([*own, *told])
    names = [*form.columns, *([_CACHED] if _CACHED in own else [])]
    records = _of_lines(chain(head, lines), names)
    return pd.DataFrame(islice(records, MOST_REQUESTS + 1), columns=names), form


def _of_lines(lines: Iterator[Any], names: list[str]) -> Iterator[list[Any]]:
    """Yield the columns of each line; for blocks, the leading tokens seen before [token]."""
    seen = set[Any]()
    for record in lines:
        if _at(record, _PHASE) == "warmup":
            continue
        row = [_at(record, name) for name in names]
        if names[-1] == _CACHED:
            blocks = row[-1]
            if not isinstance(blocks, list) or not all(isinstance(block, int) for block in blocks):
                raise InputError(f"{_ARGUMENT}.{_CACHED}", blocks, "a list of numbers of blocks")
            new = (place for place, block in enumerate(blocks) if block not in seen)
            row[-1] = next(new, len(blocks)) * _BLOCK
            seen.update(blocks)
        yield row


def _at(record: Any, path: str) -> Any:
    """Return the value at a dotted path of keys; None where a key is missing."""
    for key in path.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _from_result(path: Path) -> tuple[pd.DataFrame, _Format]:
    """Return the requests of a result in JSON, which has a list for each column."""
    check_readable(path, _ARGUMENT, "JSON")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(_ARGUMENT, str(path), f"a file of at most {MOST_BYTES / 1e9:g} GB")
    try:
        found = parsed_json(path.read_bytes())
    except ValueError as error:
        raise InputError(
            _ARGUMENT, str(path), f"one result in well-formed JSON ({error})"
        ) from None
    names = [*found] if isinstance(found, dict) else []
    if "input_lens" in names and "start_times" not in names:
        expected = "start_times too, which vLLM since 0.15 writes with --save-detailed"
        raise InputError(f"{_ARGUMENT}.start_times", None, expected)
    form = _format_of(names)
    try:
        return pd.DataFrame({name: found[name] for name in form.columns}), form
    except ValueError:
        expected = f"lists of equal length: {', '.join(form.columns)}"
        raise InputError(_ARGUMENT, str(path), expected) from None


def _seconds(table: pd.DataFrame, form: _Format) -> FloatArray:
    """Return when requests came, as the file counts [s]."""
    if form.per_second:
        own = numbers(table, form.time, above=-1, minimum=0, maximum=_LATEST, argument=_ARGUMENT)
        return own / form.per_second
    column = table[form.time]
    dates = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
    if dates.isna().any():
        culprit = column[dates.isna()].iloc[0]
        expected = "a date such as 2023-11-16 18:15:46.68"
        raise InputError(f"{_ARGUMENT}.{form.time}", culprit, expected)
    return np.asarray((dates - dates.min()).dt.total_seconds(), np.float64)


def _inside(times: FloatArray, window: str | None, path: str, *, is_whole: bool) -> Any:
    """Return which requests are in a window, all without one; refuse one that ends unread."""
    since, until = 0.0, np.inf
    if window is not None:
        try:
            since, until = (
                float(end.rstrip("smh")) * _SECONDS[end.lstrip("0123456789.")]
                for end in str(window).replace(" ", "").split(":")
            )
        except (ValueError, KeyError):
            until = 0.0
        if not 0 <= since < until:
            raise InputError("time_window", window, "FROM:TO, such as 0:1h, 10m:20m or 600:1200")
    if not is_whole and until > times[-1]:
        expected = f"at most {MOST_REQUESTS:,} requests: --time-window 0:{times[-1]:.0f} or less"
        raise InputError("time_window" if window else _ARGUMENT, window or path, expected)
    kept = (since <= times) & (times < until)
    if not kept.any():
        raise InputError("time_window", window, f"a part of its {times[-1]:.6g} s with requests")
    return kept
