"""Leave each development model out of every choice that used decode times, and judge it.

Usage: python calibration/left_out.py FILE. FILE is a table of measured engines in the form that
`specmodel fit check --serving` reads. Each choice has alternatives. For each model, each choice is
made again with the smallest mean error over the other models, and the spread of a deployment is
fitted to them. The left-out model is then predicted. The script prints the choices and errors.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace

from ledger import contradicted
from popularity import SPREAD
from specmodel.calibrate.fit.measured import ServingTable, judge_serving, read_serving
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.core.base.units import FloatArray
from spread import fit_spread, least_spreads, without_engine

LOAD = ("prompt_length", "output_length", "lockstep")
"""Points of a row without which no step carries prefill."""

Change = Callable[[Served], Mapping[str, Any]]
"""Changes of an alternative to the deployment of a row; None removes a name."""


class Choice(NamedTuple):
    """Something that was chosen with decode times in sight: the alternatives, what ships first."""

    name: str
    alternatives: Mapping[str, Change]


def of_dtype(dtype: str, engine: str | None = None, **changes: Any) -> Change:
    """Return changes of rows of a dtype, of one engine or of all."""

    def change(row: Served) -> Mapping[str, Any]:
        is_one = row.labels["dtype"] == dtype and engine in (None, row.labels["engine"])
        return changes if is_one else {}

    return change


def of_all(**changes: Any) -> Change:
    """Return the same changes of all rows."""
    return lambda row: changes


def popularity(spread: float) -> Change:
    """Return how unequally experts are used, where there are any to choose from."""

    def change(row: Served) -> Mapping[str, Any]:
        is_moe = row.deployment["target"] in ("deepseek-r1", "minimax-m2.5")
        return {SPREAD: spread} if is_moe else {}

    return change


CHOICES = (
    Choice("spread of popularity", {str(s): popularity(s) for s in (0.0, 0.7, 1.3)}),
    Choice(
        "shared experts", {"beside": of_all(), "in turn": of_all(**{"engine.shared_beside": ()})}
    ),
    Choice(
        "kernels",
        {
            "of the engine": of_all(),
            "typical": of_all(stack="typical"),
            "the profile's first": of_all(stack=None),
        },
    ),
    Choice(
        "cache in fp8 checkpoints, TensorRT-LLM",
        {"as told": of_all(), "16 bits": of_dtype("fp8", "trtllm", kv_dtype="bf16")},
    ),
    Choice(
        "cache in fp4 checkpoints",
        {"8 bits": of_all(), "16 bits": of_dtype("fp4", kv_dtype="bf16")},
    ),
    Choice(
        "attention of MoEs in fp4 checkpoints",
        {"16 bits": of_all(), "4 bits": of_dtype("fp4", **{"target.attention_dtype": "fp4"})},
    ),
    Choice("prefill of others", {"carried": of_all(), "none": of_all()}),
)
"""Choices that were made when these rows were known. Links and replacements are chosen with tables
of kernels."""


def main(path: str) -> None:
    table = read_serving(path)
    without = contradicted(table.rows)
    print(f"Left out, as another GPU of the table contradicts them: {', '.join(without) or 'none'}")
    table = replace(table, rows=tuple(row for row in table.rows if row.row not in without))
    errors = {
        (choice.name, name): error_of(table, choice, name)
        for choice in CHOICES
        for name in choice.alternatives
    }
    told = pd.DataFrame({key: error.groupby("model").mean() for key, error in errors.items()}).T
    told["all"] = [error.mean() for error in errors.values()]
    print("Mean |error| [%] by alternative, the others as they ship:")
    print((100 * told).round(1).to_string(), flush=True)
    print("\nEach model left out of every choice:")
    judged = []
    for model in told.columns[:-1]:
        chosen = choose(errors, str(model))
        judged.append(judge(changed_by(table, chosen), chosen, str(model)))
        print(told_of(judged[-1], chosen, str(model)), flush=True)
    error = np.concatenate([np.abs(one.errors) for one in judged])
    held = np.concatenate([one.is_held for one in judged]).mean()
    print(f"all: mean {error.mean():.1%}, median {np.median(error):.1%}, intervals hold {held:.1%}")


def choose(errors: Mapping[tuple[str, str], "pd.Series[float]"], model: str) -> dict[str, str]:
    """Return the alternative of each choice with the smallest mean error over the other models."""
    chosen = {}
    for choice in CHOICES:
        means = {
            name: errors[choice.name, name].drop(model, level="model").mean()
            for name in choice.alternatives
        }
        chosen[choice.name] = min(means, key=lambda name: means[name])
    return chosen


def changed_by(table: ServingTable, chosen: Mapping[str, str]) -> ServingTable:
    """Return a table whose rows run with the given alternatives."""
    rows = []
    for row in table.rows:
        deployment = dict(row.deployment)
        for choice in CHOICES:
            if choice.name in chosen:
                deployment |= choice.alternatives[chosen[choice.name]](row)
        told = {name: value for name, value in deployment.items() if value is not None}
        is_carried = chosen.get("prefill of others") != "none"
        points = {n: value for n, value in row.points.items() if is_carried or n not in LOAD}
        rows.append(replace(row, deployment=told, points=points))
    return replace(table, rows=tuple(rows))


def error_of(table: ServingTable, choice: Choice, name: str) -> "pd.Series[float]":
    """Return the absolute error of each row by an alternative, indexed by row and model."""
    chosen = {choice.name: name}
    judged, _ = judge_serving(changed_by(table, chosen))
    return judged.set_index(["row", "model"])["error"].abs().sort_index()


class Judged(NamedTuple):
    """Errors of a left-out model, the spread of the others, and shares inside intervals."""

    errors: FloatArray
    spread: float
    is_held: FloatArray


def judge(table: ServingTable, chosen: Mapping[str, str], model: str) -> Judged:
    """Return the errors of a model with the choices that were made without it."""
    rows, _ = judge_serving(table)
    least = spreads_of(table, chosen).set_index("model")["least_spread"]
    spread = fit_spread(least.drop(model).to_numpy())
    errors = rows.loc[rows["model"] == model, "error"].to_numpy()
    return Judged(errors, spread, least[model].to_numpy() <= spread)


_SPREADS: dict[tuple[str, ...], pd.DataFrame] = {}


def spreads_of(table: ServingTable, chosen: Mapping[str, str]) -> pd.DataFrame:
    """Return the smallest spread whose interval contains each row; cached for each choice."""
    key = tuple(chosen.values())
    if key not in _SPREADS:
        _SPREADS[key] = least_spreads(without_engine(table))
    return _SPREADS[key]


def told_of(judged: Judged, chosen: Mapping[str, str], model: str) -> str:
    """Print the errors of a model that was left out, and the choices that differ without it."""
    firsts = {choice.name: next(iter(choice.alternatives)) for choice in CHOICES}
    otherwise = [f"{name} {value}" for name, value in chosen.items() if value != firsts[name]]
    error = np.abs(judged.errors)
    return (
        f"{model:14} {len(error):4} rows: mean {error.mean():.1%}, median {np.median(error):.1%}, "
        f"bias {judged.errors.mean():+.1%}, spread {judged.spread:.3f}, "
        f"intervals hold {judged.is_held.mean():.1%}; "
        f"chosen otherwise: {', '.join(otherwise) or 'nothing'}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
