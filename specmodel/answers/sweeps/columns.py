"""The columns of a part: as arrays, as a table, as text, as Arrow and Parquet."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.answers.sweeps.plan import POINT_AXES, Part, Plan, with_ends
from specmodel.base.units import FloatArray
from specmodel.prediction.columns import COLUMN_UNITS, COLUMNS, with_interval
from specmodel.prediction.outcome import Prediction

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Column = np.ndarray[Any, np.dtype[Any]]

CODED = {column.name: column.words for column in COLUMNS if column.words}
"""Columns that hold places in a list of words."""


def part_columns(part: Part, dtype: type[np.floating[Any]] = np.float64) -> dict[str, Column]:
    """Return the columns of a part flat; those of `CODED` hold places in their list of words."""
    prediction = part.predict()
    shape = prediction.speedup.shape
    return {
        name: _flat(_column(prediction, part, name), shape, name, dtype) for name in part.columns
    }


def data_frame(parts: Sequence[tuple[dict[str, Any], dict[str, Column]]]) -> pd.DataFrame:
    """Return labels and columns of several parts as one tidy table, words as categories."""
    import pandas as pd

    sizes = [len(next(iter(columns.values()))) for _, columns in parts]
    joined: dict[str, Any] = {}
    for name in parts[0][0]:
        values = [labels[name] for labels, _ in parts]
        if isinstance(values[0], str):
            place = {word: i for i, word in enumerate(dict.fromkeys(values))}
            codes = np.repeat([place[value] for value in values], sizes)
            joined[name] = _categories(codes, list(place))
        else:
            joined[name] = np.repeat(values, sizes)
    for name in parts[0][1]:
        column = np.concatenate([columns[name] for _, columns in parts])
        joined[name] = _categories(column, CODED[name]) if name in CODED else column
    return pd.DataFrame(joined, copy=False)


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
    zeros = np.zeros(part.num_points, dtype=np.int32)
    arrays = {
        name: pa.DictionaryArray.from_arrays(zeros, pa.array([value]))
        if isinstance(value, str)
        else pa.array(np.full(part.num_points, value))
        for name, value in part.labels.items()
    }
    for name, column in columns.items():
        array = pa.array(column)
        if name in CODED:
            array = pa.DictionaryArray.from_arrays(array, pa.array(CODED[name]))
        arrays[name] = array
    # columns declared to have no nulls are encoded in half the time
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def parquet_bytes(part: Part) -> bytes:
    """Compute a part as a Parquet file."""
    import pyarrow.parquet as pq

    table, file = arrow_table(part), io.BytesIO()
    pq.write_table(table, file, row_group_size=len(table), **parquet_options(table.column_names))
    return file.getvalue()


def parquet_options(names: list[str]) -> dict[str, Any]:
    """Return how to write Parquet: dictionaries and statistics, which take time, for axes only."""
    computed = set(with_ends(COLUMN_UNITS)).difference(POINT_AXES, CODED)
    axes = [name for name in names if name not in computed]
    return {
        "compression": "snappy",
        "use_dictionary": axes,
        "write_statistics": axes,
        "write_batch_size": 2**16,
    }


def _categories(codes: Column, words: Sequence[str]) -> pd.Categorical[str]:
    import pandas as pd

    return pd.Categorical.from_codes(codes, pd.Index(words))


def _column(prediction: Prediction, part: Part, name: str) -> Column:
    """Return a column of a prediction or a part of its interval, not yet repeated."""
    if name == "acceptance_rate":
        return _acceptance_rate(prediction, part)
    if name == "accepted_fraction":
        return np.asarray(part.arguments["acceptance"].accepted_fraction)
    stem, _, end = name.rpartition("_")
    if prediction.intervals and stem in prediction.intervals and name in with_interval(stem):
        return np.asarray(getattr(prediction.intervals[stem], end))
    return prediction.value(name)


def _acceptance_rate(prediction: Prediction, part: Part) -> FloatArray:
    """Return the acceptance rate of drafted tokens, given or solved; NaN for trees, without one."""
    acceptance = part.arguments["acceptance"]
    acceptance = acceptance.where_proposed(prediction.deployment.drafter.proposal_rate)
    is_chain = prediction.evaluation.is_chain
    if is_chain.all():
        return np.asarray(acceptance.rate())
    rate = acceptance.rate() if is_chain.any() else np.nan
    return np.where(is_chain, rate, np.nan)


def _flat(values: Column, shape: tuple[int, ...], name: str, dtype: Any) -> Column:
    """Return a column flat, converted before it is repeated: most depend on few axes."""
    if name in POINT_AXES:
        dtype = np.int32
    elif name in CODED:
        dtype = np.int8
    elif values.dtype == bool:
        dtype = bool
    short = values[tuple(slice(1) if stride == 0 else slice(None) for stride in values.strides)]
    return np.broadcast_to(short.astype(dtype), shape).reshape(-1)
