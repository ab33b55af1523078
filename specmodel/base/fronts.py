"""Fronts of rooms: the names that a package exports, each imported when it is first used."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def front(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package, for it to bind.

    What it exports is listed once, as checkers of types read it: by the imports of its block
    ``if TYPE_CHECKING``.
    """
    module = sys.modules[package]
    # a package that Python found in a folder or wheel has a specification, whose loader reads it
    source = module.__spec__.loader.get_source(package)  # type: ignore[union-attr]
    homes = {
        alias.name: statement.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        is_own_module = home == package
        value = (
            import_module(f"{home}.{name}") if is_own_module else getattr(import_module(home), name)
        )
        setattr(module, name, value)
        return value

    return sorted(homes), load, lambda: sorted({*vars(module), *homes})
