"""Speedup and target efficiency at a point for arrays of any of its inputs at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel

from specmodel.algebra import speculation
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import KernelErrors, step_times
from specmodel.records.kernels import MAIN_KINDS, STANDS_IN, Kernels
from specmodel.sensitivity.inputs import OperatingPoint, find_input, list_inputs

CHUNK = 8_192
"""Points computed at a time [-]: what a pass keeps of them stays in cache."""

OUTPUTS = ("speedup", "target_efficiency")
"""What is computed."""


def evaluate(
    deployment: Deployment, point: OperatingPoint, values: Mapping[str, Numeric]
) -> dict[str, FloatArray]:
    """Return speedup and target efficiency with some inputs changed.

    Parameters
    ----------
    deployment
        What runs where.
    point
        The operating point; inputs that are not changed keep its values.
    values
        By name of `list_inputs`: one number, or a list of one length for all [-].

    Returns
    -------
    dict
        By name of `OUTPUTS`, arrays of that length [-].

    Raises
    ------
    InputError
        If an input is unknown, a value out of its bounds, or lengths differ.

    Notes
    -----
    Batch size, draft and context length are real-valued here; the expected union of experts is
    interpolated between whole draft lengths. Target efficiency is at most 1, as in intervals.

    Examples
    --------
    >>> from specmodel import deploy
    >>> deployment, _ = deploy(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram",
    ...                        stack="datasheet")
    >>> point = OperatingPoint(batch_size=8, draft_length=3, acceptance=0.6)
    >>> evaluate(deployment, point, {"acceptance_rate": [0.4, 0.8]})["speedup"].round(2).tolist()
    [1.46, 2.66]
    """
    known = list_inputs(deployment, point)
    arrays = {n: find_input(known, n, "values").check(v) for n, v in values.items()}
    size = max((array.size for array in arrays.values()), default=1)
    for name, array in arrays.items():
        if array.ndim > 1 or array.size not in (1, size):
            expected = f"one number, or a list of {size} as the longest input"
            raise InputError(name, f"shape {array.shape}", expected)
    columns = {name: np.empty(size) for name in OUTPUTS}
    for start in range(0, size, CHUNK):
        part = slice(start, start + CHUNK)
        cut = {n: array[part] if array.size > 1 else array for n, array in arrays.items()}
        for name, column in _outcome(deployment, point, cut).items():
            columns[name][part] = column
    return columns


def _outcome(
    deployment: Deployment, point: OperatingPoint, values: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    changed = _changed(deployment, values)
    acceptance = point.acceptance_where_proposed(deployment)
    gamma = values.get("draft_length", np.asarray(float(point.draft_length)))
    batch_size = values.get("batch_size", np.asarray(float(point.batch_size)))
    times = step_times(
        changed,
        batch_size=batch_size,
        draft_length=gamma,
        verify_tokens=gamma + 1,
        context_length=values.get("context_length", float(point.context_length)),
        errors=_errors(changed, values),
    )
    if "acceptance_rate" in values:
        proposed = speculation.expected_tokens_per_step(values["acceptance_rate"], gamma)
    else:
        proposed = acceptance.expected_tokens_per_step(gamma)
    tokens = 1 + changed.drafter.proposal_rate * (proposed - 1)
    forward, step_time = times.forward_time, times.step_time * values.get("engine.error", 1.0)
    relative = speculation.relative_step_time(forward, step_time)
    return {
        "speedup": speculation.utility(tokens, relative),
        "target_efficiency": np.minimum(
            speculation.target_efficiency(forward, times.verify_time), 1.0
        ),
    }


def _changed(deployment: Deployment, values: dict[str, FloatArray]) -> Deployment:
    """Return the deployment with numbers of its records replaced by arrays."""
    lookup: dict[str, Any] = {n: values[n] for n in ("proposal_rate", "lookup_time") if n in values}
    changes: dict[str, Any] = {
        "hardware": _with_leaves(deployment.hardware, _below("hardware", values)),
        "drafter": replace(deployment.drafter, **lookup) if lookup else deployment.drafter,
        "kernels": _changed_kernels(deployment.kernels, _below("kernels", values)),
    }
    seconds: dict[str, Any] = _below("engine", values)
    seconds.pop("error", None)
    if seconds:
        changes["overheads"] = replace(deployment.engine_seconds, **seconds)
    if "routing_correlation" in values:
        changes["routing_correlation"] = values["routing_correlation"]
    return replace(deployment, **changes)


def _below(table: str, values: dict[str, FloatArray]) -> dict[str, FloatArray]:
    start = f"{table}."
    return {n.removeprefix(start): v for n, v in values.items() if n.startswith(start)}


def _with_leaves(record: Any, changes: dict[str, FloatArray]) -> Any:
    """Return nested records and dicts with leaves replaced; arrays need no validation."""
    if not changes:
        return record
    is_record = isinstance(record, BaseModel)
    tables: dict[str, dict[str, FloatArray]] = {}
    new: dict[str, Any] = {}
    for path, value in changes.items():
        name, has_rest, rest = path.partition(".")
        if has_rest:
            tables.setdefault(name, {})[rest] = value
        else:
            new[name] = value
    for name, inner in tables.items():
        new[name] = _with_leaves(getattr(record, name) if is_record else record[name], inner)
    return record.model_copy(update=new) if is_record else {**record, **new}


def _changed_kernels(kernels: Kernels, values: dict[str, FloatArray]) -> Kernels:
    fits = {kind: dict(by_dtype) for kind, by_dtype in kernels.fits.items()}
    for path, value in values.items():
        kind, dtype, *parameter = path.split(".")
        if parameter:
            change: dict[str, Any] = {parameter[0]: value}
            fits[kind][dtype] = replace(fits[kind][dtype], **change)
    return replace(kernels, fits=fits)


def _errors(deployment: Deployment, values: dict[str, FloatArray]) -> KernelErrors | None:
    """Return the factors on kernels of each kind in each pass, if any was given."""
    errors = _below("kernels", values)
    common = {k: errors[f"{k}.error"] for k in MAIN_KINDS if f"{k}.error" in errors}
    apart = {k: errors[f"{k}.verify_error"] for k in MAIN_KINDS if f"{k}.verify_error" in errors}
    drafts = {k: errors[f"{k}.draft_error"] for k in MAIN_KINDS if f"{k}.draft_error" in errors}
    if not (common or apart or drafts):
        return None
    forward, verify = (
        {k: common.get(k, 1.0) * apart.get(k, np.ones(())) ** power for k in {*common, *apart}}
        for power in (-0.5, 0.5)
    )
    of_draft = common if deployment.engine.fit else drafts
    return KernelErrors(*map(_of_all_kinds, (forward, verify, of_draft)))


def _of_all_kinds(factors: dict[str, FloatArray]) -> dict[str, FloatArray]:
    return factors | {k: factors[other] for k, other in STANDS_IN.items() if other in factors}
