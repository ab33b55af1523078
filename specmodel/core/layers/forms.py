"""Sums of measures of a pass: what work is before anybody says which sequences the pass carries.

A measure is one number of a pass, such as its tokens, or the query-key pairs of its sequences under
a window. Each field of the work of a layer is a sum of measures with coefficients, and a layer's
`work` is evaluated once for these sums; a pass over given sequences then takes the values of the
measures alone (`cost.programs`).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from specmodel.core.base.units import FloatArray

Rule: TypeAlias = Callable[..., FloatArray]
"""A number of a pass, or of some of its sequences, from these and what else it is told."""


class Measure(NamedTuple):
    """One number of a pass: a function of what the pass carries, and its further arguments.

    A kind of layer that needs a measure of its own defines the rule beside the layer. `has_context`
    says whether the number depends on how many entries came before the pass.
    """

    rule: Rule
    told: tuple[Any, ...] = ()
    has_context: bool = False


class Form:
    """A linear combination of measures plus a constant, as immutable as a number.

    Forms are added, and multiplied or divided by numbers. Whatever would make the result depend on
    the values of measures otherwise (products of two forms, comparisons, functions of NumPy) raises
    a TypeError: it has to be a measure of its own.
    """

    __slots__ = ("constant", "terms")

    __array_ufunc__ = None  # numbers of NumPy are added and multiplied as others

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
        """Return the sum for given values of measures."""
        value: FloatArray | float = self.constant
        for measure, factor in self.terms.items():
            value = value + values[measure] * factor
        return value


Quantity: TypeAlias = Any
"""What formulas of work take and give: a form, or, for kernels that were timed alone, a number or
an array of them."""


def measured(rule: Rule, *told: Any, has_context: bool = False) -> Form:
    """Return a form of one measure: `rule`, called with the further arguments `told`."""
    return Form({Measure(rule, told, has_context): 1.0})


def applied(function: Rule, quantity: Quantity, *told: Any) -> Quantity:
    """Return `function` of a number, or of a form of one measure as a form of a new measure."""
    if not isinstance(quantity, Form):
        return function(quantity, *told)
    (measure,) = quantity.terms
    return measured(_applied, function, measure, *told, has_context=measure.has_context)


def _applied(
    carried: Mapping[Measure, FloatArray], function: Rule, measure: Measure, *told: Any
) -> FloatArray:
    return np.asarray(function(carried[measure], *told))
