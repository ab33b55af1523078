"""Acceptance as published by draft length: what there is, its rates, and what is refused."""

import numpy as np
import pytest
from printed import refused
from rows import each_row, one_case

from specmodel import Acceptance, load_architecture, predict
from specmodel.core.algebra.acceptance import (
    acceptance_from_lengths,
    acceptance_of_blocks,
    expected_tokens_per_step_by_position,
)
from specmodel.core.drafters import eagle3_drafter, list_acceptance, load_acceptance, mtp_drafter
from specmodel.core.drafters.measured_heads import acceptance_by_name

LENGTHS = np.arange(1, 9)
EVERY = tuple(range(1, 9))
CURVES = [h for h in acceptance_by_name().values() if h.tasks[h.base].lengths == EVERY]
OF_BLOCKS = [each for each in CURVES if each.drafter == "dspark"]
BY_TOKEN = [each for each in CURVES if each.drafter != "dspark"]
GLM = load_architecture("deepseek-v3").with_changes("target", {"name": "zai-org__GLM-5.2-FP8"})


def pooled(gains):
    """Least squares among lists that never rise, by trying all ways to cut one into means."""
    gains, best = np.asarray(gains), None
    for cuts in range(2 ** (gains.size - 1)):
        ends = [i + 1 for i in range(gains.size - 1) if cuts >> i & 1]
        parts = np.split(gains, ends)
        fitted = np.concatenate([np.full(part.size, part.mean()) for part in parts])
        error = ((fitted - gains) ** 2).sum()
        if (np.diff(fitted) <= 1e-12).all() and (best is None or error < best[0]):
            best = error, fitted
    return np.maximum(best[1], 0.0)


def test_gains_that_never_rise_are_met_exactly_and_losses_count_as_no_gain():
    tokens = [1.93, 2.73, 3.39, 3.97, 4.41, 4.80, 5.04, 5.21]
    rates = acceptance_from_lengths([*tokens, 5.0])
    found = expected_tokens_per_step_by_position(rates, [*LENGTHS, 9])
    np.testing.assert_allclose(found, [*tokens, 5.21])
    assert rates[:2].tolist() == pytest.approx([0.93, 0.80 / 0.93])


@pytest.mark.parametrize("published", BY_TOKEN, ids=lambda each: each.name)
def test_other_gains_are_the_closest_that_do_not_rise(published):
    tokens = np.asarray(published.tasks[published.base].tokens_per_step)
    rates = acceptance_from_lengths(tokens)
    closest = 1 + np.cumsum(pooled(np.diff(tokens, prepend=1.0)))
    found = expected_tokens_per_step_by_position(rates, LENGTHS)
    np.testing.assert_allclose(found, closest, rtol=1e-12)
    assert np.abs(found - tokens).max() < 0.085
    is_exact = np.allclose(found, tokens)
    source = published.acceptance(published.base).source
    assert ("smoothed" in source) != is_exact
    assert "InferenceX" in source


def test_gains_of_a_whole_token_that_rounding_lifts_above_one():
    """Six gains that sum to 6 are replaced by their mean, which in floating point exceeds 1."""
    tokens = [1.408556282190711, 1.556302327365383, 3.7915964187577083]
    tokens += [4.935014873997362, 5.089614947876801, 7.0]
    assert acceptance_from_lengths(tokens).tolist() == [1.0] * 6


@each_row("tokens", [[], 1.5, [[1.5]], [2.1], [1.5, 3.1], [0.9], [float("nan")]])
@each_row("of_lengths", [acceptance_from_lengths, acceptance_of_blocks])
def test_tokens_per_step_that_cannot_be(tokens, of_lengths):
    refused(r"^tokens_per_step: got ", of_lengths, tokens)


# Blocks, of which each length is another


@pytest.mark.parametrize("published", OF_BLOCKS, ids=lambda each: each.name)
def test_blocks_of_each_length_are_met_exactly(published):
    """Also where a longer one gains nothing, or loses."""
    acceptance = published.acceptance(published.base)
    tokens = np.asarray(published.tasks[published.base].tokens_per_step)
    assert acceptance.max_draft_length == 8
    np.testing.assert_allclose(acceptance.expected_tokens_per_step(LENGTHS), tokens, rtol=1e-12)
    assert "smoothed" not in acceptance.source


def test_a_table_has_the_rates_of_each_length_in_a_row():
    table = [[0.9, 0.0, 0.7], [0.8, 0.5, 0.1], [0.5, 0.5, 0.5]]
    found = expected_tokens_per_step_by_position(table, [0, 1, 2, 3])
    np.testing.assert_allclose(found, [1, 1.9, 1 + 0.8 + 0.4, 1.875])
    same = expected_tokens_per_step_by_position([[0.5, 0.4]] * 2, [0, 1, 2])
    np.testing.assert_array_equal(same, expected_tokens_per_step_by_position([0.5, 0.4], [0, 1, 2]))


def test_rates_that_are_no_list_and_no_square():
    for rates in (0.5, [[0.5, 0.5]], [[[0.5]]], [[0.5], [0.5]]):
        own = Acceptance(acceptance_by_position=rates)
        message = r"^acceptance_by_position: got .*one list of rates"
        refused(message, own.expected_tokens_per_step, 1)


# Which one is meant


@one_case(
    "target drafter first",
    ("GLM-5.2", "mtp", 1.84), ("nvidia__Kimi-K2.5-NVFP4", "eagle3", 1.83),
    ("Qwen3.5 397B A17B", "MTP", 1.93), ("sgl-project__DeepSeek-V4-Pro-FP8", "mtp", 1.79),
    (GLM, mtp_drafter(GLM), 1.84),
    ("Kimi-K2.5", eagle3_drafter(load_architecture("kimi-k2")), 1.83),
)  # fmt: skip
def test_a_target_is_known_by_its_name(target, drafter, first):
    acceptance = load_acceptance(target, drafter, task="code")
    assert acceptance.expected_tokens_per_step(1) == pytest.approx(first)
    assert acceptance.max_draft_length == 8


def test_what_is_not_published_is_told_with_what_is():
    names = ["GLM-4.7", "GLM-5.25", "GLM-5.3-FP8", "my-glm-15.2"]
    names += ["DeepSeek-V4-Pro-0813", "DeepSeek-V3.1"]
    others = ("GLM-5.2", "eagle3"), ("GLM-5.2", "ngram")
    for target, drafter in (*((name, "mtp") for name in names), *others):
        message = rf"^acceptance: got 'preset'\. .*for {target} with .*list"
        refused(message, load_acceptance, target, drafter)


def test_another_targets_may_be_named_but_not_another_drafters():
    """Its source then says whose it is."""
    acceptance = load_acceptance("GLM-5.3", "mtp", "GLM_5.2-mtp")
    assert acceptance.source.startswith("glm-5.2-mtp in mixed use (code: speed-coding")
    own = load_acceptance("deepseek-v3", "mtp")
    assert load_acceptance("qwen3-32b", "mtp", "deepseek-v3-mtp").source == own.source
    for drafter, name in (("eagle3", "glm-5.2-mtp"), ("mtp", "kimi-k3-dspark")):
        expected = rf"^acceptance: got '{name}'; .*with {drafter}"
        refused(expected, load_acceptance, "GLM-5.2", drafter, name)
    unknown = "got 'kimi-k3-dspec'; expected preset or a name such as kimi-k3-dspark"
    refused(unknown, load_acceptance, "GLM-5.2", "mtp", "kimi-k3-dspec")
    assert list_acceptance() == sorted({*acceptance_by_name()})


def test_blocks_are_known_by_name():
    of_kimi = ("Kimi-K3", "preset", 3.54), ("kimi-k3", "Kimi-K3-DSpark-block-verification", 3.75)
    of_deepseek = ("DeepSeek-V4-Pro", "deepseek-v4-pro-0813-dspark", 3.77)
    for target, preset, sixth in (*of_kimi, of_deepseek):
        acceptance = load_acceptance(target, "DSpark", preset, task="code")
        assert acceptance.expected_tokens_per_step(6) == pytest.approx(sixth)


# In predictions


def test_a_prediction_takes_it_and_tells_its_source():
    asked = {"target": GLM, "hardware": "b200", "tensor_parallel": 8, "drafter": "mtp"}
    point = {"draft_length": [1, 3, 8], "batch_size": 8}
    p = predict(**asked, **point, acceptance="preset", task="code")
    np.testing.assert_allclose(p.tokens_per_step, [1.84, 2.99, 4.06])
    assert p.assumptions["acceptance"].startswith("glm-5.2-mtp on code (code: ")
    longer = predict(**asked, draft_length=9, batch_size=8, acceptance="glm-5.2-mtp")
    assert longer.tokens_per_step > predict(**asked, draft_length=8, batch_size=8).tokens_per_step
    assert "the last measured rate is assumed" in longer.assumptions["acceptance"]
    asked |= point
    refused("^acceptance: got '0.7'; .*use acceptance_rate", predict, **asked, acceptance="0.7")
    asked |= {"target": "mixtral-8x7b", "acceptance": "preset"}
    refused(r"^acceptance: got 'preset'\. .*for Mixtral-8x7B with mtp", predict, **asked)
