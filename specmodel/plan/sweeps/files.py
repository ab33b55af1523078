"""Compute sweeps in memory, as text, or in files: a folder of parts, or one joined file.

Each part is written completely or not at all, and existing parts are skipped: the same call resumes
an interrupted sweep. The parts of a CSV stay next to it, in ``NAME.csv.parts/``, until all are
finished and joined. A single Parquet file is written in one piece, with each part as a row group.
Joining Parquet files would encode them again, which needs three times as long.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.core.base.errors import InputError, import_extra
from specmodel.core.base.files import followed, refusing, write_bytes
from specmodel.core.prediction.columns import COLUMNS
from specmodel.plan.sweeps.plan import FIRST, POINT_AXES, Part, Plan, plan_sweep
from specmodel.plan.sweeps.workers import results

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

CODED = {column.name: column.words for column in COLUMNS if column.words}
"""Columns of indices into a list of words, and these words."""

MOST_IN_FRAME = 20_000_000
"""Most points of a table in memory [-]."""

_WHOLE = ".specmodel-whole"
"""Name of the joined file in the folder of its parts, until it is complete."""
_refusing = partial(refusing, argument="output", expected="a place that can be written, with room")


def sweep(
    axes: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    interval: bool = False,
    skip_impossible: bool = False,
    gpu_hour_price: float | None = None,
    workers: int | None = None,
    client: Client | str | None = None,
) -> pd.DataFrame:
    """Predict every combination of the axes.

    Parameters
    ----------
    axes, columns, interval, skip_impossible, gpu_hour_price
        As for `plan_sweep` [-].
    workers, client
        Threads, by default one for each core [-]. A Dask client, or the address of a scheduler, to
        use instead of threads.

    Returns
    -------
    pandas.DataFrame
        A row for each point, in the order of `Plan`. `attrs["skipped"]` lists skipped combinations.

    Examples
    --------
    >>> table = sweep({"target": "mixtral-8x7b", "hardware": ["h100_sxm", "h200_sxm"],
    ...                "drafter": "ngram", "batch_size": [1, 16, 256], "draft_length": 3,
    ...                "acceptance_rate": 0.5, "tensor_parallel": 2})
    >>> len(table), list(table.columns[:4])
    (6, ['target', 'drafter', 'hardware', 'engine'])
    """
    import pandas as pd

    how: dict[str, Any] = {"columns": columns, "interval": interval}
    how |= {"skip_impossible": skip_impossible, "gpu_hour_price": gpu_hour_price}
    plan = plan_sweep(axes, **how)
    if plan.num_points > MOST_IN_FRAME:
        expected = f"at most {MOST_IN_FRAME:,} in memory; write larger sweeps to a file"
        raise InputError("num_points", plan.num_points, expected)
    parts = results(plan.parts(), part_frame, workers, client)
    frame: pd.DataFrame = pd.concat([frame for _, frame in parts], ignore_index=True)
    frame.attrs["skipped"] = list(plan.skipped)
    return frame


def csv_chunks(
    plan: Plan, *, workers: int | None = None, client: Client | str | None = None
) -> Iterator[str]:
    """Compute a sweep and yield it as CSV text, part by part.

    Parameters
    ----------
    plan, workers, client
        The sweep, and threads or a Dask cluster for it, as for `sweep` [-].
    """
    parts = results(plan.parts(), csv_bytes, workers, client)
    return (content.decode() for _, content in parts)


def sweep_to_file(
    plan: Plan,
    output: str | Path,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    client: Client | str | None = None,
    progress: Callable[[int], object] = lambda done: None,
) -> int:
    """Compute a sweep of any size and write it in float32 while computing.

    If a sweep to a CSV or a folder is interrupted, the same call resumes after the written parts. A
    single Parquet file is written in one piece. For a sweep of hours, use a folder.

    Parameters
    ----------
    plan, output, overwrite
        The sweep. NAME.csv or NAME.parquet for one file, NAME/ for a folder of Parquet parts.
        Whether to replace an existing file (of a link, its target), or another sweep's parts in a
        folder that contains only parts.
    workers, client
        As for `sweep` [-].
    progress
        Function to call with the number of points in existing parts, and then with the number in
        each finished part [-].

    Returns
    -------
    int
        Number of points in existing parts [-].
    """
    is_folder, path = str(output).endswith(("/", os.sep)), Path(output)
    kind = "/" if is_folder else path.suffix
    if kind not in _FORMS or path.name in ("", ".."):
        expected = "NAME.csv, NAME.parquet, or a folder NAME/ for parts"
        raise InputError("output", str(output), expected)
    if kind != ".csv":
        import_extra("pyarrow.parquet", "sweeps", "output", str(output), "NAME.csv, or for Parquet")
    with _refusing(output):
        path = path if is_folder else followed(path)
        folder = path if is_folder else path.with_name(f"{path.name}.parts")
        is_taken = folder.is_symlink() or folder.is_file()
        if is_taken or (path != folder and path.exists() and not (overwrite and path.is_file())):
            expected = "This file exists. Choose another name, or add `overwrite` to replace it."
            raise InputError("output", str(path), expected)
        folder.mkdir(exist_ok=True)
        _clear(folder, plan.identity, overwrite=overwrite)
    whole, suffix, writer = folder / _WHOLE, kind if kind == ".csv" else ".parquet", None
    there = {file.stem for file in folder.iterdir()}
    kept = sum(part.num_points for part in plan.parts() if part.name in there) if there else 0
    missing = (part for part in plan.parts() if part.name not in there)
    try:
        progress(kept)
        with ExitStack() as opened, _refusing(output):
            for part, content in results(missing, _FORMS[kind], workers, client):
                if kind == ".parquet":
                    writer = writer or opened.enter_context(_parquet_writer(whole, content.schema))
                    writer.write_table(content)
                else:
                    write_bytes(folder / f"{part.name}{suffix}", content)
                progress(part.num_points)
        with _refusing(output):
            if kind == ".csv":
                with whole.open("wb") as joined:
                    for part in plan.parts():
                        joined.write((folder / f"{part.name}.csv").read_bytes())
            if not is_folder:
                whole.replace(path)
                shutil.rmtree(folder)
    finally:
        whole.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()  # which has parts, or is gone
    return kept


def _clear(folder: Path, identity: str, *, overwrite: bool) -> None:
    """Remove incomplete files and, with `overwrite`, another sweep's parts; refuse other files."""
    others = [file for file in folder.iterdir() if not file.match(f"part-*-{identity}.*")]
    stale = (".specmodel-*", "part-*") if overwrite else (".specmodel-*",)
    if not all(any(map(file.match, stale)) for file in others):
        expected = "This folder has files that are no parts of this sweep. Choose another name"
        expected = f"{expected}, or add `overwrite` to replace the parts of another sweep."
        raise InputError("output", str(folder), expected)
    for file in others:
        file.unlink()


def part_columns(part: Part, dtype: type[np.floating[Any]]) -> dict[str, Any]:
    """Return labels and columns of a part as flat arrays, words as indices.

    The indices refer to `CODED` or `Part.words`.
    """
    prediction, columns = part.predict(), dict[str, Any]()
    for name, value in part.labels.items():
        words = part.words.get(name)
        short = np.min_scalar_type(-len(words)) if words else None
        columns[name] = np.full(part.num_points, words.index(value) if words else value, short)
    for name in part.columns:
        values = part.column(prediction, name)
        kind: Any = bool if values.dtype == bool else dtype
        kind = np.int32 if name in POINT_AXES else np.int8 if name in CODED else kind
        every = np.broadcast_to(values, prediction.evaluation.shape)
        columns[name] = every.astype(kind, order="C").ravel()
    return columns


def part_frame(part: Part, dtype: type[np.floating[Any]] = np.float64) -> pd.DataFrame:
    """Compute a part as a tidy table, with words as categories."""
    import pandas as pd

    columns, words = part_columns(part, dtype), {**part.words, **CODED}
    for name in columns.keys() & words:
        columns[name] = pd.Categorical.from_codes(columns[name], pd.Index(words[name]))
    return pd.DataFrame(columns, copy=False)


def csv_bytes(part: Part) -> bytes:
    """Compute a part as lines of CSV, in float32; the first part has the header."""
    header, frame = part.name.startswith(FIRST), part_frame(part, np.float32)
    return str(frame.to_csv(index=False, header=header, lineterminator="\n")).encode()


def arrow_table(part: Part) -> Any:
    """Compute a part as an Arrow table: numbers in float32, words as dictionaries."""
    import pyarrow as pa

    words, arrays = {**part.words, **CODED}, dict[str, Any]()
    for name, column in part_columns(part, np.float32).items():
        arrays[name] = pa.array(column)
        if name in words:
            arrays[name] = pa.DictionaryArray.from_arrays(arrays[name], list(words[name]))
    # columns without nulls are encoded in half the time
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def parquet_bytes(part: Part) -> bytes:
    """Compute a part as a Parquet file."""
    table, file = arrow_table(part), BytesIO()
    with _parquet_writer(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def _parquet_writer(file: Any, schema: Any) -> Any:
    """Return a writer of tables as Parquet, without the slow statistics of float32 columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    how: dict[str, Any] = {"compression": "lz4", "write_batch_size": 2**16}
    how["use_dictionary"] = [f.name for f in schema if pa.types.is_dictionary(f.type)]
    how["write_statistics"] = [f.name for f in schema if f.type != pa.float32()]
    return pq.ParquetWriter(file, schema, **how)


_FORMS: dict[str, Any] = {"/": parquet_bytes, ".csv": csv_bytes, ".parquet": arrow_table}
"""Functions that compute a part, by kind of output; workers import them by name."""
