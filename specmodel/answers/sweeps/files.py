"""A sweep of any size as a CSV or Parquet file, or as a folder of Parquet parts.

It is written beside its final name, which it takes once it is whole. What an interrupted sweep
has written stays there as ``NAME.partial.csv`` and can be read; the same sweep goes on from there.
"""

from __future__ import annotations

import errno
import fcntl
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.answers.sweeps.columns import (
    arrow_table,
    csv_header,
    csv_text,
    parquet_bytes,
    parquet_options,
)
from specmodel.answers.sweeps.plan import Part, Plan
from specmodel.answers.sweeps.workers import chosen_workers, results
from specmodel.base.errors import InputError, import_extra
from specmodel.base.files import followed, refusing

if TYPE_CHECKING:
    import pyarrow as pa
    from distributed import Client

_ARGUMENT = "output"
_PLACE = "a place with room that can be written"
_INDEXED = ".parquet"
"""Kind of one file with an index at its end, which cannot be continued."""
_END, _PIECE = 2**14, 2**18
"""Bytes at the end of a file for each row group, at most; bytes that are written at a time [B]."""


class SweepInterrupted(KeyboardInterrupt):
    """An interrupted sweep; the message says which points are kept.

    Parameters
    ----------
    num_points, path
        Points computed and written [-], and where they are, if there are any.
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
    progress: Callable[[int], object] = lambda done: None,
) -> int:
    """Compute a sweep of any size and write it while it is computed, in float32.

    If it is interrupted, or a cluster is lost, what was written is kept. If the process is killed
    outright, a CSV or the parts of a folder can be read. A single Parquet file cannot, as
    its index comes last: take a folder for a sweep of hours. The same sweep goes on where a CSV or
    a folder ends, if the first and the last part that are there are what it computes itself.

    Parameters
    ----------
    plan, output, overwrite
        The sweep; NAME.csv or NAME.parquet for one file, NAME/ for a folder of Parquet
        parts, which are encoded where they are computed: the choice past one machine; whether an
        older file may be replaced, that to which a link leads, and a folder only if it holds
        nothing but parts.
    workers, client
        As for `sweep` [-].
    progress
        Called with the number of points of each part that is done, those kept first [-].

    Returns
    -------
    int
        Points that an interrupted run had written already [-].
    """
    kind, path = _kind(output), Path(output)
    with refusing(output, _ARGUMENT, _PLACE):
        path = followed(path) if path.is_symlink() and kind != "/" else path
    working = path.with_name(f"{path.stem}.partial{path.suffix}")
    with _locked(output, (path, working), kind, overwrite=overwrite):
        with refusing(output, _ARGUMENT, _PLACE):
            done = _FORMS[kind][2](plan, working, overwrite)
        sink = _Sink(plan, output, working, kind, sum(done))
        try:
            for num_points in done:
                progress(num_points)
            with chosen_workers(workers, client) as pool:
                encoded = results(plan, sink.encode, pool, len(done))
                parts = itertools.islice(plan.parts(), len(done), None)
                for part, content in zip(parts, encoded, strict=True):
                    sink.add(content, part.num_points)
                    progress(part.num_points)
            sink.finish(path, overwrite=overwrite)
        except BaseException as error:
            num_points = sink.keep()
            if isinstance(error, KeyboardInterrupt):
                raise SweepInterrupted(num_points, working) from None
            if num_points and isinstance(error, InputError):
                expected = f"{error.expected}; {_kept(num_points, working)}"
                raise InputError(error.argument, error.value, expected) from None
            raise
    return sum(done)


def _kept(num_points: int, path: Path) -> str:
    """Return as text how many points are kept, and in which file."""
    if num_points == 0:
        return "nothing was written yet"
    return f"the first {num_points:,} points are kept in {path}"


class _Sink:
    """Takes the parts of a sweep in order, in a working file or folder that is locked.

    A thread writes them: Ctrl-C reaches only the main thread, so a part is written whole or not at
    all.
    """

    def __init__(
        self, plan: Plan, output: str | Path, working: Path, kind: str, num_points: int
    ) -> None:
        self.output, self.working, self.kind = output, working, kind
        self.encode, written, _ = _FORMS[kind]
        self.num_points = num_points
        self._opened = ExitStack()
        with refusing(output, _ARGUMENT, _PLACE), ExitStack() as failing:
            failing.callback(self.keep)
            self._write = self._opened.enter_context(written(plan, working))
            failing.pop_all()
        self._thread = self._opened.enter_context(ThreadPoolExecutor(1))

    def add(self, encoded: Any, num_points: int) -> None:
        """Write a part."""
        with refusing(self.output, _ARGUMENT, _PLACE):
            self._thread.submit(self._add, encoded, num_points).result()

    def _add(self, encoded: Any, num_points: int) -> None:
        self._write(encoded)
        self.num_points += num_points

    def keep(self) -> int:
        """Leave the parts so far readable beside the name; return how many points they have."""
        with suppress(OSError):
            self._close()
        if not self.num_points:
            if self.working.is_dir():
                shutil.rmtree(self.working)
            else:
                self.working.unlink(missing_ok=True)
        return self.num_points

    def _close(self) -> None:
        """Wait for what is being written, and end the file."""
        try:
            self._opened.close()
        except OSError:
            self.num_points = 0  # without its end, a file cannot be read
            raise

    def finish(self, path: Path, *, overwrite: bool) -> None:
        """Give what was written its final name."""
        with refusing(self.output, _ARGUMENT, _PLACE):
            self._close()
            _check_free(path, self.kind, overwrite=overwrite)
            if path.is_dir():
                shutil.rmtree(path)
            self.working.replace(path)


@contextmanager
def _locked(
    output: str | Path, paths: tuple[Path, Path], kind: str, *, overwrite: bool
) -> Iterator[None]:
    """Hold the working file or folder, last of `paths`; refuse what is taken or held by another."""
    working = paths[-1]
    with refusing(output, _ARGUMENT, _PLACE):
        _check_free(paths[0], kind, overwrite=overwrite)
        folder = f"{paths[0].with_suffix('')}/, parts that go on where they stopped; or "
        _check_free(working, kind, folder, overwrite=overwrite or kind != _INDEXED)
        if kind == "/":
            working.mkdir(exist_ok=True)
        flags = os.O_RDONLY if kind == "/" else os.O_RDWR | os.O_CREAT
        handle = os.open(working, flags, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_first = os.path.samestat(os.fstat(handle), working.stat())
        except (BlockingIOError, FileNotFoundError):
            is_first = False
        if not is_first:
            expected = "another name, as another sweep is being written to it"
            raise InputError(_ARGUMENT, str(output), expected)
        yield
    finally:
        os.close(handle)


def _kept_lines(plan: Plan, working: Path, overwrite: bool) -> list[int]:
    """Cut a CSV off after the last part that is there whole; return the points of each [-]."""
    kept, ends, checked = [], [0], list[tuple[Part, bytes]]()
    with working.open("r+b") as file:
        head = file.readline()
        for part in plan.parts():
            text = b"".join(itertools.islice(file, part.num_points))
            checked = [*checked[:1], (part, text)] if text else checked
            if text.count(b"\n") < part.num_points:
                break
            kept.append(part.num_points)
            ends.append(file.tell())
        is_own = csv_header(plan).encode().startswith(head) and not file.read(1)
        is_own &= all(csv_text(part).encode().startswith(text) for part, text in checked)
        kept = _own(kept, working, is_own=is_own, overwrite=overwrite)
        file.truncate(ends[len(kept)])
    return kept


def _kept_files(plan: Plan, working: Path, overwrite: bool) -> list[int]:
    """Remove all but the leading parts of a folder; return the points of each that is left [-]."""
    parts = zip(plan.parts(), _part_paths(plan, working), strict=False)
    found = list(itertools.takewhile(lambda pair: pair[1].is_file(), parts))
    visible = [path for path in working.iterdir() if not path.name.startswith(".")]
    is_own = len(visible) == len(found) and all(
        path.read_bytes() == parquet_bytes(part) for part, path in (*found[:1], *found[1:][-1:])
    )
    kept = _own([part.num_points for part, _ in found], working, is_own=is_own, overwrite=overwrite)
    for path in {*working.iterdir()}.difference(path for _, path in found[: len(kept)]):
        path.unlink()
    return kept


def _own(kept: list[int], working: Path, *, is_own: bool, overwrite: bool) -> list[int]:
    """Return the points kept of each part, none of another sweep; refuse if these must stay."""
    if not is_own and not overwrite:
        expected = "rows of this sweep, to go on from; or another name, or `overwrite`"
        raise InputError(_ARGUMENT, str(working), expected)
    return kept if is_own else []


@contextmanager
def _csv_file(plan: Plan, working: Path) -> Iterator[Callable[[str], None]]:
    """Append text; what does not fit is cut off again."""
    with working.open("ab", buffering=0) as file:

        def write(text: str) -> None:
            end = file.tell()
            try:
                _write_all(file, ((csv_header(plan) if end == 0 else "") + text).encode())
            except OSError:
                file.truncate(end)
                raise

        yield write


def _write_all(file: io.FileIO, content: bytes) -> None:
    """Write in pieces, for which the kernel takes half the time."""
    left = memoryview(content)
    while left:
        left = left[file.write(left[:_PIECE]) :]


@contextmanager
def _parquet_file(plan: Plan, working: Path) -> Iterator[Callable[[pa.Table], None]]:
    """Write a row group for each part.

    A file without its end cannot be read, and the end cannot be written after a row group that did
    not fit: a row group is begun only if there is room for both.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # without Python's lock; in bytes, as a name need not be UTF-8
    with pa.OSFile(os.fsencode(working), "wb") as file, ExitStack() as opened:
        writers: list[Any] = []

        def write(table: pa.Table) -> None:
            need = table.nbytes + _END * (1 + file.tell() // table.nbytes)
            if shutil.disk_usage(working.parent).free < need:
                raise OSError(errno.ENOSPC, "")
            if not writers:
                writer = pq.ParquetWriter(file, table.schema, **parquet_options(table.schema))
                writers.append(opened.enter_context(writer))
            writers[0].write_table(table)

        yield write


@contextmanager
def _parquet_folder(plan: Plan, working: Path) -> Iterator[Callable[[bytes], None]]:
    """Write a file for each part, encoded where it was computed."""
    paths = itertools.filterfalse(Path.exists, _part_paths(plan, working))

    def write(encoded: bytes) -> None:
        path = next(paths)
        hidden = path.with_name(f".{path.name}")  # readers pass it over until it is whole
        try:
            with hidden.open("wb", buffering=0) as file:
                _write_all(file, encoded)
            hidden.rename(path)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise

    yield write


def _part_paths(plan: Plan, working: Path) -> Iterator[Path]:
    """Give the files of a folder's parts in their order."""
    digits = max(len(str(plan.num_parts - 1)), 5)
    return (working / f"part-{number:0{digits}}.parquet" for number in itertools.count())


_FORMS: dict[str, tuple[Callable[[Part], Any], Callable[..., Any], Callable[..., list[int]]]] = {
    ".csv": (csv_text, _csv_file, _kept_lines),
    ".parquet": (arrow_table, _parquet_file, lambda *_: []),
    "/": (parquet_bytes, _parquet_folder, _kept_files),
}
"""By kind: what computes a part in the form that is written, importable where the workers are; what
opens the working file or folder for a function that writes a part; and what leaves those parts of
an interrupted run that a sweep goes on from, and refuses another sweep's unless it is replaced."""


def _kind(output: str | Path) -> str:
    """Return the suffix of a file, or "/" for a folder, if it is one that can be written here."""
    text, path = str(output), Path(output)
    is_folder = text.endswith(("/", os.sep))
    kind = "/" if is_folder else path.suffix
    if kind not in _FORMS or path.name in ("", ".."):
        expected = "NAME.csv, NAME.parquet, or a folder NAME/ for parts"
        raise InputError(_ARGUMENT, text, expected)
    if kind != ".csv":
        import_extra("pyarrow.parquet", "sweeps", _ARGUMENT, text, "NAME.csv, or for Parquet")
    return kind


def _check_free(path: Path, kind: str, instead: str = "", *, overwrite: bool) -> None:
    """Refuse a name that is taken, unless by a sweep that may be replaced.

    That is a file, or a folder of nothing but parts, finished or not; no link.
    """
    if not path.is_symlink() and not path.exists():
        return
    is_ours = path.is_file()
    if kind == "/":
        names = [part.name.removeprefix(".") for part in path.iterdir()] if path.is_dir() else [""]
        is_ours = all(Path(name).match("part-*.parquet") for name in names)
    if not overwrite or path.is_symlink() or not is_ours:
        other = f"{instead}another name, or `overwrite`"
        expected = "a name that is not taken" if overwrite else other
        raise InputError(_ARGUMENT, str(path), expected)
