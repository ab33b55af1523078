"""Sums of measures: arithmetic of forms, and what a formula of work must not do with them."""

import numpy as np
import pytest
from rows import one_case

from specmodel.core.layers import Layout, sequence_group
from specmodel.core.layers.batch import Batch, Carried
from specmodel.core.layers.forms import Measure, measured
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream


def named(carried, name):
    return carried[name]


VALUES = {"x": np.array([1.0, 2.0]), "y": np.array([10.0, -3.0])}
VALUES = {Measure(named, (name,)): value for name, value in VALUES.items()}
X, Y = (measured(named, name) for name in "xy")


def test_arithmetic_is_that_of_the_values():
    x, y = VALUES.values()
    for form, expected in (
        (2 * X + 3 * Y - 1, 2 * x + 3 * y - 1),
        (1 - X / 4, 1 - x / 4),
        ((X + Y) * 2 - X, 2 * y + x),
        (X - X + 5, 0 * x + 5),
        (np.float64(3.0) * X, 3 * x),
    ):
        np.testing.assert_array_equal(form.at(VALUES), expected)


@one_case(
    "formula",
    *(lambda x, y: x * y, lambda x, y: x / y, lambda x, y: 1 / x, lambda x, y: x or y),
    *(lambda x, y: x if x > 3 else y, lambda x, y: float(x)),
    *(lambda x, y: np.maximum(x, 1.0), lambda x, y: np.hypot(3.0, x)),
)
def test_what_depends_on_values_otherwise_is_refused(formula):
    with pytest.raises(TypeError):
        formula(X, Y)


def test_measures_of_sequences_by_hand():
    """Three sequences of two tokens after five entries, and one token each after nine of two."""
    two = sequence_group(batch_size=3, tokens_per_sequence=2, context_length=5)
    carried = Carried(Batch((two, sequence_group(batch_size=2, context_length=9))))
    replica = Pass(Stream(8, *("bf16",) * 5), Layout()).replica
    assert (replica.num_sequences.at(carried), replica.num_tokens.at(carried)) == (5, 3 * 2 + 2)
    assert replica.pairs(None).at(carried) == 3 * (6 + 7) + 2 * 10
    assert replica.pairs(4).at(carried) == 3 * (4 + 4) + 2 * 4
    assert replica.entries(None).at(carried) == 3 * 7 + 2 * 10
    assert replica.entries(4).at(carried) == 3 * 5 + 2 * 4
    assert carried.taken_by == ("decoding",)
