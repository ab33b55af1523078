"""The table of what is served most: its drafters, lengths and verdicts."""

import csv
from pathlib import Path

import pytest

from served_2026 import BATCHES, HARDWARE, TARGETS, length_of, verdict
from specmodel import load_architecture
from specmodel.drafters.published import taken_drafter

TABLE = Path(__file__).parents[2] / "calibration" / "results" / "served_2026.csv"


def test_the_stored_table_has_every_family_on_both_gpus_with_its_own_drafter():
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(TARGETS) * len(HARDWARE)
    by_name = {
        load_architecture(name).name: taken_drafter(load_architecture(name))[0] for name in TARGETS
    }
    for row in rows:
        assert row["drafter"].split()[0] == by_name[row["target"]]
        assert all(row[f"batch {size}"] for size in BATCHES)
        assert row["acceptance"]


@pytest.mark.parametrize(("usual", "longest", "length"), [
    ("mtp, draft length 1 to 3 (someone, November 2026)", 8, 3),
    ("mtp, draft length 8 (someone, November 2026)", 4, 4),
    ("", 8, 3),
])  # fmt: skip
def test_the_longest_length_of_a_recipe_that_acceptance_is_known_at(usual, longest, length):
    assert length_of(usual, longest) == length


def test_a_verdict_is_of_points_that_fit():
    rows = [
        {"batch_size": 1, "speedup_low": 1.2, "speedup_high": 1.9, "fits": True},
        {"batch_size": 8, "speedup_low": 0.9, "speedup_high": 1.3, "fits": True},
        {"batch_size": 32, "speedup_low": 0.5, "speedup_high": 0.8, "fits": True},
        {"batch_size": 128, "speedup_low": 0.5, "speedup_high": 0.8, "fits": False},
    ]
    assert verdict(rows) == "pays at 1; loses at 32"
    assert verdict(rows[:1]) == "pays"
    assert verdict(rows[1:2]) == "may pay or not"
