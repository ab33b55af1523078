"""What a sweep computes: every combination of the axes, cut into parts of a bounded size."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import Acceptance
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.cost.assembly import assemble
from specmodel.cost.deploy import deploy
from specmodel.prediction.intervals import MAX_POINTS as MOST_WITH_INTERVAL
from specmodel.prediction.predict import DEFAULT_CONTEXT_LENGTH, predict
from specmodel.sweeps.axes import (
    POINT_AXES,
    SETTINGS,
    check_names,
    columns_of,
    label_names,
    labels_of,
    listed,
    ordered,
    single,
)

PART = 2**18
"""Most points of a part [-]: enough to forget Python, few enough for 20 MB of columns."""

MOST_DEPLOYMENTS = 100_000
"""Most combinations of targets, drafters, hardware and their settings [-]."""

_BY_POSITION = "acceptance_by_position"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Part:
    """A piece of a sweep: one deployment on a grid of points.

    Parameters
    ----------
    labels
        Columns that are constant: what the deployment is called and how it runs.
    arguments
        What `predict` takes.
    columns
        Columns wanted, beside the labels.
    num_points
        Operating points [-].
    """

    labels: dict[str, Any]
    arguments: dict[str, Any]
    columns: tuple[str, ...]
    num_points: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """A sweep that was checked and not yet computed.

    Parameters
    ----------
    deployments
        Labels and arguments of `predict` for each combination of the parameters that say what
        runs where.
    points
        Values of the axes of the grid that each is computed on, outermost first [-].
    acceptance
        Its last axis: rates or what they are solved from.
    settings
        The same for all points.
    columns
        Columns of the result, beside the labels.
    skipped
        Combinations that cannot be, and why, one line each.
    """

    deployments: tuple[tuple[dict[str, Any], dict[str, Any]], ...]
    points: dict[str, FloatArray]
    acceptance: Acceptance
    settings: dict[str, Any]
    columns: tuple[str, ...]
    skipped: tuple[str, ...] = field(default=())

    @property
    def label_names(self) -> tuple[str, ...]:
        """Columns that tell the deployments apart, in front of the others."""
        return tuple(self.deployments[0][0])

    @property
    def num_points(self) -> int:
        """Operating points [-]."""
        return len(self.deployments) * math.prod(self._shape)

    @property
    def num_parts(self) -> int:
        """Pieces it is cut into [-]."""
        inner, stride = _cut(self._shape, self._most)
        each = math.prod(self._shape[: max(inner - 1, 0)])
        along = -(-self._shape[inner - 1] // stride) if inner else 1
        return len(self.deployments) * each * along

    def parts(self) -> Iterator[Part]:
        """Give the pieces in the order of the rows."""
        for labels, arguments in self.deployments:
            for block in blocks(self._shape, self._most):
                yield self._part(labels, arguments, block)

    @property
    def _most(self) -> int:
        return MOST_WITH_INTERVAL if self.settings["interval"] else PART

    @property
    def _shape(self) -> tuple[int, ...]:
        return (*(axis.size for axis in self.points.values()), self._rates.size)

    @property
    def _rates(self) -> FloatArray:
        """Values of the last axis; one where acceptance is given by position."""
        form = self.acceptance.form
        if form == _BY_POSITION:
            return np.full(1, np.nan)
        return np.atleast_1d(check(form, getattr(self.acceptance, form)))

    def _part(
        self, labels: dict[str, Any], arguments: dict[str, Any], block: tuple[slice, ...]
    ) -> Part:
        depth = len(block)
        points = {
            name: axis[cut].reshape(-1, *(1,) * (depth - 1 - place))
            for place, ((name, axis), cut) in enumerate(
                zip(self.points.items(), block[:-1], strict=True)
            )
        }
        acceptance = self.acceptance
        if acceptance.form != _BY_POSITION:
            acceptance = Acceptance(
                **{acceptance.form: self._rates[block[-1]]},
                measured_draft_length=acceptance.measured_draft_length,
            )
        given = arguments | self.settings | points | {"acceptance": acceptance}
        size = math.prod(cut.stop - cut.start for cut in block)
        return Part(labels=labels, arguments=given, columns=self.columns, num_points=size)


def plan_sweep(
    axes: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    interval: bool = False,
    skip_impossible: bool = False,
) -> Plan:
    """Check a sweep and return what it will compute.

    Parameters
    ----------
    axes
        One value or a list of values for each parameter: those of `predict`, acceptance as one of
        acceptance_rate, tokens_per_step, step_efficiency, accepted_fraction (with
        measured_draft_length) and acceptance_by_position; proposal_rate, lookup_time,
        popularity_exponent; and, with a dot, fields of hardware, engine, target and drafter, such
        as hardware.memory.peak_bytes_per_s.
    columns
        Columns wanted, all by default; those of the parameters always come, acceptance as a
        rate.
    interval
        Whether to add central 80 % intervals, at some 10,000 points a second.
    skip_impossible
        Whether to leave out combinations that cannot be, such as a dtype on a GPU without a peak
        for it, instead of refusing the sweep.

    Returns
    -------
    Plan
        Rows run over the parameters of deployments in the order given, the first slowest, then
        over context length, batch size, draft length, verify tokens, acceptance.

    Raises
    ------
    InputError
        Names the parameter at fault; its values are checked before anything is computed.

    Examples
    --------
    >>> plan = plan_sweep({"target": ["mixtral-8x7b", "olmoe-1b-7b"], "hardware": "h100_sxm",
    ...                    "drafter": "ngram", "batch_size": range(1, 129), "draft_length": [1, 3],
    ...                    "acceptance_rate": [0.3, 0.5, 0.7]})
    >>> plan.num_points, plan.num_parts
    (1536, 2)
    """
    values = {name: listed(name, value) for name, value in axes.items() if value is not None}
    forms = check_names(values)
    points = {
        name: check(name, values.get(name, [DEFAULT_CONTEXT_LENGTH]), minimum=0)
        for name in POINT_AXES
        if name in values or name == "context_length"
    }
    settings = {name: single(name, values[name]) for name in SETTINGS if name in values}
    measured = settings.pop("measured_draft_length", None)
    form = forms[0]
    acceptance = Acceptance(**{form: values[form]}, measured_draft_length=measured)
    acceptance = acceptance.measured_at(points["draft_length"])
    deployments, skipped = _deployments(values, skip_impossible=skip_impossible)
    has_rate = form != _BY_POSITION
    plan = Plan(
        deployments=deployments,
        points=points,
        acceptance=acceptance,
        settings=settings | {"interval": interval},
        columns=columns_of(columns, values, interval=interval, has_rate=has_rate),
        skipped=skipped,
    )
    _check_points(plan)
    return plan


def blocks(shape: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Cut a grid into runs of consecutive points, whole along the last axes where they fit.

    Parameters
    ----------
    shape
        Of the grid [-].
    most
        Most points of a block [-].

    Yields
    ------
    tuple of slice
        One for each axis, in the order of the points.

    Examples
    --------
    >>> [tuple((s.start, s.stop) for s in block) for block in blocks((3, 2), 4)]
    [((0, 2), (0, 2)), ((2, 3), (0, 2))]
    """
    inner, stride = _cut(shape, most)
    whole = tuple(slice(0, size) for size in shape[inner:])
    if inner == 0:
        yield whole
        return
    for outer in itertools.product(*map(range, shape[: inner - 1])):
        fixed = tuple(slice(i, i + 1) for i in outer)
        size = shape[inner - 1]
        for start in range(0, size, stride):
            yield (*fixed, slice(start, min(start + stride, size)), *whole)


def _cut(shape: tuple[int, ...], most: int) -> tuple[int, int]:
    """Return from which axis on blocks are whole, and their size along the axis before it."""
    inner = len(shape)
    while inner > 0 and math.prod(shape[inner - 1 :]) <= most:
        inner -= 1
    return inner, most // math.prod(shape[inner:])


def _deployments(
    values: Mapping[str, list[Any]], *, skip_impossible: bool
) -> tuple[tuple[tuple[dict[str, Any], dict[str, Any]], ...], tuple[str, ...]]:
    """Return labels and records of each combination that can be, and why others cannot."""
    names = label_names(values)
    count = math.prod(len(values[name]) for name in names)
    if count > MOST_DEPLOYMENTS:
        raise InputError("deployments", count, f"at most {MOST_DEPLOYMENTS} combinations")
    found, skipped, errors = [], [], []
    axes = [list(zip(values[name], labels_of(values[name]), strict=True)) for name in names]
    for chosen in itertools.product(*axes):
        combination = {name: value for name, (value, _) in zip(names, chosen, strict=True)}
        labels = {name: label for name, (_, label) in zip(names, chosen, strict=True)}
        try:
            arguments = assemble(combination)
            deploy(**arguments)
        except InputError as error:
            if not skip_impossible:
                raise
            errors.append(error)
            skipped.append(f"{', '.join(map(str, labels.values()))}: {error}")
            continue
        found.append((ordered(labels), arguments))
    if not found:
        first = errors[0]
        raise InputError(first.argument, first.value, f"{first.expected}; no combination can be")
    return tuple(found), tuple(skipped)


def _check_points(plan: Plan) -> None:
    """Predict each value once, so that none is refused in the middle of a sweep.

    Beside its range, what a value may be depends on draft length, verify tokens and tokens per
    step only, and there the extremes decide.
    """
    firsts = (slice(0, 1),) * (len(plan.points) + 1)
    labels, arguments = plan.deployments[0]
    for place, size in enumerate(plan._shape):
        block = (*firsts[:place], slice(0, size), *firsts[place + 1 :])
        predict(**plan._part(labels, arguments, block).arguments | {"interval": False})
    if "verify_tokens" in plan.points:
        for part in _trees(plan).parts():
            predict(**part.arguments)
    for labels, arguments in plan.deployments:
        plan.acceptance.where_proposed(arguments["drafter"].proposal_rate)
        if plan.settings["interval"]:
            predict(**plan._part(labels, arguments, firsts).arguments)


def _trees(plan: Plan) -> Plan:
    """Return every draft length with every number of verify tokens and the extremes of the rest."""
    points = {
        name: np.unique(axis) if name in ("draft_length", "verify_tokens") else axis[:1]
        for name, axis in plan.points.items()
    }
    acceptance = plan.acceptance
    if acceptance.form != _BY_POSITION:
        extremes = {acceptance.form: np.unique([plan._rates.min(), plan._rates.max()])}
        acceptance = replace(acceptance, **extremes)
    settings = plan.settings | {"interval": False}
    first = plan.deployments[:1]
    return replace(plan, deployments=first, points=points, acceptance=acceptance, settings=settings)
