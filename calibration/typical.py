"""Write typical kernels: geometric means of fits, with errors on devices that were left out."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace

from published.mixers import RECURRENCES
from published.tables import NORMS
from specmodel.calibrate.fit.kernels import KIND_FITS, normal_spreads
from specmodel.calibrate.fit.result import rounded
from specmodel.calibrate.fit.timed_work import judge, shape_errors
from specmodel.calibrate.measure.measurements import groups, judged_rows
from specmodel.core.algebra.roofline import KernelParameters
from specmodel.core.layers.kinds import FITTED_KINDS
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import FITTED_DTYPE, FittedStack, KernelFit

NORMS_ARE = f"; norms as quantisation of {' '.join(NORMS)}"
KIMI_IS = "; Kimi's recurrence of {stack} {version}"
RECURRENCES_ARE = f"; recurrences of {RECURRENCES[0]} " + " and ".join(
    f"{name} {version}" for name, version in RECURRENCES[1].items()
)
OF_THEIR_OWN = {
    "latent_attention": ("NVIDIA L40S", "NVIDIA RTX PRO 6000 Blackwell Server"),
    "recurrence": ("NVIDIA L40S",),
    "prompt_attention": ("NVIDIA L40S", "NVIDIA RTX PRO 6000 Blackwell Server"),
    "latent_prompt_attention": ("NVIDIA RTX PRO 6000 Blackwell Server",),
}
"""Devices whose fits of a kind do not represent others. Latent attention runs there with kernels
that compute at an eighth of the peak. No timing of a recurrence on L40S shows its launch. Peaks of
arithmetic are so low there that exponentials of prompts cost nothing in comparison."""


OF_A_STACK = ("kimi_recurrence",)
"""Kinds whose fits are of the kernels of one stack and do not represent other stacks."""


class Fitted(NamedTuple):
    """A table of measurements and the stack that was fitted to it."""

    hardware: HardwareProfile
    table: pd.DataFrame
    stack: FittedStack


def typical_stack(fitted: list[Fitted], today: str) -> FittedStack:
    """Return kernels with the geometric means of fitted parameters.

    Their errors and spreads are those on the rows of each device by the mean of the others: what to
    expect on a device that nothing was measured on.
    """
    devices = sorted({entry.hardware.name for entry in fitted})
    fits: dict[str, Any] = {
        kind: typical_fits(kind, fitted) for kind in FITTED_KINDS if kind not in OF_A_STACK
    }
    computing = {"compute_efficiency": fits["gemm"][FITTED_DTYPE].compute_efficiency}
    fits["attention"] = {
        dtype: replace(fit, **computing) for dtype, fit in fits["attention"].items()
    }
    source = (
        f"geometric means of fits on {', '.join(devices)}; errors leave one device out{NORMS_ARE}"
        f"{RECURRENCES_ARE}"
    )
    return FittedStack(version=today, source=source, date=today, **fits)


def typical_fits(kind: str, fitted: list[Fitted]) -> dict[str, KernelFit]:
    """Return the typical fits of a kind, for dtypes that were fitted on at least two devices.

    Only dtypes with errors on left-out shapes are used: shapes of one model say little about
    others.
    """
    entries = [entry for entry in fitted if entry.hardware.name not in OF_THEIR_OWN.get(kind, ())]
    dtypes = sorted({dtype for entry in entries for dtype in getattr(entry.stack, kind)})
    have = {dtype: [e for e in entries if is_judged(e, kind, dtype)] for dtype in dtypes}
    return {
        dtype: typical_fit(kind, dtype, some)
        for dtype, some in have.items()
        if len({entry.hardware.name for entry in some}) > 1
    }


def is_judged(entry: Fitted, kind: str, dtype: str) -> bool:
    """Tell whether a stack has a fit that was judged by shapes left out."""
    fit = getattr(entry.stack, kind).get(dtype)
    return fit is not None and fit.is_held_out


def typical_fit(kind: str, dtype: str, fitted: list[Fitted]) -> KernelFit:
    judged = pd.concat(
        [left_out(kind, dtype, entry, fitted) for entry in fitted], ignore_index=True
    )
    arithmetic = getattr(fitted[0].stack, kind)[dtype].arithmetic_dtype
    values = {"memory_efficiency": 1.0} | means(kind, dtype, fitted)
    return judged_elsewhere(judged, arithmetic_dtype=arithmetic, **values)


def judged_elsewhere(judged: pd.DataFrame, **parameters: Any) -> KernelFit:
    """Return parameters with their errors on devices that were left out of them."""
    common, row = normal_spreads(-np.log1p(judged["error"]), judged["shape"])
    errors: dict[str, Any] = {**shape_errors(judged)}
    return KernelFit(
        **parameters,
        num_points=0,
        num_judged=len(judged),
        is_held_out=True,
        **errors,
        shape_spread=common,
        row_spread=row,
        varied=[],
        covariance=[],
    )


def left_out(kind: str, dtype: str, entry: Fitted, fitted: list[Fitted]) -> pd.DataFrame:
    """Judge the rows of one table by the mean of the fits on other devices."""
    others = [other for other in fitted if other.hardware.name != entry.hardware.name]
    parameters = KernelParameters(**means(kind, dtype, others))
    parts = {(part, name): rows for part, name, rows in groups(entry.table)}
    rows = judged_rows(parts[kind, dtype])
    device = f"{entry.hardware.name} {rows['stack'].iloc[0]}/"
    return judge(kind, rows, entry.hardware, parameters).assign(shape=device + rows["shape"])


def means(kind: str, dtype: str, fitted: list[Fitted]) -> dict[str, float]:
    """Return geometric means of parameters over devices.

    Sharpnesses are powers of two, which are cheap to compute, and so is their mean.
    """
    fits = [getattr(entry.stack, kind)[dtype] for entry in fitted]
    devices = [entry.hardware.name for entry in fitted]
    found = geometric_means(fits, [*KIND_FITS[kind].bounds, "sharpness"], devices)
    return found | {"sharpness": 2.0 ** round(math.log2(found["sharpness"]))}


def geometric_means(
    fits: Sequence[KernelFit], names: Sequence[str], devices: Sequence[str]
) -> dict[str, float]:
    """Return geometric means by name, over the fits of a device first: each device counts once."""
    logs = pd.DataFrame(np.log([[getattr(fit, name) for name in names] for fit in fits]))
    typical = np.exp(logs.groupby(list(devices)).mean().mean())
    return dict(zip(names, [rounded(value, 4) for value in typical], strict=True))
