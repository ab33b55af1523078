"""Find the best replacement for a missing table by leaving out each table in turn.

Usage: python calibration/fallbacks.py FOLDER, with the tables of `all_published.py`, which also
runs this script. It prints the errors of each candidate, writes the shipped rankings, and removes
fits from profiles whose replacement has a smaller error.
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pandas as pd
from msgspec.structs import replace

from published.datasets import source_name
from published.tables import STACKS
from specmodel.calibrate.fit.kernels import normal_spreads
from specmodel.calibrate.fit.result import rounded
from specmodel.calibrate.fit.timed_work import judge
from specmodel.calibrate.measure.measurements import groups, judged_rows, read_measurements
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.core.machines.fallbacks import Candidate, Ranking, Rankings, candidates
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.machines.kernels import FittedStack, KernelFit, fitted_dtype
from specmodel.core.machines.profiles import hardware_text, with_stack
from typical import Fitted, is_judged, means

ROOT = Path(__file__).parents[1]
PROFILES, RECORDS = ROOT / "hw_profiles", ROOT / "specmodel/core/machines/data"
MOST_ROWS = 1500
"""Rows of a table that are judged, evenly spaced [-]."""
OF_ONE_STACK = ("recurrence", "kimi_recurrence", "elementwise")
"""Kinds whose timings come from one stack, for a whole device or for its own kernels."""
WORSE = 1.1
"""A fit is removed if its error is more than this multiple of the error of its replacement [-]."""
KEY = ["device", "stack", "kind", "dtype"]


class Table(NamedTuple):
    """Rows of one kind and dtype that judge the fit to the others."""

    entry: Fitted
    device: str
    stack: str
    kind: str
    dtype: str
    rows: pd.DataFrame


def tables(fitted: list[Fitted]) -> Iterator[Table]:
    for entry in fitted:
        device, stack = (str(entry.table[name].iloc[0]) for name in ("hardware", "stack"))
        for kind, dtype, rows in groups(entry.table):
            if kind not in OF_ONE_STACK and dtype in getattr(entry.stack, kind):
                judged = judged_rows(rows)
                few = judged.iloc[:: max(1, len(judged) // MOST_ROWS)].reset_index(drop=True)
                yield Table(entry, device, stack, kind, dtype, few)


def with_fits(stack: FittedStack, fits: Mapping[str, Mapping[str, KernelFit]]) -> FittedStack:
    """Return a stack with all fits of some kinds replaced, by kind and dtype."""
    kinds: dict[str, Any] = {**fits}
    return replace(stack, **kinds)


def typical_elsewhere(kind: str, dtype: str, device: str, fitted: list[Fitted]) -> list[KernelFit]:
    """Return the geometric mean of the fits of a dtype on other devices, if there are two."""
    others = [e for e in fitted if e.hardware.name != device and is_judged(e, kind, dtype)]
    if len({entry.hardware.name for entry in others}) < 2:
        return []
    changes: dict[str, Any] = {"activation_efficiency": None}
    changes |= {"varied": [], "covariance": [], "at_bound": []} | means(kind, dtype, others)
    return [replace(getattr(others[0].stack, kind)[dtype], **changes)]


def left_out(table: Table, fitted: list[Fitted]) -> list[dict[str, Any]]:
    """Predict a table by its own fit and by each candidate, with typical kernels of other GPUs."""
    kind, dtype, hardware = table.kind, table.dtype, table.entry.hardware
    stacks = {
        str(entry.table["stack"].iloc[0]): entry.stack
        for entry in fitted
        if entry.hardware.name == hardware.name
    }
    own = stacks.pop(table.stack)
    kept = {name: fit for name, fit in getattr(own, kind).items() if name != dtype}
    lacking = with_fits(own, {kind: kept})
    common = {
        name: fit
        for name in (dtype, fitted_dtype(kind))
        for fit in typical_elsewhere(kind, name, hardware.name, fitted)
    }
    shared: dict[str, Any] = {kind: common}
    typical = FittedStack(version="-", source="other devices", date="2026-01-01", **shared)
    found: dict[str, tuple[KernelFit, str]] = {"fitted": (getattr(own, kind)[dtype], "")}
    for candidate, one in candidates(kind, dtype, lacking, stacks, typical).items():
        found[candidate] = one
    if dtype != fitted_dtype(kind) and fitted_dtype(kind) in common:
        found["typical_standard"] = (common[fitted_dtype(kind)], "typical")
    place = dict(zip(KEY, (table.device, table.stack, kind, dtype), strict=True))
    return [
        place | {"candidate": candidate, "name": name} | errors(table, fit)
        for candidate, (fit, name) in found.items()
    ]


def errors(table: Table, fit: KernelFit) -> dict[str, float]:
    """Return errors of a fit on a table, and the median of ln(measured / predicted)."""
    judged = judge(table.kind, table.rows, table.entry.hardware, fit.parameters)
    error = judged["error"].abs()
    return {
        "error": float(error.groupby(judged["shape"]).mean().mean()),
        "median_error": float(error.median()),
        "shift": float(-pd.Series(judged["error"].add(1).to_numpy()).transform("log").median()),
    }


def ranking(rows: pd.DataFrame) -> Ranking:
    """Return the order of candidates, by their median error on the tables that all could have."""
    by_table = rows.pivot(index=KEY, columns="candidate", values="error")
    names = [name for name in get_args(Candidate) if name in by_table]
    common = by_table.dropna(subset=names)
    medians = common[names].median().sort_values(kind="stable")
    spread = {}
    for name in names:
        shift = rows[rows["candidate"] == name]["shift"]
        spread[name] = normal_spreads(shift, pd.Series(0, shift.index))[1]
    return Ranking(
        order=list(medians.index),
        error={name: rounded(medians[name], 3) for name in names},
        spread=spread,
        num_tables=len(common),
    )


def worse_than_fallback(found: pd.DataFrame, rankings: Rankings) -> list[tuple[str, ...]]:
    """Return the fits whose errors are far above those of their replacements, the worst first.

    Fits that replace others stay, and so does the standard dtype of a stack.
    """
    lost: list[tuple[float, tuple[str, ...], tuple[str, ...]]] = []
    orders = {str(kind): ranked.order for kind, ranked in rankings.kinds.items()}
    for names, rows in found.groupby(KEY):
        device, _, kind, dtype = key = tuple(map(str, names))
        by_name = rows.set_index("candidate")
        order = [name for name in orders[kind] if name in by_name.index]
        if not order or order[0] == "own" or dtype == fitted_dtype(kind):
            continue
        error = by_name["error"]
        ratio = float(error["fitted"]) / float(error[order[0]])
        if ratio > WORSE:
            lost.append((ratio, key, (device, str(by_name["name"][order[0]]), kind, dtype)))
    taken, needed = list[tuple[str, ...]](), set[tuple[str, ...]]()
    for _, key, other in sorted(lost, reverse=True):
        if key not in needed and other not in taken:
            taken.append(key)
            needed.add(other)
    return taken


def take_out(device: str, stack: str, kind: str, dtype: str) -> None:
    """Take a fit out of a profile."""
    path = PROFILES / f"{device}.toml"
    record = load_hardware(path).fitted[stack]
    kept = {name: fit for name, fit in getattr(record, kind).items() if name != dtype}
    write_text(path, with_stack(hardware_text(path), stack, with_fits(record, {kind: kept})))


def write_rankings(fitted: list[Fitted]) -> pd.DataFrame:
    """Write the rankings, remove fits with better replacements, and return all errors."""
    found = pd.DataFrame([row for table in tables(fitted) for row in left_out(table, fitted)])
    by_kind: dict[Any, Ranking] = {kind: ranking(rows) for kind, rows in found.groupby("kind")}
    source = f"tables of {source_name()} left out in turn, {len(fitted)} stacks"
    rankings = Rankings(source=source, date=date.today().isoformat(), kinds=by_kind)
    write_text(RECORDS / "fallbacks.toml", toml_text(rankings) + "\n")
    print(found.pivot(index=KEY, columns="candidate", values="error").round(3).to_string())
    for key in worse_than_fallback(found, rankings):
        print("worse than what is taken for it:", *key, flush=True)
        take_out(*key)
    return found


def main(folder: Path) -> None:
    fitted = []
    for device, stack, _ in STACKS:
        hardware = load_hardware(PROFILES / f"{device}.toml")
        table = read_measurements(folder / f"{device}_{stack}.csv")
        fitted.append(Fitted(hardware, table, hardware.fitted[stack]))
    write_rankings(fitted).to_csv(folder / "fallbacks.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
