"""The structure of the package: rooms, imports, exported names, docstrings, records."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import get_args, is_typeddict

import pytest
from msgspec import structs
from msgspec.inspect import Field, FloatType, IntType, Type, type_info
from rows import each_listed, each_row

import specmodel
from specmodel import Architecture, EngineProfile, HardwareProfile
from specmodel.core.base import Record
from specmodel.core.base.units import LARGEST_RATE
from specmodel.core.layers.kinds import FITTED_KINDS
from specmodel.simulate.policies.cascade import CascadeSettings
from specmodel.simulate.policies.sglang import Slot
from specmodel.simulate.traces import CopyProcess

PACKAGE = Path(specmodel.__file__).parent
ROOMS = ("base", "algebra", "layers", "models", "drafters", "machines", "cost", "prediction")
ROOMS += ("plan", "simulate", "measure", "fit", "show", "cli")
"""Rooms from the ground up: a module imports from its own room or from rooms before it."""
LEVELS = {room: level for level, room in enumerate(ROOMS)}
UNITS = "[-] [s] [B] [FLOP] [B/s] [FLOP/s] [FLOP/B] [token] [token/s] [request] [request/s]"
NUMBER = re.compile(r"\b(Numeric|ArrayLike|FloatArray|float|int)\b")
"""Annotations of values that have a unit."""
_PLACES = {path: path.relative_to(PACKAGE.parent) for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {
    ".".join(place.with_suffix("").parts).removesuffix(".__init__"): path
    for path, place in _PLACES.items()
}
FOLDERS = ("core", "calibrate")
"""Folders that contain several rooms; each other folder is one room."""
TOP = {"specmodel", "specmodel.__main__", *(f"specmodel.{folder}" for folder in FOLDERS)}
"""Modules that belong to no room."""
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


@cache
def imported_modules(name):
    """Return the modules of the package that a module imports anywhere."""
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "specmodel":
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & set(MODULES) or {str(node.module)}
    return frozenset(found - {name})


def names_of(module):
    """Return the names of a module; none if it needs an extra that is not installed."""
    try:
        return vars(importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "uvicorn", "markupsafe", "matplotlib", "jinja2"):
            raise
        return {}


PUBLIC = [
    (name, attribute, value)
    for name in MODULES
    if name != "specmodel"
    for attribute, value in names_of(name).items()
    if not attribute.startswith("_") and getattr(value, "__module__", "") == name
    if inspect.isfunction(value) or inspect.isclass(value)
]


def room(name):
    """Return the room of a module: its folder, or the folder below `core` or `calibrate`."""
    folder, *rest = name.split(".")[1:]
    return rest[0] if folder in FOLDERS else folder


def test_every_room_has_a_floor_and_its_tests():
    top = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert top == {"core", "plan", "simulate", "calibrate", "show", "cli"}
    assert {room(name) for name in set(MODULES) - TOP} == set(LEVELS)
    rooms = set(LEVELS)
    folders = {path.name for path in Path(__file__).parent.iterdir() if path.is_dir()}
    assert rooms <= folders | {"base"}, "what base does is seen in every other room"


def test_imports_point_down():
    for name in set(MODULES) - TOP:
        others = imported_modules(name) - {"specmodel"}
        assert not [each for each in others if LEVELS[room(each)] > LEVELS[room(name)]], name


def test_few_modules_serve_a_single_other():
    """A module with one importer should be part of it; commands and packages do not count."""
    importers = defaultdict(list)
    for name in set(MODULES) - TOP:
        for other in imported_modules(name) - {"specmodel"}:
            importers[other].append(name)
    families = (PACKAGE / "core/models/data/families.toml").read_text(encoding="utf-8")
    for stem in set(re.findall(r'"(\w+)\.\w+"', families)):  # a row for each
        importers[f"specmodel.core.models.hf.{stem}"] += ["rows"] * 2
    pairs = [(other, names[0]) for other, names in importers.items() if len(names) == 1]
    fronts = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    single = [pair for pair in pairs if "cli" not in map(room, pair) and pair[1] not in fronts]
    assert 0 < len(single) <= 18, sorted(single)


def test_no_import_goes_round():
    """Not even for types only or inside functions, so modules can be read in order."""
    left = {name: set(imported_modules(name)) - TOP for name in MODULES if name not in TOP}
    while ready := {name for name, others in left.items() if not others & set(left)}:
        left = {name: others for name, others in left.items() if name not in ready}
    circle = {name: sorted(others & set(left)) for name, others in left.items()}
    assert not circle, f"a circle among these, or above one: {circle}"


def is_kind_of_layer(value):
    """Return whether a value is a kind of layer, a base of kinds, or a union of them."""
    if inspect.isclass(value):
        return issubclass(value, Record) and value.__module__.startswith("specmodel.core.layers.")
    return any(map(is_kind_of_layer, get_args(value)))


LAYERS = [
    (attribute, value)
    for name in MODULES
    if name.startswith("specmodel.core.layers.")
    for attribute, value in vars(importlib.import_module(name)).items()
    if is_kind_of_layer(value)
]
"""Kinds of layers and their bases, by the names that modules give them."""


def switches_on_layers(tree):
    """Return the lines that ask for the kind of a layer, by class or by name."""
    names = {name for name, _ in LAYERS}
    kinds = {layer.__struct_config__.tag for _, layer in LAYERS if isinstance(layer, type)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names if alias.name in names}
    for node in tree.body:
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
            is_union = not names.isdisjoint(_names_in(node.value))
            names |= set().union(*map(_names_in, node.targets)) if is_union else set()
    found = []
    for node in ast.walk(tree):
        told: list[ast.AST] = []
        if isinstance(node, ast.Call) and _names_in(node.func) & {"isinstance", "issubclass"}:
            told = list(node.args[1:])
        elif isinstance(node, ast.Compare):
            told = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            told = [node.subject, *(case.pattern for case in node.cases)]
        inner = [each for one in told for each in ast.walk(one)]
        texts = {each.value for each in inner if isinstance(each, ast.Constant)}
        attributes = {each.attr for each in inner if isinstance(each, ast.Attribute)}
        by_name = "kind" in attributes and texts & kinds
        if by_name or any(names & _names_in(one) for one in told):
            found.append(node.lineno)
    return found


def _names_in(tree):
    """Return the names of variables and attributes."""
    nodes = list(ast.walk(tree))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def test_no_room_but_layers_asks_of_which_kind_a_layer_is():
    """Layers have methods for this, so a new kind only needs its file and a row of a table."""
    known = {name for name, _ in LAYERS}
    assert {"GroupedAttention", "RoutedExperts", "RecurrentMixer", "TokenMixer"} < known
    others = [name for name in set(MODULES) - TOP if room(name) != "layers"]
    found = {name: lines for name in others if (lines := switches_on_layers(TREES[name]))}
    assert found == {}


@each_listed
def test_switches_on_layers_are_seen(source):
    assert switches_on_layers(ast.parse(source))
    plain = "GroupedAttention(num_heads=8).kind.replace('_', ' '); one.kind == other.kind"
    assert not switches_on_layers(ast.parse(plain))


@each_listed
def test_import_weight(statement, absent):
    absent_modules = absent.split()
    # what numpy brings is not ours: before 2.0, numpy.random
    first = "" if "numpy" in absent_modules else "import numpy; "
    count = f"[m for m in {absent_modules} if m in sys.modules and m not in before]"
    code = f"{first}import sys; before = {{*sys.modules}}; {statement}; print({count})"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"


FRONTS = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")


def typed_names(name):
    """Return the names that type checkers see in a package."""
    blocks = [node for node in TREES[name].body if isinstance(node, ast.If)]
    imports = [one for block in blocks for one in block.body if isinstance(one, ast.ImportFrom)]
    return {str(alias.asname) for one in imports for alias in one.names}


@each_row("name", FRONTS)
def test_exported_names_are_there_and_no_others(name):
    package = importlib.import_module(name)
    modules = {path.stem for path in MODULES[name].parent.iterdir()} - {"__init__"}
    for exported in getattr(package, "__all__", []):
        value = getattr(package, exported)
        assert exported in dir(package)
        is_module = inspect.ismodule(value)
        assert is_module or exported not in modules, "a module of that name would take its place"
    if "front" in vars(package):
        assert typed_names(name) == set(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'predictt'"):
        package.predictt  # noqa: B018 - reading it is the test


WITHIN = ("specmodel", "specmodel.calibrate.fit.measured")
"""Packages that are not rooms."""


def exported():
    """Return the functions and classes that rooms export, including those of exported modules."""
    packages = [importlib.import_module(name) for name in FRONTS if name not in WITHIN]
    values = [getattr(p, name) for p in packages for name in getattr(p, "__all__", [])]
    modules = {value.__name__ for value in values if inspect.ismodule(value)}
    of_modules = [value for module, _, value in PUBLIC if module in modules]
    is_code = [each for each in values if inspect.isfunction(each) or inspect.isclass(each)]
    return {*is_code, *of_modules}


def test_docstrings_of_what_is_exported_name_every_argument_and_unit():
    """Exported functions and records have a Parameters section; a line is enough for all others."""
    at_fronts = exported()
    for module, name, value in PUBLIC:
        missing = {*_missing_from_docstring(value)}
        missing &= missing if value in at_fronts else {"no docstring"}
        assert not missing, f"{module}.{name}"


def test_functions_at_fronts_spell_their_arguments_out():
    """Keyword arguments are a TypedDict, whose names `help`, completion and type checkers see."""
    last_word = re.compile(r"(\w+)\W*$")  # of Unpack[Name], as text or as an object
    handing_on = {specmodel.show.view, specmodel.show.answer}
    kinds = {
        getattr(inspect.getmodule(value), last_word.search(str(each.annotation))[1])
        for value in filter(inspect.isfunction, exported() - handing_on)
        for each in inspect.signature(value).parameters.values()
        if each.kind is each.VAR_KEYWORD
    }
    assert len(kinds) > 9
    assert all(map(is_typeddict, kinds)), kinds
    modules = {inspect.getmodule(kind) for kind in kinds}
    records = [each for m in modules for each in vars(m).values() if is_typeddict(each)]
    words = set(re.findall(r"\w+", " ".join(str(each.__doc__) for each in records)))
    assert {name for kind in kinds for name in kind.__annotations__} <= words


def _fields(value):
    """Return the fields of a record with their declared types; none for other classes."""
    declared = [vars(each).get("__annotations__", {}) for each in value.__mro__]
    kinds = {name: str(kind) for each in declared for name, kind in each.items()}
    names = {*getattr(value, "__struct_fields__", ())} - {*FITTED_KINDS}  # which a table makes
    return {name: kind for name, kind in kinds.items() if name in names}


def records_below(base):
    """Yield all classes of records that derive from one."""
    for cls in base.__subclasses__():
        yield cls
        yield from records_below(cls)


def test_records_are_frozen_and_of_named_fields():
    found = {cls for cls in records_below(Record) if cls.__module__.startswith("specmodel.")}
    assert len(found) > 30
    for cls in found:
        assert cls.__struct_config__.frozen
        parameters = inspect.signature(cls).parameters.values()
        assert all(one.kind is one.KEYWORD_ONLY for one in parameters)


def _missing_from_docstring(value):
    """Yield what is missing in the docstring of a function or class."""
    doc = inspect.getdoc(value) or ""
    if not doc:
        yield "no docstring"
    if inspect.isclass(value):
        annotations = _fields(value)
    else:
        parameters = inspect.signature(value).parameters.values()
        annotations = {p.name: str(p.annotation) for p in parameters}
    described = _entries(doc, "Parameters") if annotations else {}
    for argument in annotations.keys() - described.keys():
        yield f"{argument} is not described"
    for argument, text in described.items():
        is_number = NUMBER.search(annotations.get(argument, ""))
        if is_number and not any(unit in text for unit in UNITS.split()):
            yield f"unit of {argument}"
    returned = inspect.signature(value).return_annotation if inspect.isfunction(value) else ""
    returns = doc.partition("Returns\n-------\n")[2]
    if "FloatArray" in str(returned) and not any(unit in returns for unit in UNITS.split()):
        yield "unit of what it returns"


def _entries(doc, section):
    """Return the description of each name in a numpydoc section; several names may share one."""
    body = doc.partition(f"{section}\n{'-' * len(section)}\n")[2]
    body = re.split(r"\n\w[\w ]*\n-+\n", body)[0]
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in body.splitlines():
        if line and not line.startswith(" "):
            names = [part.strip(" *") for part in line.split(",")]
            entries |= dict.fromkeys(names, "")
        else:
            entries |= {entry: entries[entry] + line for entry in names}
    return entries


def numbers(kind):
    """Yield the types of numbers within a type."""
    if isinstance(kind, IntType | FloatType):
        yield kind
    parts = structs.asdict(kind).values() if isinstance(kind, Type | Field) else kind
    for part in parts if isinstance(kind, Type | Field | tuple) else ():
        yield from numbers(part)


@each_row("cls", [Architecture, HardwareProfile, EngineProfile, Slot, CascadeSettings, CopyProcess])
def test_no_number_of_a_file_may_be_beyond_all_or_next_to_zero_where_it_divides(cls):
    found = [*numbers(type_info(cls))]
    assert found
    assert all(one.gt is None and one.ge < (one.le or one.lt) <= LARGEST_RATE for one in found)
