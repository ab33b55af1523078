"""Random command lines over all commands, with random and damaged files, and what must hold.

From a shell: ``python tests/fuzzed.py --lines 10000`` runs them in a folder of its own.
"""

import argparse
import contextlib
import os
import random
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import fuzzed_files
import pytest
from fuzzed_files import Kept, contents, named_in, restore
from fuzzed_lines import BASES, OTHERS, command_line, leaf
from fuzzed_runs import (
    NOT_UTF_8,
    OUTPUTS,
    Ended,
    faults,
    faults_of_files,
    in_child,
    little_memory,
    run,
)

from specmodel.cli.commands import main_group
from specmodel.measure.kernels.rows import RowFile

_LARGE = {
    "predict": "--batch-size 1:9999 --draft-length 1:20 --context-length 2000",
    "sweep": "--batch-size 1:90000 --workers 4",
    "sensitivity": "--samples 65536",
    "break-even": "--batch-size 1:20000 --draft-length 1:10",
    "decode": "--batch-size 1:99999",
}
"""What makes command lines large."""
WAYS = ("plain", "file", "tool", "link", "name", "memory", "interrupted", "killed")
_KINDS = {
    "tracebacks": "  File ", "NaN with status 0": "not a number", "hangs": "Hangs",
    "beyond memory": "beyond memory",
}  # fmt: skip
"""Faults that are counted, by what is said of them."""
_PART = 200
"""Lines from one seed [-]."""
_WEIGHTS = (30, 50, 2, 6, 6, 2, 4, 0.2)
"""What is done to lines beside changes of their words, and how often [-]."""


def trial(
    rng: random.Random, folder: Path, kept: Kept, way: str, damage: str = "", of: str = ""
) -> str:
    """Run a command line; return it with what is wrong with how it ends, or nothing.

    `damage` is what goes wrong with files, and `of` in the line or in the name of the file at
    fault, where they are given.
    """
    words, told, before = command_line(rng, of if way != "file" else ""), way, contents(folder)
    if way == "file":
        while not (named := [name for name in named_in(words, kept) if of in name]):
            words = command_line(rng)
        name, kind = rng.choice(named), damage or rng.choice(fuzzed_files.USUAL)
        if kind == "pipe" and name in words and words[words.index(name) - 1] in OUTPUTS:
            kind = "folder"  # who writes into a pipe waits for who reads
        fuzzed_files.FAULTS[kind](folder / name, rng)
        told = f"{kind} of {name}"
        before = contents(folder)
        told += f": {before.get(name, b'')[:1000]!r}"
    elif way in ("tool", "killed"):
        return with_words_of_others(rng) if way == "tool" else "\n".join(killed(rng))
    elif way == "link":
        _link_output(words, rng)
        before = contents(folder)
    elif way == "name":
        return under_another_name(words, folder, kept, rng)
    if way == "memory":
        found = short_of_memory(words, rng)
    elif way == "interrupted" and words[0] == "sweep" and "--output" in words[:-1]:
        found = interrupted(words, folder, rng)
        before = contents(folder)
        ended = Ended(words, 0)
    else:
        ended = run(words)
        found = [*faults(ended)]
    if way != "memory":
        found += faults_of_files(ended, folder, before)
    return "\n".join([shlex.join(words)[:900], *found, told]) if found else ""


def with_words_of_others(rng: random.Random) -> str:
    """Add an option by another tool's name; say if the error does not tell ours."""
    words = shlex.split(rng.choice(BASES))
    theirs, ours = rng.choice([*OTHERS.items()])
    command, _ = leaf(main_group, words)
    words += [theirs, "2"]
    ended = run(words)
    found = [*faults(ended)]
    is_known = any(ours in parameter.opts for parameter in command.params)
    if is_known and f"No such option '{theirs}'" in ended.err and ours not in ended.err:
        found.append(f"no {ours}: {ended.err}")
    return "\n".join([shlex.join(words), *found]) if found else ""


def under_another_name(words: list[str], folder: Path, kept: Kept, rng: random.Random) -> str:
    """Let a file have a name that is not UTF-8; say if the line is refused by it alone."""
    is_sound = not run(words).status
    restore(folder, kept)
    _rename(words, kept, rng)
    before, ended = contents(folder), run(words)
    found = [*faults(ended), *faults_of_files(ended, folder, before)]
    if is_sound and ended.status == 2 and "in UTF-8" not in ended.err:
        found.append(f"refused by its name: {ended.err}")
    return "\n".join([shlex.join(words)[:900], *found]) if found else ""


def _link_output(words: list[str], rng: random.Random) -> None:
    """Let an output be a link: to a file in another folder, to nothing, or to itself."""
    options = [at for at, word in enumerate(words[:-1]) if word in OUTPUTS]
    if not options:
        return
    name = words[options[0] + 1].rstrip("/")
    path = Path("linked" + Path(name).suffix)
    Path("other").mkdir()
    target = Path("other", "own" + path.suffix)
    kind = rng.randrange(4)
    if kind < 2:
        target.write_bytes(b"what a user has\n")
    elif kind == 2:
        target = path
    path.symlink_to(target)
    words[options[0] + 1] = str(path)
    if words[0] == "sweep" and rng.random() < 0.7:
        words.append("--overwrite")


def _rename(words: list[str], kept: Kept, rng: random.Random) -> None:
    """Let a file have a name that is not UTF-8: one that is read, or one that is written."""
    places = [at for at, word in enumerate(words) if word in kept]
    places += [at + 1 for at, word in enumerate(words[:-1]) if word in OUTPUTS]
    if places:
        at = rng.choice(places)
        new = NOT_UTF_8 + words[at].replace("/", "") + "/" * words[at].endswith("/")
        if words[at] in kept and words[at - 1] not in OUTPUTS:
            shutil.copy(words[at], new)
        words[at] = new


def short_of_memory(words: list[str], rng: random.Random) -> list[str]:
    """Run a large line where memory is short."""
    more = _LARGE.get(words[0], "") if words else ""
    if not more or run(words).status:  # which has imported what it needs
        return []
    words += more.split()
    ended = in_child(words, little_memory(rng.choice([1, 8, 40, 120])))
    found = [*faults(ended)]
    if "memory: too little" in ended.err and "expected less of --" not in ended.err:
        found.append(f"no option to reduce: {ended.err}")
    return found


def interrupted(words: list[str], folder: Path, rng: random.Random) -> list[str]:
    """Interrupt a sweep after some parts and run it again: it goes on, as one that was whole."""
    at, most = words.index("--output") + 1, rng.randint(1, 4)
    output = words[at]
    with pytest.MonkeyPatch.context() as patch:
        for points in ("PART", "MOST_WITH_INTERVAL"):
            patch.setattr(f"specmodel.answers.sweeps.plan.{points}", 2)
        words[at] = f"whole{Path(output).suffix}" + "/" * output.endswith("/")
        whole, made = run(words), _made(words[at], folder)
        words[at] = output
        if not _interrupt(words, most).status:  # it has no more parts
            return []
        if output.endswith(".parquet"):  # which is begun again only if told so
            return [*faults(run([*words, "--overwrite"]))]
        again, now = run(words), _made(output, folder)
    found = [*faults(again)]
    if whole.status == again.status == 0 and made != now:
        found.append(f"interrupted after {most} parts, it went on to another end")
    if whole.status != again.status:
        found.append(f"status {whole.status}, and {again.status} again: {again.err}")
    return found


def killed(rng: random.Random) -> list[str]:
    """Kill a calibration in the middle of a row; run again, it ends as if it never was killed."""
    words = shlex.split("calibrate --device cpu --tiny --output killed.toml")
    most, writes, write = rng.randrange(9), [0], RowFile._write

    def dying(rows: RowFile, text: str) -> None:
        writes[0] += 1
        if writes[0] > most:
            rows._file.write(text[: rng.randrange(len(text))].encode())
            os._exit(9)
        write(rows, text)

    in_child(words, lambda: setattr(RowFile, "_write", dying))
    left = [name for name in ("killed.toml", "killed.csv") if Path(name).exists()]
    again = run(words)
    found = [*faults(again)] + ["a profile of half the rows"] * ("killed.toml" in left)
    if again.status or _rows("killed.csv") != _rows("mine.csv"):
        found.append(f"killed after {most} rows, it does not go on: {again.err}")
    return found


def _rows(name: str) -> int:
    return Path(name).read_text(encoding="utf-8").count("\n")


def _made(output: str, folder: Path) -> list[bytes]:
    """Return the file of this name, or those in the folder of this name."""
    found = contents(folder).items()
    return [content for name, content in found if f"{name}/".startswith(f"{output.rstrip('/')}/")]


def _interrupt(words: list[str], most: int) -> Ended:
    """Run a sweep until so many parts are written."""
    from specmodel.answers.sweeps.files import _Sink

    count, add = [0], _Sink.add

    def adding(sink: _Sink, encoded: object, num_points: int) -> None:
        count[0] += 1
        if count[0] > most:
            raise KeyboardInterrupt
        add(sink, encoded, num_points)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Sink, "add", adding)
        return run(words)


def fuzz(
    seed: int, count: int, folder: Path, way: str = "", damage: str = "", of: str = ""
) -> list[str]:
    """Run command lines in the current folder; return those that end as none should, and how."""
    rng = random.Random(seed)
    if not any(folder.iterdir()):
        fuzzed_files.write_files(folder)
    kept, found = contents(folder), []
    for _ in range(count):
        chosen = way or rng.choices(WAYS, _WEIGHTS)[0]
        found.append(trial(rng, folder, kept, chosen, damage, of))
        restore(folder, kept)
    return [told for told in found if told]


def main() -> int:
    """Print the faults; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for start in range(0, asked.lines, _PART):
            count = min(_PART, asked.lines - start)
            more = fuzz(asked.seed + start, count, Path(name))
            print(*ascii_lines(more), sep="\n\n", end="\n\n" * bool(more))
            found += more
            print(f"{start + count} lines: {len(found)} faults", flush=True)
    kinds = {name: sum(sign in told for told in found) for name, sign in _KINDS.items()}
    print(", ".join(f"{kind}: {count}" for kind, count in kinds.items()))
    return bool(found)


def ascii_lines(found: Sequence[str]) -> list[str]:
    """Return texts that any terminal can print."""
    return [text.encode("ascii", "backslashreplace").decode() for text in found]


if __name__ == "__main__":
    raise SystemExit(main())
