"""Acceptance traces: the record, files, n-gram look-up in token ids, and synthetic processes."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.simulate.traces.copying import CopyProcess as CopyProcess, CopyRuns as CopyRuns
    from specmodel.simulate.traces.files import read_trace as read_trace, write_trace as write_trace
    from specmodel.simulate.traces.ngram import (
        ngram_trace as ngram_trace,
        read_tokens as read_tokens,
    )
    from specmodel.simulate.traces.record import (
        LONGEST_DRAFT as LONGEST_DRAFT,
        Trace as Trace,
        join_traces as join_traces,
    )
    from specmodel.simulate.traces.statistics import trace_statistics as trace_statistics
    from specmodel.simulate.traces.synthetic import (
        AcceptanceProcess as AcceptanceProcess,
        Process as Process,
        list_presets as list_presets,
        load_preset as load_preset,
        sample_trace as sample_trace,
    )

__getattr__, __dir__ = front(__name__)
