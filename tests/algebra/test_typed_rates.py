"""Rates by position as people type and paste them: of all drafts, or of those that got there."""

import pytest
from printed import refused
from rows import cases

from specmodel.algebra.acceptance import (
    expected_tokens_per_step_by_position as tokens_of,
    readings,
    typed_rates,
)

# lines that vLLM, its offline examples, benchmark tables and llama.cpp printed, with the mean
# acceptance length beside them; the first of eagle.py of April 2025 is of the bonus token
PRINTED = {
    "0.844,0.599,0.385,0.271": 3.10,
    "0.8536,0.7703,0.7132,0.6727,0.6421,0.6143,0.5927,0.5744": 6.43,
    "0.600,0.385,0.215,0.108,0.062" + 10 * ",0.000": 2.37,
    "0.533,0.333,0.333,0.333,0.267": 2.80,
    "0.318,0.182,0.091,0.091,0.091": 1.77,
    "0.843, 0.668": 2.51,
    "0.730, 0.591, 0.508": 2.83,
    "(0.813, 0.716, 0.619, 0.493)": 3.64,
    "1.000, 1.000, 0.973, 0.973, 0.892, 0.784, 0.622": 7.24,
    "1.000, 0.500, 0.500": 3.00,
    "0.74,0.54,0.41,0.31,0.23,0.17,0.13": 3.53,
    "0.57,0.43,0.43": 2.43,
    "72.56,66.06,63.55,61.95,60.26": 4.24,
    "64%,40%,25%,15%": 2.44,
    "1.00,0.74,0.54,0.41": 2.69,
    "100%,74%,54%,41%": 2.69,
    "1,0.8,0.6,0.4": 2.8,
    "0.6,0.4,0.2,0,0": 2.2,
}


@pytest.mark.parametrize(("text", "tokens"), PRINTED.items())
def test_what_engines_print_gives_the_tokens_that_they_print(text, tokens):
    (read, rates), *others = readings(text).items()
    assert read.startswith("cumulative:")
    assert tokens_of(rates, len(rates)) == pytest.approx(tokens, abs=0.015)
    assert typed_rates(read) == pytest.approx(rates, abs=1e-5)
    for other, told in others:  # each can be typed, and is another number
        assert typed_rates(other) == pytest.approx(told)
        assert tokens_of(told, len(told)) != pytest.approx(tokens, abs=0.015)
    assert others


@cases(
    "text rates is_told",
    ("0.8,0.7,0.6", [0.8, 0.7, 0.6], True),
    ("80%,70%,60%,50%", [0.8, 0.7, 0.6, 0.5], True),
    ("0.75,0.75,0.75", [0.75, 0.75, 0.75], True),
    ("[0.8, 0.7]", [0.8, 0.7], True),
    ("0.801,0.702,0.753,0.604", [0.801, 0.702, 0.753, 0.604], False),
    ("conditional:0.844,0.599,0.385,0.271", [0.844, 0.599, 0.385, 0.271], False),
    ("conditional:80.5% / 70%", [0.805, 0.7], False),
    ("cumulative:0.5,0.25,0", [0.5, 0.5, 0.0], False),
    ("cumulative:1.00,0.5", [1, 0.5], True),
    ("0.7", [0.7], False),
    ("1,1,1,1", [1, 1, 1, 1], False),
    ("1.0,0.72,0.75", [0.72, 0.75], True),
)
def test_what_people_type_is_conditional_and_another_way_to_read_it_is_told(text, rates, is_told):
    ways = readings(text)
    assert next(iter(ways.values())) == pytest.approx(rates)
    assert (len(ways) > 1) == is_told


def test_a_list_as_long_as_the_draft_has_no_bonus_token():
    assert typed_rates("1.00,0.8,0.4", 3) == pytest.approx([1, 0.8, 0.5])
    assert typed_rates("1.00,0.8,0.4", 2) == pytest.approx([0.8, 0.5])


@cases(
    "text",
    *("", "x", "0.8,", "0.8,-0.1", "cumulative:0.8,0.9", "mean:0.8,0.7", "101,50", "nan,0.5"),
    *("inf", "1.5,0.7", "1.2,0.9,0.853"),
)
def test_what_is_no_list_of_rates_is_refused(text):
    refused(r"^acceptance_by_position: got .*; expected ", typed_rates, text)
