"""The random numbers that intervals are made of, drawn in one place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specmodel.core.base.units import FloatArray

INTERVAL_SEED = 0
"""Of the draws, so that the same question has the same answer."""

FIRST_KINDS = 3
"""Kinds of kernels that are drawn together; others follow, so that new kinds leave the intervals of
models without them as they are [-]."""


class Draws(NamedTuple):
    """Normal numbers of each draw, the draws along the first axis, that of kinds aside [-].

    `kinds` has five numbers for each kind of kernels, along its first two axes. `ground` and those
    after `step` are even: one number from each of as many equally likely parts of the law as draws.
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
    """Return so many draws for the overheads of an engine and the kinds of kernels that it runs.

    `generator` is None for the numbers of the usual seed, `overheads` of an engine without a fit.
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
    """Draw `count` normal numbers, one from each of as many equally likely parts of the law [-].

    What outweighs all other errors is drawn evenly, so that few draws give the ends of intervals.
    """
    from statistics import NormalDist  # a module that few commands need

    law = NormalDist()
    return generator.permutation([law.inv_cdf((i + 0.5) / count) for i in range(count)])
