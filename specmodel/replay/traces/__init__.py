"""Acceptance traces: the record, files, n-gram look-up in token ids, synthetic processes."""

from specmodel.replay.traces.files import read_trace, write_trace
from specmodel.replay.traces.ngram import ngram_trace, read_tokens
from specmodel.replay.traces.record import (
    LONGEST_DRAFT,
    Trace,
    join_traces,
    make_trace,
)
from specmodel.replay.traces.statistics import trace_statistics
from specmodel.replay.traces.synthetic import (
    AcceptanceProcess,
    iid_process,
    list_presets,
    load_preset,
    position_process,
    sample_trace,
)

__all__ = [
    "AcceptanceProcess",
    "LONGEST_DRAFT",
    "Trace",
    "iid_process",
    "join_traces",
    "list_presets",
    "load_preset",
    "make_trace",
    "ngram_trace",
    "position_process",
    "read_tokens",
    "read_trace",
    "sample_trace",
    "trace_statistics",
    "write_trace",
]
