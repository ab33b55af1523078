"""Plan a sweep: every combination of lists, split into parts of limited size."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.acceptance import FORMS, ONE_FOR_ALL, Acceptance
from specmodel.core.base.units import FloatArray, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.prediction import case as cases, predicting
from specmodel.core.prediction.evaluate import LOAD
from specmodel.core.prediction.intervals import MAX_POINTS as MOST_WITH_INTERVAL
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.priced import COST, priced
from specmodel.plan.sweeps import parameters
from specmodel.plan.sweeps.parameters import POINT_AXES

FIRST = "part-000000"
"""Beginning of the first part's name."""
PART = 2**18
"""Most points of a part [-]: so many that Python's calls need little time, and so few that their
columns need only 20 MB."""
_LENGTHS_AT_ONCE = 16
"""Factor by which parts have fewer points if each point tries all draft lengths [-]."""


class Part(Struct, frozen=True, eq=False):
    """A piece of a sweep: one deployment on a block of the grid.

    `name` identifies the part among all sweeps. `labels` are its constant columns, and `words` all
    values of text labels in the sweep. `columns` are the other columns. `arguments` are operating
    points and acceptance, as for `predict_deployed`.
    """

    name: str
    num_points: int
    labels: dict[str, Any]
    words: Mapping[str, tuple[str, ...]]
    columns: tuple[str, ...]
    deployment: Deployment
    arguments: dict[str, Any]

    def predict(self) -> Prediction:
        """Predict the points; `gpu_hour_price` among the arguments adds the cost."""
        arguments = {**self.arguments}
        price = arguments.pop("gpu_hour_price", None)
        if "draft_length" in arguments:
            return priced(predicting.predict_deployed(self.deployment, {}, **arguments), price)
        acceptance, has_interval = arguments.pop("acceptance"), arguments.pop("interval")
        most, block = acceptance.max_draft_length, self.deployment.drafter.block_size
        longest = arguments.pop("max_draft_length", cases.LONGEST_SEARCHED)
        longest = int(min(most, longest, block or most))
        best = predicting.best_lengths(self.deployment, {}, acceptance, longest, arguments)
        return priced(predicting.with_intervals(best) if has_interval else best, price)

    def fitting(self) -> int:
        """Return how many of the points fit in memory, without a prediction [-]."""
        points = self.arguments
        given = (points.get(name) for name in ("context_length", *LOAD))
        plain, _ = predicting.plain_points(points["batch_size"], *given)
        # a best draft fits wherever a decode step fits
        verified = points.get("verify_tokens", points.get("draft_length", np.zeros(1)) + 1)
        memory = MemoryUse(self.deployment, plain["context_length"], verified)
        fits = plain["batch_size"] <= memory.max_batch_size
        return int(fits.sum()) * (self.num_points // fits.size)

    def column(self, prediction: Prediction, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a column of the prediction, or an end of its interval; its axes may be short."""
        if name == "acceptance_rate":  # NaN for trees
            acceptance, is_chain = prediction.evaluation.acceptance, prediction.evaluation.is_chain
            return np.where(is_chain, acceptance.rate() if is_chain.any() else np.nan, np.nan)
        stem, _, end = name.rpartition("_")
        interval = (prediction.intervals or {}).get(stem)
        return np.asarray(getattr(interval, end)) if interval else prediction.value(name)


class Plan(Struct, frozen=True, eq=False, dict=True):
    """A sweep that is checked but not yet computed.

    Parameters
    ----------
    deployments, skipped
        Labels and deployment for each combination of the parameters of deployments. The impossible
        combinations with the reason, one line each.
    axes, acceptance
        Axes of each deployment's grid, outermost first: whole numbers, and last the values of
        `acceptance`, unless all points share one [-]. Without a draft length, each point has its
        best one.
    settings, columns
        Arguments of `predict` that all points share; columns in addition to the labels.
    defaults, identity
        Default values of parameters, by name. A text unique to this sweep and this version of the
        package.
    """

    deployments: tuple[tuple[dict[str, Any], Deployment], ...]
    axes: dict[str, FloatArray]
    acceptance: Acceptance
    settings: dict[str, Any]
    columns: tuple[str, ...]
    skipped: tuple[str, ...]
    defaults: Mapping[str, str]
    identity: str

    @property
    def num_points(self) -> int:
        """Number of operating points [-]."""
        return len(self.deployments) * math.prod(axis.size for axis in self.axes.values())

    def parts(self) -> Iterator[Part]:
        """Yield the parts in the order of the rows."""
        most = PART if "draft_length" in self.axes else max(1, PART // _LENGTHS_AT_ONCE)
        most = MOST_WITH_INTERVAL if self.settings["interval"] else most
        every, cuts = [labels for labels, _ in self.deployments], list[list[Any]]()
        names = [name for name, value in every[0].items() if isinstance(value, str)]
        words = {name: tuple(dict.fromkeys(labels[name] for labels in every)) for name in names}
        stride = most  # the points of a block are consecutive
        for axis in reversed(self.axes.values()):
            size = max(1, min(stride, axis.size))
            cuts.insert(0, [axis[start : start + size] for start in range(0, axis.size, size)])
            stride //= axis.size
        form, places = self.acceptance.form, itertools.product(self.deployments, *cuts)
        for number, ((labels, deployment), *cut) in enumerate(places):
            grid = np.meshgrid(*cut, indexing="ij", sparse=True)
            points = {"acceptance": self.acceptance, **dict(zip(self.axes, grid, strict=True))}
            if form in points:
                rates = {form: points.pop(form).ravel()}
                points["acceptance"] = replace(self.acceptance, **rates)
            name, arguments = f"part-{number:06}-{self.identity}", {**self.settings, **points}
            size, of = math.prod(map(len, cut)), (words, self.columns)
            yield Part(name, size, labels, *of, deployment, arguments)


def plan_sweep(
    axes: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    interval: bool = False,
    skip_impossible: bool = False,
    gpu_hour_price: float | None = None,
) -> Plan:
    """Check a sweep and return its plan.

    Parameters
    ----------
    axes
        One value or a list of values for each parameter. Parameters are those of `predict`;
        proposal_rate, lookup_time, popularity_exponent; and, with a dot, fields of hardware,
        engine, target and drafter, such as hardware.memory.peak_bytes_per_s. Acceptance has one of
        the forms acceptance_rate, tokens_per_step, step_efficiency, accepted_fraction,
        acceptance_by_context (with measured_draft_length) and acceptance_by_position. Without
        draft_length, each point has its best one. For one model, the default is its usual drafter
        with their published acceptance. The number of GPUs is the smallest that fits, unless you
        give it (``2xh100``) or degrees.
    columns
        Columns in addition to the parameters: `DEFAULT_COLUMNS` by default, "all" for every column.
    interval, skip_impossible
        Whether to add central 80 % intervals, at some 10,000 points per second. Whether to skip
        impossible combinations, such as a dtype that the GPU does not support, instead of raising
        an error.
    gpu_hour_price
        Price of a GPU for an hour, for a column with the cost of a million output tokens [-].

    Returns
    -------
    Plan
        The sweep. Rows vary the parameters of deployments in the given order, the first slowest.
        Faster than these vary, in this order, lengths of prompts and outputs, context length, batch
        size, draft length, verify tokens, and acceptance.

    Examples
    --------
    >>> plan = plan_sweep({"target": ["mixtral-8x7b", "olmoe-1b-7b"], "hardware": "h100_sxm",
    ...                    "drafter": "ngram", "batch_size": range(1, 129), "draft_length": [1, 3],
    ...                    "acceptance_rate": [0.3, 0.5, 0.7]})
    >>> plan.num_points, len([*plan.parts()])
    (1536, 2)
    """
    values, defaults = parameters.with_usual(axes)
    found, skipped = parameters.found_cases(values, skip_impossible=skip_impossible)
    first = found[0][1]
    acceptance = first.accepted.taken(first.deployment, first.where)
    acceptance = acceptance or first.known_acceptance
    if not values.keys() & {*FORMS}:
        defaults["acceptance"] = acceptance.source
        acceptance = Acceptance(acceptance_by_position=acceptance.acceptance_by_position)
    if "draft_length" not in values:
        defaults["draft_length"] = "the best of each row"
    if not values.keys() & {*LOAD}:
        values = {"context_length": [predicting.DEFAULT_CONTEXT_LENGTH], **values}
    grid = {n: check(n, values[n], minimum=0, whole=True) for n in POINT_AXES if n in values}
    acceptance = acceptance.measured_at(grid.get("draft_length", [1, 2]))
    if acceptance.form not in ONE_FOR_ALL:
        grid[acceptance.form] = check(acceptance.form, values[acceptance.form])
    settings: dict[str, Any] = {"interval": interval}
    settings |= {name: values[name][0] for name in ("max_draft_length",) if name in values}
    shown = parameters.columns_of(columns, values, acceptance.form, interval=interval)
    if gpu_hour_price is not None:
        settings, shown = {**settings, "gpu_hour_price": gpu_hour_price}, (*shown, COST.name)
    deployments = tuple((labels, case.deployment) for labels, case in found)
    identity = parameters.identity_of(values, shown, settings, PART)
    plan = Plan(deployments, grid, acceptance, settings, shown, skipped, defaults, identity)
    _check_points(plan)
    return plan


def _check_points(plan: Plan) -> None:
    """Predict the extremes of all axes, combined with each other, to refuse bad values at once.

    The extremes suffice, as predictions refuse only values outside a range. The range may depend on
    other axes: a step emits at most one token more than it drafts. Each kind of deployment that
    refuses other values is checked.
    """
    kinds: dict[Any, Any] = {}
    for labels, d in plan.deployments:
        kind = d.recurrent_model is None, d.tree_width, d.drafter.proposal_rate
        kinds.setdefault((*kind, d.kernels.record is None), (labels, d))
    ends = {name: np.unique([axis.min(), axis.max()]) for name, axis in plan.axes.items()}
    for part in replace(plan, deployments=tuple(kinds.values()), axes=ends).parts():
        part.predict()
