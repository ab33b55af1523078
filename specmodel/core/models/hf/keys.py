"""Load tables about keys: keys that change no shape, and keys with several names."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from specmodel.core.base.records import read_mapping

DATA = Path(__file__).parents[1] / "data"
"""Folder of the tables for readers of ``config.json``."""


@cache
def table(name: str) -> dict[str, Any]:
    """Return a table for readers of ``config.json``, by the name of its file."""
    return read_mapping(DATA / f"{name}.toml", name)


def harmless_keys(groups: Iterable[str] = ()) -> frozenset[str]:
    """Return the keys that change no shape in any family, and the keys of some groups."""
    known = table("harmless_keys")
    return frozenset().union(*known["every_family"].values(), *(known["groups"][g] for g in groups))


@cache
def other_names() -> dict[str, tuple[str, ...]]:
    """Return the other names of each key."""
    groups = table("key_names")["same"]
    return {key: tuple(name for name in keys if name != key) for keys in groups for key in keys}
