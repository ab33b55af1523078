"""Choose the operators of torch and of engines that are timed on a device.

The tables of operators are enough for this choice: torch and engines need not be installed.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from math import ceil, prod
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from msgspec import Struct, field

from specmodel.core.base.dtypes import BYTES_PER_ELEMENT, check_dtype, kernel_dtype
from specmodel.core.base.errors import InputError, in_one_line
from specmodel.core.base.files import toml_tables

BASE = "base"
"""Name in the tables for the dtype of activations of the device under test."""

Operator = Mapping[str, Any]
"""A kernel that is timed: a row of ``operators.toml``, which describes the fields."""

TORCH = "torch"
"""The stack that is timed by default, and wherever an engine has no kernel of its own."""

_TABLES, _OF_ENGINES = (
    toml_tables(Path(__file__).parent / f"data/{name}.toml") for name in ("operators", "stacks")
)
_REASONS: dict[str, str] = _TABLES["reasons"]
STACKS: dict[str, dict[str, Any]] = _OF_ENGINES["stacks"]
"""Engines whose kernels can be timed: package, version of the wheel, and modules to import."""
_ROWS: list[Operator] = [*_OF_ENGINES["operators"], *_TABLES["operators"]]


def extent(text: str | int, sizes: Mapping[str, int]) -> int:
    """Return the number that a size in a table describes, such as k / 32 rounded up to 4.

    >>> extent("m:128*k/32:4", {"m": 5, "k": 288})
    1536
    """
    parts = re.findall(r"(\w+)(?:/(\d+))?(?::(\d+))?", str(text))
    whole = {name: int(name) for name, _, _ in parts if name.isdigit()} | dict(sizes)
    divided = [(ceil(whole[name] / int(by or 1)), int(to or 1)) for name, by, to in parts]
    return prod(ceil(size / to) * to for size, to in divided)


class Stack(Struct, frozen=True, kw_only=True):
    """A library whose kernels are timed, its version, and whether its operators are registered."""

    name: str = TORCH
    version: str = ""
    is_imported: bool = False

    @property
    def fitted_as(self) -> str:
        """Name in a profile, different from fits of the same engine on other machines."""
        return f"{self.name}-here" if self.version else self.name

    def lacks(self, row: Operator) -> str:
        """Return the reason why this version of an engine cannot run a row; empty if it can."""
        if "stack" not in row:
            return ""
        if _numbers(self.version) < _numbers(row["since"]):
            return f"needs {self.name} {row['since']}; {self.version} is installed"
        try:
            if self.is_imported:
                resolve_name(row["operator"])
        except (ImportError, AttributeError):
            return f"not in {self.name} {self.version} here"
        return ""


def find_stack(name: str, *, imports: bool = True) -> Stack:
    """Return the installed version of an engine. By default, its operators are registered."""
    if name == TORCH:
        return Stack()
    package, modules = STACKS[name]["package"], STACKS[name]["imports"]
    try:
        found = Stack(name=name, version=version(package), is_imported=imports)
        for module in modules if imports else ():
            import_module(module)
    except PackageNotFoundError:
        expected = f"an installed engine (pip install {package}), or {TORCH}"
        raise InputError("stack", name, expected) from None
    except (ImportError, OSError, RuntimeError) as error:
        expected = f"Its kernels cannot be imported: {in_one_line(str(error))}."
        raise InputError("stack", name, expected) from None
    return found


class Timed(Struct, frozen=True, kw_only=True):
    """Kernels that are timed on a device, and reasons why others are not.

    Parameters
    ----------
    rows
        Operators by kind and dtype of weights. The dtype is empty for kernels of an engine without
        quantised weights. If experts run one after another, the operator computes one expert.
    reasons
        Reasons by name of a dtype, of a kind, or of a kernel that is not timed.
    shapes
        Shapes of a single model by kind; None for the shapes of the suite.
    stack
        Library that has these kernels. Kernels that it lacks are those of torch.
    """

    rows: Mapping[tuple[str, str], Operator] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[Sequence[int]]] | None = None
    stack: Stack = field(default_factory=Stack)


NO_MORE = Timed()
"""No quantised weights, and no kernels of engines."""


def timed_on(
    device: str,
    capability: float | None = None,
    wanted: Sequence[str] = (),
    stack: Stack = NO_MORE.stack,
) -> Timed:
    """Return the kernels that can be timed with the `wanted` dtypes of weights, by default all.

    If the compute capability is unknown, all operators of the device count as available.
    Operators of an engine are preferred to those of torch. Raise an InputError if a wanted dtype
    cannot be timed.
    """
    fused = () if device == "cpu" else ("latent_attention", "recurrence")
    reasons = {kind: _REASONS[kind] for kind in fused}
    able = dict[str, dict[str, Operator]]()  # by dtype and kind
    for row in _ROWS:
        if row.get("stack", stack.name) == stack.name and _runs(row, device, capability):
            if lack := stack.lacks(row):
                reasons[row["operator"].rpartition(".")[2]] = lack
            else:
                able.setdefault(row["weight_dtype"], {}).setdefault(row.get("kind", "gemm"), row)
    rows = {(kind, ""): row for kind, row in able.get("bf16", {}).items()}
    asked = {check_dtype("weight_dtype", name): name for name in wanted or BYTES_PER_ELEMENT}
    for dtype, name in asked.items():
        alike = kernel_dtype(dtype)
        taken = dtype if dtype in able or not wanted else alike
        if taken in ("bf16", "fp32"):
            continue
        found = able.get(taken, {})
        if device == "cpu" and "gemm" in found:
            found.setdefault("experts", found["gemm"])
        rows |= {(kind, taken): row for kind, row in found.items()}
        if found and "experts" not in found:
            reasons[f"experts in {taken}"] = _REASONS["experts"]
        elif not found:
            reasons[taken] = _REASONS.get(taken) or f"timed as {alike}, which has the same kernels"
            if wanted:
                expected = f"This dtype cannot be timed here: {reasons[taken]}."
                raise InputError("weight_dtype", name, expected)
    return Timed(rows=rows, reasons=reasons, stack=stack)


def _numbers(version: str) -> list[int]:
    return [*map(int, re.findall(r"\d+", version)[:3])]


def _runs(row: Operator, device: str, capability: float | None) -> bool:
    low, high = row.get("capability", (0.0, 99.0))
    return device in row["devices"] and (capability is None or low <= capability <= high)
