"""What a replay adds up over the steps of each request."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specmodel.base.units import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Totals:
    """Sums by request.

    Parameters
    ----------
    steps, test_steps
        All, and those that a policy spent on testing [-].
    drafted_tokens
        Verified beyond one a step [token].
    time, expected_time
        With what varies, and without [s].
    """

    steps: NDArray[np.int64]
    test_steps: NDArray[np.int64]
    drafted_tokens: NDArray[np.int64]
    time: FloatArray
    expected_time: FloatArray


def empty_totals(num_requests: int) -> Totals:
    """Return zeros for `num_requests` [request]."""
    counts = {
        name: np.zeros(num_requests, np.int64) for name in ("steps", "test_steps", "drafted_tokens")
    }
    return Totals(**counts, time=np.zeros(num_requests), expected_time=np.zeros(num_requests))
