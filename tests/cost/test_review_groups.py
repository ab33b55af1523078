"""Passes with several groups of sequences."""

import numpy as np
import pytest

from specmodel.algebra.routing import zipf_popularity
from specmodel.base.errors import InputError
from specmodel.cost.forward import pass_work
from specmodel.layers.batch import Layout, sequence_group
from specmodel.models.architecture import load_architecture


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "llama-4-scout"])
@pytest.mark.parametrize("layout", [Layout(), Layout(2, 8)])
@pytest.mark.parametrize("exponent", [None, 0.5])
def test_group_cut_in_two_is_the_same_work(name, layout, exponent):
    model = load_architecture(name)
    E, k = model.num_experts, model.experts_per_token
    popularity = None if exponent is None else zipf_popularity(E, k, exponent)
    alike = {"tokens_per_sequence": [[3.0], [4.0]], "context_length": 100.0}
    routing = {"routing_correlation": 0.2, "popularity": popularity, "layout": layout}
    whole = pass_work(model, sequence_group(batch_size=[6.0, 12.0], **alike), **routing)
    parts = [sequence_group(batch_size=B, **alike) for B in ([2.0, 9.0], [4.0, 3.0])]
    cut = pass_work(model, parts, **routing)
    np.testing.assert_allclose(cut.active_experts, whole.active_experts, rtol=1e-12)
    for component, work in whole.components.items():
        for field, value in vars(work).items():
            if field != "walk" and not isinstance(value, str):
                other = getattr(cut.components[component], field)
                np.testing.assert_allclose(other, value, rtol=1e-12)


@pytest.mark.parametrize("popularity", [None, [1.0] * 8])
def test_experts_that_every_token_uses_are_loaded_once(popularity):
    model = load_architecture("mixtral-8x7b").with_changes("target", {"experts_per_token": 8})
    groups = [sequence_group(batch_size=B, tokens_per_sequence=4.0) for B in (1.0, 3.0)]
    assert pass_work(model, groups, popularity=popularity).active_experts == pytest.approx(8)


def test_refuses_what_no_pass_carries():
    model = load_architecture("mixtral-8x7b")
    with pytest.raises(InputError, match=r"sequences: got .*at least one group"):
        pass_work(model, [])
    by_chance = sequence_group(batch_size=2.0, speculating_share=0.5, speculating_chance=0.6)
    with pytest.raises(InputError, match="speculating_chance"):
        pass_work(model, [by_chance, by_chance])
