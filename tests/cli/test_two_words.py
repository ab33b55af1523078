"""A first answer from two words: what is taken, what is said of it, and words that do not do."""

import io
import json
import re
import shlex
import sys

import pytest
from rows import each_row
from shapes import CONFIG

from specmodel import Acceptance, cli, load_engine, predict
from specmodel.base.units import parse_seconds
from specmodel.cli.commands import main_group
from specmodel.cli.helping import GROUPS
from specmodel.prediction.evaluate import LIMITS as ALL_LIMITS
from specmodel.prediction.table import seconds
from specmodel.show.behind import FOR_PROGRAMS
from specmodel.show.glossary import LIMITS, WORDS, policy_words

COMMANDS = main_group.list_commands(None)


@pytest.fixture
def run(capsys):
    """Run a command line that must succeed; return what it prints, in one line if asked for."""

    def run(command, one_line=False):
        status = cli.main(shlex.split(command))
        out, err = capsys.readouterr()
        assert status == 0, err
        return " ".join(out.split()) if one_line else out

    return run


def test_two_words_are_the_options_that_they_stand_for(run):
    words = json.loads(run("predict qwen3.5-397b h200 --json"))
    options = "--target qwen3.5-397b-a17b --hardware h200_sxm --drafter mtp --acceptance preset"
    typed = json.loads(run(f"predict {options} --batch-size 1:256:x2 --max-draft-length 8 --json"))
    assert words["rows"] == typed["rows"]
    assert words["deployment"] == typed["deployment"]
    assert words["deployment"]["tensor_parallel"] == 8


def test_the_first_lines_say_the_answer_and_what_was_taken(run):
    text = run("predict qwen3.5-397b h200 --verbose")
    assert text.startswith("Turn it on. Speculation pays")
    assert "surely: right in 99% of published cases" in " ".join(text.split())
    assert "80 % interval" in " ".join(text.splitlines()[:2])
    opening = " ".join(text.partition("\n\n")[0].split())
    assert "Qwen3.5-397B-A17B + MTP head on 8 x NVIDIA H200 SXM" in opening
    told = re.search(
        r"Acceptance: ([\d.]+) of (\d) tokens a step \([^)]* by task\), (.{36})", opening
    )
    rows = json.loads(run("predict qwen3.5-397b h200 --json"))["rows"]
    best = max(rows, key=lambda row: row["speedup"])
    assert told[1] == f"{best['tokens_per_step']:.2f}"
    assert told[2] == str(best["draft_length"] + 1)
    assert told[3] == "qwen3.5-397b-mtp (InferenceX: SPEED-"
    below = " ".join(text.partition("\n\nbatch ")[2].split())
    for said in (
        "Yours to give: gpus 8 (the fewest that hold weights, drafter and 32 requests",
        "drafter mtp (as in vLLM recipes",
        "context_length 1024",
        "prefill none carried",
        "weight_dtype bf16",
        f"Engine: {load_engine('vllm').fit.fitted_on.version}",
    ):
        assert said in below, said
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "command", ["predict qwen3.5-397b h200", "schedule qwen3-30b-a3b h200 --for sglang"]
)
def test_verbose_tells_all_that_json_says_was_assumed(run, command):
    assumed = json.loads(run(f"{command} --json"))["assumptions"]
    opening, _, below = run(f"{command} --verbose", one_line=True).partition("Assumed: ")
    assert assumed.pop("acceptance") in opening
    for name in assumed.keys() - FOR_PROGRAMS:
        assert f"{name} {assumed[name]}" in below


def test_the_first_screen_is_short(run):
    lines = [line for line in run("predict qwen3.5-397b h200").splitlines() if line]
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (0.9, r"Turn it on\. Speculation pays: "),
        (0.1, r"Leave it off\. Speculation does not pay: "),
        (
            0.5,
            r"Too close to call: it pays from [\d.]+ tokens a step of 3 drafted\. Speculation may ",
        ),
    ],
)
def test_the_first_words_say_what_to_do(run, rate, told):
    words = "predict qwen3-30b h100 --drafter eagle3 --draft-length 3 --batch-size 4"
    text = run(f"{words} --acceptance-rate {rate}", one_line=True)
    assert re.match(told, text)
    if needed := re.match(r"Too close.* from ([\d.]+) ", text):
        (row,) = json.loads(run(f"{words} --tokens-per-step {needed[1]} --json"))["rows"]
        assert row["speedup"] == pytest.approx(1, abs=0.01)


ONE_LENGTH = re.compile(
    r"One length for all: (\d+)(?: \([\d-]+ as good(?:; no room at ([\d-]+))?\))?"
    r"(?:, (\d+)% below best on average)?\. "
)


@pytest.mark.parametrize("words", ["qwen3.5-397b h200", "qwen3-30b-a3b h200"])
def test_one_length_for_all_keeps_the_largest_mean_share_of_the_best(run, words):
    told = ONE_LENGTH.search(run(f"predict {words}", one_line=True)).groups()
    lengths = f"predict {words} --view lengths --batch-size 1:256:x2 --json"
    gains = {}
    for row in json.loads(run(lengths))["rows"]:
        own = gains.setdefault(row["batch_size"], {})
        own[row["draft_length"]] = row["speedup"] if row["fits"] else 0
    losses = {
        length: {size: 1 - own[length] / max(own.values()) for size, own in gains.items()}
        for length in gains[1]
    }
    best = min(losses, key=lambda length: sum(losses[length].values()))
    held = [size for size, loss in losses[best].items() if loss == 1]
    served = {size: loss for size, loss in losses[best].items() if loss < 1}
    lost = sum(served.values()) / len(served)
    assert told == (str(best), "256" if held else None, f"{100 * lost:.0f}")
    assert held in ([], [256])


@pytest.mark.parametrize(
    "words", ["qwen3.5-397b h200", "qwen3-30b-a3b h200", "qwen3-30b-a3b h200 --engine sglang"]
)
def test_the_options_to_paste_draft_the_one_length(run, words):
    text = run(f"predict {words}", one_line=True)
    found = r"Paste into [\w. -]+(?: \(.*?\))?: (--.*?)(?= Graphs| Layout:| Assumed:)"
    options = re.search(found, text)[1]
    rows = json.loads(run(f"predict {words} {options} --json"))["rows"]
    assert {str(row["draft_length"]) for row in rows} == {ONE_LENGTH.search(text)[1]}


def test_the_layout_that_carries_more_is_pointed_to_and_is_so(run):
    """Where no degree was typed; the numbers are those of compare."""
    text = run("predict qwen3.5-397b 8xh200", one_line=True)
    name, more, size = re.search(
        r"Layout: (.*?) carries (\d+)% more tokens/s at (\d+)", text
    ).groups()
    rows = json.loads(run(f"compare qwen3.5-397b 8xh200 --batch-size {size} --json"))["rows"]
    rates = {row["alternative"]: row["throughput"] for row in rows}
    assert f"{100 * (rates[name] / rates['TP8'] - 1):.0f}" == more
    for words in (
        "qwen3.5-397b 8xh200 --tensor-parallel 2",
        "qwen3-30b-a3b h200",
        "qwen3-32b 2xh200",
    ):
        assert "Layout:" not in run(f"predict {words}")


def test_numbers_are_those_of_python(run):
    rows = json.loads(run("predict qwen3-30b h100 --batch-size 4,32 --json"))["rows"]
    for row in rows:
        p = predict(
            target="qwen3-30b-a3b",
            hardware="h100_sxm",
            drafter="eagle3",
            batch_size=row["batch_size"],
            draft_length=row["draft_length"],
            acceptance=_measured("Qwen3-30B-A3B", "eagle3"),
        )
        assert row["speedup"] == float(p.speedup)
        assert row["speedup_low"] < row["speedup"] < row["speedup_high"]


def _measured(target, drafter):
    from specmodel.drafters.typical import measured_acceptance

    return measured_acceptance(target, drafter)


def test_without_a_measurement_the_question_is_turned_round(run):
    text = run("predict mixtral-8x7b h100", one_line=True)
    assert text.startswith("Acceptance is not known. Speculation pays from ")
    assert "(eagle3 of 21 targets, November 2026): the lower quartile gains" in text
    told = json.loads(run("predict mixtral-8x7b h100 --json"))
    for row in told["rows"]:
        assert "speedup" not in row
        assert row["speedup_lower_quartile"] < row["speedup_median"] < row["speedup_upper_quartile"]
        least = row["break_even_tokens_per_step"]
        assert 1 < least < row["draft_length"] + 1
    assert "acceptance" not in told["assumptions"]


@pytest.mark.parametrize("level", ["typical", "typical-low", "typical-high"])
def test_what_heads_of_a_kind_reach_is_taken_by_name_alone(run, level):
    text = run(f"predict mixtral-8x7b h100 --acceptance {level}", one_line=True)
    assert re.search(
        r"Acceptance: .* by task\), (median|lower quartile|upper quartile) of eagle3 heads", text
    )


def test_too_few_heads_leave_the_break_even_alone(run):
    text = run("predict mixtral-8x7b h100 --drafter ngram", one_line=True)
    assert "Too few heads of this kind are published" in text
    assert "quartile" not in text


@pytest.mark.parametrize(
    ("word", "degrees"),
    [("8xh200", (8, 1)), ("4*h200", (4, 1)), ("16xH200", (8, 2)), ("1xb200", (1, 1))],
)
def test_a_count_fixes_the_gpus(run, word, degrees):
    told = json.loads(run(f"predict mixtral-8x7b {word} --drafter ngram --json"))
    deployment = told["deployment"]
    assert (deployment["tensor_parallel"], deployment["data_parallel"]) == degrees
    assert "gpus" not in told["assumptions"]


def test_a_count_and_a_degree_give_the_other(run):
    told = json.loads(run("predict --view plain mixtral-8x7b 8xh200 --tensor-parallel 4 --json"))
    assert told["deployment"]["data_parallel"] == 2


def test_a_tpot_target_keeps_the_rows_that_meet_it_and_names_the_largest_batch(run):
    text = run("predict qwen3-30b h100 --tpot-target 6ms", one_line=True)
    rows = json.loads(run("predict qwen3-30b h100 --batch-size 1:64 --json"))["rows"]
    fast = max(row["batch_size"] for row in rows if row["tpot"] <= 6e-3)
    plain = max(row["batch_size"] for row in rows if row["forward_time"] <= 6e-3)
    told = r"the largest batch is {} \(80 % interval (\d+) to (\d+)\) with speculation, {} \("
    low, high = map(int, re.search(told.format(fast, plain), text).groups())
    ends = {row["batch_size"]: (row["tpot_low"], row["tpot_high"]) for row in rows}
    assert low == max(size for size, (_, latest) in ends.items() if latest <= 6e-3)
    assert high == max(size for size, (soonest, _) in ends.items() if soonest <= 6e-3)
    kept = json.loads(run("predict qwen3-30b h100 --tpot-target 0.006 --json"))["rows"]
    assert kept
    assert all(row["tpot"] <= 6e-3 for row in kept)
    assert text.startswith("Within 6ms a token, the largest batch is")
    assert "requests that come and wait (specmodel load --tpot-target 6ms)" in text
    assert fast in [row["batch_size"] for row in kept]  # the answer has its row
    for size in re.findall(r"x at batch size (\d+)", text):  # and the verdict is of such rows
        assert int(size) in [row["batch_size"] for row in kept]
    bare = run("predict qwen3-30b h100 --tpot-target 6ms --no-interval", one_line=True)
    assert f"is {fast} with speculation, {plain} without" in bare
    typed = run("predict qwen3-30b h100 --tpot-target 6ms --batch-size 2,64 --draft-length 3",
                one_line=True)  # fmt: skip
    assert re.search(
        f"is {fast} .* with speculation, {plain} ", typed
    )  # and not of typed ones alone
    unmet = run("predict qwen3-30b h100 --tpot-target 1us", one_line=True)
    assert unmet.startswith("No batch meets 1us: least ")


@pytest.mark.parametrize(
    ("words", "target"),
    [("qwen3-30b h100", "6ms"), ("qwen3.5-397b h200", "20ms"), ("qwen3-30b 1xb200", "8ms")],
)
def test_the_next_batch_is_beyond_a_plain_tpot_target(run, words, target):
    """The largest batch is asked for alone, and so is the next: one is within, one is not."""
    text = run(f"predict {words} --tpot-target {target}", one_line=True)
    fast, plain = map(int, re.search(r"is (\d+) .*with speculation, (\d+) ", text).groups())
    most = parse_seconds("tpot_target", target)
    for size, name in ((fast, "tpot"), (plain, "forward_time")):
        words_at = f"predict {words} --batch-size {size},{size + 1} --json"
        last, beyond = json.loads(run(words_at))["rows"]
        assert last["fits"]
        assert last[name] <= most
        assert not beyond["fits"] or beyond[name] > most
    _, beyond = json.loads(run(f"predict {words} --batch-size 1,{fast + 1} --json"))["rows"]
    assert f"At {fast + 1} it takes {seconds(beyond['tpot'], most)}" in text
    last, _ = json.loads(run(f"predict {words} --batch-size {fast},{fast + 1} --json"))["rows"]
    is_shorter = beyond["draft_length"] < last["draft_length"]
    assert (f"as no CUDA graph holds drafts of {last['draft_length']} there" in text) == is_shorter


def test_lengths_that_were_typed_are_answered_without_an_acceptance(run, refuse):
    few = json.loads(run("predict mixtral-8x7b h100 --draft-length 2,3 --json"))["rows"]
    assert {row["draft_length"] for row in few} <= {2, 3}
    even = json.loads(run("break-even mixtral-8x7b h100 --draft-length 2,3 --json"))["rows"]
    for row in few:
        rates = {
            each["draft_length"]: each["break_even_acceptance_rate"]
            for each in even
            if each["batch_size"] == row["batch_size"]
        }
        needed = rates[row["draft_length"]]
        assert row["break_even_acceptance_rate"] == pytest.approx(needed, rel=1e-9)
    longer = run("predict mixtral-8x7b h100 --draft-length 9")
    assert "Published heads of this kind draft chains of at most 7." in longer
    assert "--draft-length: got 0" in refuse("predict mixtral-8x7b h100 --draft-length 0:3")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("predict deepseek-v3 2xh100 --batch-size 1", "1,024 tokens are 16. "),
        ("predict mixtral-8x7b 1xh100 --batch-size 1", "1,024 tokens are 2. "),
        ("predict kimi-k3 8xl4 --batch-size 1 --acceptance-rate 0.5", "so that 71 would do; at "),
    ],
)
def test_gpus_that_hold_nothing_are_told_with_how_many_would_do(run, command, told):
    text = run(command, one_line=True)
    assert "Not one request fits: " in text
    assert told in text
    enough = run(command.replace("2x", "16x").replace("1x", "2x").replace("8xl4", "8xb300"))
    assert "Not one request fits" not in enough


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_the_page_fits_the_terminal(run, columns, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in ("predict qwen3-30b h100", "predict mixtral-8x7b h100"):
        lines = run(command).splitlines()
        rows = [line for line in lines if re.match(r" *\d+  +\d", line)]
        assert len(rows) == (9 if "mixtral" in command else 8)  # 256 requests have no room
        # names stay with their values
        words = [line for line in lines if " " in line and "--speculative-config" not in line]
        assert max(map(len, words)) <= max(columns, 24)
        assert max(map(len, lines)) > min(columns, 80) / 2
        assert ("Columns without room here" in " ".join(lines)) == (columns < 80)


def test_a_folder_without_a_slash_and_standard_input_are_read(run, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    of_folder = json.loads(run("predict --view plain mine h100 --json"))
    assert of_folder["deployment"]["target"] == "mine"
    told = io.TextIOWrapper(io.BytesIO(json.dumps(CONFIG).encode()))
    monkeypatch.setattr(sys, "stdin", told)
    assert json.loads(run("predict --view plain - h100 --json"))["rows"] == of_folder["rows"]


VLLM = '{"method": "eagle3", "model": "RedHatAI/x", "num_speculative_tokens": 5}'
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
MODULE = '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'
SGLANG = "--speculative-algorithm"
CHAIN = "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


@pytest.mark.parametrize(
    ("flags", "drafter", "length", "engine"),
    [
        (f"--speculative-config '{VLLM}'", "EAGLE-3 head", 5, "vLLM"),
        (f"--speculative-config '{NGRAM}'", "n-gram look-up", 4, "vLLM"),
        (f"--speculative-config '{MODULE}'", "MTP head", 1, "vLLM"),
        (f"{SGLANG} EAGLE3 --speculative-num-steps 3 {CHAIN}", "EAGLE-3 head", 3, "SGLang"),
        (f"{SGLANG} EAGLE --speculative-num-steps 2", "MTP head", 2, "SGLang"),
        (f"{SGLANG} NEXTN --speculative-num-draft-tokens 4", "MTP head", 3, "SGLang"),
    ],
)
def test_flags_of_a_start_command_are_taken(run, flags, drafter, length, engine):
    told = json.loads(run(f"predict qwen3-30b h100 {flags} --acceptance-rate 0.7 --json"))
    assert told["deployment"]["drafter"] == drafter
    assert told["deployment"]["engine"].startswith(engine)
    assert {row["draft_length"] for row in told["rows"]} == {length}


def test_a_tree_of_sglang_is_a_tree(run):
    flags = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4"
    flags += " --speculative-num-draft-tokens 16 --tokens-per-step 2.8"
    told = json.loads(run(f"predict qwen3-30b h100 {flags} --json"))
    assert {row["verify_tokens"] for row in told["rows"]} == {16}


SPEC = "predict qwen3-30b h100 --speculative-config"
MAGIC = '{"method": "magic"}'
STRANGE = '{"method": "mtp", "num_speculative_token": 1}'
BAD = [
    ("predict h200 qwen3-30b", "expected the model first, then the GPU: qwen3-30b h200"),
    ("predict qwen3-30b", "--hardware: none given; expected a GPU, as in specmodel predict"),
    ("help", "command: got 'help'; expected specmodel --help, or specmodel COMMAND --help"),
    ("list", "kind: none given; expected acceptance, architectures, "),
    ("predict qwen3-30b h200 --tpot-target 20", "expected a time with its unit: 20ms or 20s"),
    ("predict qwen3-30b h200 --target mixtral-8x7b", "one of the word and the option"),
    ("predict qwen3-30b h200 b200", "words: got 'qwen3-30b h200 b200'; expected at most two"),
    ("predict qwen3-235b t4", "so that 31 would do; at most 8 of them can share it"),
    ("predict mixtral-8x7b 0xh200", "at least one GPU"),
    ("predict mixtral-8x7b 8xh200 --tensor-parallel 16", "whose product is 8"),
    ("predict nobody/nothing h200", "local cache"),
    ("predict qwen3-30b h200 --tpot-target fast", "a time above 0, such as 20ms"),
    ("predict qwen3-30b h200 --columns speed", "columns such as"),
    ("predict qwen3-30b h200 --columns tpot,tpot", "columns, each once"),
    ("predict mixtral-8x7b h200 --tpot-target 20ms", "an acceptance with it"),
    (
        "predict mixtral-8x7b h100 --drafter mixtral-8x7b --acceptance typical",
        "fewer than two targets",
    ),
    (f"{SPEC} nope", "nope"),
    (SPEC + " '{'", "well-formed JSON"),
    (f"{SPEC} '{MAGIC}'", "magic"),
    (f"{SPEC} '{STRANGE}'", "num_speculative_tokens, or no such key"),
    (f"{SPEC} '{VLLM}' --draft-length 3", "--draft-length: got '3'"),
    (f"{SPEC} '{VLLM}' --drafter mtp", "--drafter: got 'mtp'"),
    (f"{SPEC} '{VLLM}' --speculative-num-steps 3", "one engine"),
    ("predict qwen3-30b h100 --speculative-num-steps 3", "--speculative-algorithm with it"),
]


@each_row(("command", "said"), BAD)
def test_one_line_says_what_would_do(command, said, refuse):
    refuse(command, said)


@pytest.mark.parametrize("name", ["mine", "./mine"])
def test_a_folder_without_a_configuration_is_one_line(name, refuse, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "a config.json in this folder, which has none" in refuse(f"predict {name} h200")


@pytest.mark.parametrize("content", ["", "   ", "not: json", "{", "[]"])
def test_what_no_model_is_on_standard_input_is_one_line(content, refuse, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert "--target" in refuse("predict - h200")


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ("8xh200,8xb200 --weight-dtype bf16,fp8", ["8xh200_sxm, bf16", "8xb200, fp8"]),
        ("8xh200 --tensor-parallel 8,1 --data-parallel 1,8", ["TP8 DP1", "TP1 DP8"]),
        ("8xh200 --engine vllm,sglang --draft-length 2,3", ["vllm, length 2", "sglang, length 3"]),
        (
            "h200 --tensor-parallel 4,8 --kv-dtype bf16,fp8",
            ["TP4, KV bf16 on 4 GPUs", "TP8, KV fp8 on 8 GPUs"],
        ),
        ("8xh200 --drafter mtp,eagle3 --acceptance-rate 0.8,0.6", ["mtp", "eagle3"]),
    ],
)
def test_whatever_may_be_a_list_is_compared(run, options, labels):
    told = json.loads(run(f"compare deepseek-v3 {options} --batch-size 1,32 --json"))
    alternatives = list(dict.fromkeys(row["alternative"] for row in told["rows"]))
    assert {*labels} <= {*alternatives}
    counts = [case["deployment"]["num_gpus"] for case in told["cases"]]
    assert "8x" not in options.split()[0] or counts == [8] * len(counts)


def test_break_even_says_what_a_better_head_is_worth(run):
    """The speedup with 0.1 tokens a step more, less that without."""
    found = "break-even mixtral-8x7b h100 --batch-size 8 --draft-length 3"
    (row,) = json.loads(run(f"{found} --json"))["rows"]
    where = {"target": "mixtral-8x7b", "hardware": "h100_sxm", "tensor_parallel": 2}
    less, more = (
        float(
            predict(
                **where,
                drafter="eagle3",
                batch_size=8,
                draft_length=3,
                acceptance=Acceptance(tokens_per_step=tokens, measured_draft_length=3),
            ).speedup
        )
        for tokens in (2.0, 2.1)
    )
    assert row["speedup_per_token"] / 10 == pytest.approx(more - less, rel=1e-9)
    assert f"+{more - less:.3f}" in run(found)
    rate = row["break_even_acceptance_rate"]
    tokens = 1 + rate + rate**2 + rate**3
    assert f"pays from {tokens:.2f} tokens a step (rate {rate:.2f}) at" in run(found, one_line=True)


def test_lists_of_words_policies_and_heads_are_there(run):
    words = run("list words")
    assert all(word in words for word in [*WORDS, "limited by state"])
    policies = run("list policies")
    assert all(name in policies for name in policy_words())
    assert "def propose(self)" in run("simulate --help")
    heads = run("list acceptance")
    assert re.search(r"eagle3 \(21\)( +\d\.\d\d, \d\.\d\d, \d\.\d\d){3} +quartiles", heads)
    for text in (words, policies, heads, run("list presets"), run("acceptance")):
        assert max(map(len, text.splitlines())) <= 80


def test_acceptance_without_a_file_explains_itself(run):
    assert "curl -s http://localhost:8000/metrics > before.prom" in run("acceptance")


def test_a_sweep_takes_two_words_in_front_of_its_lists(run, refuse):
    told = "--batch-size 1,8 --draft-length 3 --acceptance-rate 0.7 --drafter ngram,eagle3"
    rows = run(f"sweep qwen3-30b,mixtral-8x7b 2xh100 {told}")
    options = "--target qwen3-30b-a3b,mixtral-8x7b --hardware 2xh100_sxm"
    assert rows == run(f"sweep {options} {told}")
    assert [row.split(",")[:3] for row in rows.splitlines()[1::2]] == [
        [target, drafter, "h100_sxm"]
        for target in ("qwen3-30b-a3b", "mixtral-8x7b")
        for drafter in ("ngram", "eagle3")
    ]
    assert "degrees whose product is 2, as so many GPUs are named" in refuse(
        f"sweep qwen3-30b 2xh100 --tensor-parallel 4 {told}"
    )


def test_an_option_that_is_missing_is_named_with_the_help(refuse):
    assert "(specmodel calibrate --help)" in refuse("calibrate", "'--device'")


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


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_stands_in_groups_and_nothing_is_cut_off(command, run):
    text = run(f"{command} --help")
    assert not re.search(r"[a-z]\.\.\.", text)
    known = {*GROUPS, f"For {command}", "Commands", "Options"}
    heads = re.findall(r"^([A-Z][\w ,-]+):$", text, re.MULTILINE)
    assert {*heads} <= known | {"Examples", "Example"}


def test_two_words_compare_the_layouts_of_several_gpus(run):
    """Each cuts matrices over some GPUs, with experts cut over all of them or spread whole."""
    told = json.loads(run("compare deepseek-v3 8xh200 --batch-size 1,64 --json"))
    of_eight = [("TP8", "TP8 EP8"), ("TP4 DP2", "TP4 DP2 EP8")]
    of_eight += [("TP2 DP4", "TP2 DP4 EP8"), ("DP8", "DP8 EP8")]
    names = [case["alternative"] for case in told["cases"]]
    assert names == [name for pair in of_eight for name in pair]
    typed = "--tensor-parallel 2 --data-parallel 4 --expert-parallel 8 --batch-size 1,64"
    alone = json.loads(run(f"predict deepseek-v3 8xh200 {typed} --json"))["rows"]
    rows = [row for row in told["rows"] if row["alternative"] == "TP2 DP4 EP8"]
    for row, same in zip(rows, alone, strict=True):
        for name in ("speedup", "tpot", "speedup_low", "speedup_high"):
            assert row[name] == pytest.approx(same[name], rel=1e-9)
    kept = json.loads(run("compare deepseek-v3 8xh200 --tensor-parallel 4 --batch-size 1 --json"))
    assert [case["alternative"] for case in kept["cases"]] == ["TP4 DP2", "TP4 DP2 EP8"]


def test_alternatives_within_a_time_per_token_are_those_of_predict(run):
    words = "qwen3-30b-a3b h100 --tpot-target 12ms"
    rows = json.loads(run(f"compare {words.replace('h100', 'h100,h200')} --json"))["rows"]
    told = run(f"predict {words}", one_line=True)
    largest, plain = re.search(r"batch is (\d+) .*with speculation, (\d+) ", told).groups()
    row = next(row for row in rows if row["alternative"] == "h100_sxm")
    assert (row["largest_batch_size"], row["largest_batch_size_plain"]) == (
        int(largest),
        int(plain),
    )
    rate = re.search(r"without: (\d+) tokens/s", told)[1]
    assert f"{row['throughput_per_gpu_within']:.0f}" == rate


@pytest.mark.parametrize(
    "words",
    [
        "predict qwen3-30b-a3b h200 --weight-dtype fp8,nvfp4",
        "predict qwen3-30b-a3b h100,h200",
        "predict --view terms qwen3-30b-a3b h200 --tensor-parallel 1,2",
        "predict qwen3-30b-a3b,mixtral-8x7b h200",
    ],
)
def test_a_list_for_one_thing_names_the_command_that_takes_lists(words, refuse):
    assert refuse(words).endswith("(lists: specmodel compare)\n")


def test_a_list_of_what_if_is_compared_each_as_predict_has_it(run, refuse):
    words = "qwen3-30b-a3b h100 --drafter eagle3 --batch-size 8"
    setting = "--set target.experts_per_token"
    told = json.loads(run(f"compare {words} {setting}=2,16 --json"))
    for value, row in zip((2, 16), told["rows"], strict=True):
        assert row["alternative"] == f"experts_per_token={value}"
        (alone,) = json.loads(run(f"predict {words} {setting}={value} --json"))["rows"]
        assert row["speedup"] == pytest.approx(alone["speedup"], rel=1e-9)
    assert "alternatives, each once" in refuse(f"compare {words} {setting}=2,2")


def test_acceptance_by_task_moves_the_best_speedup(run):
    """The ends are those of predictions with the rates that 80 % of the tasks of a head have."""
    words = "predict qwen3-30b-a3b h100 --acceptance-rate 0.7"
    found = r"a head has ([\d.]+) to ([\d.]+): ([\d.]+)x to ([\d.]+)x at batch size (\d+)\."
    told = re.search(found, run(words, one_line=True)).groups()
    few, many, least, most, where = map(float, told)
    rows = json.loads(run(f"{words} --json"))["rows"]
    best = max((row for row in rows if row["fits"]), key=lambda row: row["speedup"])
    size, length = best["batch_size"], best["draft_length"]
    assert size == where
    for tokens, gain in ((few, least), (many, most)):
        typed = f"--tokens-per-step {tokens} --draft-length {length} --batch-size {size}"
        (row,) = json.loads(run(f"predict qwen3-30b-a3b h100 {typed} --json"))["rows"]
        assert row["speedup"] == pytest.approx(gain, abs=0.01)
    published = run("predict qwen3-30b-a3b h100", one_line=True)
    assert re.search(r"of \d tokens a step \([\d.]+ to [\d.]+ by task\), qwen3", published)
    assert "of tasks" not in run("predict qwen3-30b-a3b h100 --drafter ngram --acceptance-rate 0.6")


def test_a_name_stands_once_in_a_list(refuse):
    told = refuse("compare qwen3-30b-a3b h100,h100")
    assert "each once" in told
    assert "lists: specmodel compare" not in told
    assert "lists: specmodel compare" in refuse("predict --view peak qwen3-30b-a3b h100,h200")
