"""Return the results of fitting an engine: each run with its predictions, and facts of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.tables import Served
from specmodel.calibrate.fit.steps import measured_steps, nearest_plain
from specmodel.core.base.errors import InputError
from specmodel.core.base.facts import Fact, known
from specmodel.core.base.units import NORMAL_80
from specmodel.core.machines.engine import Overheads
from specmodel.core.prediction.table import Row

if TYPE_CHECKING:
    from specmodel.calibrate.fit.update import EngineUpdate

_COUNTS = (1, 2, 4, 8)
_WIDE = ("bf16", "fp16", "fp32")  # dtypes of weights that are not quantised
_NEAR = 0.15
"""If log measured over predicted times stay below this on some number of GPUs, the runs may have
used that number [-]."""


def run_rows(update: EngineUpdate) -> list[Row]:
    """Return each run as measured and as predicted, before and after the fit.

    The speedup of a run with drafts is relative to the plain run of the nearest load.

    Parameters
    ----------
    update
        The fit, as `update_engine` returns it.

    Returns
    -------
    list of dict
        The run's name, its point, times per output token [s], speedups and error [-].
    """
    times = {"measured": update.measured, "before": update.before, "now": update.predicted}
    rows = []
    for place, run in enumerate(update.rows):
        length, tokens = run.points["draft_length"], run.tokens_per_step or 1.0
        plain = nearest_plain(run, update.rows) if length else None
        row: Row = {"run": Path(run.row).name, "batch_size": run.points["batch_size"]}
        row |= {"draft_length": int(length), "tokens_per_step": tokens}
        row["error"] = float(update.predicted[place] / update.measured[place] - 1)
        for name, values in times.items():
            is_time, value = run.quantity != "speedup", float(values[place])
            row[f"tpot_{name}"] = value / tokens if is_time else None
            row[f"speedup_{name}"] = None if is_time else value
            if is_time and plain is not None:
                row[f"speedup_{name}"] = float(values[plain]) / value * tokens
        rows.append(row)
    return rows


def moved_rows(update: EngineUpdate) -> list[Row]:
    """Return each overhead [s] and factor [-] before and after the fit, with 80 % intervals.

    Parameters
    ----------
    update
        The fit, as `update_engine` returns it.

    Returns
    -------
    list of dict
        Name, values with both ends of their intervals, and whether the runs leave it undetermined.
    """
    rows = []
    for item in update.moved:
        then, now = (exp(NORMAL_80 * s) for s in (item.spread_before, item.spread_after))
        before = {"before": item.before, "before_low": item.before / then}
        row: Row = {"name": item.name, **before, "before_high": item.before * then}
        row |= {"now": item.after, "now_low": item.after / now, "now_high": item.after * now}
        rows.append(row | {"is_open": item.is_open})
    return rows


def update_facts(update: EngineUpdate) -> dict[str, Fact]:
    """Return the facts of an engine's fit that its tables do not contain.

    Parameters
    ----------
    update
        The fit, as `update_engine` returns it.

    Returns
    -------
    dict
        Errors of the runs, agreement of their repeats, and warnings against the fit, by name. If
        there is a warning, also the number of GPUs on which a known host would match the runs.
    """
    rows, layout, target = update.rows, update.deployment.layout, update.deployment.target
    noise = sorted((row.noise, Path(row.row).name) for row in rows if row.noise) or [(0.0, "")]
    now, before = (values / update.measured - 1 for values in (update.predicted, update.before))
    warning = next(iter(update.fit_warnings), None)
    per_request = float(update.profile.overheads.on_host().reject_time_per_request)
    count, ratios = likely_gpus(rows, update.base.overheads) if warning else (None, None)
    dtype = target.expert_dtype or target.weight_dtype
    facts = {
        "mean_error": Fact(float(np.abs(now).mean())),
        "mean_error_before": Fact(float(np.abs(before).mean())),
        "started_from": Fact(update.base.name),
        "notes": Fact([note for row in rows for note in row.notes]),
        "noise": Fact(noise[len(noise) // 2][0]),
        "noise_most": Fact(noise[-1][0] or None),
        "noisiest_run": Fact(noise[-1][1]),
        "time_per_request": Fact(per_request if update.is_unlike_known else None, "s"),
        "excess_speedup": Fact(update.excess_speedup or None),
        "unlikely": Fact(warning and warning.found),
        "likely": Fact(warning and warning.expected),
        "is_refused": Fact(warning and warning.is_refused),
        "is_slow": Fact(warning and warning.is_slow),
        "widened": Fact(update.widened),
        "gpus": Fact(f"{layout.num_gpus} x {update.deployment.hardware.name}"),
        "target": Fact(target.name),
        "weights": Fact(dtype),
        "narrow_weights": Fact(None if dtype in _WIDE else dtype),
        "likely_gpus": Fact(count),
        "likely_ratios": Fact(ratios),
    }
    return known(facts.items())


def likely_gpus(
    rows: Sequence[Served], overheads: Overheads
) -> tuple[int | None, tuple[float, float] | None]:
    """Return the smallest number of GPUs on which a known host matches the runs, or None.

    The second value is the smallest and the largest ratio of measured to predicted times [-].
    """
    for count in _COUNTS:
        degrees = {"tensor_parallel": count, "data_parallel": 1, "expert_parallel": 1}
        own = [replace(row, deployment={**row.deployment, **degrees}) for row in rows]
        try:
            steps = measured_steps(own)
        except InputError:  # the model cannot be split over this number of GPUs
            continue
        ratios = steps.measured / steps.predicted(overheads)
        if np.abs(np.log(ratios)).max() < _NEAR and not steps.is_ratio.any():
            return count, (float(ratios.min()), float(ratios.max()))
    return None, None
