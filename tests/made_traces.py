"""Traces from lists, and processes whose acceptance depends on the position in a draft alone."""

from collections.abc import Mapping, Sequence

import numpy as np

from specmodel.simulate.traces import AcceptanceProcess, Trace
from specmodel.simulate.traces.record import COLUMNS, check_request


def iid_process(acceptance_rate: float, max_draft_length: int = 20) -> AcceptanceProcess:
    """Return the process whose tokens are all accepted with one probability, always proposed."""
    process = position_process([acceptance_rate] * max_draft_length)
    return process.with_changes("process", {"name": f"acceptance rate {acceptance_rate:g}"})


def position_process(acceptance_by_position: Sequence[float]) -> AcceptanceProcess:
    """Return the process whose acceptance depends on nothing but the position in the draft."""
    survival = np.cumprod(acceptance_by_position).tolist()
    return AcceptanceProcess(name="acceptance by position", survival=survival)


def make_trace(
    proposed_tokens: Sequence[Sequence[int]],
    accepted_tokens: Sequence[Sequence[int]],
    max_draft_length: int,
    metadata: Mapping[str, str] | None = None,
) -> Trace:
    """Return a trace from lists by request, in the order given."""
    requests = [
        check_request(dict(zip(COLUMNS, counts, strict=True)), max_draft_length, "request")
        for counts in zip(proposed_tokens, accepted_tokens, strict=True)
    ]
    proposed, accepted = map(np.concatenate, zip(*requests, strict=True))
    return Trace(
        proposed_tokens=proposed,
        accepted_tokens=accepted,
        output_tokens=np.array([*map(len, proposed_tokens)], np.int64),
        max_draft_length=max_draft_length,
        metadata=dict(metadata or {}),
    )
