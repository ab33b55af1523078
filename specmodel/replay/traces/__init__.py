"""Acceptance traces: the record, files, n-gram look-up in token ids, synthetic processes."""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.replay.traces.copying import CopyProcess as CopyProcess, CopyRuns as CopyRuns
    from specmodel.replay.traces.files import read_trace as read_trace, write_trace as write_trace
    from specmodel.replay.traces.ngram import ngram_trace as ngram_trace, read_tokens as read_tokens
    from specmodel.replay.traces.record import (
        LONGEST_DRAFT as LONGEST_DRAFT,
        Trace as Trace,
        join_traces as join_traces,
    )
    from specmodel.replay.traces.statistics import trace_statistics as trace_statistics
    from specmodel.replay.traces.synthetic import (
        AcceptanceProcess as AcceptanceProcess,
        Process as Process,
        list_presets as list_presets,
        load_preset as load_preset,
        sample_trace as sample_trace,
    )

__getattr__, __dir__ = front(__name__)
