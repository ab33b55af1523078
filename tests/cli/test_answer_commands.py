"""The commands that answer: what they print, in each form, and what they refuse."""

import csv
import io
import json
import re

import pytest
from printed import commands, in_one_line, widest
from rows import cases, each_row

from specmodel import predict
from specmodel.core.drafters.measured_heads import acceptance_by_name

WHERE = "--target qwen3-30b-a3b --drafter eagle3 --hardware h200_sxm"
RATE = "--acceptance-rate 0.7"
ARGUMENTS = {"target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h200_sxm"}
BEST = f"predict --view lengths {WHERE} {RATE}"
EVEN = f"break-even {WHERE}"
COMPARE = "compare --target qwen3-30b-a3b --drafter ngram,eagle3 --hardware h100_sxm,h200_sxm"
COMPARE += " --acceptance-rate 0.4,0.7"
EXPLAIN = f"predict --view terms {WHERE} {RATE} --batch-size 1,16,128 --draft-length 3"
BIG = " --target mixtral-8x22b --context-length 1024,65536"


@each_row("command", commands("answers"))
def test_programs_read_the_same_rows_and_people_see_80_columns(command, run, document):
    page = run(command)
    assert len(widest(page)) <= 80
    assert "Assumed:" in page
    assert "nan" not in re.findall(r"\b\w+\b", page)
    found = document(command)
    rows = list(csv.DictReader(io.StringIO(run(command + " --csv"))))
    assert len(rows) == len(found["rows"]) > 0
    for row, same in zip(rows, found["rows"], strict=True):
        for name, value in same.items():
            if isinstance(value, float):
                assert float(row[name]) == pytest.approx(value, rel=1e-9, abs=1e-11)


def test_what_does_not_fit_is_left_open(run):
    out = run(BEST + BIG + " --tensor-parallel 4 --hardware h200_sxm")
    cells = [line.split() for line in out.splitlines() if re.match(r" *\d+  ", line)]
    assert not any("-" in row for row in cells)
    assert "\nBatch sizes 32-512 do not fit in memory.\n" in out
    assert [line[0] for line in cells].count("512") == 1  # at context 1024


def test_the_best_lengths_are_marked_and_every_length_is_told(run, rows):
    given = "--context-length 2048 --batch-size 1,64"
    found = rows(f"{BEST} {given}")
    typed = rows(f"predict {WHERE} {RATE} {given} --draft-length 0:10 --interval")
    assert found == [{name: row[name] for name in found[0]} for row in typed]
    lines = re.findall(r"^ *(1|64)  (.*)", run(f"{BEST} {given}"), re.MULTILINE)
    for size, cells in lines:
        own = [row for row in found if row["batch_size"] == int(size)]
        best = max(row["speedup"] for row in own)
        marked = [f"{'*' * (row['speedup'] == best)}{row['speedup']:.2f}" for row in own]
        assert cells.split() == marked


def test_break_even_says_where_an_acceptance_by_context_pays(run, rows):
    """The speedup at it is that of predict, and what is needed is as without one."""
    points = " --batch-size 1 --draft-length 3 --context-length 2048,32768"
    own = " --acceptance-by-context 2048:2.64,32768:1.5"
    found = rows(EVEN + points + own)
    gains = [row["speedup"] for row in found]
    assert gains == pytest.approx([row["speedup"] for row in rows(f"predict {WHERE}{points}{own}")])
    assert gains[1] < 1 < gains[0]
    for row, without in zip(found, rows(EVEN + points), strict=True):
        assert {name: row[name] for name in without} == pytest.approx(without)
    assert "With your acceptance, speculation pays at 1 of 2 points " in run(
        EVEN + points + own, one_line=True
    )


def test_a_lookup_setting_is_for_the_lookup_among_the_alternatives(rows):
    command = COMPARE + " --batch-size 1"
    seldom, free = rows(f"{command} --proposal-rate 0.1"), rows(command)
    assert seldom[0]["speedup"] < free[0]["speedup"]
    assert seldom[2:] == free[2:]


def test_the_waterfalls_are_printed_with_both_ends(run):
    p = predict(**ARGUMENTS, batch_size=[1, 16, 128], draft_length=3, acceptance=0.7)
    out = run(EXPLAIN)
    predicted = [line.split()[1:] for line in out.splitlines() if line.startswith("predicted")]
    expected = [p.target_efficiency, p.speedup]
    assert predicted == [[f"{value:.3f}" for value in values] for values in expected]
    words = in_one_line(out)
    sentences = words.split(" What reduces")[0].split("Speedup at batch size ")[1:]
    for limit, sentence in zip(p.limited_by, sentences, strict=True):
        assert f"{limit} 0." in sentence
    told = f"Speedup at batch size 1: {p.speedup[0]:.2f}x with 3 drafted; the ideal is 4.00x."
    assert words.startswith(f"{told} Largest reductions of the speedup: ")


@pytest.mark.parametrize("width", [40, 80])
def test_where_it_pays_is_told_on_a_screen_of_any_width(width, run, monkeypatch):
    monkeypatch.setattr("specmodel.cli.output.screen_width", lambda: width)
    page = run("predict --view peak qwen3-30b-a3b h100 --drafter eagle3 --context-length 1,1024")
    rows = re.findall(r"^ *(?:1|1024) .*\d\.\d\d .* \d+ \(\d\) .*\d+-\d+$", page, re.MULTILINE)
    assert (len(rows), "Columns that do not fit here" in page) == (2, width < 80)


def test_more_points_are_explained_to_programs(rows):
    assert len({row["batch_size"] for row in rows(EXPLAIN + " --batch-size 1:6")}) == 6


@cases("command", "predict --drafter eagle3", "predict --view plain", "schedule --for sglang")
def test_what_is_set_stands_in_the_first_lines_and_in_json(command, run, document):
    words = f"{command} qwen3-30b-a3b h200 --set target.experts_per_token=4"
    assert "\nWhat if: target.experts_per_token=4.\n" in run(words).replace("\n\n", "\n")
    assumed = document(words)["assumptions"]
    assert assumed["changes"] == "target.experts_per_token=4"
    if "plain" not in command:  # as published
        assert assumed["acceptance"].endswith(", of the unchanged target")


DRAFTERS = "compare gpt-oss-120b b200 --batch-size 1,64 --drafter eagle3,mtp,ngram,none"


def test_compare_takes_typical_acceptance_where_none_is_published(run, rows):
    head, _, _ = run(DRAFTERS, one_line=True).partition("[1]")
    assert "mtp: typical acceptance, as none is published." in head
    told = "Left out, as no acceptance is published: ngram; "
    assert told in head
    advised = head.partition("for each drafter: ")[2].partition(", with")[0]
    assert advised == "usual,usual,0.4,usual"
    found = rows(f"{DRAFTERS} --acceptance {advised}")
    assert "ngram" in {row["alternative"] for row in found}


def test_compare_has_decoding_without_a_drafter_as_an_alternative(rows):
    found = rows(f"{DRAFTERS} --tpot-target 10ms")
    plain = [row for row in found if row["alternative"] == "none"]
    assert [(row["speedup"], row["best_draft_length"]) for row in plain] == [(1, 0), (1, 0)]
    assert [row["tpot"] for row in plain] == [row["tpot_plain"] for row in found[:2]]


def test_break_even_begins_with_the_least_rates_of_its_tables(run, rows):
    """A whole interval above 1 may be easiest with another draft length than a gain."""
    given = "break-even qwen3-30b-a3b h200 --drafter eagle3 --draft-length 1:8"
    found, out = rows(given), run(given)
    tables = out.split("by draft length:\n")[1:]
    for kind, told, shown in zip(
        ("break_even", "sure"),
        ("pays above an acceptance rate of", "above 1 if the acceptance rate is above"),
        tables,
        strict=True,
    ):
        able = [row for row in found if row[f"{kind}_acceptance_rate"] is not None]
        least = min(able, key=lambda row: row[f"{kind}_acceptance_rate"])
        rate, gamma = least[f"{kind}_acceptance_rate"], least["draft_length"]
        tokens = sum(rate**i for i in range(gamma + 1))
        ends = f"{rate:.2f} ({tokens:.2f} tokens per step with {gamma} drafted)"
        assert f"{told} {ends}" in in_one_line(out)
        cells = re.search(rf"^ *{least['batch_size']}  (.*)", shown, re.MULTILINE)[1].split()
        assert cells[gamma - 1] == f"{tokens:.2f}"


@pytest.mark.parametrize("command", ["predict --view peak", "schedule --for vllm"])
def test_where_it_pays_is_told_as_by_predict(command, run, rows):
    given = "qwen3-30b-a3b h200 --drafter eagle3 --acceptance-rate 0.42"
    found = predict(
        *("qwen3-30b-a3b", "h200"), drafter="eagle3", acceptance_rate=0.42,
        batch_size=range(1, 257), interval=True,
    ).rows()  # fmt: skip
    sure = [row["batch_size"] for row in found if row["speedup_low"] > 1]
    first, last = min(sure), max(sure)
    assert sure == [*range(first, last + 1)]
    told = "The whole 80 % interval of the speedup is above 1 at batch sizes {}-{}."
    told += " The 80 % interval of the speedup includes 1 at batch sizes 1-{}, {}-256"
    told = told.format(first, last, first - 1, last + 1)
    assert told in run(f"{command} {given}", one_line=True)
    if "peak" in command:
        (spot,) = rows(f"{command} {given} --batch-size 1:256")
        assert spot["surely_paying"] == f"{first}-{last}"


def test_what_holds_for_some_alternatives_is_told_once(run):
    words = "compare qwen3-30b-a3b h100,h200 --weight-dtype bf16,fp8 --acceptance-rate 0.7"
    out = run(f"{words} --batch-size 8")
    told = re.findall(r"^\[2\]\[4\] (?:.|\n(?!\[|\n))*", out, re.MULTILINE)
    assert told
    assert all(out.count(line) == 1 for line in told)


def test_each_kind_of_task_has_its_own_best_length(rows):
    """As predicted with its acceptance alone; from the context told on none gains."""
    words = "gemma-4-26b h100 --drafter p-eagle --batch-size 1"
    found = rows(f"predict {words} --view tasks")
    assert [row["task"] for row in found] == ["code", "chat", "maths", "prose", "mixture"]
    for row in found:
        tokens = acceptance_by_name()["gemma-4-26b-a4b-p-eagle"].acceptance(row["task"])
        rates = ",".join(map(str, tokens.acceptance_by_position))
        typed = f"predict {words} --acceptance-by-position conditional:{rates}"
        (alone,) = rows(f"{typed} --draft-length {row['draft_length']}")
        assert row["draft_length"] == alone["best_draft_length"]
        assert row["speedup"] == pytest.approx(alone["speedup"])
        if end := row["ends_at_context"]:
            before, beyond = rows(f"{typed} --context-length {end / 2:.0f},{end:.0f}")
            assert before["speedup"] > 1 >= beyond["speedup"]


def test_lengths_end_at_the_block_that_is_drafted_at_once(rows):
    found = rows("break-even deepseek-v4.1-flash h200 --batch-size 1,16")
    assert {row["draft_length"] for row in found} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("where", ["qwen3-30b-a3b h200", "deepseek-v3 8xh200 --batch-size 1,8"])
def test_of_rows_none_of_which_meets_a_target_the_header_is_left(where, run):
    asked = f"predict {where} --acceptance-rate 0.7"
    for more in ("", " --columns batch_size,tpot,interval"):
        every = run(f"{asked}{more} --csv").splitlines()
        assert run(f"{asked}{more} --tpot-target 1us --csv") == f"{every[0]}\n"
        some = run(f"{asked}{more} --tpot-target 50ms --csv").splitlines()
        assert some[0] == every[0]
    for more in ("", " --components"):
        assert json.loads(run(f"{asked} --tpot-target 1us --json{more}"))["rows"] == []


DECODED = "--target qwen3-30b-a3b --hardware h200_sxm --tensor-parallel 2"
PLAIN = f"predict --view plain {DECODED}"
LENGTHS = "--prompt-length 2048 --output-length 256"


def test_predict_takes_lengths_of_prompts_and_outputs(rows):
    words = f"predict {DECODED} --drafter eagle3 --acceptance-rate 0.7 --draft-length 3"
    words += " --batch-size 64 --context-length 2176"
    (idle,), (loaded,) = rows(words), rows(f"{words} {LENGTHS}")
    assert not {"prompt_length", "output_length", "prefill_time"} & idle.keys()
    grown = loaded["forward_time"] - idle["forward_time"]
    assert 0.8 < grown / (63 / 256 * loaded["prefill_time"]) <= 1  # launches go on beside both
    assert loaded["speedup"] < idle["speedup"]


def test_the_drafter_of_plain_decoding_may_be_none(run):
    plain = f"{PLAIN} --batch-size 8 --csv"
    assert run(f"{plain} --drafter none") == run(plain)
