"""`specmodel simulate`: what it says of traces, times, numbers and files that cannot be used."""

import re

import pytest
from rows import each_row
from simulated import HEAD, MEASURED, PREDICTED, check_refused

OF_MEASURED = [
    ("--trace ./absent.jsonl", "--trace: got 'absent.jsonl'", "No such file"),
    ("--trace ./cut.jsonl", "--trace", "./cut.jsonl", "line 3", "well-formed JSON"),
    *(
        (f"--step-times {name}.csv", *told)
        for name, *told in (
            ("absent", "--step-times: got 'absent.csv'", "No such file"),
            ("column", "--step-times:", "columns step_time as well"),
            ("gap", "--step-times draft_length:", "1 is missing"),
            ("zero", "--step-times step_time: got 0.0", "at least 1e-09"),
            ("blank", "--step-times step_time: got nan", "at least 1e-09"),
            ("text", "--step-times step_time: got 'fast'", "at least 1e-09"),
            ("ragged", "--step-times: got 'ragged.csv'", "well-formed"),
            ("overdone", "--step-times expert_time: got 1.2", "less than step_time = 1.2"),
        )
    ),
    ("--target mixtral-8x7b", "--step-times: got 'times.csv'", "no --target with it"),
    ("--set engine.pass_time=0", "--step-times: got 'times.csv'", "no --set with it"),
    ("--set drafter_upkeep=0", "--step-times: got 'times.csv'", "no --set with it"),
    ("--fixed-context", "--step-times: got 'times.csv'", "no --fixed-context"),
    ("--requests 5", "--requests: got 5;", "none, as the trace has its own"),
    ("--max-draft-length 8", "--max-draft-length: got 8;", "from 1 to 7"),
    ("--workers 0", "--workers: got 0;"),
    ("--set request_expert_spread=0.1", "expert_spread: got 0.1;", "no step time depends on"),
    ("--policy-state batch", "--policy-state", "'request', 'server'"),
    ("two more words", "words: got 'two more words'"),
    # what is written
    *((f"--records {name}.csv", f"--records: got '{name}.csv'", "than times.csv,")
      for name in ("times", "hard", "soft")),
    ("--policy none,table:short.csv --records short.csv", "--records:", "than table:"),
    ("--records x.txt", "--records: got 'x.txt'", "a .csv file"),
    ("--records absent/x.csv", "--records: got 'absent/x.csv'", "can be written", "No such file"),
    ("--records folder.csv", "--records: got 'folder.csv'", "can be written", "Is a directory"),
    ("--timeline x.gif", "--timeline: got 'x.gif'", ".png, .pdf or .svg"),
    ("--timeline folder.png", "--timeline: got 'folder.png'", "can be written"),
    ("--timeline x.png --request 12", "--request: got 12;", "0 to 11"),
    ("--timeline x.png --policy best-fixed", "--policy:", "such as fixed:3"),
    ("--request 3", "--request: got 3;", "--timeline FILE with it"),
]  # fmt: skip

OF_PREDICTED = [
    ("--trace code-ngrm", "--trace: got 'code-ngrm'", ".jsonl", "code-ngram"),
    ("--trace code-ngram+mth-ngram", "--trace: got 'mth-ngram'", ".jsonl", "math-ngram"),
    ("--trace ./rising.toml", "--trace ./rising.toml", "[0.7, 0.9]", "never rise"),
    ("--requests 0", "--requests: got 0;", "whole numbers from 1 to"),
    (
        "--requests 1000000 --output-tokens 1000000",
        *("--requests: got 1000000;", "at most 100000 of 1000000 tokens"),
    ),
    ("--max-draft-length 21", "--max-draft-length: got 21;", "1 to 20"),
    (f"--context-length {10**12}", f"--context-length: got {10**12};", "from 0 to"),
    ("--set timing_noise=-1", "--set timing_noise: got -1", "finite numbers from 0 to"),
    ("--set request_expert_spread=2", "--set request_expert_spread: got 2", "from 0 to"),
    ("--target llama-3.1-8b --set step_expert_spread=0.1", "got 0.1;", "no step time depends on"),
    ("--set drafter_upkeep=0.1", "drafter_upkeep: got 0.1;", "a model or head"),
    ("--trace math-ngram --set runaway_share=0.1", "--set runaway_share: got 0.1", "0, as"),
    ("--set runaway_share=2", "--set runaway_share: got 2"),
]

CASES = [
    ("simulate", "--trace: none given", "specmodel list presets"),
    (PREDICTED.replace("--trace code-ngram", ""), "--trace: none given"),
    *(
        (re.sub(rf"{option} \S+", "", PREDICTED), f"{option}: none given;", "or --step-times")
        for option in ("--target", "--drafter", "--hardware")
    ),
    (f"{HEAD} --set drafter_upkeep=nan", "--set drafter_upkeep: got nan;", "0 to 100"),
    (f"{HEAD} --set lookup_time=0.1", "--set lookup_time: got 0.1;", "ngram"),
    *((f"{MEASURED} {options}", *told) for options, *told in OF_MEASURED),
    *((f"{PREDICTED} {options}", *told) for options, *told in OF_PREDICTED),
]


@each_row(("command", "fragments"), [(command, told) for command, *told in CASES])
def test_one_line_names_the_argument_before_any_work(
    command, fragments, folder, capsys, monkeypatch
):
    check_refused(command, fragments, folder, capsys, monkeypatch)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("name", ["loop", "x" * 300])
def test_a_trace_that_cannot_be_opened_is_not_called_an_output(name, suffix, tmp_path, refuse):
    path = tmp_path / (name + suffix)
    if name == "loop":
        path.symlink_to(path)
    kind = {".jsonl": "JSON lines", ".csv": "CSV or Parquet"}[suffix]
    refuse(f"{MEASURED} --trace {path}", "error: --trace", f"a readable {kind} file (")
