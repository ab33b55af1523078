"""`specmodel sensitivity`: what it prints, in each form, and what it says of bad input."""

import csv
import io
import re
import shlex

import pytest
from printed import in_one_line, parse
from rows import each_row

from specmodel import cli

COMMAND = (
    "sensitivity --target qwen3-30b-a3b --drafter eagle --hardware h200_sxm --batch-size 8"
    " --draft-length 3 --acceptance-rate 0.7 --samples 64"
)
LOOK_UP = COMMAND + " --drafter ngram --proposal-rate 0.4 --set lookup_time=1e-4"
DATA_SHEET = COMMAND + " --engine ideal --stack datasheet --routing-correlation 0.1"
VARIETY = [
    COMMAND,
    COMMAND + " --range acceptance_rate=0.6:0.8 --range draft_length=1:5 --range batch_size=1:64",
    COMMAND + " --target mixtral-8x7b --drafter mtp --weight-dtype fp8 --batch-size 4000",
    COMMAND + " --target deepseek-v3 --expert-parallel 16 --kv-dtype fp8 --drafter mtp",
    LOOK_UP + " --range proposal_rate=0:1 --range lookup_time=0:1e-3",
    LOOK_UP + " --target gpt-oss-120b --stack typical --set popularity_exponent=0.5",
    DATA_SHEET + " --range acceptance_rate=0.6:0.8",
    DATA_SHEET + " --batch-size 256 --range hardware.dtype.bf16.peak_flops_per_s=5e14:1e15"
    " --context-length 0",
]


@pytest.fixture
def run(capsys):
    """Run a command line that must succeed; return what it prints."""

    def run(command):
        status = cli.main(shlex.split(command))
        out, err = capsys.readouterr()
        assert all(line.startswith("specmodel: warning: ") for line in err.splitlines())
        assert not err or "--csv" in command
        assert status == 0
        return out

    return run


@pytest.mark.parametrize("command", VARIETY)
def test_people_see_80_columns_programs_all(command, run):
    out = run(command)
    assert len(max(out.splitlines(), key=len)) <= 80
    document = parse(run(command + " --json"))
    titles = ("1 % more of", "one at a time", "share of the variance", "Ranges:", "Assumed:")
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    assert f"peedup {document['speedup']:.2f}, " in out
    rows = list(csv.DictReader(io.StringIO(run(command + " --csv"))))
    assert all(row["value"] for row in rows)
    by_key = {
        (r["analysis"], r["input"], r["output"], r["quantity"]): float(r["value"]) for r in rows
    }
    assert len(by_key) == len(rows)
    for row in document["elasticities"]:
        assert by_key["elasticity", row["input"], "speedup", "elasticity"] == row["speedup"]
    for row in document["tornado"]:
        key = ("tornado", row["input"], "target_efficiency", "at_low")
        assert by_key[key] == row["target_efficiency_at_low"]
        assert by_key["tornado", row["input"], "", "high"] == row["high"]
    for row in document["sobol"]:
        assert by_key["sobol", row["input"], row["output"], "total_high"] == row["total_high"]
    count = 2 * len(document["elasticities"]) + 8 * len(document["tornado"])
    assert len(rows) == count + 6 * len(document["sobol"])


@pytest.mark.parametrize(
    ("question", "length"),
    [
        ("qwen3-30b-a3b h100 --drafter eagle3 --batch-size 16", 6),
        ("qwen3-30b-a3b h100 --acceptance-by-position 0.8,0.7 --batch-size 4", 2),
        ("mixtral-8x7b l40s --drafter ngram --acceptance-rate 0.7 --batch-size 1", None),
    ],
)
def test_predict_explain_and_sensitivity_agree_on_the_best_draft(question, length, run):
    found = parse(run(f"sensitivity {question} --samples 64 --json"))
    told = found["point"]["draft_length"]
    assert told == (length or told)
    assert found["assumptions"]["draft_length"] == f"{told} (the best at this batch size)"
    (predicted,) = parse(run(f"predict {question} --json"))["rows"]
    for name in ("speedup", "target_efficiency"):
        assert found[name] == pytest.approx(predicted[name], rel=1e-12)
        assert found["tornado"][0][f"{name}_nominal"] == pytest.approx(found[name], rel=1e-12)
    assert predicted["draft_length"] == told
    rows = list(csv.DictReader(io.StringIO(run(f"predict --view terms {question} --csv"))))
    ends = {row["quantity"]: float(row["value"]) for row in rows if row["term"] == "predicted"}
    assert ends == pytest.approx({name: found[name] for name in ends}, rel=1e-12)


def test_where_none_pays_the_shortest_draft_is_taken_and_said(run):
    question = "llama-3.1-8b h100 --drafter ngram --acceptance-rate 0.02 --batch-size 128"
    found = parse(run(f"sensitivity {question} --samples 64 --json"))
    assert found["point"]["draft_length"] == 1
    assert found["assumptions"]["draft_length"] == "1 (the shortest, as none pays here)"


def test_inputs_without_a_range_are_named(run):
    out, document = in_one_line(run(COMMAND)), parse(run(COMMAND + " --json"))
    told = out.split("(--range gives one): ")[1].split(". share")[0].split(", ")
    shown = [row["input"] for row in document["elasticities"][:15]]
    ranged = {row["input"] for row in document["tornado"]}
    assert told == [name for name in shown if name not in ranged]
    assert "batch_size" in told


def test_verdict_says_what_matters(run):
    command = COMMAND + " --engine ideal --stack datasheet --range routing_correlation=0:1"
    out, document = in_one_line(run(command)), parse(run(command + " --json"))
    row = document["tornado"][0]
    moved = f"{row['speedup_at_low']:.2f} to {row['speedup_at_high']:.2f}"
    assert f"{row['input']} moves it most, from {moved} and decides" in out


def test_routing_given_is_known(run):
    assert "routing_correlation" in {r["input"] for r in parse(run(COMMAND + " --json"))["tornado"]}
    document = parse(run(COMMAND + " --routing-correlation 0.2 --json"))
    assert "routing_correlation" not in {row["input"] for row in document["tornado"]}
    assert "routing_correlation" in {row["input"] for row in document["elasticities"]}


def test_what_no_range_moves_is_said(run):
    command = DATA_SHEET + " --range acceptance_rate=0.6:0.8"
    assert "No range moves the target efficiency." in run(command)
    assert {row["output"] for row in parse(run(command + " --json"))["sobol"]} == {"speedup"}


def test_too_large_a_batch_is_told(run, capsys):
    command = COMMAND + " --batch-size 4000"
    assert "Warning: batch size 4000 needs" in run(command)
    assert parse(run(command + " --json"))["warnings"]
    assert cli.main(shlex.split(command + " --csv")) == 0
    assert capsys.readouterr().err.startswith("specmodel: warning: batch size 4000 needs")


@each_row(("options", "message"), [
    ("--range acceptance_rat=0.1:0.2", "--range: got 'acceptance_rat'; .*acceptance_rate"),
    ("--range kernels.gemm.memory=0.1:0.2", "--range: got .*kernels.gemm.bf16.memory_efficiency"),
    ("--range link.hop_latency=0:1e-5", "--range: got 'link.hop_latency'"),
    ("--range acceptance_rate=0.8:0.6", "--range acceptance_rate: got '0.8:0.6'"),
    ("--range acceptance_rate=0.5:1.5", "--range acceptance_rate: got 1.5; .* from 0 to 1"),
    ("--range acceptance_rate", "--range: .*NAME=LOW:HIGH"),
    ("--range acceptance_rate=a:b", "--range: .*NAME=LOW:HIGH"),
    ("--range batch_size=1:2 --range batch_size=1:3", "--range batch_size: .*one range"),
    ("--samples 1000", "--samples: got 1000; expected a power of two"),
    ("--seed -1", "--seed: got -1"),
    ("--batch-size 1:4", "--batch-size.*not a valid integer"),
    ("--draft-length 0", "--draft-length: got 0; expected whole numbers from 1"),
    ("--tokens-per-step 2", "acceptance: got .*exactly one"),
    ("--proposal-rate 0.5", "--proposal-rate: got 0.5; expected the drafter ngram"),
    (
        "--engine ideal --stack datasheet --routing-correlation 0 --draft-length 1 --drafter ngram"
        " --range acceptance_rate=0.9:0.9000000001",
        "--range: got .'acceptance_rate'.; expected wider ranges",
    ),
])  # fmt: skip
def test_bad_input_is_one_line(options, message, refuse):
    line = refuse(f"{COMMAND} {options}")
    assert re.match(r"specmodel: error: .*" + message, line), line


def test_a_point_that_does_not_fit_is_called_so_first(run):
    told = run(COMMAND + " --target deepseek-v3 --drafter mtp --tensor-parallel 1")
    assert told.startswith("Nothing fits in memory. If it did: speedup ")
    assert "Nothing fits" not in run(COMMAND)
