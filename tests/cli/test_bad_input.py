"""Whatever is typed wrong: status 2, one line on stderr that names the argument and the value."""

import json
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from printed import check_one_line
from rows import cases, each_row

from specmodel import cli

BASE = (
    "predict --target qwen2-57b-a14b --drafter qwen2-0.5b --hardware h200_sxm"
    " --batch-size 4 --draft-length 3"
)
GOOD = BASE + " --acceptance-rate 0.7"
NGRAM = GOOD + " --drafter ngram"

PROFILE = """
schema_version = 1
name = "made up"
kind = "gpu"
num_multiprocessors = 100

[memory]
capacity_bytes = 8.0e10
peak_bytes_per_s = 2.0e12
l2_bytes = 4.0e7
source = "made up"

[dtype.bf16]
peak_flops_per_s = 3.0e14
source = "made up"
"""
CONFIG = {
    "model_type": "llama", "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 4,
    "intermediate_size": 2048, "vocab_size": 32000,
}  # fmt: skip


def profile(old: str, new: str) -> bytes:
    """The valid profile with one line changed."""
    assert PROFILE.count(old) == 1
    return PROFILE.replace(old, new).encode()


def config(**changes: object) -> bytes:
    """The valid configuration with keys changed; None takes one out."""
    keys = CONFIG | changes
    return json.dumps({key: value for key, value in keys.items() if value is not None}).encode()


FILES = {
    "good.toml": PROFILE.encode(),
    "good.json": config(),
    "malformed.toml": b"schema_version = = 1\n",
    "huge.toml": PROFILE.encode() + b"#" * 4_000_001,
    "escape.toml": profile('name = "made up"', 'name = "\\u001b[31m"'),
    "short.txt": b"0.5, 0.25 0.25",
    "digits.txt": "0.\N{ARABIC-INDIC DIGIT THREE} 0.7".encode(),
    "sum.txt": b"[" + b"0.5, " * 127 + b"0.5]",
    "engine.toml": b'schema_version = 1\nname = "a"\nsource = "a"\nkernel_time = -1e-6\n',
    "malformed.json": b'{"model_type": "llama",',
    "mamba.json": config(model_type="mamba"),
    "no_family.json": config(model_type=None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    (path / "folder.toml").mkdir()
    for name, content in FILES.items():
        (path / name).write_bytes(content)
    return path


def file_case(option, name, *fragments):
    return f"{option} {{folder}}/{name}", option, name, *fragments


KINDS = (
    "whose names specmodel list KIND tells: acceptance, architectures, columns, drafters, engines,"
    " hardware, policies, presets, words"
)
MANY = "qwen3-30b-a3b h100,h200 --acceptance-rate 0.7 --batch-size"
WORDS = [
    (
        f"compare {MANY} 1:99999",
        "--batch-size: got {'--batch-size': 99999",
        "at most 120000 points",
    ),
    (f"compare {MANY} 1:6001", "--batch-size: got {'alternatives': 2", "at most 120000 points"),
    (f"predict {MANY.replace('h100,', '')} 1:99999 --view lengths --draft-length 3", "points"),
    ("predict olmoe-1b-7b h100 --drafter eagle3 --gpu-hour-price 3", "--gpu-hour-price"),
    (
        "predict qwen2-57b-a14b h200 --drafter qwen2-0.5b --view lengths",
        "expected a rate of yours, such as --acceptance-rate 0.7, as none is published of",
    ),
    ("predict qwen3-8b h200 --drafter none --view lengths", "without a drafter, use --view plain"),
    (
        "predict qwen3-8b h200 --set engine.pass_time=1",
        "--set engine.pass_time: got 1.0",
        "; --force allows more",
    ),
    ("list nope", "name", "'nope'", "specmodel list"),
    (
        "list hardwar",
        "name: got 'hardwar'; expected hardware, another name, a path, or a kind",
        KINDS,
    ),
    ("list h200_sxn", "name: got 'h200_sxn'; expected h200_sxm, ", "another name", KINDS),
    (
        "list kimi-k3-dspark-block",
        "expected kimi-k3-dspark-block-verification, another name",
        KINDS,
    ),
    ("list eagle3", "name", "'eagle3'", "--drafter eagle3"),
    ("list hardware extra", "extra"),
    ("list {folder}/folder.toml", "folder.toml"),
    ("acceptance http://localhost:8000/metrics", "curl -s http://localhost:8000/metrics > "),
    ("predit", "command: got 'predit'; expected predict"),
    ("predict", "--target", "a model and a GPU"),
    ("predict qwen3-30b-a3b", "--hardware: none given; expected a GPU, as in specmodel predict"),
    ("predict qwen3-30b-a3b h100 --drafter none", "--drafter", "use --view plain"),
    ("predict mixtral-8x7b h200 --verify-tokens 8", "--verify-tokens", "8", "--draft-length with"),
    ("predict mixtral-8x7b h200 --max-draft-length 0", "--max-draft-length", "got 0;"),
    ("load qwen3-30b-a3b h100 --block-size 1", "No such option '--block-size'. It is --set bloc"),
    ("sweep qwen3-30b-a3b h200 --csv", "No such option '--csv'. What sweep prints is CSV"),
    ("trace preset code-eagle", "No such command 'preset'. Commands: describe, ngram, sample\n"),
    ("trace sample code-eagle", "Missing option '--output' (specmodel trace sample --help)\n"),
]

NAMES = [
    ("--target mixtral9x7b", "--target", "'mixtral9x7b'", "mixtral-8x7b"),
    ("--drafter egle", "--drafter", "'egle'", "eagle"),
    ("--hardware rtx", "--hardware", "'rtx'", "one of rtx_3090"),
    (f"--hardware {'h' * 5000}", "--hardware", "hhh...hhh"),
    ("--engine idael", "--engine", "'idael'", "ideal"),
    ("--target Qwen/Qwen3-30B-A3B-GGUF", "--target", "such as qwen3-30b-a3b"),
    (f"--target org/{'m' * 3000}", "--target", "mmm...mmm"),
    ("--hardware nvidia/H200", "--hardware", "'nvidia/H200'", "h200_sxm"),
    ("--hardware {folder}/escape.toml", "name", "x1b[31m"),
    ("--batchsize 1", "--batchsize", "--batch-size"),
    ("--batch-size", "--batch-size"),
    ("--json --csv", "csv: got", "--json", "--csv"),
    ("--drafter dflash:\N{SUPERSCRIPT TWO}", "--drafter", "a block of 1 to"),
    ("--drafter pard", "--drafter", "got 'pard';", "config.json with pard_token"),
    ("--stack nosuch", "--stack: got 'nosuch'", "trtllm, vllm, torch, typical, datasheet"),
    ("--hardware l4 --stack trtllm", "--stack: got 'trtllm'", "typical, datasheet", "L4"),
    ("--tp 2", "No such option '--tp'. It is --tensor-parallel here."),
    ("-tp 8 --mem-fraction-static=0.8", "'-t'. It is --tensor-parallel here. --mem-fraction"),
    ("--temp 1", "'--temp'. Here it is --temperature"),
    ("--dcp-size 1", "No such option '--dcp-size'. It is --set decode_context_parallel= here."),
    ("--spec-type draft-mtp", "is --drafter here. llama.cpp is not modelled"),
    ("-ngl 99 --n-cpu-moe 3", "No such option '-n'. llama.cpp is not modelled"),
    ("--weight-dtype Q4_K_M", "'Q4_K_M'", "q4_k, iq4_nl"),
    ("--draft-lm-head-quantization fp8", "Here it is --set drafter.head_dtype=fp8, or fp4"),
    ("--dspark-draft-topk fp8", "Here it is a key of the head's own config.json"),
    ("--rejection-sample-method fp8", "It takes no time: give the acceptance measured with it"),
]

LISTS = [
    (f"{option} {shlex.quote(text)}", option, shown)
    for option, text, shown in (
        ("--batch-size", "-1", "-1"),
        ("--draft-length", "four", "'four'"),
        ("--context-length", "1,,2", "'1,,2'"),
        ("--batch-size", "8:1", "'8:1'"),
        ("--draft-length", "1:8:0", "'1:8:0'"),
        ("--context-length", "0:8:x2", "'0:8:x2'"),
        ("--batch-size", "1:1000000000", "'1:1000000000'"),
        ("--draft-length", "1:60000,1:60000", "'1:60000,1:60000'"),
        ("--context-length", "1" + "0" * 5000, "000...000"),
        ("--batch-size", "1\n2\nx", r"'1\n2\nx'"),
        ("--context-length", "32k", "'32k'; expected 32768 or 32000 for 32k"),
    )
]

POINTS = [
    ("--batch-size 0", "--batch-size", "got 0"),
    ("--batch-size 1:100000 --context-length 1:100000", "--batch-size"),
    ("--draft-length 1001", "--draft-length", "got 1001", "1000"),
    ("--verify-tokens 9", "--verify-tokens", "9"),
    ("--draft-length 0 --verify-tokens 2", "--verify-tokens", "got 2;"),
    ("--interval --stack datasheet", "--interval:", "True", "typical", "datasheet"),
    ("--interval --batch-size 1:5001", "--interval:", "5001 points", "at most 5000"),
    ("--tensor-parallel 3", "--tensor-parallel", "got 3;", "2, 4"),
    ("--set draft_tensor_parallel=4", "--set draft_tensor_parallel", "got 4;", "1, 2"),
    ("--hardware {folder}/good.toml --data-parallel 2", "--data-parallel", "got 2;", "link"),
    ("--routing-correlation nan", "--routing-correlation", "nan"),
    ("--expert-dtype bf17", "--expert-dtype", "'bf17'", "bf16"),
    ("--kv-dtype fp8_e3m4", "--kv-dtype", "expected one of fp32"),
    ("--weight-dtype nvfp4 --set activation_dtype=fp8", "--set activation_dtype", "'fp8'", "fp4"),
    ("--hardware t4 --set activation_dtype=fp32", "--set activation_dtype", "'fp32'", "fp16"),
    ("--drafter ngram --set lookup_time=50min", "--set lookup_time: got '50min';", "20ms"),
    ("--drafter ngram --set lookup_time=50", "--set lookup_time: got '50';", "50ms or 50s"),
    ("--drafter ngram --proposal-rate 1.5", "--proposal-rate", "got 1.5;"),
    ("--proposal-rate 0.5", "--proposal-rate", "got 0.5;", "ngram"),
    ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 0", "-num-draft-tokens: got 0;"),
]

ACCEPTANCE = [
    *(
        (f"{option} {value}", option, value)
        for option, value in (
            ("--acceptance-rate", "'%'"),
            ("--tokens-per-step", "4.1"),
            ("--step-efficiency", "0.24"),
            ("--accepted-fraction", "1.1"),
            ("--acceptance-by-position", "'0.8,0.7,high'"),
            ("--acceptance-by-context", "'2048:high'"),
        )
    ),
    ("--acceptance-by-position 0.8,0.7", "--acceptance-by-position", "[0.8, 0.7]", "3"),
    ("--acceptance-rate 0.7 --tokens-per-step 2.1", "--acceptance-rate", "--tokens-per-step"),
    ("--components", "acceptance", "none given", "--acceptance-rate 0.7"),
    ("--draft-length 1,2 --step-efficiency 0.7", "--measured-draft-length", "none given"),
    ("--tokens-per-step 1.5 --measured-draft-length 0", "--measured-draft-length", "0"),
    ("--acceptance-rate 0.7 --measured-draft-length 3", "--measured-draft-length", "got 3;"),
    ("--tokens-per-step 3.5 --measured-draft-length 2", "--tokens-per-step", "got 3.5;"),
    ("--verify-tokens 9 --tokens-per-step 4.5", "--tokens-per-step", "got 4.5;"),
    ("--verify-tokens 9 --accepted-fraction 0.5", "--verify-tokens", "9"),
]

SETTINGS = [
    (f"--set {shlex.quote(setting)}", field, shown)
    for setting, field, shown in (
        ("hardware.memory.peak_bytes_per_s", "--set", "hardware.memory.peak_bytes_per_s"),
        ("memory.peak_bytes_per_s=1e12", "--set", "memory.peak_bytes_per_s=1e12"),
        ("", "--set", "''"),
        ("x" * 500, "--set", "xxx...xxx"),
        ("hardware.memory.bandwidth=1e12", "--set hardware.memory.bandwidth", "peak_bytes_per_s"),
        ("hardware.two\nlines=7", "--set hardware.two lines", "got 7;"),
        ("engine.kernel_time=-1e-6", "--set engine.kernel_time", "-1e-06"),
        ("target.num_kv_heads=3", "--set target.num_kv_heads", "got 3;"),
        ("target.weight_dtype=bf17", "--set target.weight_dtype", "'bf17'"),
        ("sync_scheduling=x", "--set sync_scheduling: got 'x'; expected true or false", ""),
        ("enforce_eager=", "--set enforce_eager: got ''; expected true or false", ""),
        ("eager_drafter=1", "--set eager_drafter: got 1; expected true or false", ""),
        ("engine.hides_host=true", "--set engine.hides_host: got True; expected 'none'", ""),
        ("engine.fuses_norms=yes", "--set engine.fuses_norms: got 'yes'", "boolean"),
    )
]

PROFILES = [
    file_case("--hardware", "malformed.toml", "TOML", "line 1"),
    file_case("--hardware", "huge.toml", "; expected a TOML file of at most 4 MB"),
    file_case("--hardware", "absent.toml", "No such file"),
    file_case("--engine", "engine.toml", "kernel_time", "-1e-06"),
    file_case("--target", "folder.toml"),
    file_case("--target", "malformed.json", "JSON", "line 1"),
    file_case("--target", "mamba.json", "model_type", "'mamba'", "state-space layers"),
    file_case("--target", "no_family.json", "model_type", "afmoe, ", "more"),
    ("--target {folder}", "--target", "config.json"),
]

MOE = " --target qwen3-30b-a3b --drafter ngram"
IMPLAUSIBLE = {
    "--set target.num_layers=4000": "--set target.num_layers: got 4000;",
    "--set engine.pass_time=3.7": "--set engine.pass_time: got 3.7;",
    "--routing-correlation 0.9": "--routing-correlation: got 0.9;",
}
SPREAD = [
    ("--expert-parallel 3", "--expert-parallel", "got 3;", "128 experts"),
    (
        "--tensor-parallel 4 --data-parallel 3 --expert-parallel 64",
        *("--expert-parallel", "got 64;", "divisor of the 12 GPUs"),
    ),
    (
        "--target qwen1.5-moe-a2.7b --tensor-parallel 4 --expert-parallel 6",
        *("--expert-parallel", "got 6;", "divisor or multiple of tensor_parallel = 4"),
    ),
    ("--target qwen3-32b --expert-parallel 8", "--expert-parallel", "got 8;", "routed"),
    ("--hardware l4 --expert-parallel 16", "--expert-parallel", "got 16;", "network"),
    ("--memory-utilization 1e-320", "--memory-utilization", "got 1e-320;", "0.01 to 1"),
    *((setting, name, "--force allows more") for setting, name in IMPLAUSIBLE.items()),
    ("--set popularity_exponent=-1", "--set popularity_exponent", "got -1;"),
    ("--set popularity_exponent=x", "--set popularity_exponent: got 'x'; expected a number"),
    ("--target qwen3-32b --set popularity_exponent=1", "--set popularity_exponent", "routed"),
    *(
        (f"--set popularity={{folder}}/{name}", "--set popularity", *told)
        for name, *told in (
            ("none.txt", "none.txt", "No such file"),
            ("digits.txt", "digits.txt", "numbers only"),
            ("short.txt", "3 numbers", "128"),
            ("sum.txt", "a sum of 64", "8"),
            ("sum.txt --set popularity_exponent=1", "one of popularity and popularity_exponent"),
        )
    ),
]

SGLANG = "predict qwen3-30b-a3b h200 --acceptance-rate 0.7 --speculative"
HUGE = 2**64
AS_TYPED = [
    (f"{SGLANG}-algorithm EAGLE3 --speculative-eagle-topk 8", "--speculative-eagle-topk: got 8;"),
    (f"{SGLANG}-algo EAGLE3 --speculative_num_steps 9999", "--speculative-num-steps: got 9999"),
    (f"{SGLANG}-algo '' --speculative-draft-model x", "--speculative-algo: got '';", "EAGLE3"),
    (f"{SGLANG}-draft-model x", "--speculative-draft-model: got 'x';", "EAGLE3"),
    (f"{SGLANG}-algo MADEUP", "--speculative-algo: got"),
    (
        "schedule qwen3-30b-a3b h200 --for sglang --speculative-algo EAGLE3"
        " --speculative-eagle-topk 4",
        "--speculative-eagle-topk: got 4;",
    ),
    (f"{GOOD} --tokens-per-step 2", "--tokens-per-step: got 2", "none beside --acceptance-rate"),
    *(  # which needs the extra of the page
        [("explore --no-browser --public --host 256.1.1.1", "--host: got '256.1.1.1'")]
        if find_spec("starlette")
        else []
    ),
    *(
        (f"{command} qwen3-30b-a3b h200 --acceptance-rate 0.7 {option} {HUGE}", f"{option}: got")
        for command, option in (
            ("schedule --for vllm --prompt-length 30", "--output-length"),
            ("schedule --for vllm --output-length 30", "--prompt-length"),
            ("load --request-rate 1 --output-length 30", "--prompt-length"),
            ("load --request-rate 1", "--requests"),
        )
    ),
]
"""An error names the option as it was typed, and none that was not."""

CASES = [
    *WORDS,
    *AS_TYPED,
    *(
        (f"{GOOD} {options}", *told)
        for options, *told in [*NAMES, *LISTS, *POINTS, *SETTINGS, *PROFILES]
    ),
    *((f"{BASE} {options}", *told) for options, *told in ACCEPTANCE),
    *((f"{GOOD}{MOE} {options}", *told) for options, *told in SPREAD),
]


def words(command, folder):
    return [word.replace("{folder}", str(folder)) for word in shlex.split(command)]


@pytest.mark.parametrize("setting", IMPLAUSIBLE)
def test_force_takes_what_no_machine_or_model_has(setting, capsys):
    assert cli.main(shlex.split(f"{GOOD}{MOE} {setting} --force --json")) == 0
    assert json.loads(capsys.readouterr().out)


@each_row(("command", "fragments"), [(command, told) for command, *told in CASES])
def test_one_line_names_the_argument_and_the_value(command, fragments, folder, capsys):
    status = cli.main(words(command, folder))
    wanted = [fragment.replace("{folder}", str(folder)) for fragment in fragments]
    check_one_line(status, *capsys.readouterr(), wanted)


@cases(
    "command",
    GOOD,
    f"{GOOD} --target {{folder}}/good.json --drafter eagle3",
    f"{GOOD} --hardware {{folder}}/good.toml --tensor-parallel 1 --stack typical --interval",
)
def test_what_the_bad_cases_start_from_is_accepted(command, folder, capsys):
    assert cli.main(words(command, folder)) == 0
    out, err = capsys.readouterr()
    assert "peedup" in out
    assert err == ""


def test_the_bare_program_asks_five_questions(capsys):
    assert cli.main([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n  specmodel ") == out.count("?\n") - 1 + 1 == 5


@cases("place", "specmodel.prediction.predicting.predict_deployed", "specmodel.show.operator.table")
def test_interrupt_is_silent(place, monkeypatch, capsys):
    def interrupt(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    assert cli.main(shlex.split(GOOD)) == 130
    out, err = capsys.readouterr()
    assert (out + err).strip() == ""


def start(command, stdout):
    program = "from specmodel.cli import run; raise SystemExit(run())"
    return subprocess.Popen(
        [sys.executable, "-c", program, *shlex.split(command)],
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def test_closed_pipe_is_silent():
    with start(f"{NGRAM} --batch-size 1:1000 --csv", subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_said_in_one_line():
    with Path("/dev/full").open("wb") as full, start(NGRAM, full) as process:
        err = process.stderr.read().decode()
    assert process.returncode != 0
    assert err.startswith("specmodel: error: ")
    assert len(err.splitlines()) == 1


@cases(
    "command",
    GOOD.replace("predict", "predict --view terms"),
    GOOD.replace("predict", "sweep"),
    "trace sample code-ngram --output x.jsonl --requests=9",
)
def test_too_little_memory_is_one_line(command, monkeypatch, capsys):
    def fail(*_arguments, **_named):
        raise MemoryError

    for place in ("answers.explain", "answers.sweeps.csv_chunks", "replay.traces.sample_trace"):
        monkeypatch.setattr(f"specmodel.{place}", fail)
    assert cli.main(shlex.split(command)) == 2
    out, err = capsys.readouterr()
    remedy = "fewer points or requests, or more memory"
    assert (out, err) == ("", f"specmodel: error: memory: too little for this; expected {remedy}\n")
