"""`specmodel simulate`: what it says of traces, times, numbers and files that cannot be used."""

import re
import shlex

import pytest
from rows import each_row
from simulated import HEAD, MEASURED, PREDICTED, check_refused

from specmodel import cli


def trace_case(name, *fragments):
    return f"{MEASURED} --trace ./{name}", "--trace", f"./{name}", *fragments


def times_case(name, *fragments):
    return f"{MEASURED} --step-times {name}", *fragments


TRACES = [
    ("simulate", "--trace: none given", "specmodel list presets"),
    (PREDICTED.replace("--trace code-ngram", ""), "--trace: none given"),
    *(
        (f"{PREDICTED} --trace {shlex.quote(text)}", f"--trace: got '{culprit}'", ".jsonl", near)
        for text, culprit, near in (
            ("code-ngrm", "code-ngrm", "code-ngram"),
            ("code-ngram+mth-ngram", "mth-ngram", "math-ngram"),
            ("trace.txt", "trace.txt", "code-ngram"),
        )
    ),
    (f"{MEASURED} --trace ./absent.jsonl", "--trace: got 'absent.jsonl'", "No such file"),
    (f"{PREDICTED} --trace ./rising.toml", "--trace ./rising.toml", "[0.7, 0.9]", "never rise"),
    trace_case("cut.jsonl", "line 3", "well-formed JSON"),
]

STEP_TIMES = [
    times_case("absent.csv", "--step-times: got 'absent.csv'", "No such file"),
    times_case("column.csv", "--step-times:", "columns step_time as well"),
    times_case("gap.csv", "--step-times draft_length:", "1 is missing"),
    *(
        times_case(f"{name}.csv", f"--step-times step_time: got {given}", "at least 1e-09")
        for name, given in (
            *(("zero", "0.0"), ("blank", "nan"), ("huge", "1e+300"), ("text", "'fast'")),
        )
    ),
    times_case("ragged.csv", "--step-times: got 'ragged.csv'", "well-formed"),
    times_case("overdone.csv", "--step-times expert_time: got 1.2", "less than step_time = 1.2"),
    *(
        (f"{MEASURED} {option}", "--step-times: got 'times.csv'", f"no {option.split()[0]} with it")
        for option in (
            *("--target mixtral-8x7b", "--stack typical", "--routing-correlation 0"),
            *("--set lookup_time=0", "--set engine.pass_time=0", "--set drafter_upkeep=0"),
        )
    ),
]

NUMBERS = [
    *(
        (f"{PREDICTED} {option} {value}", f"{option}: got {value};", "whole numbers from 1 to")
        for option, value in (("--requests", 0), ("--output-tokens", 10**30))
    ),
    (
        f"{PREDICTED} --requests 1000000 --output-tokens 1000000",
        "--requests: got 1000000;",
        "at most 100000 of 1000000 tokens",
    ),
    *(
        (f"{MEASURED} {option} 5", f"{option}: got 5;", "none, as the trace has its own")
        for option in ("--requests", "--output-tokens")
    ),
    *(
        (f"{PREDICTED} --max-draft-length {value}", f"--max-draft-length: got {value};", "1 to 20")
        for value in (0, 21)
    ),
    (f"{MEASURED} --max-draft-length 8", "--max-draft-length: got 8;", "from 1 to 7"),
    *(
        (f"{PREDICTED} --context-length {value}", f"--context-length: got {value};", "from 0 to")
        for value in (10**12,)
    ),
    *((f"{MEASURED} --workers {value}", f"--workers: got {value};") for value in (0, -1)),
    *(
        (f"{PREDICTED} {option}={value}", f"{option}: got {value}", "finite numbers from 0 to")
        for option in ("--set timing_noise", "--set request_expert_spread")
        for value in ("-1", "2")
    ),
    *(
        (f"{command} {option}=0.1", f"{option}: got 0.1;", "no step time depends on experts")
        for option in ("--set request_expert_spread", "--set step_expert_spread")
        for command in (MEASURED, PREDICTED + " --target llama-3.1-8b")
    ),
    *(
        (f"{HEAD} --set drafter_upkeep={value}", f"--set drafter_upkeep: got {value};", "0 to 100")
        for value in ("-1", "nan")
    ),
    (f"{PREDICTED} --set drafter_upkeep=0.1", "drafter_upkeep: got 0.1;", "a model or head"),
    (f"{HEAD} --set lookup_time=0.1", "--set lookup_time: got 0.1;", "ngram"),
    *(
        (re.sub(rf"{option} \S+", "", PREDICTED), f"{option}: none given;", "or --step-times")
        for option in ("--target", "--drafter", "--hardware")
    ),
]

OUTPUTS = [
    *(
        (f"simulate --trace trace.jsonl --step-times {times} --records {records}", *words)
        for times, records, words in (
            ("times.csv", "times.csv", ("--records: got 'times.csv'", "than times.csv,")),
            ("times.csv", "hard.csv", ("--records: got 'hard.csv'", "than times.csv,")),
            ("times.csv", "soft.csv", ("--records: got 'soft.csv'", "than times.csv,")),
        )
    ),
    (f"{MEASURED} --policy none,table:short.csv --records short.csv", "--records:", "than table:"),
    *(
        (f"{MEASURED} --timeline '{name}'", f"--timeline: got '{name}'", ".png, .pdf or .svg")
        for name in ("x.gif", "x")
    ),
    *(
        (f"{MEASURED} --timeline {name}", f"--timeline: got '{name}'", "can be written", fault)
        for name, fault in (("absent/x.png", "No such file"), ("folder.png", "Is a directory"))
    ),
    *(
        (f"{MEASURED} --records '{name}'", f"--records: got '{name}'", "a .csv file")
        for name in ("x.txt", "x")
    ),
    *(
        (f"{MEASURED} --records {name}", f"--records: got '{name}'", "can be written", fault)
        for name, fault in (("absent/x.csv", "No such file"), ("folder.csv", "Is a directory"))
    ),
    *(
        (f"{MEASURED} --timeline x.png --request {value}", f"--request: got {value};", "0 to 11")
        for value in (12, -1)
    ),
    (f"{MEASURED} --timeline x.png --policy best-fixed", "--policy:", "such as fixed:3"),
    (f"{MEASURED} --request 3", "--request: got 3;", "--timeline FILE with it"),
    (f"{MEASURED} two more words", "words: got 'two more words'"),
]  # fmt: skip

CASES = [*TRACES, *STEP_TIMES, *NUMBERS, *OUTPUTS]


@each_row(("command", "fragments"), [(command, told) for command, *told in CASES])
def test_one_line_names_the_argument_before_any_work(
    command, fragments, folder, capsys, monkeypatch
):
    check_refused(command, fragments, folder, capsys, monkeypatch)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("name", ["loop", "x" * 300])
def test_a_trace_that_cannot_be_opened_is_not_called_an_output(name, suffix, tmp_path, capsys):
    path = tmp_path / (name + suffix)
    if name == "loop":
        path.symlink_to(path)
    assert cli.main(shlex.split(MEASURED.replace("trace.jsonl", str(path)))) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith("specmodel: error: --trace")
    assert "a readable JSON lines file (" in err or "a readable CSV or Parquet file (" in err
