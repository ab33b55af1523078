"""``specmodel schedule``: what it prints in each form, against ``predict``, and used wrong."""

import csv
import io
import re
import shlex
import subprocess
import sys

import pytest
from printed import in_one_line, parse
from rows import each_row

import specmodel

WHERE = " --target qwen3-30b-a3b --hardware h200_sxm"
EAGLE = WHERE + " --drafter eagle3 --acceptance-rate 0.7"
BASE = "schedule --for vllm" + EAGLE
SMALL = BASE + " --max-batch-size 64"
TENSORRT = SMALL.replace("vllm", "tensorrt-llm")
SGLANG = SMALL.replace("vllm", "sglang")
HOPELESS = SMALL.replace("0.7", "0.02")
CONTEXTS = SGLANG + " --context-length 1024,8192"
NGRAM = "schedule --for vllm" + WHERE + " --drafter ngram --proposal-rate 0.4"
BY_POSITION = SMALL.replace("--acceptance-rate 0.7", "--acceptance-by-position 0.8,0.7,0.6,0.5")
ON_T4 = SMALL.replace("h200_sxm", "t4") + " --tensor-parallel 1"
VARIETY = [
    BASE,
    TENSORRT,
    SGLANG,
    SGLANG + " --tolerance 0 --max-batch-size 512",
    HOPELESS,
    CONTEXTS,
    SMALL + " --max-batch-size 20000 --max-draft-length 2 --context-length 0,1000000",
    SMALL + " --engine sglang --tensor-parallel 4 --expert-parallel 8",
    NGRAM + " --tokens-per-step 1.5 --measured-draft-length 4 --max-batch-size 64",
    BY_POSITION,
    ON_T4,
]


PRINTED = {}
"""What commands printed that several tests look at."""


@pytest.fixture
def run_both(ended):
    """Run a command line that must succeed; return what it prints for people and on stderr."""

    def run(command):
        if command not in PRINTED:
            status, *PRINTED[command] = ended(command)
            assert status == 0
        return PRINTED[command]

    return run


@pytest.fixture
def run(run_both):
    def run(command):
        out, err = run_both(command)
        assert not err
        return out

    return run


@pytest.fixture
def document(run):
    return lambda command: parse(run(command + " --json"))


OUTSIDE = re.compile(r"the engine .+ was not fitted on .+")
"""What is said, once, of an engine beyond what it was fitted on."""


@pytest.mark.parametrize("command", VARIETY)
def test_json_is_strict_and_agrees_with_the_text_of_80_columns(command, run, document):
    answer = document(command)
    out = run(command)
    assert max(map(len, out.splitlines())) <= 80
    assert re.search("^Assumed: ", out.rstrip().rpartition("\n\n")[2], re.MULTILINE)
    single, more = answer["single_draft_length"], answer["gain_over_single"] - 1
    if f"The best single length, {single}, has " in in_one_line(out):
        assert f": the schedule has {more:.1%} more." in in_one_line(out)
    assert (answer["fragment"] or "") in out
    assert all(caveat in in_one_line(out) for caveat in answer["caveats"])
    assert bool(answer["fragment"]) == bool(answer["place"])
    is_vllm_alone = answer["for"] == "vllm" and "[" not in (answer["fragment"] or "")
    assert bool(answer["caveats"]) == (bool(answer["fragment"]) and not is_vllm_alone)
    assert answer["rows"][0].keys() == answer["units"].keys()
    assert [row["batch_size"] for row in answer["rows"]] == [*range(1, len(answer["rows"]) + 1)]
    ranges = [
        (r["first_batch_size"], r["last_batch_size"], r["draft_length"]) for r in answer["ranges"]
    ]
    by_size = [k for first, last, k in ranges for _ in range(first, last + 1)]
    assert by_size == [row["draft_length"] for row in answer["rows"]]
    gain = [row["speedup"] for row in answer["rows"]]
    least = [min(gain[first - 1 : last]) for first, last, _ in ranges]
    assert least == [r["min_speedup"] for r in answer["ranges"]]
    for first, last, length in ranges:
        span = f"{first}-{last}" if last > first else f"{first}"
        assert re.search(rf"^ *{span} +{length}( \([\d-]+\))? +\d", out, re.MULTILINE)
    if 0 in by_size and any(by_size):
        sure, possible = told_to_pay(in_one_line(out))
        gaining = {row["batch_size"] for row in answer["rows"] if row["speedup"] > 1}
        assert sure <= gaining <= sure | possible


def test_speedups_are_those_of_predict(document, run):
    rows = document(SMALL)["rows"]
    predict = "predict" + EAGLE + " --engine vllm --batch-size 1:64 --draft-length 1:10 --json"
    gain = {
        (row["batch_size"], row["draft_length"]): row["speedup"]
        for row in parse(run(predict))["rows"]
    }
    for row in rows:
        size = row["batch_size"]
        best = max(1.0, *(gain[size, k] for k in range(1, 11)))
        assert row["best_speedup"] == pytest.approx(best, rel=1e-12)
        chosen = gain[size, row["draft_length"]] if row["draft_length"] else 1.0
        assert row["speedup"] == pytest.approx(chosen, rel=1e-12)
        assert 0.99 * best <= chosen


@pytest.mark.parametrize("command", [SMALL, TENSORRT, SGLANG, CONTEXTS])
def test_fragment_alone_is_the_fragment_and_what_the_engine_makes_of_it(
    command, run_both, document
):
    out, err = run_both(command + " --fragment-only")
    answer = document(command)
    assert out == answer["fragment"] + "\n"
    names = {"vllm": "vLLM", "tensorrt-llm": "TensorRT-LLM", "sglang": "SGLang"}
    place = f"for {names[answer['for']]}, {answer['place']}"
    seats = {
        "vllm": "--max-num-seqs",
        "tensorrt-llm": "max_batch_size",
        "sglang": "--max-running-requests",
    }
    made_for = f"made for {seats[answer['for']]} 64"
    notes = [f"specmodel: note: {text}" for text in (place, made_for, *answer["caveats"])]
    told = [f"specmodel: warning: {text}" for text in answer["warnings"]]
    assert err.splitlines() == told + notes
    assert not any(re.match(r"(it|its)\b", note, re.I) for note in answer["caveats"])
    outside = [] if answer["for"] == "vllm" else [True]  # which was fitted on an H200
    assert [bool(OUTSIDE.fullmatch(text)) for text in answer["warnings"]] == outside


def test_what_happens_above_the_last_batch_size_is_said_where_no_command_ends_there(run, document):
    last = document(SGLANG)["rows"][-1]["draft_length"]
    assert last > 1
    for command, name, told in (
        (SGLANG, "SGLang", f"{last} tokens"),
        (TENSORRT, "TensorRT-LLM", "no draft"),
    ):
        assert f"; above, {name} goes on with {told}." in in_one_line(run(command))
    assert "goes on with" not in in_one_line(run(SMALL))
    assert "--max-num-seqs 64" in run(SMALL)


def test_the_graphs_that_were_typed_are_in_what_starts_the_engine(run, run_both, document):
    """Of the engine that the schedule is for, whose option differs."""
    assert "--max-num-seqs 64 --max-cudagraph-capture-size 300" in run(SMALL + " --graph-limit 300")
    assert "cudagraph" not in run(SMALL).partition("vllm serve")[2]
    _, notes = run_both(SMALL + " --graph-limit 300 --fragment-only")
    assert "made for --max-num-seqs 64 --max-cudagraph-capture-size 300\n" in notes
    place = document(SGLANG + " --graph-limit 40")["place"]
    assert place.endswith("FILE --cuda-graph-max-bs-decode 40")
    assert document(HOPELESS.replace("vllm", "sglang") + " --graph-limit 40")["place"] is None
    assert "cuda-graph" not in document(SMALL + " --graph-limit 40 --engine sglang")["place"]
    assert "capture-size" not in run(SMALL + " --graph-limit 40 --engine sglang")


def test_what_else_must_be_set_is_said(run, document):
    sglang = document(SGLANG)
    longest = max(row["draft_length"] for row in sglang["rows"])
    assert sglang["place"] == (
        "a FILE, with --speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFTER"
        f" --speculative-eagle-topk 1 --speculative-num-steps {longest}"
        f" --speculative-num-draft-tokens {longest + 1} --speculative-adaptive"
        " --speculative-adaptive-config FILE"
    )
    assert document(SMALL)["place"].endswith(", where DRAFTER is the drafter's path")
    fragment = parse(document(SMALL)["fragment"])
    assert (fragment["method"], fragment["model"]) == ("eagle3", "DRAFTER")
    assert "model" not in parse(document(NGRAM + " --acceptance-rate 0.7")["fragment"])
    assert document(NGRAM + " --acceptance-rate 0.7")["place"].endswith("between single quotes")


def test_csv_has_a_row_for_each_batch_size(run_both, document):
    rows = document(SGLANG)["rows"]
    out, err = run_both(SGLANG + " --csv")
    assert OUTSIDE.fullmatch(err.removeprefix("specmodel: warning: ").rstrip("\n"))
    table = list(csv.DictReader(io.StringIO(out)))
    assert all(" on " in row.pop("case") for row in table)
    assert table == [{name: str(value) for name, value in row.items()} for row in rows]


def test_where_nothing_pays_it_says_to_leave_it_off(run_both, run, document):
    out = run(HOPELESS)
    assert "pays at no batch size up to 64: leave it off." in out
    assert document(HOPELESS)["fragment"] is document(HOPELESS)["place"] is None
    assert "num_speculative_tokens" not in out
    for form in ("--fragment-only", "--csv"):
        printed, err = run_both(f"{HOPELESS} {form}")
        assert bool(printed) == (form == "--csv")
        (advice,) = (line.removeprefix("specmodel: warning: ") for line in err.splitlines())
        assert advice == "Speculation pays at no batch size up to 64: leave it off"


def test_a_gain_within_the_tolerance_is_not_worth_it(run, document):
    command = BASE + " --max-batch-size 300 --max-draft-length 1 --acceptance-rate"
    below = next(r / 100 for r in range(100) if document(f"{command} {r / 100}")["ranges"][1:])
    loose = f"{command} {below} --tolerance 0.5"
    assert "within the tolerance: leave it off" in in_one_line(run(loose))
    best = max(row["best_speedup"] for row in document(loose)["rows"])
    assert f"at most {best:.3f}x at batch size" in in_one_line(run(loose))


def test_what_tensorrt_llm_costs_is_said(run, document):
    free, bound = document(SMALL + " --engine tensorrt-llm"), document(TENSORRT)
    lengths = [row["draft_length"] for row in bound["rows"]]
    assert lengths[0] == max(lengths) > bound["rows"][0]["best_draft_length"]
    first = bound["rows"][0]
    assert bound["loss_at_batch_size_1"] == 1 - first["speedup"] / first["best_speedup"]
    cost = 1 - bound["mean_speedup"] / free["mean_speedup"]
    assert bound["cost_of_rule"] == pytest.approx(cost)
    told = "TensorRT-LLM wants its longest draft at batch size 1, which costs"
    assert f"{told} {cost:.1%} over all batch sizes." in in_one_line(run(TENSORRT))
    assert "wants" not in run(SMALL)
    assert free["cost_of_rule"] == 0


def test_contexts_in_a_table_and_as_a_mean(run, document):
    parts = [document(f"{SGLANG} --context-length {c}") for c in (1024, 8192)]
    both = document(CONTEXTS)
    for k, row in enumerate(both["rows"]):
        best = [part["rows"][k]["best_speedup"] for part in parts]
        assert row["best_speedup"] <= (best[0] * best[1]) ** 0.5 * (1 + 1e-12)
    table = run(CONTEXTS).partition(" has every batch size):\n")[2]
    cells = [line.split() for line in table.partition("\n\n")[0].splitlines()]
    assert cells[0] == ["context", "1", "2", "4", "8", "16", "32", "64"]
    for line, part in zip(cells[1:3], parts, strict=True):
        own = [str(part["rows"][int(size) - 1]["draft_length"]) for size in cells[0][1:]]
        assert line[1:] == own
    assert [line[0] for line in cells[1:]] == ["1024", "8192", "schedule"]
    chosen = [str(both["rows"][int(size) - 1]["draft_length"]) for size in cells[0][1:]]
    assert cells[3][1:] == chosen
    assert "Draft length by context" not in run(SGLANG)
    for context, part in zip(both["contexts"], parts, strict=True):
        size = part["rows"][-1]["batch_size"]
        assert context["best_ranges"][-1][1] == size
        assert context["best_ranges"][0][2] == part["rows"][0]["best_draft_length"]


def test_rows_of_each_context_are_those_of_its_own_schedule(run_both, document):
    """In CSV and JSON, each up to what fits there, with acceptance as it is there."""
    acceptance = "--acceptance-by-context 1024:3.2,65536:1.5 --measured-draft-length 3"
    base = BASE.replace("--acceptance-rate 0.7", acceptance)
    several = f"{base} --context-length 1024,65536"
    rows = list(csv.DictReader(io.StringIO(run_both(several + " --csv")[0])))
    for context in document(several)["contexts"]:
        own = [row for row in rows if row["context_length"] == str(context["context_length"])]
        last = f" --max-batch-size {len(own)}"
        alone = document(f"{base} --context-length {context['context_length']}{last}")["rows"]
        for row, cells, expected in zip(context["rows"], own, alone, strict=True):
            assert row.pop("context_length") == context["context_length"]
            assert row == pytest.approx(expected)
            assert float(cells["speedup"]) == pytest.approx(row["speedup"])
        assert {row["fits"] for row in alone} == {True}
    lengths = [
        {row["draft_length"] for row in each["rows"]} for each in document(several)["contexts"]
    ]
    assert max(lengths[0]) > max(lengths[1])


def test_largest_batch_is_what_fits_in_memory(run, document):
    command = BASE + " --context-length 1024,65536"
    rows = document(command)["rows"]
    predict = "predict" + EAGLE + " --context-length 65536 --draft-length 10 --json --batch-size "
    assert parse(run(f"{predict}1"))["rows"][0]["max_batch_size"] == len(rows) < 512
    assert f"up to {len(rows)}, the largest that fits in memory at context 65536" in in_one_line(
        run(command)
    )
    assert document(command)["assumptions"]["max_batch_size"] == len(rows)
    larger = document(f"{BASE} --graph-limit 4096")
    assert larger["assumptions"]["max_batch_size"] == len(larger["rows"]) == 512
    assert "max_batch_size" not in document(SMALL)["assumptions"]
    beyond = document(f"{command} --max-batch-size {len(rows) + 1}")
    assert len(beyond["rows"]) == len(rows) + 1
    assert "largest batch that fits" in " ".join(beyond["warnings"])
    (graphs,) = document(command)["warnings"]  # at the shorter context
    assert "CUDA graph" in graphs


def test_pandas_and_scipy_stay_out():
    code = (
        "import sys\n"
        "from specmodel.cli import main\n"
        f"status = main({shlex.split(SGLANG)!r})\n"
        "heavy = {'pandas', 'scipy', 'matplotlib', 'torch'} & set(sys.modules)\n"
        "raise SystemExit(status or len(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


WRONG = [
    (BASE.replace("vllm", "trt"), "--for", "'trt'", "tensorrt-llm", "sglang"),
    (BASE.replace("--for vllm", ""), "Missing", "--for", "vllm", "tensorrt-llm", "sglang"),
    (BASE + " --engine vlm", "--engine: got 'vlm'", "vllm"),
    (SGLANG.replace("eagle3", "ngram"), "--drafter: got 'ngram'", "eagle, eagle3, mtp", "sglang"),
    (BASE + " --tolerance -0.1", "--tolerance: got -0.1"),
    (BASE + " --max-batch-size 0", "--max-batch-size: got 0"),
    (BASE + " --max-batch-size 100000", "--max-batch-size: got {", "100000", "200000 points"),
    (BASE + " --max-draft-length 0", "--max-draft-length: got 0", "from 1 to 1000"),
    (BY_POSITION + " --max-draft-length 5", "--max-draft-length: got 5", "at most 4"),
    (BASE + " --context-length 1:90000", "--max-batch-size: got {", "90000", "points"),
    (
        BASE.replace("--acceptance-rate 0.7", "").replace("qwen3-30b-a3b", "mixtral-8x7b"),
        "acceptance: none given",
        "--acceptance-rate 0.7",
    ),
    (
        BASE.replace("--acceptance-rate 0.7", "--tokens-per-step 1.5 --max-draft-length 1"),
        "--measured-draft-length: none given; expected the draft length at which tokens_per_step",
    ),
    (BASE + " --draft-length 3", "--draft-length"),
    (BASE + " --batch-size 3", "--batch-size"),
    (BASE + " --json --fragment-only", "--fragment-only: got True", "--json"),
    (BASE + " --csv --fragment-only", "csv: got True", "--fragment-only"),
]


@each_row("case", WRONG)
def test_wrong_input_ends_in_one_line(case, refuse):
    refuse(*case)


def told_to_pay(text):
    """Return the batch sizes at which the verdict says that it pays, and may pay or not."""
    found = []
    for verb in ("pays", "may pay or not"):
        spans = re.search(rf"{verb} at batch sizes? ([-\d]+(?:, [-\d]+)*)", text)
        ends = [span.split("-") for span in spans[1].split(", ")] if spans else []
        found.append({size for e in ends for size in range(int(e[0]), int(e[-1]) + 1)})
    return found


def test_a_schedule_that_does_not_fit_does_not_open_with_pays(run, document):
    """Neither where no batch fits nor where only some do; each row says whether it does."""
    for command, opening, fits in (
        (ON_T4, "Nothing fits in memory. If it did: speculation ", []),
        (
            f"{SMALL} --max-batch-size 900",
            "Only batch sizes up to {} fit in memory at context 1024. If all",
            [True],
        ),
    ):
        answer = document(command)
        marks = [row["fits"] for row in answer["rows"]]
        assert sorted({*marks}) == [False, *fits]
        largest = sum(marks)
        assert in_one_line(run(command)).startswith(opening.format(largest))
        assert [each["fits"] for each in answer["ranges"]][-1] is False
        if largest:
            longest = max(each["draft_length"] for each in answer["ranges"])
            told = f"the largest batch that fits is {largest} at draft length {longest}"
            assert answer["warnings"][0].endswith(told)
            assert f"to {largest}" in run(command)


def test_the_verdict_says_which_batch_sizes_lose_whatever_is_drafted_and_what_avoids_them(
    run, document
):
    """Where the drafter is loaded none costs too: the schedule is near the best of all lengths."""
    own = "qwen3-30b-a3b h200 --drafter eagle3 --acceptance-rate 0.5"
    command = f"schedule {own} --for vllm"
    rows = document(f"{command} --max-batch-size 512")["rows"]
    first = 1 + max(row["batch_size"] for row in rows if row["speedup"] >= 1)
    told = re.search(
        rf"above batch size {first - 1}: at {first}-512 the best length gives ([\d.]+)-([\d.]+)x",
        in_one_line(run(command)),
    )
    at = f"predict {own} --draft-length 0:7 --batch-size {first}:512"
    found = {}
    for row in document(at)["rows"]:
        found.setdefault(row["batch_size"], []).append(row["speedup"])
    losing = [row["speedup"] for row in rows[first - 1 :]]
    assert all(s >= 0.99 * max(found[first + i]) for i, s in enumerate(losing))
    assert [*told.groups()] == [f"{min(losing):.2f}", f"{max(losing):.2f}"]
    text = in_one_line(run(command))
    assert f"--max-num-seqs {first - 1} ends there." in text
    assert f"vllm serve MODEL --max-num-seqs {first - 1} " in text
    ended = document(command)
    assert [row["batch_size"] for row in ended["rows"]] == [*range(1, first)]
    assert parse(ended["fragment"])["num_speculative_tokens_per_batch_size"][-1][1] == first - 1
    assert f"on average up to {first - 1}," in text
    assert text.index("--graph-limit") < text.index("Without that, speculation stops paying")


@pytest.mark.parametrize("words", ["qwen3.5-397b h200", "qwen3-30b-a3b h200 --drafter eagle3"])
def test_what_larger_graphs_would_gain_is_what_they_gain(words, run, document):
    command = f"schedule {words} --for vllm"
    told = re.search(
        r"[Ww]ith --max-cudagraph-capture-size (\d+) \(here --graph-limit \1\)"
        r" (?:a schedule gives|one length, (\d), does at every batch size:) ([\d.]+)x on average"
        r"(?: up to 512)?, and at batch size (\d+) ([\d.]+)x in place of ([\d.]+)x\.",
        in_one_line(run(command)),
    )
    size, one, mean, place, more, here = told.groups()
    held, longest = (
        (f"{command} --graph-limit {n}" for n in (size, int(size) - 1)),
        document(f"{command} --max-batch-size {512 if 'eagle3' in words else 158}"),
    )
    (enough, less), rows = map(document, held), longest["rows"]
    assert f"{enough['mean_speedup']:.2f}" == mean
    assert f"{enough['rows'][int(place) - 1]['speedup']:.2f}" == more
    assert f"{rows[int(place) - 1]['speedup']:.2f}" == here
    assert less["mean_speedup"] < 1.0001 * enough["mean_speedup"]  # of schedules within a percent
    assert len(longest["ranges"]) > 1
    lengths = {each["draft_length"] for each in enough["ranges"]}
    assert lengths == {int(one)} if one else len(lengths) > 1
    assert "here --graph-limit" not in run(f"{command} --graph-limit {size}").partition("\n\n")[0]


def test_a_schedule_ends_at_the_last_batch_size_that_may_gain_more_than_a_percent(run, document):
    """Unless its end was typed: then all is in it, and the verdict says where it stops paying."""
    command = "schedule gpt-oss-120b h200 --for vllm --drafter eagle3 --acceptance-rate 0.5"
    ended, whole = document(command)["rows"], document(f"{command} --max-batch-size 512")["rows"]
    worth = [
        row["batch_size"]
        for row in whole
        if row["speedup_low"] > 1 or (row["draft_length"] and row["speedup"] > 1.01)
    ]
    assert len(whole) == 512 > len(ended) == max(worth) > 256
    assert whole[-1]["draft_length"] > 0
    told = f"stops paying above batch size {max(worth)}: at {max(worth) + 1}-512 the best"
    for words in (command, f"{command} --max-batch-size 512"):
        assert told in in_one_line(run(words))
    free = "schedule mixtral-8x7b h100 --for vllm --drafter ngram --acceptance-rate 0.6"
    last = document(free)["rows"][-1]
    assert (last["draft_length"], last["speedup"], last["fits"]) == (0, 1.0, True)
    assert f"--max-num-seqs {last['batch_size']} " in in_one_line(run(free))


def test_the_start_command_holds_the_schedule_and_the_layout(run, document):
    words = BASE.replace("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B")
    words += " --max-batch-size 300 --tensor-parallel 2"
    text = run(words)
    command = text[text.index("vllm serve") : text.index("'\nvLLM drafts") + 1]
    _, _, model, *options = shlex.split(command.replace("\\\n", ""))
    told = dict(zip(options[::2], options[1::2], strict=True))
    schedule = parse(told.pop("--speculative-config"))
    assert model == "Qwen/Qwen3-30B-A3B"
    assert told == {"--tensor-parallel-size": "2", "--max-num-seqs": "300"}
    assert schedule == parse(document(words)["fragment"])
    assert "vllm serve MODEL --max-num-seqs 64" in run(SMALL)


def test_targets_need_a_load(refuse):
    refuse("schedule --for vllm qwen3-30b-a3b h100 --tpot-target 12ms", "--for-load")


def test_python_plans_the_same(document):
    words = {"drafter": "eagle3", "acceptance": 0.7}
    plan = specmodel.schedule(
        *("qwen3-30b-a3b", "h200_sxm", "sglang"),
        **words,
        context_length=[1024, 8192],
        max_batch_size=64,
    )
    told = document(CONTEXTS)
    assert plan.rows() == told["rows"]
    assert plan.rows_by_context() == [row for each in told["contexts"] for row in each["rows"]]
    assert plan.fragment == told["fragment"]
    assert plan.place == told["place"]
    assert list(plan.warnings) == told["warnings"]
    free = specmodel.schedule("qwen3-30b-a3b", "h200_sxm", "sglang", **words)
    assert free.rows() == document(SGLANG.replace(" --max-batch-size 64", ""))["rows"]
