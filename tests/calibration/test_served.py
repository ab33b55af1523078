"""The table of what is served most: its drafters, lengths and verdicts."""

from rows import each_listed

from served_2026 import length_of, verdict


@each_listed
def test_the_longest_length_of_a_recipe_that_acceptance_is_known_at(usual, longest, length):
    assert length_of(usual, longest) == length


def test_a_verdict_is_of_points_that_fit():
    rows = [
        {"batch_size": 1, "speedup_low": 1.2, "speedup_high": 1.9, "fits": True},
        {"batch_size": 8, "speedup_low": 0.9, "speedup_high": 1.3, "fits": True},
        {"batch_size": 32, "speedup_low": 0.5, "speedup_high": 0.8, "fits": True},
        {"batch_size": 128, "speedup_low": 0.5, "speedup_high": 0.8, "fits": False},
    ]
    assert (verdict(rows), verdict(rows[:1])) == ("pays at 1; loses at 32", "pays")
    assert verdict(rows[1:2]) == "may pay or not"
