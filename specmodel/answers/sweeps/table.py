"""A sweep in memory, as a table or as CSV text for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from specmodel.answers.sweeps.columns import Column, csv_header, csv_text, data_frame, part_columns
from specmodel.answers.sweeps.plan import Part, Plan, plan_sweep
from specmodel.answers.sweeps.workers import chosen_workers, results
from specmodel.base.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

MOST_IN_FRAME = 20_000_000
"""Most points of a table in memory [-]."""


def sweep(
    axes: Mapping[str, Any],
    *,
    workers: int | None = None,
    client: Client | str | None = None,
    **how: Any,
) -> pd.DataFrame:
    """Predict every combination of the axes.

    Parameters
    ----------
    axes
        As for `plan_sweep`.
    workers, client
        Threads, one for each core by default [-]; or in their place a Dask client, or the address
        of a scheduler.
    **how
        Columns and other settings, as for `plan_sweep`.

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
    plan = plan_sweep(axes, **how)
    if plan.num_points > MOST_IN_FRAME:
        expected = f"at most {MOST_IN_FRAME:,} in a table: write more to a file"
        raise InputError("num_points", plan.num_points, expected)
    with chosen_workers(workers, client) as pool:
        found = list(results(plan, labelled_columns, pool))
    frame = data_frame(found)
    frame.attrs["skipped"] = list(plan.skipped)
    return frame


def csv_chunks(
    plan: Plan,
    *,
    workers: int | None = None,
    client: Client | str | None = None,
) -> Iterator[str]:
    """Yield a sweep as CSV text while it is computed: the header, then the lines of each part.

    Parameters
    ----------
    plan, workers, client
        The sweep; where it is computed, as for `sweep` [-].
    """
    with chosen_workers(workers, client) as pool:
        yield csv_header(plan)
        yield from results(plan, csv_text, pool)


def labelled_columns(part: Part) -> tuple[dict[str, Any], dict[str, Column]]:
    """Compute a part for a table in memory."""
    return part.labels, part_columns(part)
