"""The commands that answer: what they print, in each form, and what they refuse."""

import csv
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from printed import parse
from rows import each_row, slow

from specmodel import cli, predict
from specmodel.drafters.typical import acceptance_by_task

WHERE = "--target qwen3-30b-a3b --drafter eagle3 --hardware h200_sxm"
RATE = "--acceptance-rate 0.7"
ARGUMENTS = {"target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h200_sxm"}
SWEET = f"predict --view peak {WHERE} {RATE} --draft-length 3"
BEST = f"predict --view lengths {WHERE} {RATE}"
EVEN = f"break-even {WHERE}"
COMPARE = "compare --target qwen3-30b-a3b --drafter ngram,eagle3 --hardware h100_sxm,h200_sxm"
COMPARE += " --acceptance-rate 0.4,0.7"
EXPLAIN = f"predict --view terms {WHERE} {RATE} --batch-size 1,16,128 --draft-length 3"
NGRAM = " --drafter ngram --proposal-rate 0.4 --set lookup_time=1e-4"
BIG = " --target mixtral-8x22b --context-length 1024,65536"
COMMANDS = [
    *(
        SWEET,
        SWEET + " --engine vllm-moesd-2025",
        SWEET + " --context-length 0,32768 --draft-length 1,4",
    ),
    *(SWEET + NGRAM, SWEET + BIG, SWEET + " --acceptance-rate 0.02", SWEET + " --batch-size 7"),
    *(BEST, BEST + " --engine sglang --context-length 0,1000,100000", BEST + NGRAM, BEST + BIG),
    *(BEST + " --acceptance-rate 0.01", BEST + " --max-draft-length 1"),
    *(EVEN, EVEN + " --engine sglang --context-length 0,4096", EVEN + NGRAM),
    EVEN + " --acceptance-by-context 2048:3,32768:1.2 --measured-draft-length 3",
    EVEN + " --hardware t4 --target opt-30b --weight-dtype int4 --drafter llama-3.1-70b"
    " --tensor-parallel 1 --set drafter.vocabulary_size=50272",
    *(
        COMPARE,
        COMPARE + " --engine vllm-moesd-2025,sglang,ideal",
        COMPARE + " --drafter eagle3,mtp",
    ),
    COMPARE.replace("--drafter ngram,eagle3", "--drafter eagle3,mtp") + " --weight-dtype bf16,fp8",
    COMPARE.replace("--target qwen3-30b-a3b", "--target mixtral-8x22b,qwen3-32b"),
    COMPARE.replace("--acceptance-rate 0.4,0.7", "--acceptance-rate 0.6") + NGRAM,
    *(
        EXPLAIN,
        EXPLAIN + " --engine vllm-moesd-2025",
        EXPLAIN + NGRAM,
        EXPLAIN + " --draft-length 1",
    ),
    f"predict --view terms {WHERE} --hardware h100_sxm --batch-size 64 --draft-length 2 "
    "--tokens-per-step 2"
    " --measured-draft-length 3 --tensor-parallel 4",
    f"predict --view terms {WHERE} --batch-size 9 --draft-length 2 --acceptance-by-position "
    "0.9,0.5",
]


def test_help_of_the_commands_needs_nothing_heavy():
    names = ["predict", "compare", "sensitivity"]
    modules = ", ".join(f"specmodel.cli.{name}" for name in names)
    code = f"import {modules}, sys; sys.exit('numpy' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("start", [0, *slow(1, 2)])
def test_programs_read_the_same_rows_and_people_see_80_columns(start, run):
    """Every third command has each view."""
    for command in COMMANDS[start::3]:
        check_page(run(command))
        document = parse(run(command + " --json"))
        check_rows(document, list(csv.DictReader(io.StringIO(run(command + " --csv")))))


def check_page(out):
    widest = max(out.splitlines(), key=len)
    assert len(widest) <= 80, widest
    assert "Assumed:" in out
    assert "nan" not in re.findall(r"\b\w+\b", out)


def check_rows(document, rows):
    assert {" on " in row.pop("case", " on ") for row in rows} == {True}
    assert len(rows) == len(document["rows"]) > 0
    names = {row.pop("case", row.get("alternative", "")) for row in document["rows"]}
    assert list(rows[0]) == list(document["rows"][0])
    for row, same in zip(rows, document["rows"], strict=True):
        for name, value in same.items():
            if isinstance(value, float):
                assert float(row[name]) == pytest.approx(value, rel=1e-9, abs=1e-11)
    assert {case["alternative"] for case in document["cases"]} == names


def test_the_sweet_spot_is_that_of_the_curve(run):
    batch = np.arange(1, 513)
    p = predict(**ARGUMENTS, batch_size=batch, draft_length=3, acceptance=0.7)
    (row,) = parse(run(SWEET + " --json"))["rows"]
    peak = int(p.speedup.argmax())
    assert (row["peak_batch_size"], row["largest_batch_size"]) == (peak + 1, 512)
    assert row["peak_speedup"] == pytest.approx(p.speedup[peak], rel=1e-9)
    low, high = row["near_peak_first"], row["near_peak_last"]
    assert low <= peak + 1 <= high
    bar = p.speedup[peak] / 2**0.5
    assert (p.speedup[low - 1 : high] >= bar).all()
    assert low == 1 or p.speedup[low - 2] < bar
    assert high == 512 or p.speedup[high] < bar
    text = " ".join(run(SWEET).split())
    assert f"Speculation pays most at batch size {peak + 1}: {p.speedup[peak]:.2f}x" in text
    assert "Speculation pays" in " ".join(run(SWEET + " --engine sglang").split())


def test_what_does_not_fit_is_left_open(run):
    out = run(BEST + BIG + " --tensor-parallel 4 --hardware h200_sxm")
    cells = [line.split() for line in out.splitlines() if re.match(r" *\d+  ", line)]
    assert not any("-" in row for row in cells)
    assert "\nBatch sizes 32-512 do not fit in memory.\n" in out
    assert [line[0] for line in cells].count("512") == 1  # at context 1024
    assert "Warning: batch size 512 needs" in out


def test_the_best_lengths_are_marked_and_every_length_is_told(run):
    given = "--context-length 2048 --batch-size 1,64"
    found = parse(run(f"{BEST} {given} --json"))["rows"]
    typed = parse(run(f"predict {WHERE} {RATE} {given} --draft-length 0:10 --interval --json"))[
        "rows"
    ]
    assert found == [{name: row[name] for name in found[0]} for row in typed]
    assert {"speedup_low", "speedup_high"} < {*found[0]}
    assert {row["draft_length"] for row in found} == {*range(11)}
    cells = [
        line.split()
        for line in run(f"{BEST} {given}").splitlines()
        if re.match(r" *(1|64)  ", line)
    ]
    for size, cell in zip((1, 64), cells, strict=True):
        rows = [row for row in found if row["batch_size"] == size]
        best = max(rows, key=lambda row: row["speedup"])["draft_length"]
        marks = ["*" * (row["draft_length"] == best) for row in rows]
        assert cell[1:] == [f"{m}{row['speedup']:.2f}" for m, row in zip(marks, rows, strict=True)]


def test_break_even_needs_no_acceptance(run):
    rows = parse(run(EVEN + " --batch-size 1,8 --draft-length 2 --json"))["rows"]
    p = predict(**ARGUMENTS, batch_size=[1, 8], draft_length=2, acceptance=0.123)
    found = [row["break_even_acceptance_rate"] for row in rows]
    assert found == pytest.approx(p.break_even_acceptance_rate.tolist(), rel=1e-9)


def test_break_even_says_where_an_acceptance_by_context_pays(run):
    """The speedup at it is that of predict, and what is needed is as without one."""
    points = " --batch-size 1 --draft-length 3 --context-length 2048,32768"
    own = " --acceptance-by-context 2048:2.64,32768:1.5"
    rows = parse(run(EVEN + points + own + " --json"))["rows"]
    predicted = parse(run(f"predict {WHERE}{points}{own} --json"))["rows"]
    assert [row["speedup"] for row in rows] == pytest.approx([p["speedup"] for p in predicted])
    assert rows[1]["speedup"] < 1 < rows[0]["speedup"]
    plain = parse(run(EVEN + points + " --json"))["rows"]
    for row, without in zip(rows, plain, strict=True):
        assert {name: row[name] for name in without} == pytest.approx(without)
    told = " ".join(run(EVEN + points + own).split())
    assert "With yours it pays at 1 of 2 points." in told


def test_dtypes_of_weights_are_alternatives(run):
    asked = COMPARE.replace("--drafter ngram,eagle3", "--drafter eagle3")
    asked = asked.replace("0.4,0.7", "0.7 --batch-size 8").replace("h100_sxm,", "")
    both = parse(run(asked + " --weight-dtype bf16,fp8 --json"))["rows"]
    alone = [parse(run(asked + f" --weight-dtype {d} --json"))["rows"][0] for d in ("bf16", "fp8")]
    assert [row["alternative"] for row in both] == ["bf16", "fp8"]
    assert [row["tpot"] for row in both] == [row["tpot"] for row in alone]
    assert both[1]["tpot"] < both[0]["tpot"]


def test_alternatives_have_an_acceptance_each(run):
    rows = parse(run(COMPARE + " --batch-size 8 --json"))["rows"]
    names = ["ngram, h100_sxm", "ngram, h200_sxm", "eagle3, h100_sxm", "eagle3, h200_sxm"]
    assert [row["alternative"] for row in rows] == names
    for row in rows:
        drafter, hardware = row["alternative"].split(", ")
        p = predict(
            target="qwen3-30b-a3b",
            drafter=drafter,
            hardware=hardware,
            batch_size=8,
            draft_length=np.arange(1, 11),
            acceptance={"ngram": 0.4, "eagle3": 0.7}[drafter],
        )
        assert row["speedup"] == pytest.approx(max(p.speedup.max(), 1), rel=1e-9)


def test_a_lookup_setting_is_for_the_lookup_among_the_alternatives(run):
    rows = parse(run(COMPARE + " --batch-size 1 --proposal-rate 0.1 --json"))["rows"]
    free = parse(run(COMPARE + " --batch-size 1 --json"))["rows"]
    assert rows[0]["speedup"] < free[0]["speedup"]
    assert rows[2:] == free[2:]


def test_the_waterfalls_are_printed_with_both_ends(run):
    p = predict(**ARGUMENTS, batch_size=[1, 16, 128], draft_length=3, acceptance=0.7)
    out = run(EXPLAIN)
    predicted = [line.split()[1:] for line in out.splitlines() if line.startswith("predicted")]
    expected = [p.target_efficiency, p.speedup]
    assert predicted == [[f"{value:.3f}" for value in values] for values in expected]
    words = " ".join(out.split())
    sentences = words.split(" Qwen3")[0].split("At batch size ")[1:]
    for limit, sentence in zip(p.limited_by, sentences, strict=True):
        assert f"{limit} (" in sentence
    assert words.startswith(
        f"At batch size 1: {p.speedup[0]:.2f}x of the 4.00x that 3 drafted tokens could give"
    )
    lines = out.split("Speedup at draft length 3, from")[1].split("\n\n")[0].splitlines()
    columns = [line.split() for line in lines if re.match(r"[a-zK]\w+ +[-\d]", line)]
    total = sum(float(line[1]) for line in columns if line[0] != "predicted")
    assert total == pytest.approx(p.speedup[0], abs=0.004)


def test_a_comparison_says_which_drafter_no_checkpoint_has(run):
    line = "compare gpt-oss-120b b200 --acceptance typical --batch-size 8 --drafter eagle3"
    assert "No checkpoint has" not in run(line)
    assert "No checkpoint has the drafter of mtp." in " ".join(run(f"{line},mtp").split())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_where_it_pays_is_told_on_a_screen_of_any_width(width, run, monkeypatch):
    monkeypatch.setattr("specmodel.cli.answering.screen_width", lambda: width)
    page = run("predict --view peak qwen3-30b-a3b h100 --drafter eagle3 --context-length 1,1024")
    titles, *rows = re.findall(r"^ *(?:context|peak|1|1024)  .*", page, re.MULTILINE)
    assert re.search(r"peak .*\(length\) .*pays at$", titles)
    assert len(rows) == 2
    for row in rows:
        assert re.search(r" \d\.\d\d .* \d+ \(\d\) .*\d+-\d+$", row)
    assert ("Columns without room here" in page) == (width < 80)


def test_what_limits_a_step_is_one_answer_in_all_forms(run):
    """On the page, as CSV and JSON, and as what takes most in the terms, acceptance aside."""
    line = "qwen3-235b 8xh200 --drafter eagle3 --acceptance-rate 0.7 --batch-size 1,16,64,128"
    rows = parse(run(f"predict {line} --json"))["rows"]
    limits = [row["limited_by"] for row in rows]
    assert len({*limits}) > 1
    table, terms = (
        [*csv.DictReader(io.StringIO(run(f"predict {line} --csv {view}")))]
        for view in ("", "--view terms")
    )
    assert [row["limited_by"] for row in table] == limits
    page = run(f"predict {line}")
    told = dict(re.findall(r"^ +(\d+) .* (\w+)$", page, re.MULTILINE))
    assert [told[str(row["batch_size"])] for row in rows] == limits
    for row in rows:
        losses = {
            term["term"]: float(term["value"])
            for term in terms
            if (term["batch_size"], term["quantity"]) == (str(row["batch_size"]), "speedup")
            and term["term"] not in ("ideal", "rejection", "predicted")
        }
        assert min(losses, key=lambda term: losses[term]) == row["limited_by"]


def test_where_nothing_is_drafted_nothing_is_lost(run):
    words = (
        "predict --view terms qwen3-30b-a3b h100 --drafter ngram --acceptance-rate 0.01 "
        "--batch-size 1"
    )
    assert run(words).startswith(
        "At batch size 1: 1.00x, as nothing is drafted.\nQwen3-30B-A3B + n-gram look-up"
    )


@pytest.mark.parametrize("command", [SWEET, BEST, EVEN, COMPARE])
def test_a_value_typed_twice_is_no_error(command, run):
    assert run(command + " --context-length 5000") != run(command)
    if command is not SWEET:
        assert run(command + " --batch-size 4,4")


def test_break_even_says_where_nothing_pays_and_leaves_out_what_does_not_fit(run):
    command = "break-even --target qwen3-30b-a3b --drafter ngram --proposal-rate 0.3"
    command += " --hardware h100_sxm --engine vllm-moesd-2025"
    text = " ".join(run(command).split())
    rows = [r for r in parse(run(command + " --json"))["rows"] if r["fits"]]
    easiest = {}
    for row in rows:
        rate = row["break_even_acceptance_rate"]
        known = easiest.setdefault(row["batch_size"], None)
        easiest[row["batch_size"]] = rate if known is None else min(known, rate or known)
    able = {size: rate for size, rate in easiest.items() if rate is not None}
    most = max(able, key=able.get)
    assert re.search(rf"\(rate {able[most]:.2f}, \d drafted\) at batch size {most}\b", text)
    hopeless = len(easiest) - len(able)
    assert (f"at no rate at {hopeless} of {len(easiest)} points" in text) == (hopeless > 0)


def test_where_nothing_pays_no_alternative_wins(run):
    text = " ".join(run(COMPARE + " --acceptance-rate 0").split())
    assert "With none of them a draft gains." in text


def test_what_is_assumed_for_one_alternative_is_said_of_it(run):
    out = run(COMPARE + " --hardware h100_sxm,l4")
    (line,) = re.findall(r"^\[1\] Assumed.*?(?=^\[|\n\n)", out, re.MULTILINE | re.DOTALL)
    assert "proposal_rate 0.2" in " ".join(line.split())
    assert "stack vllm" in out
    assert "stack typical" in out
    assert "typical ones are assumed" in " ".join(out.split())


def test_kernels_of_another_gpu_are_not_called_fitted(run):
    words = "--drafter eagle3 --batch-size 1 --draft-length 2 --acceptance-rate 0.7"
    out = " ".join(run(f"predict --target qwen3-8b --hardware rtx_5090 {words}").split())
    told = "none were fitted on NVIDIA GeForce RTX 5090; trtllm 1.3.0rc20 of rtx_pro_6000 is taken"
    assert f"Kernels: {told}, off by gemm 11%" in out
    assert "on a GPU left out." in out


def test_explained_points_are_told_apart(run):
    out = run(EXPLAIN + " --batch-size 16 --draft-length 1,2 --context-length 100,100000")
    words = " ".join(out.split())
    for length in (1, 2):
        for context in (100, 100_000):
            assert f"At batch size 16, draft length {length}, context {context}:" in words
    assert "context 100000" in out.split("Target efficiency, from")[1]


def test_nothing_that_fits_is_said_first(run):
    for command in (SWEET, BEST, EVEN, EXPLAIN):
        text = run(command + " --target deepseek-v3 --drafter mtp --tensor-parallel 1")
        assert "Nothing fits in memory. If it did: " in " ".join(text.split())


def test_numbers_of_json_are_those_of_the_table(run):
    rows = parse(run(BEST + " --batch-size 3 --json"))["rows"]
    p = predict(**ARGUMENTS, batch_size=3, draft_length=np.arange(1, 11), acceptance=0.7)
    assert [row["tpot"] for row in rows[1:]] == p.tpot.tolist()


def test_by_position_no_longer_length_is_claimed(run):
    command = f"predict --view lengths {WHERE} --acceptance-by-position 0.9,0.9,0.9"
    assert "max_draft_length 3" in " ".join(run(f"{command} --verbose").split())
    assert "max_draft_length" not in run(f"{SWEET} --verbose")


BAD = [
    (COMPARE + " --context-length 1,2", "--context-length: got [1, 2]; expected one context"),
    (BEST.replace(RATE, "--acceptance-by-position 0.9,0.8") + " --max-draft-length 3", "covers"),
    (BEST.replace(RATE, "--tokens-per-step 2"), "--measured-draft-length"),
    (SWEET + " --draft-length 0", "--draft-length: got 0; expected at least 1"),
    (SWEET + " --draft-length 0:3", "--draft-length: got 0; expected at least 1"),
    (SWEET + " --batch-size 8,4", "--batch-size", "rising"),
    (SWEET + " --batch-size 8:1", "--batch-size: got '8:1'"),
    (SWEET + " --batch-size 0", "--batch-size: got 0"),
    (SWEET + " --json --csv", "--csv: got True; expected one of --json and --csv"),
    (SWEET + " --tokens-per-step 2", "acceptance: got ['--acceptance-rate', '--tokens-per-step']"),
    (SWEET + " --target mixtrl", "--target: got 'mixtrl'", "mixtral-8x7b"),
    (
        f"predict --view peak {WHERE} --target mixtral-8x7b",
        "acceptance: none given",
        "--acceptance-rate",
    ),
    (BEST + " --max-draft-length 0", "--max-draft-length: got 0"),
    (BEST + " --max-draft-length 1001", "--max-draft-length: got 1001"),
    (BEST + " --context-length -1", "--context-length"),
    (EVEN + " --acceptance-rate 0.5", "No such option", "--acceptance-rate"),
    (EVEN + " --draft-length 0", "--draft-length: got 0; expected at least 1"),
    (EVEN + " --proposal-rate 0.5", "--proposal-rate: got 0.5; expected the drafter ngram"),
    (COMPARE + " --acceptance-rate 0.1,0.2,0.3", "--acceptance-rate", "one for each of 2"),
    (COMPARE + " --acceptance-rate x", "--acceptance-rate: got 'x'; expected numbers"),
    (COMPARE + " --acceptance-rate 1.5", "--acceptance-rate", "1.5", "0 to 1"),
    (COMPARE + " --hardware h100_sxm,", "--hardware: got ''"),
    (COMPARE + " --hardware h100_sxm,h999", "--hardware: got 'h999'"),
    (COMPARE + " --drafter eagle3,mtp --proposal-rate 0.5", "--proposal-rate: got 0.5", "ngram"),
    (COMPARE + " --drafter ngram,ngram", "--drafter", "each once"),
    (COMPARE + " --batch-size 0", "--batch-size: got 0"),
    (EXPLAIN + " --batch-size 1:6", "--batch-size: got '6 points'; expected at most 5"),
    (EXPLAIN + " --draft-length 0", "--draft-length: got 0; expected at least 1"),
    (EXPLAIN + " --batch-size x", "--batch-size: got 'x'"),
]


@each_row(("command", "fragments"), [(c, f) for c, *f in BAD])
def test_bad_input_is_one_line(command, fragments, refuse):
    refuse(command, *fragments)


def test_more_points_are_explained_to_programs_but_not_any_number(run, refuse):
    command = EXPLAIN + " --batch-size 1:100:1 --context-length 1:101 --csv"
    refuse(command, "--batch-size: got '10100 points'; expected at most 10000 points")
    rows = parse(run(EXPLAIN + " --batch-size 1:6 --json"))["rows"]
    assert len({row["batch_size"] for row in rows}) == 6


LOAD = "--prompt-length 4000 --output-length 100"


@pytest.mark.parametrize("command", [f"{SWEET} --batch-size 1,30", f"{BEST} --batch-size 1,30"])
def test_prompts_of_other_requests_count_as_in_predict(command, run):
    row = json.loads(run(f"{command} {LOAD} --json"))["rows"][-1]
    gain, length = row.get("peak_speedup", row.get("speedup")), row["draft_length"]
    size = row.get("peak_batch_size", 30)
    asked = f"predict {WHERE} {RATE} --batch-size {size} --draft-length {length} {LOAD} --json"
    (expected,) = json.loads(run(asked))["rows"]
    assert gain == pytest.approx(expected["speedup"], rel=1e-12)
    assert gain < json.loads(run(f"{command} --json"))["rows"][-1].get("speedup", 9)
    assert row["context_length"] == 4050


def test_alternatives_carry_prompts_and_say_what_does_not_fit(run):
    rows = json.loads(run(f"{COMPARE} --batch-size 30 {LOAD} --json"))["rows"]
    plain = json.loads(run(f"{COMPARE} --batch-size 30 --context-length 4050 --json"))["rows"]
    assert all(a["speedup"] < b["speedup"] for a, b in zip(rows, plain, strict=True))
    beyond = run(f"{COMPARE} --target mixtral-8x22b,qwen3-32b --hardware t4 --tensor-parallel 1")
    beyond = beyond.replace("\n", " ")
    assert beyond.startswith("Nothing fits in memory. If it did: largest speedup: ")
    mixed = run(f"{COMPARE} --hardware t4,h200_sxm --tensor-parallel 1")
    marked = [line for line in mixed.splitlines() if line.endswith(": nothing fits")]
    assert [line.split(", ")[1].split(":")[0] for line in marked] == ["t4", "t4"]


def test_explained_points_that_do_not_fit_are_marked(run):
    command = EXPLAIN.replace("1,16,128", "1,9000")
    words = " ".join(run(command).split("\n\n")[0].split())
    assert words.count("it does not fit in memory.") == 1
    rows = json.loads(run(f"{command} --json"))["rows"]
    assert {(row["batch_size"], row["fits"]) for row in rows} == {(1, True), (9000, False)}
    table = list(
        csv.DictReader(
            io.StringIO(run(f"{command.replace('--view terms', '')} --components --csv"))
        )
    )
    assert {(row["batch_size"], row["fits"]) for row in table} == {("1", "True"), ("9000", "False")}


@pytest.mark.parametrize(
    "command",
    [
        *("predict", "predict --view plain", "predict --view terms", "compare", "break-even"),
        "schedule --for sglang",
    ],
)
def test_what_is_set_stands_in_the_first_lines_and_in_json(command, capsys):
    words = f"{command} qwen3-30b-a3b h200 --set target.experts_per_token=4".split()
    words += [] if "plain" in command else ["--drafter", "eagle3"]
    told = "target.experts_per_token=4"
    assert cli.main(words) == 0
    opening = capsys.readouterr().out.split("\n\n")[0]
    assert f"\nWhat if: {told}.\n" in f"{opening}\n"
    assert cli.main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assumed = said.get("cases", [said])[0]["assumptions"]
    assert assumed["changes"] == told
    if "acceptance" in assumed:  # as published
        assert assumed["acceptance"].endswith(", of the unchanged target")
    else:
        assert command in ("predict --view plain", "break-even")


@pytest.mark.parametrize("command", ["predict --view lengths", "compare"])
def test_warnings_speak_of_the_answer_and_not_of_lengths_that_were_passed_over(command, capsys):
    """64 requests with 5 tokens each are in a graph of 512 tokens, with the 8 considered not."""
    words = f"{command} gpt-oss-120b 1xh200 --batch-size 1,16,64 --json".split()
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    lengths = {row["batch_size"]: row["best_draft_length"] for row in found["rows"]}
    assert 64 * (lengths[64] + 1) <= 512 < 64 * 9
    assert min(lengths.values()) > 2
    warnings = found["cases"][0]["warnings"]
    assert not any("CUDA graph" in told or "draft length" in told for told in warnings)


def test_compare_says_which_alternatives_are_left_out_and_which_do_not_fit(run):
    words = "compare deepseek-v3 8xh200 --drafter mtp --tensor-parallel 8 --batch-size 1"
    out = " ".join(run(f"{words} --data-parallel 1,8").split())
    assert "Left out: DP8 (64 GPUs, not 8)." in out.partition("Dtypes:")[0]
    out = " ".join(
        run("compare qwen3-235b 1xh200,8xh200 --acceptance-rate 0.7 --batch-size 1").split()
    )
    assert "In memory fit: 1xh200_sxm nowhere." in out.partition("Kernels:")[0]


DRAFTERS = "compare gpt-oss-120b b200 --batch-size 1,64 --drafter eagle3,mtp,ngram,none"


def test_compare_takes_typical_acceptance_where_none_is_published_and_says_what_is_needed(run):
    head, _, _ = " ".join(run(DRAFTERS).split()).partition("[1]")
    assert "No checkpoint has the drafter of mtp." in head
    assert "mtp: typical acceptance, as none is published." in head
    told = "Left out, as no acceptance is published: ngram (pays from a rate of 0.14 to 0.29); "
    assert told in head
    advised = head.partition("for each drafter: ")[2].partition(", with")[0]
    assert advised == "usual,usual,0.4,usual"
    for more in (f" --acceptance {advised}", " --acceptance typical"):
        rows = json.loads(run(f"{DRAFTERS}{more} --json"))["rows"]
        assert ("ngram" in {row["alternative"] for row in rows}) == ("usual" in more)


def test_compare_with_one_drafter_left_says_who_is_left_out_and_asks_for_no_list(run):
    head = run("compare gpt-oss-120b b200 --batch-size 8 --drafter eagle3,ngram")
    assert head.startswith("Fastest with speculation, at batch size 8: eagle3.")
    assert "Left out, as no acceptance is published: ngram" in head


def test_compare_has_decoding_without_a_drafter_as_an_alternative(run):
    rows = json.loads(run(f"{DRAFTERS} --tpot-target 10ms --json"))["rows"]
    plain = [row for row in rows if row["alternative"] == "none"]
    assert [row["speedup"] for row in plain] == [1, 1]
    assert [row["best_draft_length"] for row in plain] == [0, 0]
    assert [row["tpot"] for row in plain] == [row["tpot_plain"] for row in rows[:2]]
    assert "max_draft_length" not in run("compare gpt-oss-120b 2xb200 --drafter none")


def test_compare_takes_as_many_gpus_for_all_as_the_largest_needs(run):
    """In bf16 twice as many as in fp8; a count that is typed is kept."""
    words = (
        "compare qwen3-30b-a3b l40s --weight-dtype bf16,fp8 --acceptance-rate 0.7 --batch-size 1"
    )

    def alone(dtype):
        one = words.replace("compare", "predict").replace("bf16,fp8", dtype)
        return json.loads(run(f"{one} --json"))["deployment"]["num_gpus"]

    most, least = alone("bf16"), alone("fp8")
    cases = json.loads(run(f"{words} --json"))["cases"]
    assert [case["deployment"]["num_gpus"] for case in cases] == [most, most]
    assert most > least
    assert f"All on {most} GPUs, as the largest alternative needs." in " ".join(run(words).split())


def test_explain_says_which_points_it_took(run):
    given = "predict --view terms qwen3-30b-a3b h200 --drafter eagle3 --verbose"
    out = " ".join(run(given).split())
    assert "batch_size 1,16,128, engine" in out[out.index("Yours to give") :]
    typed = run(f"{given} --batch-size 1 --draft-length 3")
    assert "batch_size" not in typed
    assert "draft_length" not in typed


def test_explain_and_the_sweet_spot_take_the_lengths_that_predict_takes(run):
    words = "qwen3.5-397b h200 --batch-size 1,64,512"
    best = parse(run(f"predict {words} --json"))["rows"]
    found = parse(run(f"predict --view terms {words} --json"))["rows"]
    told = [row for row in found if (row["quantity"], row["term"]) == ("speedup", "predicted")]
    assert [(r["draft_length"], r["value"]) for r in told] == [
        (r["draft_length"], pytest.approx(r["speedup"], rel=1e-9)) for r in best
    ]
    assert [r["draft_length"] for r in told] == [6, 6, 0]
    (spot,) = parse(run("predict --view peak qwen3.5-397b h200 --batch-size 1:158 --json"))["rows"]
    gains = parse(run("schedule qwen3.5-397b h200 --for vllm --json"))["rows"]
    most = max(gains, key=lambda row: row["best_speedup"])
    assert spot["peak_batch_size"] == most["batch_size"]
    assert spot["peak_speedup"] == pytest.approx(most["best_speedup"], rel=1e-9)
    assert spot["draft_length"] == most["best_draft_length"]
    assert spot["paying"] == "1-158"


def test_lengths_end_at_the_block_that_is_drafted_at_once(run):
    text = run("break-even deepseek-v4.1-flash h200 --batch-size 1,16 --csv")
    lengths = {row["draft_length"] for row in csv.DictReader(text.splitlines())}
    assert lengths == {"1", "2", "3", "4", "5"}


def test_break_even_says_from_which_rate_it_surely_pays(run):
    given = "qwen3-30b-a3b h100 --batch-size 64 --draft-length 1"
    words = " ".join(run(f"break-even {given}").split())
    rate = float(re.search(r"surely pays from [\d.]+ tokens a step \(rate ([\d.]+)\)", words)[1])
    lows = [
        parse(run(f"predict {given} --acceptance-rate {rate + more} --json"))["rows"][0]
        for more in (-0.01, 0.01)
    ]
    assert lows[0]["speedup_low"] < 1 < lows[1]["speedup_low"]


@pytest.mark.parametrize("unit", ["rate", "tokens"])
def test_break_even_begins_with_the_least_rates_of_its_tables(unit, run):
    """What surely pays may be easiest with another draft length than what pays."""
    given = f"break-even qwen3-30b-a3b h200 --drafter eagle3 --draft-length 1:8 --in {unit}"
    rows = parse(run(f"{given} --json"))["rows"]
    out = run(given)
    words = " ".join(out.split())
    tables = out.split("by draft length:\n")[1:]
    assert len(tables) == 2
    for kind, told, shown in zip(
        ("break_even", "sure"), ("pays", "surely pays"), tables, strict=True
    ):
        able = [row for row in rows if row[f"{kind}_acceptance_rate"] is not None]
        least = min(able, key=lambda row: row[f"{kind}_acceptance_rate"])
        rate, tokens = least[f"{kind}_acceptance_rate"], least[f"{kind}_tokens_per_step"]
        ends = f"{tokens:.2f} tokens a step (rate {rate:.2f}, {least['draft_length']} drafted)"
        assert f"{told} from {ends}" in words
        cells = re.search(rf"^ *{least['batch_size']}  (.*)", shown, re.MULTILINE)[1].split()
        cell = {"rate": rate, "tokens": tokens}[unit]
        assert cells[least["draft_length"] - 1] == f"{cell:.2f}"
        gamma = least["draft_length"]
        assert tokens == pytest.approx(sum(rate**i for i in range(gamma + 1)))


def test_the_warning_of_graphs_is_of_what_fits_and_names_the_drafts(run):
    words = " ".join(run("break-even qwen3-30b-a3b h100 --batch-size 64:512:x2").split())
    assert "at batch size 64-128 steps with drafts of 8 or more tokens, 4 at 128, are" in words
    assert "--graph-limit 1152" in words  # 128 requests of 9 tokens
    assert "Batch sizes 256-512 do not fit in memory." in words
    assert "any CUDA graph" not in run(
        "predict --view lengths qwen3-30b-a3b h100 --context-length 16384"
    )


@pytest.mark.parametrize("command", ["predict --view peak", "schedule --for vllm"])
def test_where_it_pays_is_told_as_by_predict(command, run):
    given = "qwen3-30b-a3b h200 --drafter eagle3 --acceptance-rate 0.42"
    rows = parse(run(f"predict {given} --batch-size 1:256 --json"))["rows"]
    sure = [row["batch_size"] for row in rows if row["speedup_low"] > 1]
    first, last = min(sure), max(sure)
    assert sure == [*range(first, last + 1)]
    told = f"pays at batch sizes {first}-{last}, may pay or not at batch sizes 1-{first - 1}"
    assert f"{told}, {last + 1}-256" in " ".join(run(f"{command} {given}").split())


def test_the_sweet_spot_warns_of_no_batch_that_it_leaves_out(run):
    out = run("predict --view peak qwen3-30b-a3b h100")
    assert not re.search(r"Warning:[^.]* (512|257)", out)
    (row,) = parse(run("predict --view peak qwen3-30b-a3b h100 --json"))["rows"]
    assert row["largest_batch_size"] < 257


def test_a_comparison_leaves_out_what_no_alternative_holds_and_explains_losses(run):
    out = run("compare qwen3-30b-a3b h100 --acceptance-rate 0.25")
    assert "Batch size 256 does not fit in memory." in out
    assert not re.search(r"^ +256 ", out, re.MULTILINE)
    losing = re.findall(r"^ +(\d+) .* 0\.\d+ .* 1$", out, re.MULTILINE)
    first, last, beyond = losing  # between them nothing is drafted
    words = " ".join(out.split())
    assert f"at batch size {first}-{last}, {beyond} the best draft loses, though less" in words


def test_what_holds_for_some_alternatives_is_told_once(run):
    words = "compare qwen3-30b-a3b h100,h200 --weight-dtype bf16,fp8 --acceptance-rate 0.7"
    out = run(f"{words} --batch-size 8")
    told = re.findall(r"^\[2\]\[4\] (?:.|\n(?!\[|\n))*", out, re.MULTILINE)
    assert told
    assert all(out.count(line) == 1 for line in told)


def test_the_largest_batch_that_fits_is_one_number(run):
    words = " ".join(run("predict qwen3-30b-a3b h100 --batch-size 1:256").split())
    rows = parse(run("predict qwen3-30b-a3b h100 --batch-size 1:256 --json"))["rows"]
    most = max(row["batch_size"] for row in rows if row["fits"])
    assert f"the largest of these that fits with its own draft is {most};" in words


def test_break_even_says_what_a_dash_is(run):
    given = "break-even gpt-oss-120b 1xh200 --drafter eagle3 --draft-length 1,2 --batch-size"
    assert "\n-: no acceptance rate pays.\n" in run(f"{given} 1,512")
    assert "\n-: " not in run(f"{given} 1,2")
    assert "\nBatch size 100000 does not fit in memory.\n" in run(f"{given} 1,100000")


def test_sweet_spot_has_intervals_unless_told_otherwise(run):
    given = "predict --view peak qwen3-30b-a3b h200 --drafter eagle3 --batch-size 1,64 --csv"
    with_ends, without = (run(f"{given} {form}") for form in ("--interval", "--no-interval"))
    assert "peak_speedup_low" in with_ends
    assert "peak_speedup_low" not in without
    assert run(given) == with_ends


def test_where_it_surely_pays_the_intervals_of_predict_are_above_one(run):
    given = "qwen3-30b-a3b h200 --drafter eagle3 --acceptance-rate 0.42"
    (spot,) = parse(run(f"predict --view peak {given} --batch-size 1:256 --json"))["rows"]
    rows = parse(run(f"predict {given} --batch-size 1:256 --json"))["rows"]
    sure = [row["batch_size"] for row in rows if row["speedup_low"] > 1]
    assert spot["surely_paying"] == f"{sure[0]}-{sure[-1]}"
    assert sure == [*range(sure[0], sure[-1] + 1)]


def test_batch_sizes_of_peaks_have_an_interval_unless_none_is_wanted(run):
    given = "predict --view peak qwen3-30b-a3b h200 --csv"
    (row,) = csv.DictReader(io.StringIO(run(given)))
    low, peak, high = (int(row[f"peak_batch_size{end}"]) for end in ("_low", "", "_high"))
    assert low <= peak <= high
    assert low < high
    assert f" {low}-{high} " in run(given.removesuffix(" --csv"))
    assert "peak_batch_size_low" not in run(f"{given} --no-interval")


def test_an_acceptance_that_is_not_known_is_asked_for_in_a_short_line(refuse):
    typical, rate = "none given; expected --acceptance typical", "--acceptance-rate 0.7, as none is"
    told = refuse(
        "schedule minimax-m2.5 h200 --for vllm", typical, f"{rate} published of minimax-m2.5 with "
    )
    assert len(told) < 230


def test_the_dtypes_that_are_listed_have_nvfp4(run, refuse):
    assert "nvfp4" in run("predict --help")
    refuse("predict qwen3-30b-a3b h200 --weight-dtype bad", " nvfp4 (fp4), ")


def test_each_kind_of_task_has_its_own_best_length(run, refuse):
    """As predicted with its acceptance alone; from the context told on none gains."""
    words = "gemma-4-26b h100 --drafter p-eagle --batch-size 1"
    rows = parse(run(f"predict {words} --view tasks --json"))["rows"]
    assert [row["task"] for row in rows] == ["chat", "code", "maths", "prose"]
    for row in rows:
        tokens = acceptance_by_task("gemma-4-26b-a4b", "p-eagle")[row["task"]]
        rates = ",".join(map(str, tokens.acceptance_by_position))
        typed = f"--acceptance-by-position conditional:{rates}"
        (alone,) = parse(run(f"predict {words} {typed} --json"))["rows"]
        assert row["draft_length"] == alone["draft_length"]
        assert row["speedup"] == pytest.approx(alone["speedup"])
        if end := row["ends_at_context"]:
            line = f"predict {words} {typed} --context-length {end / 2:.0f},{end:.0f} --json"
            before, beyond = parse(run(line))["rows"]
            assert before["speedup"] > 1 >= beyond["speedup"]
    assert "such as gemma-4-26b" in refuse("predict qwen3-30b-a3b h100 --view tasks")
    told = refuse(f"predict {words} --view tasks --acceptance-rate 0.5")
    assert "none, as each kind of task has its own" in told
