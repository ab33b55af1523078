"""Columns of capacity in ``specmodel compare``."""

import re

import numpy as np
import pytest
from printed import in_one_line, typed_wrong, widest
from rows import each_row, slow

LINE = "compare qwen3-30b-a3b h100,h200 --batch-size 4 --prompt-length 100 --output-length 40"
CARRIED = "--tpot-target 9ms --for-load"
ONE = f"{LINE} {CARRIED}".replace("h100,h200", "h100")


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    runs = dict.fromkeys((True, False), (1, 300))
    monkeypatch.setattr("specmodel.simulate.load_question.RUNS", runs)


@pytest.mark.search
@pytest.mark.parametrize("gpus", ["h100,h200", *slow("1xh100,1xh200")])
def test_alternatives_have_capacities_per_gpu_and_their_costs(gpus, document):
    line = f"{LINE} {CARRIED} --gpu-hour-price 2,4".replace("h100,h200", gpus)
    found = document(line)
    assert found["units"]["capacity_per_gpu"] == "request/s"
    for row, price in zip(found["rows"], (2, 4), strict=True):
        assert row["capacity"] >= row["capacity_plain"] > 0
        assert row["capacity_per_gpu"] == row["capacity"]
        by_hand = price / 3600 / (row["capacity"] * 40) * 1e6
        assert row["cost_per_million_tokens"] == pytest.approx(by_hand)


def test_each_count_of_one_gpu_has_its_own_price(rows):
    line = "compare qwen3-30b-a3b 2xh100,4xh100 --batch-size 8 --tpot-target 9ms --gpu-hour-price"
    tables = [rows(f"{line} {prices}") for prices in ("2,3", "1")]
    priced, plain = ([row["cost_per_million_tokens"] for row in table] for table in tables)
    assert np.divide(priced, plain) == pytest.approx([2, 3])


@each_row(("command", "fragments"), typed_wrong("compared_load", line=LINE))
def test_what_means_nothing_is_refused(ended, command, fragments):
    status, _, err = ended(command)  # without numba a warning precedes the refusal
    assert status == 2
    assert all(fragment in err for fragment in fragments)


@pytest.mark.search
def test_lengths_that_are_compared_are_each_carried(run):
    page = run(f"{ONE} --draft-length 1,2")
    most = r"^Most requests/s per GPU within .* of requests: length \d, [\d.]+ requests/s\."
    assert re.search(most, in_one_line(page))
    assert len(widest(page)) <= 80


@pytest.mark.search
def test_prefill_apart_and_together_are_alternatives_and_all_gpus_count(run, rows):
    line = f"{ONE} --prefill together,disaggregated:1"
    told = "prefill disaggregated:1: 1 more GPUs prefill; sending a prompt's KV cache takes "
    assert told in run(line, one_line=True)
    together, apart = rows(line)
    assert (together["alternative"], together["speedup"]) == ("prefill together", apart["speedup"])
    assert apart["capacity_per_gpu"] == apart["capacity"] / 2
    assert apart["capacity"] != together["capacity"] == together["capacity_per_gpu"]


LOAD = "qwen3-30b-a3b h100 --drafter eagle3 --prompt-length 100 --output-length 60"


@pytest.mark.search
@pytest.mark.parametrize(
    ("target", "longest", "seeds", "requests"),
    [("9ms", 1, 2, 60), *slow(("5ms", 3, 4, 400), ("9ms", 3, 4, 400))],
)
def test_on_other_seeds_it_carries_no_less(document, monkeypatch, target, longest, seeds, requests):
    """By more than two standard errors of the differences."""
    runs = dict.fromkeys((True, False), (2, requests))
    monkeypatch.setattr("specmodel.simulate.load_question.RUNS", runs)
    line = f"{LOAD} --tpot-target {target} --max-draft-length {longest}"
    carried = document(f"schedule {line} --max-batch-size 256 --for vllm --for-load")
    rows = {row["policy"]: row["capacity"] for row in carried["carried"]}
    chosen, found = max(rows, key=lambda name: rows[name]), []
    for seed in range(1, 1 + seeds):
        shown = f"load {line} --policy {','.join(rows)} --seed {seed} --requests {requests}"
        found.append([row["capacity"] for row in document(shown)["rows"]])
    best = np.array(found)[:, [*rows].index(chosen)]
    for each in np.array(found).T:
        less = each - best
        assert less.mean() <= 2 * less.std(ddof=1) / len(less) ** 0.5 + 1e-9
