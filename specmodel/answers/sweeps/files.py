"""A sweep as a folder of parts, each written whole or not at all, or as one file joined of them.

Parts that are there are skipped, so that a sweep that was killed goes on by the same call. Those of
a CSV stand beside it, in ``NAME.csv.parts/``, until all are there and joined. Those of one Parquet
file are its row groups, which are not kept: joining files would encode them once more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel import __version__
from specmodel.answers.sweeps.columns import arrow_table, csv_text, parquet_bytes, parquet_options
from specmodel.answers.sweeps.plan import Part, Plan
from specmodel.answers.sweeps.workers import Workers, chosen_workers, results
from specmodel.base.errors import InputError, import_extra
from specmodel.base.files import followed, refusing, write_bytes, write_text

if TYPE_CHECKING:
    from distributed import Client

_ARGUMENT = "output"
_PLACE = "a place with room that can be written"
_TEMPORARY = ".specmodel-*"
"""What was begun in a folder and is not whole, as `write_bytes` names it."""
_WHOLE = ".specmodel-whole"
"""The one file, in the folder of its parts, until it gets its name."""


class SweepInterrupted(KeyboardInterrupt):
    """An interrupted sweep; the message says what is kept."""


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

    However it ends, the parts of a CSV or a folder that were written are whole and stay, and the
    same sweep goes on from them. One Parquet file is written at one go: take a folder for a sweep
    of hours.

    Parameters
    ----------
    plan, output, overwrite
        The sweep; NAME.csv or NAME.parquet for one file, NAME/ for a folder of Parquet
        parts, which are encoded where they are computed: the choice past one machine; whether an
        older file may be replaced, that to which a link leads, and parts of another sweep, in a
        folder that holds nothing but parts.
    workers, client
        As for `sweep` [-].
    progress
        Called with the number of points that were there, and then of each part that is done [-].

    Returns
    -------
    int
        Points that were there already [-].
    """
    kind, path = _kind(output), Path(output)
    folder = path
    with refusing(output, _ARGUMENT, _PLACE):
        if kind != "/":
            path = followed(path)
            folder = path.with_name(f"{path.name}.parts")
            _check_free(path, overwrite=overwrite)
        if folder.is_symlink() or folder.is_file():
            raise InputError(_ARGUMENT, str(folder), "a name that is not taken")
        folder.mkdir(exist_ok=True)
    with _locked(folder), _keeping_parts(plan, folder):
        with refusing(output, _ARGUMENT, _PLACE):
            _clear(plan, folder, overwrite=overwrite)
        there = {file.stem for file in folder.iterdir()}
        parts = plan.parts() if there else ()
        kept = sum(part.num_points for part in parts if part.name in there)
        if kept:
            progress(kept)
        with chosen_workers(workers, client) as pool:
            for num_points in _WRITERS[kind](plan, folder, there, pool):
                progress(num_points)
        if kind != "/":
            with refusing(output, _ARGUMENT, _PLACE):
                _check_free(path, overwrite=overwrite)
                (folder / _WHOLE).replace(path)
                shutil.rmtree(folder)
    return kept


def _write_parts(
    plan: Plan, folder: Path, there: Collection[str], pool: Workers, suffix: str = ".parquet"
) -> Iterator[int]:
    """Write the parts that are not there, and give the points of each [-]."""
    compute, write = _FORMS[suffix]
    missing = (part for part in plan.parts() if part.name not in there)
    for part, content in results(missing, compute, pool):
        write(folder / f"{part.name}{suffix}", content)
        yield part.num_points


def _write_csv(plan: Plan, folder: Path, there: Collection[str], pool: Workers) -> Iterator[int]:
    """Write the parts that are not there, then all of them as one file."""
    yield from _write_parts(plan, folder, there, pool, ".csv")
    with refusing(folder, _ARGUMENT, _PLACE), (folder / _WHOLE).open("wb") as whole:
        for part in plan.parts():
            with (folder / f"{part.name}.csv").open("rb") as file:
                shutil.copyfileobj(file, whole)


def _write_parquet(
    plan: Plan, folder: Path, _there: Collection[str], pool: Workers
) -> Iterator[int]:
    """Write one file with a row group for each part, and give the points of each [-]."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_table(next(plan.parts())).schema
    with ExitStack() as opened:
        with refusing(folder, _ARGUMENT, _PLACE):
            # without Python's lock; in bytes, as a name need not be UTF-8
            file = opened.enter_context(pa.OSFile(os.fsencode(folder / _WHOLE), "wb"))
            writer = pq.ParquetWriter(file, schema, **parquet_options(schema))
            opened.enter_context(writer)
        for part, table in results(plan.parts(), arrow_table, pool):
            with refusing(folder, _ARGUMENT, _PLACE):
                writer.write_table(table)
            yield part.num_points
        with refusing(folder, _ARGUMENT, _PLACE):
            opened.close()


_FORMS: dict[str, tuple[Callable[[Part], Any], Callable[[Path, Any], None]]] = {
    ".csv": (csv_text, write_text),
    ".parquet": (parquet_bytes, write_bytes),
}
"""By suffix: what computes a part, importable where the workers are, and what writes it."""
_WRITERS = {"/": _write_parts, ".csv": _write_csv, ".parquet": _write_parquet}
"""What writes each kind of output."""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder; refuse one that another sweep holds."""
    with ExitStack() as held:
        with refusing(folder, _ARGUMENT, _PLACE):
            handle = os.open(folder, os.O_RDONLY)
        held.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = "another name, as another sweep is being written to it"
            raise InputError(_ARGUMENT, str(folder), expected) from None
        yield


@contextmanager
def _keeping_parts(plan: Plan, folder: Path) -> Iterator[None]:
    """Say of a sweep that ends early which parts are kept; leave nothing else in their folder."""
    try:
        yield
    except (KeyboardInterrupt, InputError) as error:
        count = len(list(folder.glob(_parts_of(plan))))
        kept = f"{count} of {plan.num_parts} parts are kept in {folder}"
        if isinstance(error, KeyboardInterrupt):
            raise SweepInterrupted(f"interrupted: {kept if count else 'nothing is kept'}") from None
        expected = f"{error.expected}; {kept}" if count else error.expected
        raise InputError(error.argument, error.value, expected) from None
    finally:
        (folder / _WHOLE).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()  # which has parts, or is gone


def _clear(plan: Plan, folder: Path, *, overwrite: bool) -> None:
    """Remove what is not whole and, to be replaced, parts of another sweep; refuse all else."""
    others = [file for file in folder.iterdir() if not file.match(_parts_of(plan))]
    parts = [file for file in others if file.match("part-*")]
    foreign = [file for file in others if not file.match(_TEMPORARY) and file not in parts]
    if foreign or (parts and not overwrite):
        remedy = "another name" if foreign else "another name, or `overwrite`"
        expected = f"a folder for parts of this sweep by specmodel {__version__} alone; {remedy}"
        raise InputError(_ARGUMENT, str(folder), expected)
    for file in others:
        file.unlink()


def _parts_of(plan: Plan) -> str:
    """Return the pattern of the names of a sweep's parts."""
    return f"part-*-{plan.identity}.*"


def _check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse the name of a file that is taken, unless by one that may be replaced."""
    if path.exists() and not (overwrite and path.is_file()):
        expected = "another name, or `overwrite`" if path.is_file() else "a name that is not taken"
        raise InputError(_ARGUMENT, str(path), expected)


def _kind(output: str | Path) -> str:
    """Return the suffix of a file, or "/" for a folder, if it is one that can be written here."""
    text, path = str(output), Path(output)
    kind = "/" if text.endswith(("/", os.sep)) else path.suffix
    if kind not in _WRITERS or path.name in ("", ".."):
        raise InputError(_ARGUMENT, text, "NAME.csv, NAME.parquet, or a folder NAME/ for parts")
    if kind != ".csv":
        import_extra("pyarrow.parquet", "sweeps", _ARGUMENT, text, "NAME.csv, or for Parquet")
    return kind
