"""The command load at given rates: its page, JSON and CSV, and what it refuses."""

import csv
import io
import json

import pytest
from rows import each_row

from specmodel.serving.study import not_carried

WHERE = "qwen3-30b-a3b h100 --requests 200"


def test_the_page_begins_with_one_sentence_and_has_80_columns(ended):
    line = f"{WHERE} --request-rate 1,4 --ttft-target 1s --tpot-target 20ms --verbose"
    status, page, _ = ended(f"load {line}")
    assert status == 0
    assert page.startswith("At 1 request/s schedule is fastest")
    assert max(map(len, page.splitlines())) <= 80
    assert "scheduling as vLLM 0.33" in " ".join(page.split())
    rows = [line.split() for line in page.splitlines() if line.split()[1:2] == ["none"]]
    assert [row[0] for row in rows] == ["1", "4"]


def test_json_and_csv_have_the_same_rows(ended):
    line = f"{WHERE} --users 1,8 --policy none,fixed:2 --prompt-length 100 --output-length 40"
    _, text, _ = ended(f"load {line} --json")
    _, table, _ = ended(f"load {line} --csv")
    document, listed = json.loads(text), list(csv.DictReader(io.StringIO(table)))
    assert document["units"]["tpot"] == "s"
    assert [row["policy"] for row in document["rows"]] == ["none", "fixed:2"] * 2
    for row, other in zip(document["rows"], listed, strict=True):
        assert float(other["tpot"]) == row["tpot"]
    assert document["rows"][0]["running"] == pytest.approx(1, rel=0.02)
    assert document["rows"][2]["running"] == pytest.approx(8, rel=0.02)


def test_recorded_requests_come_at_their_own_rate_or_another(ended, tmp_path):
    file = tmp_path / "load.csv"
    rows = "".join(f"{i * 0.5},{100 + i},{50 + i}\n" for i in range(60))
    file.write_text("arrival_time,prompt_tokens,output_tokens\n" + rows)
    line = f"qwen3-30b-a3b h100 --workload {file} --policy none --csv"
    _, own, _ = ended(f"load {line}")
    _, faster, _ = ended(f"load {line} --request-rate 4")
    own, faster = (next(csv.DictReader(io.StringIO(text))) for text in (own, faster))
    assert float(own["request_rate"]) == pytest.approx(60 / 29.5)
    assert float(faster["running"]) > 1.5 * float(own["running"])


def test_what_is_drawn_from_a_recording_is_told(ended, tmp_path):
    file = tmp_path / "trace.jsonl"
    record = {"timestamp": 0, "input_length": 900, "output_length": 9, "hash_ids": [1]}
    file.write_text("".join(f"{json.dumps(record | {'timestamp': 500 * i})}\n" for i in range(60)))
    line = "load qwen3-30b-a3b h100 --policy none --json"
    replayed, drawn, fitted = (
        json.loads(ended(f"{line} {more}")[1])
        for more in (
            f"--workload {file}",
            f"--workload {file} --requests 90 --time-window 0:10",
            f"--workload lognormal:{file} --request-rate 2 --requests 90",
        )
    )
    cached = "all leading blocks (hash_ids) that came before"
    assert replayed["assumptions"]["prefix_hit_rate"] == cached
    assert "arrivals" not in replayed["assumptions"]
    assert replayed["rows"][0]["request_rate"] == pytest.approx(60 / 29.5)
    assert drawn["assumptions"]["prefix_hit_rate"] == cached
    assert drawn["assumptions"]["arrivals"] == "poisson"
    assert "drawn from the file" in drawn["assumptions"]["workload"]
    assert "prompts of 900 tokens (spread 0.00)" in fitted["assumptions"]["workload"]
    status, _, refused = ended(f"{line} --workload {file} --shared-prefix 9")
    assert status == 2
    assert "none, as hash_ids of the file tell what is cached" in refused


@pytest.mark.search
@pytest.mark.parametrize(
    "policy", ["sglang", "goodput", "table:1-4=3:5-64=1", "schedule", "adaptive-verification"]
)
def test_policies_that_see_the_batch(ended, policy):
    status, text, _ = ended(f"load {WHERE} --request-rate 2 --policy {policy} --json")
    assert status == 0
    assert json.loads(text)["rows"][0]["drafted_tokens_per_step"] > 0


@pytest.mark.search
@pytest.mark.parametrize(
    "more",
    [
        "--token-budget 1",
        "--token-budget 1 --prefill disaggregated:1",
        "--token-budget 2 --prompt-length 1 --output-length 1",
        "--arrivals gamma:20",
        "--arrivals bursts:1000",
        "--request-rate 1 --prompt-length 1 --output-length 1",
    ],
)
def test_loads_at_the_ends_of_what_is_taken_have_times_that_can_be(ended, more):
    status, text, err = ended(
        f"load {WHERE} --requests 20 --request-rate 0.1 --policy none,fixed:2 {more} --json"
    )
    assert status == 0, err
    for row in json.loads(text)["rows"]:
        for name in ("tpot", "ttft", "tpot_closed", "ttft_closed"):
            assert row[name] is None or 0 <= row[name] < 1000


@pytest.mark.search
def test_a_rate_too_high_does_not_hide_the_others(ended):
    line = f"{WHERE} --request-rate 1,90"
    status, page, _ = ended(f"load {line.replace('--requests 100', '')} --requests 1500")
    assert status == 0
    told = " ".join(page.split())
    assert "Warning: 90 requests/s are not carried by any policy: at most about" in told
    assert "90 requests/s are not carried." in told
    assert "\n       1  none" in page
    every = rows(ended, f"{line} --requests 1500")
    alone = rows(ended, f"{WHERE} --request-rate 90 --requests 1500")
    assert [row for row in every if row["request_rate"] == 90] == alone
    assert not any(row["is_steady"] for row in alone)


def rows(ended, line):
    return json.loads(ended(f"load {line} --json")[1])["rows"]


def test_a_rate_near_the_edge_is_told_as_such():
    """What one run does not carry may be carried by formula: it is not refused."""
    row = {"policy": "schedule", "request_rate": 9.0, "is_steady": False, "carried_rate": 8.0}
    assert not_carried([row | {"largest_rate_closed": 10.0}]) == {9.0: 10.0}
    assert not_carried([row | {"largest_rate_closed": None}]) == {9.0: 8.0}
    assert not_carried([row | {"is_steady": True, "largest_rate_closed": 10.0}]) == {}


def test_drafts_go_as_far_as_acceptance_is_known(ended):
    line = "qwen3-30b-a3b h100 --request-rate 1 --requests 100"
    for more, longest in (("", 7), (" --policy none,fixed:3", 3), (" --max-draft-length 2", 2)):
        document = json.loads(ended(f"load {line}{more} --json")[1])
        assert document["scheduler"]["reserved_tokens"] == longest


@each_row(
    ("line", "culprit", "remedy"),
    [
        ("--request-rate -1", "--request-rate", "above 0"),
        ("", "--request-rate", "--users"),
        ("--request-rate 1 --users 2", "--request-rate", "either rates or users"),
        ("--request-rate 1 --policy cascade", "--policy", "--policy-state server"),
        ("--request-rate 1 --policy table:1-8=9", "--policy", "at most 7"),
        ("--request-rate 1 --prompt-length 10", "--output-length", "as prompt_length is given"),
        ("--request-rate 1 --workload essays", "--workload", "or a file"),
        ("--request-rate 1 --time-window 0:9", "--time-window", "a file of recorded requests"),
        ("--request-rate 1 --acceptance-by-request 9", "--acceptance-by-request", "from 0 to 5"),
        (
            "--request-rate 1 --shared-prefix 9 --prefix-hit-rate 0.1",
            "--prefix-hit-rate",
            "none beside --shared-prefix",
        ),
        ("--request-rate 1 --arrivals gamma:100", "--arrivals", "at most 20"),
        ("--request-rate 1 --policy oracle", "--policy", "cascade or bandit"),
        ("--request-rate 1 --prefix-hit-rate 2", "--prefix-hit-rate", "from 0 to 1"),
        ("--request-rate 1 --prompt-length 400000 --output-length 5", "memory", "at most"),
    ],
)
def test_bad_input_is_one_line(refuse, line, culprit, remedy):
    refuse(f"load qwen3-30b-a3b h100 --requests 100 {line}", culprit, remedy)


def test_states_for_each_request_may_be_shared(ended):
    line = f"{WHERE} --request-rate 1 --policy cascade --policy-state server --json"
    status, text, _ = ended(f"load {line}")
    assert status == 0
    assert json.loads(text)["rows"][0]["is_steady"]


@pytest.mark.parametrize("load", ["--request-rate 1,40", "--users 2,100"])
def test_given_loads_have_shares_within_targets_and_costs(ended, load):
    line = f"{WHERE} --prompt-length 100 --output-length 60 --tpot-target 9ms --gpu-hour-price 3"
    line += f" --policy none,fixed:2 {load}"
    found = rows(ended, line)
    assert [row["policy"] for row in found] == ["none", "fixed:2"] * 2
    assert found[1]["goodput"] > 0.9
    assert found[2]["goodput"] < 0.5
    for row in found:
        by_hand = 3 / 3600 / row["throughput"] * 1e6
        assert row["cost_per_million_tokens"] == pytest.approx(by_hand)
    _, page, _ = ended(f"load {line}")
    assert "$/M" in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("more", ["--request-rate 1,4 --tpot-target 20ms", "--tpot-target 20ms"])
def test_rates_are_drawn_as_a_load_or_as_a_capacity(ended, tmp_path, more, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "specmodel.show.plots.figures.save_figure", lambda kind, *_: drawn.append(kind)
    )
    pytest.importorskip("matplotlib")
    line = f"{WHERE} --prompt-length 100 --output-length 20 --policy none {more}"
    assert ended(f"load {line} --figure {tmp_path / 'drawn.svg'}")[0] == 0
    assert drawn == ["load" if "rate" in more else "capacity"]


@pytest.mark.parametrize("name", ["serve", "capacity"])
def test_the_names_of_before_tell_the_new_one(ended, name):
    told = f"specmodel: error: command: got '{name}'; expected specmodel load ..., its new name\n"
    assert ended(f"{name} qwen3-30b-a3b h100") == (2, "", told)


@pytest.mark.parametrize(
    "case", ["qwen3-235b-a22b 8xh200", "qwen3-30b-a3b h100", "qwen3-32b 2xh200"]
)
def test_one_load_has_one_answer(case, ended):
    """By formula that of predict, with drafts and without.

    Simulated, prompts of equal requests come together, and share the launches of their steps.
    """
    lengths = "--prompt-length 1024 --output-length 256"
    drafts = "--drafter eagle3 --acceptance-rate 0.7"
    line = f"load {case} {drafts} {lengths} --users 32 --policy none,fixed:3 --requests 400 --json"
    plain, drafted = json.loads(ended(line)[1])["rows"]
    at = f"{case} {lengths} --batch-size 32 --json"
    (decoded,) = json.loads(ended(f"predict {at} --view plain")[1])["rows"]
    (row,) = json.loads(ended(f"predict {at} {drafts} --draft-length 3")[1])["rows"]
    assert decoded["tpot"] == row["forward_time"]
    assert plain["tpot_closed"] == pytest.approx(decoded["tpot"], rel=0.025)
    assert 0.96 < drafted["tpot_closed"] / row["tpot"] < 1.03  # where drafts read experts anyway
    for own in (plain, drafted):
        assert 0.65 * own["tpot_closed"] < own["tpot"] < 1.02 * own["tpot_closed"]
