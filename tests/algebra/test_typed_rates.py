"""Rates by position as people type and paste them: of all drafts, or of those that got there."""

import pytest

import specmodel
from specmodel import InputError
from specmodel.algebra.acceptance import expected_tokens_per_step_by_position, typed_rates

# lines that vLLM printed, with the mean acceptance length beside them
PRINTED = {
    "0.844,0.599,0.385,0.271": 3.10,
    "0.8536,0.7703,0.7132,0.6727,0.6421,0.6143,0.5927,0.5744": 6.43,
    "0.600,0.385,0.215,0.108,0.062" + 10 * ",0.000": 2.37,
}


@pytest.mark.parametrize(("text", "tokens"), PRINTED.items())
def test_what_vllm_prints_gives_the_tokens_that_it_prints(text, tokens):
    rates, kind = typed_rates(text)
    assert kind == "cumulative"
    found = expected_tokens_per_step_by_position(rates, len(rates))
    assert found == pytest.approx(tokens, abs=0.005)
    percent = ",".join(f"{100 * float(rate):.2f}" for rate in text.split(","))
    for same in (f"cumulative:{text}", percent, percent.replace(",", "%, ") + "%"):
        assert typed_rates(same)[0] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("0.8,0.7,0.6", [0.8, 0.7, 0.6]),
        ("0.8,0.7,0.6,0.5", [0.8, 0.7, 0.6, 0.5]),
        ("0.801,0.702,0.753,0.604", [0.801, 0.702, 0.753, 0.604]),
        ("conditional:0.844,0.599,0.385,0.271", [0.844, 0.599, 0.385, 0.271]),
        ("cumulative:0.5,0.25,0", [0.5, 0.5, 0.0]),
        ("0.7", [0.7]),
        ("[0.8, 0.7]", [0.8, 0.7]),
        ("80.5% / 70%", [0.805, 0.7]),
        ("1,1,1,1", [1, 1, 1, 1]),
    ],
)
def test_what_may_be_conditional_is_unless_it_is_named(text, rates):
    assert typed_rates(text)[0] == pytest.approx(rates)


@pytest.mark.parametrize(
    "text",
    ["", "x", "0.8,", "0.8,-0.1", "cumulative:0.8,0.9", "mean:0.8,0.7", "101,50", "nan,0.5", "inf"],
)
def test_what_is_no_list_of_rates_is_refused(text):
    with pytest.raises(InputError, match=r"^acceptance_by_position: got .*; expected "):
        typed_rates(text)


def test_python_takes_the_same_words():
    where = {"target": "qwen3-30b-a3b", "hardware": "h100", "drafter": "eagle3", "draft_length": 3}
    found = specmodel.predict(**where, acceptance_by_position="cumulative:0.8,0.7,0.6")
    assert found.tokens_per_step[0] == pytest.approx(3.1)
    assert "of all drafts" in " ".join(str(found).split())
    listed = specmodel.predict(**where, acceptance_by_position=[0.8, 0.7, 0.6])
    assert listed.tokens_per_step[0] == pytest.approx(2.696)
