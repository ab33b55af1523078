"""Analyse what one operating point depends on: elasticities, tornado, Sobol' indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.facts import Fact
from specmodel.core.base.notes import Note
from specmodel.core.base.text import Viewed
from specmodel.core.base.units import FloatArray, check, single
from specmodel.core.cost.arguments import CaseArguments
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.case import Case, case_of
from specmodel.core.prediction.cautions import notes_of_run
from specmodel.core.prediction.predicting import DEFAULT_CONTEXT_LENGTH, at_best_lengths
from specmodel.plan.sensitivity.indices import NO_VARIATION, sobol_indices
from specmodel.plan.sensitivity.inputs import (
    OUTPUTS,
    Input,
    OperatingPoint,
    evaluate,
    find_input,
    list_inputs,
)
from specmodel.plan.sensitivity.uncertainty import Range, Ranges, uncertain_ranges

if TYPE_CHECKING:
    import pandas as pd

_ONE = "one value, as one point is analysed"
_POINT = ("batch_size", "draft_length", "context_length")
_MOST_NAMED = 15
"""Inputs with the largest elasticities that are named if they have no range [-]."""
_STEP = 1e-5
"""Relative step of differences [-]. Rounding causes an error of about 1e-16 / step, and curvature
one of about step^2; they are equal near the cube root of 1e-16."""


class Sensitivity(Viewed, Struct, frozen=True, kw_only=True, eq=False):
    """Three analyses of one operating point, and their inputs.

    Parameters
    ----------
    deployment, assumptions, point
        Deployment, assumptions about it, and operating point.
    outcome, ranges
        The prediction at the point [-], and the ranges of uncertain inputs.
    elasticities, swings, indices
        The tables of `elasticities`, `tornado` and `sobol`.
    samples, fits, warnings
        Samples of the variance analysis [-]; whether the point fits in memory; warnings.
    """

    room = "planned:sensitivity"

    deployment: Deployment
    assumptions: dict[str, Any]
    point: OperatingPoint
    outcome: dict[str, float]
    ranges: dict[str, Range]
    elasticities: pd.DataFrame
    swings: pd.DataFrame
    indices: pd.DataFrame
    samples: int
    fits: bool
    warnings: tuple[Note, ...]

    def tidy(self) -> pd.DataFrame:
        """Return all three analyses as one tidy table."""
        import pandas as pd

        elasticities, swings = (t.drop(columns="value") for t in (self.elasticities, self.swings))
        tables = [
            ("elasticity", elasticities.melt("input", [*self.outcome], "output")),
            ("tornado", swings.melt(["input", "unit", "source"], ["low", "high"], "quantity")),
        ]
        for output in self.outcome:
            ends = {f"{output}_{end}": end for end in ("at_low", "at_high", "nominal")}
            table = swings.rename(columns=ends).melt("input", [*ends.values()], "quantity")
            tables.append(("tornado", table.assign(output=output)))
        tables.append(("sobol", self.indices.melt(["input", "output"], var_name="quantity")))
        point = {name: getattr(self.point, name) for name in _POINT}
        whole = pd.concat([table.assign(analysis=name, **point) for name, table in tables])
        columns = ["analysis", *_POINT, "input", "output", "quantity", "value", "unit", "source"]
        defaults = {"output": "", "quantity": "elasticity", "unit": "-"}
        return whole.fillna(defaults)[columns].reset_index(drop=True)


def sensitivity_facts(found: Sensitivity) -> dict[str, Fact]:
    """Return the outcome, the point, and the inputs with the largest effect on the speedup.

    Parameters
    ----------
    found
        The analyses, as `analyse` returns them.
    """
    facts = {name: Fact(value) for name, value in found.outcome.items()}
    facts |= {name: Fact(getattr(found.point, name)) for name in _POINT}
    swing = found.swings.iloc[0]
    facts["moves_most"] = Fact(swing["input"])
    facts["moves_most_low"] = Fact(float(swing["speedup_at_low"]))
    facts["moves_most_high"] = Fact(float(swing["speedup_at_high"]))
    decided = found.indices[found.indices["output"] == "speedup"]
    if len(decided):
        first = decided.sort_values("first_order", ascending=False, kind="stable").iloc[0]
        facts["decides_most"] = Fact(first["input"])
        # an estimate may exceed 1
        facts["decides_most_share"] = Fact(min(float(first["first_order"]), 1.0))
    names = found.elasticities["input"][:_MOST_NAMED]
    facts["without_range"] = Fact([name for name in names if name not in found.ranges])
    return facts | {"samples": Fact(found.samples)}


class PointArguments(CaseArguments, total=False):
    """Arguments of `analyse`, in addition to `CaseArguments`.

    Parameters
    ----------
    draft_length, context_length
        Draft length of the point, by default the best one, and its context [token].
    """

    draft_length: int | None
    context_length: int | None


def analyse(
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    *,
    batch_size: int = 16,
    samples: int = 1024,
    seed: int = 0,
    **arguments: Unpack[PointArguments],
) -> Sensitivity:
    """Analyse how the speedup at one point depends on its inputs.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`.
    ranges
        Ranges of inputs, as `given` of `analyse_case` [-].
    batch_size
        Sequences decoded together [request].
    samples, seed
        Samples of the variance analysis, a power of two [-]; seed of all random draws [-].
    **arguments
        The arguments of `PointArguments`.

    Examples
    --------
    >>> answer = analyse("qwen3-30b-a3b", "h200", acceptance=0.7, draft_length=3, samples=64)
    >>> sorted(answer.outcome)
    ['speedup', 'target_efficiency']
    """
    where = {"target": target, "hardware": hardware, "batch_size": batch_size}
    return analyse_case(case_of({**arguments, **where}), ranges or {}, samples=samples, seed=seed)


def analyse_case(
    case: Case, given: Mapping[str, tuple[float, float]], *, samples: int = 1024, seed: int = 0
) -> Sensitivity:
    """Return the sensitivity of speedup and target efficiency at the one point of a case.

    Parameters
    ----------
    case
        One point, with the best draft length if none is given.
    given
        Both ends of inputs' ranges, by name, in the unit of each input. Other inputs have the
        ranges of `uncertain_ranges` [-].
    samples, seed
        As in `analyse` [-].
    """
    seed = int(single("seed", check("seed", seed, minimum=0, whole=True), _ONE))
    deployment, acceptance = case.deployment, case.known_acceptance
    assumed, found = {**case.assumed}, {**case.points, "draft_length": case.lengths}
    values: dict[str, Any] = {name: single(name, found.get(name), _ONE) for name in _POINT}
    if values["context_length"] is None:
        values["context_length"] = assumed["context_length"] = DEFAULT_CONTEXT_LENGTH
    if acceptance.source:
        assumed["acceptance"] = acceptance.source
    if values["draft_length"] is None:
        best = int(at_best_lengths(case).draft_length.item())
        values["draft_length"] = best or 1
        told = "the best at this batch size" if best else "the shortest, as no length pays here"
        assumed["draft_length"] = f"{best or 1} ({told})"
    point = OperatingPoint(**values, acceptance=acceptance)
    ranges = uncertain_ranges(deployment, point, given)
    swings = tornado(deployment, point, ranges)
    outputs = varying_outputs(swings)
    if not outputs:
        expected = "These ranges change no output. Give wider ranges or other inputs."
        raise InputError("range", list(ranges), expected)
    generator = np.random.default_rng(seed)
    memory = MemoryUse(deployment, point.context_length, point.draft_length + 1)
    size = np.asarray(point.batch_size)
    outcome, run = evaluate(deployment, point, {}), notes_of_run(deployment, point.context_length)
    return Sensitivity(
        deployment=deployment,
        assumptions=dict(assumed),
        point=point,
        outcome={name: value.item() for name, value in outcome.items()},
        ranges=ranges,
        elasticities=elasticities(deployment, point),
        swings=swings,
        indices=sobol(
            *(deployment, point, ranges), outputs=outputs, samples=samples, generator=generator
        ),
        samples=samples,
        fits=bool(np.all(size <= memory.max_batch_size)),
        warnings=(*run, *memory.warnings(size)),
    )


def elasticities(deployment: Deployment, point: OperatingPoint) -> pd.DataFrame:
    """Return the per cent by which the outcome rises if an input rises by one per cent.

    This is ``d ln(output) / d ln(input)`` by central differences. Differences are one-sided at a
    bound of the input, and at a jump: where more requests or tokens would exceed CUDA graphs. Draft
    length counts as continuous. Its slope jumps at whole lengths. The result there is the mean of
    both slopes, and at length 1 the slope above it.

    Parameters
    ----------
    deployment, point
        Deployment and operating point.

    Returns
    -------
    DataFrame
        A row for each input that is not 0 and can vary, the largest effect on the speedup first.
        Columns are input, value, unit and the logarithmic derivative of each of `OUTPUTS`.
    """
    known = list_inputs(deployment, point).values()
    items = [_within_graphs(deployment, point, item) for item in known if item.value > 0]
    items = [item for item in items if item.minimum is None or item.minimum < item.maximum]
    values = np.log([item.value for item in items])
    bounds = np.array([(item.minimum or 0.0, item.maximum) for item in items]).T[..., None]
    with np.errstate(divide="ignore"):  # without a bound, it is 0 or infinite
        low, high = np.log(bounds[..., 0])
    # the middle of the three points moves away from a bound
    logs = np.clip(values, low + _STEP, high - _STEP)
    centres = logs - values
    moved = np.clip(np.exp(logs[:, None] + _STEP * np.array([-1.0, 0.0, 1.0])), *bounds)
    outcome = _one_at_a_time(deployment, point, items, moved)
    slopes = {name: _slope(np.log(values), centres) for name, values in outcome.items()}
    table = _table(items).assign(**slopes)
    return _largest_first(table, table["speedup"])


def tornado(deployment: Deployment, point: OperatingPoint, ranges: Ranges) -> pd.DataFrame:
    """Return the outcome at both ends of each input's range, one input at a time.

    Parameters
    ----------
    deployment, point, ranges
        Deployment; operating point, whose values other inputs keep; and ranges by name, as
        `uncertain_ranges` returns them.

    Returns
    -------
    DataFrame
        A row for each input, the largest swing of the speedup first. Columns are input, value,
        unit, low, high, source and, for each of `OUTPUTS`, ``<output>_at_low``,
        ``<output>_at_high`` and, with no input changed, ``<output>_nominal``.
    """
    items = _inputs_of(deployment, point, ranges)
    ends = [span.ends for span in ranges.values()]
    table = _table(items)
    table[["low", "high"]] = ends
    table["source"] = [span.source for span in ranges.values()]
    for name, values in _one_at_a_time(deployment, point, items, np.array(ends)).items():
        table[f"{name}_at_low"], table[f"{name}_at_high"] = values.T
    for name, nominal in evaluate(deployment, point, {}).items():
        table[f"{name}_nominal"] = nominal.item()
    return _largest_first(table, table["speedup_at_high"] - table["speedup_at_low"])


def sobol(
    deployment: Deployment,
    point: OperatingPoint,
    ranges: Ranges,
    *,
    samples: int,
    generator: np.random.Generator,
    outputs: Sequence[str] = OUTPUTS,
) -> pd.DataFrame:
    """Return the share of the outcome's variance that each uncertain input explains.

    Parameters
    ----------
    deployment, point, ranges, generator
        As for `tornado`, with inputs that vary independently, and the generator of the draws.
    samples, outputs
        A power of two; the outcome is evaluated at ``samples * (inputs + 2)`` points [-]. Some of
        `OUTPUTS`, all of which must vary over the ranges.

    Returns
    -------
    DataFrame
        A row for each output and input, the largest total of each output first. Columns are input,
        output, first_order, total, and the ends of their 95 % bootstrap intervals
        (``first_order_low`` and so on).
    """
    import pandas as pd

    inputs = {item.name: item for item in _inputs_of(deployment, point, ranges)}
    if not outputs or set(outputs) - set(OUTPUTS):
        raise InputError("outputs", list(outputs), f"some of {', '.join(OUTPUTS)}")

    def function(values: FloatArray) -> FloatArray:
        outcome = evaluate(deployment, point, dict(zip(inputs, values, strict=True)), inputs)
        return np.stack([outcome[name] for name in outputs])

    indices = sobol_indices(
        function, list(ranges.values()), samples=samples, generator=generator, outputs=outputs
    )
    tables = []
    for i, output in enumerate(outputs):
        columns = {name: values[i] for name, values in asdict(indices).items()}
        table = pd.DataFrame({"input": list(inputs), "output": output, **columns})
        tables.append(_largest_first(table, table["total"]))
    return pd.concat(tables, ignore_index=True)


def varying_outputs(swings: pd.DataFrame) -> list[str]:
    """Return the names in `OUTPUTS` of the outputs that at least one row of a `tornado` changes.

    Parameters
    ----------
    swings
        The table that `tornado` returns.
    """
    swing = {n: swings[f"{n}_at_high"] / swings[f"{n}_at_low"] - 1 for n in OUTPUTS}
    return [name for name, moved in swing.items() if moved.abs().max() > NO_VARIATION]


def _inputs_of(deployment: Deployment, point: OperatingPoint, ranges: Ranges) -> list[Input]:
    """Return the inputs that have ranges; refuse an empty mapping."""
    if not ranges:
        raise InputError("ranges", {}, "at least one range; uncertain_ranges returns some")
    known = list_inputs(deployment, point)
    return [find_input(known, name, "ranges") for name in ranges]


def _one_at_a_time(
    deployment: Deployment, point: OperatingPoint, items: list[Input], values: FloatArray
) -> dict[str, FloatArray]:
    """Return the outputs if one input at a time has its row of values and the others stay."""
    columns = {}
    for row, item in enumerate(items):
        column = np.full(values.shape, item.value)
        column[row] = values[row]
        columns[item.name] = column.ravel()
    outcome = evaluate(deployment, point, columns)
    return {name: column.reshape(values.shape) for name, column in outcome.items()}


def _table(items: Iterable[Input]) -> pd.DataFrame:
    """Return a table with name, value and unit of each input."""
    import pandas as pd

    rows = [(item.name, item.value, item.unit) for item in items]
    return pd.DataFrame(rows, columns=["input", "value", "unit"])


def _within_graphs(deployment: Deployment, point: OperatingPoint, item: Input) -> Input:
    """Return an input; its maximum is its value if a larger one would exceed CUDA graphs."""
    now = {"batch_size": point.batch_size, "draft_length": point.draft_length}
    limit, replicas = deployment.graph_limit, deployment.layout.replicas
    if limit is None or item.name not in now:
        return item
    is_beyond = []
    for place in (now, now | {item.name: item.value * (1 + _STEP)}):
        size, length = map(np.asarray, place.values())
        is_beyond.append(limit.is_beyond(size, size * np.array([1, length + 1]), replicas))
    before, after = is_beyond
    return replace(item, maximum=item.value) if (after & ~before).any() else item


def _slope(logs: FloatArray, centres: FloatArray) -> FloatArray:
    """Return the slope at a value of the parabola through three points.

    `centres` is the distance of the middle point from the value: 0 except for inputs at a bound.
    """
    below, middle, above = logs.T
    bend = (above - 2 * middle + below) / _STEP**2
    return np.asarray((above - below) / (2 * _STEP) - centres * bend)


def _largest_first(table: pd.DataFrame, effect: pd.Series[float]) -> pd.DataFrame:
    order = np.argsort(-np.abs(effect.to_numpy()), kind="stable")
    return table.iloc[order].reset_index(drop=True)
