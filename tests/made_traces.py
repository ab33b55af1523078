"""Traces from lists, and processes whose acceptance only depends on the position in a draft."""

from collections.abc import Mapping, Sequence

import numpy as np

from specmodel.simulate.traces import AcceptanceProcess, Trace
from specmodel.simulate.traces.record import COLUMNS, check_request


def iid_process(acceptance_rate: float, max_draft_length: int = 20) -> AcceptanceProcess:
    """Return the process in which each token is drafted, and accepted with one probability."""
    process = position_process([acceptance_rate] * max_draft_length)
    return process.with_changes("process", {"name": f"acceptance rate {acceptance_rate:g}"})


def position_process(acceptance_by_position: Sequence[float]) -> AcceptanceProcess:
    """Return the process whose acceptance only depends on the position in the draft."""
    survival = np.cumprod(acceptance_by_position).tolist()
    return AcceptanceProcess(name="acceptance by position", survival=survival)


Counts = Sequence[Sequence[int]]


def make_trace(
    proposed: Counts, accepted: Counts, max_draft_length: int, metadata: Mapping[str, str] = {}
) -> Trace:
    """Return a trace from one list for each request, in the given order."""
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(proposed, accepted, strict=True)]
    requests = [check_request(row, max_draft_length, "request") for row in rows]
    counts = map(np.concatenate, zip(*requests, strict=True))
    lengths = np.array([*map(len, proposed)], np.int64)
    told = dict(zip(COLUMNS, counts, strict=True)) | {"output_tokens": lengths}
    return Trace(**told, max_draft_length=max_draft_length, metadata=dict(metadata))
