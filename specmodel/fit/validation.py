"""Errors of a profile on measured kernels: by component and by number of tokens."""

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.fit.timed_work import check_plausible, is_streamed, judge, shape_errors, work_of
from specmodel.machines.fallbacks import choose_kernels
from specmodel.machines.hardware import HardwareProfile, list_hardware, load_hardware
from specmodel.measure.measurements import COLUMNS, groups, judged_rows

ALL_ROWS = "all"  # label of the errors of a component as a whole

TOKEN_RANGES = (0, 4, 16, 64, 256, 1024, np.inf)
"""Bounds of the ranges of tokens in a pass for which errors are given [token]."""

_TOKENS = ("num_tokens", "query_tokens", "batch_size")
"""Tokens of a pass: the first of these columns that a component has, as prompts run one by one."""


def predict_measured(
    table: pd.DataFrame,
    hardware: HardwareProfile,
    stack: str | None = None,
) -> pd.DataFrame:
    """Return the judged rows of a table with their predicted time.

    Rows are judged if their role is "judge", or "fit" where a component has none. Their case is the
    distribution of tokens over experts, or whether weights or KV are streamed from memory or are so
    few that the kernel is short. Kernels are those of `stack`, by default of the table's stack if
    the profile has it.
    """
    device = str(table["hardware"].iloc[0])
    if device in list_hardware() and load_hardware(device).name != hardware.name:
        raise InputError("measurements.hardware", device, f"a table of {hardware.name}")
    check_plausible(table, hardware)
    kernels = choose_kernels(hardware, stack, str(table["stack"].iloc[0]))
    parts = []
    for kind, dtype, rows in groups(table):
        judged = judged_rows(rows)
        if len(judged):
            judged = judge(kind, judged, hardware, kernels.parameters(kind, dtype))
            tokens = judged[next(name for name in _TOKENS if name in COLUMNS[kind])]
            case = _cases(kind, judged, hardware)
            parts.append(judged.assign(dtype=dtype, case=case, tokens=tokens))
    if not parts:
        raise InputError("measurements", "no row to judge", "rows whose role is judge or fit")
    return pd.concat(parts, ignore_index=True)


def _cases(kind: str, rows: pd.DataFrame, hardware: HardwareProfile) -> pd.Series:
    if kind == "experts":
        return pd.Series(rows.get("distribution", "balanced"), rows.index).fillna("balanced")
    is_long = is_streamed(work_of(kind, rows), hardware)
    return pd.Series(np.where(is_long, "streamed", "short"), rows.index)


def error_table(judged: pd.DataFrame) -> pd.DataFrame:
    """Return errors of each component, by case and by range of tokens; the bias is a median [-]."""
    rows = []
    for (kind, dtype), part in judged.groupby(["component", "dtype"], sort=True):
        rows.append(_errors(kind, dtype, ALL_ROWS, part))
        for case, inside in part.groupby("case", sort=True):
            rows.append(_errors(kind, dtype, str(case), inside))
        bins = pd.cut(part["tokens"], TOKEN_RANGES)
        for bounds, inside in part.groupby(bins, observed=True):
            low, high = int(bounds.left) + 1, bounds.right
            label = f"{low}-{high:.0f} tokens" if np.isfinite(high) else f"{low} tokens on"
            rows.append(_errors(kind, dtype, label, inside))
    return pd.DataFrame(rows)


def _errors(kind: object, dtype: object, label: str, part: pd.DataFrame) -> dict[str, object]:
    return {
        "component": kind,
        "dtype": dtype,
        "rows": label,
        "points": len(part),
        **shape_errors(part),
        "bias": float(part["error"].median()),
    }
