"""Fit layers of sparse attention (DSA) of every GPU and engine published, and write what ships.

Usage: python calibration/sparse_attention.py. Adds fits to the stacks that profiles have, after
`published.py` or within it, and typical ones; prints the errors on shapes that were not fitted.
"""

from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from specmodel.algebra.roofline import KernelParameters
from specmodel.base.files import write_text
from specmodel.base.records import toml_text
from specmodel.calibrate.datasets import list_tables, source_name
from specmodel.calibrate.fitting.kernels import KernelFitting, normal_spreads, shape_errors
from specmodel.calibrate.fitting.layers import predicted_time
from specmodel.calibrate.fitting.result import rounded
from specmodel.calibrate.sparse_modules import (
    ENGINES,
    OF_KIND,
    fit_sparse_modules,
    index_compute_efficiency,
    modules_work,
    sparse_modules,
)
from specmodel.records.hardware import HardwareProfile, load_hardware
from specmodel.records.kernels import FITTED_DTYPE, FittedStack, KernelFit, load_typical
from specmodel.records.profiles import hardware_text, with_stack

ROOT = Path(__file__).parents[1]
PROFILES, RECORDS = ROOT / "hw_profiles", ROOT / "specmodel/records/data"
SHARPNESS = 2.0
"""Exponent of typical layers, the one fitted to most [-]."""


class Fitted(NamedTuple):
    """Layers of an engine on a GPU, and what was fitted, by kind and dtype of the cache."""

    device: str
    engine: str
    hardware: HardwareProfile
    table: pd.DataFrame
    fits: dict[tuple[str, str], KernelFitting]


def fit_all() -> list[Fitted]:
    """Fit every table there is."""
    found = []
    tables = list_tables().query("operation == 'dsa'")
    for row in tables.itertuples(index=False):
        if ENGINES.get(row.framework) != row.version:
            continue
        hardware = load_hardware(PROFILES / f"{row.hardware}.toml")
        table = sparse_modules(row.hardware, row.framework)
        index_compute = index_compute_efficiency(row.hardware)
        fits = fit_sparse_modules(table, hardware, index_compute)
        found.append(Fitted(row.hardware, row.framework, hardware, table, fits))
        for kv_dtype in kv_dtypes(fits):
            fit = fits["sparse_attention", kv_dtype].fit
            print(
                f"{row.hardware:10} {row.framework:7} KV {kv_dtype:4} fitted {fit.num_points:5} "
                f"judged {fit.num_judged:5}: mean {fit.mean_error:.1%} median "
                f"{fit.median_error:.1%} 90 % {fit.percentile_90_error:.1%}",
                flush=True,
            )
    return found


def add_to_profiles(found: list[Fitted]) -> None:
    """Write the fits of engines whose stacks profiles have; all else of a profile is kept."""
    for entry in found:
        path = PROFILES / f"{entry.device}.toml"
        stack = load_hardware(path).fitted.get(entry.engine)
        if stack:
            source = f"{entry.engine} {ENGINES[entry.engine]}, {source_name()}"
            changed = with_sparse_modules(stack, entry.fits, source)
            write_text(path, with_stack(hardware_text(path), entry.engine, changed))


def with_sparse_modules(
    stack: FittedStack, fits: dict[tuple[str, str], KernelFitting], source: str
) -> FittedStack:
    """Return a stack with fits of sparse attention in place of those it had, all else kept.

    Without a fit at 16 bits, that at 8 bits stands for all dtypes of the cache.
    """
    own: dict[str, dict[str, KernelFit]] = {kind: {} for kind in OF_KIND}
    for (kind, dtype), fitting in fits.items():
        own[kind][dtype] = fitting.fit
    for of_kind in own.values():
        if of_kind and FITTED_DTYPE not in of_kind:
            of_kind[FITTED_DTYPE] = next(iter(of_kind.values()))
    return stack.model_copy(update={**own, "source": source_with(stack.source, source)})


def source_with(source: str, measured: str) -> str:
    """Return the source of a stack followed by what was measured, which is said only once."""
    note = f"; sparse attention of {measured}"
    return source if note in source else source + note


def with_typical(typical: FittedStack, found: list[Fitted]) -> FittedStack:
    """Return typical kernels with geometric means of what was fitted.

    Errors are those on the layers of each GPU by the mean of the others.
    """
    dtypes = sorted({dtype for entry in found for dtype in kv_dtypes(entry.fits)})
    fits = {dtype: typical_fits(dtype, found) for dtype in dtypes}
    own = {kind: {dtype: fits[dtype][kind] for dtype in dtypes} for kind in OF_KIND}
    devices = ", ".join(sorted({entry.hardware.name for entry in found}))
    return typical.model_copy(update={**own, "source": source_with(typical.source, devices)})


def typical_fits(kv_dtype: str, found: list[Fitted]) -> dict[str, KernelFit]:
    judged = pd.concat([left_out(kv_dtype, entry, found) for entry in found], ignore_index=True)
    common, row = normal_spreads(-np.log1p(judged["error"]), judged["shape"])
    return {
        kind: KernelFit(
            **means(kind, kv_dtype, found),
            sharpness=SHARPNESS,
            arithmetic_dtype=FITTED_DTYPE,
            num_points=0,
            num_judged=len(judged),
            is_held_out=True,
            **shape_errors(judged),
            shape_spread=common,
            row_spread=row,
            varied=[],
            covariance=[],
        )
        for kind in OF_KIND
    }


def left_out(kv_dtype: str, entry: Fitted, found: list[Fitted]) -> pd.DataFrame:
    """Judge the layers of one table by the mean of the fits on other GPUs."""
    others = [other for other in found if other.device != entry.device]
    parameters = {
        kind: KernelParameters(**means(kind, kv_dtype, others), sharpness=SHARPNESS)
        for kind in OF_KIND
    }
    rows = entry.table.query("kv_dtype == @kv_dtype and role == 'judge'").reset_index(drop=True)
    if rows.empty:
        return rows.assign(error=[])
    times = predicted_time(list(modules_work(rows, entry.hardware)), entry.hardware, parameters)
    name = f"{entry.device} {entry.engine}/"
    return rows.assign(error=times / rows["latency"] - 1, shape=name + rows["shape"])


def means(kind: str, kv_dtype: str, found: list[Fitted]) -> dict[str, float]:
    """Return geometric means, over the engines of a GPU first: each GPU counts once."""
    have = [entry for entry in found if (kind, kv_dtype) in entry.fits]
    fits = [entry.fits[kind, kv_dtype].fit for entry in have]
    names = list(dict.fromkeys([*OF_KIND[kind], "compute_efficiency"]))
    logs = pd.DataFrame(np.log([[getattr(fit, name) for name in names] for fit in fits]))
    typical = np.exp(logs.groupby([entry.device for entry in have]).mean().mean())
    return dict(zip(names, [rounded(value, 4) for value in typical], strict=True))


def kv_dtypes(fits: dict[tuple[str, str], KernelFitting]) -> list[str]:
    """Return the dtypes of the KV cache that were fitted."""
    return sorted({dtype for _, dtype in fits})


def add_sparse_attention() -> None:
    """Fit all tables, and write profiles and typical kernels."""
    found = fit_all()
    add_to_profiles(found)
    typical = with_typical(load_typical(), found).model_copy(
        update={"date": date.today().isoformat()}
    )
    write_text(RECORDS / "stacks/typical.toml", toml_text(typical) + "\n")


if __name__ == "__main__":
    add_sparse_attention()
