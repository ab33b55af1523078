"""The command load at given rates: its page, JSON and CSV, and what it refuses."""

import json

import pytest
from printed import in_one_line
from rows import cases, each_listed

from specmodel.show.columns import meanings
from specmodel.simulate.study import not_carried

WHERE = "qwen3-30b-a3b h100 --requests 200"


def test_so_many_users_run_as_there_are(document):
    line = f"{WHERE} --users 1,8 --policy none,fixed:2 --prompt-length 100 --output-length 40"
    found = document(f"load {line}")
    assert found["units"]["tpot"] == "s"
    assert [row["policy"] for row in found["rows"]] == ["none", "fixed:2"] * 2
    assert found["facts"]["fastest_at"]["value"] == [1, 8]
    assert [row["running"] for row in found["rows"][::2]] == pytest.approx([1, 8], rel=0.02)


def test_all_columns_of_a_drain_have_a_meaning(document):
    line = "load qwen3-30b-a3b h200 --drain 16 --prompt-length 200 --gpu-hour-price 2"
    found = document(f"{line} --output-length lognormal:300:0.8 --policy none,fixed:2")
    assert found["drain"] == {"prompts": 16, "samples": 1, "servers": 1, "finished": 1.0}
    assert found["units"]["makespan"] == found["facts"]["makespan"]["unit"] == "s"
    assert found["facts"]["makespan"]["value"] == min(row["makespan"] for row in found["rows"])
    for row in found["rows"]:
        assert row["cost"] == pytest.approx(2 * row["gpu_hours"])
        by_size = {f"{kind}_at_{size}" for kind in ("share", "last") for size in (2, 4, 8, 16)}
        assert {*row} - by_size <= {*meanings()}


def test_recorded_requests_come_at_their_own_rate_or_another(rows, tmp_path):
    file = tmp_path / "load.csv"
    lines = "".join(f"{i * 0.5},{100 + i},{50 + i}\n" for i in range(60))
    file.write_text("arrival_time,prompt_tokens,output_tokens\n" + lines)
    line = f"load qwen3-30b-a3b h100 --workload {file} --policy none"
    (own,), (faster,) = rows(line), rows(f"{line} --request-rate 4")
    assert own["request_rate"] == pytest.approx(60 / 29.5)
    assert faster["running"] > 1.5 * own["running"]


def test_what_is_drawn_from_a_recording_is_told(document, refuse, tmp_path):
    file = tmp_path / "trace.jsonl"
    record = {"timestamp": 0, "input_length": 900, "output_length": 9, "hash_ids": [1]}
    file.write_text("".join(f"{json.dumps(record | {'timestamp': 500 * i})}\n" for i in range(60)))
    line = "load qwen3-30b-a3b h100 --policy none"
    loads = [f"--workload {file}", f"--workload {file} --requests 90 --time-window 0:10"]
    loads += [f"--workload lognormal:{file} --request-rate 2 --requests 90"]
    replayed, drawn, fitted = (document(f"{line} {load}")["assumptions"] for load in loads)
    for told in (replayed, drawn):
        assert told["prefix_hit_rate"] == "all leading blocks (hash_ids) of earlier requests"
    assert "arrivals" not in replayed
    assert drawn["arrivals"] == "poisson"
    assert drawn["workload"].endswith("from the file, times in ms and blocks of 512 tokens")
    assert replayed["workload"] == "times in ms and blocks of 512 tokens"
    assert "prompts of 900 tokens (spread 0.00)" in fitted["workload"]
    told = "The hash_ids of the file show what is cached"
    refuse(f"{line} --workload {file} --shared-prefix 9", told)


@pytest.mark.search
@cases("policy", "sglang", "goodput", "table:1-4=3:5-64=1", "schedule", "adaptive-verification")
def test_policies_that_see_the_batch(rows, policy):
    (row,) = rows(f"load {WHERE} --request-rate 2 --policy {policy}")
    assert row["drafted_tokens_per_step"] > 0


@pytest.mark.search
@each_listed
def test_loads_at_the_ends_of_what_is_taken_have_times_that_can_be(rows, more):
    line = f"load {WHERE} --requests 20 --request-rate 0.1 --policy none,fixed:2 {more}"
    for row in rows(line):
        for name in ("tpot", "ttft"):
            assert row[name] is None or 0 <= row[name] < 1000


@pytest.mark.search
def test_a_rate_too_high_does_not_hide_the_others(run, rows):
    line = f"load {WHERE} --requests 1500 --request-rate"
    page = run(f"{line} 1,90")
    told = in_one_line(page)
    assert "Warning: none of these policies sustains 90 requests/s: requests wait" in told
    assert told.startswith("Policy with the lowest TPOT: schedule, at 1 requests/s.")
    assert "\n       1  none" in page
    alone = rows(f"{line} 90")
    assert [row for row in rows(f"{line} 1,90") if row["request_rate"] == 90] == alone
    assert not any(row["is_steady"] for row in alone)


def test_a_rate_that_one_policy_sustains_is_not_warned_of():
    row = {"policy": "schedule", "request_rate": 9.0, "is_steady": False}
    assert not_carried([row, row]) == [9.0]
    assert not_carried([row, row | {"is_steady": True}]) == []


@pytest.mark.parametrize("others", ["", "5,90,9\n"])
def test_a_recording_without_a_rate_takes_one(others, document, refuse, tmp_path):
    file = tmp_path / "one.csv"
    file.write_text(f"arrival_time,prompt_tokens,output_tokens\n5,90,9\n{others}")
    line = f"load qwen3-30b-a3b h100 --policy none --workload {file}"
    refuse(line, "--workload: got", "different arrival times. Add --request-rate")
    assert document(f"{line} --request-rate 1")["rows"][0]["is_steady"]


@pytest.mark.parametrize("load", ["--request-rate 1,40", "--users 2,100"])
def test_given_loads_have_shares_within_targets_and_costs(rows, load):
    line = f"load {WHERE} --prompt-length 100 --output-length 60 --tpot-target 9ms"
    found = rows(f"{line} --gpu-hour-price 3 --policy none,fixed:2 {load}")
    assert found[1]["goodput"] > 0.9
    assert found[2]["goodput"] < 0.5
    for row in found:
        by_hand = 3 / 3600 / row["throughput"] * 1e6
        assert row["cost_per_million_tokens"] == pytest.approx(by_hand)


@pytest.mark.parametrize(("more", "kind"), [("--request-rate 1,4", "load"), ("", "capacity")])
def test_rates_are_drawn_as_a_load_or_as_a_capacity(run, tmp_path, more, kind, drawn):
    line = f"{WHERE} --tpot-target 20ms --prompt-length 100 --output-length 20 --policy none"
    run(f"load {line} {more} --figure {tmp_path / 'drawn.svg'}")
    assert [each for each, *_ in drawn] == [kind]


@cases("case", "qwen3-235b-a22b 8xh200", "qwen3-30b-a3b h100", "qwen3-32b 2xh200")
def test_one_load_has_one_answer(case, rows):
    """About that of predict, with drafts and without.

    Simulated, prompts of equal requests come together, and share the launches of their steps.
    """
    lengths = "--prompt-length 1024 --output-length 256"
    asked = f"{case} {lengths} --drafter eagle3 --acceptance-rate 0.7"
    plain, drafted = rows(f"load {asked} --users 32 --policy none,fixed:3 --requests 400")
    (row,) = rows(f"predict {asked} --batch-size 32 --draft-length 3")
    for own, predicted in ((plain, row["forward_time"]), (drafted, row["tpot"])):
        assert 0.65 * predicted < own["tpot"] < 1.05 * predicted


def test_a_launch_command_gives_the_server_and_its_draft_length(document, tmp_path):
    config = '{"method": "eagle3", "num_speculative_tokens": 4}'
    start = f"vllm serve Qwen/Qwen3-30B-A3B -tp 2 --speculative-config '{config}' --max-num-seqs 8"
    (file := tmp_path / "serve.sh").write_text(start)
    line = f"load h200 --request-rate 8 --requests 60 --from-command {file}"
    found, plain = document(line), document(f"{line} --policy none")
    assert [row["policy"] for row in found["rows"]] == ["none", "fixed:4", "schedule"]
    assert max(row["running"] for row in found["rows"]) <= 8
    assert [row["policy"] for row in plain["rows"]] == ["none"]
