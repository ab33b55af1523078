"""What a sweep is asked for: names and values of its axes, columns, labels."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import FORMS
from specmodel.base.errors import InputError, nearest
from specmodel.base.records import Record
from specmodel.cost.assembly import NAMES, RECORDS
from specmodel.prediction.columns import WITH_INTERVAL
from specmodel.prediction.outcome import COLUMN_UNITS
from specmodel.records.drafters import Drafter

POINT_AXES = ("context_length", "batch_size", "draft_length", "verify_tokens")
SETTINGS = ("measured_draft_length", "max_draft_length")
"""Parameters with one value for the whole sweep."""

_REQUIRED = ("target", "drafter", "hardware", "batch_size", "draft_length")


def listed(name: str, value: Any) -> list[Any]:
    """Return the values of a parameter, plain numbers for those of NumPy."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    single = (str, Path, Record, Drafter)
    if isinstance(value, single) or not hasattr(value, "__iter__"):
        value = [value]
    values = [v.item() if isinstance(v, np.generic) else v for v in value]
    if not values or any(v is None for v in values):
        raise InputError(name, value, "at least one value, and none that is missing")
    if any(isinstance(v, list | tuple | np.ndarray) for v in values):
        raise InputError(name, value, "one value or one list of values")
    if name == "popularity" and not all(isinstance(v, str | Path) for v in values):
        raise InputError(name, value, "files, or popularity_exponent in its place")
    return values


def single(name: str, values: list[Any]) -> Any:
    """Return the value of a parameter that has one for the whole sweep."""
    if len(values) > 1:
        raise InputError(name, values, "one value for the whole sweep")
    return values[0]


def check_names(values: Mapping[str, Any]) -> list[str]:
    """Refuse names that are unknown or missing; return the form of acceptance."""
    known = (*NAMES, *POINT_AXES, *FORMS, *SETTINGS)
    for name, value in values.items():
        if name not in known and name.partition(".")[0] not in RECORDS:
            expected = f"a parameter such as {nearest(name, known)}"
            raise InputError(name, value[0] if len(value) == 1 else value, expected)
    for name in _REQUIRED:
        if name not in values:
            raise InputError(name, None, "at least one value")
    forms = [name for name in FORMS if name in values]
    if len(forms) != 1:
        expected = "exactly one of " + ", ".join(FORMS)
        raise InputError("acceptance", forms or None, expected)
    return forms


def columns_of(
    columns: Sequence[str] | None,
    given: Mapping[str, Any],
    *,
    interval: bool,
    has_rate: bool,
) -> tuple[str, ...]:
    """Return the columns of the result beside the labels: those wanted, and what tells points."""
    found = ["acceptance_rate"] if has_rate else []
    for name in COLUMN_UNITS:
        ends = ("", "_low", "_high") if interval and name in WITH_INTERVAL else ("",)
        found += [name + end for end in ends]
    if columns is None:
        return tuple(found)
    columns = listed("columns", columns)
    known = [*found, *ordered(dict.fromkeys(label_names(given)))]
    for name in columns:
        if name not in known:
            raise InputError("columns", name, f"columns such as {nearest(name, known)}")
    axes = {*POINT_AXES, "acceptance_rate"}
    if "verify_tokens" in given:
        axes.add("tokens_per_step")  # trees have no rate
    return tuple(name for name in found if name in axes or name in columns)


def label_names(given: Iterable[str]) -> list[str]:
    """Return the parameters that say what runs where, in their order."""
    return [name for name in given if name in NAMES or name.partition(".")[0] in RECORDS]


def labels_of(values: Sequence[Any]) -> list[Any]:
    """Return what a column calls the values of an axis: numbers of one kind, or words."""
    if all(isinstance(value, int | float) for value in values):
        with suppress(OverflowError):  # what no record takes
            numbers = np.asarray(values)
            plain = numbers if numbers.dtype.kind in "bif" else numbers.astype(float)
            return list(plain.tolist())
    return [str(v) if isinstance(v, Path) else str(getattr(v, "name", v)) for v in values]


def ordered(labels: dict[str, Any]) -> dict[str, Any]:
    """Return labels with the four records first; without an engine it is the ideal one."""
    first = ("target", "drafter", "hardware", "engine")
    return {name: labels.get(name, "ideal") for name in first} | labels
