"""Read a model's ``config.json``, and the file with its quantisation record."""

import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.files import file_mode
from specmodel.core.base.naming import model_name
from specmodel.core.base.records import is_path, read_mapping

_IGNORED: ContextVar[frozenset[str]] = ContextVar("ignored_config_keys", default=frozenset())


@contextmanager
def ignoring(keys: Iterable[str]) -> Iterator[None]:
    """Ignore these keys in every ``config.json`` that is read inside a `with` block."""
    token = _IGNORED.set(_IGNORED.get().union(keys))
    try:
        yield
    finally:
        _IGNORED.reset(token)


class ConfigFile(NamedTuple):
    """A ``config.json`` without ignored keys, and the argument that named it."""

    path: Path
    content: dict[str, Any]
    named_by: str
    ignored: tuple[str, ...] = ()

    @property
    def argument(self) -> str:
        """Name of the file in errors about its content."""
        return f"{self.named_by} {self.path.name}"

    def with_origin(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an `Architecture`, with its name and source from the path."""
        is_plain = self.path.name == "config.json"
        name = model_name(self.path) if is_plain else self.path.stem
        origin = {"schema_version": 2, "name": name, "source": str(self.path)}
        ignored = [*self.ignored, *(fields.get("ignored_config_keys") or ())]
        return origin | {**fields, "ignored_config_keys": ignored or None}

    def quantisation(self) -> dict[str, Any] | None:
        """Return the ``hf_quant_config.json`` with the same prefix, None if it does not exist."""
        name = self.path.name
        prefix = name.removesuffix("config.json")
        beside = self.path.with_name(f"{prefix if prefix != name else ''}hf_quant_config.json")
        return read_mapping(beside, self.named_by) if file_mode(beside) else None


def read_config(path: str | Path, argument: str, ignore_keys: Collection[str] = ()) -> ConfigFile:
    """Return a ``config.json``, given its path or folder, without the keys to ignore.

    Each of `ignore_keys` must be in the file. Keys of a surrounding `ignoring` may be missing.
    """
    is_folder = stat.S_ISDIR(file_mode(Path(path)))
    file = Path(path) / "config.json" if is_folder else Path(path)
    if is_folder and not file_mode(file):
        raise InputError(argument, str(path), "a folder with a config.json")
    content = read_mapping(file, argument)
    ignore_keys = [ignore_keys] if isinstance(ignore_keys, str) else ignore_keys
    asked = _IGNORED.get().union(ignore_keys)
    present = _keys_within(content)
    for key in ignore_keys:
        if key not in present:
            raise _missing("ignore_keys", key, present, file)
    return ConfigFile(file, _without(content, asked), argument, tuple(sorted(asked & present)))


def check_ignored(argument: str, keys: Iterable[str], models: Iterable[tuple[str, str]]) -> None:
    """Refuse a key to ignore that no ``config.json`` contains. `models`: argument and path."""
    files = [(n, p) for n, p in models if is_path(p) and not p.endswith((".toml", ".gguf"))]
    configs = [read_config(path, name) for name, path in files]
    present = set().union(*(_keys_within(config.content) for config in configs))
    for key in keys:
        if not configs:
            raise InputError(argument, key, "No config.json is read, so this has no effect.")
        if key not in present:
            raise _missing(argument, key, present, configs[0].path)


def _missing(argument: str, key: str, present: set[str], file: Path) -> InputError:
    return InputError(argument, key, f"a key of {file.name} such as {nearest(key, present)}")


def _keys_within(value: Any) -> set[str]:
    """Return the keys of an object and of the objects in it."""
    if isinstance(value, dict):
        return set(value).union(*map(_keys_within, value.values()))
    return set().union(*map(_keys_within, value)) if isinstance(value, list) else set()


def _without(value: Any, keys: Collection[str]) -> Any:
    """Return an object without some keys, at any depth."""
    if isinstance(value, list):
        return [_without(part, keys) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: _without(part, keys) for key, part in value.items() if key not in keys}
