"""Run command lines in this process, and find what is wrong with how they end."""

import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from fuzzed_files import LINK, Kept, contents, quick_bench
from fuzzed_lines import IMPLAUSIBLE

from specmodel import cli

LONGEST = 40
"""CPU time after which a command line counts as hanging [s]."""
LONGEST_WAIT = 240
"""Time after which an idle command line counts as hanging [s]."""
NOT_UTF_8 = "\udcff"
"""A character of names that are not UTF-8."""
MOST_MEMORY = 1_500_000
"""Memory by which a command line may raise the peak of the process [kB]."""
MOST_CHARACTERS = 1000
"""Most characters in a line of output [-]."""
MOST_NAMES = 30
"""Most names that an error may list [-]."""

NOT_A_NUMBER = re.compile(r"(?i)(?<![\w./-])[-+]?(nan|inf|infinity)(?![\w./])")
TEXT = re.compile(r'"[^"\n]*"')
"""Texts in TOML and JSON, which may contain the word nan by a fault or an option."""
EXCEPTION = re.compile(r"message='|\b[A-Z]\w+(Error|Exception|Redirects)\(|\bnp\.\w+\(")
"""Texts of exceptions that only programmers understand."""
_TAKEN_OF_OTHERS = "target|hardware|drafter|engine|draft-length|acceptance:"
"""Options whose values may come from words, configurations or other options."""
OPTION = re.compile(rf"error: (?:output|(--(?!{_TAKEN_OF_OTHERS})[a-z-]+)): got ")
"""The option whose value an error reports."""
QUOTED = re.compile(r"got '?[-+]?\w+'?;")
"""The value of a row that was left out."""
OUTPUTS = ("--output", "--figure", "--records", "--timeline")
"""Options that name an output file."""
_SEARCHED = dict.fromkeys((True, False), (1, 50))
"""Default replications and requests at each rate of a search [-]."""


class Hangs(BaseException):
    """Raised if a command line takes too long."""


@dataclass
class Ended:
    """How a command line ended."""

    words: list[str]
    status: int = -1
    out: str = ""
    err: str = ""
    crash: str = ""
    """The exception that the command line raised, or nothing."""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hangs

    timers = [(signal.SIGPROF, signal.ITIMER_PROF, LONGEST)]
    timers.append((signal.SIGALRM, signal.ITIMER_REAL, LONGEST_WAIT))
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def run(words: list[str]) -> Ended:
    """Run a command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8")
    ended, before = Ended(words), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
            quick_bench(),
            patch.dict(os.environ, HF_HUB_CACHE="hub"),
            patch("specmodel.cli.output._LINES", math.inf),  # how far it is, on a busy machine
            patch("specmodel.simulate.load_question.RUNS", _SEARCHED),
            _limited(),
        ):
            warnings.simplefilter("error")
            ended.status = cli.main(words)
    except (Exception, SystemExit, KeyboardInterrupt, Hangs) as error:
        told = "".join(traceback.format_exception(error)[-3:])
        ended.crash = f"{type(error).__name__}\n{told}"
    finally:
        sys.stdin = stdin
    ended.out, ended.err = out.getvalue(), err.getvalue()
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if more > MOST_MEMORY:
        ended.crash = ended.crash or f"beyond memory: {more / 1e6:.1f} GB more"
    return ended


def faults(ended: Ended) -> Iterator[str]:
    """Yield what is wrong with the end of a command line and with its output."""
    words, status, err = ended.words, ended.status, ended.err
    if ended.crash:
        yield ended.crash
        return
    if status == 2 and not ended.out and "Usage:" in err:
        return  # a command without any of its words explains itself
    lines = err.splitlines()
    errors = [line for line in lines if line.startswith("specmodel: error: ")]
    strange = [line for line in lines if not line.startswith("specmodel: ")]
    if words[:1] == ["calibrate"]:  # which tells how far it is
        strange = [line for line in strange if "Traceback" in line]
    # of status 1 are judgements of fit check, which say why
    if status not in (0, 1, 2) or len(errors) != (status == 2) or len(strange) > (status == 1):
        yield f"status {status}, on stderr: {lines[:4]}"
    if any(len(line) > 2000 or not line.isprintable() for line in lines):
        yield f"long lines or control characters: {err[:2000]!r}"
    for line in errors:
        yield from _faults_of_error(words, line)
    if status == 0:
        yield from _faults_of_answer(words, ended.out)


def _faults_of_error(words: list[str], line: str) -> Iterator[str]:
    if line.count(", ") > MOST_NAMES + ", ".join(words).count(", "):
        yield f"a long list: {line}"
    option = OPTION.search(line)
    typed = [part for word in words for part in word.split(" ")]  # flags of a launch line too
    if option and not any(word.startswith(option[1] or "--output") for word in typed):
        yield f"an option that was not typed: {line}"
    if EXCEPTION.search(line):
        yield f"an exception as Python shows it: {line}"
    if "got None" in line or "key: none given" in line:
        yield f"no value that anyone typed: {line}"


def _faults_of_answer(words: list[str], out: str) -> Iterator[str]:
    """Yield where an answer has no number, and whether its JSON is invalid."""
    told = QUOTED.sub("", TEXT.sub('""', out))
    found = NOT_A_NUMBER.search(told)
    if found and not {"nan", "inf", "-inf"} & {*words}:
        yield "not a number: " + told[max(0, found.start() - 200) : found.end() + 80]
    if words[0] == "predict" and "--csv" in words:
        yield from _outside(out)
    is_forced = "--force" in words or words[0] in ("sweep", "list")
    if not is_forced and any(word in IMPLAUSIBLE for word in words[:-1]):
        yield "taken in silence, though no machine or model has it"
    is_page = not {"--csv", "--json"} & {*words} and words[0] not in ("list", "sweep")
    lines = out.replace(NOT_UTF_8, "").splitlines() if is_page else []
    if any(len(line) > MOST_CHARACTERS or not line.isprintable() for line in lines):
        yield f"long lines or control characters: {out[:2000]!r}"
    before = words[words.index("--json") - 1] if "--json" in words else "--json"
    is_value = before.startswith("--")  # of the option before it
    if not is_value and not {"--csv", "-h", "--help"} & {*words}:
        try:
            json.loads(out)
        except ValueError as error:
            yield f"no JSON: {error}"


def _outside(table: str) -> Iterator[str]:
    """Yield the values of a table that lie outside their intervals."""
    for row in csv.DictReader(io.StringIO(table)):
        for name, value in row.items():
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            if low and high and value and not float(low) <= float(value) <= float(high):
                yield f"{name} {value} outside of {low} to {high}"


def faults_of_files(ended: Ended, folder: Path, before: Kept) -> Iterator[str]:
    """Yield faults of files: no numbers, leftovers, and lost files of the user."""
    after = contents(folder)
    for name, content in after.items():
        if content == before.get(name):
            continue
        suffix = Path(name).suffix
        if suffix in (".csv", ".toml", ".jsonl") and name not in before:
            text = content.decode(errors="replace")
            if NOT_A_NUMBER.search(TEXT.sub('""', text)):
                yield f"not a number in {name}: {text[:200]}"
        if name not in before and (Path(name).name.startswith(".") or ".parts" in name):
            yield f"left behind: {name}"
    yield from _losses(ended, before, after)


def _losses(ended: Ended, before: Kept, after: Kept) -> Iterator[str]:
    """Yield the files that a command line removed or changed although they were not its outputs."""
    typed = [word for option, word in itertools.pairwise(ended.words) if option in OUTPUTS]
    typed += [word.partition("=")[2] for word in ended.words if word.startswith(OUTPUTS)]
    outputs = {os.path.relpath(path) for word in typed if word for path in _paths(word)}
    stems = tuple(f"{Path(path).stem}." for path in outputs)
    for name, content in before.items():
        now = after.get(name)
        if now == content or name.endswith(".lock"):  # of a process that was killed
            continue
        if name in outputs:
            is_lost = now is None or content.startswith(LINK) or now.startswith(LINK)
            is_lost |= ended.status == 2
        elif name.startswith(stems):  # of a measurement that goes on
            whole = content[: content.rfind(b"\n") + 1]
            is_appended = name.endswith(".json") or "--again" in ended.words
            is_lost = now is None or not (is_appended or now.startswith(whole))
        else:
            is_lost = True
        if is_lost:
            yield f"lost: {name}: {(now or b'')[:200]!r} for {content[:200]!r}"


def _paths(word: str) -> Iterator[str]:
    """Yield a path and the target of its links, if the word is a valid path."""
    if "\0" not in word:
        yield word
        with contextlib.suppress(OSError):
            yield os.path.realpath(word)
