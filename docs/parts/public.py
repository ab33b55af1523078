"""List the public names of a package, and check that the reference describes all of them."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import object_description

import specmodel

PACKAGE = Path(specmodel.__file__).parent
LONGEST_DEFAULT = 60  # letters
LOG = logging.getLogger(__name__)


def fronts() -> list[str]:
    """Return the packages that export names."""
    folders = [path.parent.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("__init__.py")]
    names = sorted(".".join(folder.parts) for folder in folders)
    return [name for name in names if getattr(import_module(name), "__all__", [])]


def exported() -> dict[str, Any]:
    """Return the public names of the package and of its rooms, with their values."""
    return {
        f"{front}.{name}": getattr(import_module(front), name)
        for front in fronts()
        for name in import_module(front).__all__
    }


def described() -> dict[str, str]:
    """Return each public name with the name under which the reference describes it.

    This is the name in a room, or the name in the module that defines it.
    """
    values = exported()
    rooms = {id(value): name for name, value in values.items() if name.count(".") > 1}
    rooms |= {id(value): value.__name__ for value in values.values() if inspect.ismodule(value)}
    return {
        name: rooms.get(id(value)) or f"{value.__module__}.{value.__qualname__}"
        for name, value in values.items()
    }


def summary(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


class Exported(SphinxDirective):
    """Directive that lists the exports of a package: for each, a link and its first sentence."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        front = self.arguments[0]
        known, values = described(), exported()
        lines = ["| name | what it is |", "|---|---|"]
        for name in import_module(front).__all__:
            path = f"{front}.{name}"
            told = summary(values[path]).replace("|", "\\|")
            lines += [f"| {{py:obj}}`{name} <{known[path]}>` | {told} |"]
        parsed = nodes.Element()
        self.state.nested_parse(StringList(lines, front), 0, parsed)
        return parsed.children


def without_long_defaults(
    app: Sphinx, what: str, name: str, value: Any, options: Any, given: str | None, back: str | None
) -> tuple[str | None, str | None]:
    """Replace defaults of a record that are longer than a line by three dots."""
    for each in getattr(value, "__struct_defaults__", ()):
        default = object_description(each)
        if given and len(default) > LONGEST_DEFAULT:
            given = given.replace(default, "...")
    return given, back


def check(app: Sphinx, error: Exception | None) -> None:
    """Warn of public names that no page describes."""
    if error or app.builder.format != "html":
        return
    objects = set(app.env.domains["py"].objects)
    for name, place in described().items():
        if place not in objects:
            LOG.warning("no page of the reference describes %s", name)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("exported", Exported)
    app.connect("autodoc-process-signature", without_long_defaults)
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
