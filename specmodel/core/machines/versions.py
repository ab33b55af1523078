"""Describe engines by version: drafters that they wait for, and how they launch passes.

``data/versions.toml`` contains a table for each version, as read in its wheel.
"""

import re
from pathlib import Path
from typing import Any

from specmodel.core.base.files import toml_tables

_NAME = re.compile(r"(?P<engine>[a-z]+)\s*(?:==|[-@ :])\s*v?(?P<version>\d+\.\d+[\w.+-]*)")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


_TABLES = toml_tables(Path(__file__).parent / "data/versions.toml")
_RELEASED = "released"
ROWS: dict[str, dict[tuple[int, ...], dict[str, Any]]] = {
    engine: {
        _numbers(version): {name: own for name, own in row.items() if name != _RELEASED}
        for version, row in rows.items()
    }
    for engine, rows in _TABLES.items()
}
"""Fields of an engine's profile that differ, by engine and first version."""


def newest_at(engine: str, date: str) -> str:
    """Return the newest known version released before a month or a day, else the oldest.

    Examples
    --------
    >>> newest_at("vllm", "2026-08"), newest_at("vllm", "2026-09-18")
    ('0.26', '0.28')
    """
    rows = _TABLES[engine]
    out = [version for version, row in rows.items() if row[_RELEASED] < date]
    return str(out[-1] if out else next(iter(rows)))


def named_version(name: object) -> tuple[str, str] | None:
    """Return the engine and the version of a name such as vllm-0.24 or vllm==0.24.0, or None."""
    found = _NAME.fullmatch(str(name).strip().lower())
    return (found["engine"], found["version"]) if found and found["engine"] in ROWS else None


def of_version(engine: str, version: str) -> dict[str, Any]:
    """Return the profile changes of the newest known version up to `version`, else of the oldest.

    Examples
    --------
    >>> of_version("vllm", "0.29.1")["waits_for"]
    ['ngram', 'suffix']
    """
    rows = ROWS[engine]
    first = max((first for first in rows if first <= _numbers(version)), default=next(iter(rows)))
    return rows[first]


def nearest_read(engine: str, version: str) -> str:
    """Return the known version that replaces one older or newer than all known, else "".

    Examples
    --------
    >>> nearest_read("vllm", "0.99"), nearest_read("vllm", "0.24")
    ('0.33', '')
    """
    oldest, *_, newest = ROWS[engine]
    asked = _numbers(version)
    taken = oldest if asked < oldest else newest if asked[: len(newest)] > newest else ()
    return ".".join(map(str, taken))
