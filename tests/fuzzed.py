"""Run random command lines of all commands with random and damaged files, and check how they end.

From a shell: ``python tests/fuzzed.py SEED COUNT`` runs lines in a temporary folder.
"""

import contextlib
import random
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzzed_files import FAULTS, Kept, contents, named_in, restore, write_files
from fuzzed_lines import command_line
from fuzzed_runs import NOT_UTF_8, OUTPUTS, Ended, faults, faults_of_files, run

WAYS = {"plain": 30, "file": 50, "link": 6, "name": 6}
"""Other changes than those of words, and how often they are made [-]."""


def trial(rng: random.Random, folder: Path, kept: Kept) -> str:
    """Run a command line; if it ends as it should not, return it with its faults."""
    words, (way,) = command_line(rng), rng.choices([*WAYS], [*WAYS.values()])
    told = way
    if way == "file":
        while not (named := named_in(words, kept)):
            words = command_line(rng)
        name, (fault,) = rng.choice(named), rng.choices([*FAULTS], [*FAULTS.values()])
        fault(folder / name, rng)
        told = f"{fault.__name__} of {name}: {contents(folder).get(name, b'')[:1000]!r}"
        if name in words and words[words.index(name) - 1] in OUTPUTS and (folder / name).is_fifo():
            return ""  # who writes into a pipe waits for who reads
    elif way == "link":
        _link_output(words, rng)
    elif way == "name":
        return under_another_name(words, folder, kept, rng)
    _, found = run_and_judge(words, folder)
    return "\n".join([shlex.join(words)[:900], *found, told]) if found else ""


def run_and_judge(words: list[str], folder: Path) -> tuple[Ended, list[str]]:
    """Run a command line; return how it ended, and what is wrong with its end and its files."""
    before, ended = contents(folder), run(words)
    return ended, [*faults(ended), *faults_of_files(ended, folder, before)]


def under_another_name(words: list[str], folder: Path, kept: Kept, rng: random.Random) -> str:
    """Give a file a name that is not UTF-8; report if only this name makes the line fail."""
    is_sound = not run(words).status
    restore(folder, kept)
    _rename(words, kept, rng)
    ended, found = run_and_judge(words, folder)
    if is_sound and ended.status == 2 and "in UTF-8" not in ended.err:
        found.append(f"refused by its name: {ended.err}")
    return "\n".join([shlex.join(words)[:900], *found]) if found else ""


def _link_output(words: list[str], rng: random.Random) -> None:
    """Replace an output by a link to a file in another folder, to nothing, or to itself."""
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
    path.symlink_to(path if kind == 2 else target)
    words[options[0] + 1] = str(path)
    if words[0] == "sweep" and rng.random() < 0.7:
        words.append("--overwrite")


def _rename(words: list[str], kept: Kept, rng: random.Random) -> None:
    """Give a name that is not UTF-8 to a file that is read or to one that is written."""
    places = [at for at, word in enumerate(words) if word in kept]
    places += [at + 1 for at, word in enumerate(words[:-1]) if word in OUTPUTS]
    if places:
        at = rng.choice(places)
        new = NOT_UTF_8 + words[at].replace("/", "") + "/" * words[at].endswith("/")
        if words[at] in kept and words[at - 1] not in OUTPUTS:
            shutil.copy(words[at], new)
        words[at] = new


def fuzz(seed: int, count: int, folder: Path) -> list[str]:
    """Run command lines in the current folder; return those that end as they should not."""
    rng = random.Random(seed)
    write_files(folder)
    kept, found = contents(folder), []
    for _ in range(count):
        found.append(trial(rng, folder, kept))
        restore(folder, kept)
    return [told for told in found if told]


def ascii_lines(found: Sequence[str]) -> list[str]:
    """Return texts that any terminal can print."""
    return [text.encode("ascii", "backslashreplace").decode() for text in found]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        faulty = fuzz(int(sys.argv[1]), int(sys.argv[2]), Path(name))
    print(*ascii_lines(faulty), f"{len(faulty)} faults", sep="\n\n")
    raise SystemExit(bool(faulty))
