"""Traces from lists, and processes whose acceptance depends on the position in a draft alone."""

from collections.abc import Mapping, Sequence

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import Numeric, check
from specmodel.replay.traces import AcceptanceProcess, Trace
from specmodel.replay.traces.record import COLUMNS, LONGEST_DRAFT, check_request, collect_trace


def iid_process(acceptance_rate: float, max_draft_length: int = 20) -> AcceptanceProcess:
    """Return the process whose tokens are all accepted with one probability, always proposed."""
    alpha = float(check("acceptance_rate", acceptance_rate, minimum=0, maximum=1))
    longest = check(
        "max_draft_length", max_draft_length, minimum=1, maximum=LONGEST_DRAFT, whole=True
    )
    process = position_process(np.full(int(longest), alpha))
    return process.with_changes("process", {"name": f"acceptance rate {alpha:g}"})


def position_process(acceptance_by_position: Numeric) -> AcceptanceProcess:
    """Return the process whose acceptance depends on nothing but the position in the draft."""
    rates = check("acceptance_by_position", acceptance_by_position, minimum=0, maximum=1)
    if rates.ndim != 1 or rates.size > LONGEST_DRAFT:
        expected = f"one list of at most {LONGEST_DRAFT} rates"
        raise InputError("acceptance_by_position", rates.tolist(), expected)
    return AcceptanceProcess(name="acceptance by position", survival=np.cumprod(rates).tolist())


def make_trace(
    proposed_tokens: Sequence[Sequence[int]],
    accepted_tokens: Sequence[Sequence[int]],
    max_draft_length: int,
    metadata: Mapping[str, str] | None = None,
) -> Trace:
    """Return a trace from lists by request, checked, in the order given."""
    if not 1 <= max_draft_length <= LONGEST_DRAFT:
        raise InputError("max_draft_length", max_draft_length, f"from 1 to {LONGEST_DRAFT}")
    if not len(proposed_tokens):
        raise InputError("trace", "no requests", "at least one request")
    if len(proposed_tokens) != len(accepted_tokens):
        given = f"{len(proposed_tokens)} and {len(accepted_tokens)} requests"
        raise InputError("accepted_tokens", given, "as many requests as proposed_tokens")
    requests = [
        check_request(dict(zip(COLUMNS, counts, strict=True)), max_draft_length, f"request {i}")
        for i, counts in enumerate(zip(proposed_tokens, accepted_tokens, strict=True))
    ]
    return collect_trace(requests, max_draft_length, metadata or {})
