"""Sums of measures: arithmetic of forms, and what a formula of work must not do with them."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import cases

from specmodel import InputError, load_architecture
from specmodel.cost import pass_work
from specmodel.layers import GroupedAttention, LayerGroup, Layout, sequence_group
from specmodel.layers.batch import Batch, Carried
from specmodel.layers.forms import Measure, measured
from specmodel.layers.run import Pass
from specmodel.layers.stream import Stream


def named(carried, name):
    return carried[name]


VALUES = {
    Measure(named, ("x",)): np.array([1.0, 2.0]),
    Measure(named, ("y",)): np.array([10.0, -3.0]),
}
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


@cases(
    "formula what",
    (lambda x, y: x * y, "a product of two sums of named"),
    (lambda x, y: x / y, "a quotient of two sums of named"),
    (lambda x, y: 1 / x, "1 over a sum of named"),
    (lambda x, y: x if x > 3 else y, "a comparison of a sum of named"),
    (lambda x, y: x or y, "a branch on a sum of named"),
    (lambda x, y: float(x), "the value of a sum of named"),
    (lambda x, y: np.maximum(x, 1.0), "maximum of a sum of named"),
    (lambda x, y: np.hypot(3.0, x), "hypot of a sum of named"),
)
def test_what_depends_on_values_otherwise_is_named(formula, what):
    refused(rf"^work: got '{what}'; expected sums of measures", formula, X, Y)


def test_a_layer_that_branches_is_named():
    class Hasty(GroupedAttention, frozen=True, tag="attention"):
        def work(self, run, layers):
            return super().work(run, layers if run.num_tokens < 8 else 2 * layers)

    model = load_architecture("llama-3.1-8b")
    hasty = Hasty(num_heads=32, num_kv_heads=8, head_dim=128)
    model = replace(model, layers=(LayerGroup(count=1, mixer=hasty),))
    with pytest.raises(InputError, match=r"^work of attention: got 'a comparison of a sum"):
        pass_work(model, sequence_group(batch_size=1))


def test_measures_of_sequences_by_hand():
    """Three sequences of two tokens after five entries, and one token each after nine of two."""
    groups = (
        sequence_group(batch_size=3, tokens_per_sequence=2, context_length=5),
        sequence_group(batch_size=2, context_length=9),
    )
    carried, replica = Carried(Batch(groups)), Pass(Stream(8, *("bf16",) * 5), Layout()).replica
    assert replica.num_sequences.at(carried) == 5
    assert replica.num_tokens.at(carried) == 3 * 2 + 2
    assert replica.pairs(None).at(carried) == 3 * (6 + 7) + 2 * 10
    assert replica.pairs(4).at(carried) == 3 * (4 + 4) + 2 * 4
    assert replica.entries(None).at(carried) == 3 * 7 + 2 * 10
    assert replica.entries(4).at(carried) == 3 * 5 + 2 * 4
    assert carried.taken_by == ("decoding",)
