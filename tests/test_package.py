"""The shape of the package: layers, import weight, exported names, docstrings, small files."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import specmodel
from specmodel.records import Record

PACKAGE = Path(specmodel.__file__).parent
LEVELS = {
    "errors": 0, "units": 1, "ranges": 1,
    "records": 2, "speculation": 2, "experts": 2, "roofline": 2, "fitting.result": 2,
    "hf_families": 2, "hf_quantization": 3, "hf_config": 4,
    "kernels": 3, "tables": 2, "engine": 3, "acceptance": 3, "moesd": 3, "popularity": 3,
    "hardware": 4, "scrapes": 4,
    "architecture": 5, "datasets": 5, "fallbacks": 2, "published": 9,
    "routing": 3, "parallel": 6, "drafters": 6, "work": 6,
    "blocks": 7, "deployment": 7, "passes": 7,
    "attention": 8, "assembly": 7,
    "forward": 9,
    "latency": 10,
    "measurements": 8, "fitting.kernels": 11, "fitting.typical": 12, "fitting.engine": 11,
    "intervals": 11, "outcome": 12, "memory": 11, "points": 11,
    "prediction": 13,
    "fitting.moesd": 12, "fitting": 13,
    "profiles": 5, "validation": 12,
    "measure": 1, "measure.suite": 2, "measure.rows": 6, "measure.device": 3, "measure.timing": 1,
    "measure.layers": 1, "measure.workloads": 4, "measure.bench": 5, "measure.session": 8,
    "measure.results": 8, "measure.collectives": 7, "measure.calibration": 12,
    "measure.decoder": 6, "measure.speculation": 7,
    "text": 1, "calibration_report": 14, "report": 14, "catalog": 14, "options": 14,
    "traces.record": 3, "traces.files": 6, "traces.ngram": 4, "traces.tokens": 7,
    "traces.statistics": 4, "traces.synthetic": 5, "traces": 8,
    "policies.base": 1, "policies.adaptive": 2, "policies.cascade": 2, "policies": 3,
    "simulation.totals": 2, "simulation.workers": 1, "simulation.seeds": 1, "simulation.summary": 2,
    "simulation.chance": 9, "simulation.sources": 9, "simulation.times": 11,
    "simulation.lanes": 12, "simulation.walk": 12, "simulation.cascade_lanes": 13,
    "simulation.foresight": 12, "simulation.choices": 13, "simulation.makers": 14,
    "simulation.block": 15, "simulation.run": 16, "simulation.timeline": 17,
    "simulation.suite": 17, "simulation.claims": 18, "simulation": 19,
    "answers.schedule": 3, "answers.fragments": 4, "answers.curves": 14, "answers.explain": 14,
    "answers.components": 14,
    "answers": 15, "answers_report": 16, "answers_options": 15, "schedule_options": 16,
    "schedule_report": 17,
    "sweeps.axes": 13, "sweeps.plan": 14, "sweeps.columns": 15, "sweeps.run": 15,
    "sweeps.cluster": 16, "sweeps.encodings": 16, "sweeps.files": 17, "sweeps": 18,
    "plots.frames": 13, "plots.style": 1, "plots.curves": 14, "plots.maps": 14,
    "plots.passes": 14, "plots.effects": 14, "plots.measured": 14, "plots.replays": 14,
    "plots.kinds": 15, "plots": 16, "figures": 17, "unions": 3,
    "traces_report": 9, "replay_options": 20, "simulation_report": 21,
    "commands": 1, "commands.settings": 7, "commands.calibration": 18, "commands.predict": 16,
    "commands.acceptance": 15, "commands.trace": 15, "commands.simulate": 22,
    "commands.sweep": 19, "commands.answers": 17, "commands.schedule": 18,
    "sensitivity.indices": 2, "sensitivity.inputs": 14, "sensitivity.evaluation": 15,
    "sensitivity.uncertainty": 15, "sensitivity.analyses": 16, "sensitivity": 17,
    "explorer.view": 17, "explorer.picture": 18, "explorer.widget": 19, "explorer": 20,
    "sensitivity_options": 18, "sensitivity_report": 19,
    "commands.sensitivity": 22, "commands.plot": 18,
    "cli": 23,
}  # fmt: skip
UNITS = [
    "[-]", "[s]", "[B]", "[FLOP]", "[B/s]", "[FLOP/s]", "[FLOP/B]",
    "[token]", "[token/s]", "[request]", "[request/s]",
]  # fmt: skip
NEED_TORCH = {
    "measure.timing", "measure.layers", "measure.workloads", "measure.decoder",
    "measure.speculation",
}  # fmt: skip
"""Modules that import torch at once; they are imported only once it is known to be there."""
ABSENT = set() if importlib.util.find_spec("torch") else NEED_TORCH
PUBLIC = [
    (module, name, value)
    for module in set(LEVELS) - {"cli"} - ABSENT
    for name, value in vars(importlib.import_module(f"specmodel.{module}")).items()
    if not name.startswith("_") and getattr(value, "__module__", "") == f"specmodel.{module}"
    if inspect.isfunction(value) or inspect.isclass(value)
]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> set[str]:
    """Names of the modules of the package that a file imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        source = getattr(node, "module", None) or ""
        if isinstance(node, ast.ImportFrom) and source.split(".")[0] == "specmodel":
            home = source.removeprefix("specmodel").removeprefix(".")
            inner = {f"{home}.{alias.name}".removeprefix(".") for alias in node.names}
            names |= inner & set(LEVELS) or {home}
    return names & set(LEVELS)


PATHS = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def test_every_module_has_a_level() -> None:
    assert set(PATHS) - {""} == set(LEVELS)


@pytest.mark.parametrize("module", LEVELS)
def test_imports_point_down(module: str) -> None:
    for other in imported_modules(PATHS[module]):
        assert LEVELS[other] < LEVELS[module], f"{module} imports {other}"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import specmodel", "numpy pydantic pandas scipy matplotlib torch"),
        ("import specmodel.prediction, specmodel.report", "pandas scipy matplotlib torch click"),
        ("import specmodel.cli", "numpy pydantic pandas scipy matplotlib torch"),
    ],
)
def test_import_weight(statement: str, absent: str) -> None:
    code = f"{statement}; import sys; print([m for m in {absent.split()} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_exported_names_are_there_and_no_others() -> None:
    assert sorted(specmodel._HOME) == sorted(specmodel.__all__)
    for name in specmodel.__all__:
        assert getattr(specmodel, name) is not None
        assert name in dir(specmodel)
    for name in specmodel._MODULES:
        assert getattr(specmodel, name).__name__ == f"specmodel.{name}"
    with pytest.raises(AttributeError, match="no attribute 'predictt'"):
        specmodel.predictt  # noqa: B018 - reading it is the test


@pytest.mark.parametrize(("module", "name", "value"), PUBLIC, ids=lambda v: str(v)[:40])
def test_docstrings_name_every_argument_and_unit(module: str, name: str, value: object) -> None:
    doc = inspect.getdoc(value) or ""
    assert doc, f"{module}.{name} has no docstring"
    if inspect.isclass(value):
        is_record = dataclasses.is_dataclass(value) or (issubclass(value, Record))
        if not is_record or value is Record or "Parameters" not in doc:
            return
        annotations = {k: str(v) for k, v in value.__annotations__.items() if k != "model_config"}
    else:
        parameters = inspect.signature(value).parameters.values()
        annotations = {p.name: str(p.annotation) for p in parameters}
        if len(doc.splitlines()) == 1:
            return
    described = _entries(doc, "Parameters") if annotations else {}
    for argument, annotation in annotations.items():
        assert argument in described, f"{module}.{name}: {argument} is not described"
        if re.search(r"\b(Numeric|ArrayLike|FloatArray|float|int)\b", annotation):
            text = described[argument]
            assert any(unit in text for unit in UNITS), f"{module}.{name}: unit of {argument}"
    if inspect.isfunction(value) and "FloatArray" in str(
        inspect.signature(value).return_annotation
    ):
        returns = doc.partition("Returns\n-------\n")[2]
        assert any(unit in returns for unit in UNITS), f"{module}.{name}: unit of what it returns"


def _entries(doc: str, section: str) -> dict[str, str]:
    """Description of each name in a numpydoc section; several names may share one."""
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
