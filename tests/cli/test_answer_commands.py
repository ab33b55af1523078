"""The commands that answer: what they print, in each form, and what they refuse."""

import csv
import io
import json
import re

import pytest
from printed import parse
from rows import each_row

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


@each_row("command", [
    SWEET + " --context-length 0,32768 --draft-length 1,4",
    SWEET + " --acceptance-rate 0.02",
    BEST + " --engine sglang --context-length 0,1000,100000",
    BEST + BIG,
    EVEN + NGRAM,
    EVEN + " --acceptance-by-context 2048:3,32768:1.2 --measured-draft-length 3",
    COMPARE + " --engine vllm-moesd-2025,sglang,ideal",
    COMPARE.replace("--target qwen3-30b-a3b", "--target mixtral-8x22b,qwen3-32b"),
    EXPLAIN + " --engine vllm-moesd-2025",
    f"predict --view terms {WHERE} --hardware h100_sxm --batch-size 64 --draft-length 2 "
    "--tokens-per-step 2 --measured-draft-length 3 --tensor-parallel 4",
])  # fmt: skip
def test_programs_read_the_same_rows_and_people_see_80_columns(command, run):
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


@pytest.mark.parametrize("width", [40, 80, 200])
def test_where_it_pays_is_told_on_a_screen_of_any_width(width, run, monkeypatch):
    monkeypatch.setattr("specmodel.cli.output.screen_width", lambda: width)
    page = run("predict --view peak qwen3-30b-a3b h100 --drafter eagle3 --context-length 1,1024")
    titles, *rows = re.findall(r"^ *(?:context|peak|1|1024)  .*", page, re.MULTILINE)
    assert re.search(r"peak .*\(length\) .*pays at$", titles)
    assert len(rows) == 2
    for row in rows:
        assert re.search(r" \d\.\d\d .* \d+ \(\d\) .*\d+-\d+$", row)
    assert ("Columns without room here" in page) == (width < 80)


def test_where_nothing_is_drafted_nothing_is_lost(run):
    words = (
        "predict --view terms qwen3-30b-a3b h100 --drafter ngram --acceptance-rate 0.01 "
        "--batch-size 1"
    )
    assert run(words).startswith(
        "At batch size 1: 1.00x, as nothing is drafted.\nQwen3-30B-A3B + n-gram look-up"
    )


def test_where_nothing_pays_no_alternative_wins(run):
    text = " ".join(run(COMPARE + " --acceptance-rate 0").split())
    assert "With none of them a draft gains." in text


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


def test_by_position_no_longer_length_is_claimed(run):
    command = f"predict --view lengths {WHERE} --acceptance-by-position 0.9,0.9,0.9"
    assert "max_draft_length 3" in " ".join(run(f"{command} --verbose").split())
    assert "max_draft_length" not in run(f"{SWEET} --verbose")


BAD = [
    (COMPARE + " --context-length 1,2", "--context-length: got [1, 2]; expected one context"),
    (BEST.replace(RATE, "--acceptance-by-position 0.9,0.8") + " --max-draft-length 3", "covers"),
    (BEST.replace(RATE, "--tokens-per-step 2"), "--measured-draft-length"),
    (SWEET + " --draft-length 0:3", "--draft-length: got 0; expected at least 1"),
    (SWEET + " --batch-size 8,4", "--batch-size", "rising"),
    (EVEN + " --acceptance-rate 0.5", "No such option", "--acceptance-rate"),
    (EVEN + " --proposal-rate 0.5", "--proposal-rate: got 0.5; expected the drafter ngram"),
    (COMPARE + " --acceptance-rate 0.1,0.2,0.3", "--acceptance-rate", "one for each of 2"),
    (COMPARE + " --drafter eagle3,mtp --proposal-rate 0.5", "--proposal-rate: got 0.5", "ngram"),
    (COMPARE + " --drafter ngram,ngram", "--drafter", "each once"),
    (EXPLAIN + " --batch-size 1:6", "--batch-size: got '6 points'; expected at most 5"),
]


@each_row(("command", "fragments"), [(c, f) for c, *f in BAD])
def test_bad_input_is_one_line(command, fragments, refuse):
    refuse(command, *fragments)


def test_more_points_are_explained_to_programs_but_not_any_number(run, refuse):
    command = EXPLAIN + " --batch-size 1:100:1 --context-length 1:101 --csv"
    refuse(command, "--batch-size: got '10100 points'; expected at most 10000 points")
    rows = parse(run(EXPLAIN + " --batch-size 1:6 --json"))["rows"]
    assert len({row["batch_size"] for row in rows}) == 6


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


def test_compare_has_decoding_without_a_drafter_as_an_alternative(run):
    rows = json.loads(run(f"{DRAFTERS} --tpot-target 10ms --json"))["rows"]
    plain = [row for row in rows if row["alternative"] == "none"]
    assert [row["speedup"] for row in plain] == [1, 1]
    assert [row["best_draft_length"] for row in plain] == [0, 0]
    assert [row["tpot"] for row in plain] == [row["tpot_plain"] for row in rows[:2]]
    assert "max_draft_length" not in run("compare gpt-oss-120b 2xb200 --drafter none")


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


def test_what_holds_for_some_alternatives_is_told_once(run):
    words = "compare qwen3-30b-a3b h100,h200 --weight-dtype bf16,fp8 --acceptance-rate 0.7"
    out = run(f"{words} --batch-size 8")
    told = re.findall(r"^\[2\]\[4\] (?:.|\n(?!\[|\n))*", out, re.MULTILINE)
    assert told
    assert all(out.count(line) == 1 for line in told)


def test_break_even_says_what_a_dash_is(run):
    given = "break-even gpt-oss-120b 1xh200 --drafter eagle3 --draft-length 1,2 --batch-size"
    assert "\n-: no acceptance rate pays.\n" in run(f"{given} 1,512")
    assert "\n-: " not in run(f"{given} 1,2")
    assert "\nBatch size 100000 does not fit in memory.\n" in run(f"{given} 1,100000")


def test_where_it_surely_pays_the_intervals_of_predict_are_above_one(run):
    given = "qwen3-30b-a3b h200 --drafter eagle3 --acceptance-rate 0.42"
    (spot,) = parse(run(f"predict --view peak {given} --batch-size 1:256 --json"))["rows"]
    rows = parse(run(f"predict {given} --batch-size 1:256 --json"))["rows"]
    sure = [row["batch_size"] for row in rows if row["speedup_low"] > 1]
    assert spot["surely_paying"] == f"{sure[0]}-{sure[-1]}"
    assert sure == [*range(sure[0], sure[-1] + 1)]


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
