"""Which operators of torch and of engines are timed on a device, by their tables.

Neither is needed to tell.
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
"""Stands for the dtype of activations of the device under test."""

Operator = Mapping[str, Any]
"""A kernel that is timed: a row of ``operators.toml``, which says what its fields hold."""

TORCH = "torch"
"""The stack whose operators are timed where no engine's are asked for, or where it has none."""

_TABLES, _OF_ENGINES = (
    toml_tables(Path(__file__).parent / f"data/{name}.toml") for name in ("operators", "stacks")
)
_REASONS: dict[str, str] = _TABLES["reasons"]
STACKS: dict[str, dict[str, Any]] = _OF_ENGINES["stacks"]
"""Engines whose own kernels can be timed: their package, the wheel read, and what is imported."""
_ROWS: list[Operator] = [*_OF_ENGINES["operators"], *_TABLES["operators"]]


def extent(text: str | int, sizes: Mapping[str, int]) -> int:
    """Return a size of a table.

    >>> extent("m:128*k/32:4", {"m": 5, "k": 288})
    1536
    """
    parts = re.findall(r"(\w+)(?:/(\d+))?(?::(\d+))?", str(text))
    whole = {name: int(name) for name, _, _ in parts if name.isdigit()} | dict(sizes)
    divided = [(ceil(whole[name] / int(by or 1)), int(to or 1)) for name, by, to in parts]
    return prod(ceil(size / to) * to for size, to in divided)


class Stack(Struct, frozen=True, kw_only=True):
    """Whose kernels are timed, in which version, and whether its operators are registered."""

    name: str = TORCH
    version: str = ""
    is_imported: bool = False

    @property
    def fitted_as(self) -> str:
        """Name in a profile, which may have fits of the engine to other kinds from elsewhere."""
        return f"{self.name}-here" if self.version else self.name

    def lacks(self, row: Operator) -> str:
        """Return why this version of an engine cannot run a row; "" if it can."""
        if "stack" not in row:
            return ""
        if _numbers(self.version) < _numbers(row["since"]):
            return f"{self.name} has it since {row['since']}, here is {self.version}"
        try:
            if self.is_imported:
                resolve_name(row["operator"])
        except (ImportError, AttributeError):
            return f"not in {self.name} {self.version} here"
        return ""


def find_stack(name: str, *, imports: bool = True) -> Stack:
    """Return an engine as it is installed here, by default with its operators registered."""
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
        expected = f"kernels that can be imported ({in_one_line(str(error))})"
        raise InputError("stack", name, expected) from None
    return found


class Timed(Struct, frozen=True, kw_only=True):
    """Which kernels are timed on a device, and why others are not.

    Parameters
    ----------
    rows
        Operators by kind and dtype of weights, "" for an engine's own that are not quantised; of
        experts that run one after another, that of one.
    reasons
        By dtype, or by kind and dtype: why it is not timed.
    shapes
        By kind, of the one model that is timed; None for those of the suite.
    stack
        Whose kernels these are, where it has them; else torch's.
    """

    rows: Mapping[tuple[str, str], Operator] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[Sequence[int]]] | None = None
    stack: Stack = field(default_factory=Stack)


NO_MORE = Timed()
"""No quantised weights."""


def timed_on(
    device: str,
    capability: float | None = None,
    torch: str = "",
    wanted: Sequence[str] = (),
    stack: Stack = NO_MORE.stack,
) -> Timed:
    """Return what can be timed of `wanted` dtypes of weights, by default of all that ship.

    Unknown capabilities and versions have all. An engine's own operators go before torch's. An
    InputError says why a dtype that is wanted is not timed.
    """
    fused = ("latent_attention", "recurrence")
    reasons = {} if device == "cpu" else {kind: _REASONS[kind] for kind in fused}
    able = [
        row
        for row in _ROWS
        if row.get("stack", stack.name) == stack.name and _runs(row, device, capability, torch)
    ]
    reasons |= {
        row["operator"].rpartition(".")[2]: why for row in able if (why := stack.lacks(row))
    }
    able = [row for row in able if not stack.lacks(row)]
    rows = {(_kind(row), ""): row for row in able[::-1] if row["weight_dtype"] == "bf16"}
    asked = {check_dtype("weight_dtype", name): name for name in wanted or BYTES_PER_ELEMENT}
    for dtype, name in asked.items():
        named, alike = {row["weight_dtype"] for row in able}, kernel_dtype(dtype)
        taken = dtype if dtype in named or not wanted else alike
        if taken in ("bf16", "fp32"):
            continue
        found = {_kind(row): row for row in able[::-1] if row["weight_dtype"] == taken}
        if device == "cpu" and "gemm" in found:
            found.setdefault("experts", found["gemm"])
        rows |= {(kind, taken): row for kind, row in found.items()}
        if found and "experts" not in found:
            reasons[f"experts in {taken}"] = _REASONS["experts"]
        elif not found:
            reasons[taken] = _REASONS.get(taken) or f"timed as {alike}, whose kernels read it"
            if wanted:
                expected = f"one that can be timed here ({reasons[taken]})"
                raise InputError("weight_dtype", name, expected)
    return Timed(rows=rows, reasons=reasons, stack=stack)


def _kind(row: Operator) -> str:
    return str(row.get("kind", "gemm"))


def _numbers(version: str) -> list[int]:
    return [*map(int, re.findall(r"\d+", version)[:3])]


def _runs(row: Operator, device: str, capability: float | None, torch: str) -> bool:
    low, high = row.get("capability", (0.0, 99.0))
    least, has = _numbers(row.get("torch", "")), _numbers(torch)
    is_able = capability is None or low <= capability <= high
    return device in row["devices"] and is_able and (has >= least or not has)
