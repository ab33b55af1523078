"""Speedup and target efficiency at a point for arrays of any of its inputs at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import Acceptance
from specmodel.answers.sensitivity.inputs import Input, OperatingPoint, find_input, list_inputs
from specmodel.base.errors import InputError
from specmodel.base.records import Record, unchecked
from specmodel.base.units import FloatArray, Numeric
from specmodel.cost.blocks import BLOCK
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import KernelErrors
from specmodel.cost.passes import MESSAGES
from specmodel.layers.kinds import FITTED_KINDS
from specmodel.prediction.evaluate import evaluate as evaluate_points

OUTPUTS = ("speedup", "target_efficiency")
"""What is computed."""


def evaluate(
    deployment: Deployment,
    point: OperatingPoint,
    values: Mapping[str, Numeric],
    inputs: dict[str, Input] | None = None,
) -> dict[str, FloatArray]:
    """Return speedup and target efficiency, at most 1, with some inputs changed.

    Batch size, draft and context length are real-valued here: between whole draft lengths the
    expected union of experts is interpolated.

    Errors are factors on the times of kernels of a kind. A plain and a verify pass take ``error /
    sqrt(verify_error)`` and ``error * sqrt(verify_error)``: a common error and a difference, which
    are independent, as Sobol' indices require (see `calibrated_ranges`). Where the engine was not
    fitted, ``deployment.error`` multiplies the time of GPUs in all passes, and not host time.

    Parameters
    ----------
    deployment, point
        What runs where, and the operating point; inputs that are not changed keep its values.
    values, inputs
        New values by name of `list_inputs`: one number, or a list of one length for all [-]; what
        `list_inputs` gives, where it is known.

    Returns
    -------
    dict
        An array of that length for each of `OUTPUTS` [-].
    """
    known = inputs or list_inputs(deployment, point)
    arrays = {n: find_input(known, n, "values").check(v) for n, v in values.items()}
    size = max((array.size for array in arrays.values()), default=1)
    for name, array in arrays.items():
        if array.ndim > 1 or array.size not in (1, size):
            expected = f"one number, or a list of {size} as the longest input"
            raise InputError(name, f"shape {array.shape}", expected)
    columns = {name: np.empty(size) for name in OUTPUTS}
    given = point.acceptance_where_proposed(deployment)
    for start in range(0, size, BLOCK):
        part = slice(start, start + BLOCK)
        cut = {n: array[part] if array.size > 1 else array for n, array in arrays.items()}
        rate = cut.get("acceptance_rate")
        names = ("batch_size", "draft_length", "context_length")
        outcome = evaluate_points(
            _changed(deployment, cut),
            {n: cut.get(n, np.asarray(float(getattr(point, n)))) for n in names},
            given if rate is None else Acceptance(acceptance_rate=rate),
            errors=_errors(deployment, cut),
            step_error=cut.get("engine.error", 1.0),
        )
        for name in OUTPUTS:
            columns[name][part] = getattr(outcome, name)
    return columns


def _changed(deployment: Deployment, values: dict[str, FloatArray]) -> Deployment:
    """Return the deployment with numbers of its records replaced by arrays."""
    tree: dict[str, Any] = {"drafter": {}, "engine": {}, "hardware": {}, "kernels": {}}
    for name, value in values.items():
        path = f"drafter.{name}" if name in ("proposal_rate", "lookup_time") else name
        if not name.endswith("error"):
            *tables, field = path.split(".")
            place = tree
            for table in tables:
                place = place.setdefault(table, {})
            place[field] = value
    d, fits = deployment, _with_leaves(deployment.kernels.fits, tree["kernels"])
    return d.with_draws(
        hardware=_with_leaves(d.hardware, tree["hardware"]),
        overheads=_with_leaves(d.engine_overheads, tree["engine"]),
        kernels=replace(d.kernels, fits=fits) if tree["kernels"] else d.kernels,
        drafter=_with_leaves(d.drafter, tree["drafter"]),
        routing_correlation=values.get("routing_correlation", d.routing_correlation),
        popularity_spread=values.get("popularity_spread", d.popularity_spread),
    )


def _with_leaves(record: Any, changes: dict[str, Any]) -> Any:
    """Return nested records and dicts with leaves replaced; arrays need no validation."""
    if not changes:
        return record
    is_mapping = isinstance(record, Mapping)
    new = dict(changes)
    for name, change in changes.items():
        if isinstance(change, dict):
            new[name] = _with_leaves(record[name] if is_mapping else getattr(record, name), change)
    if is_mapping:
        return {**record, **new}
    return unchecked(record, new) if isinstance(record, Record) else replace(record, **new)


def _errors(deployment: Deployment, values: dict[str, FloatArray]) -> KernelErrors | None:
    """Return the factors on kernels of each kind and on passes, if any was given."""
    if not any(name.endswith("error") and name != "engine.error" for name in values):
        return None

    def of_kinds(error: str) -> dict[str, FloatArray]:
        taken = {kind: deployment.kernels.kind_of_errors(kind) for kind in FITTED_KINDS}
        return {k: values.get(f"kernels.{t}.{error}", np.ones(())) for k, t in taken.items()}

    common = of_kinds("error")
    apart = {kind: np.sqrt(ratio) for kind, ratio in of_kinds("verify_error").items()}
    forward = {kind: common[kind] / apart[kind] for kind in common}
    verify = {kind: common[kind] * apart[kind] for kind in common}
    draft = common if deployment.engine.fit else of_kinds("draft_error")
    sent = {MESSAGES: values.get(f"{MESSAGES}.error", np.ones(()))}
    of_passes = forward | sent, verify | sent, draft | sent
    return KernelErrors(*of_passes, values.get("deployment.error", 1.0))
