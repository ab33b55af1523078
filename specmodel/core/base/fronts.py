"""Define fronts of packages: exported names, each imported at its first use.

The package that shows answers registers its functions in `SHOWN`. Nothing here imports it.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

SHOWN: dict[str, Callable[..., Any]] = {}
"""Functions that show answers, if they are registered: the `view` of a prediction, the `answer` to
another question, the `words` of a note, and the `html` of printed text."""


def late(module: str, name: str) -> Callable[..., Any]:
    """Return a function whose module is imported at the first call."""
    return lambda *values, **settings: getattr(import_module(module), name)(*values, **settings)


def front(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__``, which also provides ``__all__``, and ``__dir__`` of a package.

    The exported names are the imports in the package's block ``if TYPE_CHECKING``, which type
    checkers also read. The block is parsed when a name is first needed.
    """
    module = sys.modules[package]

    def load(name: str) -> Any:
        if name == "__all__":
            return sorted(_homes(package))
        home = None if name.startswith("__") else _homes(package).get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module_of, own = home
        is_module = module_of == package
        found = import_module(f"{package}.{own}" if is_module else module_of)
        value = found if is_module else getattr(found, own)
        setattr(module, name, value)
        return value

    return load, lambda: sorted(_homes(package))


@cache
def _homes(package: str) -> dict[str, tuple[str, str]]:
    """Return, for each exported name of a package, its module and its name there."""
    import ast

    # a package in a folder or wheel has a specification, whose loader reads the source
    source = sys.modules[package].__spec__.loader.get_source(package)  # type: ignore[union-attr]
    return {
        alias.asname or alias.name: (statement.module, alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }
