"""Which operators multiply quantised weights on a device, by their table; no torch is needed."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field
from math import ceil, prod
from pathlib import Path

from specmodel.base.classes import dataclass
from specmodel.base.dtypes import BYTES_PER_ELEMENT, kernel_dtype
from specmodel.base.errors import InputError

BASE = "base"
"""Stands for the dtype of activations of the device under test."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A product of quantised weights: a row of ``operators.toml``, which says what fields hold."""

    weight_dtype: str
    activation_dtype: str
    devices: list[str]
    operator: str
    inputs: Mapping[str, list[str | int]]
    arguments: list[str | int]
    keywords: Mapping[str, str] = field(default_factory=dict)
    component: str = "gemm"
    stack: str = "torch"
    imports: str = "torch"
    least_torch: str = "2.10"
    least_capability: float = 0.0
    most_capability: float = 1e3
    every: int = 1

    def runs_on(self, device: str, capability: float | None, torch: str) -> bool:
        """Tell whether a device and a version of torch have this operator; those unknown do."""
        least, has = (tuple(map(int, re.findall(r"\d+", v)[:2])) for v in (self.least_torch, torch))
        is_able = capability is None or self.least_capability <= capability <= self.most_capability
        return device in self.devices and is_able and (has >= least or not has)


_FILE = Path(__file__).parent / "data/operators.toml"
_TABLES = tomllib.loads(_FILE.read_text(encoding="utf-8"))
_REASONS: dict[str, str] = _TABLES["reasons"]
OPERATORS = [Operator(**row) for row in _TABLES["operators"]]
"""All rows of the table."""


def extent(text: str | int, sizes: Mapping[str, int]) -> int:
    """Return a size of a table.

    >>> extent("m:128*k/32:4", {"m": 5, "k": 288})
    1536
    """
    if isinstance(text, int):
        return text
    parts = re.findall(r"(\w+)(?:/(\d+))?(?::(\d+))?", text)
    divided = [(ceil(sizes[name] / int(by or 1)), int(to or 1)) for name, by, to in parts]
    return prod(ceil(size / to) * to for size, to in divided)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What of quantised weights and of a model is timed on a device, and why the rest is not.

    Parameters
    ----------
    rows
        Operators by kind and dtype of weights; of experts that run one after another, that of one.
    reasons
        By dtype, or by kind and dtype: why it is not timed.
    shapes
        By kind, of the one model that is timed; None for those of the suite.
    """

    rows: Mapping[tuple[str, str], Operator] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[Sequence[int]]] | None = None


NO_MORE = Timed()
"""No quantised weights."""


def timed_on(
    device: str,
    capability: float | None = None,
    torch: str = "",
    *,
    wanted: Sequence[str] = (),
    stack: str = "torch",
) -> Timed:
    """Return what can be timed of `wanted` dtypes of weights, by default of all that ship.

    An InputError says why a dtype that is wanted is not.
    """
    rows, reasons = dict[tuple[str, str], Operator](), dict[str, str]()
    own = (row for row in OPERATORS if row.stack == stack)
    able = [row for row in own if row.runs_on(device, capability, torch)]
    for dtype in dict.fromkeys(wanted or BYTES_PER_ELEMENT):
        named = {row.weight_dtype for row in able}
        taken = dtype if dtype in named or not wanted else kernel_dtype(dtype)
        found = {row.component: row for row in reversed(able) if row.weight_dtype == taken}
        if found:
            rows["gemm", taken] = found["gemm"]
            if "experts" in found or device == "cpu":
                rows["experts", taken] = found.get("experts", found["gemm"])
            else:
                reasons[f"experts in {taken}"] = _REASONS["experts"]
        elif taken not in ("bf16", "fp32"):
            alike = kernel_dtype(taken)
            reasons[taken] = _REASONS.get(taken) or f"timed as {alike}, whose kernels read it"
            if wanted:
                raise InputError("weight_dtype", dtype, f"one to be timed here: {reasons[taken]}")
    return Timed(rows=rows, reasons=reasons)
