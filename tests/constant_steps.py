"""Constant step times, for queues whose times are known by hand."""

import numpy as np

from specmodel.simulate import Requests
from specmodel.simulate.outcome import averages
from specmodel.simulate.tables import TabulatedTimes


def constant_times(step_time, prompt_time, max_requests=1, max_draft_length=0):
    """Return times that only depend on whether a step decodes and whether it prefills [s]."""
    base = np.full((max_draft_length + 1, max_requests + 1, 2), step_time)
    base[:, 0] = 0.0
    more = np.full((max_draft_length + 1, 2, 2, 2), prompt_time)
    ends = np.array([0.0, 1e9])
    return TabulatedTimes(base=base, context_step=1e9, more=more, nodes=(ends, ends, ends))


def requests_of(prompts, outputs, arrivals=0.0, **fields):
    """Return requests with prompts and outputs of these lengths, which all arrive at 0 by default.

    Lengths are one number for each request, or one for all.
    """
    prompts, outputs, arrivals = np.broadcast_arrays(np.atleast_1d(prompts), outputs, arrivals)
    return Requests(arrival_time=arrivals, prompt_tokens=prompts, output_tokens=outputs, **fields)


def tpot_of(run):
    """Return the mean time per output token of the measured requests of a run [s]."""
    return averages([run], run.measured)["tpot"]
