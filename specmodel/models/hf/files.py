"""Files that come with a model: its ``config.json``, and the record of quantisation beside it."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from specmodel.base.files import file_mode
from specmodel.base.records import read_mapping


class ConfigFile(NamedTuple):
    """A ``config.json`` that was read, and the argument that named it."""

    path: Path
    content: dict[str, Any]
    named_by: str

    @property
    def argument(self) -> str:
        """Name that an error about what it says should carry."""
        return f"{self.named_by} {self.path.name}"

    def with_origin(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an `Architecture` with its name, that of the folder, and source."""
        is_plain = self.path.name == "config.json"
        name = self.path.resolve().parent.name if is_plain else self.path.stem
        return {"schema_version": 2, "name": name, "source": str(self.path), **fields}

    def quantisation(self) -> dict[str, Any] | None:
        """Return the record of quantisation beside it, with its prefix; None if there is none."""
        name = self.path.name
        prefix = name.removesuffix("config.json")
        beside = self.path.with_name(f"{prefix if prefix != name else ''}hf_quant_config.json")
        return read_mapping(beside, self.named_by) if file_mode(beside) else None


def read_config(path: str | Path, argument: str) -> ConfigFile:
    """Return the ``config.json`` that a path or its folder names, for an argument."""
    is_folder = stat.S_ISDIR(file_mode(Path(path)))
    file = Path(path) / "config.json" if is_folder else Path(path)
    return ConfigFile(file, read_mapping(file, argument), argument)
