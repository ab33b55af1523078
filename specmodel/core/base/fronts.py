"""Fronts of rooms: the names that a package exports, each imported when it is first used.

What shows answers is imported in the same way, by those who have it: nothing here names it.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

SHOWN: dict[str, Callable[..., Any]] = {}
"""Who shows what, if anyone does: the `view` of a prediction in all forms, the `answer` of another
question, the `words` of a note, the `html` of what prints."""


def late(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module that is imported when the function is first called."""
    return lambda *values, **settings: getattr(import_module(module), name)(*values, **settings)


def front(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__``, which also knows ``__all__``, and ``__dir__`` of a package.

    What it exports is listed once, as checkers of types read it: by the imports of its block
    ``if TYPE_CHECKING``, which are read when a name is first asked for.
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
        value = (
            import_module(f"{package}.{own}")
            if is_module
            else getattr(import_module(module_of), own)
        )
        setattr(module, name, value)
        return value

    return load, lambda: sorted(_homes(package))


@cache
def _homes(package: str) -> dict[str, tuple[str, str]]:
    """Return the module that has each name that a package exports, and its name there."""
    import ast

    # a package that Python found in a folder or wheel has a specification, whose loader reads it
    source = sys.modules[package].__spec__.loader.get_source(package)  # type: ignore[union-attr]
    return {
        alias.asname or alias.name: (statement.module, alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }
