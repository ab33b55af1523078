"""What follows from files that ship, kept as Python keeps compiled modules: made once, then read.

A record that ships is checked when it is compiled, not each time it is read. As with modules, the
compiled form lies in a folder ``__pycache__``, and is made anew when a file or the code that reads
it has changed; where it cannot be written, it is made each time. A wheel has all of it from when it
was built, so that what is installed need not be written to.
"""

import os
import pickle
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

Made = TypeVar("Made")

_PACKAGE = Path(__file__).parents[1]
_ROOMS = (
    "base",
    "layers",
    "models",
    "models/hf",
    "machines",
    "drafters",
    "replay/traces",
    "show",
    "cli",
)
"""Folders whose code decides what is read from a file."""


def compiled(name: Path, files: Iterable[Path], make: Callable[[], Made]) -> Made:
    """Return what `make` makes of files that ship, kept under the name of a file or folder."""
    key = (_code(), [(file.name, crc32(file.read_bytes())) for file in files])
    kept = name.parent / "__pycache__" / f"{name.stem}.pickle"
    with suppress(Exception):  # whatever a file that is cut off or of another version may raise
        found, value = pickle.loads(kept.read_bytes())
        if found == key:
            made: Made = value
            return made
    made = make()
    if not sys.dont_write_bytecode:
        part = kept.with_name(f"{kept.name}.{os.getpid()}")
        with suppress(OSError):  # a place that cannot be written is no fault
            kept.parent.mkdir(exist_ok=True)
            part.write_bytes(pickle.dumps((key, made)))
            part.replace(kept)
    return made


def toml_tables(file: Path) -> dict[str, Any]:
    """Return the tables of a TOML file that ships."""
    return compiled(file, [file], partial(_parsed, file))


def _parsed(file: Path) -> dict[str, Any]:
    import tomllib  # which tables that are compiled do not need

    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def _code() -> tuple[int, ...]:
    """Return a stamp that changes with the code that reads files: number, size, last change [ns].

    The last change counts in a checkout only: an installed file has the time of its installation.
    """
    found = []
    for room in _ROOMS:
        with suppress(OSError), os.scandir(_PACKAGE / room) as entries:
            found += [entry.stat() for entry in entries if entry.name.endswith(".py")]
    sizes, times = [s.st_size for s in found], [s.st_mtime_ns for s in found]
    is_installed = (_PACKAGE / "machines/data/hardware").is_dir()
    return len(found), sum(sizes), 0 if is_installed else max(times, default=0)
