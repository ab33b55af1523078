"""Frozen records read from TOML and JSON files, with errors that name the file, key and value.

Records are dataclasses, which Python code builds as they are. Users' files are checked at the door,
`build`, by the types and bounds of the fields: pydantic's core makes a validator of the class, and
is imported when the first file is read.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, get_args

import numpy as np

from specmodel.base.classes import dataclass
from specmodel.base.compiled import compiled
from specmodel.base.errors import InputError, nearest
from specmodel.base.files import check_readable, parsed_json, refusing
from specmodel.base.naming import found_path, known_name
from specmodel.base.schemas import Kinds, schema_of
from specmodel.base.units import FloatArray

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, SchemaValidator, ValidationError

MAX_FILE_BYTES = 4_000_000
"""Largest profile or configuration file that is read [B]."""
MOST_CHARACTERS = 100
"""Longest name of a record, which stands in a line of answers [-]."""


HIDDEN = {"is_hidden": True}
"""Metadata of a field that is no part of what a copy of its record holds or shows."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of every record: frozen; from files, strict types, no unknown keys, finite numbers."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what was computed from them, a copy computes anew."""
        return {name: getattr(self, name) for name in field_names(type(self))}

    def with_changes(self, argument: str, changes: Mapping[str, object]) -> Self:
        """Return a validated copy with fields replaced, by names that are dotted for nested tables.

        Errors carry `argument` before the name of the field that is unknown or does not fit.
        """
        if not changes:
            return self
        data = as_table(self)
        for key, value in changes.items():
            *tables, leaf = key.split(".")
            table: Any = data
            for name in tables:
                table = table.get(name)
                if not isinstance(table, dict):
                    raise InputError(f"{argument}.{key}", value, f"a field: {nearest(name, data)}")
            table[leaf] = value
        return build(type(self), data, argument)


RecordType = TypeVar("RecordType", bound=Record)


def field_names(cls: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields of a record."""
    return tuple(field.name for field in fields(cls))


def is_hidden(field: Field[Any]) -> bool:
    """Return whether a field is left out when a record is shown."""
    return bool(field.metadata.get("is_hidden"))


def as_table(
    record: Record, keeps: Callable[[Field[Any], object], bool] = lambda field, value: True
) -> dict[str, Any]:
    """Return a record as a table of a file: nested dicts of the fields that are kept, not hidden.

    Parameters
    ----------
    record
        The record.
    keeps
        Whether a field with its value is kept, in nested records too; by default each is.
    """

    def plain(value: Any) -> Any:
        if is_dataclass(value):
            return as_table(cast(Any, value), keeps)
        if isinstance(value, Mapping):
            return {key: plain(inner) for key, inner in value.items()}
        return type(value)(map(plain, value)) if isinstance(value, list | tuple) else value

    shown = (field for field in fields(record) if not is_hidden(field))
    values = ((field, getattr(record, field.name)) for field in shown)
    return {field.name: plain(value) for field, value in values if keeps(field, value)}


def unchecked(record: RecordType, changes: Mapping[str, object]) -> RecordType:
    """Return a copy with fields replaced by what no file may have, such as arrays of draws."""
    copied = copy(record)
    vars(copied).update(changes)
    return copied


def build(cls: type[RecordType], data: object, argument: str) -> RecordType:
    """Return a record from a mapping of its fields; an error names the first that is at fault.

    Parameters
    ----------
    cls, data
        The class of the record, and its fields by name, as read from TOML or JSON.
    argument
        What an error calls the record, such as "target".
    """
    from pydantic_core import ValidationError

    try:
        validator = _validator(cls)  # type: ignore[arg-type]  # a class can be hashed
        record: RecordType = validator.validate_python(data)
    except ValidationError as error:
        raise _first_fault(cls, data, error, argument) from None
    name = getattr(record, "name", "")
    is_line = not any(character < " " or "\x7f" <= character <= "\x9f" for character in name)
    if len(name) > MOST_CHARACTERS or not is_line:  # not all names are UTF-8, as schemas want them
        expected = f"at most {MOST_CHARACTERS} characters, and no line breaks or the like"
        raise InputError(_joined(argument, "name"), name, expected)
    return record


@cache
def _validator(cls: type[Record]) -> "SchemaValidator":
    """Return a validator of a record's tables, from the types and bounds of its fields."""
    from pydantic_core import SchemaValidator

    schema: Any = schema_of(cls)
    return SchemaValidator(schema)


def is_path(name: str | Path, argument: str = "name") -> bool:
    """Return whether what the user typed means a file, by a slash or a suffix, and not a name."""
    if isinstance(name, Path):
        return True
    if not isinstance(name, str):
        raise InputError(argument, name, "a record, a name or a path")
    return "/" in name or "\\" in name or name.endswith((".toml", ".json"))


@cache
def list_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the records that ship in a folder, sorted."""
    return tuple(sorted(path.stem for path in folder.iterdir() if path.suffix == ".toml"))


def find_file(name: str | Path, folder: Path, argument: str) -> Path:
    """Return the file of a record that ships in a folder, or a path as given, file or not."""
    names = list_names(folder)
    if is_path(name, argument):
        return found_path(str(name), names, argument)
    found = known_name(str(name), names, argument)
    if found is None:
        near = nearest(str(name), names)
        own = f"a TOML of your own, as specmodel list {near.partition(',')[0]} prints one"
        raise InputError(argument, name, f"a known name such as {near}, or the path of {own}")
    return folder / f"{found}.toml"


def load(cls: type[RecordType], name: str | Path, folder: Path, argument: str) -> RecordType:
    """Return the record of a name that ships in a folder, or of the TOML file at a path."""
    path = find_file(name, folder, argument)
    if is_path(name):
        return build(cls, read_mapping(path, argument), f"{argument} {name}")
    record: RecordType = _shipped(cls, path, argument)  # type: ignore[arg-type]  # as above
    return record


@cache
def _shipped(cls: type[Record], path: Path, argument: str) -> Any:
    return compiled(path, [path], lambda: build(cls, read_mapping(path, argument), argument))


def toml_text(record: Record, table: str = "") -> str:
    """Return a record as TOML, without fields that are None and empty tables.

    With `table`, the dotted name of the table that it becomes, fields at their default are left out
    too.
    """

    def is_told(field: Field[Any], value: object) -> bool:
        made = field.default if field.default_factory is MISSING else field.default_factory()
        return value is not None and (not table or bool(value != made))

    head = ["", f"[{table}]"] if table else []
    return "\n".join(head + _toml_lines(as_table(record, is_told), f"{table}." if table else ""))


def _toml_lines(data: dict[str, Any], prefix: str) -> list[str]:
    is_bare = re.compile("[A-Za-z0-9_-]+").fullmatch
    named = {key if is_bare(key) else _json(key): value for key, value in data.items()}
    plain = {key: value for key, value in named.items() if not _is_table(value)}
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in named.items():
        if isinstance(value, dict) and value:
            nested = _toml_lines(value, f"{prefix}{key}.")
            has_own = any(not isinstance(inner, dict) for inner in value.values())
            lines += ["", f"[{prefix}{key}]", *nested] if has_own else nested
        elif _is_table(value):
            for item in value:
                lines += ["", f"[[{prefix}{key}]]", *_toml_lines(item, f"{prefix}{key}.")]
    return lines


def _is_table(value: object) -> bool:
    """Return whether a value is a table, or an array of tables."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict)


def _toml_value(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return f"{value:.1f}"
    return f"{value:.15g}" if isinstance(value, float) else _json(value)


def _json(value: object) -> str:
    import json  # which records that ship do not need

    return json.dumps(value, ensure_ascii=False)


def read_mapping(path: Path, argument: str) -> dict[str, Any]:
    """Return the top-level table of a TOML file, or of a JSON file by its suffix."""
    kind = "JSON" if path.suffix == ".json" else "TOML"
    text = read_text(path, argument, kind)
    import tomllib  # which records that ship do not need

    try:
        data = parsed_json(text) if kind == "JSON" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(argument, str(path), f"well-formed {kind} ({error})") from None
    if not isinstance(data, dict):
        raise InputError(argument, str(path), f"a {kind} object at the top level")
    return data


def read_numbers(path: Path, argument: str) -> FloatArray:
    """Return the numbers of a text, between white space, commas or JSON brackets [-]."""
    words = read_text(path, argument, "text").translate(str.maketrans("[],", "   ")).split()
    if not words:
        raise InputError(argument, str(path), "at least one number")
    try:
        return np.array([float(word.encode("ascii")) for word in words])
    except ValueError as error:
        raise InputError(argument, str(path), f"numbers only ({error})") from None


def read_text(path: Path, argument: str, kind: str) -> str:
    """Return a small text in UTF-8; `kind` says in errors what it should have been."""
    check_readable(path, argument, kind)
    with refusing(path, argument, f"a readable {kind} file"), path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        limit = f"a {kind} file of at most {MAX_FILE_BYTES / 1e6:g} MB"
        raise InputError(argument, str(path), limit)
    try:
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError:
        raise InputError(argument, str(path), f"a {kind} file in UTF-8") from None


def _first_fault(
    cls: type[Record], data: object, error: "ValidationError", argument: str
) -> InputError:
    """Return the fault to report, with all fields that are missing.

    An unknown key comes before a missing one that it may be meant for.
    """
    faults = error.errors(include_url=False)
    fault = min(faults, key=_urgency)
    lacking = [
        _joined(_place(data, found["loc"]), str(found["loc"][-1]))
        for found in faults
        if found["type"] == "missing" and isinstance(found["loc"][-1], str)
    ]
    path, expected = fault["loc"], fault["msg"].removeprefix("Input should be ")
    name = _joined(argument, _place(data, path))
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return InputError(_joined(name, cause.argument), cause.value, cause.expected)
    match fault["type"]:
        case "unexpected_keyword_argument":
            record = _records_at(cls, path[:-1])[0]
            known = [field.name for field in fields(record) if not is_hidden(field)]
            expected = f"a known field: {nearest(str(path[-1]), known)}"
        case "dataclass_type":
            expected = f"a valid dictionary or instance of {fault['ctx']['class_name']}"
        case "tuple_type":
            expected = "a list, in a file of its own"
        case "missing" if isinstance(path[-1], int):
            return InputError(name, fault["input"], f"at least {path[-1] + 1} values")
        case "missing" if len(lacking) > 1:
            return InputError(argument, None, f"these fields to be given: {', '.join(lacking)}")
        case "missing":
            return InputError(_joined(name, str(path[-1])), None, "this field to be given")
        case "union_tag_invalid" | "union_tag_not_found":
            kinds = sorted(str(_kind(record)) for record in _records_at(cls, path))
            return InputError(f"{name}.kind", fault["input"].get("kind"), " or ".join(kinds))
    is_told = len(lacking) > 1 and path != ("schema_version",)
    also = f"; not given: {', '.join(lacking)}" if is_told else ""
    return InputError(name, fault["input"], f"{expected}{also}")


def _urgency(fault: "ErrorDetails") -> int:
    """Rank a fault: another version first, which decides what is known, then unknown keys."""
    if fault["loc"] == ("schema_version",) and fault["type"] != "missing":
        return 0
    return 1 if fault["type"] == "unexpected_keyword_argument" else 2


def _joined(*names: str) -> str:
    return ".".join(filter(None, names))


def _place(data: object, path: Sequence[int | str]) -> str:
    """Return the path of a fault in `data`, without the kinds of tables put in between."""
    place = ""
    for key in path:
        if isinstance(key, int) and isinstance(data, Sequence) and key < len(data):
            place, data = f"{place}[{key}]", data[key]
        elif isinstance(data, Mapping) and key in data:
            place, data = _joined(place, str(key)), data[key]
    return place


def _records_at(cls: type[Record], path: Sequence[int | str]) -> list[type[Record]]:
    """Return the kinds of records that may stand at a path of keys below `cls`."""
    found = [cls]
    for key in path:
        tagged = [c for c in found if _kind(c) == key]
        types = (field.type for c in found for field in fields(c) if field.name == key)
        found = tagged or [record for one in types for record in _records_in(one)] or found
    return found


def _kind(cls: type[Record]) -> object:
    """Return the field `kind` of a record, by which one kind of table is told from another."""
    return getattr(cls, "kind", None)


def _records_in(annotation: Any) -> list[type[Record]]:
    """Return the kinds of records that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return [annotation]
    marks = getattr(annotation, "__metadata__", ())
    parts = [mark.found() for mark in marks if isinstance(mark, Kinds)] or get_args(annotation)
    return [record for part in parts for record in _records_in(part)]
