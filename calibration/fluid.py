"""A fluid limit of a server under load, beside the chain that specmodel takes."""

import numpy as np

from specmodel.core.base.units import Numeric, check
from specmodel.simulate.closed_forms import LoadCurves, SteadyState

_FINE = 8
"""Points to a request on which the root is looked for [-]."""


def fluid_state(curves: LoadCurves, request_rate: Numeric) -> SteadyState:
    """Return the least root of N = rate x (prefill + tokens x TPOT(1 + N)), for each rate.

    A running request sees itself and N others, as requests that come at random see the mean of
    what is there. Nothing waits.
    """
    rates = check("request_rate", request_rate, above=0)
    others = np.arange((curves.limit - 1) * _FINE + 1) / _FINE
    sizes = np.arange(curves.limit)
    takes = np.interp(others, sizes, curves.residence)
    excess = others - rates[..., None] * takes
    at = np.argmax(excess >= 0, axis=-1)
    found = (excess >= 0).any(axis=-1)
    before = np.maximum(at - 1, 0)
    low, high = (np.take_along_axis(excess, p[..., None], -1)[..., 0] for p in (before, at))
    part = np.where(at > 0, low / np.where(low == high, 1.0, low - high), 0.0)
    running = np.where(found, (before + part) / _FINE, np.nan)
    return SteadyState(
        running=running,
        waiting=np.where(found, 0.0, np.nan),
        tpot=np.interp(running, sizes, curves.tpot),
        ttft=np.interp(running, sizes, curves.prefill + curves.joining),
        largest_rate=float(np.max(others / takes)),
    )
