"""Parts of a sweep as text, as Arrow tables and as Parquet files, all in float32."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.prediction.columns import WITH_INTERVAL
from specmodel.prediction.outcome import COLUMN_UNITS
from specmodel.sweeps.columns import CODED, WHOLE, data_frame, num_points, part_columns
from specmodel.sweeps.plan import Part, Plan

if TYPE_CHECKING:
    import pyarrow as pa


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
    pq.write_table(table, file, row_group_size=len(table), **parquet_options(table.column_names))
    return file.getvalue()


def parquet_options(names: list[str]) -> dict[str, Any]:
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
