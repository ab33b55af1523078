"""The command load with a drain: its page, rows and figure, and what it refuses."""

import pytest
from printed import in_one_line, widest

from specmodel.show.columns import meanings

WHERE = "qwen3-30b-a3b h200"
LENGTHS = "--prompt-length 200 --output-length lognormal:300:0.8"


def test_the_page_begins_with_what_to_do_and_has_80_columns(run):
    page = run(f"load {WHERE} --drain 32 --samples 4 {LENGTHS} --gpu-hour-price 3")
    verdict = page.partition("Qwen3-30B-A3B +")[0]
    assert verdict.count("\n") <= 4
    assert verdict.startswith("Run ")
    assert ": 32 prompts x 4 in " in in_one_line(verdict)
    assert len(widest(page)) <= 80


def test_all_columns_have_a_meaning(document):
    line = f"load {WHERE} --drain 16 {LENGTHS} --policy none,fixed:2"
    found = document(f"{line} --gpu-hour-price 2")
    assert found["drain"] == {"prompts": 16, "samples": 1, "servers": 1, "finished": 1.0}
    assert found["units"]["makespan"] == found["facts"]["makespan"]["unit"] == "s"
    assert found["facts"]["makespan"]["value"] == min(row["makespan"] for row in found["rows"])
    for row in found["rows"]:
        assert row["cost"] == pytest.approx(2 * row["gpu_hours"])
        by_size = {f"{kind}_at_{size}" for kind in ("share", "last") for size in (2, 4, 8, 16)}
        assert {*row} - by_size <= {*meanings()}
