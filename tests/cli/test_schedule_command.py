"""``specmodel schedule``: what it prints in each form, against ``predict``, and used wrong."""

import json
import re
import shlex

import pytest
from printed import commands, in_one_line, widest
from rows import cases, each_row

WHERE = " --target qwen3-30b-a3b --hardware h200_sxm"
EAGLE = WHERE + " --drafter eagle3 --acceptance-rate 0.7"
BASE = "schedule --for vllm" + EAGLE
SMALL = BASE + " --max-batch-size 64"
TENSORRT = SMALL.replace("vllm", "tensorrt-llm")
SGLANG = SMALL.replace("vllm", "sglang")
HOPELESS = SMALL.replace("0.7", "0.02")
CONTEXTS = SGLANG + " --context-length 1024,8192"
NGRAM = "schedule --for vllm" + WHERE + " --drafter ngram --proposal-rate 0.4"


def value(answer, name):
    """The value of a fact."""
    return answer["facts"][name]["value"]


@each_row("command", commands("schedule"))
def test_json_is_strict_and_agrees_with_the_text_of_80_columns(command, run, document):
    answer, out = document(command), run(command)
    words = in_one_line(out)
    assert len(widest(out)) <= 80
    facts = {name: fact["value"] for name, fact in answer["facts"].items()}
    if "more" in facts:
        assert f"Best single draft length: {facts['one_length']}, " in words
        assert f" The schedule's mean speedup is {facts['more']:.1%} higher than that." in words
    mean = (
        f"mean speedup {facts['mean_speedup']:.2f}x over batch sizes 1-{facts['last_batch_size']} "
    )
    assert (mean in words) != facts["advice"].startswith("off")
    assert f"{facts.get('most', 1):.2f}" in words
    assert (answer["fragment"] or "") in out
    assert all(caveat in words for caveat in answer["caveats"])
    is_vllm_alone = answer["for"] == "vllm" and "[" not in (answer["fragment"] or "")
    assert bool(answer["caveats"]) == (bool(answer["fragment"]) and not is_vllm_alone)
    rows = answer["rows"]
    ends = ("first_batch_size", "last_batch_size", "draft_length", "min_speedup")
    by_size = []
    for first, last, length, least in ([each[end] for end in ends] for each in answer["ranges"]):
        by_size += [length] * (last + 1 - first)
        assert least == min(row["speedup"] for row in rows[first - 1 : last])
        span = f"{first}-{last}" if last > first else f"{first}"
        assert re.search(rf"^ *{span} +{length} +\d", out, re.MULTILINE)
    assert by_size == [row["draft_length"] for row in rows]
    if 0 in by_size and any(by_size):
        sure, possible = told_to_pay(words)
        gaining = {row["batch_size"] for row in rows if row["speedup"] > 1}
        assert sure <= gaining <= sure | possible


def test_speedups_are_those_of_predict(rows):
    points = " --engine vllm --batch-size 1:64 --draft-length 1:10"
    grid = rows("predict" + EAGLE + points)
    gain = {(row["batch_size"], row["draft_length"]): row["speedup"] for row in grid}
    for row in rows(SMALL):
        size = row["batch_size"]
        best = max(1.0, *(gain[size, k] for k in range(1, 11)))
        assert row["best_speedup"] == pytest.approx(best, rel=1e-12)
        chosen = gain[size, row["draft_length"]] if row["draft_length"] else 1.0
        assert row["speedup"] == pytest.approx(chosen, rel=1e-12)


@cases(
    "command engine seats",
    (SMALL, "vLLM", "--max-num-seqs"),
    (TENSORRT, "TensorRT-LLM", "max_batch_size"),
    (CONTEXTS, "SGLang", "--max-running-requests"),
)
def test_fragment_alone_has_notes_beside_it(command, engine, seats, ended, document):
    _, out, err = ended(command + " --fragment-only")
    answer = document(command)
    assert out == answer["fragment"] + "\n"
    place = f"for {engine}, in {answer['place']}"
    notes = [place, f"made for {seats} 64", *answer["caveats"]]
    told = [f"specmodel: warning: {text}" for text in answer["warnings"]]
    assert err.splitlines() == told + [f"specmodel: note: {text}" for text in notes]


def test_what_happens_above_the_last_batch_size_is_said_where_no_command_ends_there(run, document):
    last = document(SGLANG)["rows"][-1]["draft_length"]
    assert last > 1
    for command, name, told in ((SGLANG, "SGLang", last), (TENSORRT, "TensorRT-LLM", 0)):
        above = f"Draft length of {name} above batch size 64: {told}."
        assert above in run(command, one_line=True)
    assert "above batch size 64:" not in run(SMALL, one_line=True)
    assert "--max-num-seqs 64" in run(SMALL)


def test_what_else_must_be_set_is_said(document):
    sglang = document(SGLANG)
    longest = max(row["draft_length"] for row in sglang["rows"])
    place = "a FILE; start SGLang with --speculative-algorithm EAGLE3"
    place += " --speculative-draft-model-path DRAFTER"
    place += f" --speculative-eagle-topk 1 --speculative-num-steps {longest}"
    place += f" --speculative-num-draft-tokens {longest + 1} --speculative-adaptive"
    assert sglang["place"] == f"{place} --speculative-adaptive-config FILE"
    assert document(SMALL)["place"].endswith(" (DRAFTER: the drafter's path)")
    free = document(NGRAM + " --acceptance-rate 0.7")
    assert "model" not in json.loads(free["fragment"])
    assert free["place"].endswith("between single quotes")


def test_where_nothing_pays_a_program_is_told_to_leave_it_off(ended):
    told = "specmodel: warning: Leave speculation off: it pays at no batch size up to 64\n"
    assert ended(HOPELESS + " --fragment-only")[1:] == ("", told)


def test_a_gain_within_the_tolerance_is_not_worth_it(run, document):
    command = BASE + " --max-batch-size 300 --max-draft-length 1 --acceptance-rate"
    below = next(r / 100 for r in range(100) if document(f"{command} {r / 100}")["ranges"][1:])
    loose = f"{command} {below} --tolerance 0.5"
    best = max(document(loose)["rows"], key=lambda row: row["best_speedup"])
    most = f"{best['best_speedup']:.3f}x at batch size {best['batch_size']}"
    told = f"Leave speculation off: the largest speedup, {most}, is within --tolerance of "
    assert run(loose, one_line=True).startswith(told)


def test_what_tensorrt_llm_costs_is_said(run, document):
    free, bound = document(SMALL + " --engine tensorrt-llm"), document(TENSORRT)
    cost = 1 - value(bound, "mean_speedup") / value(free, "mean_speedup")
    assert "cost_of_rule" not in free["facts"]
    assert value(bound, "cost_of_rule") == pytest.approx(cost)
    told = (
        "TensorRT-LLM requires its longest draft at batch size 1, which lowers the mean speedup by"
    )
    assert f"{told} {cost:.1%}." in run(TENSORRT, one_line=True)


def test_rows_of_each_context_are_those_of_its_own_schedule(document):
    """Each up to what fits there, with acceptance as it is there."""
    acceptance = "--acceptance-by-context 1024:3.2,65536:1.5 --measured-draft-length 3"
    base = BASE.replace("--acceptance-rate 0.7", f"{acceptance} --tensor-parallel 1")
    longest = []
    every = document(f"{base} --context-length 1024,65536")["rows_by_context"]
    for context in (1024, 65536):
        rows = [row for row in every if row["context_length"] == context]
        own = f" --context-length {context} --max-batch-size {len(rows)}"
        alone = document(f"{base}{own}")["rows"]
        for row, expected in zip(rows, alone, strict=True):
            assert row == pytest.approx(expected | {"context_length": context})
        assert {row["fits"] for row in alone} == {True}
        longest.append(max(row["draft_length"] for row in alone))
    assert longest[0] > longest[1]


def test_largest_batch_is_what_fits_in_memory(run, document, rows):
    command = BASE + " --tensor-parallel 1 --context-length 1024,65536"
    answer = document(command)
    most = len(answer["rows"])
    words = "--tensor-parallel 1 --context-length 65536 --draft-length 10 --batch-size 1"
    (point,) = rows(f"predict{EAGLE} {words}")
    assert point["max_batch_size"] == most == answer["assumptions"]["max_batch_size"] < 512
    told = f"of the schedule: {most}, the largest that fits in memory at context 65536"
    assert told in run(command, one_line=True)
    assert len(rows(f"{BASE} --graph-limit 4096")) == 512
    beyond = document(f"{command} --max-batch-size {most + 1}")
    assert len(beyond["rows"]) == most + 1
    assert "largest batch that fits" in " ".join(beyond["warnings"])


def told_to_pay(text):
    """Return the batch sizes at which the whole interval is above 1, and includes 1."""
    found = []
    for label in ("interval of the speedup is above 1", "interval of the speedup includes 1"):
        spans = re.search(rf"{label} at batch sizes ([-\d]+(?:, [-\d]+)*)", text)
        ends = [span.split("-") for span in spans[1].split(", ")] if spans else []
        found.append({size for e in ends for size in range(int(e[0]), int(e[-1]) + 1)})
    return found


def test_a_schedule_that_does_not_fit_does_not_open_with_pays(run, document):
    """Neither where no batch fits nor where only some do; each row says whether it does."""
    on_t4 = SMALL.replace("h200_sxm", "t4") + " --tensor-parallel 1"
    assert run(on_t4, one_line=True).startswith(
        "No requested batch size fits in memory. With enough memory: turn speculation on"
    )
    assert not any(row["fits"] for row in document(on_t4)["rows"])
    command = f"{SMALL} --max-batch-size 900"
    answer = document(command)
    most = sum(row["fits"] for row in answer["rows"])
    told = f"Only batch sizes up to {most} fit in memory at context 1024"
    assert run(command, one_line=True).startswith(told)
    longest = max(each["draft_length"] for each in answer["ranges"])
    told = f"The largest batch that fits is {most} at draft length {longest}"
    assert answer["warnings"][0].endswith(told)
    assert 0 < most < 900


def test_the_verdict_says_which_batch_sizes_lose_whatever_is_drafted(run, document, rows):
    """Where the drafter is loaded none costs too: the schedule is near the best of all lengths."""
    own = "qwen3-30b-a3b h200 --drafter eagle3 --acceptance-rate 0.5"
    command = f"schedule {own} --for vllm"
    whole = rows(f"{command} --max-batch-size 512")
    first = 1 + max(row["batch_size"] for row in whole if row["speedup"] >= 1)
    losing = [row["speedup"] for row in whole[first - 1 :]]
    found = {}
    for row in rows(f"predict {own} --draft-length 0:7 --batch-size {first}:512"):
        found.setdefault(row["batch_size"], []).append(row["speedup"])
    assert all(s >= 0.99 * max(found[first + i]) for i, s in enumerate(losing))
    text = run(command, one_line=True)
    told = (
        f"Above batch size {first - 1}, speculation stops paying: at batch sizes {first}-512, even"
    )
    told += " the best draft length (0 included, with the drafter loaded) gives only"
    told += f" {min(losing):.2f}x to"
    assert f"{told} {max(losing):.2f}x. --max-num-seqs {first - 1} prevents larger batches." in text
    assert f"vllm serve MODEL --max-num-seqs {first - 1} " in text
    ended = document(command)
    assert [row["batch_size"] for row in ended["rows"]] == [*range(1, first)]
    ranges = json.loads(ended["fragment"])["num_speculative_tokens_per_batch_size"]
    assert ranges[-1][1] == first - 1


@pytest.mark.parametrize("words", ["qwen3.5-397b h200", "qwen3-30b-a3b h200 --drafter eagle3"])
def test_what_larger_graphs_would_gain_is_what_they_gain(words, run, document):
    command = f"schedule {words} --for vllm"
    told = re.search(
        r"larger CUDA graphs \(--max-cudagraph-capture-size (\d+)\), the best schedule has a mean"
        r" speedup of ([\d.]+)x up to batch size \d+ \(in specmodel: --graph-limit \1\)\."
        r" At batch size (\d+), its speedup is ([\d.]+)x instead of ([\d.]+)x\."
        r"(?: With the larger CUDA graphs, draft length (\d) is the best)?",
        run(command, one_line=True),
    )
    size, mean, place, more, here, one = told.groups()
    enough, less = (document(f"{command} --graph-limit {int(size) - few}") for few in (0, 1))
    ended = document(f"{command} --max-batch-size {512 if 'eagle3' in words else 158}")
    gains = [each["rows"][int(place) - 1]["speedup"] for each in (enough, ended)]
    means = [value(each, "mean_speedup") for each in (enough, less)]
    assert [f"{gain:.2f}" for gain in (means[0], *gains)] == [mean, more, here]
    assert means[1] < 1.0001 * means[0]  # of schedules within a percent
    assert len(ended["ranges"]) > 1
    lengths = {each["draft_length"] for each in enough["ranges"]}
    assert lengths == {int(one)} if one else len(lengths) > 1


def test_a_schedule_ends_at_the_last_batch_size_that_may_gain_more_than_a_percent(run, rows):
    """Unless its end was typed: then all is in it, and the verdict says where it stops paying."""
    command = "schedule gpt-oss-120b h200 --for vllm --drafter eagle3 --acceptance-rate 0.5"
    typed = f"{command} --max-batch-size 512"
    whole = rows(typed)
    worth = {row["batch_size"] for row in whole if row["draft_length"] and row["speedup"] > 1.01}
    worth |= {row["batch_size"] for row in whole if row["speedup_low"] > 1}
    assert len(whole) == 512 > len(rows(command)) == max(worth) > 256
    for words in (command, typed):
        told = run(words, one_line=True)
        assert f"Above batch size {max(worth)}, speculation stops paying: " in told
        assert f"at batch sizes {max(worth) + 1}-512, even" in told
    free = "schedule mixtral-8x7b h100 --for vllm --drafter ngram --acceptance-rate 0.6"
    last = rows(free)[-1]
    assert (last["draft_length"], last["speedup"], last["fits"]) == (0, 1.0, True)
    assert f"--max-num-seqs {last['batch_size']} " in run(free, one_line=True)


def test_the_start_command_holds_the_schedule_and_the_layout(run, document):
    words = BASE.replace("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B")
    words += " --max-batch-size 300 --tensor-parallel 2"
    text = run(words)
    command = text[text.index("vllm serve") : text.index("'\nUnder data") + 1]
    _, _, model, *options = shlex.split(command.replace("\\\n", ""))
    assert model == "Qwen/Qwen3-30B-A3B"
    started = {"--tensor-parallel-size": "2", "--max-num-seqs": "300"}
    started |= {"--speculative-config": "\n" + document(words)["fragment"]}
    assert dict(zip(options[::2], options[1::2], strict=True)) == started


RECURRENT = "qwen3.5-122b-a10b 2xh200 --drafter mtp --set target.expert_dtype=fp4"


def test_schedule_to_what_fits_says_for_which_draft(run, rows):
    given = f"schedule {RECURRENT} --acceptance-rate 0.8 --for sglang --context-length 65536"
    lengths = [row["draft_length"] for row in rows(given)]
    told = f"at context 65536 and draft length {max(lengths)}"
    words = f"of the schedule: {len(lengths)}, the largest that fits in memory {told}"
    assert words in run(given, one_line=True)
    point = f"--context-length 65536 --acceptance-rate 0.8 --draft-length {max(lengths)}"
    point += f" --engine sglang --batch-size {len(lengths)},{len(lengths) + 1}"
    assert [row["fits"] for row in rows(f"predict {RECURRENT} {point}")] == [True, False]


@pytest.mark.parametrize("engine", ["", " --engine sglang", " --engine vllm-moesd-2025"])
def test_a_schedule_has_the_states_of_the_engine_that_it_is_for(document, engine):
    """SGLang copies the accepted state after a pass, vLLM does not, whosever times are taken."""
    point = f"{RECURRENT} --acceptance-rate 0.7 --max-draft-length 2 --max-batch-size 4{engine}"
    gains = []
    for name, slots in (("vLLM", "aligned"), ("SGLang", "scratch")):
        command = f"schedule --for {name.lower()} {point}"
        own = document(command)
        assert own["rows"] == document(f"{command} --set engine.state_slots={slots}")["rows"]
        assert own["assumptions"]["state_slots"].endswith(f"as in {name}")
        gains.append(own["rows"][-1]["best_speedup"])
    assert gains[0] > gains[1]
