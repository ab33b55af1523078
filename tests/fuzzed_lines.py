"""Random command lines: working lines of every command, and random changes of their words."""

import random
import shlex
import tomllib
from pathlib import Path

import click

from specmodel.cli.commands import main_group

DATA = Path(__file__).parent / "data"
BASES = (DATA / "fuzzed_lines.txt").read_text(encoding="utf-8").splitlines()[1:]
"""Command lines that work, of every command."""
REFUSED = ["acceptance http://localhost:1/metrics"]
"""Lines that always fail, because no server answers."""
IMPLAUSIBLE = ("engine.pass_time=3.7", "target.num_layers=4000", "target.num_layers=100000")
IMPLAUSIBLE += ("engine.pass_time=1e300", "engine.kernel_time=1e200", "engine.reject_time=1e308")
"""Implausible values of fields, which need --force."""

WORDS = tomllib.loads((DATA / "fuzzed_words.toml").read_text(encoding="utf-8"))
"""Plausible words of options and arguments, by their names."""
NUMBERS = "0 1 2 3 4 7 8 0.5 0.9 1e-6 1.0"
LISTS = "1 4 1,8 1:8:x2 1:5 2,2 3:1 0:3 512"
STRANGE = [
    *("", " ", "-1", "nan", "inf", "-inf", "1e308", "1e-320", "1e-30", "1e15", "1e400", "x"),
    *("1e200", "1e-200", "1e-9", "1e6", "0.999999999", "1:4", "1000", "0.1:0.9:0.4"),
    *("1" + "0" * 400, "-0", "1.5", "1e3", "1_0", "٣", "é√", "\udcff", "a\nb", "\x1b[31m"),
    "x" * 5000,
    *("1,", ",", ":", "1:", "1:x2", "true", "=", "a=b", "a.b=1", "./nope", "/", ".", "..", "~"),
    *("\N{FULLWIDTH DIGIT TWO}xh200", "\N{SUPERSCRIPT TWO}", "1" * 5000, "org/" + "m" * 3000),
    *("dflash:" + "1" * 5000, "fixed:\N{SUPERSCRIPT TWO}", "eagle3:\N{ARABIC-INDIC DIGIT SIX}"),
    *("/dev/null", "--", "--json", "-h", "nope.toml", "nope.csv", "folder.toml", "[", "{}", "%s"),
    *("http://localhost/metrics", "-", "H200", "1000000000", "100000", "9" * 18, "2e9", "0x10"),
]
CHEAP = {
    "workers": ["1", "0", "-1", "x"], "requests": ["1", "5", "0", "-1", "x", "1" + "0" * 400],
    "output_tokens": ["1", "50", "0", "-1", "x", "1" + "0" * 400],
    "samples": ["64", "128", "4", "0", "-1", "x", "1" + "0" * 400], "scheduler": ["", "x"],
    "wait": ["0"], "timeout": ["1", "0", "nan"], "yes": [], "length": [],
}  # fmt: skip
"""The only values for options that would be slow with others."""


def leaf(command: click.Command, words: list[str]) -> tuple[click.Command, int]:
    """Return the command that words name, and the number of these words."""
    used, context = 0, click.Context(command)
    while isinstance(command, click.Group):
        inner = command.get_command(context, words[used])
        if inner is None and hasattr(command, "default"):
            inner = command.get_command(context, command.default(words[used]))
            used -= 1
        assert inner is not None
        command, used = inner, used + 1
    return command, used


def _value(parameter: click.Parameter, rng: random.Random) -> str:
    """Return a plausible or a strange value of an option or argument."""
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
    """Return a working command line with up to three changes of its words."""
    words = shlex.split(rng.choice(BASES + REFUSED))
    command, used = leaf(main_group, words)
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
