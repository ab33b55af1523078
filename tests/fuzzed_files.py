"""Valid files of every kind that commands read, and what may be wrong with them."""

import contextlib
import io
import json
import os
import random
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import benched
import pandas as pd
import pytest
from fuzzed_lines import DRAWN, RATE, SMALL, WHERE
from planted import planted
from shapes import CONFIG

from specmodel import InputError, cli
from specmodel.measure.kernels.device import DeviceInfo

_BENCHMARKS = Path(__file__).parent / "data" / "benchmarks"
_DAMAGE = ["nan", "inf", "-1", "0", "1e308", "1e-308", "1e400", "9" * 401, "true", '"x"', "1.5", ""]
_HEAD = {
    "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "vocab_size": 151936, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
"""What heads for Qwen3-30B-A3B have in common."""
_FILES = {
    "llama.json": {
        "model_type": "llama", "hidden_size": 1024, "num_attention_heads": 16, "vocab_size": 32000,
        "num_hidden_layers": 4, "intermediate_size": 2048, "torch_dtype": "bfloat16",
    },
    "config.json": CONFIG | {"hidden_size": 1024, "num_hidden_layers": 4},
    "head.json": _HEAD | {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
        "intermediate_size": 12288, "num_hidden_layers": 1, "draft_vocab_size": 32000,
    },
    "block.json": _HEAD | {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "intermediate_size": 6144,
        "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2, "block_size": 16,
        "num_target_layers": 48, "dflash_config": {"target_layer_ids": [1, 23]},
    },
}  # fmt: skip


_PRINTED = {
    "predicted": f"predict {WHERE} {RATE} --batch-size 1,8 --draft-length 1,3",
    "parts": f"predict {WHERE} {RATE} --batch-size 8 --draft-length 3 --components",
    "explained": f"predict --view terms {WHERE} {RATE} {SMALL}",
    "needed": f"break-even {WHERE} --batch-size 1,8 --draft-length 1,2",
    "sensitive": f"sensitivity {WHERE} {RATE} --batch-size 4 --draft-length 3 --samples 64",
    "best": f"predict --view lengths {WHERE} {RATE} --batch-size 1,8",
    "replayed": f"simulate {WHERE} --trace chat-eagle {DRAWN} --policy none,fixed:2,oracle",
}
"""Tables that commands print."""
_TABLES = {
    "judged.csv": "component,latency,predicted\ngemm,1e-5,2e-5\nexperts,3e-5,3.1e-5\n",
    "carried.csv": "policy,request_rate,tpot_p90,ttft_p90,goodput,capacity,simulated_low,"
    "simulated_high,predicted_low,predicted_high\nnone,1,0.01,0.1,1,1.5,1.4,1.6,1,2\n"
    "none,2,0.02,0.2,0.4,1.5,1.4,1.6,1,2\nfixed:3,1,0.01,0.1,1,4,3.9,4.2,3,5\n",
    "drained.csv": "policy,makespan,share_at_0,share_at_1,share_at_2,last_at_1,last_at_2\n"
    "none,9.5,0.1,0.3,0.6,9.5,4.5\nfixed:3,5,0,0.2,0.8,5,2.5\n",
    "looped.csv": "batch_size,draft_length,measured,predicted,spread\n1,1,0.7,0.69,0.02\n"
    "4,1,0.8,0.82,\n",
    "measured.csv": "engine,draft_length,tokens_per_step,concurrency,step_ms,step_batch,"
    "step_spread,repeats\nvllm,0,1,4,21.5,3.9,0.02,3\nvllm,3,2.4,4,33.1,3.8,0.03,3\n",
    "own.csv": "request,proposed_tokens,accepted_tokens\na,4,2\na,4,1\nb,0,0\n",
    "came.jsonl": "".join(
        f'{{"timestamp": {900 * i}, "input_length": {600 + i}, "output_length": 9,'
        f' "hash_ids": [0, {i}]}}\n'
        for i in range(12)
    ),
    "came.json": '{"input_lens": [7, 5, 8], "output_lens": [2, 3, 4], "start_times": [5, 4, 6.5]}',
    "steps.csv": "draft_length,emitted_tokens,phase,utility,window_utility\n0,1,baseline,,\n"
    "3,3,test,1.5,\n3,4,set,1.5,1.2\n",
    "engines.csv": "model,dtype,system,backend,gpus,isl,osl,concurrency,measured_tpot_ms,"
    "measured_ttft_ms\nmixtral-8x7b,bf16,h200_sxm,vllm,2,8000,100,4,12,900\n"
    "DeepSeek-R1,fp8,b200_sxm,sglang,8,8000,1000,64,30,\n",
    "pairs.csv": "engine,gpu,tensor_parallel,target,weight_dtype,drafter,draft_length,"
    "batch_size_or_concurrency,tokens_per_step,speedup,spec_step_ms\n"
    "sglang,h200,4,Qwen3-30B-A3B,bf16 (assumed),eagle3: mine,3,8,2.6,1.6,\n"
    "sglang,h200,4,Qwen3-30B-A3B,bf16,eagle3,3,8,2.6,,9.4\n",
}  # fmt: skip


CACHED = "hub/models--made--small"
"""Where the local cache `hub` has the model made/small."""


def write_files(folder: Path) -> None:
    """Write a valid file of every kind."""
    made = {name: json.dumps(content) for name, content in _FILES.items()}
    made["served/config.json"] = json.dumps(_FILES["config.json"] | {"sliding_window": None})
    made["served/hf_quant_config.json"] = '{"quantization": {"quant_algo": "FP8"}}'
    made[f"{CACHED}/refs/main"] = "0a1b\n"
    made[f"{CACHED}/snapshots/0a1b/config.json"] = made["config.json"]
    made["start.json"] = '{"method": "eagle3", "num_speculative_tokens": 3}'
    made["popularity.txt"] = "0.1 0.2 0.3 0.4 0.1 0.2 0.3 0.4"
    made["times.csv"] = "draft_length,step_time\n0,0.01\n1,0.011\n2,0.012\n3,0.014\n"
    made["load.csv"] = "arrival_time,prompt_tokens,output_tokens\n0,90,9\n0.5,400,30\n2,7,3\n"
    made["slots.json"] = '{"1": {"candidate_steps": [1, 3]}}'
    made["lengths.json"] = "[[1, 4, 3], [5, 16, 1]]"
    made["own.jsonl"] = '{"accepted_tokens": [3, 2, 0]}\n[1, 0]\n'
    made |= _TABLES
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
    shown = {"hardware": "list l40s", "model": "list mixtral-8x7b", "engine": "list sglang"}
    for name, command in (shown | {"preset": "list code-ngram"}).items():
        made[f"{name}.toml"] = _printed(command)
    for name, command in _PRINTED.items():
        made[f"{name}.csv"] = _printed(f"{command} --csv")
    made["alone.toml"] = re.sub(r"(?ms)^\[link.*?(?=^\[(?!link)|\Z)", "", made["hardware.toml"])
    made["kernels.csv"] = planted("gemm").iloc[::4].to_csv(index=False)
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "folder.toml").mkdir()
    for name in ("vllm_plain.json", "vllm_eagle3.json", "sglang.jsonl", "guidellm_eagle3.json"):
        shutil.copy(_BENCHMARKS / name, folder)
    shutil.copy(_BENCHMARKS / "aiperf_plain.json", folder)
    where = shlex.quote(str(folder))
    _printed(f"trace sample code-ngram {DRAWN} --output {where}/trace.jsonl")
    pd.DataFrame({"accepted_tokens": [3, 2, 0, 1]}).to_parquet(folder / "trace.parquet")
    planted("gemm").iloc[::4].to_parquet(folder / "kernels.parquet")
    with quick_bench():
        _printed(f"calibrate --device cpu --tiny --output {where}/mine.toml")


@contextlib.contextmanager
def quick_bench() -> Iterator[None]:
    """Time kernels of a CPU that is the same on all machines."""

    def found(kind: str, dtype: str = "bf16") -> DeviceInfo:
        if kind != "cpu":
            raise InputError("device", kind, "cpu here")
        return benched.INFO

    with pytest.MonkeyPatch.context() as patch:
        benched.put(benched.FakeBench, patch)
        patch.setattr("specmodel.measure.kernels.device.find_device", found)
        yield


def _printed(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(shlex.split(command)) == 0, command
    return out.getvalue()


Kept = dict[str, bytes]
"""Contents of valid files by their names in the folder."""
LINK = b"-> "
"""What a link has in place of a content, before where it leads."""


def contents(folder: Path) -> Kept:
    """Return what each file has, or where a link leads."""
    return {
        str(path.relative_to(folder)): (
            LINK + os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def named_in(words: list[str], kept: Kept) -> list[str]:
    """Return the valid files that words name, and those that belong to them."""
    found = [name for name in kept if any(name.split("/")[0] in word for word in words)]
    own = {"mine.csv", "mine.json", "mine.toml"} if "mine.toml" in words else set()
    return sorted({*found, *(own & {*kept})})


def restore(folder: Path, kept: Kept) -> None:
    """Leave the valid files only."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = str(path.relative_to(folder))
        if name in kept and path.is_file() and not path.is_symlink():
            continue
        if path.is_dir() and not path.is_symlink():
            if name != "folder.toml" and not any(other.startswith(f"{name}/") for other in kept):
                shutil.rmtree(path)
        else:
            path.unlink()
    for name, content in kept.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


_CELLS = ["nan", "NaN", "+Inf", "-inf", "0", "-1", "-0", "1e400", "1e-400", "true", "", "x", "1.5"]
_ABSURD = ["1e-308", "5e-324", "1e-30", "1e-9", "1e9", "1e30", "1e200", "1e308"]
_BYTES = [b"", b"\xff\xfe", b"\0", b"[" * 1000, b'"', b"\n", b",", b"=", b"\xe2\x88"]
DEEP = b"[" * 100_000


def _bytes(path: Path, rng: random.Random) -> None:
    """One to three faults, of those that editors and disks make: at a byte, or of a line."""
    for _ in range(rng.randint(1, 3)):
        content = path.read_bytes()
        lines = content.splitlines(keepends=True) or [b""]
        at, line = rng.randrange(len(content) + 1), rng.randrange(len(lines))
        damaged = [
            content[:at],
            content[:at] + rng.choice(_BYTES) + content[at + rng.choice([0, 1, 20]) :],
            b"".join(lines[:line] + lines[line + 1 :]),
            b"".join(lines[: line + 1] + lines[line:]),
        ]
        path.write_bytes(rng.choice(damaged))


def _cell(path: Path, rng: random.Random) -> None:
    """Another value in one cell of a table, or after a name on a page of counters."""
    lines = path.read_bytes().decode(errors="replace").splitlines(keepends=True)
    rows = [at for at, line in enumerate(lines) if at or path.suffix == ".prom"]
    if not rows:
        return
    at, mark = rng.choice(rows), "," if "," in lines[0] else " "
    cells = lines[at].rstrip("\n").split(mark)
    cells[rng.randrange(len(cells))] = rng.choice(_CELLS)
    lines[at] = mark.join(cells) + "\n"
    path.write_text("".join(lines), encoding="utf-8")


def _replace(path: Path, rng: random.Random, pattern: bytes, wrong: Sequence[bytes]) -> None:
    """Put something else in place of one of what a pattern finds."""
    content = path.read_bytes()
    if found := list(re.finditer(pattern, content)):
        start, end = rng.choice(found).span()
        path.write_bytes(content[:start] + rng.choice(wrong) + content[end:])


def _number(path: Path, rng: random.Random) -> None:
    """Another number, such as a slip makes it."""
    wrong = [word.encode() for word in rng.choice([_DAMAGE, _ABSURD])]
    _replace(path, rng, rb"(?<=[:=,\[ ])-?\d[\d.]*(e[+-]?\d+)?(?![\w.])", wrong)


def _value(path: Path, rng: random.Random) -> None:
    """Another value for a key of JSON or TOML."""
    wrong = [*_DAMAGE, "null", "[]", "{}", "NaN", "Infinity", "-0.0", '"nan"']
    # a text that is called nan is told as it is
    texts = [*wrong[:-1], f'"{"m" * 3000}"', r'"\u001b[31m"', '"1\\u0663"']
    kinds = ((rb"(?<=[:=])\s*[\w.+-]+", wrong), (rb'(?<=[:=])\s*"[^"\n]*"', texts))
    pattern, words = rng.choice(kinds)
    _replace(path, rng, pattern, [word.encode() for word in words])


def _deep(path: Path, rng: random.Random) -> None:
    """Values in each other, 100,000 deep: in place of all, or of a number."""
    pattern = rng.choice([rb"(?s)\A.*\Z", rb"(?<=[:= ])\d[\d.]*"])
    _replace(path, rng, pattern, [DEEP, DEEP + b"]" * 100_000, b'{"a":' * 100_000])


def _circle(path: Path, rng: random.Random) -> None:
    """Links that lead to each other."""
    path.unlink()
    other = path.with_name(rng.choice([path.name, "round"]))
    path.symlink_to(other.name)
    if other != path:
        other.symlink_to(path.name)


def _no_file(path: Path, rng: random.Random) -> None:
    """Nothing, a folder or a pipe in place of a file."""
    path.unlink()
    rng.choice([os.mkfifo, os.mkdir, lambda _: None])(path)


def _large(path: Path, rng: random.Random) -> None:
    """Six megabytes more, of nothing or of what was there."""
    content = path.read_bytes()
    more = rng.choice([b"\0", b"\n", b"#", content[-200:] or b" "])
    path.write_bytes(content + more * (6_000_000 // len(more)))


FAULTS: dict[Callable[[Path, random.Random], None], int] = {
    _bytes: 40, _cell: 40, _value: 40, _number: 40, _deep: 10, _circle: 10, _no_file: 30, _large: 1,
}  # fmt: skip
"""What may be wrong with a file, and how often: what is large takes seconds."""
