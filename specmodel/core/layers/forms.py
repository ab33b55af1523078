"""Represent work as sums of measures, before the sequences of a pass are known.

A measure is one number of a pass, such as its tokens, or the query-key pairs of its sequences under
a window. Each field of a layer's work is a sum of measures with coefficients. A layer's `work` is
called once to get these sums. A pass over given sequences then needs only the values of the
measures (`cost.programs`).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from specmodel.core.base.units import FloatArray

Rule: TypeAlias = Callable[..., FloatArray]
"""Function that returns a number of a pass, from the pass and further arguments."""


class Measure(NamedTuple):
    """One number of a pass: a function of the pass's sequences, and its further arguments.

    A kind of layer that needs its own measure defines the rule in its file. `has_context` is true
    if the number depends on the entries before the pass.
    """

    rule: Rule
    arguments: tuple[Any, ...] = ()
    has_context: bool = False


class Form:
    """A linear combination of measures plus a constant, as immutable as a number.

    Forms can be added, and multiplied or divided by numbers. Operations that depend in another way
    on the values of measures (products of two forms, comparisons, functions of NumPy) raise a
    TypeError. Define another measure for them.
    """

    __slots__ = ("constant", "terms")

    __array_ufunc__ = None  # NumPy numbers behave like Python numbers

    def __init__(self, terms: dict[Measure, float], constant: float = 0.0) -> None:
        self.terms = terms
        self.constant = constant

    def __add__(self, other: "Form | float") -> "Form":
        if not isinstance(other, Form):
            return Form(self.terms, self.constant + other)
        terms = dict(self.terms)
        for measure, coefficient in other.terms.items():
            terms[measure] = terms.get(measure, 0.0) + coefficient
        return Form(terms, self.constant + other.constant)

    __radd__ = __add__

    def __sub__(self, other: "Form | float") -> "Form":
        return self + -1.0 * other

    def __rsub__(self, other: float) -> "Form":
        return -1.0 * self + other

    def __mul__(self, factor: float) -> "Form":
        if isinstance(factor, Form):
            return NotImplemented
        terms = {measure: value * factor for measure, value in self.terms.items()}
        return Form(terms, self.constant * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Form":
        return self * (1 / divisor)

    def __bool__(self) -> NoReturn:
        raise TypeError("a formula of work branches on a measure, which has no value yet")

    def at(self, values: Mapping[Measure, FloatArray]) -> FloatArray | float:
        """Return the sum for given values of the measures."""
        value: FloatArray | float = self.constant
        for measure, factor in self.terms.items():
            value = value + values[measure] * factor
        return value


Quantity: TypeAlias = Any
"""Type in formulas of work: a form; for separately timed kernels, a number or an array."""


def measured(rule: Rule, *arguments: Any, has_context: bool = False) -> Form:
    """Return a form of one measure: `rule` with further arguments."""
    return Form({Measure(rule, arguments, has_context): 1.0})


def applied(function: Rule, quantity: Quantity, *arguments: Any) -> Quantity:
    """Return `function` of a number; or, for a form of one measure, a form of a new measure."""
    if not isinstance(quantity, Form):
        return function(quantity, *arguments)
    (measure,) = quantity.terms
    return measured(_applied, function, measure, *arguments, has_context=measure.has_context)


def _applied(
    carried: Mapping[Measure, FloatArray], function: Rule, measure: Measure, *arguments: Any
) -> FloatArray:
    return np.asarray(function(carried[measure], *arguments))
