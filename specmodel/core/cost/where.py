"""Parse what runs where from names, texts and mappings, all in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base import naming
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import is_path
from specmodel.core.base.units import parse_seconds
from specmodel.core.cost.arguments import NamedArguments
from specmodel.core.drafters.by_name import list_drafters
from specmodel.core.machines.hardware import full_name, known_hardware
from specmodel.core.models.architecture import list_architectures
from specmodel.core.models.checkpoints import checkpoint

RECORDS = ("hardware", "engine", "target", "drafter")
"""Records, whose fields a what-if may replace."""
NAMES = tuple(NamedArguments.__annotations__)
"""Arguments of `deploying.resolve` other than fields of records."""
_BESIDE = ("num_gpus", "changes", "force")
ARGUMENTS = (*NAMES, *_BESIDE)
"""Arguments that say what runs where."""
NO_DRAFTER = "none"
"""The drafter's name that means no drafter."""


class Manner(NamedTuple):
    """How a question is put, in addition to its arguments.

    `is_drafting` uses the usual drafter if none is named. `may_not_fit` allows one GPU if no number
    of GPUs has enough memory. A command line adds `names`, notes on names that were looked up. From
    an engine's start command, `head` is the path or id of the draft model, and `lacking` the key or
    flag that lacks one.
    """

    is_drafting: bool = True
    may_not_fit: bool = False
    names: tuple[str, ...] = ()
    head: str = ""
    lacking: str = ""


USUAL = Manner()


class Where(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What runs where, as it was named.

    Parameters
    ----------
    named
        Records, names, degrees, dtypes and settings, by `NAMES`.
    what_ifs
        Values that replace fields of the records, by record and by field.
    num_gpus, changes, force
        As in `cost.arguments.WhatIfArguments` [-].
    manner
        How the question is put.
    """

    named: NamedArguments
    what_ifs: Mapping[str, Mapping[str, object]]
    num_gpus: int | None = None
    changes: Mapping[str, object] | Sequence[str] = ()
    force: bool = False
    manner: Manner = USUAL

    def naming(self, **named: Any) -> Where:
        """Return what runs where with other names or settings."""
        return replace(self, named=cast(NamedArguments, {**self.named, **named}))

    @property
    def changed(self) -> str:
        """The changes of fields, as text."""
        given = self.changes
        texts = [f"{k}={v}" for k, v in given.items()] if isinstance(given, Mapping) else given
        return ", ".join(text for text in texts if "." in text.partition("=")[0])

    @property
    def head(self) -> str:
        """The path or id by which a drafter was named, "" if by a plain name or as a record."""
        named = self.manner.head or self.named.get("drafter")
        path = str(named).removesuffix("/config.json") if isinstance(named, str | Path) else ""
        return path if "/" in path else ""


def where_of(arguments: Mapping[str, Any], manner: Manner = USUAL) -> Where:
    """Return what runs where, from `ARGUMENTS` by name; the same record for the same names.

    The GPU may be counted, as in ``8xh200``; changes may set arguments too.
    """
    is_plain = {str, int, float, bool, type(None)}.issuperset(map(type, arguments.values()))
    return (is_plain and _kept(manner, **arguments)) or _where(arguments, manner)


@lru_cache(maxsize=1024, typed=True)
def _kept(manner: Manner, **arguments: Any) -> Where | None:
    """Return the deployment by name, or None if an argument is a path, as files may change."""
    if any(isinstance(value, str) and is_path(value) for value in arguments.values()):
        return None
    return _where(arguments, manner)


def _where(arguments: Mapping[str, Any], manner: Manner) -> Where:
    changes = arguments.get("changes")
    named, fields = by_record({**arguments, **(_changed(changes) if changes else {})})
    if isinstance(named.get("hardware"), str):
        count, named["hardware"] = naming.counted(named["hardware"])
        if count and named.get("num_gpus") not in (None, count):
            expected = f"{count}, the number of GPUs in `hardware`, or no number"
            raise InputError("num_gpus", named["num_gpus"], expected)
        named |= {"num_gpus": count} if count else {}
    beside: dict[str, Any] = {name: named.pop(name) for name in _BESIDE if name in named}
    return Where(named=cast(NamedArguments, named), what_ifs=fields, manner=manner, **beside)


def by_record(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, object]]]:
    """Return the values of plain names, and the values of dotted names by record and field."""
    what_ifs: dict[str, dict[str, object]] = {record: {} for record in RECORDS}
    plain = dict[str, Any]()
    for name, value in values.items():
        record, is_dotted, field = name.partition(".")
        (what_ifs.setdefault(record, {}) if is_dotted else plain)[field or name] = value
    return plain, what_ifs


def _changed(changes: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Return the values of changes, by argument or dotted field."""
    values = what_ifs(changes)
    time = values.get("lookup_time")
    if time is not None and not (isinstance(time, int | float) and not time >= 1):
        values["lookup_time"] = parse_seconds("lookup_time", str(time))
    return values


def what_ifs(changes: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Return changes by dotted field of the records, from a mapping or ``KEY=VALUE`` texts."""
    if not isinstance(changes, Mapping | list | tuple):
        raise InputError("changes", changes, "a mapping such as {'target.experts_per_token': 4}")
    if isinstance(changes, Mapping):
        values, texts = dict(changes), dict(zip(changes, changes, strict=True))
    else:
        parts = {text: [part.strip() for part in text.partition("=")] for text in changes}
        values = {key: literal(value) for key, _, value in parts.values()}
        texts = {key if has_value else "": text for text, (key, has_value, _) in parts.items()}
    for key, text in texts.items():
        record, has_field, _ = str(key).partition(".")
        if key not in naming.SETTABLE and (not has_field or record not in RECORDS):
            expected = f"KEY=VALUE. A key starts with {'., '.join(RECORDS)}., or is one of"
            raise InputError("changes", text, f"{expected} {', '.join(naming.SETTABLE)}")
    return values


def literal(text: str) -> object:
    """Return a typed value as bool, int or float if possible, else as text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def looked_up(argument: str, word: str, notes: list[str]) -> str:
    """Return a shipped name, a path, or the word as it is; append notes on the name to `notes`.

    >>> looked_up("target", "llama-3.3-70b", []), looked_up("hardware", "8xh200", [])
    ('llama-3.1-70b', '8xh200_sxm')
    """
    is_gpu = argument == "hardware"
    known = known_hardware() if is_gpu else list_architectures()
    if is_gpu and (count := naming.counted(word))[0]:  # with a number of GPUs
        return f"{count[0]}x{looked_up(argument, count[1], notes)}"
    if argument == "drafter" and word.partition(":")[0] in list_drafters():
        return word
    full = full_name(word, known) if is_gpu else word
    if "/" not in word and (name := naming.known_name(full, known, argument)):
        if name != word and os.path.isdir(word):  # noqa: PTH112 - a plain word
            notes.append(f"{word} is read as the shipped {name}; ./{word} means the folder")
        return name
    if "/" not in word and os.path.lexists(word):
        return f"./{word}"
    if naming.is_id(word) and os.path.lexists(word) and naming.cached_snapshot(word):
        notes.append(f"{word} is read as the folder, not as the model id in the local cache")
    shape = None if naming.is_local(word) else checkpoint(word, known)
    shipped, dtype = shape or (word, "")
    if shipped != word and shipped not in word.lower().replace("_", "-"):
        notes.append(f"{word}: taken as {shipped}, whose shape it has")
    return word if dtype else shipped
