"""Rates by position as people type and paste them: of all drafts, or of those that got there."""

import json

import pytest
from printed import refused
from rows import each_listed, rows_of

from specmodel.core.algebra.acceptance import (
    expected_tokens_per_step_by_position as tokens_of,
    readings,
    typed_rates,
)

ROWS = rows_of("typed_rates.txt", "typed")
TYPED = [(text, json.loads(rates), told == "true") for text, rates, told in ROWS]


@pytest.mark.parametrize(("text", "tokens"), rows_of("typed_rates.txt", "printed"))
def test_what_engines_print_gives_the_tokens_that_they_print(text, tokens):
    tokens = float(tokens)
    (read, rates), *others = readings(text).items()
    assert read.startswith("cumulative:")
    assert tokens_of(rates, len(rates)) == pytest.approx(tokens, abs=0.015)
    assert typed_rates(read) == pytest.approx(rates, abs=1e-5)
    for other, told in others:  # each can be typed, and is another number
        assert typed_rates(other) == pytest.approx(told)
        assert tokens_of(told, len(told)) != pytest.approx(tokens, abs=0.015)
    assert others


@pytest.mark.parametrize(("text", "rates", "is_told"), TYPED)
def test_what_people_type_is_conditional_and_another_way_to_read_it_is_told(text, rates, is_told):
    ways = readings(text)
    assert (next(iter(ways.values())), len(ways) > 1) == (pytest.approx(rates), is_told)


def test_a_list_as_long_as_the_draft_has_no_bonus_token():
    assert typed_rates("1.00,0.8,0.4", 3) == pytest.approx([1, 0.8, 0.5])
    assert typed_rates("1.00,0.8,0.4", 2) == pytest.approx([0.8, 0.5])


@each_listed
def test_what_is_no_list_of_rates_is_refused(text):
    refused(r"^acceptance_by_position: got .*; expected ", typed_rates, text)
