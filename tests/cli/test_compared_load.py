"""Columns of capacity in ``specmodel compare``."""

import io
import json
import shlex

import pandas as pd
import pytest
from rows import slow

from specmodel.cli.commands import carry_out

LINE = "compare qwen3-30b-a3b h100,h200 --batch-size 4 --prompt-length 100 --output-length 40"


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    monkeypatch.setattr("specmodel.serving.trial.RUNS", dict.fromkeys((True, False), (1, 300)))


@pytest.mark.search
@pytest.mark.parametrize("gpus", ["h100,h200", *slow("1xh100,1xh200")])
def test_alternatives_have_capacities_per_gpu_and_their_costs(gpus, capsys):
    line = f"{LINE} --tpot-target 9ms --for-load --gpu-hour-price 2,4".replace("h100,h200", gpus)
    assert carry_out(shlex.split(f"{line} --json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["units"]["capacity_per_gpu"] == "request/s"
    for row, price in zip(document["rows"], (2, 4), strict=True):
        assert row["capacity"] >= row["capacity_plain"] > 0
        assert row["capacity_per_gpu"] == row["capacity"]
        by_hand = price / 3600 / (row["capacity"] * 40) * 1e6
        assert row["cost_per_million_tokens"] == pytest.approx(by_hand)


def test_each_count_of_one_gpu_has_its_own_price(ended):
    line = "compare qwen3-30b-a3b 2xh100,4xh100 --batch-size 8 --tpot-target 9ms --csv"
    costs = [
        pd.read_csv(io.StringIO(ended(f"{line} --gpu-hour-price {prices}")[1]))
        for prices in ("2,3", "1")
    ]
    priced, plain = (table["cost_per_million_tokens"].to_numpy() for table in costs)
    assert priced / plain == pytest.approx([2, 3])


@pytest.mark.parametrize(
    ("more", "culprit"),
    [
        ("--gpu-hour-price 2", "--gpu-hour-price"),
        ("--ttft-target 1s", "--for-load with it, which simulates requests that come and wait"),
        ("--prefill disaggregated:1", "--prefill"),
        ("--tpot-target 9ms --for-load --prefill disaggregated:0", "--prefill"),
        ("--tpot-target 9ms --for-load --gpu-hour-price 2,3,4", "one for each of 2 GPUs"),
        ("--tpot-target 9ms --for-load --gpu-hour-price -1", "--gpu-hour-price"),
    ],
)
def test_what_means_nothing_is_refused(ended, more, culprit):
    status, _, err = ended(f"{LINE} {more}")  # without numba a warning precedes the refusal
    assert status == 2
    assert culprit in err


@pytest.mark.search
def test_lengths_that_are_compared_are_each_carried(capsys):
    line = f"{LINE} --tpot-target 9ms --for-load --draft-length 1,2".replace("h100,h200", "h100")
    assert carry_out(shlex.split(line)) == 0
    page = capsys.readouterr().out
    assert "carries most per GPU" in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.search
def test_prefill_apart_and_together_are_alternatives_and_all_gpus_count(capsys):
    line = f"{LINE} --tpot-target 9ms --for-load --prefill together,disaggregated:1".replace(
        "h100,h200", "h100"
    )
    assert carry_out(shlex.split(line)) == 0
    told = "prefill disaggregated:1: 1 more GPUs prefill, and send on a prompt's cache in "
    assert told in " ".join(capsys.readouterr().out.split())
    assert carry_out(shlex.split(f"{line} --json")) == 0
    together, apart = json.loads(capsys.readouterr().out)["rows"]
    assert together["alternative"] == "prefill together"
    assert together["speedup"] == apart["speedup"]
    assert apart["capacity_per_gpu"] == apart["capacity"] / 2
    assert apart["capacity"] != together["capacity"] == together["capacity_per_gpu"]
