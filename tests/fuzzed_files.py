"""Valid files of every kind that commands read, and functions that damage them."""

import contextlib
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
from planted import planted
from printed import filled, output_of

from specmodel import InputError
from specmodel.calibrate.measure.kernels.device import DeviceInfo

_DATA = Path(__file__).parent / "data"
_DAMAGE = ["nan", "inf", "-1", "0", "1e308", "1e-308", "1e400", "9" * 401, "true", '"x"', "1.5", ""]
WHERE = "--target mixtral-8x7b --drafter eagle3 --hardware h200_sxm"
RATE = "--acceptance-rate 0.7"
DRAWN = "--requests 3 --output-tokens 40"
_WORDS = {"where": WHERE, "rate": RATE, "drawn": DRAWN}
_PUBLIC = (
    *("flat_offline.json", "trtllm_bench_mtp.json", "aiperf.csv"),
    *("printed_vllm.txt", "batched_bench.md"),
)
"""Results of other tools."""
_PRINTED = {n: c for c, (n,) in filled("commands.txt", "tables that are damaged", _WORDS)}
"""Tables that commands print."""


def write_files(folder: Path) -> None:
    """Write a valid file of every kind: those of `data/fuzzed`, and the outputs of commands."""
    shutil.copytree(_DATA / "fuzzed", folder, dirs_exist_ok=True)
    shown = {"hardware": "list l40s", "model": "list mixtral-8x7b", "engine": "list sglang"}
    commands = {f"{n}.toml": c for n, c in (shown | {"preset": "list code-ngram"}).items()}
    commands |= {f"{name}.csv": f"{command} --csv" for name, command in _PRINTED.items()}
    made = {name: output_of(command) for name, command in commands.items()}
    made["alone.toml"] = re.sub(r"(?ms)^\[link.*?(?=^\[(?!link)|\Z)", "", made["hardware.toml"])
    made["kernels.csv"] = planted("gemm").iloc[::4].to_csv(index=False)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "folder.toml").mkdir()
    for name in ("vllm_plain", "vllm_eagle3", "guidellm_eagle3", "aiperf_plain"):
        shutil.copy(_DATA / "benchmarks" / f"{name}.json", folder)
    shutil.copy(_DATA / "benchmarks/sglang.jsonl", folder)
    for name in _PUBLIC:
        shutil.copy(_DATA / "benchmarks/public" / name, folder)
    where = shlex.quote(str(folder))
    output_of(f"trace sample code-ngram {DRAWN} --output {where}/trace.jsonl")
    pd.DataFrame({"accepted_tokens": [3, 2, 0, 1]}).to_parquet(folder / "trace.parquet")
    planted("gemm").iloc[::4].to_parquet(folder / "kernels.parquet")
    with quick_bench():
        output_of(f"calibrate --device cpu --tiny --output {where}/mine.toml")


@contextlib.contextmanager
def quick_bench() -> Iterator[None]:
    """Time kernels of a simulated CPU, which is the same on all machines."""

    def found(kind: str, dtype: str = "bf16") -> DeviceInfo:
        if kind != "cpu":
            raise InputError("device", kind, "cpu here")
        return benched.INFO

    with pytest.MonkeyPatch.context() as patch:
        benched.put(benched.FakeBench, patch)
        patch.setattr("specmodel.calibrate.measure.kernels.device.find_device", found)
        yield


Kept = dict[str, bytes]
"""Contents of valid files by their names in the folder."""
LINK = b"-> "
"""Prefix that replaces the content of a link; the target of the link follows."""


def contents(folder: Path) -> Kept:
    """Return the content of each file, or the target of each link."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]

    def content(path: Path) -> bytes:
        return LINK + os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()

    return {str(path.relative_to(folder)): content(path) for path in paths}


def named_in(words: list[str], kept: Kept) -> list[str]:
    """Return the valid files that words name, and those that belong to them."""
    found = [name for name in kept if any(name.split("/")[0] in word for word in words)]
    own = {"mine.csv", "mine.json", "mine.toml"} if "mine.toml" in words else set()
    return sorted({*found, *(own & {*kept})})


def restore(folder: Path, kept: Kept) -> None:
    """Restore the valid files and remove all others."""
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
    """Make one to three faults of editors or disks, at a byte or in a line."""
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
    """Change one cell of a table, or one value on a page of counters."""
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
    """Replace one match of a pattern by a wrong text."""
    content = path.read_bytes()
    if found := list(re.finditer(pattern, content)):
        start, end = rng.choice(found).span()
        path.write_bytes(content[:start] + rng.choice(wrong) + content[end:])


def _number(path: Path, rng: random.Random) -> None:
    """Change a number as a typing error would."""
    wrong = [word.encode() for word in rng.choice([_DAMAGE, _ABSURD])]
    _replace(path, rng, rb"(?<=[:=,\[ ])-?\d[\d.]*(e[+-]?\d+)?(?![\w.])", wrong)


def _value(path: Path, rng: random.Random) -> None:
    """Change the value of a key in JSON or TOML."""
    wrong = [*_DAMAGE, "null", "[]", "{}", "NaN", "Infinity", "-0.0", '"nan"']
    # a text that is called nan is told as it is
    texts = [*wrong[:-1], f'"{"m" * 3000}"', r'"\u001b[31m"', '"1\\u0663"']
    kinds = ((rb"(?<=[:=])\s*[\w.+-]+", wrong), (rb'(?<=[:=])\s*"[^"\n]*"', texts))
    pattern, words = rng.choice(kinds)
    _replace(path, rng, pattern, [word.encode() for word in words])


def _deep(path: Path, rng: random.Random) -> None:
    """Replace the whole file or a number by values nested 100,000 deep."""
    pattern = rng.choice([rb"(?s)\A.*\Z", rb"(?<=[:= ])\d[\d.]*"])
    _replace(path, rng, pattern, [DEEP, DEEP + b"]" * 100_000, b'{"a":' * 100_000])


def _circle(path: Path, rng: random.Random) -> None:
    """Replace the file by links that point to each other."""
    path.unlink()
    other = path.with_name(rng.choice([path.name, "round"]))
    path.symlink_to(other.name)
    if other != path:
        other.symlink_to(path.name)


def _no_file(path: Path, rng: random.Random) -> None:
    """Replace the file by nothing, a folder or a pipe."""
    path.unlink()
    rng.choice([os.mkfifo, os.mkdir, lambda _: None])(path)


def _large(path: Path, rng: random.Random) -> None:
    """Append six megabytes of zeros, newlines or the file's own end."""
    content = path.read_bytes()
    more = rng.choice([b"\0", b"\n", b"#", content[-200:] or b" "])
    path.write_bytes(content + more * (6_000_000 // len(more)))


FAULTS: dict[Callable[[Path, random.Random], None], int] = {
    _bytes: 40, _cell: 40, _value: 40, _number: 40, _deep: 10, _circle: 10, _no_file: 30, _large: 1,
}  # fmt: skip
"""Kinds of damage, and how often each occurs; large files take seconds."""
