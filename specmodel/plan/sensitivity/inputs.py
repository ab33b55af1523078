"""List the continuous inputs of a deployment at one point, and evaluate arrays of them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra import speculation
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.files import toml_tables
from specmodel.core.base.records import unchecked
from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.forward import pass_work
from specmodel.core.cost.latency import KernelErrors
from specmodel.core.cost.passes import MESSAGES
from specmodel.core.layers.batch import sequence_group
from specmodel.core.layers.kinds import FITTED_KINDS, MAIN_KINDS
from specmodel.core.layers.work import Work
from specmodel.core.machines.engine import FACTORS, OVERHEADS
from specmodel.core.prediction.evaluate import evaluate as evaluate_points
from specmodel.core.prediction.predicting import DEFAULT_CONTEXT_LENGTH, MOST

_BOUNDS = toml_tables(Path(__file__).parent / "data/bounds.toml")
_FIELDS: dict[str, dict[str, Any]] = {
    **_BOUNDS["fields"],
    **dict.fromkeys(OVERHEADS, _BOUNDS["overhead"]),
    **dict.fromkeys(FACTORS, _BOUNDS["factor"]),
}
"""Unit and bounds of each field that is an input."""


class OperatingPoint(Struct, frozen=True, kw_only=True, eq=False):
    """One operating point of a deployment; drafts are chains.

    Parameters
    ----------
    batch_size, draft_length, context_length
        Single numbers, as in `specmodel.predict`; the draft length is at least 1 [request] [token].
    acceptance
        Acceptance rate [-], or an `Acceptance` in any form: one number, or rates by position.
    """

    batch_size: int
    draft_length: int
    acceptance: Acceptance | float
    context_length: int = DEFAULT_CONTEXT_LENGTH

    def __post_init__(self) -> None:
        bounds = {"batch_size": (1, MOST), "context_length": (0, MOST)}
        bounds["draft_length"] = (1, speculation.MAX_DRAFT_LENGTH)
        for name, (least, most) in bounds.items():
            value = check(name, getattr(self, name), minimum=least, maximum=most, whole=True)
            if value.ndim:
                raise InputError(name, value.tolist(), "a single number, not a list")

    def acceptance_where_proposed(self, deployment: Deployment) -> Acceptance:
        """Return the acceptance rate of drafted tokens, in steps in which the drafter proposes any.

        For an acceptance by position, it is the one rate with the same number of tokens per step.
        """
        acceptance = self.acceptance
        if not isinstance(acceptance, Acceptance):
            acceptance = Acceptance(acceptance_rate=acceptance)
        acceptance = acceptance.measured_at(self.draft_length).at_context(self.context_length)
        acceptance = acceptance.where_proposed(deployment.drafter.proposal_rate)
        if acceptance.form == "acceptance_by_position":
            length = self.draft_length
            tokens = acceptance.expected_tokens_per_step(length)
            return Acceptance(acceptance_rate=speculation.solve_acceptance_rate(tokens, length))
        rate = acceptance.rate()
        if rate.ndim:
            raise InputError(acceptance.form, rate.tolist(), "a single number, not a list")
        return Acceptance(acceptance_rate=float(rate))


class Input(Struct, frozen=True):
    """One continuous input: its value, its unit and its bounds.

    Parameters
    ----------
    name, value, unit
        Dotted name, as in profiles; value at the operating point; SI unit of the value [-].
    minimum, maximum
        Closed bounds. If the minimum is None, values must be above 0 [-].
    """

    name: str
    value: float
    unit: str = "-"
    minimum: float | None = 0.0
    maximum: float = np.inf

    def check(self, values: Numeric, argument: str | None = None) -> FloatArray:
        """Return checked values as an array; an error names `argument`, by default the input."""
        low = -np.inf if self.minimum is None else self.minimum
        above = 0.0 if self.minimum is None else -np.inf
        return check(argument or self.name, values, minimum=low, maximum=self.maximum, above=above)


def list_inputs(deployment: Deployment, point: OperatingPoint) -> dict[str, Input]:
    """Return every continuous input, by name, that may affect the outcome at a point.

    Inputs of the point come first. Acceptance by position counts as the one rate with the same
    number of tokens per step. Inputs of hardware, engine and kernels follow, and then errors, which
    are factors around 1:

    - ``kernels.<kind>.error`` multiplies the time of a kind's kernels in both passes of the target.
      Under a fitted engine, whose errors describe whole steps, also in draft passes.
    - ``kernels.<kind>.verify_error`` multiplies the verify pass relative to the decode step.
    - ``kernels.<kind>.draft_error`` multiplies draft passes.
    - ``engine.error`` multiplies the time of a step under a fitted engine.

    Kernels of the data sheet have only these factors as inputs.

    Parameters
    ----------
    deployment, point
        Deployment and operating point.
    """
    d, one = deployment, sequence_group(batch_size=1)
    target = [*pass_work(d.target, one, layout=d.layout).components.values()]
    drafts = [pass_work(model, one, layout=d.draft_layout) for model in d.drafter.architectures]
    drafter = [work for draft in drafts for work in draft.components.values()]
    found = [
        *_of_point(deployment, point),
        *(item for each in _records(d, [*target, *drafter]) for item in _of_record(*each)),
        *_errors(deployment, target, drafter),
    ]
    return {item.name: item for item in found}


def find_input(inputs: dict[str, Input], name: str, argument: str) -> Input:
    """Return an input by name; an error about `argument` suggests the nearest names."""
    if name not in inputs:
        raise InputError(argument, name, f"an input such as {nearest(name, inputs)}")
    return inputs[name]


def _of_point(deployment: Deployment, point: OperatingPoint) -> list[Input]:
    """Return the inputs of the point, of routing with experts, and of look-up drafters."""
    acceptance, drafter = point.acceptance_where_proposed(deployment), deployment.drafter
    longest = float(drafter.block_size or speculation.MAX_DRAFT_LENGTH)
    found = [
        Input("acceptance_rate", float(acceptance.rate()), maximum=1.0),
        Input("draft_length", float(point.draft_length), "token", 1.0, longest),
        Input("batch_size", float(point.batch_size), "request", 1.0, MOST),
        Input("context_length", float(point.context_length), "token", maximum=MOST),
    ]
    if (experts := deployment.target.experts) is not None:
        correlation, told = float(deployment.routing_correlation), deployment.popularity_spread
        found.append(Input("routing_correlation", correlation, maximum=1.0))
        if deployment.popularity is None:
            spread = experts.popularity_spread if told is None else float(told)
            found.append(Input("popularity_spread", spread, maximum=10.0))
    if drafter.is_lookup:
        found.append(Input("proposal_rate", drafter.proposal_rate, maximum=1.0))
        found.append(Input("lookup_time", drafter.lookup_time, "s"))
    return found


def _of_record(prefix: str, record: object) -> list[Input]:
    """Return the fields of a record as inputs: those with bounds that are not None."""
    told = {n: x for n in _FIELDS if (x := getattr(record, n, None)) is not None}
    return [
        Input(f"{prefix}.{n}", float(x), **{"minimum": None, **_FIELDS[n]}) for n, x in told.items()
    ]


def _records(deployment: Deployment, works: list[Work]) -> Iterator[tuple[str, object]]:
    """Yield the records on which the components depend, each after the prefix of its inputs."""
    hardware, kernels, link = deployment.hardware, deployment.kernels, deployment.hardware.link
    yield "hardware.memory", hardware.memory
    used = {hardware.compute_dtype(work.dtype) for work in works if np.any(work.flop)}
    yield from ((f"hardware.dtype.{d}", peak) for d, peak in hardware.dtype.items() if d in used)
    if any(work.collectives for work in works):
        yield "hardware.link", link
    if any(work.network_hops for work in works):
        yield "hardware.network", hardware.network
    name = link.taken_all_reduce(kernels.link_stack) if link else None
    if link and name and any(work.reductions for work in works):
        yield f"hardware.link.all_reduce.{name}", link.all_reduce[name]
    yield "engine", deployment.engine_overheads
    taken = [kernels.place(work.kind, work.stored_dtype, work.dtype) for work in works]
    for kind, stored in dict.fromkeys(filter(None, taken)):
        yield f"kernels.{kind}.{stored}", kernels.fits[kind][stored]


def _errors(deployment: Deployment, target: list[Work], drafter: list[Work]) -> list[Input]:
    """Return the factors on kernels, steps and messages; a fitted engine has one for all passes."""
    is_fitted = deployment.engine.fit is not None
    whole, of_draft = ("engine", "error") if is_fitted else ("deployment", "draft_error")
    of_pass = ("error", "verify_error")
    names = [f"{kind}.{error}" for kind in _kinds(deployment, target) for error in of_pass]
    names += [f"{kind}.{of_draft}" for kind in _kinds(deployment, drafter)]
    found = [f"{whole}.error", *(f"kernels.{name}" for name in dict.fromkeys(names))]
    found += [f"{MESSAGES}.error"] if deployment.message_spread else []
    return [Input(name, 1.0, minimum=None) for name in found]


def _kinds(deployment: Deployment, works: list[Work]) -> list[str]:
    """Return the kinds of kernels whose errors affect the components, each once."""
    kinds = {deployment.kernels.kind_of_errors(work.kind) for work in works}
    return [kind for kind in MAIN_KINDS if kind in kinds]


OUTPUTS = ("speedup", "target_efficiency")
"""Names of the outputs of `evaluate`."""


def evaluate(
    deployment: Deployment,
    point: OperatingPoint,
    values: Mapping[str, Numeric],
    inputs: dict[str, Input] | None = None,
) -> dict[str, FloatArray]:
    """Return speedup and target efficiency (at most 1) with some inputs changed.

    Batch size, draft length and context length are real numbers here. Between whole draft lengths,
    the expected number of experts is interpolated.

    Errors are factors on the times of a kind's kernels: ``error / sqrt(verify_error)`` in a plain
    pass, and ``error * sqrt(verify_error)`` in a verify pass. The common error and the difference
    are independent, as Sobol' indices require (see `calibrated_ranges`). If the engine was not
    fitted, ``deployment.error`` multiplies the GPU time of all passes, but not host time.

    Parameters
    ----------
    deployment, point
        Deployment and operating point, whose values other inputs keep.
    values, inputs
        New values by name of `list_inputs`: numbers, or lists of one length [-]. The result of
        `list_inputs`, if you already have it.

    Returns
    -------
    dict
        An array of the lists' length for each of `OUTPUTS` [-].
    """
    known = inputs or list_inputs(deployment, point)
    arrays = {n: find_input(known, n, "values").check(v) for n, v in values.items()}
    size = max((array.size for array in arrays.values()), default=1)
    for name, array in arrays.items():
        if array.ndim > 1 or array.size not in (1, size):
            expected = f"one number, or a list of {size}, the length of the longest input"
            raise InputError(name, f"shape {array.shape}", expected)
    rate, names = arrays.get("acceptance_rate"), ("batch_size", "draft_length", "context_length")
    given = point.acceptance_where_proposed(deployment)
    outcome = evaluate_points(
        _changed(deployment, arrays),
        {n: arrays.get(n, np.asarray(float(getattr(point, n)))) for n in names},
        given if rate is None else Acceptance(acceptance_rate=rate),
        errors=_factors(deployment, arrays),
        step_error=arrays.get("engine.error", 1.0),
    )
    return {name: np.full(size, getattr(outcome, name)) for name in OUTPUTS}


def _changed(deployment: Deployment, values: dict[str, FloatArray]) -> Deployment:
    """Return the deployment with arrays in place of numbers of its records."""
    d, kernels = deployment, deployment.kernels
    records: dict[str, Any] = {"hardware": d.hardware, "engine": d.engine_overheads}
    records |= {"kernels": kernels.fits, "drafter": d.drafter}
    for name, value in values.items():
        path = f"drafter.{name}" if name in ("proposal_rate", "lookup_time") else name
        record, *fields = path.split(".")
        if fields and not name.endswith("error"):
            records[record] = _with_field(records[record], fields, value)
    has_new = records["kernels"] is not kernels.fits
    return d.with_draws(
        hardware=records["hardware"],
        overheads=records["engine"],
        kernels=replace(kernels, fits=records["kernels"]) if has_new else kernels,
        drafter=records["drafter"],
        routing_correlation=values.get("routing_correlation", d.routing_correlation),
        popularity_spread=values.get("popularity_spread", d.popularity_spread),
    )


def _with_field(record: Any, path: Sequence[str], value: Any) -> Any:
    """Return nested records and dicts with one field replaced, without validation."""
    name, *rest = path
    is_mapping = isinstance(record, Mapping)
    if rest:
        value = _with_field(record[name] if is_mapping else getattr(record, name), rest, value)
    return {**record, name: value} if is_mapping else unchecked(record, {name: value})


def _factors(deployment: Deployment, values: dict[str, FloatArray]) -> KernelErrors | None:
    """Return the factors on kernels of each kind and on passes; None if no error was given."""
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
