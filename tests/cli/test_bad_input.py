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
    "binary.toml": b"name = '\xff\xfe'\n",
    "nested.toml": b"a = " + b"[" * 100_000,
    "huge.toml": PROFILE.encode() + b"#" * 4_000_001,
    "empty.toml": b"",
    "long_name.toml": profile('name = "made up"', f'name = "{"m" * 3000}"'),
    "escape.toml": profile('name = "made up"', 'name = "\\u001b[31m"'),
    "short.txt": b"0.5, 0.25 0.25",
    "digits.txt": "0.\N{ARABIC-INDIC DIGIT THREE} 0.7".encode(),
    "sum.txt": b"[" + b"0.5, " * 127 + b"0.5]",
    "range.txt": b"8 " + b"0 " * 127,
    "two_counts.json": config(
        model_type="mixtral", num_local_experts=8, num_experts=16, num_experts_per_tok=2
    ),
    "key.toml": profile('kind = "gpu"', 'kind = "gpu"\nbandwidth = 2'),
    "nested_key.toml": profile("l2_bytes", "l2_byte"),
    "line_feed.toml": profile('kind = "gpu"', 'kind = "gpu"\n"band\\nwidth" = 2'),
    "table.toml": profile("[dtype.bf16]", "[dtype.bf17]"),
    "no_memory.toml": profile("[memory]", "[memories]"),
    "gigabytes.toml": profile("2.0e12", "2000.0"),
    "teraflops.toml": profile("3.0e14", "300.0"),
    "negative.toml": profile("2.0e12", "-2.0e12"),
    "zero.toml": profile("2.0e12", "0.0"),
    "nan.toml": profile("2.0e12", "nan"),
    "inf.toml": profile("2.0e12", "inf"),
    "text.toml": profile("2.0e12", '"2 TB/s"'),
    "version.toml": profile("schema_version = 1", "schema_version = 99"),
    "no_version.toml": profile("schema_version = 1", ""),
    "kind.toml": profile('"gpu"', '"tpu"'),
    "missing.toml": profile("peak_bytes_per_s = 2.0e12", ""),
    "fraction.toml": profile("= 100", "= 100.5"),
    "engine.toml": b'schema_version = 1\nname = "a"\nsource = "a"\nkernel_time = -1e-6\n',
    "model.toml": b'schema_version = 2\nname = "a"\nsource = "b"\nhidden_size = -1\n',
    "model_1.toml": b'schema_version = 1\nname = "a"\nhidden_size = 64\nnum_layers = 2\n',
    "malformed.json": b'{"model_type": "llama",',
    "deep.json": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "list.json": b'["llama"]',
    "binary.json": b'{"model_type": "\xff"}',
    "mamba.json": config(model_type="mamba"),
    "no_family.json": config(model_type=None),
    "number_family.json": config(model_type=3),
    "experts.json": config(num_local_experts=8),
    "quantised.json": config(quantization_config={"bits": 4}),
    "missing.json": config(hidden_size=None),
    "text.json": config(hidden_size="1024"),
    "fraction.json": config(hidden_size=1024.5),
    "negative.json": config(hidden_size=-1024),
    "true.json": config(num_hidden_layers=True),
    "dtype.json": config(torch_dtype="float8"),
    "list_dtype.json": config(torch_dtype=["bfloat16"]),
    "heads.json": config(num_attention_heads=16, num_key_value_heads=5),
    "more_heads.json": config(num_attention_heads=2048),
    "layers.json": config(layer_types=[["full_attention"]]),
    "tied.json": config(tie_word_embeddings="yes"),
    "huge_layers.json": config(num_hidden_layers=10**400),
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
    (f"{GOOD} --target qwen3.5", "--target", "'qwen3.5'", "start so: qwen3.5-122b-a10b"),
    (f"{GOOD} --target mixtral9x7b", "--target", "'mixtral9x7b'", "mixtral-8x7b"),
    (f"{GOOD} --target ''", "--target", "''", "deepseek-moe-16b, ", "more"),
    (f"{GOOD} --target ngram", "--target", "'ngram'"),
    (f"{GOOD} --drafter egle", "--drafter", "'egle'", "eagle"),
    (f"{GOOD} --drafter qwen2-05", "--drafter", "'qwen2-05'", "qwen2-0.5b"),
    (f"{GOOD} --drafter ''", "--drafter", "''", "deepseek-moe-16b, ", "more"),
    (f"{GOOD} --hardware rtx", "--hardware", "'rtx'", "start so: rtx_3090"),
    (f"{GOOD} --hardware H201-SXM", "--hardware", "'H201-SXM'", "h200_sxm"),
    (f"{GOOD} --hardware ''", "--hardware", "''", "a100_sxm_80gb"),
    (f"{GOOD} --hardware ../h200_sxm", "--hardware", "'../h200_sxm'"),
    (f"{GOOD} --hardware {'h' * 5000}", "--hardware", "hhh...hhh"),
    (f"{GOOD} --engine idael", "--engine", "'idael'", "ideal"),
    ("list nope", "name", "'nope'", "specmodel list"),
    ("list eagle3", "name", "'eagle3'", "--drafter eagle3"),
    ("list Qwen/Qwen3-30B-A3B-GGUF", "name", "'Qwen/Qwen3-30B-A3B-GGUF'", "such as qwen3-30b-a3b"),
    (f"{GOOD} --target Qwen/Qwen3-30B-A3B-GGUF", "--target", "such as qwen3-30b-a3b"),
    (f"{GOOD} --drafter Qwen/Qwen2-0.5B-GGUF", "--drafter", "such as qwen2-0.5b"),
    (f"{GOOD} --hardware nvidia/H200", "--hardware", "'nvidia/H200'", "h200_sxm"),
    ("acceptance http://localhost:8000/metrics", "curl -s http://localhost:8000/metrics > "),
    ("list h201", "name", "'h201'", "h200_sxm"),
    ("list ''", "name", "''"),
    ("list", "hardware", "architectures", "engines", "drafters"),
    ("predit", "command: got 'predit'; expected predict"),
    ("zzz", "command: got 'zzz'", "predict, schedule"),
    ("list hardware extra", "extra"),
    (f"{GOOD} extra", "extra"),
    (f"{GOOD} --batchsize 1", "--batchsize", "--batch-size"),
    (f"{GOOD} -x", "-x"),
    (f"{GOOD} --json=yes", "--json"),
    (f"{GOOD} --json --csv", "csv: got", "--json", "--csv"),
    *(
        (re.sub(rf"{option} \S+", "", GOOD), option, what)
        for option, what in (("--target", "a model"), ("--hardware", "a GPU"))
    ),
    ("predict", "--target", "a model and a GPU"),
    (f"{GOOD} --batch-size", "--batch-size"),
    (f"{GOOD} --target org/{'m' * 3000}", "--target", "mmm...mmm"),
    (f"{GOOD} --hardware {{folder}}/long_name.toml", "name", "mmm...mmm", "100 characters"),
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
        ("1,-2", "-2"),
        ("nan", ""),
        ("inf", ""),
        ("", ""),
        (" ", ""),
        ("four", ""),
        ("1.5", ""),
        ("1e3", ""),
        ("1,,2", ""),
        ("1,", ""),
        (":", ""),
        ("1:", ""),
        ("8:1", ""),
        ("1:8:0", ""),
        ("1:8:-1", ""),
        ("1:8:x1", ""),
        ("1:8:x0", ""),
        ("1:8:x", ""),
        ("1:8:2:2", ""),
        ("0:8:x2", ""),
        ("1:1000000000", ""),
        ("1:60000,1:60000", ""),
        ("1" + "0" * 30, "1e+30"),
        ("1" + "0" * 5000, "000...000"),
        ("1\n2\nx", r"'1\n2\nx'"),
    )
]

POINTS = [
    (f"{GOOD} --batch-size 0", "--batch-size", "got 0"),
    (f"{GOOD} --batch-size 0:4", "--batch-size", "got 0"),
    (f"{GOOD} --draft-length 1001", "--draft-length", "got 1001", "1000"),
    (f"{GOOD} --max-draft-length 0", "--max-draft-length", "got 0;"),
    (f"{GOOD} --max-draft-length -1", "--max-draft-length", "got -1;"),
    (f"{GOOD} --max-draft-length 9999", "--max-draft-length", "got 9999;"),
    (f"{GOOD} --max-draft-length ten", "--max-draft-length", "'ten'"),
    (f"{GOOD} --verify-tokens 9", "--verify-tokens", "9"),
    (f"{GOOD} --verify-tokens 0", "--verify-tokens", "got 0;"),
    (f"{GOOD} --verify-tokens -1", "--verify-tokens", "got -1;"),
    (f"{GOOD} --verify-tokens 10000", "--verify-tokens", "got 10000;"),
    (f"{GOOD} --verify-tokens 4.5", "--verify-tokens", "'4.5'"),
    (f"{GOOD} --draft-length 0 --verify-tokens 2", "--verify-tokens", "got 2;"),
    (f"{GOOD} --tensor-parallel 3", "--tensor-parallel", "got 3;", "2, 4"),
    (f"{GOOD} --tensor-parallel 0", "--tensor-parallel", "got 0;"),
    (f"{GOOD} --tensor-parallel -2", "--tensor-parallel", "got -2;"),
    (f"{GOOD} --tensor-parallel 2.0", "--tensor-parallel", "'2.0'"),
    (f"{GOOD} --tensor-parallel 1{'0' * 400}", "--tensor-parallel", "10000"),
    (f"{GOOD} --hardware l40s --tensor-parallel 1{'0' * 30}", "--tensor-parallel", "10000"),
    (f"{GOOD} --set draft_tensor_parallel=4", "--set draft_tensor_parallel", "got 4;", "1, 2"),
    (f"{GOOD} --set draft_tensor_parallel=0", "--set draft_tensor_parallel", "got 0;"),
    (f"{GOOD} --set draft_tensor_parallel=-1", "--set draft_tensor_parallel", "got -1;"),
    (f"{GOOD} --set draft_tensor_parallel=two", "--set draft_tensor_parallel", "'two'"),
    *(
        (f"{GOOD} --hardware {{folder}}/good.toml {option} 2", option, "got 2;", "link")
        for option in ("--tensor-parallel", "--data-parallel")
    ),
    *(
        (f"{GOOD} --routing-correlation {value}", "--routing-correlation", value)
        for value in ("-0.1", "1.1", "nan", "inf", "'high'")
    ),
    *(
        (f"{GOOD} {option} {value}", option, f"'{value}'", "bf16")
        for option in ("--weight-dtype", "--expert-dtype", "--kv-dtype")
        for value in ("bf17", "float12", "fp4x")
    ),
    (f"{GOOD} --weight-dtype ''", "--weight-dtype", "''"),
    *(
        (f"{GOOD} {typed} 2", f"No such option '{typed}'. It is {ours} here.")
        for typed, ours in (
            ("--tp", "--tensor-parallel"),
            ("--gpu", "--hardware"),
            ("--gpus", "--tensor-parallel"),
            ("--isl", "--prompt-length"),
            ("--max-concurrency", "--batch-size"),
            ("--num-speculative-tokens", "--draft-length"),
            ("--spec-draft-n-max", "--draft-length"),
        )
    ),
    (
        f"{GOOD} -tp 8 --mem-fraction-static=0.8",
        "'-t'. It is --tensor-parallel here. --mem-fraction",
    ),
    (f"{GOOD} --top-p 1 --tp-size 8", "'--top-p'.", " --tp-size is --tensor-parallel."),
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
    ("list --tp 2", "No such option '--tp'. Did you mean '--help'?\n"),  # which has no degrees
    (f"{GOOD} --expert-dtype fp6", "--expert-dtype", "'fp6'", "expected one of fp32, bf16"),
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
    (f"{GOOD} --context-length 1024,8K", "--context-length", "expected 8192 or 8000 for 8K: whole"),
    (
        f"{GOOD} --hardware t4 --set activation_dtype=fp32",
        "--set activation_dtype",
        "'fp32'",
        "fp16",
    ),
    *(
        (f"{NGRAM} {option} {value}", option, value)
        for option in ("--proposal-rate",)
        for value in ("-0.5", "nan", "inf", "'often'")
    ),
    (f"{NGRAM} --set lookup_time=50", "--set lookup_time: got '50';", "50ms or 50s"),
    (f"{NGRAM} --set lookup_time=50min", "--set lookup_time: got '50min';", "20ms"),
    (f"{NGRAM} --proposal-rate 1.5", "--proposal-rate", "got 1.5;"),
    (f"{GOOD} --proposal-rate 0.5", "--proposal-rate", "got 0.5;", "ngram"),
    (f"{GOOD} --drafter eagle --set lookup_time=1e-3", "--set lookup_time", "got 0.001;", "ngram"),
    (f"{GOOD} --drafter dspark --draft-length 8", "--draft-length", "got 8;", "at most 7"),
    (f"{GOOD} --drafter p-eagle --tree-width 4", "--tree-width", "got 4;", "no trees"),
    (f"{GOOD} --drafter pard", "--drafter", "got 'pard';", "config.json with pard_token"),
]

ACCEPTANCE = [
    *(
        (f"{BASE} {option} {value}", option, value)
        for option, values in {
            "--acceptance-rate": ("-0.1", "1.1", "nan", "inf", "-inf", "'high'", "''", "'%'"),
            "--tokens-per-step": ("0.9", "4.1", "-1.0", "nan", "inf", "'many'"),
            "--step-efficiency": ("0.24", "1.01", "-0.1", "nan", "inf", "'high'"),
            "--accepted-fraction": ("-0.1", "1.1", "nan", "inf", "'high'"),
            "--acceptance-by-position": ("'0.8,0.7,high'", "''", "'0.8,,0.7'", "1.2", "nan", "inf"),
            "--acceptance-by-context": ("'2048'", "'2048:high'", "''", "'2048:2,'"),
        }.items()
        for value in values
    ),
    (f"{BASE} --acceptance-by-position 0.8,0.7", "--acceptance-by-position", "[0.8, 0.7]", "3"),
    (f"{BASE} --acceptance-by-position 0.8,0.7,1.6", "--acceptance-by-position", "1.6"),
    (f"{BASE} --acceptance-by-position 0.8,0.7,nan", "--acceptance-by-position", "nan"),
    (f"{GOOD} --tokens-per-step 2.1", "--acceptance-rate", "--tokens-per-step"),
    (f"{GOOD} --acceptance-by-position 0.9", "--acceptance-rate", "--acceptance-by-position"),
    (f"{BASE} --components", "acceptance", "none given", "--acceptance-rate 0.7"),
    ("predict qwen3-30b-a3b h100 --drafter none", "--drafter", "alone in --view plain"),
    ("predict mixtral-8x7b h200 --verify-tokens 8", "--verify-tokens", "8", "--draft-length with"),
    *(
        (f"predict mixtral-8x7b h200 --max-draft-length {n}", "--max-draft-length", f"got {n};")
        for n in (0, -1, 9999)
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
        for value in ("0", "-1", "'nan'", "'1.5'", "100000")
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
        ("hardware=1", ""),
        ("gpu.name=1", ""),
        ("=", ""),
        ("", "''"),
        ("x" * 500, "xxx...xxx"),
    )
] + [
    (f"{GOOD} --set {shlex.quote(setting)}", field, shown)
    for setting, field, shown in (
        ("hardware.memory.bandwidth=1e12", "--set hardware.memory.bandwidth", "peak_bytes_per_s"),
        ("hardware.bandwidth=1e12", "--set hardware.bandwidth", "1000000000000.0"),
        ("hardware.memories.size=7", "--set hardware.memories.size", "got 7;"),
        ("hardware.memory=7", "--set hardware.memory", "got 7;"),
        ("hardware.name.first=7", "--set hardware.name.first", "got 7;"),
        ("hardware.=7", "--set hardware", "got 7;"),
        ("hardware.memory.=7", "--set hardware.memory", "got 7;"),
        ("hardware.two\nlines=7", "--set hardware.two lines", "got 7;"),
        ("hardware.memory.peak_bytes_per_s=fast", "memory.peak_bytes_per_s", "'fast'"),
        ("hardware.memory.peak_bytes_per_s=", "memory.peak_bytes_per_s", "''"),
        ("hardware.memory.peak_bytes_per_s=true", "memory.peak_bytes_per_s", "True"),
        ("hardware.memory.peak_bytes_per_s=-1e12", "memory.peak_bytes_per_s", "-1000000000000.0"),
        ("hardware.memory.peak_bytes_per_s=0", "memory.peak_bytes_per_s", "got 0;"),
        ("hardware.memory.peak_bytes_per_s=nan", "memory.peak_bytes_per_s", "nan"),
        ("hardware.memory.peak_bytes_per_s=inf", "memory.peak_bytes_per_s", "inf"),
        (f"hardware.memory.peak_bytes_per_s=1{'0' * 400}", "memory.peak_bytes_per_s", "1000"),
        ("hardware.memory.peak_bytes_per_s=4800", "memory.peak_bytes_per_s", "got 4800"),
        ("hardware.dtype.bf17.peak_flops_per_s=1e15", "dtype.bf17", "1000000000000000.0"),
        ("hardware.num_multiprocessors=1.5", "num_multiprocessors", "got 1.5;"),
        ("hardware.schema_version=2", "schema_version", "got 2;"),
        ("engine.kernel_time=-1e-6", "--set engine.kernel_time", "-1e-06"),
        ("engine.kernel_times=1e-6", "--set engine.kernel_times", "1e-06"),
        ("target.num_layers=-1", "--set target.num_layers", "got -1;"),
        (f"target.num_layers=1{'0' * 400}", "--set target.num_layers", "1000"),
        ("target.num_layers=28.0", "--set target.num_layers", "got 28.0;"),
        ("target.layers=28", "--set target.layers", "got 28;"),
        ("target.num_kv_heads=3", "--set target.num_kv_heads", "got 3;"),
        ("target.experts_per_token=65", "--set target.experts_per_token", "got 65;"),
        ("target.weight_dtype=bf17", "--set target.weight_dtype", "'bf17'"),
        ("target.has_gated_ffn=1", "--set target.has_gated_ffn", "got 1;"),
        ("target.name=7", "--set target.name", "got 7;"),
        ("drafter.num_layers=0", "--set drafter.num_layers", "got 0;"),
        ("drafter.proposal_rate=0.5", "--set drafter.proposal_rate", "got 0.5;"),
    )
]
SETTINGS += [
    (f"{NGRAM} --set drafter.num_layers=2", "drafter.num_layers", "got 2;"),
    (f"{GOOD} --set target.num_layers", "--set", "target.num_layers"),
]

PROFILES = [
    file_case("--hardware", "malformed.toml", "TOML", "line 1"),
    file_case("--hardware", "binary.toml", "UTF-8"),
    file_case("--hardware", "nested.toml", "TOML"),
    file_case("--hardware", "huge.toml", "; expected a TOML file of at most 4 MB"),
    file_case("--hardware", "empty.toml", "schema_version"),
    file_case("--hardware", "absent.toml", "No such file"),
    file_case("--hardware", "folder.toml", "TOML"),
    file_case("--hardware", "key.toml", "bandwidth", "got 2;"),
    file_case("--hardware", "nested_key.toml", "memory", "l2_byte"),
    file_case("--hardware", "line_feed.toml", "width", "got 2;"),
    file_case("--hardware", "table.toml", "dtype.bf17"),
    file_case("--hardware", "no_memory.toml", "memory"),
    file_case("--hardware", "gigabytes.toml", "memory.peak_bytes_per_s", "got 2000.0;", "B/s"),
    file_case("--hardware", "teraflops.toml", "peak_flops_per_s", "FLOP/s"),
    file_case("--hardware", "negative.toml", "memory.peak_bytes_per_s", "-2000000000000.0"),
    file_case("--hardware", "zero.toml", "memory.peak_bytes_per_s", "got 0.0;"),
    file_case("--hardware", "nan.toml", "memory.peak_bytes_per_s", "got nan;"),
    file_case("--hardware", "inf.toml", "memory.peak_bytes_per_s", "got inf;"),
    file_case("--hardware", "text.toml", "memory.peak_bytes_per_s", "'2 TB/s'"),
    file_case("--hardware", "version.toml", "schema_version", "got 99;", "1"),
    file_case("--hardware", "no_version.toml", "schema_version"),
    file_case("--hardware", "kind.toml", "kind", "'tpu'", "gpu"),
    file_case("--hardware", "missing.toml", "memory.peak_bytes_per_s"),
    file_case("--hardware", "fraction.toml", "num_multiprocessors", "got 100.5;"),
    file_case("--engine", "engine.toml", "kernel_time", "-1e-06"),
    file_case("--engine", "good.toml"),
    file_case("--target", "model.toml", "hidden_size: got -1"),
    file_case("--target", "model_1.toml", "schema_version: got 1; expected 2"),
    file_case("--target", "good.toml"),
    file_case("--target", "absent.json", "No such file"),
    file_case("--target", "folder.toml"),
    file_case("--target", "malformed.json", "JSON", "line 1"),
    file_case("--target", "deep.json", "JSON"),
    file_case("--target", "list.json", "object"),
    file_case("--target", "binary.json", "UTF-8"),
    file_case("--target", "mamba.json", "model_type", "'mamba'", "state-space layers"),
    file_case("--target", "no_family.json", "model_type", "afmoe, ", "more"),
    file_case("--target", "number_family.json", "model_type", "got 3;"),
    file_case("--target", "experts.json", "num_local_experts", "got 8;"),
    file_case("--target", "quantised.json", "quantization_config", "fp8"),
    file_case("--target", "missing.json", "hidden_size", "whole number"),
    file_case("--target", "text.json", "hidden_size", "'1024'"),
    file_case("--target", "fraction.json", "hidden_size", "got 1024.5;"),
    file_case("--target", "negative.json", "hidden_size", "got -1024;"),
    file_case("--target", "true.json", "num_hidden_layers", "got True;"),
    file_case("--target", "dtype.json", "torch_dtype", "'float8'", "bfloat16"),
    file_case("--target", "list_dtype.json", "torch_dtype", "['bfloat16']"),
    file_case("--target", "heads.json", "num_key_value_heads", "got 5;"),
    file_case("--target", "more_heads.json"),
    file_case("--target", "layers.json", "layer_types"),
    file_case("--target", "tied.json", "tie_word_embeddings", "'yes'"),
    file_case("--target", "huge_layers.json", "num_hidden_layers", "1000"),
    file_case("--drafter", "mamba.json", "model_type", "'mamba'"),
    file_case("--drafter", "absent.toml", "No such file"),
    ("list {folder}/gigabytes.toml", "memory.peak_bytes_per_s", "got 2000.0;", "B/s"),
    ("list {folder}/absent.toml", "absent.toml", "No such file"),
    ("list {folder}/malformed.toml", "malformed.toml", "TOML"),
    ("list {folder}/mamba.json", "model_type", "'mamba'"),
    ("list {folder}/folder.toml", "folder.toml"),
    ("list {folder}", "{folder}"),
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
        for value in ("3", "256", "96")
    ),
    (f"{MOE} --expert-parallel 0", "--expert-parallel", "got 0;"),
    (f"{MOE} --expert-parallel two", "--expert-parallel", "'two'"),
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
    (f"{MOE} --data-parallel 0", "--data-parallel", "got 0;"),
    (f"{MOE} --data-parallel two", "--data-parallel", "'two'"),
    (f"{MOE} --hardware l4 --data-parallel 16", "--data-parallel", "got 16;", "network"),
    (f"{GOOD} --target qwen3-32b --expert-parallel 8", "--expert-parallel", "got 8;", "routed"),
    (f"{MOE} --hardware l4 --expert-parallel 16", "--expert-parallel", "got 16;", "network"),
    (f"{MOE} --set popularity_exponent=-1", "--set popularity_exponent", "got -1.0;"),
    (f"{MOE} --set popularity_exponent=50", "--set popularity_exponent", "got 50.0;"),
    (f"{MOE} --set popularity_exponent=nan", "--set popularity_exponent", "nan"),
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
    *((f"{MOE} {setting}", name, "--force takes more") for setting, name in IMPLAUSIBLE.items()),
    (f"{MOE} --set popularity={{folder}}/digits.txt", "--set popularity", "numbers only"),
    (f"{MOE} --set popularity={{folder}}/short.txt", "--set popularity", "3 numbers", "128"),
    (f"{MOE} --set popularity={{folder}}/sum.txt", "--set popularity", "a sum of 64", "8"),
    (f"{MOE} --set popularity={{folder}}/range.txt", "--set popularity", "got 8.0;"),
    (f"{MOE} --set popularity={{folder}}/empty.toml", "--set popularity", "at least one"),
    (
        f"{MOE} --set popularity={{folder}}/sum.txt --set popularity_exponent=1",
        "--set popularity",
        "one of popularity and popularity_exponent",
    ),
    *(
        (f"{GOOD} {option} {value}", option, f"'{value}'", "mxfp4")
        for option in ("--expert-dtype", "--kv-dtype")
        for value in ("bf17", "nf4")
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
        for value, shown in (("nosuch", "nosuch"), ("''", ""), ("TRTLLM", "TRTLLM"))
    ),
    (f"{GOOD} --hardware b200 --stack torch", "--stack:", "'torch'", "NVIDIA B200"),
    (f"{GOOD} --hardware l4 --stack trtllm", "--stack:", "'trtllm'", "typical, datasheet", "L4"),
    (f"{GOOD} --hardware {{folder}}/good.toml --stack vllm", "--stack:", "'vllm'", "made up"),
    (f"{GOOD} --stack", "--stack"),
    (f"{GOOD} --interval --stack datasheet", "--interval:", "True", "typical", "datasheet"),
    (f"{GOOD} --interval --batch-size 1:5001", "--interval:", "5001 points", "at most 5000"),
    (
        f"{GOOD} --interval --batch-size 1:50 --context-length 1:101 --json",
        *("--interval:", "5050 points", "at most 5000"),
    ),
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


@pytest.mark.parametrize("form", ["", "--csv", "--json"])
def test_closed_pipe_is_silent(form):
    with start(f"{NGRAM} --batch-size 1:1000 {form}", subprocess.PIPE) as process:
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
