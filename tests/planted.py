"""Measurements of kernels with known parameters, for tests of fits."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from specmodel import load_hardware
from specmodel.calibrate.fit import predicted_time
from specmodel.core.algebra.roofline import KernelParameters

H200 = load_hardware("h200_sxm")
KINDS = ("experts", "gemm", "attention", "latent_attention", "recurrence")
DTYPES = dict.fromkeys(KINDS, "bf16") | {"recurrence": "fp32"}
"""Dtype of weights, cache or state."""
_DATA = json.loads((Path(__file__).parent / "data/planted.json").read_text(encoding="utf-8"))
PLANTED = _DATA["parameters"]
"""Parameters inside the bounds of the fit [s] [-]."""
_LIKE = {"latent_prompt_attention": "prompt_attention"}
"""Kinds with the shapes, sizes and parameters of another kind."""


def points(kind: str) -> pd.DataFrame:
    """Return every shape of a component at all its sizes, in bf16."""
    stored, kind = DTYPES.get(kind, "bf16"), _LIKE.get(kind, kind)
    shapes, sizes, columns = (_DATA[name][kind] for name in ("shapes", "sizes", "columns"))
    rows = [shape + size for shape in shapes for size in sizes]
    table = pd.DataFrame(rows, columns=columns)
    if kind == "experts":
        used = table["experts_per_token"] * table["num_tokens"]
        table["active_experts"] = np.minimum(table["num_experts"], used)
    return table.assign(**{_DATA["stored"][kind]: stored}, activation_dtype="bf16")


def planted(kind: str, sharpness: float = 4.0, noise: float = 0.0, **changes) -> pd.DataFrame:
    """Return the times of planted parameters; every third shape is there to judge the fit."""
    rows, like = points(kind), _LIKE.get(kind, kind)
    parameters = KernelParameters(**(PLANTED[like] | changes), sharpness=sharpness)
    factor = np.exp(noise * np.random.default_rng(7).standard_normal(len(rows)))
    count = len(_DATA["shapes"][like])
    shape = np.repeat(np.arange(count), len(rows) // count)
    return rows.assign(
        component=kind, hardware="h200_sxm", stack="mine", version="1.2.3",
        latency=predicted_time(kind, rows, H200, parameters) * factor,
        role=np.where(shape % 3 == 2, "judge", "fit"),
    )  # fmt: skip
