"""Traces as files: JSON lines for people and tools, Parquet for small size.

The first JSON line is the header: schema, its version, the longest draft recorded, the number of
requests and metadata. Each further line is a request. In Parquet the header is in the metadata of
the table's schema, and each row is a request.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from specmodel.base.errors import InputError
from specmodel.base.files import write_bytes
from specmodel.base.records import Record, build
from specmodel.replay.traces.record import LONGEST_DRAFT, Trace, check_request, collect_trace

SCHEMA = "specmodel-trace"
SCHEMA_VERSION = 1
SUFFIXES = (".jsonl", ".parquet")
COLUMNS = ("proposed_tokens", "accepted_tokens")


class _Header(Record):
    """The header of a trace, beside the name of its schema."""

    schema_version: int
    max_draft_length: Annotated[int, Field(ge=1, le=LONGEST_DRAFT)]
    num_requests: Annotated[int, Field(ge=1)]
    metadata: dict[str, str]


Rows = Iterator[tuple[str, Any]]
"""Pairs of a place in a file, as errors name it, and the value that is there."""


def read_trace(path: str | Path) -> Trace:
    """Return the trace of a file.

    Parameters
    ----------
    path
        A .jsonl or .parquet file as `write_trace` writes it.

    Returns
    -------
    Trace
        Its requests in their order.

    Raises
    ------
    InputError
        Names the file, the line or request at fault, and what would be right; nothing is skipped.
    """
    is_text = trace_suffix(path, "trace") == ".jsonl"
    name = f"trace {path}"
    rows = json_lines(path, "trace") if is_text else _parquet_rows(path, name)
    where, first = next(rows, (name, None))
    header = _header(first, where)
    longest = header.max_draft_length
    requests = [check_request(*_columns(row, where), longest, where) for where, row in rows]
    if len(requests) != header.num_requests:
        expected = f"num_requests = {header.num_requests}, as in its header"
        raise InputError(name, f"{len(requests)} requests", expected)
    return collect_trace(requests, longest, header.metadata)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace as a whole or not at all.

    Parameters
    ----------
    trace
        The trace.
    path
        A .jsonl or .parquet file; one that exists is replaced.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    header = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "max_draft_length": trace.max_draft_length,
        "num_requests": trace.num_requests,
        "metadata": dict(trace.metadata),
    }
    is_text = trace_suffix(path, "output") == ".jsonl"
    _header(header, "trace")
    write_bytes(path, _json_bytes(trace, header) if is_text else _parquet_bytes(trace, header))


def trace_suffix(path: str | Path, argument: str) -> str:
    """Return the suffix of a trace's file; refuse one that cannot be read or written here."""
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise InputError(argument, str(path), f"a {' or '.join(SUFFIXES)} file")
    if suffix == ".parquet":
        _pyarrow(argument)
    return suffix


def json_lines(path: str | Path, argument: str) -> Rows:
    """Yield the values of a file of JSON lines.

    Parameters
    ----------
    path
        The file; blank lines may only be at its end.
    argument
        Name that an error should carry, before the path and the line.

    Yields
    ------
    tuple of str and object
        Where it is, such as "trace mine.jsonl line 4", and the value.

    Raises
    ------
    InputError
        Names the file, or the line at fault.
    """
    blank = None
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                where = f"{argument} {path} line {number}"
                if not line.strip():
                    blank = blank or where
                    continue
                if blank:
                    raise InputError(blank, "", "a JSON object on every line")
                yield where, _json_value(line, where)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(argument, str(path), f"a file that can be read ({reason})") from None


def need_keys(
    row: Any, keys: Collection[str], where: str, hints: Mapping[str, str] | None = None
) -> None:
    """Refuse a line that is no object with these keys; `hints` say why others may be there."""
    if not isinstance(row, dict):
        raise InputError(where, row, f"an object with {' and '.join(keys)}")
    for key in keys:
        if key not in row:
            hint = next((hint for other, hint in (hints or {}).items() if other in row), "")
            raise InputError(f"{where} {key}", None, f"this key to be given{hint}")


def _json_value(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        text = line.decode(errors="replace").strip()
        raise InputError(where, text, f"well-formed JSON ({error})") from None


def _json_bytes(trace: Trace, header: Mapping[str, Any]) -> bytes:
    lines = [json.dumps(header)]
    for start, length in zip(trace.starts.tolist(), trace.output_tokens.tolist(), strict=True):
        here = slice(start, start + length)
        row = {name: getattr(trace, name)[here].tolist() for name in COLUMNS}
        lines.append(json.dumps(row))
    return ("\n".join(lines) + "\n").encode()


def _parquet_rows(path: str | Path, name: str) -> Rows:
    pyarrow, parquet = _pyarrow()
    try:
        with Path(path).open("rb") as file:
            table = parquet.ParquetFile(file).read()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(name, str(path), f"a file that can be read ({reason})") from None
    except pyarrow.ArrowException as error:
        raise InputError(name, str(path), f"a well-formed Parquet file ({error})") from None
    header = (table.schema.metadata or {}).get(SCHEMA.encode())
    yield name, None if header is None else _json_value(header, name)
    if sorted(table.column_names) != sorted(COLUMNS):
        raise InputError(name, table.column_names, f"columns {' and '.join(COLUMNS)}")
    columns = [_lists(pyarrow, table[column], f"{name} {column}") for column in COLUMNS]
    for i, values in enumerate(zip(*columns, strict=True)):
        yield f"{name} request {i}", dict(zip(COLUMNS, values, strict=True))


def _lists(pyarrow: Any, column: Any, name: str) -> Iterator[Any]:
    """Yield the arrays of a column of lists, as plain lists where values are missing."""
    kind = column.type
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if not is_list or not pyarrow.types.is_integer(kind.value_type):
        raise InputError(name, str(kind), "lists of whole numbers, such as list<uint8>")
    for chunk in column.chunks:
        if chunk.null_count or chunk.values.null_count:
            yield from chunk.to_pylist()
            continue
        offsets, values = chunk.offsets.to_numpy(), chunk.values.to_numpy()
        yield from (values[a:b] for a, b in pairwise(offsets.tolist()))


def _parquet_bytes(trace: Trace, header: Mapping[str, Any]) -> bytes:
    pyarrow, parquet = _pyarrow()
    offsets = pyarrow.array(np.append(trace.starts, len(trace.proposed_tokens)), pyarrow.int32())
    arrays = [pyarrow.ListArray.from_arrays(offsets, getattr(trace, name)) for name in COLUMNS]
    table = pyarrow.Table.from_arrays(arrays, names=list(COLUMNS))
    table = table.replace_schema_metadata({SCHEMA: json.dumps(header)})
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(table, buffer)
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def _pyarrow(argument: str = "trace") -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        expected = "it to be installed: pip install 'specmodel[traces]'"
        raise InputError(argument, "no package pyarrow", expected) from None
    return pyarrow, pyarrow.parquet


def _header(header: Any, where: str) -> _Header:
    """Return the header of a trace of this version; refuse anything else."""
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise InputError(where, header, f'a header with "schema": "{SCHEMA}"')
    version = header.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise InputError(f"{where}.schema_version", version, str(SCHEMA_VERSION))
    return build(_Header, {key: v for key, v in header.items() if key != "schema"}, where)


def _columns(row: Any, where: str) -> tuple[Any, Any]:
    need_keys(row, COLUMNS, where)
    for key in row.keys() - set(COLUMNS):
        raise InputError(f"{where} {key}", row[key], f"only {', '.join(sorted(COLUMNS))}")
    return row[COLUMNS[0]], row[COLUMNS[1]]
