"""What a sweep is given: lists by the name of a parameter, labels and columns of its rows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from specmodel import __version__
from specmodel.algebra.acceptance import FORMS, ONE_FOR_ALL, Acceptance
from specmodel.base.errors import InputError, nearest
from specmodel.base.records import Record, is_path
from specmodel.cost.deploying import DEFAULT_ENGINE, NAMES, RECORDS
from specmodel.cost.usual import usual_drafter
from specmodel.prediction.case import (
    ACCEPTANCE,
    DEFAULT_BATCH_SIZES,
    case_of,
    given_form,
    of_unchanged,
)
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

SETTINGS = ("measured_draft_length", "max_draft_length", "task")
"""Parameters with one value for the whole sweep."""

BY_POSITION, _FRACTION = "acceptance_by_position", "accepted_fraction"


def listed(name: str, value: Any) -> list[Any]:
    """Return the values of a parameter, plain numbers for those of NumPy."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        value = value.items()
    if isinstance(value, str | Record) or not isinstance(value, Iterable):
        value = [value]
    values = [v.item() if isinstance(v, np.generic) else v for v in value]
    kinds = {type(v) for v in values}
    if not kinds or type(None) in kinds:
        raise InputError(name, value, "at least one value, and none that is missing")
    if kinds & {list, tuple, np.ndarray} and name not in ONE_FOR_ALL:  # which are tables
        raise InputError(name, value, "one value or one list of values")
    if name == "popularity" and kinds - {str, type(Path())}:
        raise InputError(name, value, "files, or popularity_exponent in its place")
    return values


def check_names(values: Mapping[str, list[Any]]) -> None:
    """Refuse names that are unknown or missing, and values that are too many."""
    known = (*NAMES, *POINT_AXES, *ACCEPTANCE, *SETTINGS)
    for name, value in values.items():
        if name not in known and not is_label(name):
            expected = f"a parameter such as {nearest(name, known)}"
            raise InputError(name, value[0] if len(value) == 1 else value, expected)
        if name in ("verify_tokens", "tree_width") and "draft_length" not in values:
            raise InputError(name, value, "draft_length with it, as trees have no best length")
        if name in SETTINGS and len(value) > 1:
            raise InputError(name, value, "one value for the whole sweep")
    for name in ("target", "hardware"):
        if name not in values:
            raise InputError(name, None, "one value or a list, as every sweep needs one")


def with_usual(values: Mapping[str, list[Any]]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return values with defaults for those not given, and a description of these defaults.

    Defaults are the usual drafter of one model, the published acceptance of one model with one
    drafter, and the batch sizes of `predict`.
    """
    several = [name for name in ("target", "drafter") if len(values.get(name, ())) > 1]
    form, defaults = given_form(values), dict[str, str]()
    remedies = {} if "drafter" in values else {"drafter": "`drafter='ngram'`"}
    remedies |= {} if form else {"acceptance": "`acceptance_rate=0.7`"}
    if several and remedies:
        why = "as the defaults hold for one target with one drafter only"
        raise InputError(next(iter(remedies)), None, f"{' '.join(remedies.values())}, {why}")
    values = {"batch_size": [*DEFAULT_BATCH_SIZES], **values}
    if "drafter" not in values:
        usual = usual_drafter(values["target"][0], values.get("weight_dtype", [None])[0])
        values["drafter"], defaults["drafter"] = [usual["drafter"]], usual["told_drafter"]
    if not form.keys() - {"acceptance"}:
        if several:
            expected = "one, with the acceptance that is published"
            raise InputError(several[0], values[several[0]], expected)
        published = _published(values)
        values[BY_POSITION] = listed(BY_POSITION, published.acceptance_by_position)
        defaults["acceptance"] = published.source
    elif "task" in values:
        expected = f"none beside `{next(iter(form))}`, as only published acceptance has tasks"
        raise InputError("task", values["task"][0], expected)
    values = {name: value for name, value in values.items() if name not in ("acceptance", "task")}
    if "draft_length" not in values:
        defaults["draft_length"] = "the best of each row"
    return values, defaults


def _published(values: Mapping[str, list[Any]]) -> Acceptance:
    """Return the acceptance that is published of one model with one drafter."""
    names: tuple[str, ...] = ("target", "drafter", "hardware", "weight_dtype", "acceptance", "task")
    names += ("measured_draft_length",)
    question: dict[str, Any] = {name: values[name][0] for name in names if name in values}
    if not isinstance(question.get("acceptance", ""), str):
        expected = "the name of a published acceptance; give a number as acceptance_rate"
        raise InputError("acceptance", question["acceptance"], expected)
    question |= {"may_not_fit": True, "draft_length": values.get("draft_length")}
    changes = [name for name in values if "." in name]
    return of_unchanged(case_of(question).known_acceptance, {"changes": changes})


def columns_of(
    wanted: Sequence[str] | None, values: Mapping[str, Any], *, interval: bool
) -> tuple[str, ...]:
    """Return the columns beside the labels: those wanted, and those that tell points apart."""
    special = {"acceptance_rate": BY_POSITION not in values, _FRACTION: _FRACTION in values}
    names = [*COLUMN_UNITS]
    names += [column.name for column in LOAD_COLUMNS if values.keys() & {*LOAD}]
    names = [*filter(special.get, special), *(with_ends(names) if interval else names)]
    if wanted is None:
        wanted = [name for name in DEFAULT_COLUMNS if name in names]
    wanted = listed("columns", wanted)
    if wanted == ["all"]:
        return tuple(names)
    if interval and not any(str(name).endswith(("_low", "_high", "_chance")) for name in wanted):
        wanted = with_ends(wanted)
    known = [*names, *ordered(dict.fromkeys(filter(is_label, values)))]
    for name in wanted:
        if name not in known:
            expected = f"columns such as {nearest(name, known)}; `columns=['all']` writes every one"
            raise InputError("columns", name, expected)
    shown = {*wanted, *POINT_AXES, "acceptance_rate", *values.keys() & {*FORMS}}
    return tuple(name for name in names if name in shown)


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


def identity(values: Mapping[str, list[Any]], *others: Any) -> str:
    """Return a text that stands for a sweep: the same if all values, files and versions are."""
    files = [
        Path(value).read_bytes()
        for each in values.values()
        for value in each
        if isinstance(value, str | Path) and is_path(value) and Path(value).is_file()
    ]
    # functions of a record are told by their names alone
    text = re.sub(r" at 0x\w+", "", repr((__version__, values, files, others)))
    return sha256(text.encode(errors="backslashreplace")).hexdigest()[:10]
