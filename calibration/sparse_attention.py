"""Fit layers of sparse attention for all published GPUs and engines, and write the fits.

These layers were published as wholes: sparse attention over latents (DSA), block-sparse attention
to grouped heads (MSA), and compressed attention (HCA with CSA) with its residual streams (mHC).

Usage: python calibration/sparse_attention.py [dsa] [msa] [hca] [mhc]; by default all of them. The
script runs after `all_published.py` or as a part of it. It adds fits to the stacks of the profiles,
and typical fits. It prints the errors on shapes that were not fitted, and the replacement for each
engine without a fit.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace

from fallbacks import KEY, ranking, with_fits
from published import block_sparse_modules as msa, compressed_modules as v4, sparse_modules as dsa
from published.datasets import list_tables, source_name
from published.layers import predicted_time
from published.rivals import slow_layers
from published.tables import SERVERS
from specmodel.calibrate.fit.kernels import KernelFitting
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.core.machines.fallbacks import Ranking, load_rankings
from specmodel.core.machines.hardware import HardwareProfile, load_hardware
from specmodel.core.machines.kernels import FITTED_DTYPE, FittedStack, KernelFit, load_typical
from specmodel.core.machines.profiles import hardware_text, with_stack
from typical import geometric_means, judged_elsewhere

ROOT = Path(__file__).parents[1]
PROFILES, RECORDS = ROOT / "hw_profiles", ROOT / "specmodel/core/machines/data"
SHARPNESS = 2.0
"""Exponent of typical layers, the one fitted to most [-]."""


class Layers(NamedTuple):
    """Layers of a kind that were published whole: where, and how they are read and fitted."""

    name: str
    operation: str
    engines: Mapping[str, str]
    devices: tuple[str, ...] | None
    of_kind: Mapping[str, Mapping[str, str]]
    table: Callable[[str, str], pd.DataFrame]
    works: Callable[[pd.DataFrame, HardwareProfile], Any]
    fit: Callable[[pd.DataFrame, HardwareProfile, str], dict[tuple[str, str], KernelFitting]]

    @property
    def main_kind(self) -> str:
        """Kind whose errors are those of whole layers."""
        return next(iter(self.of_kind))


def fit_latent(table: pd.DataFrame, hardware: HardwareProfile, device: str) -> Any:
    """Fit sparse attention over latents, with the compute efficiency of its indexer."""
    return dsa.fit_sparse_modules(table, hardware, dsa.index_compute_efficiency(device))


def fit_blocks(table: pd.DataFrame, hardware: HardwareProfile, device: str) -> Any:
    """Fit block-sparse attention."""
    del device
    return msa.fit_block_sparse_modules(table, hardware)


def fit_compressed(table: pd.DataFrame, hardware: HardwareProfile, device: str) -> Any:
    """Fit compressed attention, with the compute efficiency of the same indexer."""
    return v4.fit_compressed_modules(table, hardware, dsa.index_compute_efficiency(device))


def fit_streams(table: pd.DataFrame, hardware: HardwareProfile, device: str) -> Any:
    """Fit residual streams."""
    del device
    return v4.fit_stream_modules(table, hardware)


KINDS = (
    Layers(
        "sparse attention", "dsa", dsa.ENGINES, None, dsa.OF_KIND, dsa.sparse_modules,
        dsa.modules_work, fit_latent,
    ),
    Layers(
        "block-sparse attention", "msa", msa.ENGINES, SERVERS, msa.OF_KIND,
        msa.block_sparse_modules, msa.block_modules_work, fit_blocks,
    ),
    Layers(
        "compressed attention", "hca", v4.ENGINES, SERVERS, v4.OF_KIND, v4.compressed_modules,
        v4.compressed_work, fit_compressed,
    ),
    Layers(
        "residual streams", "mhc", v4.STREAM_ENGINES, SERVERS, v4.STREAM_OF_KIND,
        v4.stream_modules, v4.stream_work, fit_streams,
    ),
)  # fmt: skip
"""Kinds of layers that are fitted here."""

OPERATIONS = tuple(layers.operation for layers in KINDS)


class Fitted(NamedTuple):
    """Layers of an engine on a GPU, and their fits by kind and dtype of the cache."""

    layers: Layers
    device: str
    engine: str
    hardware: HardwareProfile
    table: pd.DataFrame
    fits: dict[tuple[str, str], KernelFitting]


def tables_of(layers: Layers) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the tables there are of a kind of layers, by device and engine."""
    columns = ["hardware", "framework", "version"]
    names = list_tables().query("operation == @layers.operation")[columns].astype(str)
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for device, engine, version in names.to_numpy().tolist():
        is_read = layers.engines.get(engine) == version
        if is_read and (not layers.devices or device in layers.devices):
            found.setdefault(device, {})[engine] = layers.table(device, engine)
    return found


def fit_all(layers: Layers) -> list[Fitted]:
    """Fit every table of a kind of layers but those that took far longer than another engine's."""
    found = []
    for device, tables in tables_of(layers).items():
        slow = slow_layers(tables)
        for engine, table in tables.items():
            if engine in slow:
                print(f"{layers.operation} {device:10} {engine:7} is left out: launched apart")
                continue
            hardware = load_hardware(PROFILES / f"{device}.toml")
            fits = layers.fit(table, hardware, device)
            found.append(Fitted(layers, device, engine, hardware, table, fits))
            for kv_dtype in kv_dtypes(fits):
                fit = fits[layers.main_kind, kv_dtype].fit
                print(
                    f"{layers.operation} {device:10} {engine:7} KV {kv_dtype:4} "
                    f"fitted {fit.num_points:5} judged {fit.num_judged:5}: "
                    f"mean {fit.mean_error:.1%} median {fit.median_error:.1%} "
                    f"90 % {fit.percentile_90_error:.1%}",
                    flush=True,
                )
    return found


def ranking_of_layers(found: list[Fitted]) -> Ranking:
    """Return what serves best for an engine's layers of a kind, each table left out in turn."""
    layers, rows = found[0].layers, []
    for entry in found:
        others = [e for e in found if e.device == entry.device and e.engine != entry.engine]
        for dtype in kv_dtypes(entry.fits):
            have = [other for other in others if (layers.main_kind, dtype) in other.fits]
            judged = {"typical": left_out(dtype, entry, found)}
            if have:
                best = min(have, key=lambda e: e.fits[layers.main_kind, dtype].fit.mean_error)
                fits = {kind: best.fits[kind, dtype].fit.parameters for kind in layers.of_kind}
                judged["other_stack"] = judged_by(dtype, entry, fits)
            for candidate, table in judged.items():
                if len(table):
                    place = (entry.device, entry.engine, layers.main_kind, dtype)
                    row = dict(zip(KEY, place, strict=True)) | {"candidate": candidate}
                    rows.append(row | errors_of(table))
    return ranking(pd.DataFrame(rows))


def add_to_profiles(found: list[Fitted]) -> None:
    """Write the fits to the stacks that profiles have, or none of these kinds; all else is kept."""
    fitted, layers = {(entry.device, entry.engine): entry.fits for entry in found}, found[0].layers
    for device in dict.fromkeys(entry.device for entry in found):
        path = PROFILES / f"{device}.toml"
        for engine, stack in sorted(load_hardware(path).fitted.items()):
            fits = fitted.get((device, engine), {})
            source = f"{engine} {layers.engines.get(engine)}, {source_name()}"
            bare = with_fits(stack, {kind: {} for kind in layers.of_kind})
            bare = replace(bare, source=stack.source.replace(_note(source, layers.name), ""))
            changed = with_sparse_modules(stack, fits, source, layers.name) if fits else bare
            write_text(path, with_stack(hardware_text(path), engine, changed))


def with_sparse_modules(
    stack: FittedStack,
    fits: dict[tuple[str, str], KernelFitting],
    source: str,
    name: str = "sparse attention",
) -> FittedStack:
    """Return a stack with new fits of these layers; its other fits do not change.

    Without a fit at 16 bits, the fit at 8 bits is used for all dtypes of the cache.
    """
    own: dict[str, dict[str, KernelFit]] = {kind: {} for kind, _ in fits}
    for (kind, dtype), fitting in fits.items():
        own[kind][dtype] = fitting.fit
    for of_kind in own.values():
        if of_kind and FITTED_DTYPE not in of_kind:
            of_kind[FITTED_DTYPE] = next(iter(of_kind.values()))
    return replace(with_fits(stack, own), source=source_with(stack.source, source, name))


def source_with(source: str, measured: str, name: str) -> str:
    """Return the source of a stack and of these measurements, each only once."""
    note = _note(measured, name)
    return source if note in source else source + note


def _note(measured: str, name: str) -> str:
    return f"; {name} of {measured}"


def with_typical(typical: FittedStack, found: list[Fitted]) -> FittedStack:
    """Return typical kernels with geometric means of the fits.

    Errors are those on the layers of each GPU with the mean of the others.
    """
    dtypes = sorted({dtype for entry in found for dtype in kv_dtypes(entry.fits)})
    fits = {dtype: typical_fits(dtype, found) for dtype in dtypes}
    layers = found[0].layers
    own = {kind: {dtype: fits[dtype][kind] for dtype in dtypes} for kind in layers.of_kind}
    devices = ", ".join(sorted({entry.hardware.name for entry in found}))
    source = source_with(typical.source, devices, layers.name)
    return replace(with_fits(typical, own), source=source)


def typical_fits(kv_dtype: str, found: list[Fitted]) -> dict[str, KernelFit]:
    judged = pd.concat([left_out(kv_dtype, entry, found) for entry in found], ignore_index=True)
    return {
        kind: judged_elsewhere(
            judged,
            sharpness=SHARPNESS,
            arithmetic_dtype=FITTED_DTYPE,
            **means(kind, kv_dtype, found),
        )
        for kind in found[0].layers.of_kind
    }


def left_out(kv_dtype: str, entry: Fitted, found: list[Fitted]) -> pd.DataFrame:
    """Judge the layers of one table by the mean of the fits on other GPUs."""
    others = [other for other in found if other.device != entry.device]
    parameters = {
        kind: KernelParameters(**means(kind, kv_dtype, others), sharpness=SHARPNESS)
        for kind in entry.layers.of_kind
    }
    return judged_by(kv_dtype, entry, parameters)


def judged_by(
    kv_dtype: str, entry: Fitted, parameters: Mapping[str, KernelParameters]
) -> pd.DataFrame:
    """Judge the layers of one table by parameters of kernels by kind."""
    rows = entry.table.query("kv_dtype == @kv_dtype and role == 'judge'").reset_index(drop=True)
    if rows.empty:
        return rows.assign(error=[])
    works = list(entry.layers.works(rows, entry.hardware))
    times = predicted_time(works, entry.hardware, parameters)
    name = f"{entry.device} {entry.engine}/"
    return rows.assign(error=times / rows["latency"] - 1, shape=name + rows["shape"])


def errors_of(judged: pd.DataFrame) -> dict[str, float]:
    """Return the mean error, and the median of ln(measured / predicted) [-]."""
    error = judged["error"].abs().groupby(judged["shape"]).mean().mean()
    return {"error": float(error), "shift": float(-np.log1p(judged["error"]).median())}


def means(kind: str, kv_dtype: str, found: list[Fitted]) -> dict[str, float]:
    """Return geometric means of parameters over GPUs."""
    have = [entry for entry in found if (kind, kv_dtype) in entry.fits]
    fits = [entry.fits[kind, kv_dtype].fit for entry in have]
    efficiencies = ("memory_efficiency", "compute_efficiency")
    names = list(dict.fromkeys([*found[0].layers.of_kind[kind], *efficiencies]))
    return geometric_means(fits, names, [entry.device for entry in have])


def kv_dtypes(fits: dict[tuple[str, str], KernelFitting]) -> list[str]:
    """Return the dtypes of the KV cache that were fitted."""
    return sorted({dtype for _, dtype in fits})


def add_sparse_attention(*operations: str) -> None:
    """Fit all tables of some kinds of layers, and write profiles and typical kernels."""
    typical, rule = load_typical(), load_rankings()
    for layers in KINDS:
        if layers.operation in operations:
            found = fit_all(layers)
            add_to_profiles(found)
            typical = with_typical(typical, found)
            ranked = dict.fromkeys(layers.of_kind, ranking_of_layers(found))
            rule = replace(rule, kinds={**rule.kinds, **ranked})
            print(layers.operation, "stands in:", *ranked.values(), flush=True)
    write_text(RECORDS / "fallbacks.toml", toml_text(rule) + "\n")
    typical = replace(typical, date=date.today().isoformat())
    write_text(RECORDS / "stacks/typical.toml", toml_text(typical) + "\n")


if __name__ == "__main__":
    add_sparse_attention(*sys.argv[1:] or OPERATIONS)
