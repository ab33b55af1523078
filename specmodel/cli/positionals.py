"""What runs where: its options, the words that stand for two, and what people type for names.

Names themselves are looked up by `cost.where`; here are ``-`` for standard input, and ``8xh200``.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from specmodel.cli.settings import Add, changed, ignore_option, option, options
from specmodel.cli.start_command import start_flags
from specmodel.core.base.errors import InputError
from specmodel.core.base.naming import counted, known_name

_ASKED = {"target": "a model", "hardware": "a GPU"}


def where_options(
    *, required: bool = True, engine: str = "vllm", has_start: bool = False, has_words: bool = True
) -> Add:
    """Add the options that name target, drafter, hardware, engine and kernels.

    `engine` is what the help calls the default engine. Target and hardware are needed if
    `required`, as words or as options; the drafter is then the target's usual one by default. Flags
    of an engine's start command are taken if `has_start`; words are another's if not `has_words`.
    """
    drafter = option("drafter", "  [default: the model's usual one]" if required else "")
    words = two_words(required=required) if has_words else changed(named)
    ignore = ignore_option("target", "drafter")
    more = (option("engine", f"  [default: {engine}]"), "host_speed", "stack", "link")
    start = [start_flags()] if has_start else []
    where = options(words, "target", drafter, "hardware", *more, ignore)
    return options(*start, where, option("force"))


def two_words(*, required: bool = True) -> Add:
    """Let target and GPU stand without their options; either way is refused where both are given.

    Names are looked up as by `named`.
    """
    words = click.argument("words", nargs=-1, metavar="[TARGET] [GPU]")
    return options(words, changed(partial(_with_words, required=required)), changed(named))


def _with_words(options: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """Return options with the words in their places."""
    words = options.pop("words")
    if len(words) > 2:
        raise InputError("words", " ".join(words), "at most two words: a model and a GPU")
    for name, word in zip(("target", "hardware"), words, strict=False):
        if options[name] is not None:
            both = f"{word} and --{name} {options[name]}"
            raise InputError(name, both, "one value: as a word or as the option")
        options = options | {name: word}
    if len(words) == 2 and _is_gpu(words[0]) and not _is_gpu(words[1]):
        expected = f"the model first, then the GPU: {words[1]} {words[0]}"
        raise InputError("target", words[0], expected)
    missing = [name for name in _ASKED if options[name] is None]
    if required and missing:
        what = " and ".join(_ASKED[name] for name in missing)
        typed = click.get_current_context().command_path
        expected = f"{what}, as in {typed} qwen3.5-397b h200 (specmodel list hardware)"
        raise InputError(missing[0], None, expected)
    return options


def _is_gpu(word: str) -> bool:
    from specmodel.core.machines.hardware import full_name, known_hardware

    gpus = known_hardware()
    try:
        known = known_name(full_name(counted(word)[1], gpus), gpus, "hardware")
    except InputError:  # the beginning of several
        return True
    return known is not None


def named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the shipped names of the models and GPUs that were typed.

    Also with `num_gpus`, the count of ``8xh200`` or None, and `taken`, notes on the names.
    """
    hardware, gpus = options["hardware"], None
    if hardware and "," not in hardware:
        gpus, hardware = counted(hardware)
    typed = {**options, "hardware": hardware}
    taken: list[str] = []
    names = {
        name: ",".join(_named(name, word.strip(), taken) for word in typed[name].split(","))
        for name in ("target", "drafter", "hardware")
        if typed.get(name)
    }
    return {**typed, **names, "num_gpus": gpus, "taken": (*options.get("taken", ()), *taken)}


def _named(argument: str, word: str, taken: list[str]) -> str:
    from specmodel.core.cost.where import looked_up

    return _standard_input(argument) if word == "-" else looked_up(argument, word, taken)


_MOST_BYTES = 4_000_000


def _standard_input(argument: str) -> str:
    """Return the path of a file with the text of standard input, kept until the program ends."""
    from shutil import rmtree
    from tempfile import mkdtemp

    from specmodel.core.base.files import write_bytes

    content = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if not content.strip() or len(content) > _MOST_BYTES:
        expected = "a config.json or TOML record of at most 4 MB on standard input"
        raise InputError(argument, f"- with {len(content)} bytes", expected)
    folder = mkdtemp(prefix="specmodel-")
    atexit.register(rmtree, folder, ignore_errors=True)
    kind = "json" if content.lstrip().startswith(b"{") else "toml"
    path = f"{folder}/stdin.{kind}"
    write_bytes(path, content, argument)
    return path
