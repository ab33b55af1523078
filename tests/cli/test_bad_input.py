"""Whatever is typed wrong: status 2, one line on stderr that names the argument and the value."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from printed import check_one_line
from rows import each_row

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
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 4,
    "intermediate_size": 2048,
    "vocab_size": 32000,
}


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
    "two_counts.json": config(
        model_type="mixtral", num_local_experts=8, num_experts=16, num_experts_per_tok=2
    ),
    "nested_key.toml": profile("l2_bytes", "l2_byte"),
    "gigabytes.toml": profile("2.0e12", "2000.0"),
    "text.toml": profile("2.0e12", '"2 TB/s"'),
    "version.toml": profile("schema_version = 1", "schema_version = 99"),
    "engine.toml": b'schema_version = 1\nname = "a"\nsource = "a"\nkernel_time = -1e-6\n',
    "model_1.toml": b'schema_version = 1\nname = "a"\nhidden_size = 64\nnum_layers = 2\n',
    "malformed.json": b'{"model_type": "llama",',
    "list.json": b'["llama"]',
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
    return f"{GOOD} {option} {{folder}}/{name}", option, name, *fragments


NAMES = [
    (f"{GOOD} --target mixtral9x7b", "--target", "'mixtral9x7b'", "mixtral-8x7b"),
    (f"{GOOD} --drafter egle", "--drafter", "'egle'", "eagle"),
    (f"{GOOD} --hardware rtx", "--hardware", "'rtx'", "start so: rtx_3090"),
    (f"{GOOD} --hardware {'h' * 5000}", "--hardware", "hhh...hhh"),
    (f"{GOOD} --engine idael", "--engine", "'idael'", "ideal"),
    ("list nope", "name", "'nope'", "specmodel list"),
    ("list eagle3", "name", "'eagle3'", "--drafter eagle3"),
    (f"{GOOD} --target Qwen/Qwen3-30B-A3B-GGUF", "--target", "such as qwen3-30b-a3b"),
    (f"{GOOD} --hardware nvidia/H200", "--hardware", "'nvidia/H200'", "h200_sxm"),
    ("acceptance http://localhost:8000/metrics", "curl -s http://localhost:8000/metrics > "),
    ("predit", "command: got 'predit'; expected predict"),
    ("list hardware extra", "extra"),
    (f"{GOOD} --batchsize 1", "--batchsize", "--batch-size"),
    (f"{GOOD} --json --csv", "csv: got", "--json", "--csv"),
    *(
        (re.sub(rf"{option} \S+", "", GOOD), option, what)
        for option, what in (("--target", "a model"), ("--hardware", "a GPU"))
    ),
    ("predict", "--target", "a model and a GPU"),
    (f"{GOOD} --batch-size", "--batch-size"),
    (f"{GOOD} --target org/{'m' * 3000}", "--target", "mmm...mmm"),
    (f"{GOOD} --hardware {{folder}}/escape.toml", "name", "x1b[31m"),
    *(
        (f"{GOOD} --drafter dflash:{size}", "--drafter", "a block of 1 to")
        for size in ("9" * 5000, "\N{SUPERSCRIPT TWO}", "")
    ),
]

LISTS = [
    (f"{GOOD} {option} {shlex.quote(text)}", option, shown or f"'{text}'")
    for option in ("--batch-size", "--draft-length", "--context-length")
    for text, shown in (
        ("-1", "-1"),
        ("four", ""),
        ("1,,2", ""),
        ("8:1", ""),
        ("1:8:0", ""),
        ("0:8:x2", ""),
        ("1:1000000000", ""),
        ("1:60000,1:60000", ""),
        ("1" + "0" * 5000, "000...000"),
        ("1\n2\nx", r"'1\n2\nx'"),
    )
]

POINTS = [
    (f"{GOOD} --batch-size 0", "--batch-size", "got 0"),
    (f"{GOOD} --draft-length 1001", "--draft-length", "got 1001", "1000"),
    (f"{GOOD} --max-draft-length 9999", "--max-draft-length", "got 9999;"),
    (f"{GOOD} --verify-tokens 9", "--verify-tokens", "9"),
    (f"{GOOD} --verify-tokens 10000", "--verify-tokens", "got 10000;"),
    (f"{GOOD} --draft-length 0 --verify-tokens 2", "--verify-tokens", "got 2;"),
    (f"{GOOD} --tensor-parallel 3", "--tensor-parallel", "got 3;", "2, 4"),
    (f"{GOOD} --set draft_tensor_parallel=4", "--set draft_tensor_parallel", "got 4;", "1, 2"),
    *(
        (f"{GOOD} --hardware {{folder}}/good.toml {option} 2", option, "got 2;", "link")
        for option in ("--tensor-parallel", "--data-parallel")
    ),
    *(
        (f"{GOOD} --routing-correlation {value}", "--routing-correlation", value)
        for value in ("-0.1", "nan", "'high'")
    ),
    *(
        (f"{GOOD} {option} bf17", option, "'bf17'", "bf16")
        for option in ("--weight-dtype", "--expert-dtype", "--kv-dtype")
    ),
    *(
        (f"{GOOD} {typed} 2", f"No such option '{typed}'. It is {ours} here.")
        for typed, ours in (
            ("--tp", "--tensor-parallel"),
            ("--gpu", "--hardware"),
            ("--max-concurrency", "--batch-size"),
            ("--num-speculative-tokens", "--draft-length"),
        )
    ),
    (
        f"{GOOD} -tp 8 --mem-fraction-static=0.8",
        "'-t'. It is --tensor-parallel here. --mem-fraction",
    ),
    (f"{GOOD} --temp 1", "'--temp'. Here it is --temperature"),
    *(
        (f"{command} {typed} 1", f"No such option '{typed}'. It is --set {name}= here.")
        for command, typed, name in (
            (GOOD, "--dcp-size", "decode_context_parallel"),
            ("load qwen3-30b-a3b h100", "--block-size", "block_size"),
            ("simulate", "--timing-noise", "timing_noise"),
        )
    ),
    *(
        (f"{GOOD} {typed} fp8", f"No such option '{typed}'. {told}")
        for typed, told in (
            ("--draft-lm-head-quantization", "Here it is --set drafter.head_dtype=fp8, or fp4"),
            ("--dspark-draft-topk", "Here it is a key of the head's own config.json"),
            ("--rejection-sample-method", "It takes no time: give the acceptance measured with it"),
        )
    ),
    ("sweep qwen3-30b-a3b h200 --csv", "No such option '--csv'. What sweep prints is CSV"),
    ("trace preset code-eagle", "No such command 'preset'. Commands: describe, ngram, sample\n"),
    ("trace sample code-eagle", "Missing option '--output' (specmodel trace sample --help)\n"),
    (
        f"{GOOD} --weight-dtype nvfp4 --set activation_dtype=fp8",
        "--set activation_dtype",
        "'fp8'",
        "fp4",
    ),
    (f"{GOOD} --kv-dtype fp8_e3m4", "--kv-dtype", "expected one of fp32"),
    (
        f"{GOOD} --context-length 32k",
        "--context-length",
        "'32k'",
        "expected 32768 or 32000 for 32k",
    ),
    (
        f"{GOOD} --hardware t4 --set activation_dtype=fp32",
        "--set activation_dtype",
        "'fp32'",
        "fp16",
    ),
    (f"{NGRAM} --set lookup_time=50", "--set lookup_time: got '50';", "50ms or 50s"),
    (f"{NGRAM} --set lookup_time=50min", "--set lookup_time: got '50min';", "20ms"),
    (f"{NGRAM} --proposal-rate 1.5", "--proposal-rate", "got 1.5;"),
    (f"{GOOD} --proposal-rate 0.5", "--proposal-rate", "got 0.5;", "ngram"),
    (f"{GOOD} --drafter dspark --draft-length 8", "--draft-length", "got 8;", "at most 7"),
    (f"{GOOD} --drafter p-eagle --tree-width 4", "--tree-width", "got 4;", "no trees"),
    (f"{GOOD} --drafter pard", "--drafter", "got 'pard';", "config.json with pard_token"),
]

ACCEPTANCE = [
    *(
        (f"{BASE} {option} {value}", option, value)
        for option, values in {
            "--acceptance-rate": ("1.1", "nan", "'high'", "'%'"),
            "--tokens-per-step": ("0.9", "4.1", "'many'"),
            "--step-efficiency": ("0.24", "1.01"),
            "--accepted-fraction": ("-0.1", "1.1"),
            "--acceptance-by-position": ("'0.8,0.7,high'", "1.2"),
            "--acceptance-by-context": ("'2048'", "'2048:high'"),
        }.items()
        for value in values
    ),
    (f"{BASE} --acceptance-by-position 0.8,0.7", "--acceptance-by-position", "[0.8, 0.7]", "3"),
    (f"{GOOD} --tokens-per-step 2.1", "--acceptance-rate", "--tokens-per-step"),
    (f"{BASE} --components", "acceptance", "none given", "--acceptance-rate 0.7"),
    ("predict qwen3-30b-a3b h100 --drafter none", "--drafter", "use --view plain"),
    ("predict mixtral-8x7b h200 --verify-tokens 8", "--verify-tokens", "8", "--draft-length with"),
    *(
        (f"predict mixtral-8x7b h200 --max-draft-length {n}", "--max-draft-length", f"got {n};")
        for n in (0, 9999)
    ),
    *(
        (f"{BASE} --draft-length 1,2 {option} {value}", "--measured-draft-length", "none given")
        for option, value in (
            ("--tokens-per-step", 1.5),
            ("--step-efficiency", 0.7),
            ("--accepted-fraction", 0.7),
        )
    ),
    *(
        (f"{BASE} --tokens-per-step 1.5 {option} {value}", option, value)
        for option in ("--measured-draft-length",)
        for value in ("0", "'1.5'", "100000")
    ),
    (f"{GOOD} --measured-draft-length 3", "--measured-draft-length", "got 3;"),
    (
        f"{BASE} --tokens-per-step 3.5 --measured-draft-length 2",
        *("--tokens-per-step", "got 3.5;"),
    ),
    (f"{BASE} --verify-tokens 9 --tokens-per-step 4.5", "--tokens-per-step", "got 4.5;"),
    (f"{BASE} --verify-tokens 9 --accepted-fraction 0.5", "--verify-tokens", "9"),
]

SETTINGS = [
    (f"{GOOD} --set {shlex.quote(setting)}", "--set", fragment or setting)
    for setting, fragment in (
        ("hardware.memory.peak_bytes_per_s", ""),
        ("memory.peak_bytes_per_s=1e12", ""),
        ("", "''"),
        ("x" * 500, "xxx...xxx"),
    )
] + [
    (f"{GOOD} --set {shlex.quote(setting)}", field, shown)
    for setting, field, shown in (
        ("hardware.memory.bandwidth=1e12", "--set hardware.memory.bandwidth", "peak_bytes_per_s"),
        ("hardware.two\nlines=7", "--set hardware.two lines", "got 7;"),
        ("hardware.dtype.bf17.peak_flops_per_s=1e15", "dtype.bf17", "1000000000000000.0"),
        ("engine.kernel_time=-1e-6", "--set engine.kernel_time", "-1e-06"),
        ("target.num_kv_heads=3", "--set target.num_kv_heads", "got 3;"),
        ("target.experts_per_token=65", "--set target.experts_per_token", "got 65;"),
        ("target.weight_dtype=bf17", "--set target.weight_dtype", "'bf17'"),
    )
]
SETTINGS += []

PROFILES = [
    file_case("--hardware", "malformed.toml", "TOML", "line 1"),
    file_case("--hardware", "huge.toml", "; expected a TOML file of at most 4 MB"),
    file_case("--hardware", "absent.toml", "No such file"),
    file_case("--hardware", "nested_key.toml", "memory", "l2_byte"),
    file_case("--hardware", "gigabytes.toml", "memory.peak_bytes_per_s", "got 2000.0;", "B/s"),
    file_case("--hardware", "text.toml", "memory.peak_bytes_per_s", "'2 TB/s'"),
    file_case("--hardware", "version.toml", "schema_version", "got 99;", "1"),
    file_case("--engine", "engine.toml", "kernel_time", "-1e-06"),
    file_case("--target", "model_1.toml", "schema_version: got 1; expected 2"),
    file_case("--target", "folder.toml"),
    file_case("--target", "malformed.json", "JSON", "line 1"),
    file_case("--target", "list.json", "object"),
    file_case("--target", "mamba.json", "model_type", "'mamba'", "state-space layers"),
    file_case("--target", "no_family.json", "model_type", "afmoe, ", "more"),
    ("list {folder}/folder.toml", "folder.toml"),
    (f"{GOOD} --target {{folder}}", "--target", "config.json"),
]


HUGE_GRID = [
    (
        f"{GOOD} --batch-size 1:100000 --draft-length 1:1000 --context-length 1:100000",
        "--batch-size",
    )
]

MOE = GOOD + " --target qwen3-30b-a3b --drafter ngram"
IMPLAUSIBLE = {
    "--set target.num_layers=4000": "--target num_layers: got 4000;",
    "--set engine.pass_time=3.7": "--engine pass_time: got 3.7;",
    "--routing-correlation 0.9": "--routing-correlation: got 0.9;",
}
SPREAD = [
    *(
        (f"{MOE} --expert-parallel {value}", "--expert-parallel", f"got {value};", "128 experts")
        for value in ("3", "256")
    ),
    (
        f"{MOE} --tensor-parallel 4 --data-parallel 3 --expert-parallel 64",
        *("--expert-parallel", "got 64;", "divisor of the 12 GPUs"),
    ),
    (
        f"{MOE} --target qwen1.5-moe-a2.7b --tensor-parallel 4 --expert-parallel 6",
        *("--expert-parallel", "got 6;", "divisor or multiple of tensor_parallel = 4"),
    ),
    (f"{MOE} --memory-utilization 1e-320", "--memory-utilization", "got 1e-320;", "0.01 to 1"),
    (
        f"{GOOD} --speculative-algorithm NGRAM --speculative-num-draft-tokens 0",
        *("--speculative-num-draft-tokens", "got 0;"),
    ),
    (f"{GOOD} --target qwen3-32b --expert-parallel 8", "--expert-parallel", "got 8;", "routed"),
    (f"{MOE} --hardware l4 --expert-parallel 16", "--expert-parallel", "got 16;", "network"),
    (f"{MOE} --set popularity_exponent=-1", "--set popularity_exponent", "got -1.0;"),
    (
        f"{GOOD} --target qwen3-32b --set popularity_exponent=1",
        "--set popularity_exponent",
        "routed",
    ),
    (f"{MOE} --set popularity={{folder}}/none.txt", "--set popularity", "none.txt", "No such file"),
    (
        f"{MOE} --set popularity={{folder}}/good.toml",
        "--set popularity",
        "good.toml",
        "numbers only",
    ),
    *((f"{MOE} {setting}", name, "--force allows more") for setting, name in IMPLAUSIBLE.items()),
    (f"{MOE} --set popularity={{folder}}/digits.txt", "--set popularity", "numbers only"),
    (f"{MOE} --set popularity={{folder}}/short.txt", "--set popularity", "3 numbers", "128"),
    (f"{MOE} --set popularity={{folder}}/sum.txt", "--set popularity", "a sum of 64", "8"),
    (
        f"{MOE} --set popularity={{folder}}/sum.txt --set popularity_exponent=1",
        "--set popularity",
        "one of popularity and popularity_exponent",
    ),
    (f"{GOOD} --set activation_dtype=mxfp4", "--set activation_dtype", "'mxfp4'", "bf16"),
    file_case("--target", "two_counts.json", "num_experts", "num_local_experts"),
]

KERNELS = [
    *(
        (
            f"{GOOD} --stack {value}",
            "--stack:",
            f"'{shown}'",
            "trtllm, vllm, torch, typical, datasheet",
        )
        for value, shown in (("nosuch", "nosuch"), ("''", ""))
    ),
    (f"{GOOD} --hardware l4 --stack trtllm", "--stack:", "'trtllm'", "typical, datasheet", "L4"),
    (f"{GOOD} --hardware {{folder}}/good.toml --stack vllm", "--stack:", "'vllm'", "made up"),
    (f"{GOOD} --interval --stack datasheet", "--interval:", "True", "typical", "datasheet"),
    (f"{GOOD} --interval --batch-size 1:5001", "--interval:", "5001 points", "at most 5000"),
]

CASES = [
    *(*NAMES, *LISTS, *POINTS, *ACCEPTANCE, *SETTINGS, *PROFILES),
    *(*HUGE_GRID, *SPREAD, *KERNELS),
]


def words(command, folder):
    return [word.replace("{folder}", str(folder)) for word in shlex.split(command)]


@pytest.mark.parametrize("setting", IMPLAUSIBLE)
def test_force_takes_what_no_machine_or_model_has(setting, capsys):
    assert cli.main(shlex.split(f"{MOE} {setting} --force --json")) == 0
    assert json.loads(capsys.readouterr().out)


@each_row(("command", "fragments"), [(command, told) for command, *told in CASES])
def test_one_line_names_the_argument_and_the_value(command, fragments, folder, capsys):
    status = cli.main(words(command, folder))
    wanted = [fragment.replace("{folder}", str(folder)) for fragment in fragments]
    check_one_line(status, *capsys.readouterr(), wanted)


@pytest.mark.parametrize(
    "command",
    [
        GOOD,
        NGRAM,
        f"{GOOD} --hardware {{folder}}/good.toml --tensor-parallel 1",
        f"{GOOD} --target {{folder}}/good.json --drafter eagle3",
        f"{GOOD} --stack datasheet",
        f"{GOOD} --stack vllm --interval",
        f"{GOOD} --hardware {{folder}}/good.toml --tensor-parallel 1 --stack typical --interval",
    ],
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


@pytest.mark.parametrize(
    "place",
    ["specmodel.prediction.predicting.predict_deployed", "specmodel.show.operator.table"],
)
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


@pytest.mark.parametrize(
    "command",
    [
        GOOD.replace("predict", "predict --view terms"),
        GOOD.replace("predict", "sweep"),
        "trace sample code-ngram --output x.jsonl --requests=9",
    ],
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
