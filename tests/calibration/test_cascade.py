"""Our repetition of Cascade's evaluation: every claim of the paper, as text and as data."""

import csv
import functools
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from printed import parse
from rows import each_listed, values_of

pytest.importorskip("pyarrow")  # published answers are Parquet

import cascade
import cascade_suite as suite
from cascade_suite import CHOICES, SuiteSettings, task_trace

QUICK = {"routing_correlations": (0.18,), "output_tokens": (64,), "first_draft_lengths": (2,)}


@pytest.fixture
def small(monkeypatch):
    """Make the suite small enough to run in seconds."""
    settings = functools.partial(SuiteSettings, **QUICK)
    monkeypatch.setattr("cascade_suite.SuiteSettings", settings)


@pytest.fixture(scope="session")
def pairs():
    """The result of the suite."""
    return suite.cascade_suite(SuiteSettings(**QUICK, num_requests=3, seed=1))


def test_the_suite_reports_every_claim() -> None:
    settings = SuiteSettings(
        look_ups=("3..7", "1..3 bound"), routing_correlations=(0.18,), output_tokens=(96,),
        first_draft_lengths=(1, 3), num_requests=20,
    )  # fmt: skip
    pairs = suite.cascade_suite(settings)
    assert len(pairs.drop_duplicates(["model", "workload"])) == 35
    claims, choices = suite.suite_claims(pairs), suite.suite_choices(pairs)
    assert set(suite.PAPER) <= set(claims)
    told = claims[["look_up", "first_draft_length"]].to_numpy().tolist()
    assert told == [[look_up, first] for look_up in ("1..3 bound", "3..7") for first in (1, 3)]
    bound = pairs[pairs["look_up"] == "1..3 bound"].set_index(["model", "workload"])
    policies = ("cascade:first_draft_length=3", "fixed:1")
    own, fixed = (bound[bound["policy"] == policy] for policy in policies)
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


@pytest.mark.parametrize("task", suite.TASKS)
def test_shorter_look_ups_propose_more_and_get_little_more_accepted(task) -> None:
    drawn = {n: task_trace(task, n, 400, 300, np.random.default_rng(1)) for n in suite.LOOK_UPS}
    long, bound, short = (drawn[look_up] for look_up in ("3..7", "1..3 bound", "1..3"))
    found = [trace.proposed_tokens > 0 for trace in (long, bound, short)]
    assert (found[1] == found[2]).all()
    assert found[1].mean() == pytest.approx(suite.SHORT_SHARES[task], abs=0.005)
    added, right = found[2] & ~found[0], long.accepted_tokens > 0
    for each in (bound, short):
        lost = (each.accepted_tokens != long.accepted_tokens)[~added]
        assert (each.accepted_tokens[~added][lost] == 0).all()
        assert lost.sum() / right.sum() == pytest.approx(suite.LOST_SHARES[task], abs=0.01)
    assert (bound.accepted_tokens[added] == 0).all()
    assert (short.accepted_tokens <= short.proposed_tokens).all()
    for i, right in enumerate(suite.LOOK_UPS["1..3"][:3], start=1):
        assert (short.accepted_tokens[added] >= i).mean() == pytest.approx(right, abs=0.01)


def test_fixed_lengths_are_taken_apart_into_proposals_acceptance_and_cost(pairs) -> None:
    terms = suite.suite_terms(pairs).set_index(["look_up", "model", "task", "draft_length"])
    for name, (look_up, task) in suite.TEXTS.items():
        trace = task_trace(task, look_up, 3, 64, np.random.default_rng(1))
        for length in (1, 2, 3, 7):
            row = terms.loc[look_up, "mixtral-8x7b", task, length]
            steps, proposing = steps_of(trace, length)
            assert row["tokens_per_step"] == len(trace.accepted_tokens) / steps, name
            assert row["proposing_steps"] == pytest.approx(proposing / steps), name
            took = 1 + row["proposing_steps"] * (row["verify_cost"] - 1)
            assert row["speedup"] == pytest.approx(row["tokens_per_step"] / took)
    costs = terms["verify_cost"].xs("mixtral-8x7b", level="model").unstack("draft_length")
    assert (np.diff(costs.to_numpy()) > 0).all()


def steps_of(trace, draft_length):
    """Return the numbers of steps at a fixed length and of steps with a draft."""
    steps = proposing = 0
    for start, tokens in zip(trace.starts, trace.output_tokens, strict=True):
        at, end = start, start + tokens
        while at < end:
            steps += 1
            proposing += trace.proposed_tokens[at] > 0
            at += 1 + min(draft_length, int(trace.accepted_tokens[at]))
    return steps, proposing


ROOT = Path(cascade.__file__).parents[1]
COLUMNS = [("1..3", 0.18), ("answers", 0.18), ("answers", 0.0), ("bare code", 0.0)]


def test_the_page_has_the_figures_that_are_kept() -> None:
    claims = pd.read_csv(ROOT / "calibration/results/cascade/claims.csv")
    own = claims.query("output_tokens == 512 and first_draft_length == 2")
    kept = own.set_index(["look_up", "routing_correlation"])
    _, section = (ROOT / "docs/accuracy.md").read_text().split("## Cascade: paper and ours\n")
    rows = [line.strip("| ").split(" | ") for line in section.split("**Answers.**")[0].splitlines()]
    for start, names in values_of("cases/calibration.txt", "figures of Cascade"):
        (cells,) = [cells for cells in rows if cells[0].startswith(start)]
        for column, cell in zip(COLUMNS, cells[2:], strict=True):
            values = [kept.loc[column, name] for name in names]
            scale = 1 if start == "pairs slowed" else 100
            assert cell == ", ".join(f"{round(scale * value)}" for value in values), start


WORDS = "--requests 3 --seed 1"


def test_suite_for_people_and_programs(small, pairs, do, monkeypatch):
    monkeypatch.setattr("cascade_suite.cascade_suite", lambda *_, **__: pairs)
    out = do(cascade.main, WORDS)
    document = parse(do(cascade.main, WORDS + " --json"))
    claims = {row["look_up"]: row for row in document["claims"]}
    assert len(document["choices"]) == len(claims) * len(CHOICES)
    for claim, paper in document["paper"].items():
        lines = [re.split(r"  +", line) for line in out.splitlines() if line.startswith(claim)]
        assert [cells[1] for cells in lines] == [paper] * 2  # drawn acceptance, and answers
        cells = [cell for _, _, *found in lines for cell in found]
        for look_up, cell in zip(SuiteSettings().look_ups, cells, strict=True):
            value, is_count = claims[look_up][claim], "pairs" in claim or "times" in claim
            scale = 1 if is_count else 100
            printed = None if cell == "-" else float(cell.split()[0]) / scale
            assert printed == (value and pytest.approx(value, abs=0.51 / scale))
    (first, *_) = csv.DictReader(io.StringIO(do(cascade.main, WORDS + " --csv")))
    assert list(first) == list(document["claims"][0])


@each_listed
def test_one_line_names_the_argument(words, fragment, small, refuse):
    refuse(cascade.main, words, fragment)
