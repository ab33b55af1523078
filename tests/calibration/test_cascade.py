"""The evaluation of Cascade redone: every claim of the paper, for people and for programs."""

import csv
import functools
import io
import re

import numpy as np
import pytest
from printed import parse
from rows import cases

import cascade
from cascade_suite import (
    CHOICES,
    LOOK_UPS,
    LOST_SHARES,
    PAPER,
    SHORT_SHARES,
    TASKS,
    SuiteSettings,
    cascade_suite,
    suite_choices,
    suite_claims,
    task_trace,
)

QUICK = {"routing_correlations": (0.18,), "output_tokens": (64,), "first_draft_lengths": (2,)}


@pytest.fixture
def small(monkeypatch):
    """The suite in seconds."""
    settings = functools.partial(SuiteSettings, **QUICK)
    monkeypatch.setattr("cascade_suite.SuiteSettings", settings)


@pytest.fixture(scope="session")
def pairs():
    """What the suite returns."""
    return cascade_suite(SuiteSettings(**QUICK, num_requests=3, seed=1))


def test_the_suite_reports_every_claim() -> None:
    settings = SuiteSettings(
        look_ups=("3..7", "1..3 bound"), routing_correlations=(0.18,), output_tokens=(96,),
        first_draft_lengths=(1, 3), num_requests=20,
    )  # fmt: skip
    pairs = cascade_suite(settings)
    assert len(pairs.drop_duplicates(["model", "workload"])) == 35
    claims, choices = suite_claims(pairs), suite_choices(pairs)
    assert set(PAPER) <= set(claims)
    assert claims[["look_up", "first_draft_length"]].to_numpy().tolist() == [
        ["1..3 bound", 1], ["1..3 bound", 3], ["3..7", 1], ["3..7", 3],
    ]  # fmt: skip
    bound = pairs[pairs["look_up"] == "1..3 bound"]
    own, fixed = (
        bound[bound["policy"] == policy].set_index(["model", "workload"])
        for policy in ("cascade:first_draft_length=3", "fixed:1")
    )
    told = claims.iloc[1]
    assert told["worst slowdown, cascade"] == own["slowdown"].max()
    gain = (own["speedup"] / fixed["speedup"]).mean() - 1
    assert told["mean gain over fixed:1"] == pytest.approx(gain)
    code = own["speedup"]["mixtral-8x7b", "code"] - 1
    assert told["Mixtral code, cascade"] == pytest.approx(code)
    assert len(choices) == 2 * len(CHOICES)
    # with 3 to 7 tokens next to nothing is slowed
    slowed = claims[claims["look_up"] == "1..3 bound"]
    assert (slowed["worst slowdown, cascade"] < slowed["worst slowdown, fixed:3"]).all()


@pytest.mark.parametrize("task", TASKS)
def test_shorter_look_ups_propose_more_and_get_little_more_accepted(task) -> None:
    long, bound, short = (
        task_trace(task, look_up, 400, 300, np.random.default_rng(1))
        for look_up in ("3..7", "1..3 bound", "1..3")
    )
    found = [trace.proposed_tokens > 0 for trace in (long, bound, short)]
    assert (found[1] == found[2]).all()
    assert found[1].mean() == pytest.approx(SHORT_SHARES[task], abs=0.005)
    added, right = found[2] & ~found[0], long.accepted_tokens > 0
    for each in (bound, short):
        lost = (each.accepted_tokens != long.accepted_tokens)[~added]
        assert (each.accepted_tokens[~added][lost] == 0).all()
        assert lost.sum() / right.sum() == pytest.approx(LOST_SHARES[task], abs=0.01)
    assert (bound.accepted_tokens[added] == 0).all()
    assert (short.accepted_tokens <= short.proposed_tokens).all()
    for i, right in enumerate(LOOK_UPS["1..3"][:3], start=1):
        assert (short.accepted_tokens[added] >= i).mean() == pytest.approx(right, abs=0.01)


WORDS = "--requests 3 --seed 1"


def test_suite_for_people_and_programs(small, pairs, do, monkeypatch):
    monkeypatch.setattr("cascade_suite.cascade_suite", lambda *_, **__: pairs)
    out = do(cascade.main, WORDS)
    document = parse(do(cascade.main, WORDS + " --json"))
    claims = {row["look_up"]: row for row in document["claims"]}
    assert len(document["choices"]) == len(claims) * len(CHOICES)
    for claim, paper in document["paper"].items():
        cells = re.split(r"  +", next(line for line in out.splitlines() if claim in line))
        assert cells[1] == paper
        for look_up, cell in zip(SuiteSettings().look_ups, cells[2:], strict=True):
            value, is_count = claims[look_up][claim], "pairs" in claim or "times" in claim
            scale = 1 if is_count else 100
            printed = None if cell == "-" else float(cell.split()[0]) / scale
            assert printed == (value and pytest.approx(value, abs=0.51 / scale))
    (first, *_) = csv.DictReader(io.StringIO(do(cascade.main, WORDS + " --csv")))
    assert list(first) == list(document["claims"][0])


@cases(
    "words fragment",
    ("--json --csv", "--csv: got True"),
    ("--requests 0", "--requests: got 0;"),
    ("--engine nope", "--engine: got 'nope'"),
)
def test_one_line_names_the_argument(words, fragment, small, refuse):
    refuse(cascade.main, words, fragment)
