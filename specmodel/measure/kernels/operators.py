"""Which operators multiply quantised weights on a device, by their table; no torch is needed."""

import re
from collections.abc import Mapping, Sequence
from math import ceil, prod
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from specmodel.base.dtypes import BYTES_PER_ELEMENT, kernel_dtype
from specmodel.base.errors import InputError
from specmodel.base.files import toml_tables

BASE = "base"
"""Stands for the dtype of activations of the device under test."""

Operator = Mapping[str, Any]
"""A product of quantised weights: a row of ``operators.toml``, which says what its fields hold."""

_TABLES = toml_tables(Path(__file__).parent / "data/operators.toml")
_ROWS: list[Operator] = _TABLES["operators"]
_REASONS: dict[str, str] = _TABLES["reasons"]


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


class Timed(Struct, frozen=True, kw_only=True):
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
    device: str, capability: float | None = None, torch: str = "", wanted: Sequence[str] = ()
) -> Timed:
    """Return what can be timed of `wanted` dtypes of weights, by default of all that ship.

    Unknown capabilities and versions have all. An InputError says why a dtype that is wanted is
    not timed.
    """
    rows, fused = dict[tuple[str, str], Operator](), ("latent_attention", "recurrence")
    reasons = {} if device == "cpu" else {kind: _REASONS[kind] for kind in fused}
    able = [row for row in _ROWS if _runs(row, device, capability, torch)]
    for dtype in dict.fromkeys(wanted or BYTES_PER_ELEMENT):
        named, alike = {row["weight_dtype"] for row in able}, kernel_dtype(dtype)
        taken = dtype if dtype in named or not wanted else alike
        found = {row.get("kind", "gemm"): row for row in able[::-1] if row["weight_dtype"] == taken}
        if found and device == "cpu":
            found.setdefault("experts", found["gemm"])
        rows |= {(kind, taken): row for kind, row in found.items()}
        if len(found) == 1:
            reasons[f"experts in {taken}"] = _REASONS["experts"]
        elif not found and taken not in ("bf16", "fp32"):
            reasons[taken] = _REASONS.get(taken) or f"timed as {alike}, whose kernels read it"
            if wanted:
                raise InputError(
                    "weight_dtype", dtype, f"one that can be timed here ({reasons[taken]})"
                )
    return Timed(rows=rows, reasons=reasons)


def _runs(row: Operator, device: str, capability: float | None, torch: str) -> bool:
    low, high = row.get("capability", (0.0, 99.0))
    least, has = ([*map(int, re.findall(r"\d+", v)[:2])] for v in (row.get("torch", ""), torch))
    is_able = capability is None or low <= capability <= high
    return device in row["devices"] and is_able and (has >= least or not has)
