"""The columns of a part: as arrays, as a table, as text, as Arrow and Parquet; sweeps in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers.sweeps.parameters import POINT_AXES
from specmodel.answers.sweeps.plan import Part, Plan, plan_sweep
from specmodel.answers.sweeps.workers import chosen_workers, results
from specmodel.base.errors import InputError
from specmodel.prediction.columns import COLUMNS, with_interval
from specmodel.prediction.outcome import Prediction

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from distributed import Client

Column = np.ndarray[Any, np.dtype[Any]]

MOST_IN_FRAME = 20_000_000
"""Most points of a table in memory [-]."""

CODED = {column.name: column.words for column in COLUMNS if column.words}
"""Columns that hold places in a list of words."""


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
        Threads, one for each core by default [-]; or in their place a Dask client, or the address
        of a scheduler.

    Returns
    -------
    pandas.DataFrame
        A row a point, in the order of `Plan`; `attrs["skipped"]` says what was left out.

    Examples
    --------
    >>> table = sweep({"target": "mixtral-8x7b", "hardware": ["h100_sxm", "h200_sxm"],
    ...                "drafter": "ngram", "batch_size": [1, 16, 256], "draft_length": 3,
    ...                "acceptance_rate": 0.5, "tensor_parallel": 2})
    >>> len(table), list(table.columns[:4])
    (6, ['target', 'drafter', 'hardware', 'engine'])
    """
    import pandas as pd

    plan = plan_sweep(
        axes,
        columns=columns,
        interval=interval,
        skip_impossible=skip_impossible,
        gpu_hour_price=gpu_hour_price,
    )
    if plan.num_points > MOST_IN_FRAME:
        expected = f"at most {MOST_IN_FRAME:,} in a table: write more to a file"
        raise InputError("num_points", plan.num_points, expected)
    with chosen_workers(workers, client) as pool:
        frames = [frame for _, frame in results(plan.parts(), part_frame, pool)]
    frame = pd.concat(frames, ignore_index=True)
    frame.attrs["skipped"] = list(plan.skipped)
    return frame


def csv_chunks(
    plan: Plan, *, workers: int | None = None, client: Client | str | None = None
) -> Iterator[str]:
    """Yield a sweep as CSV text while it is computed, a part at a time.

    Parameters
    ----------
    plan, workers, client
        The sweep; where it is computed, as for `sweep` [-].
    """
    with chosen_workers(workers, client) as pool:
        yield from (text for _, text in results(plan.parts(), csv_text, pool))


def part_columns(part: Part, dtype: type[np.floating[Any]] = np.float64) -> dict[str, Column]:
    """Return labels and columns of a part flat; words are places in `CODED` or `Part.words`."""
    prediction, columns = part.predict(), dict[str, Column]()
    for name, value in part.labels.items():
        words = part.words.get(name)
        short = np.min_scalar_type(-len(words)) if words else None
        columns[name] = np.full(part.num_points, words.index(value) if words else value, short)
    for name in part.columns:
        values = _column(prediction, part, name)
        every = np.broadcast_to(values, prediction.evaluation.shape)
        columns[name] = every.astype(_dtype(name, values, dtype), order="C").ravel()
    return columns


def part_frame(part: Part, dtype: type[np.floating[Any]] = np.float64) -> pd.DataFrame:
    """Compute a part as a tidy table, words as categories."""
    import pandas as pd

    columns: dict[str, Any] = {**part_columns(part, dtype)}
    for name, words in {**part.words, **CODED}.items():
        if name in columns:
            columns[name] = pd.Categorical.from_codes(columns[name], pd.Index(words))
    return pd.DataFrame(columns, copy=False)


def csv_text(part: Part) -> str:
    """Compute a part as lines of CSV, in float32; the first part has the header."""
    frame = part_frame(part, np.float32)
    return str(frame.to_csv(index=False, header=part.is_first, lineterminator="\n"))


def arrow_table(part: Part) -> pa.Table:
    """Compute a part as an Arrow table: float32, words and labels as dictionaries."""
    import pyarrow as pa

    words, arrays = {**part.words, **CODED}, dict[str, Any]()
    for name, column in part_columns(part, np.float32).items():
        # `pa.array` would import pandas
        bits = np.packbits(column, bitorder="little") if column.dtype == bool else column
        buffers, kind = [None, pa.py_buffer(bits)], pa.from_numpy_dtype(column.dtype)
        arrays[name] = pa.Array.from_buffers(kind, len(column), buffers)
        if name in words:
            known = pa.lib.StringBuilder()
            known.append_values(words[name])
            arrays[name] = pa.DictionaryArray.from_arrays(arrays[name], known.finish(), safe=False)
    # columns declared to have no nulls are encoded in half the time
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def parquet_bytes(part: Part) -> bytes:
    """Compute a part as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, file = arrow_table(part), pa.BufferOutputStream()
    pq.write_table(table, file, **parquet_options(table.schema))
    return bytes(file.getvalue())


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Return how to write Parquet, with statistics of all but float32, whose take long."""
    import pyarrow as pa

    return {
        "compression": "lz4",
        "use_dictionary": [f.name for f in schema if pa.types.is_dictionary(f.type)],
        "write_statistics": [f.name for f in schema if f.type != pa.float32()],
        "write_batch_size": 2**16,
    }


def _column(prediction: Prediction, part: Part, name: str) -> Column:
    """Return a column of a prediction or a part of its interval, not yet repeated."""
    if name == "acceptance_rate":  # NaN for trees, which have none
        acceptance, is_chain = prediction.evaluation.acceptance, prediction.evaluation.is_chain
        rate = acceptance.rate() if is_chain.any() else np.nan
        return np.asarray(rate if is_chain.all() else np.where(is_chain, rate, np.nan))
    if name == "accepted_fraction":
        return np.asarray(part.arguments["acceptance"].accepted_fraction)
    stem, _, end = name.rpartition("_")
    if prediction.intervals and stem in prediction.intervals and name in with_interval(stem):
        return np.asarray(getattr(prediction.intervals[stem], end))
    return prediction.value(name)


def _dtype(name: str, values: Column, dtype: Any) -> Any:
    """Return the dtype of a column; `dtype` is that of columns of floats."""
    if name in POINT_AXES:
        return np.int32
    return np.int8 if name in CODED else bool if values.dtype == bool else dtype
