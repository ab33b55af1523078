"""What a sweep is given: lists by the name of a parameter, labels and columns of its rows."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import FORMS
from specmodel.base.errors import InputError, nearest
from specmodel.base.records import Record
from specmodel.cost.deploying import DEFAULT_ENGINE, NAMES, RECORDS
from specmodel.prediction.columns import COLUMN_UNITS, LOAD_COLUMNS, with_ends
from specmodel.prediction.evaluate import LOAD

POINT_AXES = (*LOAD, "context_length", "batch_size", "draft_length", "verify_tokens")
"""Axes of the grid that each deployment is computed on, outermost first; whole numbers."""

DEFAULT_COLUMNS = (
    *("tokens_per_step", "forward_time", "verify_time", "draft_time", "step_time"),
    *("target_efficiency", "speedup", "tpot", "throughput", "limited_by"),
    *("memory_bytes", "fits", "prefill_time"),
)
"""Columns wanted beside the axes where none are named; the last only under load."""

SETTINGS = ("measured_draft_length", "max_draft_length")
"""Parameters with one value for the whole sweep."""

BY_POSITION, _FRACTION = "acceptance_by_position", "accepted_fraction"
_REQUIRED = ("target", "hardware", "drafter", "batch_size")
_WITH_LENGTH = ("verify_tokens", "tree_width")


def listed(name: str, value: Any) -> list[Any]:
    """Return the values of a parameter, plain numbers for those of NumPy."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str | Record) or not isinstance(value, Iterable):
        value = [value]
    values = [v.item() if isinstance(v, np.generic) else v for v in value]
    _check_kinds(name, value, {type(v) for v in values})
    return values


def _check_kinds(name: str, value: Any, kinds: set[type]) -> None:
    """Refuse what is no list of values, by the types in it."""
    if not kinds or type(None) in kinds:
        raise InputError(name, value, "at least one value, and none that is missing")
    if kinds & {list, tuple, np.ndarray} and name != BY_POSITION:  # which may be a table
        raise InputError(name, value, "one value or one list of values")
    if name == "popularity" and kinds - {str, type(Path())}:
        raise InputError(name, value, "files, or popularity_exponent in its place")


def check_names(values: Mapping[str, list[Any]]) -> None:
    """Refuse names that are unknown or missing."""
    known = (*NAMES, *POINT_AXES, *FORMS, *SETTINGS)
    for name, value in values.items():
        if name not in known and not is_label(name):
            expected = f"a parameter such as {nearest(name, known)}"
            raise InputError(name, value[0] if len(value) == 1 else value, expected)
    for name in _REQUIRED:
        if name not in values:
            raise InputError(name, None, "at least one value")
    for name in _WITH_LENGTH:
        if name in values and "draft_length" not in values:
            expected = "draft_length with it, as trees have no best length"
            raise InputError(name, values[name], expected)
    for name in SETTINGS:
        if len(values.get(name, ())) > 1:
            raise InputError(name, values[name], "one value for the whole sweep")


def columns_of(
    wanted: Sequence[str] | None, given: Mapping[str, Any], *, interval: bool
) -> tuple[str, ...]:
    """Return the columns beside the labels: those wanted, and those that tell points apart."""
    found = [*COLUMN_UNITS]
    if given.keys() & {*LOAD}:
        found += [column.name for column in LOAD_COLUMNS]
    found = with_ends(found) if interval else found
    own = {"acceptance_rate": BY_POSITION not in given, _FRACTION: _FRACTION in given}
    found[:0] = [name for name, is_there in own.items() if is_there]
    if wanted is None:
        wanted = [name for name in DEFAULT_COLUMNS if name in found]
    wanted = listed("columns", wanted)
    if wanted == ["all"]:
        return tuple(found)
    if interval and not any(str(name).endswith(("_low", "_high", "_chance")) for name in wanted):
        wanted = with_ends(wanted)
    known = [*found, *ordered(dict.fromkeys(filter(is_label, given)))]
    for name in wanted:
        if name not in known:
            expected = f"columns such as {nearest(name, known)}; --columns all writes every one"
            raise InputError("columns", name, expected)
    axes = {*POINT_AXES, "acceptance_rate", *given.keys() & {*FORMS}}
    return tuple(name for name in found if name in axes or name in wanted)


def is_label(name: str) -> bool:
    """Return whether a parameter says what runs where, and so is a label of the rows."""
    return name in NAMES or name.partition(".")[0] in RECORDS


def labels_of(values: Sequence[Any]) -> list[Any]:
    """Return what a column calls the values of an axis: numbers of one kind, or words."""
    if all(isinstance(value, int | float) for value in values):
        with suppress(OverflowError):  # of numbers that no record takes
            numbers = np.asarray(values)
            plain = numbers if numbers.dtype.kind in "bif" else numbers.astype(float)
            return list(plain.tolist())
    words = [str(v) if isinstance(v, Path) else str(getattr(v, "name", v)) for v in values]
    # a path need not be UTF-8, which tables are
    return [word.encode(errors="backslashreplace").decode() for word in words]


def ordered(labels: dict[str, Any]) -> dict[str, Any]:
    """Return labels with the four records first; without an engine it is the default one."""
    first = ("target", "drafter", "hardware", "engine")
    return {name: labels.get(name, DEFAULT_ENGINE) for name in first} | labels
