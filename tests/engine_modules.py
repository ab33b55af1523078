"""Modules of engines that read files, used without the rest of the engine."""

import importlib.util
import os
import re
import sys
import types
import zipfile
from pathlib import Path

import pytest


def own_source(engine, path):
    """Return the source of a module of an engine, by its path among the engine's files.

    The file comes from the installed engine, or from its wheel. The environment variable
    SPECMODEL_ENGINE_WHEELS names the folder of wheels, such as that of ``pip download --no-deps
    --dest FOLDER sglang vllm``.
    """
    folder = os.environ.get("SPECMODEL_ENGINE_WHEELS")
    wheels = sorted(Path(folder).glob(f"{engine}-*.whl")) if folder else []
    found = importlib.util.find_spec(engine)
    if wheels:
        return zipfile.ZipFile(wheels[-1]).read(path).decode()
    if found and found.origin:
        return (Path(found.origin).parents[1] / path).read_text(encoding="utf-8")
    # an engine takes gigabytes and a GPU's libraries; a newcomer's tests do without
    pytest.skip(f"needs {engine} or its wheel")


def own_module(engine, path):
    """Return a module of an engine, executed without its imports from the rest of the engine."""
    text = own_source(engine, path)
    # what the module takes from the rest of the engine plays no part in reading a file
    text = re.sub(r"^from sglang.*? import (\(.*?\)|[^\n]*)", "", text, flags=re.M | re.S)
    module = types.ModuleType(f"{engine}_{Path(path).stem}")
    vars(module)["log_info_on_rank0"] = lambda *_: None
    sys.modules[module.__name__] = module  # where annotations of its classes are looked up
    exec(compile(text, path, "exec"), vars(module))
    return module
