"""Run the command behind each number on accuracy in the README and docs, and compare.

Usage: python calibration/claims.py [--serving decode_tpot.csv] [--speed]. `claims.toml` has the
sentences of README.md and docs/accuracy.md with each number in braces, and patterns that find these
numbers in the output of a command. A number may differ by its rounding, and a speed by the factor
stated with it. Commands that cannot run are skipped and listed: the table of measured engines is
not in the repository, and the tables of kernels need the extra `datasets`. The exit status is 1 if
a number differs or has no command.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
PAGES = ("README.md", "docs/accuracy.md")
SECTIONS = ("Replay draft-length policies", "How accurate is it?", "How fast is it?")
WORD = re.compile(r"[\w.,/+-]*\d[\w.,/+-]*")
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
UNIT = re.compile(r"(?:x|[mun]?s|[KMG]B?)$")
"""What may follow a number within its word."""
NAME = re.compile(r"\d{4}-\d\d-\d\d|\d+(?:\.\d+){2,}|.*[^\W\d_].*")
"""Dates, versions, and words with letters, whose digits are no claim."""
BRACED = re.compile(r"\{([^{}]*)\}")


class Claim(Struct, frozen=True, kw_only=True):
    """Words of a page, the numbers in them, and how to read these in what a command prints."""

    words: str  # numbers in braces
    read: Sequence[str]  # regular expressions, whose groups are the numbers in turn

    @property
    def said(self) -> list[str]:
        return BRACED.findall(self.words)

    @property
    def text(self) -> str:
        return BRACED.sub(r"\1", self.words)

    def measured(self, printed: str) -> list[str]:
        """Return the numbers that a command printed; none where it did not print them all."""
        found = [re.search(pattern, printed, re.MULTILINE) for pattern in self.read]
        return [number for match in found if match for number in match.groups()]


class Command(Struct, frozen=True, kw_only=True):
    """A command, its requirements, and the claims that it supports."""

    run: str
    claims: tuple[Claim, ...]
    needs: str = ""  # a module
    factor: float = 0.0  # by which a speed may differ; 0 for what is no speed
    note: str = ""

    def why_not(self, serving: str, *, speed: bool) -> str:
        """Return why the command does not run here, or nothing."""
        if self.factor and not speed:
            return "a speed: --speed"
        if "{serving}" in self.run and not serving:
            return "no table of measured engines: --serving"
        if self.needs and find_spec(self.needs) is None:
            return f"no {self.needs}: pip install -e '.[datasets]'"
        return ""


def commands_of(table: Mapping[str, Any]) -> list[Command]:
    """Return the commands of a table of claims."""
    return [
        Command(**entry | {"claims": tuple(Claim(**claim) for claim in entry["claims"])})
        for entry in table["command"]
    ]


def text_of(root: Path) -> str:
    """Return the pages that make claims, below each other."""
    return "\n".join((root / page).read_text(encoding="utf-8") for page in PAGES)


def prose(text: str) -> str:
    """Return the sections that make claims, in one line for each paragraph's words."""
    parts = [
        part.partition("\n## ")[0]
        for name in SECTIONS
        for part in f"\n{text}".split(f"\n## {name}\n")[1:]
    ]
    return " ".join(" ".join(parts).split())


def problems(text_of_pages: str, table: Mapping[str, Any]) -> list[str]:
    """Return what of a table is not in the pages' sections, and what of these is in no table."""
    text = prose(text_of_pages)
    claims = [claim for command in commands_of(table) for claim in command.claims]
    known = [claim.text for claim in claims] + table["outside"] + table["names"]
    found = [f"on no page: {words}" for words in known if words not in text]
    found += [f"not marked (outside, ...: {w}" for w in table["outside"] if "(outside" not in w]
    covered = [*_spans(text, table["outside"] + table["names"])]
    for claim in claims:
        starts = [match.start() for match in re.finditer(re.escape(claim.text), text)]
        # each pair of braces before a number shifts it to the left by two
        places = [m.start(1) - 2 * i - 1 for i, m in enumerate(BRACED.finditer(claim.words))]
        covered += [
            (start + place, start + place + len(said))
            for start in starts
            for place, said in zip(places, claim.said, strict=True)
        ]
    for low, high in numbers(text):
        if not any(start <= low and high <= end for start, end in covered):
            around = text[max(low - 40, 0) : high + 20]
            found.append(f"{text[low:high]} has no command: ...{around}...")
    return found


def numbers(text: str) -> Iterator[tuple[int, int]]:
    """Yield where numbers are that claim something; none in code or in names."""
    for word in WORD.finditer(re.sub(r"`[^`]*`", lambda code: " " * len(code[0]), text)):
        if not NAME.fullmatch(UNIT.sub("", word[0].strip(".,/+-"))):
            yield from (
                (word.start() + match.start(), word.start() + match.end())
                for match in NUMBER.finditer(word[0])
            )


def _spans(text: str, phrases: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where phrases are, each time."""
    for phrase in phrases:
        yield from (match.span() for match in re.finditer(re.escape(phrase), text))


def agrees(said: str, measured: str, factor: float = 0.0) -> bool:
    """Return whether a number is what was measured: to half of its last digit, or by a factor.

    >>> agrees("9.9", "9.94"), agrees("10", "9.4"), agrees("20", "12.1", factor=2.0)
    (True, False, True)
    """
    claimed, found = (float(number.replace(",", "")) for number in (said, measured))
    if factor:
        return claimed / factor <= found <= claimed * factor
    digits = len(said.partition(".")[2])
    return abs(claimed - found) <= 0.5 * 10.0**-digits + 1e-9


def compare(command: Command, printed: str) -> Iterator[tuple[bool, str]]:
    """Yield whether each number of a command's claims is right, and a line that reports it."""
    for claim in command.claims:
        measured = claim.measured(printed)
        if len(measured) != len(claim.said):
            yield False, f"NOT PRINTED  {claim.text}"
            continue
        for said, found in zip(claim.said, measured, strict=True):
            holds = agrees(said, found, command.factor)
            yield holds, f"{'ok' if holds else 'DIFFERS':8} {said:>6} {found:>8}  {claim.text}"


def main(words: Sequence[str] | None = None, table_path: Path = TABLE) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--serving", default="", help="the table of measured engines")
    parser.add_argument("--speed", action="store_true", help="speeds too, on a quiet machine")
    options = parser.parse_args(words)
    serving = str(Path(options.serving).resolve()) if options.serving else ""
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = os.environ | {"PATH": here}  # programs of this environment
    table = tomllib.loads(table_path.read_text(encoding="utf-8"))
    wrong = problems(text_of(ROOT), table)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    for command in commands_of(table):
        note = f"  ({command.note})" if command.note else ""
        print(f"\n$ {command.run}{note}", flush=True)
        if why := command.why_not(serving, speed=options.speed):
            print(f"skipped: {why}; {len(command.claims)} claims")
            continue
        with tempfile.TemporaryDirectory() as folder:
            line = command.run.replace("{serving}", serving).replace("{tmp}", folder)
            done = subprocess.run(
                line, shell=True, cwd=ROOT, env=own, text=True, capture_output=True, check=False
            )
        for holds, said in compare(command, done.stdout):
            print(f"{said[:150]}")
            wrong += [] if holds else [said]
        print(done.stderr if done.returncode else "", end="")
    print(f"\n{len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
