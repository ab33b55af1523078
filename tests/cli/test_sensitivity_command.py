"""`specmodel sensitivity`: what it prints, in each form, and what it says of bad input."""

import csv
import io

import pytest
from printed import commands, widest
from rows import each_listed, each_row

COMMAND = "sensitivity --target qwen3-30b-a3b --drafter eagle --hardware h200_sxm --batch-size 8"
COMMAND += " --draft-length 3 --acceptance-rate 0.7 --samples 64"
DATA_SHEET = COMMAND + " --engine ideal --stack datasheet --routing-correlation 0.1"


@each_row("command", commands("sensitivity"))
def test_people_see_80_columns_programs_all(command, run, document):
    out, found = run(command), document(command)
    assert len(widest(out)) <= 80
    titles = ("1 % more of", "one at a time", "share of variance", "The shares of", "Assumed:")
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    assert f"peedup {found['speedup']:.2f}x," in out
    rows = list(csv.DictReader(io.StringIO(run(command + " --csv"))))
    names = ("analysis", "input", "output", "quantity")
    by_key = {tuple(row[name] for name in names): float(row["value"]) for row in rows}
    for row in found["elasticities"]:
        assert by_key["elasticity", row["input"], "speedup", "elasticity"] == row["speedup"]
    for row in found["tornado"]:
        key = ("tornado", row["input"], "target_efficiency", "at_low")
        assert by_key[key] == row["target_efficiency_at_low"]
        assert by_key["tornado", row["input"], "", "high"] == row["high"]
    for row in found["sobol"]:
        assert by_key["sobol", row["input"], row["output"], "total_high"] == row["total_high"]
    count = 2 * len(found["elasticities"]) + 8 * len(found["tornado"]) + 6 * len(found["sobol"])
    assert len(rows) == len(by_key) == count


@each_listed
def test_predict_and_sensitivity_agree_on_the_best_draft(question, length, document, rows):
    found = document(f"sensitivity {question} --samples 64")
    assert found["point"]["draft_length"] == length
    assert found["assumptions"]["draft_length"] == f"{length} (the best at this batch size)"
    (predicted,) = rows(f"predict {question} --draft-length {length}")
    assert predicted["best_draft_length"] == length
    for name in ("speedup", "target_efficiency"):
        assert found[name] == pytest.approx(predicted[name], rel=1e-12)
        assert found["tornado"][0][f"{name}_nominal"] == pytest.approx(found[name], rel=1e-12)


def test_inputs_without_a_range_are_named(run, document):
    out, found = run(COMMAND, one_line=True), document(COMMAND)
    told = out.split("(--range gives one): ")[1].split(". The shares")[0].split(" / ")
    ranged = {row["input"] for row in found["tornado"]}
    shown = [row["input"] for row in found["elasticities"][:15]]
    assert told == [name for name in shown if name not in ranged]
    assert "batch_size" in told


def test_verdict_says_what_matters(run, document):
    command = COMMAND + " --engine ideal --stack datasheet --range routing_correlation=0:1"
    row = document(command)["tornado"][0]
    moved = f"{row['speedup_at_low']:.2f}x to {row['speedup_at_high']:.2f}x"
    told = f"Input with the largest effect on the speedup: {row['input']}, from {moved}. "
    told += "Input with the largest share of the speedup's variance: "
    assert told in run(command, one_line=True)


def test_routing_given_is_known(document):
    for given, is_ranged in (("", True), (" --routing-correlation 0.2", False)):
        ranged = {row["input"] for row in document(COMMAND + given)["tornado"]}
        assert ("routing_correlation" in ranged) == is_ranged


def test_what_no_range_moves_is_said(run, document):
    command = DATA_SHEET + " --range acceptance_rate=0.6:0.8"
    assert "No input with a range changes the target efficiency." in run(command)
    assert {row["output"] for row in document(command)["sobol"]} == {"speedup"}
