"""Read the parameters of a sweep, and find its cases, labels and columns."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from specmodel import __version__
from specmodel.core.algebra.acceptance import FORMS, ONE_FOR_ALL
from specmodel.core.base.errors import InputError, nearest, refuse_unknown
from specmodel.core.base.naming import counted
from specmodel.core.base.records import Record, is_path
from specmodel.core.cost.deploying import DEFAULT_ENGINE
from specmodel.core.cost.usual import usual_drafter
from specmodel.core.cost.where import NAMES, RECORDS, Manner
from specmodel.core.prediction import case as cases
from specmodel.core.prediction.accepted import ACCEPTANCE, Accepted
from specmodel.core.prediction.columns import COLUMN_UNITS, LOAD_COLUMNS, with_ends
from specmodel.core.prediction.evaluate import LOAD

MOST_DEPLOYMENTS = 100_000
"""Most combinations of targets, drafters, hardware and their settings [-]."""

POINT_AXES = (*LOAD, "context_length", "batch_size", "draft_length", "verify_tokens")
"""Axes of whole numbers of each deployment's grid, outermost first."""

DEFAULT_COLUMNS = (
    *("tokens_per_step", "forward_time", "verify_time", "draft_time", "step_time"),
    *("target_efficiency", "speedup", "tpot", "throughput", "limited_by"),
    *("max_graph_batch_size", "max_graph_batch_size_plain", "memory_bytes", "fits", "prefill_time"),
)
"""Default columns in addition to the axes; the last one only under load."""

SETTINGS = ("measured_draft_length", "max_draft_length", "task")
"""Parameters with one value for the whole sweep."""

_NAMES = {
    "popularity": "files; for a law, use popularity_exponent",
    "acceptance": "the name of a published acceptance; for a number, use acceptance_rate",
}
"""Parameters whose values are names, and the values to use in place of numbers."""

_FIRST = ("target", "drafter", "hardware", "engine")
"""Labels that come first. Without an engine, the label is the default engine."""


def listed(name: str, value: Any) -> list[Any]:
    """Return the values of a parameter as a list, with plain numbers instead of NumPy's."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    value = value.items() if isinstance(value, Mapping) else value
    if isinstance(value, str | Record) or not isinstance(value, Iterable):
        value = [value]
    values = [v.item() if isinstance(v, np.generic) else v for v in value]
    kinds = {type(v) for v in values}
    if not kinds or type(None) in kinds:
        raise InputError(name, value, "at least one value, and no empty one")
    if kinds & {list, tuple, np.ndarray} and name not in ONE_FOR_ALL:  # a table is one value
        raise InputError(name, value, "one value or one list of values")
    if name in _NAMES and kinds - {str, type(Path())}:
        raise InputError(name, value, _NAMES[name])
    if name in SETTINGS and len(values) > 1:
        raise InputError(name, values, "one value for the whole sweep")
    return values


def with_usual(axes: Mapping[str, Any]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the lists of values with default drafter and batch sizes, and the drafter's reason."""
    values = {name: listed(name, value) for name, value in axes.items() if value is not None}
    known = (*NAMES, *POINT_AXES, *ACCEPTANCE, *SETTINGS)
    refuse_unknown({n: value for n, value in values.items() if not _is_label(n)}, known)
    for name in {"target", "hardware"} - values.keys():
        raise InputError(name, None, "one value or a list of values")
    lacking = {} if "drafter" in values else {"drafter": "`drafter='ngram'`"}
    if not Accepted.of(values).form.keys() & {*FORMS}:
        lacking["acceptance"] = "`acceptance_rate=0.7`"
    if lacking and max(len(values.get(name, ())) for name in ("target", "drafter")) > 1:
        why = "as only a sweep of one target and one drafter has defaults"
        expected = f"{' and '.join(lacking.values())}, {why}"
        raise InputError(next(iter(lacking)), values.get(next(iter(lacking))), expected)
    values = {"batch_size": [*cases.DEFAULT_BATCH_SIZES], **values}
    if "drafter" in values:
        return values, {}
    _, usual, reasons = usual_drafter(values["target"][0], values.get("weight_dtype", [None])[0])
    return values | {"drafter": [usual]}, {"drafter": reasons["drafter"]}


def found_cases(
    values: Mapping[str, list[Any]], *, skip_impossible: bool
) -> tuple[list[tuple[dict[str, Any], cases.Case]], tuple[str, ...]]:
    """Return labels and case of each possible combination, and the reasons against the others."""
    where = {name: value for name, value in values.items() if _is_label(name)}
    if (count := math.prod(map(len, where.values()))) > MOST_DEPLOYMENTS:
        raise InputError("deployments", count, f"at most {MOST_DEPLOYMENTS} combinations")
    once = ("acceptance", "task", "measured_draft_length")
    given = {name: values[name][0] for name in once if name in values}
    given |= {n: values[n] for n in (*FORMS, "draft_length", "verify_tokens") if n in values}
    kinds = {name: {type(v) for v in value} for name, value in where.items()}
    manner, found = Manner(may_not_fit=True), list[tuple[dict[str, Any], cases.Case]]()
    skipped = list[tuple[str, InputError]]()
    for chosen in itertools.product(*where.values()):
        of = dict(zip(where, chosen, strict=True))
        plain = {name: value for name, value in of.items() if "." not in name}
        changes = {name: value for name, value in of.items() if "." in name} or None
        try:
            case = cases.case_of({**given, **plain, "changes": changes}, manner)
            case.check_trees()
        except InputError as error:
            if not skip_impossible:
                raise
            skipped.append((", ".join(str(getattr(v, "name", v)) for v in chosen), error))
            continue
        labels = {name: _label(value, kinds[name]) for name, value in of.items()}
        labels |= {"hardware": counted(labels["hardware"])[1]}
        labels |= {"num_gpus": case.deployment.layout.num_gpus}
        found.append(({n: labels.get(n, DEFAULT_ENGINE) for n in _FIRST} | labels, case))
    if not found:
        _, first = skipped[0]
        expected = f"{first.expected.rstrip('.')}; no combination of values works"
        raise InputError(first.argument, first.value, expected)
    return found, tuple(f"{labels}: {error}" for labels, error in skipped)


def _is_label(name: str) -> bool:
    """Return whether a parameter describes the deployment, and thus labels rows."""
    return name in NAMES or name.partition(".")[0] in RECORDS


def _label(value: Any, kinds: set[type]) -> Any:
    """Return a value as a column contains it: a number if all `kinds` are numbers, else a word."""
    if kinds <= {bool, int, float}:
        return float(value) if float in kinds else value
    word = str(value) if isinstance(value, Path) else str(getattr(value, "name", value))
    return word.encode(errors="backslashreplace").decode()  # a path need not be UTF-8


def columns_of(
    wanted: Sequence[str] | None, values: Mapping[str, Any], form: str, *, interval: bool
) -> tuple[str, ...]:
    """Return the columns in addition to labels: those wanted, and those that identify points."""
    names = [*COLUMN_UNITS, *(c.name for c in LOAD_COLUMNS if values.keys() & {*LOAD})]
    names = [*with_ends(names)] if interval else names
    names = ["acceptance_rate"] * (form != "acceptance_by_position") + names
    wanted = listed("columns", wanted or [name for name in DEFAULT_COLUMNS if name in names])
    if wanted == ["all"]:
        return tuple(names)
    if interval and not any(str(name).endswith(("_low", "_high", "_chance")) for name in wanted):
        wanted = with_ends(wanted)
    known = [*names, *_FIRST, *filter(_is_label, values)]
    for name in wanted:
        if name not in known:
            expected = f"columns such as {nearest(name, {*known})}; "
            raise InputError("columns", name, f"{expected}`columns=['all']` writes every one")
    shown = {*wanted, *POINT_AXES, "acceptance_rate", form}
    return tuple(name for name in names if name in shown)


def identity_of(values: Mapping[str, list[Any]], *others: Any) -> str:
    """Return a text that identifies a sweep by its values, the content of files and the version."""
    paths = (v for each in values.values() for v in each if isinstance(v, str | Path))
    files = [Path(v).read_bytes() for v in paths if is_path(v) and Path(v).is_file()]
    # addresses of functions differ between runs
    text = re.sub(r" at 0x\w+", "", repr((__version__, values, files, others)))
    return sha256(text.encode(errors="backslashreplace")).hexdigest()[:10]
