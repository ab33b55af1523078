"""The table of the most served models: drafters, lengths and verdicts."""

from rows import each_listed

from served_2026 import length_of, verdict


@each_listed
def test_the_longest_length_of_a_recipe_that_acceptance_is_known_at(usual, longest, length):
    assert length_of(usual, longest) == length


def test_a_verdict_is_of_points_that_fit():
    names = ("batch_size", "speedup_low", "speedup_high", "fits")
    cells = (1, 1.2, 1.9, True), (8, 0.9, 1.3, True), (32, 0.5, 0.8, True), (128, 0.5, 0.8, False)
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    assert (verdict(rows), verdict(rows[:1])) == ("pays at 1; loses at 32", "pays")
    assert verdict(rows[1:2]) == "may pay or not"
