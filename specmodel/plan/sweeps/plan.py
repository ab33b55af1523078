"""Plan a sweep."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel import __version__
from specmodel.core.algebra.acceptance import FORMS, ONE_FOR_ALL, Acceptance
from specmodel.core.base.errors import InputError, nearest, refuse_unknown
from specmodel.core.base.naming import counted
from specmodel.core.base.records import Record, is_path
from specmodel.core.base.units import FloatArray, check
from specmodel.core.cost.deploying import DEFAULT_ENGINE
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.cost.usual import usual_drafter
from specmodel.core.cost.where import NAMES, RECORDS, Manner
from specmodel.core.prediction import case as cases, predicting
from specmodel.core.prediction.accepted import ACCEPTANCE, Accepted
from specmodel.core.prediction.columns import COLUMN_UNITS, COST, LOAD_COLUMNS, with_ends
from specmodel.core.prediction.evaluate import LOAD
from specmodel.core.prediction.intervals import MAX_POINTS as MOST_WITH_INTERVAL
from specmodel.core.prediction.outcome import Prediction

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
        arguments = {"draft_length": None, **self.arguments}
        price = arguments.pop("gpu_hour_price", None)
        found = predicting.predict_deployed(self.deployment, {}, **arguments)
        return predicting.priced(found, price)

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
    values, defaults = with_usual(axes)
    found, skipped = found_cases(values, skip_impossible=skip_impossible)
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
    shown = columns_of(columns, values, acceptance.form, interval=interval)
    if gpu_hour_price is not None:
        settings, shown = {**settings, "gpu_hour_price": gpu_hour_price}, (*shown, COST.name)
    deployments = tuple((labels, case.deployment) for labels, case in found)
    identity = identity_of(values, shown, settings, PART)
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
        why = "Only a sweep of one target and one drafter has defaults."
        expected = f"{' and '.join(lacking.values())}. {why}"
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
