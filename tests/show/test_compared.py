"""What ``compare`` says of alternatives: the fastest, those as fast, and one for all."""

import re

import pytest

from specmodel.cli import main
from specmodel.core.cost import resolve
from specmodel.plan.ranking import Ranking, carried_facts
from specmodel.show.planned import side_by_side

GPUS = {"a": "h100", "b": "h200", "c": "b200", "d": "a100_sxm_80gb"}


def deployments(names="abcd"):
    """Return one model on another GPU by each name."""
    found = ({"target": "qwen3-8b", "hardware": GPUS[name]} for name in names)
    return {name: resolve(asked)[0] for name, asked in zip(names, found, strict=True)}


def ranked(rates, fits=None):
    """Rank alternatives by tokens a second and GPU, given by name for batch sizes 1, 2, 4, ..."""
    rows = [
        {
            "alternative": name, "batch_size": 2**i, "throughput_per_gpu": float(rate),
            "tpot": 2**i / rate, "tpot_plain": 2**i / rate, "speedup": 1.5, "best_draft_length": 3,
            "limited_by": "experts", "fits": (fits or {}).get(name, [True] * 9)[i],
        }
        for name, each in rates.items()
        for i, rate in enumerate(each)
    ]  # fmt: skip
    return Ranking(rows, deployments(rates))


def test_the_fastest_is_named_by_batch_size_and_one_for_all_by_its_worst_loss():
    ranking = ranked({"a": [100, 100, 100], "b": [60, 100.5, 200], "c": [90, 99, 120]})
    facts = ranking.facts()
    assert facts["fastest"].value == {"1-2": ["a"], "4": ["b"]}
    # a loses 100 % at 4, b 67 % at 1, c 67 % at 4 and so as much as b there
    name, lag, size = ranking.for_all()
    assert (name, size) == ("b", 1)
    assert lag == pytest.approx(100 / 60 - 1)
    assert (facts["one_for_all"].value, facts["one_for_all_at"].value) == ("b", 1)


def test_as_fast_are_those_within_the_error_of_two_that_share_none():
    ranking = ranked({"a": [110.0], "b": [100.1], "c": [98.9]})
    (rows,) = ranking.by_size.values()
    assert [row["alternative"] for row in rows] == ["a", "b", "c"]
    assert ranking.close(rows) == "2"
    cells = side_by_side(ranking, dict.fromkeys("abc", 9)).splitlines()
    assert re.match(r" +1 +\[1\] +2 ", cells[6])


@pytest.mark.parametrize(("faster", "is_tie"), [("4.824e12", True), ("6e12", False)])
def test_half_a_per_cent_is_a_tie_and_more_than_the_error_of_both_is_not(faster, is_tie, capsys):
    change = f"hardware.memory.peak_bytes_per_s=4.8e12,{faster}"
    main(["compare", "qwen3-8b", "h200", "--batch-size", "1,8", "--set", change])
    page = " ".join(capsys.readouterr().out.split())
    told = page[page.index("Fastest alternative (") :].partition(". ")[0]
    assert (" / memory" in told) == is_tie


def test_what_does_not_fit_wins_nowhere_and_is_none_for_all():
    ranking = ranked({"a": [100, 100], "b": [90, 300]}, fits={"b": [True, False]})
    facts = ranking.facts()
    assert facts["fastest"].value == {"1-2": ["a"]}
    assert facts["next_slower"].value == [
        (pytest.approx(100 / 90 - 1), pytest.approx(100 / 90 - 1))
    ]
    assert ranking.for_all()[0] == "a"


def test_the_facts_of_a_target_name_who_carries_most_and_who_is_too_close():
    rows = [
        {"alternative": name, "largest_batch_size": 64, "throughput_per_gpu_within": rate}
        for name, rate in (("a", 1000.0), ("b", 950.0), ("c", 500.0), ("d", None))
    ]
    facts = carried_facts(rows, deployments(), {"tpot": 9e-3})
    assert facts["carries_most"].value == ["a", "b"]
    assert (facts["throughput_per_gpu_within"].value, facts["largest_batch_size"].value) == (
        1000,
        64,
    )
    assert facts["tpot_target"].to_dict() == {"value": 9e-3, "unit": "s"}
    assert "carries_most" not in carried_facts(rows[3:], deployments(), {"tpot": 9e-3})
