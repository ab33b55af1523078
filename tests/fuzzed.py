"""Random command lines over all commands, with random and damaged files, and what must hold.

From a shell: ``python tests/fuzzed.py SEED COUNT`` runs them in a folder of its own.
"""

import contextlib
import io
import json
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import click

from specmodel import cli
from specmodel.cli.commands import main_group

LONGEST = 20
"""Seconds of the processor after which a command line counts as one that hangs [s]."""

WHERE = "--target mixtral-8x7b --drafter eagle3 --hardware h200_sxm"
NGRAM = "--target model.toml --drafter ngram --hardware hardware.toml --engine engine.toml"
BLOCK = "--target mixtral-8x7b --drafter parallel --hardware h200_sxm"
RATE = "--acceptance-rate 0.7"
SMALL = "--batch-size 1,8 --draft-length 3"
DRAWN = "--requests 3 --output-tokens 40"
BASES = [
    *(f"predict {WHERE} {RATE} {SMALL}{more}" for more in ("", " --json", " --csv", " --interval")),
    f"predict {NGRAM} {SMALL} --tokens-per-step 1.4 --proposal-rate 0.4 --components",
    f"predict --target config.json --drafter llama.json --hardware h100_sxm {RATE} {SMALL} --json",
    f"predict {WHERE} {SMALL} --acceptance-by-position 0.8,0.7,0.6 --tensor-parallel 2",
    f"predict {NGRAM} {SMALL} --accepted-fraction 0.4 --popularity popularity.txt",
    f"predict {WHERE} {SMALL} --tokens-per-step 2.5 --engine sglang-v1 --tree-width 4 "
    "--verify-tokens 16 --host-speed 0.5 --interval",
    "decode --target mixtral-8x7b --hardware h200_sxm --batch-size 1,64 --prompt-length 900 "
    "--output-length 100",
    "decode --target model.toml --hardware hardware.toml --batch-size 1,8 --components --json",
    "decode --target qwen3.5-35b-a3b --hardware h200_sxm --batch-size 4 --context-length 9000",
    f"predict --target qwen3.5-35b-a3b --drafter mtp --hardware h200_sxm {SMALL} "
    "--acceptance-rate 0.8 --state-rollback replay",
    f"predict --target glm-5.2 --drafter mtp --hardware b200 {SMALL} --tensor-parallel 8 "
    "--acceptance preset",
    f"predict {WHERE} {RATE} {SMALL} --prompt-length 900 --output-length 100",
    "decode --target deepseek-v3 --hardware h200_sxm --tensor-parallel 8 --batch-size 1,8",
    "decode --target deepseek-v3 --hardware h200_sxm --data-parallel 8 --expert-parallel 4 "
    "--attention-dtype bf16 --batch-size 1,8",
    "decode --target model.toml --hardware hardware.toml --engine engine.toml --batch-size 1:64:x8"
    " --prompt-length 900,5000 --output-length 100 --interval --components --json",
    f"sweet-spot {WHERE} {RATE} --batch-size 1:64 --draft-length 1,3",
    f"best-draft-length {NGRAM} {RATE} --context-length 512,4096",
    f"break-even {WHERE} --batch-size 1,16 --draft-length 1:3",
    f"compare {WHERE} {RATE} --engine vllm-moesd-2025,ideal --batch-size 1,16",
    f"compare {WHERE} {RATE} --engine vllm,sglang,ideal --batch-size 1,16 --host-speed 0.5",
    f"explain {WHERE} {RATE} {SMALL}",
    f"schedule --for vllm {WHERE} {RATE} --max-batch-size 32",
    f"schedule --for vllm {NGRAM} {RATE} --max-batch-size 32 --json",
    f"schedule --for sglang {WHERE} {RATE} --max-batch-size 32 --engine sglang-v1",
    f"schedule --for tensorrt-llm {WHERE} {RATE} --max-batch-size 32 --host-speed 2",
    f"cost-table --for sglang {BLOCK} --draft-length 3 --batch-size 1,8",
    f"cost-table --for sglang {BLOCK} --draft-length 3 --form rates --fragment-only",
    f"cost-table --for vllm {WHERE} --draft-length 3 --context-length 512,4096 --csv",
    f"sensitivity {WHERE} {RATE} --batch-size 4 --draft-length 3 --samples 64",
    f"sensitivity {WHERE} {RATE} --batch-size 4 --draft-length 3 --samples 64 --engine vllm",
    f"sensitivity {NGRAM} --step-efficiency 0.3 --batch-size 4 --draft-length 3 --json",
    f"sweep {WHERE} {RATE} {SMALL}",
    f"sweep {WHERE} {SMALL} --tokens-per-step 2 --engine vllm --host-speed 0.5,2 --tree-width 1,4",
    f"sweep {NGRAM} --acceptance-rate 0.3,0.6 {SMALL} --output swept.csv --overwrite",
    f"simulate {WHERE} --trace chat-eagle {DRAWN} --policy none,fixed:2,cascade,goodput",
    "simulate --step-times times.csv --trace trace.jsonl --policy none,cascade,oracle --json",
    f"simulate {NGRAM} --trace preset.toml {DRAWN} --policy fixed:1,table:lengths.json,bandit",
    f"trace sample code-ngram {DRAWN} --output drawn.jsonl",
    "trace ngram requests.jsonl --output made.jsonl",
    "trace describe trace.jsonl code-ngram",
    *("show h200_sxm", "show model.toml", "show preset.toml", "show config.json"),
    *("show engine.toml", "list hardware", "list presets"),
    *(
        "acceptance before.prom",
        "acceptance before.prom after.prom",
        "acceptance after.prom --json",
    ),
    "fit kernels.csv --output fitted.toml",
    "fit engine served.csv --output mine.toml --name mine --vary pass_time --vary reject_time",
    "validate h200_sxm kernels.csv --stack trtllm",
    "validate --serving engines.csv --json",
    "validate --serving pairs.csv",
    "calibrate --device cpu --output nowhere/mine.toml",
    "measure-engine http://localhost:1 --output measured.csv --draft-length 0,3 --dry-run",
    "plot speedup predicted.csv --output drawn.svg",
    "plot waterfalls explained.csv --output drawn.svg",
    "plot tornado sensitive.csv --output drawn.svg",
    "plot break-even needed.csv --output drawn.svg",
]
"""Command lines that work, of every command but what a calibration takes minutes for."""

WORDS = {
    "target": "mixtral-8x7b qwen2-57b-a14b deepseek-v2-lite opt-350m model.toml config.json",
    "drafter": "ngram eagle eagle3 mtp parallel qwen2-0.5b llama.json model.toml",
    "hardware": "h200_sxm t4 mi300x l40s b200 hardware.toml",
    "engine": "ideal sglang sglang-v1 tensorrt-llm vllm vllm-moesd-2025 engine.toml",
    "host_speed": "0.01 0.3 1 2 100 101 0 -1 nan 1e9 0.5,2",
    "tree_width": "1 2 4 8 4096 4097 0 1.5 1,4",
    "stack": "typical datasheet trtllm vllm torch",
    "changes": (
        "hardware.memory.peak_bytes_per_s=1e300 hardware.memory.peak_bytes_per_s=3e12"
        " hardware.memory.capacity_bytes=1 hardware.num_multiprocessors=1 hardware.link.num_gpus=2"
        " hardware.dtype.bf16.peak_flops_per_s=1e308 target.num_layers=1 target.hidden_size=64"
        " target.vocabulary_size=10 target.ffn_size=0 target.num_experts=3 drafter.num_layers=0"
        " engine.pass_time=1e300 engine.kernel_time=1e-3 engine.reject_time=1e308 drafter.name=x"
        " engine.kernel_time=1e200 engine.reject_time_per_token=1e100 engine.draft_pass_time=1e-300"
        " hardware.memory.peak_bytes_per_s=1e9 hardware.memory.l2_bytes=1e300 target.kv_dtype=int4"
        " hardware.dtype.bf16.peak_flops_per_s=1e11 target.hidden_size=1000000 target.num_heads=1"
        " target.vocabulary_size=1000000000 target.expert_size=1 target.num_layers=100000"
        " target.layers=1 target.experts_per_token=1 engine.stack=trtllm hardware.name=x"
        " engine.tree_time=1 engine.hides_host=all engine.hides_host=plain engine.host_speed=0.01"
        " engine.gpu_time_factor=100 engine.hides_host=x engine.host_speed=0 engine.tree_time=-1"
    ),
    "dtype": "bf16 fp8 fp4 int4 int8 fp16 fp32 mxfp4",
    "popularity": "popularity.txt",
    "step_times": "times.csv",
    "trace": "trace.jsonl code-ngram chat-eagle math-ngram+chat-eagle preset.toml",
    "policies": (
        "none oracle greedy best-fixed fixed:9 bandit sglang cascade:first_draft_length=1"
        " goodput:memory=5 table:lengths.json nowhere:Policy fixed: cascade:backoff_factor=0,none"
    ),
    "columns": "speedup,tpot limited_by speedup,speedup",
    "range": "acceptance_rate=0.5:0.9 routing_correlation=0:1 hardware.num_multiprocessors=1:9",
    "vary": "kernel_time pass_time draft_pass_time reject_time_per_token",
    "leave_out": "target batch_size",
    "kind": "speedup roofline hardware tornado policies break-even sobol tables active-experts",
    "table": "predicted.csv explained.csv sensitive.csv needed.csv kernels.csv -",
    "output": "drawn.svg out.csv out.toml out.jsonl parts/ / . out",
    "records": "records.csv trace.jsonl",
    "timeline": "line.svg",
    "device": "cpu cuda",
    "for": "vllm tensorrt-llm sglang",
    "dialect": "vllm tensorrt-llm sglang",
    "form": "additive rates",
}
"""Plausible words of options and arguments, by their names."""
NOT_A_NUMBER = re.compile(r"(?i)(?<![\w./-])[-+]?(nan|inf|infinity)(?![\w./])")
TEXT = re.compile(r'"[^"\n]*"')
"""Words in TOML and JSON, in which a fault or an option may have put one."""
NUMBERS = "0 1 2 3 4 7 8 0.5 0.9 1e-6 1.0"
LISTS = "1 4 1,8 1:8:x2 1:5 2,2 3:1 0:3 512"
STRANGE = [
    *("", " ", "-1", "nan", "inf", "-inf", "1e308", "1e-320", "1e-30", "1e15", "1e400", "x"),
    *("1e200", "1e-200", "1e-9", "1e6", "0.999999999", "1:4", "1000", "0.1:0.9:0.4"),
    *(
        "1" + "0" * 400,
        "-0",
        "1.5",
        "1e3",
        "1_0",
        "٣",
        "é√",
        "\udcff",
        "a\nb",
        "\x1b[31m",
        "x" * 5000,
    ),
    *("1,", ",", ":", "1:", "1:x2", "true", "=", "a=b", "a.b=1", "./nope", "/", ".", "..", "~"),
    *("/dev/null", "--", "--json", "-h", "nope.toml", "nope.csv", "folder.toml", "[", "{}", "%s"),
    *("http://localhost/metrics", "-", "H200", "1000000000", "100000", "9" * 18, "2e9", "0x10"),
]
CHEAP = {
    "workers": ["1", "0", "-1", "x"],
    "requests": ["1", "5", "0", "-1", "x", "1" + "0" * 400],
    "output_tokens": ["1", "50", "0", "-1", "x", "1" + "0" * 400],
    "samples": ["64", "128", "4", "0", "-1", "x", "1" + "0" * 400],
    "scheduler": ["", "x"],
    "suite": ["x"],
    "yes": [],
    "length": [],
}
"""All values of options that other values make slow."""
_DAMAGE = ["nan", "inf", "-1", "0", "1e308", "1e-308", "1e400", "9" * 401, "true", '"x"', "1.5", ""]
_FILES = {
    "llama.json": {
        "model_type": "llama", "hidden_size": 1024, "num_attention_heads": 16, "vocab_size": 32000,
        "num_hidden_layers": 4, "intermediate_size": 2048, "torch_dtype": "bfloat16",
    },
    "config.json": {
        "model_type": "mixtral", "hidden_size": 1024, "num_attention_heads": 16,
        "num_key_value_heads": 8, "num_hidden_layers": 4, "intermediate_size": 2048,
        "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
    },
}  # fmt: skip


class Hangs(BaseException):
    """Takes too long."""


def write_files(folder: Path) -> None:
    """Write a valid file of every kind."""
    made = {name: json.dumps(content) for name, content in _FILES.items()}
    made["popularity.txt"] = "0.1 0.2 0.3 0.4 0.1 0.2 0.3 0.4"
    made["times.csv"] = "draft_length,step_time\n0,0.01\n1,0.011\n2,0.012\n3,0.014\n"
    made["lengths.json"] = "[[1, 4, 3], [5, 16, 1]]"
    ids = [1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 7]
    lines = [{"prompt_token_ids": ids, "output_token_ids": ids[::-1] + ids} for _ in range(3)]
    made["requests.jsonl"] = "\n".join(map(json.dumps, lines)) + "\n"
    counts = {"drafts": 100, "draft_tokens": 300, "accepted_tokens": 190}
    for name, scale in (("before.prom", 1), ("after.prom", 3)):
        at = 'engine="0",model_name="m"'
        by = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        rows = [f"vllm:spec_decode_num_{k}_total{{{at}}} {scale * n}" for k, n in counts.items()]
        rows += [f'{by}{{{at},position="{i}"}} {scale * n}' for i, n in enumerate((90, 60, 40))]
        made[name] = "\n".join([f"# TYPE {by} counter", *rows]) + "\n"
    shown = {"hardware": "show l40s", "model": "show mixtral-8x7b", "engine": "show sglang"}
    for name, command in (shown | {"preset": "show code-ngram"}).items():
        made[f"{name}.toml"] = _printed(command)
    made["predicted.csv"] = _printed(
        f"predict {WHERE} {RATE} --batch-size 1,8 --draft-length 1,3 --csv"
    )
    made["explained.csv"] = _printed(f"explain {WHERE} {RATE} {SMALL} --csv")
    made["needed.csv"] = _printed(f"break-even {WHERE} --batch-size 1,8 --draft-length 1,2 --csv")
    made["sensitive.csv"] = _printed(
        f"sensitivity {WHERE} {RATE} --batch-size 4 --draft-length 3 --samples 64 --csv"
    )
    made["kernels.csv"] = _kernels()
    made["served.csv"] = (
        "target,drafter,hardware,tensor_parallel,batch_size,draft_length,context_length,quantity,"
        "value,step_efficiency\n"
        + "".join(
            f"mixtral-8x7b,eagle3,h200_sxm,1,{size},3,512,{what},{value},0.7\n"
            for size, what, value in (
                (1, "speedup", 1.8), (8, "speedup", 1.5), (1, "relative_step_time", 1.3),
                (4, "forward_time", 0.02), (8, "step_time", 0.03),
            )
        )
    )  # fmt: skip
    made["engines.csv"] = (
        "model,dtype,system,backend,gpus,isl,osl,concurrency,measured_tpot_ms\n"
        "mixtral-8x7b,bf16,h200_sxm,vllm,2,1000,100,8,12\n"
        "DeepSeek-R1,fp8,b200_sxm,sglang,8,8000,1000,64,30\n"
    )
    made["pairs.csv"] = (
        "engine,gpu,tensor_parallel,target,weight_dtype,drafter,draft_length,"
        "batch_size_or_concurrency,tokens_per_step,speedup,spec_step_ms\n"
        "sglang,h200,4,Qwen3-30B-A3B,bf16 (assumed),eagle3: mine,3,8,2.6,1.6,\n"
        "sglang,h200,4,Qwen3-30B-A3B,bf16,eagle3,3,8,2.6,,9.4\n"
    )
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "folder.toml").mkdir()
    _printed(f"trace sample code-ngram {DRAWN} --output {shlex.quote(str(folder))}/trace.jsonl")


def _kernels() -> str:
    """A small table of timings of matrices."""
    from planted import planted

    table = planted("gemm")
    return str(table.iloc[:: max(1, len(table) // 24)].to_csv(index=False))


def _printed(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(shlex.split(command)) == 0, command
    return out.getvalue()


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A file with one to three faults, of those that editors, disks and people make."""
    for _ in range(rng.randint(1, 3)):
        lines = content.splitlines(keepends=True) or [b""]
        at, line = rng.randrange(len(content) + 1), rng.randrange(len(lines))
        kind = rng.randrange(8)
        if kind == 0:
            content = content[:at]
        elif kind == 1:
            bad = rng.choice(
                [b"\xff\xfe", b"\0", b"[" * 1000, b'"', b"\n", b",", b"=", b"\xe2\x88"]
            )
            content = content[:at] + bad + content[at:]
        elif kind == 2:
            content = b"".join(lines[:line] + lines[line + 1 :])
        elif kind == 3:
            content = b"".join([*lines[:line], lines[line], *lines[line:]])
        elif kind == 4:
            content = content[:at] + content[at + rng.randint(1, 20) :]
        else:  # a number, which is where most meaning is
            found = list(re.finditer(rb"-?\d[\d.e+-]*", content))
            if found:
                start, end = rng.choice(found).span()
                content = content[:start] + rng.choice(_DAMAGE).encode() + content[end:]
    return content


def _leaves(command: click.Command, words: list[str]) -> tuple[click.Command, int]:
    """The command that words name, and how many words do."""
    used, context = 0, click.Context(command)
    while isinstance(command, click.Group):
        inner = command.get_command(context, words[used])
        if inner is None and hasattr(command, "default"):
            inner = command.get_command(context, command.default)
            used -= 1
        assert inner is not None
        command, used = inner, used + 1
    return command, used


def _value(parameter: click.Parameter, rng: random.Random) -> str:
    """A plausible or a strange value of an option or argument."""
    name = parameter.name or ""
    if name in CHEAP:
        return rng.choice(CHEAP[name])
    if rng.random() < 0.25:
        return rng.choice(STRANGE)
    if name.endswith("_dtype"):
        name = "dtype"
    if name in WORDS:
        return rng.choice(WORDS[name].split())
    is_number = parameter.type.name in ("integer", "float")
    return rng.choice((NUMBERS if is_number else LISTS + " " + NUMBERS).split())


def command_line(rng: random.Random) -> list[str]:
    """A command line that works but for up to three changes of its words."""
    words = shlex.split(rng.choice(BASES))
    if words[0] == "calibrate":  # one that works takes minutes
        return [*words, *rng.choice([["--output", "nowhere/a.toml"], ["--hardware", "x"], ["x"]])]
    command, used = _leaves(main_group, words)
    options = [p for p in command.params if isinstance(p, click.Option)]
    options = [p for p in options if CHEAP.get(p.name or "") != []]
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        chance = rng.random()
        if chance < 0.7 and options:
            option = rng.choice(options)
            words.append(option.opts[0])
            if not option.is_flag:
                words.append(_value(option, rng))
        elif chance < 0.85 and len(words) > used:
            at = rng.randrange(used, len(words))
            words[at] = words[at] if words[at].startswith("--") else rng.choice(STRANGE)
        elif chance < 0.95 and len(words) > used:
            del words[rng.randrange(used, len(words))]
        else:
            words.insert(rng.randrange(len(words) + 1), rng.choice(STRANGE))
    return words


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fault_of(words: list[str]) -> str:
    """What is wrong with how a command line ends: nothing, or a few lines."""
    out, err = io.StringIO(), io.StringIO()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8")
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
            _limited(),
        ):
            warnings.simplefilter("error")
            status = cli.main(words)
    except (Exception, SystemExit, Hangs) as error:
        return f"{type(error).__name__}\n" + "".join(traceback.format_exception(error)[-3:])
    finally:
        sys.stdin = stdin
    return "\n".join(_faults(words, status, out.getvalue(), err.getvalue()))


def _faults(words: list[str], status: int, out: str, err: str) -> Iterator[str]:
    """Say what is wrong with a status and what was printed."""
    if status == 2 and not out and "Usage:" in err:
        return  # a command without any of its words explains itself
    lines = err.splitlines()
    errors = [line for line in lines if line.startswith("specmodel: error: ")]
    allowed = ("specmodel: warning: ", "specmodel: skipped: ", "specmodel: error: ")
    strange = [line for line in lines if not line.startswith(allowed)]
    # of status 1 are judgements of validate, which say why
    if status not in (0, 1, 2) or len(errors) != (status == 2) or len(strange) > (status == 1):
        yield f"status {status}, on stderr: {lines[:4]}"
    if any(len(line) > 2000 or not line.isprintable() for line in lines):
        yield f"long lines or control characters: {err[:2000]!r}"
    if status == 0:
        yield from _faults_of_answer(words, out)


def _faults_of_answer(words: list[str], out: str) -> Iterator[str]:
    """Say where an answer has no number, and whether JSON is none."""
    told = TEXT.sub('""', out)
    found = NOT_A_NUMBER.search(told)
    if found and not {"nan", "inf", "-inf"} & {*words}:
        yield "not a number: " + told[max(0, found.start() - 200) : found.end() + 80]
    before = words[words.index("--json") - 1] if "--json" in words else "--json"
    is_value = before.startswith("--")  # of the option before it
    if not is_value and not {"--csv", "-h", "--help"} & {*words}:
        try:
            json.loads(out)
        except ValueError as error:
            yield f"no JSON: {error}"


def _faults_of_files(folder: Path, kept: dict[str, bytes]) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix in (".csv", ".toml", ".jsonl") and path.is_file() and path.name not in kept:
            text = path.read_text(encoding="utf-8")
            if NOT_A_NUMBER.search(TEXT.sub('""', text)):
                yield f"not a number in {path.name}: {text[:200]}"


def fuzz(seed: int, count: int, folder: Path) -> list[tuple[list[str], str]]:
    """Run command lines in the current folder; return those that end as none should, and how."""
    rng = random.Random(seed)
    write_files(folder)
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    found = []
    for _ in range(count):
        words, damage = command_line(rng), ""
        named = [name for name in kept if any(name in word for word in words)]
        if named and rng.random() < 0.5:
            name = rng.choice(named)
            content = damaged(kept[name], rng)
            (folder / name).write_bytes(content)
            damage = f"\n{name}: {content[:2000]!r}"
        fault = fault_of(words) or "\n".join(_faults_of_files(folder, kept))
        if fault:
            found.append((words, fault + damage))
        _restore(folder, kept)
    return found


def _restore(folder: Path, kept: dict[str, bytes]) -> None:
    """Leave the valid files only."""
    for path in folder.iterdir():
        if path.name == "folder.toml":
            continue
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name, content in kept.items():
        if not (folder / name).exists() or (folder / name).read_bytes() != content:
            (folder / name).write_bytes(content)


def main(seed: int, count: int) -> int:
    """Print the faults; return the exit status."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        found = fuzz(seed, count, Path(name))
    for words, fault in found:
        print(shlex.join(words)[:600], fault, "", sep="\n")
    print(f"{len(found)} faults in {count} command lines")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
