"""Sums of measures: what a formula of work must not do with them."""

import numpy as np
import pytest
from rows import one_case

from specmodel.core.layers.forms import measured


def named(carried, name):
    return carried[name]


X, Y = (measured(named, name) for name in "xy")


@one_case(
    "formula",
    *(lambda x, y: x * y, lambda x, y: x / y, lambda x, y: 1 / x, lambda x, y: x or y),
    *(lambda x, y: x if x > 3 else y, lambda x, y: float(x)),
    *(lambda x, y: np.maximum(x, 1.0), lambda x, y: np.hypot(3.0, x)),
)
def test_what_depends_on_values_otherwise_is_refused(formula):
    with pytest.raises(TypeError):
        formula(X, Y)
