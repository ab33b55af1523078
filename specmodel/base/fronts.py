"""Fronts of rooms: the names that a package exports, each imported when it is first used."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def front(
    package: str, /, **names: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package, for it to bind.

    `names` has, by module (dots as two underscores), the names taken from it with spaces between;
    an empty text exports the module itself.
    """
    modules = {module.replace("__", "."): listed.split() for module, listed in names.items()}
    homes = {name: module for module, listed in modules.items() for name in listed}
    homes |= {module.split(".")[-1]: module for module, listed in modules.items() if not listed}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        value = getattr(module, name) if name in modules[homes[name]] else module
        setattr(sys.modules[package], name, value)
        return value

    return sorted(homes), load, lambda: sorted({*vars(sys.modules[package]), *homes})
