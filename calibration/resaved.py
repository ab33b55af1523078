"""List configurations that are read to another shape after transformers has saved them again.

Usage: python calibration/resaved.py PATH... Each path is a ``config.json`` or a folder of them;
transformers must be installed. Each configuration has one line: equal, refused (also before),
unknown to transformers, not accepted by it, or the differences.
"""

import collections
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specmodel.core.base.errors import InputError
from specmodel.core.base.records import as_table
from specmodel.core.models.architecture import Architecture

LABELS = ("name", "source")
BESIDE = "hf_quant_config.json"


def configurations(paths: list[Path]) -> Iterator[Path]:
    """Yield the files of paths and folders, without records of quantisation."""
    for path in paths:
        found = sorted(path.rglob("*config.json")) if path.is_dir() else [path]
        yield from (file for file in found if not file.name.endswith(BESIDE))


def shape(path: Path) -> dict[str, Any]:
    """Return the fields of the architecture that a configuration describes."""
    fields = as_table(Architecture.from_hf_config(path))
    return {key: value for key, value in fields.items() if key not in LABELS}


def copied(path: Path, folder: Path) -> Path:
    """Return a folder with a copy of a configuration, and of the record of its quantisation."""
    folder.mkdir()
    shutil.copy(path, folder / "config.json")
    beside = path.with_name(path.name.replace("config.json", BESIDE))
    if beside.exists():
        shutil.copy(beside, folder / BESIDE)
    return folder


def verdict(path: Path, folder: Path) -> str:
    """Return what becomes of a configuration, in a line."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    original, again = copied(path, folder / "original"), copied(path, folder / "again")
    try:
        before = shape(original / "config.json")
    except InputError as error:
        return f"refused: {error}"
    try:
        config = AutoConfig.from_pretrained(
            original, local_files_only=True, trust_remote_code=False
        )
    except ValueError as error:
        return f"unknown to transformers: {str(error).splitlines()[0][:120]}"
    except StrictDataclassError as error:
        return f"not accepted by transformers: {' '.join(str(error).split())[:200]}"
    config.save_pretrained(again)
    try:
        after = shape(again / "config.json")
    except InputError as error:
        return f"differs: {error}"
    other = [f"{key} {before[key]} -> {after[key]}" for key in before if before[key] != after[key]]
    return f"differs: {'; '.join(other)}"[:400] if other else "equal"


def main(paths: list[Path]) -> None:
    """Print a line for each configuration, and how many there are of each kind."""
    counts = collections.Counter[str]()
    for path in configurations(paths):
        with tempfile.TemporaryDirectory() as folder:
            line = verdict(path, Path(folder))
        counts[line.partition(":")[0]] += 1
        name = path.parent.name if path.name == "config.json" else path.name
        print(f"{name}: {line}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
