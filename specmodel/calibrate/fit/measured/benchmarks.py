"""Result files of engine benchmarks, and tables that users keep of them, read as runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.aliases import TABLES
from specmodel.calibrate.fit.measured.results import FORMATS, json_run
from specmodel.calibrate.fit.measured.runs import MOST_APART, Run, mean_range, seen_batch
from specmodel.calibrate.fit.measured.tables import Cells, check_milliseconds
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import check_readable, json_text, refusing
from specmodel.core.base.tables import need_columns, parse_csv, read_table

MOST_ROWS = 100_000  # most rows of a table, of which each is a run or two
MOST_SPREAD = 100.0  # largest difference of repeats over their median [-]

_COLUMNS = TABLES["runs"]
_TEXTS: Sequence[str] = _COLUMNS["texts"]
_MEASURED: Sequence[str] = _COLUMNS["measured"]


def read_benchmarks(paths: Sequence[str | Path]) -> tuple[Run, ...]:
    """Return the runs in benchmark files, whose format their content tells.

    Parameters
    ----------
    paths
        Result files of ``vllm bench serve --save-result`` (or ``--append-result``), of ``python -m
        sglang.bench_serving --output-file``, of GuideLLM (``--output kind=json``) and of AIPerf
        (``profile_export_aiperf.json``), and CSV or Parquet tables.

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
    `seen_batch`.

    A row of a table may hold a plain run (`base_` columns), a speculative one (`spec_`), or
    both; tokens per second are those of all requests. The batch of a row is its column step_batch.
    Without that column it is computed by `seen_batch` if
    the row has both tokens per second and the time of a token or step, and else is the concurrency
    that the row names. Rows that a column usable calls false are passed over. A row's step_spread,
    by how much so many repeats differ, (largest - smallest) / median, gives the noise of its runs.
    """
    if not paths:
        raise InputError("benchmarks", "no file", FORMATS)
    return tuple(run for path in paths for run in _file_runs(Path(path)))


def _file_runs(path: Path) -> list[Run]:
    """Return the runs of one file."""
    check_readable(path, "benchmarks", "JSON, CSV or Parquet")
    with refusing(path, "benchmarks", "a readable file"), path.open("rb") as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        if not head:
            raise InputError("benchmarks", str(path), f"a file that is not empty: {FORMATS}")
        if head[:1] in (b"{", b"["):
            return _json_runs(path)
        if head[:4] == b"PAR1":
            return _table_runs(read_table(path, _TEXTS, "benchmarks", most=MOST_ROWS + 1), path)
        if b"\0" in head:
            raise InputError("benchmarks", str(path), f"a file of text or Parquet: {FORMATS}")
        file.seek(0)
        how: Any = {"comments": False, "most": MOST_ROWS + 1}
        return _table_runs(parse_csv(file, _TEXTS, str(path), "benchmarks", **how), path)


# Result files in JSON


def _json_runs(path: Path) -> list[Run]:
    """Return the runs of JSON objects that follow one another, or of a list of them."""
    values = _json_values(path)
    first = [*islice(values, 2)]
    found = chain(first, values) if len(first) > 1 else _entries(path, first[0][1])
    runs = [json_run(values, source) for source, values in found]
    if not runs:
        raise InputError("benchmarks", str(path), "at least one result")
    return runs


def _entries(path: Path, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the results in a value: those of a list or of GuideLLM's report, or the value."""
    held = value.get("benchmarks", value) if isinstance(value, dict) else value
    if not isinstance(held, list):
        return iter([(str(path), held)])
    return ((f"{path} entry {number}", entry) for number, entry in enumerate(held, start=1))


def _json_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield JSON values that follow one another, with the lines where they begin."""
    text = json_text(path, "benchmarks", "leave out --save-detailed")
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


# Tables


def _table_runs(table: pd.DataFrame, path: Path) -> list[Run]:
    """Return the runs of a table; a plain run that rows repeat, once."""
    table = _checked(table, path)
    runs: dict[Run, Run] = {}
    for number, row in enumerate(table.to_dict("records"), start=1):
        values = {str(column): value for column, value in row.items()}
        if str(values.get("usable")).lower() == "false":
            continue
        source = f"{path} row {number}"
        for run in _row_runs(Cells(values, f"{source} "), source):
            runs.setdefault(run if run.is_speculative else replace(run, source="", noise=0.0), run)
    if not runs:
        raise InputError(str(path), "no usable row", "at least one")
    return list(runs.values())


def _checked(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table with the names of columns that are used here, if it holds any measurement."""
    table.columns = pd.Index([str(column).strip().lower() for column in table.columns])
    for alias, name in _COLUMNS["aliases"].items():
        if name not in table:
            table = table.rename(columns={alias: name})
    need_columns(table, (), argument=str(path))
    if len(table) > MOST_ROWS:
        raise InputError("benchmarks", str(path), f"a table of at most {MOST_ROWS:,} rows")
    names = [f"{kind}{name}" for kind, name in product(("", "base_", "spec_"), _MEASURED)]
    if not {"speedup", *names} & set(table):
        raise InputError(str(path), ", ".join(table.columns[:8]), FORMATS)
    for name in names:
        if name in table and name.endswith("_ms"):
            check_milliseconds(table[name], f"{path} {name}")
    return table


def _row_runs(row: Cells, source: str) -> Iterator[Run]:
    """Yield a row's plain run, its speculative one, and its speedup unless both runs have times."""
    own: dict[str, Any] = {
        "source": source,
        "engine": row.text("engine"),
        "version": row.text("engine_version"),
        "model": row.text("model"),
        "concurrency": row.number("concurrency"),
        "prompt_length": row.number("prompt_length", strict=False),
        "output_length": row.number("output_length", strict=False),
        "noise": _noise(row),
    }
    length, tokens = row.number("draft_length"), row.number("tokens_per_step")
    speculates = bool(length) or tokens not in (None, 1.0)
    # columns that name neither kind are of the one that the row is
    base = _measured(row, ["base_"] if speculates else ["", "base_"])
    drafted = _measured(row, ["", "spec_"] if speculates else ["spec_"])
    speedup = row.number("speedup")
    if not base and not drafted and speedup is None:
        raise InputError(source, "no measured number", FORMATS)
    batch = row.number("step_batch")
    if base:
        yield _timed(base, own, batch)
    if drafted or speedup is not None:
        own |= _row_drafting(row)
    if drafted:
        yield _timed(drafted, own, batch)
    if speedup is not None and not (base and drafted):
        yield Run(**own, quantity="speedup", value=speedup, batch_size=_nominal(own))


def _noise(row: Cells) -> float:
    """Return the standard error of a row's runs by how far repeats differ; 0 if unknown [-]."""
    spread, repeats = (row.number(name) or 0.0 for name in ("step_spread", "repeats"))
    if not 0.0 <= spread <= MOST_SPREAD:
        expected = f"(largest - smallest) / median of repeats, from 0 to {MOST_SPREAD:g}"
        raise InputError(f"{row.prefix}step_spread", spread, expected)
    return spread / mean_range(repeats) / repeats**0.5 if repeats >= 2.0 else 0.0


def _measured(row: Cells, kinds: Sequence[str]) -> dict[str, float]:
    """Return the measured values of one run in a row, by column without base_ and spec_."""
    found = {}
    for kind, name in product(kinds, _MEASURED):
        number = row.number(f"{kind}{name}")
        if number is not None and number <= 0.0:
            raise InputError(f"{row.prefix}{kind}{name}", number, "a positive number")
        if number is not None:
            found[name] = number
    return found


def _row_drafting(row: Cells) -> dict[str, Any]:
    """Return acceptance, draft length and tree of a row; None where it has no draft length."""
    names = ("draft_length", "tokens_per_step", "topk", "verify_tokens")
    length, tokens, topk, verified = map(row.number, names)
    if tokens is None:
        expected = "tokens per request and step, accepted and one more"
        raise InputError(f"{row.prefix}tokens_per_step", None, expected)
    topk = 1.0 if topk is None else topk
    if length is None:
        topk = verified = None
    elif verified is None and topk == 1.0:
        verified = length + 1.0
    tree = {"draft_length": length, "topk": topk, "verify_tokens": verified}
    return {"tokens_per_step": tokens} | {name: _as_whole(n) for name, n in tree.items()}


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


def _as_whole(number: float | None) -> Any:
    """Return a whole number as an int; the run refuses other numbers."""
    return int(number) if number is not None and number.is_integer() else number
