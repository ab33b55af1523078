"""Keys of a ``config.json`` that change no shape, and keys with several names."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from specmodel.base.records import read_mapping

DATA = Path(__file__).parents[1] / "data"
"""Folder of the tables for readers of ``config.json``."""


@cache
def _table(name: str) -> dict[str, Any]:
    return read_mapping(DATA / f"{name}.toml", name)


def harmless_groups() -> dict[str, list[str]]:
    """Return groups of keys that change no shape in the families that name them."""
    groups: dict[str, list[str]] = _table("harmless_keys")["groups"]
    return groups


def harmless_keys(groups: Iterable[str] = ()) -> frozenset[str]:
    """Return keys that change no shape in any family, and those of some groups."""
    of_every = _table("harmless_keys")["every_family"].values()
    return frozenset().union(*of_every, *(harmless_groups()[name] for name in groups))


def size_keys(row: str) -> dict[str, Any]:
    """Return the keys of the sizes of a mixer by its fields, beside its kind and what divides."""
    keys: dict[str, Any] = _table("size_keys")[row]
    return keys


@cache
def other_names() -> dict[str, tuple[str, ...]]:
    """Return the other names of each key; values under several names must agree."""
    return {
        key: tuple(name for name in keys if name != key)
        for keys in _table("key_names")["same"]
        for key in keys
    }


def wrappers() -> dict[str, list[str]]:
    """Return models that see: by `model_type`, the families that `text_config` may have."""
    known: dict[str, list[str]] = _table("other_model_types")["wrappers"]
    return known


def flat_wrappers() -> dict[str, str]:
    """Return wrappers that are also published as the language model alone, with its family."""
    known: dict[str, str] = _table("other_model_types")["flat"]
    return known


def refused_families() -> dict[str, list[str]]:
    """Return families that are refused, by what they have that no layer here describes."""
    refused: dict[str, list[str]] = _table("other_model_types")["refused"]
    return refused
