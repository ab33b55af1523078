"""Read frozen records from TOML and JSON files; errors name the file, key and value.

Records are structs of msgspec. Python code can construct them without checks. `build` checks users'
files against the types and bounds of the fields.
"""

import io
import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

import numpy as np
import tomli
from msgspec import NODEFAULT, Struct, ValidationError, convert
from msgspec.structs import FieldInfo, fields, force_setattr

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.files import check_readable, parsed_json, refusing, toml_tables
from specmodel.core.base.naming import found_path, known_name
from specmodel.core.base.units import FloatArray

MAX_FILE_BYTES = 4_000_000
"""Largest profile or configuration file that is read [B]."""
MOST_CHARACTERS = 100
"""Maximum length of a record's name, because answers print it in one line [-]."""


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
"""Words in errors for types, by their names in msgspec."""


class Record(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """Base of all records: frozen; files need strict types, known keys and finite numbers."""

    hidden: ClassVar[tuple[str, ...]] = ()
    """Fields that copies, files and output of the record leave out."""

    def need(self, is_valid: object, name: str, expected: str) -> None:
        """Raise an error about a field unless its value is valid."""
        if not is_valid:
            raise InputError(name, getattr(self, name), expected)

    def with_changes(self, argument: str, changes: Mapping[str, object]) -> Self:
        """Return a validated copy with replaced fields; names of nested fields have dots.

        Errors put `argument` before the name of an unknown or invalid field.
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
                    expected = f"a field like {nearest(name, data)}"
                    raise InputError(f"{argument}.{key}", value, expected)
            table[leaf] = value
        return build(type(self), data, argument)


RecordType = TypeVar("RecordType", bound=Record)
StructType = TypeVar("StructType", bound=Struct)


def field_names(cls: type[Struct]) -> tuple[str, ...]:
    """Return the names of the fields of a record."""
    return cls.__struct_fields__


def as_table(
    record: Struct, keeps: Callable[[FieldInfo, object], bool] | None = None
) -> dict[str, Any]:
    """Return a record as a table for a file: nested dicts of its fields.

    Parameters
    ----------
    record
        The record.
    keeps
        Function of a field and its value that returns whether to keep it, also in nested records;
        by default, all fields are kept.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Struct):
            return as_table(value, keeps)
        if isinstance(value, Mapping):
            return {key: plain(inner) for key, inner in value.items()}
        return type(value)(map(plain, value)) if isinstance(value, list | tuple) else value

    values = {name: getattr(record, name) for name in field_names(type(record))}
    if keeps is not None:
        values = {f.name: values[f.name] for f in fields(record) if keeps(f, values[f.name])}
    config = record.__struct_config__
    kind = {config.tag_field: config.tag} if config.tag_field else {}
    hidden = record.hidden if isinstance(record, Record) else ()
    return kind | {name: plain(value) for name, value in values.items() if name not in hidden}


def unchecked(record: StructType, changes: Mapping[str, object]) -> StructType:
    """Return a copy with replaced fields without checks, for values such as arrays of draws."""
    copied = copy(record)
    for name, value in changes.items():
        force_setattr(copied, name, value)
    return copied


def build(cls: type[RecordType], data: object, argument: str) -> RecordType:
    """Build a record from a mapping of its fields; an error names the first invalid one.

    Parameters
    ----------
    cls, data
        The class of the record, and its fields by name, as read from TOML or JSON.
    argument
        Name of the record in errors, such as "target".
    """
    try:
        record = convert(data, cls)
    except ValidationError as error:
        raise _fault(cls, data, error, argument) from None
    except UnicodeEncodeError as error:
        raise InputError(argument, error.object, "texts in UTF-8") from None
    name = getattr(record, "name", "")
    is_line = not any(character < " " or "\x7f" <= character <= "\x9f" for character in name)
    if len(name) > MOST_CHARACTERS or not is_line:
        expected = f"at most {MOST_CHARACTERS} characters without line breaks or control characters"
        raise InputError(_joined(argument, "name"), name, expected)
    return record


def is_path(name: str | Path, argument: str = "name") -> bool:
    """Return whether a name is a path, because of a slash or a suffix."""
    if isinstance(name, Path):
        return True
    if not isinstance(name, str):
        raise InputError(argument, name, "a record, a name or a path")
    return "/" in name or "\\" in name or name.endswith((".toml", ".json", ".gguf"))


@cache
def list_names(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of the records in a folder."""
    return tuple(sorted(path.stem for path in folder.iterdir() if path.suffix == ".toml"))


def find_file(name: str | Path, folder: Path, argument: str) -> Path:
    """Return the file of a shipped record, or a path as given, even if no file exists."""
    names = list_names(folder)
    if is_path(name, argument):
        return found_path(str(name), names, argument)
    found = known_name(str(name), names, argument)
    if found is None:
        near = nearest(str(name), names)
        own = f"your own TOML file, in the form of specmodel list {near.partition(',')[0]}"
        raise InputError(argument, name, f"a known name such as {near}, or the path of {own}")
    return folder / f"{found}.toml"


def load(cls: type[RecordType], name: str | Path, folder: Path, argument: str) -> RecordType:
    """Return a record by the name of a shipped file, or by the path of a TOML file."""
    path = find_file(name, folder, argument)
    if is_path(name):
        return build(cls, read_mapping(path, argument), f"{argument} {name}")
    record: RecordType = _shipped(cls, path, argument)
    return record


@cache
def _shipped(cls: type[Record], path: Path, argument: str) -> Any:
    return build(cls, toml_tables(path), argument)


def toml_text(record: Struct, table: str = "") -> str:
    """Return a record as TOML, without fields that are None and empty tables.

    With `table`, the dotted name of the resulting table, fields at their default are also left out.
    """

    def is_written(field: FieldInfo, value: object) -> bool:
        made = field.default if field.default_factory is NODEFAULT else field.default_factory()
        return value is not None and (not table or bool(value != made))

    head = ["", f"[{table}]"] if table else []
    return "\n".join(head + _toml_lines(as_table(record, is_written), f"{table}." if table else ""))


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
    import json  # shipped records do not need it

    return json.dumps(value, ensure_ascii=False)


def read_mapping(path: Path, argument: str) -> dict[str, Any]:
    """Return the top-level table of a TOML or JSON file; the suffix decides which."""
    kind = "JSON" if path.suffix == ".json" else "TOML"
    text = read_text(path, argument, kind)
    try:
        data = parsed_json(text) if kind == "JSON" else tomli.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(argument, str(path), f"well-formed {kind} ({error})") from None
    if not isinstance(data, dict):
        raise InputError(argument, str(path), f"a {kind} object at the top level")
    return data


def read_numbers(path: Path, argument: str) -> FloatArray:
    """Return the numbers of a text; white space, commas or JSON brackets separate them [-]."""
    words = read_text(path, argument, "text").translate(str.maketrans("[],", "   ")).split()
    if not words:
        raise InputError(argument, str(path), "at least one number")
    try:
        return np.array([float(word.encode("ascii")) for word in words])
    except ValueError as error:
        raise InputError(argument, str(path), f"numbers only ({error})") from None


def read_text(path: Path, argument: str, kind: str) -> str:
    """Return a small text in UTF-8; `kind` is the expected format in errors."""
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


def _fault(cls: type[Record], value: Any, error: ValidationError, argument: str) -> InputError:
    """Return the error for msgspec's error, with the name and value of the invalid field."""
    message, _, place = str(error).removesuffix("`").partition(" - at `")
    kind, name = _chosen(cls, value), argument
    for step in re.findall(r"\w+|\.\.\.", place.partition("$")[2]):
        key, inner = _part(kind, value, step)
        value = value.get(key) if isinstance(value, Mapping) else value[key]
        kind, of = _chosen(inner, value), kind
        name = f"{name}[{key}]" if isinstance(key, int) else _joined(name, key)
    if place.startswith("key"):
        kind = get_args(kind)[0]
        key = next(key for key in value if not _fits(key, kind))
        expected = f"one of the keys {', '.join(get_args(kind))}"
        return InputError(_joined(name, key), value[key], expected)
    if isinstance(cause := error.__cause__, InputError):
        return InputError(_joined(name, cause.argument), cause.value, cause.expected)
    if message.startswith("Invalid value"):  # of the field with the kind of a record
        return InputError(name, value, " or ".join(_kinds(of)))
    if get_origin(kind) is Literal:
        return InputError(name, value, ", ".join(map(str, get_args(kind))))
    if message.startswith("Object"):
        return _wrong_keys(kind, value, message, name)
    if "out of range" in message:
        return InputError(name, value, "a number that fits into 64 bits")
    _, types, bounds = message.partition(", got")[0].split("`")
    words = (_WORDS[each] for each in types.split(" | ") if each != "null")
    return InputError(name, value, " or ".join(words) + bounds)


def _wrong_keys(kind: Any, table: Mapping[str, Any], message: str, name: str) -> InputError:
    """Return the error for a table with an unknown key, or without required keys."""
    if get_origin(kind) is not None:  # a union of records
        return InputError(_joined(name, "kind"), None, " or ".join(_kinds(kind)))
    lacking = [field.name for field in fields(kind) if field.required and field.name not in table]
    if "unknown" not in message:
        if len(lacking) > 1:
            return InputError(name, table, f"the fields {', '.join(lacking)} too")
        return InputError(_joined(name, lacking[0]), None, "a value for this field")
    key = message.split("`")[1]
    known = [each for each in field_names(kind) if each not in kind.hidden]
    also = f"; missing: {', '.join(lacking)}" if len(lacking) > 1 else ""
    return InputError(_joined(name, key), table[key], f"a field like {nearest(key, known)}{also}")


def _joined(*names: object) -> str:
    return ".".join(str(name) for name in names if name != "")


def _part(kind: Any, value: Any, step: str) -> tuple[Any, Any]:
    """Return the key or index, and the type, of one step on the path to an invalid field."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return step, next(field.type for field in fields(kind) if field.name == step)
    inner = get_args(kind)
    if step == "...":  # any key
        return next(key for key in value if not _fits(value[key], inner[1])), inner[1]
    if not step.isdecimal():  # the field with the kind of a record
        return step, str
    index = int(step)
    return index, inner[0 if get_origin(kind) is list or ... in inner else index]


def _chosen(kind: Any, value: object) -> Any:
    """Return the expected type of a value; for a union, the record of the value's kind."""
    if get_origin(kind) is Annotated:
        return _chosen(get_args(kind)[0], value)
    if get_origin(kind) in (Union, UnionType):
        some = [one for one in get_args(kind) if one is not NoneType]
        own = value.get("kind") if isinstance(value, Mapping) else None
        named = [one for one in some if own and one.__struct_config__.tag == own]
        chosen = named or some
        return _chosen(chosen[0], value) if len(chosen) == 1 else kind
    return kind


def _kinds(union: Any) -> list[str]:
    """Return the names of the kinds of records in a union."""
    return sorted(one.__struct_config__.tag for one in get_args(union) if one is not NoneType)


def _fits(value: object, kind: Any) -> bool:
    try:
        convert(value, kind)
    except ValidationError:
        return False
    return True
