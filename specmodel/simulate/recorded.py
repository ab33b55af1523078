"""Read recorded requests from files: tables, public traces, and records of benchmarks."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from specmodel.core.base.errors import InputError, refuse_given
from specmodel.core.base.files import json_text, parsed_json
from specmodel.core.base.notes import Note
from specmodel.core.base.records import read_mapping
from specmodel.core.base.tables import as_numbers, numbers, read_table
from specmodel.core.base.units import FloatArray, check
from specmodel.simulate.requests import LONGEST, MOST_REQUESTS, Requests, Whole
from specmodel.simulate.traces.files import json_lines

_ARGUMENT, _CACHED, _PHASE = "workload", "hash_ids", "metadata.benchmark_phase"
_BLOCKS = "blocks"
"""Column with the number of a request's hash_ids; `_CACHED` has those seen before."""
_LARGEST, _TRIED, _AGREEING = 4097, 1000, 0.9
"""Bound of a block [token]; first requests to compare [request]; share that must agree [-]."""
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Units of time, and their number in a second [-]."""
_LATEST = 1e19
"""Largest time in a file, in its unit: nanoseconds since 1970 are above 1e18 [-]."""
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
"""Units of a window, and the duration of each [s]."""
_HEAD = 100
"""First lines that show the format of a file; some may be failed requests [-]."""
_RARE, _LONG = 0.02, 1000.0
"""Times with a lower rate and a longer duration are probably in a finer unit [request/s] [s]."""
_BRIEF, _SLOWEST, _FASTEST = 1.0, 1e-3, 1e3
"""Bounds of a plausible recording: least duration [s], least and largest rate [request/s]."""
_Times: TypeAlias = tuple[FloatArray, str, list[Note]]


class _Format(NamedTuple):
    """A format of recordings, by the columns of arrival and lengths; a dot leads to an inner key.

    `name` is the source of such files. A file with the columns `time`, `prompt`, `output` and
    `also` has this format. Times that are not dates are in `unit`, and each of the hash_ids is a
    block of `block` tokens, unless the contents contradict this. With `is_by_end`, requests are in
    the order in which they ended, or almost in order of arrival. With `is_doubtful`, the answer
    always reports the unit.
    """

    name: str
    time: str
    prompt: str
    output: str
    unit: str = "s"
    is_by_end: bool = False
    block: int = 512
    also: Sequence[str] = ()
    is_doubtful: bool = False

    @property
    def columns(self) -> tuple[str, str, str]:
        """The names of the three columns that a request needs."""
        return self.time, self.prompt, self.output


_ROWS = read_mapping(Path(__file__).parent / "data/recordings.toml", "recordings")
OURS, *_ = FORMATS = [_Format(name=name, **row) for name, row in _ROWS.items()]
"""Our own format, and all formats; a file has the first format whose columns it contains."""
_EXPECTED = (
    "columns arrival_time, prompt_tokens and output_tokens, or a trace of Azure, BurstGPT,"
    " Mooncake or Qwen-Bailian, vllm bench serve --save-detailed, or AIPerf's profile_export.jsonl"
)


def read_requests(
    path: str | Path,
    time_window: str | None = None,
    time_unit: str | None = None,
    hash_block: int | None = None,
) -> Requests:
    """Read recorded requests; the first one arrives at 0.

    Parameters
    ----------
    path
        A .csv or .parquet file with the columns arrival_time [s], prompt_tokens and output_tokens,
        or one of `FORMATS`, in .csv, .parquet, .jsonl or .json.
    time_window
        FROM:TO, the part to read: seconds since the first request, or times such as 10m:1h.
    time_unit
        Unit of its times: s, ms, us or ns; None to infer it from columns and times.
    hash_block
        Tokens of a block of hash_ids; None to infer it from prompts and their blocks [token].

    Notes
    -----
    Requests must be in order of arrival; those of vLLM and AIPerf are sorted. In files of other
    formats than our own, requests without an output token failed, and are skipped. Leading blocks
    of a prompt whose hash_ids occurred before are cached, as in an unlimited cache. At most the
    first `MOST_REQUESTS` requests of a file are read, and a window must end within them.
    """
    if time_unit not in (None, *UNITS):
        raise InputError("time_unit", time_unit, f"one of {', '.join(UNITS)}")
    table, form = _table(Path(path))
    notes, is_whole = list[Note](), len(table) <= MOST_REQUESTS
    if form is not OURS:
        failed = table[form.output].isna() | (as_numbers(table[form.output]) == 0)
        table, count = table[~failed], int(failed.sum())
        notes += [Note("failed_left_out", {"count": count})] if count else []
    if table.empty:
        raise InputError(_ARGUMENT, str(path), "at least one request")
    times, unit, doubts = _seconds(table, form, time_unit)
    notes += doubts
    prompts, outputs = (
        numbers(table, name, minimum=1, maximum=LONGEST, whole=True, argument=_ARGUMENT)
        for name in (form.prompt, form.output)
    )
    falls, order = np.flatnonzero(np.diff(times) < 0), np.argsort(times, kind="stable")
    if len(falls) and not form.is_by_end:
        row = int(falls[0]) + 1
        expected = f"times in ascending order: at least the {times[row - 1]:g} s of data row {row}"
        raise InputError(f"{_ARGUMENT}.{form.time}", float(times[row]), expected)
    if len(falls):
        notes.append(Note("sorted_by_arrival", {"name": form.name}))
    times = times[order] - times[order[0]]
    kept = _inside(times, time_window, str(path), is_whole=is_whole)
    order, times = order[kept], times[kept]
    cached, block = _cached(table, prompts, form.block, hash_block)
    return Requests(
        arrival_time=times - times[0],
        prompt_tokens=prompts[order].astype(np.int64),
        output_tokens=outputs[order].astype(np.int64),
        cached_tokens=None if cached is None else cached[order],
        reading=" and ".join(filter(None, (unit, block))),
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
    form = next((f for f in FORMATS if {*f.columns, *f.also} <= {*names}), None)
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
    names = [*form.columns, *([_BLOCKS, _CACHED] if _CACHED in own else [])]
    records = _of_lines(chain(head, lines), names)
    return pd.DataFrame(islice(records, MOST_REQUESTS + 1), columns=names), form


def _of_lines(lines: Iterator[Any], names: list[str]) -> Iterator[list[Any]]:
    """Yield the columns of each line, including the number of blocks, and of those seen before."""
    seen = set[Any]()
    for record in lines:
        if _at(record, _PHASE) == "warmup":
            continue
        row = [_at(record, name) for name in names]
        if names[-1] == _CACHED:
            blocks = row[-1]
            if not isinstance(blocks, list) or not all(isinstance(b, int | str) for b in blocks):
                expected = "a list of block ids, numbers or text"
                raise InputError(f"{_ARGUMENT}.{_CACHED}", blocks, expected)
            new = (place for place, block in enumerate(blocks) if block not in seen)
            row[-2:] = len(blocks), next(new, len(blocks))
            seen.update(blocks)
        yield row


def _at(record: Any, path: str) -> Any:
    """Return the value at a dotted path of keys, None if a key is missing."""
    for key in path.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _from_result(path: Path) -> tuple[pd.DataFrame, _Format]:
    """Return the columns of a result in JSON, which has a list for each column, and the format."""
    try:
        found = parsed_json(json_text(path, _ARGUMENT, "fewer requests"))
    except ValueError as error:
        expected = f"one result in well-formed JSON ({error})"
        raise InputError(_ARGUMENT, str(path), expected) from None
    names = [*found] if isinstance(found, dict) else []
    if "input_lens" in names and "start_times" not in names:
        expected = "start_times too, which vLLM 0.15 or newer writes with --save-detailed"
        raise InputError(f"{_ARGUMENT}.start_times", None, expected)
    form = _format_of(names)
    try:
        return pd.DataFrame({name: found[name] for name in form.columns}), form
    except ValueError:
        expected = f"lists of equal length: {', '.join(form.columns)}"
        raise InputError(_ARGUMENT, str(path), expected) from None


def _seconds(table: pd.DataFrame, form: _Format, typed: str | None) -> _Times:
    """Return times of arrival [s], the unit as text if it is a guess, and notes on doubts."""
    column = table[form.time]
    if column.dtype.kind == "M" or as_numbers(column).isna().all():
        dates = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
        if dates.isna().any():
            culprit = column[dates.isna()].iloc[0]
            expected = "a number, or a date such as 2023-11-16 18:15:46.68"
            raise InputError(f"{_ARGUMENT}.{form.time}", culprit, expected)
        expected = "The times of this file are dates. Remove `time_unit`."
        refuse_given({"time_unit": typed}, ("time_unit",), expected)
        return np.asarray((dates - dates.min()).dt.total_seconds(), np.float64), "", []
    own = numbers(table, form.time, above=-1, minimum=0, maximum=_LATEST, argument=_ARGUMENT)
    unit, doubts = (typed, []) if typed else _unit_of(own, form)
    is_guess = not typed and (unit != form.unit or form.is_doubtful)
    return own / UNITS[unit], f"times in {unit}" * is_guess, doubts


def _unit_of(times: FloatArray, form: _Format) -> tuple[str, list[Note]]:
    """Return the unit of times, and a note if another unit gives a more likely rate.

    It is the unit of the format unless the times contradict it: if they are dates since 1970,
    fractions in a unit of whole numbers, or give an implausible duration or rate.
    """
    dated = [unit for unit, many in UNITS.items() if 1e9 <= times.min() / many < 1e10]
    span, likely = float(np.ptp(times)), form.unit
    if dated or not span:
        return (*dated, likely)[0], []
    rates = {unit: len(times) * many / span for unit, many in UNITS.items()}
    seconds, rate = span / UNITS[form.unit], rates[form.unit]
    if seconds >= _LONG or rates["s"] >= _RARE:
        likely = next((unit for unit in UNITS if rates[unit] >= _RARE), likely)
    is_whole = form.unit == "s" or (times == np.floor(times)).all()
    is_kept = is_whole and seconds >= _BRIEF and _SLOWEST <= rate <= _FASTEST
    unit, other = (form.unit, likely) if is_kept else (likely, form.unit)
    told = {"column": form.time, "unit": unit, "rate": rates[unit]}
    note = Note("time_unit", told | {"other": other, "other_rate": rates[other]})
    return unit, [note] if likely != form.unit else []


def _cached(
    table: pd.DataFrame, prompts: FloatArray, usual: int, typed: int | None
) -> tuple[Whole | None, str]:
    """Return the cached tokens of each prompt [token], and the block as text if it is a guess."""
    if _CACHED not in table:
        expected = "This file has no hash_ids. Remove `hash_block`."
        refuse_given({"hash_block": typed}, ("hash_block",), expected)
        return None, ""
    block = _block_of(prompts, table[_BLOCKS].to_numpy(), usual) if typed is None else typed
    check("hash_block", block, minimum=1, maximum=LONGEST, whole=True)
    cached = np.minimum(table[_CACHED].to_numpy() * block, prompts).astype(np.int64)
    return cached, f"blocks of {block} tokens" * (typed is None)


def _block_of(prompts: FloatArray, counts: FloatArray, usual: int) -> int:
    """Return the tokens of a block that give most prompts their number of blocks [token].

    Files count either whole blocks only, or also the last one.
    """
    sizes = np.array([usual, *2 ** np.arange(3, 13), *range(16, _LARGEST, 16), *range(1, _LARGEST)])
    counts = counts[:_TRIED, None]
    blocks = np.where(counts, prompts[:_TRIED, None] / sizes, 0)
    shares = np.max([np.mean(cut(blocks) == counts, axis=0) for cut in (np.ceil, np.floor)], axis=0)
    if shares.max() < _AGREEING:
        some = zip(counts[:3, 0], prompts[:3], strict=True)
        value = ", ".join(f"{count} for {prompt:g} tokens" for count, prompt in some)
        expected = "The blocks differ in size. Give the tokens of a block as `hash_block`."
        raise InputError(f"{_ARGUMENT}.{_CACHED}", value, expected)
    return int(sizes[shares.argmax()])


def _inside(times: FloatArray, window: str | None, path: str, *, is_whole: bool) -> Any:
    """Return which requests are in a window, or all; refuse a window that ends beyond them."""
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
        expected = f"at most {MOST_REQUESTS:,} requests: add `time_window='0:{times[-1]:.0f}s'`"
        raise InputError("time_window" if window else _ARGUMENT, window or path, expected)
    kept = (since <= times) & (times < until)
    if not kept.any():
        expected = f"a window with requests; the file covers {times[-1]:.6g} s"
        raise InputError("time_window", window, expected)
    return kept
