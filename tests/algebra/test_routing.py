"""Routing that is drawn has k distinct experts a token and the union of the law."""

import numpy as np
from printed import refused
from rows import each_listed, each_row, one_case

from specmodel.core.algebra.experts import correlated_active_experts, expert_use
from specmodel.core.algebra.routing import sample_routing

DRAWS = 3000


@each_row("correlation", [0.0, 0.05, 0.29, 0.8, 1.0])
@one_case("batch tokens experts k", (1, 5, 64, 8), (4, 8, 16, 2), (3, 2, 8, 8), (1, 6, 5, 3))
def test_union_has_the_expectation_of_the_law(batch, tokens, experts, k, correlation):
    generator = np.random.default_rng(1)
    drawn = sample_routing(batch * DRAWS, tokens, experts, k, correlation, generator)
    assert drawn.min() >= 0
    assert drawn.max() < experts
    in_order = np.sort(drawn, axis=2)
    assert (np.diff(in_order, axis=2) > 0).all()  # distinct
    union = 1 + (np.diff(np.sort(drawn.reshape(DRAWS, -1))) > 0).sum(axis=1)
    law = float(correlated_active_experts(batch, tokens, experts, k, correlation))
    error = union.std(ddof=1) / np.sqrt(DRAWS)
    assert abs(union.mean() - law) <= 4 * error + 1e-9


def test_every_expert_is_used_as_often_as_the_law_says():
    drawn = sample_routing(DRAWS, 4, 10, 3, 0.4, np.random.default_rng(2))
    used = (drawn[:, :, :, None] == np.arange(10)).any(axis=(1, 2))
    law = float(expert_use(4, 0.3, 0.4))
    error = np.sqrt(law * (1 - law) / DRAWS)
    assert (np.abs(used.mean(axis=0) - law) < 4.5 * error).all()


@each_listed
def test_bad_arguments_are_named(name, value):
    good = {
        "batch_size": 1, "tokens_per_sequence": 2, "num_experts": 8, "experts_per_token": 2,
        "routing_correlation": 0.1,
    }  # fmt: skip
    refused(name, sample_routing, **good | {name: value}, generator=np.random.default_rng(0))
