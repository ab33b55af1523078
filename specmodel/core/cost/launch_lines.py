"""Split launch commands of engines, and the files that they name, into flags."""

from __future__ import annotations

import os
import re
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from specmodel.core.base.errors import InputError
from specmodel.core.base.files import parsed_json, toml_tables
from specmodel.core.base.records import read_text
from specmodel.core.cost.where import literal

TABLE: dict[str, Any] = toml_tables(Path(__file__).parent / "data/launch_flags.toml")
MEANS = {flag: name for name, flags in TABLE["means"].items() for flag in flags.split()}
"""Meanings of flags, by their names with underscores."""
_KINDS = ("switches", "lists", "values", "keys")
_WITH_KEYS = {
    flag.partition(".")[0]
    for flag in (*MEANS, *(flag for row in TABLE["told"] for flag in row["flags"].split()))
    if "." in flag
}
_FLAG = re.compile(r"--?(?!(?:inf|nan)\b)[A-Za-z]")
_HERE = re.compile(
    r"""(?:>\s*["']?([^\s"']+)["']?\s*)?<<-?\s*['"]?(\w+)['"]?"""
    r"""(?:\s*>\s*["']?([^\s"']+))?[^\n]*\n(.*?)\n\s*\2\b""",
    re.DOTALL,
)
"""A file that a script writes as a here-document: its name, which may stand on either side, and its
text."""


def flags_for(argument: str) -> list[str]:
    """Return the flags that set an argument, as they are typed."""
    names = TABLE["fills"].get(argument, argument).split()
    flags = [
        flag.partition(".")[0].replace("_", "-") for flag, name in MEANS.items() if name in names
    ]
    return [f"{hyphens}{flag}" for flag in flags for hyphens in ("--", "-")]


_SET = re.compile(
    r"""(?m)^\s*(?:export\s+)?(\w+)=(?:"((?:[^"\\]|\\.)*)"|'([^'\n]*)'|([^\s"']\S*))\s*$"""
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
"""A variable that a script sets, whose value may be quoted, and one that it uses."""


class Flag(NamedTuple):
    """A flag as it was typed, and its value: text, or a value of JSON or YAML."""

    typed: str
    value: Any


Flags = dict[str, Flag]


class Engine(NamedTuple):
    """An engine's command: its first words, words that are no model, and kinds of its flags."""

    start: re.Pattern[str]
    beside: tuple[str, ...]
    kinds: Mapping[str, str]

    def known(self, word: str) -> tuple[str, str]:
        """Return the name and kind of a flag, which may be abbreviated; "" for an unknown kind."""
        name = word.lstrip("-").replace("-", "_").lower()
        if level := re.fullmatch(r"-O\.?(\d)", word):
            return "optimization_level", f"={level[1]}"
        first, dot, rest = name.partition(".")
        if dot:
            first = TABLE["short"].get(first, first)
            return f"{first}.{rest}", "values" if first in _WITH_KEYS else ""
        if self.kinds.get(name.removeprefix("no_")) == "switches" and name not in self.kinds:
            return name.removeprefix("no_"), "=false"
        longer = [each for each in self.kinds if each.startswith(name) and len(name) > 2]
        if name not in self.kinds and len(longer) == 1:
            name = longer[0]
        return TABLE["short"].get(name, name), self.kinds.get(name, "")


@cache
def engines() -> dict[str, Engine]:
    """Return the engines whose launch commands are read, by name."""
    return {
        name: Engine(
            start=re.compile(row["start"]),
            beside=(*row["beside"].split(),),
            kinds={flag: kind for kind in _KINDS for flag in row.get(kind, "").split()},
        )
        for name, row in TABLE["engines"].items()
    }


def flag_at(word: str, left: deque[str], engine: Engine) -> tuple[str, Flag]:
    """Return the name of a flag and the flag; remove its values from the words `left`."""
    typed, has_value, value = word.partition("=")
    name, kind = engine.known(typed)
    if has_value or kind.startswith("="):
        return name, Flag(typed, literal(value if has_value else kind[1:]))
    if kind == "switches":
        return name, Flag(typed, True)
    taken = list[str]()
    while left and not _FLAG.match(left[0]) and (kind == "lists" or not taken):
        taken.append(left.popleft())
    return name, Flag(typed, literal(" ".join(taken)) if taken else True)


def typed_flag(word: str, left: deque[str]) -> tuple[str, Flag] | None:
    """Return the name and the flag that a word is of any engine; None if it is of none.

    Names of flags are not abbreviated here.
    """
    typed = word.partition("=")[0]
    for engine in engines().values():
        name, kind = engine.known(typed)
        is_whole = kind.startswith("=") or len(name) <= len(typed.lstrip("-")) or len(typed) < 5
        if kind not in ("", "keys") and len(typed) > 2 and is_whole:
            return flag_at(word, left, engine)
    return None


def engine_of(flags: Flags) -> str:
    """Return the first engine that has all these flags."""
    firsts = {name.partition(".")[0] for name in flags}
    for name, engine in engines().items():
        if all(engine.kinds.get(first, "keys") != "keys" for first in firsts):
            return name
    typed = [flag.typed for flag in flags.values()]
    raise InputError(typed[0], ", ".join(typed), f"flags of one engine: {', '.join(engines())}")


def launch_line(argument: str, text: str) -> tuple[str, Flags]:
    """Return the engine and the flags of a launch command, which a file may hold.

    The model is a flag too. Other commands may come before it. Variables that a script sets are
    filled in, and files that it writes are read if the command names them.
    """
    # a line may be longer than a path can be, of which pathlib makes an error
    source = read_text(Path(text), argument, "text") if os.path.isfile(text) else text  # noqa: PTH113
    source = _filled(source)
    files = {(before or after): body for before, _, after, body in _HERE.findall(source)}
    try:
        commands = list(_commands(_HERE.sub("\n", source)))
    except ValueError as error:
        raise InputError(argument, text, f"a command whose quotes are closed ({error})") from None
    for command in commands:
        for place, pair in enumerate(zip(command, [*command[1:], ""], strict=True)):
            for name, engine in engines().items():
                if engine.start.fullmatch(" ".join(pair)):
                    return name, _flags(name, deque(command[place + 1 :]), files)
    for inner in (word for command in commands for word in command if " " in word):
        if inner == text:
            continue
        with suppress(InputError):
            return launch_line(argument, inner)
    expected = "a command that starts vLLM, SGLang, TensorRT-LLM or llama.cpp, such as vllm serve"
    raise InputError(argument, text, f"{expected} MODEL, or a file with such a command")


def _filled(text: str) -> str:
    """Return a script without comments, and with the values of variables that it sets."""
    text, values = re.sub(r"(?m)^\s*#.*\n?|[ \t]#[^'\"\n]*$", "", text), dict[str, str]()

    def fill(at: re.Match[str]) -> str:
        return values.get(at[1] or at[2], (at[3] or at[0]).strip("'\""))

    for name, in_double, in_single, bare in _SET.findall(text):
        value = in_double or re.sub(r"([\"\\])", r"\\\1", in_single) or bare
        values[name] = _VARIABLE.sub(fill, value)
    return _VARIABLE.sub(fill, text)


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a script."""
    text = re.sub(r"\$\([^()]*\)", lambda at: shlex.quote(at[0]), text.rstrip("\\ \n"))
    whole = re.sub(r"\s*\\+[ \t]*\n|[ \t]*\n\s*(?=--?[A-Za-z])", " ", text)
    lexer = shlex.shlex(whole, posix=True, punctuation_chars="\n;&|")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words = list[str]()
    for word in [*lexer, ";"]:
        if not word.strip("\n;&|") or re.match(r"\d?>", word):
            if words:
                yield words
            words = []
        else:
            words.append(word)


def _flags(name: str, left: deque[str], files: Mapping[str, str]) -> Flags:
    """Return the flags of an engine's command, with those in its files and the model."""
    engine, flags, others = engines()[name], Flags(), list[str]()
    while left:
        word = left.popleft()
        if _FLAG.match(word):
            flags.update([flag_at(word, left, engine)])
        elif word not in engine.beside:
            others.append(word)
    if others and not any(MEANS.get(flag) == "target" for flag in flags):
        flags["model"] = Flag("model", others[0])
    return whole(name, flags, files)


def whole(name: str, flags: Flags, files: Mapping[str, str] = MappingProxyType({})) -> Flags:
    """Return flags, those in the YAML files that they name, and the keys of their JSON.

    If a file and a flag differ, TensorRT-LLM uses the file, and other engines the flag.
    """
    known = {Path(file).name: body for file, body in files.items()}
    for key in [key for key in flags if MEANS.get(key) == "options_file"]:
        typed, path = flags.pop(key)
        if not isinstance(path, str):
            raise InputError(typed, None, "the path of a YAML file")
        text = known.get(Path(path).name) or read_text(Path(path), typed, "YAML")
        options = _yaml(text, typed).items()
        told = {key.replace("-", "_"): Flag(key, value) for key, value in options}
        flags = flags | told if name == "tensorrt-llm" else told | flags
    return dict(pair for key, flag in flags.items() for pair in _keys(key, flag))


def _keys(name: str, flag: Flag) -> Iterable[tuple[str, Flag]]:
    """Return a flag, or one for each key of its JSON. --speculative-config must be JSON."""
    is_draft, value = name == "speculative_config", flag.value
    is_json = isinstance(value, Mapping) or str(value).lstrip().startswith("{")
    if value is None or name not in _WITH_KEYS or not (is_draft or is_json):
        return [(name, flag)]
    told = object_of(flag, '{"method": "mtp", "num_speculative_tokens": 3}')
    if not isinstance(told, Mapping) or not (told or not is_draft):
        such = TABLE["without"]["vllm"] if told == {} else 'an object, such as {"method": "mtp"}'
        raise InputError(flag.typed, value, such)
    return [
        (f"{name}.{key}", Flag(f"{flag.typed} {key}", inner))
        for key, inner in ((str(key).replace("-", "_"), inner) for key, inner in told.items())
    ]


def object_of(flag: Flag, such: str) -> Any:
    """Return the value of a flag: an object already, or read from JSON or a file with JSON."""
    text = flag.value
    if not isinstance(text, str):
        return text
    if not text.lstrip().startswith(("{", "[", '"', "$")):
        text = read_text(Path(text), flag.typed, "JSON")
    try:
        return parsed_json(text)
    except ValueError as error:
        expected = f"well-formed JSON such as {such} ({error})"
        expected = TABLE["without"]["value"] if "$" in text else expected
        raise InputError(flag.typed, flag.value, expected) from None


def _yaml(text: str, argument: str) -> dict[str, Any]:
    """Return the keys and values of a YAML mapping."""
    import yaml  # slow to import

    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        expected = f"well-formed YAML ({' '.join(str(error).split())})"
        expected = TABLE["without"]["value"] if "$" in text else expected
        raise InputError(argument, text[:200], expected) from None
    if not isinstance(found, dict):
        expected = "a mapping of options and values, such as speculative_config: {...}"
        raise InputError(argument, text[:200], expected)
    return {str(key): value for key, value in found.items()}
