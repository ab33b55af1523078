"""Merge fits into the text of hardware profiles, whose comments stay."""

import re
import tomllib
from pathlib import Path

from msgspec.structs import replace

from specmodel.core.base import records
from specmodel.core.base.errors import InputError
from specmodel.core.machines.hardware import FOLDER, HardwareProfile, load_hardware, own_or_shipped
from specmodel.core.machines.kernels import TYPICAL, FittedStack

_REPORTED = re.compile(r"^reported_names = .*\n", re.MULTILINE)
_HEADER = re.compile(r"^\[([A-Za-z_][^\]]*)\]")


def hardware_text(name: str | Path) -> str:
    """Return the text of a valid hardware profile by name or path.

    The text of a named profile lacks the names that devices report, as `measure` only uses the
    reported names of shipped profiles.
    """
    load_hardware(name)
    name = own_or_shipped(name)
    text = records.find_file(name, FOLDER, "hardware").read_text(encoding="utf-8")
    return text if records.is_path(name) else _REPORTED.sub("", text)


def with_stack(text: str, name: str, stack: FittedStack) -> str:
    """Return the TOML of a hardware profile with a fitted stack added or replaced.

    The stack is the default if it was before, or if there is no other. Raise an InputError if the
    name or the result is invalid.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or name in (TYPICAL, "datasheet"):
        expected = "lower-case letters, digits, - and _, other than typical and datasheet"
        raise InputError("stack", name, expected)
    kept = without_table(text, f"fitted.{name}")
    old = tomllib.loads(text).get("fitted", {}).get(name, {})
    others = tomllib.loads(kept).get("fitted", {})
    if name in others:
        expected = f"a header [fitted.{name}], without quotes or blanks, to replace it"
        raise InputError("hardware", f"fitted.{name}", expected)
    is_default = not others or old.get("is_default", False)
    marked = replace(stack, is_default=is_default)
    merged = kept.rstrip() + "\n" + records.toml_text(marked, f"fitted.{name}") + "\n"
    records.build(HardwareProfile, tomllib.loads(merged), "hardware")
    return merged


def without_table(text: str, table: str) -> str:
    """Return TOML text without a table and its sub-tables."""
    kept: list[str] = []
    comments: list[str] = []
    is_inside = False
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            name = header.group(1)
            is_inside = name == table or name.startswith(f"{table}.")
            kept += [] if is_inside else comments
        if not is_inside:
            kept.append(line)
        is_comment = is_inside and (line.startswith("#") or not line.strip())
        comments = [*comments, line] if is_comment else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)) + "\n"
