"""Where a sweep is written: one CSV or Parquet file, or a folder of Parquet parts.

All is written beside the final name, which it takes once it is whole. What an interruption leaves
stays there as ``NAME.partial.csv`` and can be read.
"""

from __future__ import annotations

import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.errors import InputError
from specmodel.intervals import COLUMNS as WITH_INTERVAL
from specmodel.outcome import COLUMN_UNITS
from specmodel.profiles import check_writable, write_bytes
from specmodel.sweeps.columns import CODED, WHOLE, data_frame, num_points, part_columns
from specmodel.sweeps.plan import Part, Plan

if TYPE_CHECKING:
    import pyarrow as pa

_ARGUMENT = "output"


class Sink(ABC):
    """Takes the parts of a sweep in order."""

    encode: Callable[[Part], Any]
    """Computes a part in the form that `write` takes; importable elsewhere."""

    def __init__(self, plan: Plan, working: Path) -> None:
        self.plan = plan
        self.working = working

    @abstractmethod
    def write(self, encoded: Any) -> None:
        """Add a part."""

    @abstractmethod
    def close(self) -> None:
        """Leave the parts so far readable."""


def open_sink(plan: Plan, output: str | Path, *, overwrite: bool = False) -> Sink:
    """Return where a sweep is to be written, by the name.

    Parameters
    ----------
    plan
        The sweep.
    output
        NAME.csv, NAME.parquet, or a folder NAME/ for a Parquet file a part.
    overwrite
        Whether what has the name may be replaced; a folder only if it holds nothing but parts.

    Returns
    -------
    Sink
        Open.

    Raises
    ------
    InputError
        If the name does not do, is taken, or cannot be written to.
    """
    path, kind = Path(output), _kind(output)
    working = _working(path)
    check_writable(working, _ARGUMENT)
    for taken in (path, working):
        if taken.exists() and not (overwrite and _is_replaceable(taken, kind)):
            expected = "a name that is not taken" if overwrite else "another name, or overwrite"
            raise InputError(_ARGUMENT, str(taken), expected)
    if kind != ".csv":
        _need_pyarrow(output)
    _remove(working)
    try:
        return _SINKS[kind](plan, working)
    except OSError as error:
        raise _refused(path, error) from None


def finish(sink: Sink, output: str | Path) -> None:
    """Give what was written its final name.

    Parameters
    ----------
    sink
        With all parts.
    output
        As for `open_sink`.
    """
    path = Path(output)
    try:
        sink.close()
        _remove(path)
        sink.working.rename(path)
    except OSError as error:
        _remove(sink.working)
        raise _refused(path, error) from None


def add(sink: Sink, encoded: Any, output: str | Path) -> None:
    """Add a part; where it cannot be written, nothing is left behind.

    Parameters
    ----------
    sink
        Open.
    encoded
        What its `encode` returned.
    output
        As for `open_sink`.
    """
    try:
        sink.write(encoded)
    except (OSError, InputError) as error:
        _remove(sink.working)
        raise _refused(Path(output), error) from None


class _CsvFile(Sink):
    """Text, appended; a part that is cut off is taken back."""

    def __init__(self, plan: Plan, working: Path) -> None:
        super().__init__(plan, working)
        self.encode = csv_text
        self._file = working.open("wb")
        self.write(csv_header(plan))

    def write(self, encoded: str) -> None:
        self._file.write(encoded.encode())
        self._file.flush()
        self._whole = self._file.tell()

    def close(self) -> None:
        self._file.truncate(self._whole)
        self._file.close()


class _ParquetFile(Sink):
    """One file, a row group a part."""

    def __init__(self, plan: Plan, working: Path) -> None:
        super().__init__(plan, working)
        self.encode = arrow_table
        self._writer: Any = None

    def write(self, encoded: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            options = _parquet_options(encoded.column_names)
            self._writer = pq.ParquetWriter(self.working, encoded.schema, **options)
        self._writer.write_table(encoded, row_group_size=len(encoded))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _ParquetFolder(Sink):
    """A file a part, encoded where it was computed."""

    def __init__(self, plan: Plan, working: Path) -> None:
        super().__init__(plan, working)
        self.encode = parquet_bytes
        self._digits = max(len(str(plan.num_parts - 1)), 5)
        self._count = 0
        working.mkdir()

    def write(self, encoded: bytes) -> None:
        name = f"part-{self._count:0{self._digits}}.parquet"
        write_bytes(self.working / name, encoded, _ARGUMENT)
        self._count += 1

    def close(self) -> None:
        """Each part is whole when it is written."""


_SINKS: dict[str, type[Sink]] = {
    ".csv": _CsvFile,
    ".parquet": _ParquetFile,
    "/": _ParquetFolder,
}


def csv_header(plan: Plan) -> str:
    """Return the first line of a CSV."""
    return ",".join((*plan.label_names, *plan.columns)) + "\n"


def csv_text(part: Part) -> str:
    """Compute a part as lines of CSV, in float32."""
    frame = data_frame([(part.labels, part_columns(part, np.float32))])
    return str(frame.to_csv(index=False, header=False, lineterminator="\n"))


def arrow_table(part: Part) -> pa.Table:
    """Compute a part as an Arrow table: float32, words and labels as dictionaries."""
    import pyarrow as pa

    columns = part_columns(part, np.float32)
    size = num_points(columns)
    zeros = np.zeros(size, dtype=np.int32)
    arrays = {
        name: pa.DictionaryArray.from_arrays(zeros, pa.array([value]))
        if isinstance(value, str)
        else pa.array(np.full(size, value))
        for name, value in part.labels.items()
    }
    for name, column in columns.items():
        array = pa.array(column)
        if name in CODED:
            array = pa.DictionaryArray.from_arrays(array, pa.array(CODED[name]))
        arrays[name] = array
    # not null: half the time of encoding
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def parquet_bytes(part: Part) -> bytes:
    """Compute a part as a Parquet file."""
    import pyarrow.parquet as pq

    table, file = arrow_table(part), io.BytesIO()
    pq.write_table(table, file, row_group_size=len(table), **_parquet_options(table.column_names))
    return file.getvalue()


def _parquet_options(names: list[str]) -> dict[str, Any]:
    """Dictionaries and statistics cost most of the time: only for what readers select by."""
    ends = [f"{name}{end}" for name in WITH_INTERVAL for end in ("_low", "_high")]
    computed = {*COLUMN_UNITS, *ends} - {*WHOLE, *CODED}
    axes = [name for name in names if name not in computed]
    return {
        "compression": "snappy",
        "use_dictionary": axes,
        "write_statistics": axes,
        "write_batch_size": 2**16,
    }


def _kind(output: str | Path) -> str:
    text = str(output)
    if text.endswith(("/", os.sep)):
        return "/"
    suffix = Path(text).suffix
    if suffix not in _SINKS:
        raise InputError(_ARGUMENT, text, "NAME.csv, NAME.parquet, or a folder NAME/ for parts")
    return suffix


def _working(path: Path) -> Path:
    return path.with_name(f"{path.stem}.partial{path.suffix}")


def _is_replaceable(path: Path, kind: str) -> bool:
    if kind != "/":
        return path.is_file()
    return path.is_dir() and all(part.match("part-*.parquet") for part in path.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _need_pyarrow(output: str | Path) -> None:
    try:
        import pyarrow.parquet  # noqa: F401 - whether it is there is the question
    except ImportError:
        expected = "NAME.csv, or pip install 'specmodel[sweeps]' for Parquet"
        raise InputError(_ARGUMENT, str(output), expected) from None


def _refused(path: Path, error: OSError | InputError) -> InputError:
    if isinstance(error, InputError):
        return error
    reason = error.strerror or str(error)
    return InputError(_ARGUMENT, str(path), f"a place with room that can be written ({reason})")
