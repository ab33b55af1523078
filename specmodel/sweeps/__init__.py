"""Sweeps: any parameter over lists, any size, as a tidy table or written while it is computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.sweeps.cluster import dask_workers
from specmodel.sweeps.columns import Column, data_frame, num_points, part_columns
from specmodel.sweeps.encodings import csv_header, csv_text
from specmodel.sweeps.files import Sink, open_sink
from specmodel.sweeps.plan import Part, Plan, plan_sweep
from specmodel.sweeps.run import Workers, results, threads

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

__all__ = [
    "MOST_IN_FRAME",
    "Plan",
    "SweepInterrupted",
    "csv_chunks",
    "plan_sweep",
    "sweep",
    "sweep_to_file",
]

MOST_IN_FRAME = 20_000_000
"""Most points of a table in memory [-]."""


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


def sweep(
    axes: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    interval: bool = False,
    skip_impossible: bool = False,
    workers: int | None = None,
    client: Client | str | None = None,
    progress: Callable[[int], object] | None = None,
) -> pd.DataFrame:
    """Predict every combination of the axes.

    Parameters
    ----------
    axes, columns, interval, skip_impossible
        As for `plan_sweep`.
    workers
        Threads; one for each core by default [-].
    client
        A Dask client, or the address of a scheduler, in place of threads.
    progress
        Called with the number of points of each part that is done [-].

    Returns
    -------
    pandas.DataFrame
        A row a point, in the order of `Plan`; `attrs["skipped"]` says what was left out.

    Raises
    ------
    InputError
        Names the parameter at fault, or that there are too many points for a table.

    Examples
    --------
    >>> table = sweep({"target": "mixtral-8x7b", "hardware": ["h100_sxm", "h200_sxm"],
    ...                "drafter": "ngram", "tensor_parallel": 2, "batch_size": [1, 16, 256],
    ...                "draft_length": 3, "acceptance_rate": 0.5, "engine": "vllm"})
    >>> len(table), list(table.columns[:4])
    (6, ['target', 'drafter', 'hardware', 'engine'])
    """
    plan = plan_sweep(axes, columns=columns, interval=interval, skip_impossible=skip_impossible)
    if plan.num_points > MOST_IN_FRAME:
        expected = f"at most {MOST_IN_FRAME:,} in a table: write more to a file"
        raise InputError("num_points", plan.num_points, expected)
    found = []
    with _workers(workers, client) as pool:
        for labels, part in results(plan, labelled_columns, pool):
            found.append((labels, part))
            if progress:
                progress(num_points(part))
    frame = data_frame(found)
    frame.attrs["skipped"] = list(plan.skipped)
    return frame


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
        Whether what has the name may be replaced.
    workers, client, progress
        As for `sweep` [-].

    Raises
    ------
    InputError
        If the output cannot be written, or a cluster is lost: then what was written is kept
        beside the name.
    SweepInterrupted
        On Ctrl-C; what was written is kept likewise.
    """
    sink = open_sink(plan, output, overwrite=overwrite)
    try:
        with _workers(workers, client) as pool:
            for part, encoded in zip(plan.parts(), results(plan, sink.encode, pool), strict=True):
                sink.add(encoded, part.num_points)
                if progress:
                    progress(part.num_points)
        sink.finish()
    except KeyboardInterrupt:
        raise SweepInterrupted(sink.keep(), sink.working) from None
    except InputError as error:
        raise _telling(error, sink) from None
    except BaseException:
        sink.keep()
        raise


def csv_chunks(
    plan: Plan, *, workers: int | None = None, client: Client | str | None = None
) -> Iterator[str]:
    """Compute a sweep and give it as CSV text, for a pipe.

    Parameters
    ----------
    plan
        The sweep.
    workers, client
        As for `sweep` [-].

    Yields
    ------
    str
        The header, then the lines of each part.
    """
    with _workers(workers, client) as pool:
        yield csv_header(plan)
        yield from results(plan, csv_text, pool)


def labelled_columns(part: Part) -> tuple[dict[str, Any], dict[str, Column]]:
    """Compute a part for a table in memory."""
    return part.labels, part_columns(part)


def _workers(workers: int | None, client: Client | str | None) -> AbstractContextManager[Workers]:
    if client is None:
        return threads(_num_cores() if workers is None else workers)
    if workers is not None:
        raise InputError("workers", workers, "none with a scheduler, which has its own")
    return dask_workers(client)


def _num_cores() -> int:
    """Return the cores that this process may use, where the system says it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _telling(error: InputError, sink: Sink) -> InputError:
    """Return an error that says what is kept, if anything is."""
    num_points = sink.keep()
    if num_points == 0:
        return error
    expected = f"{error.expected}; {_kept(num_points, sink.working)}"
    return InputError(error.argument, error.value, expected)


def _kept(num_points: int, path: Path) -> str:
    if num_points == 0:
        return "nothing was written yet"
    return f"the first {num_points:,} points are kept in {path}"
