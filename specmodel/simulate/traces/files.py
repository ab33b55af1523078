"""Read and write traces as JSON lines; read traces as tables in CSV or Parquet.

The first JSON line is the header: schema, version, longest recorded draft, number of requests, and
metadata. Each further line is a request. A table has a row for each position. In tables, and in
JSON lines without a header, the longest draft is the largest count. If such a file has no
proposals, each proposal is assumed to have that length.
"""

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from specmodel.core.base.errors import InputError
from specmodel.core.base.files import check_readable, refusing, write_bytes
from specmodel.core.base.records import Record, build
from specmodel.simulate.traces.record import (
    COLUMNS,
    LONGEST_DRAFT,
    LONGEST_PROMPT,
    Counts,
    Trace,
    check_request,
)

SCHEMA: Literal["specmodel-trace"] = "specmodel-trace"
WRITTEN = ".jsonl"
SUFFIXES = (WRITTEN, ".csv", ".parquet")
AT = re.compile(r"accepted_tokens_at_([1-9]\d{0,2})")
"""Names of columns with accepted tokens of drafts of one length, if they depend on the length."""
PROPOSED, ACCEPTED = COLUMNS
TAKEN = "proposals taken"
"""Key of the metadata with the proposals that are assumed if a file has none."""
REQUEST = "request"
"""Column of a table that identifies requests."""
PROMPT = "prompt_tokens"
"""Column with the length of a request's prompt, if it is known."""

MAX_POSITIONS = 10**8
"""Most output positions of a trace in a file, which need up to 2 GB of memory [token]."""
MAX_LINE = 10**8
"""Longest line of JSON, which needs up to 1 GB of memory [B]."""

Rows = Iterator[tuple[str, Any]]
"""Pairs of a place in a file, as errors name it, and the value at this place."""


class Header(Record, frozen=True, kw_only=True):
    """First line of a trace: the longest draft recorded [token], requests [request], metadata."""

    schema: Literal["specmodel-trace"] = SCHEMA
    schema_version: Literal[1]
    max_draft_length: Annotated[int, Meta(ge=1, le=LONGEST_DRAFT)]
    num_requests: Annotated[int, Meta(ge=1, le=MAX_POSITIONS)]
    metadata: Mapping[str, str]


def read_trace(path: str | Path) -> Trace:
    """Return the trace of a file; errors name the line or request, and none is skipped.

    Parameters
    ----------
    path
        A .jsonl file as `write_trace` writes it; JSON lines without the header, each a request or
        the list of its accepted_tokens; or a .csv or .parquet file with a row for each position.
        The columns of a table are accepted_tokens and, if known, proposed_tokens, request and the
        request's prompt_tokens.
    """
    suffix, name = Path(path).suffix, f"trace {path}"
    if suffix not in SUFFIXES:
        raise InputError("trace", str(path), f"a {' or '.join(SUFFIXES)} file")
    rows = json_lines(path, "trace") if suffix == WRITTEN else _table_rows(path, name)
    where, first = next(rows, (name, None))
    header, longest = None, LONGEST_DRAFT
    if isinstance(first, list) or (isinstance(first, dict) and ACCEPTED in first):
        rows = itertools.chain([(where, first)], rows)
    else:
        header = _header(first, where)
        longest = header.max_draft_length
    requests, prompts = list[tuple[Counts, ...]](), list[int]()
    columns, more, positions = [PROPOSED, ACCEPTED], [PROMPT], 0
    for where, row in rows:
        row = {ACCEPTED: row} if header is None and isinstance(row, list) else row
        if not requests and isinstance(row, dict):  # all requests have the keys of the first
            columns = columns[header is None and PROPOSED not in row :]
            columns += _columns_at(row, longest, where)
            more = [name for name in more if name in row]
        _only_keys(row, [*columns, *more], where)
        for length in (row[name] for name in more):
            if type(length) is not int or not 0 <= length <= LONGEST_PROMPT:
                expected = f"a whole number from 0 to {LONGEST_PROMPT}"
                raise InputError(f"{where} {PROMPT}", length, expected)
            prompts.append(length)
        requests.append(check_request({name: row[name] for name in columns}, longest, where))
        positions += len(requests[-1][0])
        check_positions(positions, where)
    if header is not None and len(requests) != header.num_requests:
        expected = f"{header.num_requests} requests, as its header says"
        raise InputError(name, f"{len(requests)} requests", expected)
    counted = dict(zip(columns, map(np.concatenate, zip(*requests, strict=True)), strict=True))
    metadata = dict(header.metadata) if header else {}
    if header is None:
        longest = max(1, *(int(counts.max()) for counts in counted.values()))
        _columns_at(columns, longest, name)
        if PROPOSED not in columns:
            metadata[TAKEN] = f"drafts of {longest} tokens at each position"
    return Trace(
        proposed_tokens=counted.get(PROPOSED, np.full(positions, longest, np.uint8)),
        accepted_tokens=counted[ACCEPTED],
        output_tokens=np.array([len(counts) for counts, *_ in requests], np.int64),
        max_draft_length=longest,
        metadata=metadata,
        prompt_tokens=np.array(prompts, np.int64) if prompts else None,
        accepted_at={length: counted[own] for own in columns if (length := _length_of(own))},
    )


def _length_of(column: str) -> int:
    found = AT.fullmatch(column)
    return int(found[1]) if found else 0


def _columns_at(names: Collection[str], longest: int, where: str) -> list[str]:
    """Return the columns ``accepted_tokens_at_K``; refuse those with K of `longest` or more."""
    columns = [name for name in names if _length_of(name)]
    for name in columns:
        if _length_of(name) >= longest:
            expected = f"a length below {longest}; accepted_tokens is for the longest drafts"
            raise InputError(f"{where} {name}", _length_of(name), expected)
    return columns


def check_positions(positions: int, argument: str) -> None:
    """Refuse more output positions than a file may have [token]."""
    if positions > MAX_POSITIONS:
        expected = f"at most {MAX_POSITIONS} output tokens in all, which need 2 GB of memory"
        raise InputError(argument, f"{positions} output tokens", expected)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace to a file, as a whole or not at all.

    Parameters
    ----------
    trace, path
        The trace, and a .jsonl file; an existing file is replaced.
    """
    header = {
        "schema": SCHEMA,
        "schema_version": 1,
        "max_draft_length": trace.max_draft_length,
        "num_requests": trace.num_requests,
        "metadata": dict(trace.metadata),
    }
    check_written(path)
    _header(header, "trace")
    lines = [json.dumps(header).encode()]
    arrays = {name: getattr(trace, name) for name in COLUMNS}
    arrays |= {f"accepted_tokens_at_{n}": row for n, row in trace.accepted_at.items()}
    for start, length in zip(trace.starts.tolist(), trace.output_tokens.tolist(), strict=True):
        here = slice(start, start + length)
        row: dict[str, Any] = {name: each[here].tolist() for name, each in arrays.items()}
        if trace.prompt_tokens is not None:
            row[PROMPT] = int(trace.prompt_tokens[len(lines) - 1])
        lines.append(json.dumps(row).encode())
    write_bytes(path, b"\n".join([*lines, b""]))


def check_written(path: str | Path) -> None:
    """Refuse the name of a file without the suffix of traces."""
    if Path(path).suffix != WRITTEN:
        raise InputError("output", str(path), f"a {WRITTEN} file")


def json_lines(path: str | Path, argument: str) -> Rows:
    """Yield the place, as errors name it, and the value of each line of a file of JSON lines."""
    blank = None
    check_readable(Path(path), argument, "JSON lines")
    with refusing(path, argument, "a file that can be read"), Path(path).open("rb") as file:
        lines = iter(partial(file.readline, MAX_LINE + 1), b"")
        for number, line in enumerate(lines, start=1):
            where = f"{argument} {path} line {number}"
            if len(line) > MAX_LINE:
                raise InputError(where, line[:20], f"a line of at most {MAX_LINE / 1e6:g} MB")
            if not line.strip():
                blank = blank or where
                continue
            if blank:
                raise InputError(blank, "", "a JSON object on every line")
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                text = line.decode(errors="replace").strip()
                raise InputError(where, text, f"well-formed JSON ({error})") from None
            yield where, value


def need_keys(row: Any, keys: Collection[str], where: str) -> None:
    """Refuse a line that is not an object with these keys."""
    if not isinstance(row, dict):
        raise InputError(where, row, f"an object with {' and '.join(keys)}")
    for key in keys:
        if key not in row:
            raise InputError(f"{where} {key}", None, "a value for this key")


def _table_rows(path: str | Path, name: str) -> Rows:
    """Yield the requests of a table with a row for each position.

    Without the column `request`, all rows are one request.
    """
    from specmodel.core.base.tables import need_columns, read_table

    table = read_table(path, [REQUEST], name)
    need_columns(table, [ACCEPTED], argument=name)
    columns = [column for column in map(str, table) if column not in (REQUEST, PROMPT)]
    parts = [(name, table)]
    if REQUEST in table:
        groups = table.groupby(REQUEST, sort=False, dropna=False)
        parts = [(f"{name} request {request}", part) for request, part in groups]
    for where, part in parts:
        row: dict[str, Any] = {column: part[column].tolist() for column in columns}
        if PROMPT in part:
            told = part[PROMPT].unique().tolist()
            row[PROMPT] = told[0] if len(told) == 1 else told
        yield where, row


def _header(header: Any, where: str) -> Header:
    """Return the header of a trace; refuse a line that is not a header of this version."""
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        expected = f'a header with "schema": "{SCHEMA}", or requests with {ACCEPTED}'
        raise InputError(where, header, expected)
    return build(Header, header, where)


def _only_keys(row: Any, keys: Collection[str], where: str) -> None:
    need_keys(row, keys, where)
    for key in sorted(row.keys() - {*keys}):
        raise InputError(f"{where} {key}", row[key], f"only {', '.join(sorted(keys))}")
