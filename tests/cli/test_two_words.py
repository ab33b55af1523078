"""A first answer from two words: what is taken, what is said of it, and words that do not do."""

import io
import json
import re
import sys
import tomllib
from statistics import geometric_mean

import pytest
from printed import in_one_line
from rows import cases, each_listed, each_row
from shapes import CONFIG

from specmodel import load_engine
from specmodel.core.base.units import parse_seconds
from specmodel.core.prediction.evaluate import LIMITS as ALL_LIMITS
from specmodel.show.behind import FOR_PROGRAMS
from specmodel.show.glossary import LIMITS


def test_two_words_are_the_options_that_they_stand_for(document):
    words = document("predict qwen3.5-397b h200")
    options = "--target qwen3.5-397b-a17b --hardware h200_sxm --drafter mtp --acceptance preset"
    typed = document(f"predict {options} --batch-size 1:256:x2 --max-draft-length 8")
    assert (words["rows"], words["facts"]) == (typed["rows"], typed["facts"])
    assert (words["deployment"], words["deployment"]["tensor_parallel"]) == (typed["deployment"], 8)


def test_the_first_lines_say_the_answer_and_what_was_taken(run, rows):
    text = run("predict qwen3.5-397b h200")
    assert len([line for line in text.splitlines() if line]) <= 23
    opening = in_one_line(text.partition("\n\n")[0])
    most = (
        r"Turn speculation on: speedup [\d.]+x at batch size 1 with draft length 4 \(80 % interval"
    )
    assert re.match(most, opening)
    assert "Qwen3.5-397B-A17B + MTP head on 8 x NVIDIA H200 SXM" in opening
    best = max(rows("predict qwen3.5-397b h200"), key=lambda row: row["speedup"])
    tokens = f"{best['tokens_per_step']:.2f} tokens per step"
    by_task = r"chat [\d.]+; code [\d.]+"
    assert re.search(rf"Acceptance: {tokens} in mixed use \({by_task}\), published\.", opening)
    below = run("predict qwen3.5-397b h200 --verbose", one_line=True)
    assert "Defaults you can change: gpus 8 (the fewest that hold weights, drafter and 32" in below
    assert "drafter mtp (as in vLLM recipes" in below
    assert f"fitted to runs of {load_engine('vllm').fit.fitted_on.version}" in below


@cases("command", "predict qwen3.5-397b h200", "schedule qwen3-30b-a3b h200 --for sglang")
def test_verbose_tells_all_that_json_says_was_assumed(run, document, command):
    assumed = document(command)["assumptions"]
    opening, _, below = run(f"{command} --verbose", one_line=True).partition("Assumed: ")
    assert assumed.pop("acceptance") in opening
    for name in assumed.keys() - FOR_PROGRAMS:
        assert f"{name} {assumed[name]}" in below


def test_what_is_too_close_to_call_pays_from_the_tokens_that_are_told(run, rows):
    words = "predict qwen3-30b h100 --drafter eagle3 --draft-length 3 --batch-size 4"
    text = run(f"{words} --acceptance-rate 0.5", one_line=True)
    needed = re.match(r"Too close.* above ([\d.]+) tokens per step with 3 drafted", text)
    (row,) = rows(f"{words} --tokens-per-step {needed[1]}")
    assert row["speedup"] == pytest.approx(1, abs=0.01)


@cases("words largest", ("deepseek-v3 8xh200", 256), ("qwen3-30b-a3b h200", 256))
def test_one_length_for_all_is_the_shortest_near_the_best_mean(document, rows, words, largest):
    """By geometric means, with graphs that hold all steps."""
    gains = {}
    graphs = 11 * largest
    for row in rows(f"predict {words} --view lengths --graph-limit {graphs}"):
        gains.setdefault(row["draft_length"], []).append(row["speedup"])
    means = {length: geometric_mean(own) for length, own in gains.items()}
    near = [length for length in means if means[length] >= 0.95 * max(means.values())]
    facts = document(f"predict {words}")["facts"]
    assert facts["one_length"]["value"] == min(near)
    best = [max(own) for own in zip(*gains.values(), strict=True)]
    lost = [1 - gain / most for gain, most in zip(gains[min(near)], best, strict=True)]
    given_away = facts.get("gives_away", {"value": 0})["value"]
    assert given_away == pytest.approx(sum(lost) / len(lost), abs=5e-3)


PASTED = ["deepseek-v3 8xh200", "qwen3.5-397b h200", "qwen3-235b h200 --drafter eagle3"]
PASTED += ["qwen3-next-80b h100", "glm-4.6 8xh200", "qwen3-30b-a3b h200 --engine sglang"]


@each_row("words", PASTED)
def test_what_is_pasted_is_what_is_judged(words, run, rows, document):
    """Its options given to predict have the same speedups, and lose at no batch size."""
    facts = document(f"predict {words}")["facts"]
    told = in_one_line(run(f"predict {words}")).replace(" \\ ", " ")
    options = facts["engine_option"]["value"]
    bare = words.partition(" --drafter")[0]
    assert f": {options} " in told.replace("DRAFTER: path of the head", "")
    again = rows(f"predict {bare} {options}")
    again = [row for row in again if row["fits"]]
    for name, choose in (("most", max), ("least", min)):
        speedup = choose(row["speedup"] for row in again)
        assert facts[name]["value"] == pytest.approx(speedup, rel=1e-12)
    most = f"speedup {facts['most']['value']:.2f}x at batch size {facts['most_at']['value']}"
    assert f"{most} " in told
    every = rows(f"predict {bare} {options} --batch-size 1:256")
    assert min(row["speedup"] for row in every if row["fits"]) >= 0.995
    if "graphs_option" in facts:
        short = options.replace(facts["graphs_option"]["value"], "")
        without = rows(f"predict {bare} {short} --batch-size 1:256")
        beyond = [row for row in without if row["fits"] and not row["in_graph"]]
        worst = min((row["speedup"], row["batch_size"]) for row in beyond)
        assert worst[0] == pytest.approx(facts["without_graphs"]["value"])
        assert worst[1] == facts["without_graphs_at"]["value"]


def test_where_one_length_loses_a_schedule_is_pasted(document):
    """Its lengths, by `schedule`, are those of the rows, and lose nowhere."""
    told = document("predict llama-3.1-70b 2xh200")
    facts = told["facts"]
    assert "one_length" not in facts
    ranges = facts["schedule"]["value"]
    assert json.dumps(ranges) in facts["engine_option"]["value"]
    for row in told["rows"]:
        (length,) = (n for first, last, n in ranges if first <= row["batch_size"] <= last)
        assert row["draft_length"] == length
    assert min(row["speedup"] for row in told["rows"]) >= 0.995


def test_the_layout_that_carries_more_is_pointed_to_and_is_so(run, rows):
    """Where no degree was typed; the numbers are those of compare."""
    text = run("predict qwen3.5-397b 8xh200", one_line=True)
    found = r"Layout (.*?): (\d+)% more tokens/s at batch size (\d+)"
    name, more, size = re.search(found, text).groups()
    compared = rows(f"compare qwen3.5-397b 8xh200 --batch-size {size}")
    rates = {row["alternative"]: row["throughput"] for row in compared}
    assert f"{100 * (rates[name] / rates['TP8'] - 1):.0f}" == more
    for words in ("qwen3.5-397b 8xh200 --tensor-parallel 2", "qwen3-32b 2xh200"):
        assert "Layout " not in run(f"predict {words}")


def test_without_a_measurement_the_question_is_turned_round(run, document):
    words = "predict mixtral-8x7b h100 --drafter eagle3"
    text = run(words, one_line=True)
    assert text.startswith("Acceptance is not known: speculation pays above ")
    gained = r"Published heads \(eagle3 for 29 targets, by .*\) give speedups of .* [\d.]+-[\d.]+x "
    assert re.search(gained + r"\(lower quartile / ", text)
    told = document(words)
    for row in told["rows"]:
        assert "speedup" not in row
        assert row["speedup_lower_quartile"] < row["speedup_median"] < row["speedup_upper_quartile"]
        assert 1 < row["break_even_tokens_per_step"] < row["draft_length"] + 1
    assert "acceptance" not in told["assumptions"]


_WITHIN = r"Largest batch size within [\d.]+ms per token with speculation: (\d+)\b.*"
_WITHIN += r"Largest batch size within [\d.]+ms per token without speculation: (\d+) "
"""The largest batches as a page says them."""


def test_a_tpot_target_keeps_the_rows_that_meet_it_and_names_the_largest_batch(run, rows):
    words = "predict qwen3-30b h100 --tpot-target 6ms"
    text = run(words, one_line=True)
    told = r"Largest batch size within 6ms per token with speculation: (\d+) "
    told += r"\(80 % interval (\d+) to (\d+)\).*"
    told += r"Largest batch size within 6ms per token without speculation: (\d+) "
    named = [*map(int, re.match(told, text).groups())]
    every = rows("predict qwen3-30b h100 --batch-size 1:64")
    columns = ("tpot", "tpot_high", "tpot_low", "forward_time")
    meeting = [[row["batch_size"] for row in every if row[name] <= 6e-3] for name in columns]
    assert named == [max(sizes) for sizes in meeting]
    kept = rows(words)
    assert all(row["tpot"] <= 6e-3 for row in kept)
    sizes = {row["batch_size"] for row in kept}  # the answer has its row, as has the verdict
    assert {named[0], *map(int, re.findall(r"x at batch size (\d+)", text))} <= sizes
    fast, _, _, plain = named
    bare = run(f"{words} --no-interval", one_line=True)
    assert f" with speculation: {fast}, " in bare
    assert f"without speculation: {plain}, " in bare
    typed = run(f"{words} --batch-size 2,64 --draft-length 3", one_line=True)
    # not of typed ones alone
    assert f"Largest batch size within 6ms per token with speculation: {fast} " in typed
    assert f"without speculation: {plain} " in typed
    unmet = run("predict qwen3-30b h100 --tpot-target 1us", one_line=True)
    assert unmet.startswith("No batch size meets 1us per token: the shortest time is ")


@cases("words target", ("qwen3.5-397b h200", "20ms"), ("qwen3-30b 1xb200", "8ms"))
def test_the_next_batch_is_beyond_a_plain_tpot_target(run, rows, document, words, target):
    """The largest batch is asked for alone, and so is the next: one is within, one is not."""
    text = run(f"predict {words} --tpot-target {target}", one_line=True)
    fast, plain = map(int, re.search(_WITHIN, text).groups())
    most = parse_seconds("tpot_target", target)
    facts = document(f"predict {words} --tpot-target {target}")["facts"]
    pasted, _, most_requests = facts["engine_option"]["value"].partition(" --max-num-seqs ")
    assert most_requests in ("", str(fast))
    pasted += " --batch-size"
    for size, name in ((plain, "forward_time"), (fast, "tpot")):
        last, beyond = rows(f"predict {words} {pasted} {size},{size + 1}")
        assert last["fits"]
        assert last[name] <= most
        assert not beyond["fits"] or beyond[name] > most
    if not beyond["fits"]:
        assert f"Batch size {fast + 1} does not fit in memory." in text
        return
    assert f"Batch size {fast + 1} misses the target of " in text


def test_lengths_that_were_typed_are_answered_without_an_acceptance(rows):

    words = "mixtral-8x7b h100 --drafter eagle3 --batch-size 1,64 --draft-length 3"
    few, needed = rows(f"predict {words}"), rows(f"break-even {words}")
    for row, other in zip(few, needed, strict=True):
        rate = other["break_even_acceptance_rate"]
        assert row["break_even_acceptance_rate"] == pytest.approx(rate, rel=1e-9)


def test_each_column_of_a_row_can_be_asked_for(run, rows):
    """The ends of intervals, too."""
    line = "predict qwen3-30b h200 --drafter eagle3 --batch-size 8 --interval"
    (row,) = rows(line)
    assert {"tpot_low", "speedup_chance"} < {*row}
    cells = {name: run(f"{line} --columns {name}").split("\n\n")[-2].split()[-1] for name in row}
    assert float(cells["tpot_low"].removesuffix("ms")) == pytest.approx(1e3 * row["tpot_low"], 5e-3)
    assert cells["limited_by"] == row["limited_by"]


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_the_page_fits_the_terminal(run, columns, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    for target, points in (("qwen3-30b", 8), ("mixtral-8x7b", 9)):  # 256 requests have no room
        lines = run(f"predict {target} h100").splitlines()
        assert len([line for line in lines if re.match(r" *\d+  +\d", line)]) == points
        # names stay with their values
        words = [line for line in lines if " " in line and not line.startswith("--")]
        assert min(columns, 80) / 2 < max(map(len, words)) <= max(columns, 24)
        assert ("Columns that do not fit here" in " ".join(lines)) == (columns < 80)


def test_a_folder_without_a_slash_and_standard_input_are_read(document, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    of_folder = document("predict --view plain mine h100")
    assert of_folder["deployment"]["target"] == "mine"
    told = io.TextIOWrapper(io.BytesIO(json.dumps(CONFIG).encode()))
    monkeypatch.setattr(sys, "stdin", told)
    assert document("predict --view plain - h100")["rows"] == of_folder["rows"]


def test_a_folder_without_a_configuration_is_one_line(refuse, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    refuse("predict mine h200", "a folder with a config.json")


@pytest.mark.parametrize("content", ["", "not: json", "[]"])
def test_what_no_model_is_on_standard_input_is_one_line(content, refuse, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    refuse("predict - h200", "--target")


@each_listed
def test_whatever_may_be_a_list_is_compared(rows, options, labels):
    found = rows(f"compare deepseek-v3 {options} --batch-size 1,32")
    assert {*labels} <= {row["alternative"] for row in found}


def test_break_even_says_what_a_better_head_is_worth(run, rows):
    """The speedup with 0.1 tokens a step more, less that without."""
    words = "mixtral-8x7b h100 --drafter eagle3 --batch-size 8 --draft-length 3"
    found = f"break-even {words}"
    (row,) = rows(found)
    command = f"predict {words} --tokens-per-step"
    less, more = (rows(f"{command} {tokens}")[0]["speedup"] for tokens in (2.0, 2.1))
    assert row["speedup_per_token"] / 10 == pytest.approx(more - less, rel=1e-9)
    assert f"+{more - less:.3f}" in run(found)


def test_warnings_are_wrapped_where_a_person_watches(run, capsys, monkeypatch):
    from specmodel.cli.output import echo_warnings

    for is_watched, lines in ((True, 3), (False, 1)):
        monkeypatch.setattr("sys.stderr.isatty", lambda is_watched=is_watched: is_watched)
        echo_warnings(["a word " * 25])
        told = capsys.readouterr().err.splitlines()
        assert len(told) == lines
        assert all(line.startswith("  ") for line in told[1:])
        assert told[0].startswith("specmodel: warning: a word")


def test_limits_of_the_glossary_are_those_of_answers():
    assert {*LIMITS} == {*ALL_LIMITS}


def test_two_words_compare_the_layouts_of_several_gpus(rows):
    """Each cuts matrices over some GPUs, with experts cut over all of them or spread whole."""
    for degrees, more in ((("TP8", "TP4 DP2", "TP2 DP4", "DP8"), ""), (("TP4 DP2",), "4")):
        typed = f" --tensor-parallel {more}" if more else ""
        found = rows(f"compare deepseek-v3 8xh200 --batch-size 64{typed}")
        names = [row["alternative"] for row in found]
        assert names == [name for each in degrees for name in (each, f"{each} EP8")]


def test_alternatives_within_a_time_per_token_are_those_of_predict(run, rows):
    within = "--tpot-target 12ms"
    length = f"--draft-length 3 {within}"
    row, _ = rows(f"compare qwen3-30b-a3b h100,h200 --batch-size 1 {length}")
    told = run(f"predict qwen3-30b-a3b h100 {length}", one_line=True)
    sizes = re.search(_WITHIN, told).groups()
    found = row["largest_batch_size"], row["largest_batch_size_plain"]
    assert found == tuple(map(int, sizes))
    assert f", {row['throughput_per_gpu_within']:.0f} tokens/s. " in told


def test_a_list_for_one_thing_names_the_command_that_takes_lists(refuse):
    for words in ("h200 --weight-dtype fp8,nvfp4", "h100,h200", "h100,h200 --view peak"):
        told = refuse(f"predict qwen3-30b-a3b {words}")
        assert told.endswith("(lists: specmodel compare)\n")
    refused = refuse("compare qwen3-30b-a3b h100,h100", "each alternative once")
    assert "lists: specmodel compare" not in refused


def test_a_list_of_what_if_is_compared_each_as_predict_has_it(rows, refuse):
    words = "qwen3-30b-a3b h100 --drafter eagle3 --batch-size 8"
    setting = "--set target.experts_per_token"
    for value, row in zip((2, 16), rows(f"compare {words} {setting}=2,16"), strict=True):
        assert row["alternative"] == f"experts_per_token={value}"
        length = f"--draft-length {row['best_draft_length']}"
        (alone,) = rows(f"predict {words} {setting}={value} {length}")
        assert row["speedup"] == pytest.approx(alone["speedup"], rel=1e-9)
    refuse(f"compare {words} {setting}=2,2", "each alternative once")


def test_acceptance_by_task_moves_the_best_speedup(run, rows):
    """The ends are those of predictions with the rates that 80 % of the tasks of a head have."""
    words = "predict qwen3-30b-a3b h100"
    found = r"a drafter like this has ([\d.]+) to ([\d.]+) tokens per step, which gives "
    found += r"([\d.]+)x to ([\d.]+)x at batch size (\d+)\."
    text = run(f"{words} --acceptance-rate 0.7", one_line=True)
    few, many, least, most, where = map(float, re.search(found, text).groups())
    fitting = [row for row in rows(f"{words} --acceptance-rate 0.7") if row["fits"]]
    best = max(fitting, key=lambda row: row["speedup"])
    assert best["batch_size"] == where
    point = f"--draft-length {best['draft_length']} --batch-size {where:.0f}"
    for tokens, gain in ((few, least), (many, most)):
        (row,) = rows(f"{words} {point} --tokens-per-step {tokens}")
        assert row["speedup"] == pytest.approx(gain, abs=0.01)
    own = run(f"{words} --acceptance-rate 0.7 --acceptance-spread 0.1", one_line=True)
    assert re.search(r"tokens per step \([\d.]+ to [\d.]+ by task\)", own)
    assert "of tasks" not in run(f"{words} --drafter ngram --acceptance-rate 0.6")


def test_lengths_are_such_as_the_engine_takes(document):
    """MiMo-V2-Flash has three modules: vLLM takes up to 3, or a multiple."""
    for acceptance in ("", " --acceptance-rate 0.9"):
        told = document(f"predict mimo-v2-flash 8xh200{acceptance}")["facts"]
        length = told["one_length"]["value"]
        assert length <= 3 or length % 3 == 0
        assert f'"num_speculative_tokens": {length}' in told["engine_option"]["value"]


def test_acceptance_is_listed_by_target_and_drafter_then_by_kind_of_head(run):
    listed = run("list acceptance")
    names = [line.split()[0] for line in listed.splitlines() if line]
    assert len({*names[2:]}) == len(names[2:])  # each row is told apart by its first word
    assert re.search(r"gpt-oss-120b-dflash +1.79, 2.92, 3.5\d +3, 9 +maths\n", listed)
    assert re.search(r"eagle3 \(29\)( +\d\.\d\d, \d\.\d\d, \d\.\d\d){3} +quartiles", listed)


@each_row("name", ["qwen3.5-397b-mtp", "kimi-k3-dspark"])
def test_what_is_listed_is_shown_with_its_source(run, name):
    shown = run(f"list {name}")
    assert f"# as an option: --acceptance {name}" in shown
    told = tomllib.loads(shown)
    assert f"{told['target']}-{told['drafter']}" == name
    code = told["tasks"]["code"]
    assert (code["lengths"], len(code["tokens_per_step"])) == ([*range(1, 9)], 8)
