"""Draw the random numbers of intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specmodel.core.base.units import FloatArray

INTERVAL_SEED = 0
"""Seed of the draws: the same question has the same answer."""

FIRST_KINDS = 3
"""Kinds of kernels that are drawn together. Others follow: a new kind does not change the intervals
of models without it [-]."""


class Draws(NamedTuple):
    """Normal numbers of each draw; draws are along the first axis, except in `kinds` [-].

    The first two axes of `kinds` are five numbers and the kinds of kernels. `ground` and all fields
    after `step` are even: each draw has a number from another one of equally likely parts.
    """

    overheads: FloatArray
    ground: FloatArray
    kinds: FloatArray
    step: FloatArray
    deployment: FloatArray
    acceptance: FloatArray
    popularity: FloatArray
    unseen: FloatArray
    routing: FloatArray


def draws_of(
    generator: np.random.Generator | None, count: int, overheads: int | None, kinds: int
) -> Draws:
    """Return `count` draws for the overheads of an engine and the kinds of its kernels.

    `generator` is None for the usual seed, and `overheads` is None for an engine without a fit.
    """
    generator = generator or np.random.default_rng(INTERVAL_SEED)
    of_engine = generator.standard_normal((count, overheads or 0))
    ground = _even(generator, count)
    first = generator.standard_normal((5, FIRST_KINDS, count)).swapaxes(0, 1)
    others = [generator.standard_normal((5, count)) for _ in range(kinds - FIRST_KINDS)]
    of_kinds = np.stack([*first, *others], axis=1)
    step = generator.standard_normal(count)
    evens = (_even(generator, count) for _ in range(5))
    return Draws(of_engine, ground, of_kinds, step, *evens)


def _even(generator: np.random.Generator, count: int) -> FloatArray:
    """Draw `count` normal numbers, one from each of `count` equally likely parts of the law [-].

    The largest errors are drawn evenly, as few draws then give the ends of intervals.
    """
    from statistics import NormalDist  # a module that few commands need

    law = NormalDist()
    return generator.permutation([law.inv_cdf((i + 0.5) / count) for i in range(count)])
