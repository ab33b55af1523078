"""A sweep of any size as a CSV or Parquet file, or as a folder of Parquet parts.

It is written beside its final name, which it takes once it is whole. What an interrupted sweep
has written stays there as ``NAME.partial.csv`` and can be read.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.sweeps.columns import (
    arrow_table,
    csv_header,
    csv_text,
    parquet_bytes,
    parquet_options,
)
from specmodel.sweeps.plan import Part, Plan
from specmodel.sweeps.workers import chosen_workers, results

if TYPE_CHECKING:
    import pyarrow as pa
    from distributed import Client

_ARGUMENT = "output"


class SweepInterrupted(KeyboardInterrupt):
    """Say what an interrupted sweep leaves.

    Parameters
    ----------
    num_points
        Points computed and written [-].
    path
        Where they are, if there are any.
    """

    def __init__(self, num_points: int, path: Path) -> None:
        super().__init__(f"interrupted: {_kept(num_points, path)}")
        self.num_points = num_points
        self.path = path


def sweep_to_file(
    plan: Plan,
    output: str | Path,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    client: Client | str | None = None,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Compute a sweep of any size and write it while it is computed, in float32.

    Parameters
    ----------
    plan
        The sweep.
    output
        NAME.csv or NAME.parquet for one file, NAME/ for a folder of Parquet parts, which are
        encoded where they are computed: the choice past one machine.
    overwrite
        Whether what has the name may be replaced; a folder only if it holds nothing but parts.
    workers, client
        As for `sweep` [-].
    progress
        Called with the number of points of each part that is done [-].

    Raises
    ------
    InputError
        If the output cannot be written, or a cluster is lost: then what was written is kept
        beside the name.
    SweepInterrupted
        On Ctrl-C; what was written is kept likewise.
    """
    sink = _open_sink(plan, output, overwrite=overwrite)
    try:
        with chosen_workers(workers, client) as pool:
            for part, encoded in zip(plan.parts(), results(plan, sink.encode, pool), strict=True):
                sink.add(encoded, part.num_points)
                if progress:
                    progress(part.num_points)
        sink.finish()
    except KeyboardInterrupt:
        raise SweepInterrupted(sink.keep(), sink.working) from None
    except InputError as error:
        num_points = sink.keep()
        kept = f"; {_kept(num_points, sink.working)}" if num_points else ""
        raise InputError(error.argument, error.value, error.expected + kept) from None
    except BaseException:
        sink.keep()
        raise


def _kept(num_points: int, path: Path) -> str:
    if num_points == 0:
        return "nothing was written yet"
    return f"the first {num_points:,} points are kept in {path}"


class Sink(ABC):
    """Takes the parts of a sweep in order.

    They are written in a thread: as Ctrl-C reaches only the main one, a part is written as a whole
    or not at all.

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
    """Computes a part in the form that is written; importable where the workers are."""

    def __init__(self, plan: Plan, output: str | Path, *, overwrite: bool) -> None:
        self.plan = plan
        self.output = output
        self.overwrite = overwrite
        self.working = _working(output)
        self.num_points = 0
        self._opened = ExitStack()
        self._open()
        self._thread = ThreadPoolExecutor(1)

    def add(self, encoded: Any, num_points: int) -> None:
        """Write a part; where it cannot be written, nothing is left behind."""
        with self._nothing_left():
            self._thread.submit(self._add, encoded, num_points).result()

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
        with self._nothing_left():
            self._end()
        path = Path(self.output)
        with _refusing(self.output):
            _check_free(path, _kind(self.output), overwrite=self.overwrite)
            if path.is_dir():
                shutil.rmtree(path)
            self.working.replace(path)

    @abstractmethod
    def _open(self) -> None:
        """Create the working file, and put on the stack what is to be closed."""

    @abstractmethod
    def _write(self, encoded: Any) -> None: ...

    def _add(self, encoded: Any, num_points: int) -> None:
        self._write(encoded)
        self.num_points += num_points

    def _end(self) -> None:
        self._thread.shutdown()
        self._opened.close()

    def _discard(self) -> None:
        with suppress(OSError):
            self._end()
        self.num_points = 0
        _remove(self.working)

    @contextmanager
    def _nothing_left(self) -> Iterator[None]:
        """Remove what was written if it cannot go on."""
        with _refusing(self.output):
            try:
                yield
            except OSError:
                self._discard()
                raise


def _open_sink(plan: Plan, output: str | Path, *, overwrite: bool) -> Sink:
    """Return where a sweep is to be written, by the name; refuse a name that is taken."""
    kind = _kind(output)
    if kind != ".csv":
        _need_pyarrow(output)
    with _refusing(output):
        for path in (Path(output), _working(output)):
            _check_free(path, kind, overwrite=overwrite)
        _remove(_working(output))
        return _SINKS[kind](plan, output, overwrite=overwrite)


class _CsvFile(Sink):
    """Text, appended."""

    encode = staticmethod(csv_text)

    def _open(self) -> None:
        self._file = self._opened.enter_context(self.working.open("wb"))

    def _write(self, encoded: str) -> None:
        header = "" if self.num_points else csv_header(self.plan)
        self._file.write((header + encoded).encode())
        self._file.flush()


class _ParquetFile(Sink):
    """One file, with a row group for each part."""

    encode = staticmethod(arrow_table)

    def _open(self) -> None:
        import pyarrow as pa

        # Arrow's own file writes without Python's lock
        self._file = self._opened.enter_context(pa.OSFile(str(self.working), "wb"))
        self._writer: Any = None

    def _write(self, encoded: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            options = parquet_options(encoded.column_names)
            self._writer = pq.ParquetWriter(self._file, encoded.schema, **options)
            self._opened.callback(self._writer.close)
        self._writer.write_table(encoded, row_group_size=len(encoded))


class _ParquetFolder(Sink):
    """A file for each part, encoded where it was computed."""

    encode = staticmethod(parquet_bytes)

    def _open(self) -> None:
        self._digits = max(len(str(self.plan.num_parts - 1)), 5)
        self._count = 0
        self.working.mkdir()

    def _write(self, encoded: bytes) -> None:
        name = f"part-{self._count:0{self._digits}}.parquet"
        hidden = self.working / f".{name}"  # readers pass it over until it is whole
        hidden.write_bytes(encoded)
        hidden.rename(self.working / name)
        self._count += 1


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


@contextmanager
def _refusing(output: str | Path) -> Iterator[None]:
    """Turn an error of the system into one that names the output."""
    try:
        yield
    except OSError as error:
        # the system's words, as those of Arrow also tell of its own calls
        reason = os.strerror(error.errno) if error.errno else str(error)
        expected = f"a place with room that can be written ({reason})"
        raise InputError(_ARGUMENT, str(output), expected) from None
