"""What a sweep computes: every combination of the axes, cut into parts of a bounded size."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from specmodel.algebra.acceptance import FORMS, ONE_FOR_ALL, Acceptance
from specmodel.answers.sweeps.parameters import (
    POINT_AXES,
    SETTINGS,
    check_names,
    columns_of,
    identity,
    is_label,
    labels_of,
    listed,
    ordered,
    with_usual,
)
from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError
from specmodel.base.naming import counted
from specmodel.base.notes import Note
from specmodel.base.units import FloatArray, check
from specmodel.cost.deployment import Deployment
from specmodel.cost.memory import MemoryUse
from specmodel.cost.usual import usually_deployed
from specmodel.prediction.case import LONGEST_SEARCHED
from specmodel.prediction.evaluate import LOAD
from specmodel.prediction.intervals import MAX_POINTS as MOST_WITH_INTERVAL
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import (
    DEFAULT_CONTEXT_LENGTH,
    best_lengths,
    plain_points,
    predict_deployed,
    with_intervals,
)
from specmodel.prediction.priced import COST, priced

PART = 2**18
"""Most points of a part [-]: enough to hide the time of calls from Python, few enough for their
columns to take 20 MB."""
_LENGTHS_AT_ONCE = 16
"""Times as few points a part has where all draft lengths are tried at each [-]."""

MOST_DEPLOYMENTS = 100_000
"""Most combinations of targets, drafters, hardware and their settings [-]."""

_Labelled = tuple[tuple[dict[str, Any], Deployment], ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Part:
    """A piece of a sweep: one deployment on a block of the grid.

    `name` tells it from parts of all sweeps, `labels` are its constant columns, `arguments` the
    operating points and acceptance as `predict_deployed` takes them, `columns` those wanted beside
    the labels, `words` what a label may say in the whole sweep.
    """

    name: str
    is_first: bool
    labels: dict[str, Any]
    deployment: Deployment
    arguments: dict[str, Any]
    columns: tuple[str, ...]
    num_points: int
    words: Mapping[str, tuple[str, ...]]

    def predict(self, **changes: Any) -> Prediction:
        """Predict the points, with `changes` of arguments; `gpu_hour_price` adds the cost."""
        arguments = self.arguments | changes
        price = arguments.pop("gpu_hour_price", None)
        if "draft_length" in arguments:
            return priced(predict_deployed(self.deployment, {}, **arguments), price)
        acceptance, has_interval = arguments.pop("acceptance"), arguments.pop("interval")
        most, block = acceptance.max_draft_length, self.deployment.drafter.block_size
        most = min(most, arguments.pop("max_draft_length", LONGEST_SEARCHED), block or most)
        best = best_lengths(self.deployment, {}, acceptance, int(most), arguments)
        return priced(with_intervals(best) if has_interval else best, price)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """A sweep that was checked and not yet computed.

    Parameters
    ----------
    deployments, skipped
        Labels and deployment for each combination of the parameters that say what runs where; the
        combinations that are impossible, and why, one line each.
    axes, acceptance
        Axes of the grid that each deployment is computed on, outermost first: whole numbers, and
        last the rates of `acceptance`, or what they are solved from, unless it is one for all
        points [-]. Without a draft length each point takes its best one.
    settings, columns
        Arguments of `predict` that are the same for all points; columns beside the labels.
    defaults, identity
        What is taken for parameters that were not given, by their names; a text that no other
        sweep has, nor this one of another version of the package.
    """

    deployments: _Labelled
    axes: dict[str, FloatArray]
    acceptance: Acceptance
    settings: dict[str, Any]
    columns: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""

    @cached_property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """What each label says that is in words, each once."""
        labels = [labels for labels, _ in self.deployments]
        names = [name for name, value in labels[0].items() if isinstance(value, str)]
        return {name: tuple(dict.fromkeys(each[name] for each in labels)) for name in names}

    @property
    def num_points(self) -> int:
        """Operating points [-]."""
        return len(self.deployments) * math.prod(axis.size for axis in self.axes.values())

    @property
    def num_parts(self) -> int:
        """Parts that the sweep is cut into [-]."""
        return len(self.deployments) * sum(1 for _ in self._blocks())

    @property
    def num_fitting(self) -> int:
        """Operating points that fit in memory, without predicting them [-]."""
        count = 0
        for part in self.parts():
            points = part.arguments
            plain, _ = plain_points(1, *map(points.get, ("context_length", *LOAD)))
            # no best draft takes room that a decode step does not have
            verified = points.get("verify_tokens", points.get("draft_length", np.zeros(1)) + 1)
            memory = MemoryUse(part.deployment, plain["context_length"], verified)
            fits = points["batch_size"] <= memory.max_batch_size
            count += int(fits.sum()) * (part.num_points // fits.size)
        return count

    def graph_notes(self) -> Iterator[Note]:
        """Give what `predict` says of CUDA graphs.

        Of large sweeps with typed draft lengths, what holds whether a row fits in memory or not;
        nothing of other large ones.
        """
        is_small = len(self.deployments) <= 100 and self.num_points <= PART
        return self._graphs_of_rows() if is_small else self._graphs_of_axes()

    def _graphs_of_rows(self) -> Iterator[Note]:
        for part in self.parts():
            e = part.predict(interval=False).evaluation
            sizes, tokens, fits, may_be_longer = np.broadcast_arrays(
                *(e.points[name] for name in ("batch_size", "verify_tokens")),
                e.points["batch_size"] <= e.memory.max_batch_size,
                e.points["draft_length"] < e.max_draft_length,
            )
            yield from part.deployment.graph_warnings(sizes[fits], tokens[fits])
            held = fits & may_be_longer & ("draft_length" not in self.axes)
            if note := part.deployment.graph_note(sizes[held], tokens[held]):
                yield note

    def _graphs_of_axes(self) -> Iterator[Note]:
        sizes, lengths = self.axes["batch_size"], self.axes.get("draft_length", np.zeros(0))
        tokens = self.axes.get("verify_tokens", lengths + 1)
        if 0 < sizes.size * tokens.size <= PART:
            for _, deployment in self.deployments[:100]:
                yield from deployment.graph_warnings(sizes, tokens[:, np.newaxis])

    def _blocks(self) -> Iterator[tuple[slice, ...]]:
        most = PART if "draft_length" in self.axes else max(1, PART // _LENGTHS_AT_ONCE)
        most = MOST_WITH_INTERVAL if self.settings["interval"] else most
        return blocks([axis.size for axis in self.axes.values()], most)

    def parts(self) -> Iterator[Part]:
        """Give the pieces in the order of the rows."""
        places = ((each, block) for each in self.deployments for block in self._blocks())
        for number, ((labels, deployment), block) in enumerate(places):
            cut = [axis[piece] for axis, piece in zip(self.axes.values(), block, strict=True)]
            grid = np.meshgrid(*cut, indexing="ij", sparse=True)
            points: dict[str, Any] = dict(zip(self.axes, grid, strict=True))
            form, acceptance = self.acceptance.form, self.acceptance
            if form in points:
                acceptance = replace(acceptance, **{form: points.pop(form).ravel()})
            yield Part(
                name=f"part-{number:06}-{self.identity}",
                is_first=number == 0,
                labels=labels,
                deployment=deployment,
                arguments={**self.settings, **points, "acceptance": acceptance},
                columns=self.columns,
                num_points=math.prod(axis.size for axis in cut),
                words=self.words,
            )


def plan_sweep(
    axes: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    interval: bool = False,
    skip_impossible: bool = False,
    gpu_hour_price: float | None = None,
) -> Plan:
    """Check a sweep and return what it will compute.

    Parameters
    ----------
    axes
        One value or a list of values for each parameter: those of `predict`, draft_length left out
        for the best of each point, acceptance as one of acceptance_rate, tokens_per_step,
        step_efficiency, accepted_fraction, acceptance_by_context (with measured_draft_length) and
        acceptance_by_position;
        proposal_rate, lookup_time, popularity_exponent; and, with a dot, fields of hardware,
        engine, target and drafter, such as hardware.memory.peak_bytes_per_s. Of one model the
        drafter is by default its usual one, and acceptance what is published of the two; GPUs are
        the fewest that hold a combination unless they are counted (``2xh100``) or have degrees.
    columns
        Columns wanted beside those of the parameters, which always come: `DEFAULT_COLUMNS` by
        default, "all" for every one.
    interval, skip_impossible
        Whether to add central 80 % intervals, at some 10,000 points a second; whether to leave out
        impossible combinations, such as a dtype on a GPU without a peak for it, instead of refusing
        the sweep.
    gpu_hour_price
        Price of a GPU for an hour, for a column of what a million tokens of output cost [-].

    Returns
    -------
    Plan
        Rows run over the parameters of deployments in the order given, the first slowest, then
        over lengths of prompts and outputs, context length, batch size, draft length, verify
        tokens, acceptance.

    Examples
    --------
    >>> plan = plan_sweep({"target": ["mixtral-8x7b", "olmoe-1b-7b"], "hardware": "h100_sxm",
    ...                    "drafter": "ngram", "batch_size": range(1, 129), "draft_length": [1, 3],
    ...                    "acceptance_rate": [0.3, 0.5, 0.7]})
    >>> plan.num_points, plan.num_parts
    (1536, 2)
    """
    values = {name: listed(name, value) for name, value in axes.items() if value is not None}
    check_names(values)
    values, defaults = with_usual(values)
    settings = {name: values[name][0] for name in SETTINGS if name in values}
    measured = settings.pop("measured_draft_length", None)
    forms: dict[str, Any] = {name: values.get(name) for name in FORMS}
    acceptance = Acceptance(**forms, measured_draft_length=measured)
    grid = {
        name: check(name, values.get(name, [DEFAULT_CONTEXT_LENGTH]), minimum=0, whole=True)
        for name in POINT_AXES
        if name in values or (name == "context_length" and not values.keys() & {*LOAD})
    }
    acceptance = acceptance.measured_at(grid.get("draft_length", [1, 2]))
    if acceptance.form not in ONE_FOR_ALL:
        grid[acceptance.form] = check(acceptance.form, values[acceptance.form])
    settings |= {"interval": interval}
    settings |= {} if gpu_hour_price is None else {"gpu_hour_price": gpu_hour_price}
    deployments, skipped = _deployments(values, skip_impossible=skip_impossible)
    shown = columns_of(columns, values, interval=interval)
    plan = Plan(
        deployments=deployments,
        axes=grid,
        acceptance=acceptance,
        settings=settings,
        columns=shown if gpu_hour_price is None else (*shown, COST.name),
        skipped=skipped,
        defaults=defaults,
        identity=identity(values, shown, settings, PART),
    )
    _check_points(plan)
    return plan


def blocks(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Cut a grid into runs of at most so many consecutive points, in their order."""
    cuts = []
    for place, size in enumerate(shape):
        stride = max(1, most // math.prod(shape[place + 1 :]))
        starts = range(0, size, stride)
        cuts.append([slice(start, min(start + stride, size)) for start in starts])
    return itertools.product(*cuts)


def _deployments(
    values: Mapping[str, list[Any]], *, skip_impossible: bool
) -> tuple[_Labelled, tuple[str, ...]]:
    """Return labels and deployment of each possible combination, and why others are impossible."""
    names = [name for name in values if is_label(name)]
    count = math.prod(len(values[name]) for name in names)
    if count > MOST_DEPLOYMENTS:
        raise InputError("deployments", count, f"at most {MOST_DEPLOYMENTS} combinations")
    deployments, skipped = [], []
    combinations = itertools.product(*(values[name] for name in names))
    labelled = itertools.product(*(labels_of(values[name]) for name in names))
    for chosen, words in zip(combinations, labelled, strict=True):
        try:
            given = dict(zip(names, chosen, strict=True))
            deployment, _ = usually_deployed({"may_not_fit": True, **given})
        except InputError as error:
            if not skip_impossible:
                raise
            skipped.append((", ".join(map(str, words)), error))
            continue
        labels = dict(zip(names, words, strict=True))
        labels["hardware"] = counted(labels["hardware"])[1]
        labels["num_gpus"] = deployment.layout.num_gpus
        deployments.append((ordered(labels), deployment))
    if not deployments:
        _, first = skipped[0]
        raise InputError(first.argument, first.value, f"{first.expected}; no combination works")
    return tuple(deployments), tuple(f"{labels}: {error}" for labels, error in skipped)


def _check_points(plan: Plan) -> None:
    """Predict the extremes of all axes with each other, so that no value is refused later.

    Points are whole numbers by now. Whether one can be predicted depends on ranges only, its own or
    together with other axes: no more tokens are emitted in a step than were drafted, plus one; and
    of deployments on what is refused of some.
    """
    kinds: dict[Any, Any] = {}
    for labels, d in plan.deployments:
        kind = d.recurrent_model is None, d.tree_width, d.drafter.proposal_rate
        kinds.setdefault((*kind, d.kernels.record is None), (labels, d))
    ends = {name: np.unique([axis.min(), axis.max()]) for name, axis in plan.axes.items()}
    for part in replace(plan, deployments=tuple(kinds.values()), axes=ends).parts():
        part.predict()
