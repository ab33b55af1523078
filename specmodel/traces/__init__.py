"""Acceptance traces: the record, files, n-gram look-up in token ids, synthetic processes."""

from specmodel.traces.record import Trace, check_request, join_traces, make_trace

__all__ = ["Trace", "check_request", "join_traces", "make_trace"]
