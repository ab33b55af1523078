"""The command load with a drain: its page, rows and figure, and what it refuses."""

import csv
import io
import json

import pytest
from rows import each_row

WHERE = "qwen3-30b-a3b h200"
LENGTHS = "--prompt-length 200 --output-length lognormal:300:0.8"


def test_the_page_begins_with_what_to_do_and_has_80_columns(ended):
    line = f"load {WHERE} --drain 32 --samples 4 {LENGTHS} --gpu-hour-price 3"
    status, page, err = ended(line)
    assert (status, err) == (0, "")
    verdict = page.partition("Qwen3-30B-A3B +")[0]
    assert verdict.startswith("Speculate ")
    assert verdict.count("\n") <= 4
    assert "32 prompts x 4 are done in" in " ".join(verdict.split())
    assert max(map(len, page.splitlines())) <= 80
    rows = [line.split()[0] for line in page.splitlines() if line.startswith(("none", "below:"))]
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("none,fixed:3", "Speculate throughout with 3 drafted: 32 prompts are done in"),
        ("none", "32 prompts are done in"),
        ("fixed:3", "With fixed:3 32 prompts are done in"),
        ("none,below:31:3", "Speculate while at most 31 requests run, with 3 drafted"),
    ],
)
def test_the_verdict_names_the_policy(ended, policy, told):
    _, page, _ = ended(f"load {WHERE} --drain 32 {LENGTHS} --policy {policy}")
    assert " ".join(page.split()).startswith(told)


def test_json_and_csv_have_the_same_rows_and_all_columns_a_meaning(ended):
    from specmodel.show.columns import meanings

    line = (
        f"load {WHERE} --drain 16 {LENGTHS} --policy none,fixed:2 --by-formula --gpu-hour-price 2"
    )
    document = json.loads(ended(f"{line} --json")[1])
    listed = list(csv.DictReader(io.StringIO(ended(f"{line} --csv")[1])))
    assert document["drain"] == {"prompts": 16, "samples": 1, "servers": 1, "finished": 1.0}
    assert document["units"]["makespan"] == "s"
    for row, other in zip(document["rows"], listed, strict=True):
        assert float(other["makespan"]) == row["makespan"] == row["makespan_closed"]
        assert row["cost"] == pytest.approx(2 * row["gpu_hours"])
        by_size = {f"{kind}_at_{size}" for kind in ("share", "last") for size in (2, 4, 8, 16)}
        assert {*row} - by_size <= {*meanings()}


@each_row(
    ("line", "culprit", "remedy"),
    [
        ("--drain 64 --request-rate 1", "--request-rate", "arrive at once"),
        ("--drain 64 --tpot-target 20ms", "--tpot-target", "arrive at once"),
        ("--drain 0", "--drain", "from 1"),
        ("--drain 100000000", "--drain", "to 2e+06"),
        ("--drain 64 --samples 0", "--samples", "from 1"),
        ("--drain 64 --samples 100000", "--samples", "31250"),
        ("--drain 2 --servers 3", "--servers", "from 1 to 2"),
        ("--drain 64 --finished 0", "--finished", "above 0"),
        ("--samples 2 --request-rate 1", "--samples", "--drain"),
        ("--drain 64 --workers 2", "--workers", "a target with it"),
        ("--drain 9 --prompt-length 9 --output-length lognormla:9:1", "--output", "lognormal:"),
        ("--drain 9 --prompt-length 9 --output-length lognormal:9:-1", "--output", "from 0"),
        ("--drain 9 --prompt-length lognormal:9:1", "--output-length", "a length"),
        ("--drain 9 --policy below:", "--policy", "below:64:3"),
        ("--drain 9 --policy below:64:30", "--max-draft-length", "at most 7"),
        ("--drain 9 --policy goodput --by-formula", "--policy", "does not learn"),
    ],
)
def test_what_no_drain_has_is_refused_in_one_line(ended, line, culprit, remedy):
    status, out, err = ended(f"load {WHERE} {line}")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert culprit in err
    assert remedy in err
