"""Options on what runs where, and the words TARGET and GPU that replace two of them.

This module reads ``-`` as standard input and ``8xh200`` as eight GPUs; `cost.where` looks names up.
"""

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

    `engine` is the default engine in the help. If `required`, the user must give target and
    hardware, as words or as options; the default drafter is then the target's usual one. With
    `has_start`, flags of an engine's start command are accepted. Without `has_words`, positional
    words have another meaning.
    """
    drafter = option("drafter", "  [default: the model's usual drafter]" if required else "")
    words = two_words(required=required) if has_words else changed(named)
    ignore = ignore_option("target", "drafter")
    more = (option("engine", f"  [default: {engine}]"), "host_speed", "stack", "link", ignore)
    start = [start_flags()] if has_start else []
    return options(*start, words, "target", drafter, "hardware", *more, "force")


def two_words(*, required: bool = True) -> Add:
    """Accept target and GPU as words without options, but not in both ways; look names up."""
    words = click.argument("words", nargs=-1, metavar="[TARGET] [GPU]")
    return options(words, changed(partial(_with_words, required=required)), changed(named))


def _with_words(options: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """Return options in which the words are target and hardware."""
    words = options.pop("words")
    if len(words) > 2:
        raise InputError("words", " ".join(words), "at most two words: a model and a GPU")
    for name, word in zip(("target", "hardware"), words, strict=False):
        if options[name] is not None:
            both = f"{word} and --{name} {options[name]}"
            raise InputError(name, both, "It is given as a word and as an option. Remove one.")
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
    """Return whether a word is a name of a GPU, or the beginning of several names."""
    from specmodel.core.machines.hardware import full_name, known_hardware

    gpus = known_hardware()
    try:
        known = known_name(full_name(counted(word)[1], gpus), gpus, "hardware")
    except InputError:
        return True
    return known is not None


def named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which names of models and GPUs are the shipped names.

    The options also get `num_gpus`, the count in ``8xh200`` or None, and `taken`, notes on names.
    """
    hardware, gpus = options["hardware"], None
    if hardware and "," not in hardware:
        gpus, hardware = counted(hardware)
    typed = {**options, "hardware": hardware, "num_gpus": gpus}
    notes = [*options.get("taken", ())]
    for name in ("target", "drafter", "hardware"):
        if words := typed.get(name):
            typed[name] = ",".join(_named(name, word.strip(), notes) for word in words.split(","))
    return typed | {"taken": (*notes,)}


def _named(argument: str, word: str, notes: list[str]) -> str:
    from specmodel.core.cost.where import looked_up

    return _standard_input(argument) if word == "-" else looked_up(argument, word, notes)


_MOST_BYTES = 4_000_000


def _standard_input(argument: str) -> str:
    """Write standard input to a file and return its path; the file is removed at the end."""
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
