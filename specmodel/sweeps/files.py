"""Where a sweep is written: one CSV or Parquet file, or a folder of Parquet parts.

All is written beside the final name, which it takes once it is whole. What an interruption leaves
stays there as ``NAME.partial.csv`` and can be read.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.sweeps.encodings import (
    arrow_table,
    csv_header,
    csv_text,
    parquet_bytes,
    parquet_options,
)
from specmodel.sweeps.plan import Part, Plan

if TYPE_CHECKING:
    import pyarrow as pa

_ARGUMENT = "output"


class Sink(ABC):
    """Takes the parts of a sweep in order.

    They are written in a thread, as Ctrl-C reaches only the main one: a part is there or not.

    Parameters
    ----------
    plan
        The sweep.
    output
        The final name.
    overwrite
        Whether what has it may be replaced.
    """

    encode: Callable[[Part], Any]
    """Computes a part in the form that is written; importable elsewhere."""

    def __init__(self, plan: Plan, output: str | Path, *, overwrite: bool) -> None:
        self.plan = plan
        self.output = output
        self.overwrite = overwrite
        self.working = _working(output)
        self.num_points = 0
        self._open()
        self._is_open = True
        self._thread = ThreadPoolExecutor(1)

    def add(self, encoded: Any, num_points: int) -> None:
        """Write a part; where it cannot be written, nothing is left behind."""
        try:
            self._thread.submit(self._add, encoded, num_points).result()
        except OSError as error:
            raise self._discarded(error) from None

    def keep(self) -> int:
        """Leave the parts so far readable beside the name; return how many points they have."""
        with suppress(OSError):
            self._end()
            if self.num_points:
                return self.num_points
        self._discard()
        return 0

    def finish(self) -> None:
        """Give what was written its final name."""
        try:
            self._end()
        except OSError as error:
            raise self._discarded(error) from None
        path = Path(self.output)
        try:
            _check_free(path, _kind(self.output), overwrite=self.overwrite)
            if path.is_dir():
                shutil.rmtree(path)
            self.working.replace(path)
        except OSError as error:
            raise _refused(self.output, error) from None

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _write(self, encoded: Any) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    def _add(self, encoded: Any, num_points: int) -> None:
        self._write(encoded)
        self.num_points += num_points

    def _end(self) -> None:
        self._thread.shutdown()
        if self._is_open:
            self._is_open = False
            self._close()

    def _discard(self) -> None:
        with suppress(OSError):
            self._end()
        self.num_points = 0
        _remove(self.working)

    def _discarded(self, error: OSError) -> InputError:
        self._discard()
        return _refused(self.output, error)


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
    kind = _kind(output)
    if kind != ".csv":
        _need_pyarrow(output)
    try:
        for path in (Path(output), _working(output)):
            _check_free(path, kind, overwrite=overwrite)
        _remove(_working(output))
        return _SINKS[kind](plan, output, overwrite=overwrite)
    except OSError as error:
        raise _refused(output, error) from None


class _CsvFile(Sink):
    """Text, appended."""

    def _open(self) -> None:
        self.encode = csv_text
        self._file = self.working.open("wb")

    def _write(self, encoded: str) -> None:
        header = "" if self.num_points else csv_header(self.plan)
        self._file.write((header + encoded).encode())
        self._file.flush()

    def _close(self) -> None:
        self._file.close()


class _ParquetFile(Sink):
    """One file, a row group a part."""

    def _open(self) -> None:
        import pyarrow as pa

        self.encode = arrow_table
        self._file = pa.OSFile(str(self.working), "wb")  # writes without Python's lock
        self._writer: Any = None

    def _write(self, encoded: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            options = parquet_options(encoded.column_names)
            self._writer = pq.ParquetWriter(self._file, encoded.schema, **options)
        self._writer.write_table(encoded, row_group_size=len(encoded))

    def _close(self) -> None:
        with self._file:
            if self._writer is not None:
                self._writer.close()


class _ParquetFolder(Sink):
    """A file a part, encoded where it was computed."""

    def _open(self) -> None:
        self.encode = parquet_bytes
        self._digits = max(len(str(self.plan.num_parts - 1)), 5)
        self._count = 0
        self.working.mkdir()

    def _write(self, encoded: bytes) -> None:
        name = f"part-{self._count:0{self._digits}}.parquet"
        hidden = self.working / f".{name}"  # readers pass it over until it is whole
        hidden.write_bytes(encoded)
        hidden.rename(self.working / name)
        self._count += 1

    def _close(self) -> None:
        """Each part is whole when it is written."""


_SINKS: dict[str, type[Sink]] = {
    ".csv": _CsvFile,
    ".parquet": _ParquetFile,
    "/": _ParquetFolder,
}


def _kind(output: str | Path) -> str:
    text, path = str(output), Path(output)
    is_folder = text.endswith(("/", os.sep))
    kind = "/" if is_folder else path.suffix
    if kind not in _SINKS or path.name in ("", ".."):
        raise InputError(_ARGUMENT, text, "NAME.csv, NAME.parquet, or a folder NAME/ for parts")
    return kind


def _working(output: str | Path) -> Path:
    path = Path(output)
    return path.with_name(f"{path.stem}.partial{path.suffix}")


def _check_free(path: Path, kind: str, *, overwrite: bool) -> None:
    if path.exists() and not (overwrite and _is_replaceable(path, kind)):
        expected = "a name that is not taken" if overwrite else "another name, or overwrite"
        raise InputError(_ARGUMENT, str(path), expected)


def _is_replaceable(path: Path, kind: str) -> bool:
    if kind != "/":
        return path.is_file()
    names = [part.name.removeprefix(".") for part in path.iterdir()] if path.is_dir() else [""]
    return not path.is_symlink() and all(Path(name).match("part-*.parquet") for name in names)


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


def _refused(output: str | Path, error: OSError) -> InputError:
    # the system's words: those of Arrow tell of its own calls too
    reason = os.strerror(error.errno) if error.errno else str(error)
    expected = f"a place with room that can be written ({reason})"
    return InputError(_ARGUMENT, str(output), expected)
