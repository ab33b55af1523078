"""Whether an engine that was fitted to runs can be true, beside what known hosts take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specmodel.base.units import FloatArray, format_si

LEAST_TIME = {"gpu": 0.8, "cpu": 0.6}
"""Time of the middle run over that of its kernels alone, below which no server can be [-].
Published runs take 1.01 to 2.3, and kernels of models left out are 16 % off; the three CPUs
measured take 0.71 to 0.77, as their kernels were timed with cold caches."""

MOST_MISSED = 0.4  # error of a run that is not doubted; 0.24 at most of published ones [-]

MOST_UNLIKE = 3.0
"""Squares of what a fit misses and moves, in the spreads of runs and hosts, for each run [-]. Two
runs of a host like those known reach it in 5 % of cases; published hosts have 2.9 at most."""


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """What speaks against a fit.

    Parameters
    ----------
    found, expected
        What is strange about the runs, and what would not be.
    is_slow
        Whether they take longer than expected, not less.
    is_refused
        Whether no server seems able to have made them; else it is only unlike those known.
    """

    found: str
    expected: str
    is_slow: bool
    is_refused: bool


def doubts(
    times: Sequence[tuple[str, float, float]],
    errors: Iterable[tuple[str, float]],
    ratios: FloatArray,
    unlike: float,
    kind: str,
) -> Iterator[Doubt]:
    """Yield what speaks against a fit.

    `times` are names of runs with the times of their tokens, measured and of their kernels alone
    [s]; `errors` those of runs, with their names [-]; `ratios` times of runs over those predicted
    for known hosts [-]; `unlike` as in `MOST_UNLIKE` [-]; `kind` that of the hardware.
    """
    least, over_kernels = LEAST_TIME[kind], sorted(times, key=lambda run: run[1] / run[2])
    for name, measured, kernels in over_kernels[len(times) // 2 :][:1]:
        if (ratio := measured / kernels) < least:
            own, alone = (format_si(seconds, "s") for seconds in (measured, kernels))
            found = f"{name}: {own} a token, {ratio:.2f} times the {alone} of its kernels alone"
            yield Doubt(found=found, expected=f"{least:g} or more", is_slow=False, is_refused=True)
    worst, error = max(errors, key=lambda item: abs(item[1]))
    if abs(error) > MOST_MISSED:
        found = f"{worst}: {error:+.0%} off after the fit"
        expected = f"{MOST_MISSED:.0%} at most, as other runs or what hosts can be contradict it"
        yield Doubt(found=found, expected=expected, is_slow=error < 0, is_refused=True)
    if unlike > MOST_UNLIKE:
        low, high = (f"{ratio:.2f}" for ratio in (ratios.min(), ratios.max()))
        found = f"runs take {f'{low} to {high}' if low != high else low} times what is predicted"
        is_slow = float(np.log(ratios).mean()) > 0
        yield Doubt(found=found, expected="about 1", is_slow=is_slow, is_refused=False)
