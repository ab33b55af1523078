"""The command load within targets: its page, JSON and CSV, and what it refuses."""

import csv
import io
import json
import re

import pytest
from printed import in_one_line, output_of, typed_wrong, widest
from rows import each_row

from specmodel.simulate.load_question import RUNS

pytestmark = pytest.mark.search
WHERE = "qwen3-30b-a3b h100 --requests 60 --replications 2 --prompt-length 100 --output-length 60"


@pytest.fixture(scope="module")
def found():
    """The rows of a search as JSON and CSV."""
    line = f"load {WHERE} --tpot-target 12ms --gpu-hour-price 3 --for-rate 200"
    document, tried = (output_of(f"{line} {form}") for form in ("--json", "--csv"))
    return json.loads(document), list(csv.DictReader(io.StringIO(tried)))


def test_the_page_begins_with_one_sentence_and_has_80_columns(run):
    page = run(f"load {WHERE} --tpot-target 12ms --gpu-hour-price 3 --for-rate 9 --verbose")
    assert page.startswith(
        "Highest rate within 12ms per token and 1s to the first token for 90 % of\n"
    )
    assert len(widest(page)) <= 80
    words = in_one_line(page)
    for told in ("ttft_target 1s", "attainment 0.9", "requests 60 and more, 2 times"):
        assert told in words


def test_without_numba_runs_are_fewer_and_that_is_said(ended, monkeypatch):
    monkeypatch.setattr("specmodel.simulate.machine_code.find_spec", lambda name: None)
    line = "--prompt-length 100 --output-length 20 --tpot-target 12ms --policy none"
    _, page, err = ended(f"load qwen3-30b-a3b h100 {line} --verbose")
    assert "without numba the search is coarse, with 2 short runs at each rate" in err
    assert "pip install '.[fast]'" in err
    times, requests = RUNS[False]
    assert f"requests {requests} and more, {times} times" in in_one_line(page)


def test_progress_is_told_without_a_terminal(ended, monkeypatch):
    monkeypatch.setattr("specmodel.cli.output._LINES", 0.0)
    _, _, err = ended(f"load {WHERE} --tpot-target 12ms --policy none,fixed:1")
    told = re.findall(r"^Serving: (\d+) of about \d+ rates tried, \d+ s$", err, re.M)
    done = [int(number) for number in told]
    assert len(done) > 5
    assert done == sorted(done)


def test_promised_rates_lie_between_those_that_pass_and_fail(found):
    document, tried = found
    for row in document["rows"]:
        own = [r for r in tried if r["policy"] == row["policy"]]
        passing = [float(r["request_rate"]) for r in own if r["meets_targets"] == "True"]
        failing = [float(r["request_rate"]) for r in own if r["meets_targets"] == "False"]
        assert row["capacity"] in passing
        assert 1 < min(f for f in failing if f > row["capacity"]) / row["capacity"] < 1.015
        assert row["simulated_low"] <= row["capacity"] <= row["simulated_high"]
        assert row["predicted_low"] < row["capacity"] < row["predicted_high"]
        assert row["goodput"] >= 0.9


def test_replicas_and_costs_follow_from_the_capacity(found):
    for row in found[0]["rows"]:
        assert (row["replicas"] - 1) * row["capacity"] < 200 <= row["replicas"] * row["capacity"]
        assert (row["gpus"], row["cost_per_hour"]) == (row["replicas"], 3 * row["gpus"])
        by_hand = 3 / 3600 / (row["capacity"] * 60) * 1e6
        assert row["cost_per_million_tokens"] == pytest.approx(by_hand)


def test_drafts_that_carry_no_more_leave_plain_decoding_first(run, rows):
    line = f"load {WHERE} --drafter ngram --acceptance-rate 0.05 --tpot-target 12ms"
    line += " --policy none,schedule"
    plain, other = (row["capacity"] for row in rows(line))
    assert other <= 1.01 * plain
    words = run(line, one_line=True)
    assert f": {plain:.3g} requests/s" in words
    assert ', with policy "plain decoding".' in words
    assert "Policies that are as good within the noise of the simulation: schedule." in words


@each_row(("command", "fragments"), typed_wrong("load_largest", where=WHERE))
def test_bad_input_is_one_line(refuse, command, fragments):
    refuse(command, *fragments)


def test_the_usual_target_that_bursts_miss_is_asked_for(refuse):
    line = f"load {WHERE} --tpot-target 30ms --arrivals gamma:20 --policy none --max-running 2"
    refuse(line, "--ttft-target: none given; expected at least ", "the time of a single request")
