"""Fit the overheads of an engine to measured speedups or times, and judge rows left out.

`specmodel fit engine` updates a shipped profile with a user's runs. This script makes a profile
from published tables.
"""

import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from program import carry_out
from specmodel.calibrate.fit.result import (
    ROBUST_SCALE,
    FitResult,
    best_of_starts,
    log_fit_result,
    rounded,
)
from specmodel.calibrate.fit.steps import provenance
from specmodel.calibrate.measure.measurements import need_known
from specmodel.cli.settings import SETTINGS, own, refuse_inputs
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.core.base.tables import ARGUMENT, need_columns, numbers, read_table
from specmodel.core.base.text import align, wrap
from specmodel.core.base.units import FloatArray, check
from specmodel.core.cost.deploying import deploy
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import step_times
from specmodel.core.machines.engine import OVERHEADS, EngineProfile, load_engine
from specmodel.core.prediction.table import seconds

COLUMNS = (
    "target", "drafter", "hardware", "batch_size", "draft_length", "context_length", "quantity",
    "value",
)  # fmt: skip
"""Columns of a table of measured serving; ``step_efficiency`` and `DEGREES` are optional."""

DEGREES = ("tensor_parallel", "expert_parallel", "data_parallel")
"""1 where they are missing, except for data parallelism: as many replicas as experts need [-]."""

QUANTITIES = ("speedup", "relative_step_time", "forward_time", "step_time", "target_efficiency")
"""What ``value`` may be [-] [s]; a speedup at several batch sizes is the largest of them."""

_PER_KERNEL, _PER_PASS, _PER_REQUEST = (1e-8, 1e-4), (1e-6, 5e-2), (1e-7, 5e-3)

BOUNDS = {
    name: _PER_KERNEL if "kernel" in name else _PER_REQUEST if "_per_" in name else _PER_PASS
    for name in OVERHEADS
}
"""Smallest and largest overhead tried [s]."""

PLAUSIBLE = (0.05, 20.0)  # accepted median of predicted over measured, after the fit [-]

_NUMBERS: dict[str, dict[str, Any]] = {
    "value": {"above": 1e-12, "maximum": 1e6},
    "draft_length": {"above": -1, "minimum": 0, "maximum": 1e6, "whole": True},
    "context_length": {"above": -1, "minimum": 0, "maximum": 1e9},
    **{name: {"maximum": 1e6, "whole": True} for name in DEGREES},
}
_STARTS = (0.3, 0.5, 0.65, 0.8)


class EngineFitting(Struct, frozen=True, kw_only=True, eq=False):
    """A fitted engine: its profile, and the result of the fit.

    Parameters
    ----------
    profile
        The engine, with what it was fitted to.
    result
        Parameters, covariance and residuals.
    predicted
        Prediction for each row of the table, in the unit of its quantity [-] [s].
    left_out
        For each column whose values were left out in turn, predictions of the rows left out
        [-] [s].
    """

    profile: EngineProfile
    result: FitResult
    predicted: FloatArray
    left_out: dict[str, FloatArray]


def fit_engine(
    table: pd.DataFrame,
    base: EngineProfile,
    vary: Sequence[str],
    *,
    date: str,
    leave_out: Sequence[str] = (),
    version: str = "",
) -> EngineFitting:
    """Fit overheads of an engine to measured serving; an InputError says why a table does not do.

    Parameters
    ----------
    table
        With `COLUMNS`; further ones may serve to leave out.
    base, vary
        Profile with name, source, stack and the overheads that are held; overheads that are fitted.
    date, version
        Day of the fit, as 2026-11-21, and version of the engine that was measured; empty if not
        known.
    leave_out
        Columns whose values are left out in turn; the fit is judged on them.

    Notes
    -----
    Least squares of log ratios with a soft-L1 loss, the best of several starts. Times are linear in
    the overheads, so that the passes of a row are computed once for each overhead, and not again
    while fitting; hence the engine may not hide its host behind the GPU. The spread that a profile
    states is the root mean square of log errors: on rows left out if there are any, else on fitted
    rows.
    """
    for name in vary:
        if name not in BOUNDS:
            raise InputError("vary", name, f"one of {nearest(name, BOUNDS)}")
    if len(set(vary)) < len(vary):
        raise InputError("vary", list(vary), "each overhead once")
    if base.hides_host != "none":
        expected = "one that hides none of its host's time, as times are linear in overheads there"
        raise InputError("engine", base.name, expected)
    table = _checked(table, vary, leave_out)
    rows = [_linear(row, base, vary) for _, row in table.iterrows()]
    measured = table["value"].to_numpy(float)
    best = _solve(rows, measured, vary)
    predicted = _predicted(rows, np.exp(best.x))
    error = np.log(predicted / measured)
    _check_unit(float(np.exp(np.median(error))))
    result = log_fit_result(vary, best, error, np.arange(len(rows)))
    left_out = {
        column: _leave_out(rows, measured, vary, table[column].to_numpy()) for column in leave_out
    }
    errors = {column: rounded(np.abs(p / measured - 1).mean()) for column, p in left_out.items()}
    missed = np.log(measured / np.array([*left_out.values()] or [predicted]))
    record: dict[str, Any] = {
        "date": date,
        "num_points": len(rows),
        "mean_error": rounded(result.mean_error),
        "left_out_error": errors,
        "spread": rounded(np.sqrt(np.mean(missed**2))),
        **result.record,
        "fitted_on": provenance(
            [row.deployment for row in rows],
            np.concatenate([_batch_sizes(text) for text in table["batch_size"]]).tolist(),
            table["draft_length"].tolist(),
            version,
        ),
    }
    seconds = {name: rounded(value) for name, value in result.parameters.items()}
    profile = base.with_changes("engine", {**seconds, "fit": record})
    return EngineFitting(profile=profile, result=result, predicted=predicted, left_out=left_out)


def _check_unit(ratio: float) -> None:
    if not PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]:
        expected = "times in seconds and ratios; is it in another unit?"
        value = f"values {1 / ratio:.3g} times what any fit gives"
        raise InputError(f"{ARGUMENT}.value", value, expected)


def _checked(table: pd.DataFrame, vary: Sequence[str], leave_out: Sequence[str]) -> pd.DataFrame:
    """Return the table with checked numbers; every error names its column."""
    need_columns(table, COLUMNS)
    for column in leave_out:
        _check_left_out(table, column)
    if len(table) <= len(vary):
        expected = f"more than {len(vary)}, one an overhead"
        raise InputError(ARGUMENT, f"{len(table)} rows", expected)
    need_known(table, "quantity", QUANTITIES)
    for name in DEGREES:
        given = table[name] if name in table else pd.Series(np.nan, table.index)
        table = table.assign(**{name: given.fillna(_usual(table, name))})
    table = table.assign(**{name: numbers(table, name, **_NUMBERS[name]) for name in _NUMBERS})
    speedups = table[table["quantity"] == "speedup"]
    if speedups.empty:
        return table
    need_columns(table, ["step_efficiency"], "rows of speedup")
    for gamma, rows in speedups.groupby("draft_length"):
        least = 1 / (float(str(gamma)) + 1)  # the target's own token is always emitted
        numbers(rows, "step_efficiency", minimum=least, maximum=1, of="rows of speedup")
    share = pd.to_numeric(table["step_efficiency"], errors="coerce")
    return table.assign(step_efficiency=share.astype(float))


def _usual(table: pd.DataFrame, name: str) -> pd.Series | int:
    """Return the degree of rows that give none [-]."""
    if name != "data_parallel":
        return 1
    cut, spread = (numbers(table, other, **_NUMBERS[other]) for other in DEGREES[:2])
    return pd.Series(np.maximum(spread // cut, 1), table.index)


def _check_left_out(table: pd.DataFrame, column: str) -> None:
    if column not in table or table[column].isna().any():
        others = [str(name) for name in table.columns if name != column]
        expected = f"a column without blank cells: {nearest(column, others)}"
        raise InputError("leave_out", column, expected)
    if table[column].nunique() < 2:
        raise InputError("leave_out", column, "a column with several values")


class _Linear(Struct, frozen=True, eq=False):
    """One measurement: times without the varied overheads, and how much each overhead adds.

    Times of a decode step, a step and a verify pass, shape (3, batch sizes); slopes by overhead.
    """

    deployment: Deployment
    quantity: str
    tokens: float
    times: FloatArray
    slopes: FloatArray

    def value(self, seconds: FloatArray) -> float:
        forward, step, verify = self.times + np.tensordot(seconds, self.slopes, 1)
        values = {
            "forward_time": forward.mean(),
            "step_time": step.mean(),
            "relative_step_time": (step / forward).mean(),
            "target_efficiency": (forward / verify).mean(),
            "speedup": (self.tokens * forward / step).max(),
        }
        return float(values[self.quantity])


def _linear(row: pd.Series, base: EngineProfile, vary: Sequence[str]) -> _Linear:
    held = base.with_changes("engine", dict.fromkeys(vary, 0.0))
    degrees: dict[str, Any] = {name: int(row[name]) for name in DEGREES}
    try:
        deployment, _ = deploy(
            target=str(row["target"]),
            hardware=str(row["hardware"]),
            drafter=str(row["drafter"]),
            engine=held,
            **degrees,
        )
    except InputError as error:
        raise InputError(f"{ARGUMENT}.{error.argument}", error.value, error.expected) from None
    gamma = np.asarray(float(row["draft_length"]))
    points: dict[str, Any] = {
        "batch_size": _batch_sizes(row["batch_size"]),
        "draft_length": gamma,
        "verify_tokens": gamma + 1,
        "context_length": np.asarray(float(row["context_length"])),
    }
    zero = held.overheads
    runs = []
    for each in (zero, *(replace(zero, **{name: 1.0}) for name in vary)):
        times = step_times(replace(deployment, overheads=each), **points)
        parts = (times.forward_time, times.step_time, times.verify_time)
        runs.append([np.broadcast_to(part, np.shape(points["batch_size"])) for part in parts])
    first, *moved = np.array(runs)
    tokens = float(row.get("step_efficiency", np.nan)) * float(gamma + 1)
    return _Linear(deployment, str(row["quantity"]), tokens, first, np.array(moved) - first)


def _batch_sizes(text: object) -> FloatArray:
    sizes = str(text).split()
    try:
        values = [float(size) for size in sizes]
    except ValueError:
        values = []
    return check("measurements.batch_size", values or text, minimum=1, maximum=1e9)


def _predicted(rows: Sequence[_Linear], seconds: FloatArray) -> FloatArray:
    return np.array([row.value(seconds) for row in rows])


def _solve(rows: Sequence[_Linear], measured: FloatArray, vary: Sequence[str]) -> Any:
    low, high = np.log([BOUNDS[name] for name in vary]).T

    def residuals(x: FloatArray) -> FloatArray:
        return np.asarray(np.log(_predicted(rows, np.exp(x))) - np.log(measured))

    return best_of_starts(
        residuals,
        [low + share * (high - low) for share in _STARTS],
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        diff_step=1e-4,
    )


def _leave_out(
    rows: Sequence[_Linear], measured: FloatArray, vary: Sequence[str], column: FloatArray
) -> FloatArray:
    """Predict each row from a fit to the rows with another value in the column."""
    predicted = np.empty(len(rows))
    for value in pd.unique(column):
        is_left = column == value
        kept = [row for row, left in zip(rows, is_left, strict=True) if not left]
        seconds = np.exp(_solve(kept, measured[~is_left], vary).x)
        predicted[is_left] = _predicted(rows, seconds)[is_left]
    return predicted


def read_served(path: str | Path) -> pd.DataFrame:
    """Return a table of measured serving, a row for each measured time or speedup."""
    return read_table(path, ("target", "drafter", "hardware", "batch_size"))


@click.command("overheads", context_settings=SETTINGS)
@click.argument("measurements")
@own("output", "FILE", "Engine profile to write.", required=True)
@own("name", "text", "Name of the engine, for people.", required=True)
@own("engine", "NAME|PATH", "Profile whose other overheads are held.", default="ideal")
@own("stack", "NAME", "Whose kernels it runs.")
@own("source", "TEXT", "What was measured.  [default: the file's name]")
@own("version", "TEXT", "Version of the engine measured.", default="", show_default=False)
@own("vary", "text", "An overhead to fit; repeat.", multiple=True, required=True)
@own("leave_out", "COLUMN", "Leave out each value in turn; repeat.", multiple=True)
def main(measurements: str, output: str, **options: Any) -> None:
    """Fit overheads of an engine by name, to one table by least squares.

    Its columns: target, drafter, hardware, tensor_parallel, batch_size, draft_length,
    context_length, quantity (speedup, relative_step_time, forward_time, step_time or
    target_efficiency) and value; step_efficiency in rows of speedup. Overheads: kernel_time,
    pass_time, draft_kernel_time, draft_pass_time, reject_time, reject_time_per_request,
    reject_time_per_token, tree_time, eager_kernel_time.
    """
    refuse_inputs("output", output, measurements)
    table = read_served(measurements)
    changes = {"name": options["name"], "source": options["source"] or Path(measurements).name}
    changes["fuses_all"] = False
    if options["stack"]:
        changes["stack"] = options["stack"]
    base = load_engine(options["engine"]).with_changes("engine", changes)
    how = {name: options[name] for name in ("leave_out", "version")}
    fitting = fit_engine(table, base, options["vary"], date=date.today().isoformat(), **how)
    write_text(output, toml_text(fitting.profile) + "\n")
    click.echo(f"{_engine_text(fitting)}\n\n{_row_text(fitting, table)}\n\nWritten: {output}")


def _engine_text(fitting: EngineFitting) -> str:
    """Return fitted overheads, errors and warnings."""
    fit = fitting.profile.fit
    found = [f"  {name} = {value:.4g} s" for name, value in fitting.result.parameters.items()]
    lines = [f"{fitting.profile.name}: {fitting.result.residuals.size} points", *found]
    lines.append(f"  mean error {fitting.result.mean_error:.1%}")
    for column, error in (fit.left_out_error if fit else {}).items():
        lines.append(f"  mean error with each {column} left out in turn {error:.1%}")
    lines += [wrap(f"  Warning: {warning}.") for warning in fitting.result.warnings]
    return "\n".join(lines)


def _row_text(fitting: EngineFitting, table: pd.DataFrame) -> str:
    """Return each row measured and predicted, as an aligned table."""
    quantity, values = table["quantity"].tolist(), table["value"].astype(float)
    sizes = [str(of_row).split() for of_row in table["batch_size"]]
    columns = [
        ("target", [Path(str(name)).name[:17] for name in table["target"]]),
        ("quantity", quantity),
        ("batch\nsize", ["-".join(dict.fromkeys([s[0], s[-1]])) for s in sizes]),
        ("draft\nlength", [f"{length:g}" for length in table["draft_length"].astype(float)]),
        ("measured", list(map(_value, quantity, values))),
        ("predicted", list(map(_value, quantity, fitting.predicted))),
        ("error", [f"{error:+.1%}" for error in fitting.result.residuals]),
    ]
    return align(columns, left=["target", "quantity"])


def _value(quantity: str, value: float) -> str:
    """Return a time, or a ratio, as a cell."""
    is_time = quantity in ("forward_time", "step_time")
    return seconds(float(value)) if is_time else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(carry_out(main))
