"""What each component of each pass does and takes: its place under the roofs, and its seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import step_work
from specmodel.prediction.outcome import Prediction
from specmodel.records.layers.work import Work

if TYPE_CHECKING:
    import pandas as pd


def pass_components(prediction: Prediction) -> pd.DataFrame:
    """Return the work, time and roofs of each component of each pass, on each GPU.

    Parameters
    ----------
    prediction
        Points whose passes are taken apart.

    Returns
    -------
    pandas.DataFrame
        A row for each point, pass (forward, verify, draft pass) and component: batch_size,
        draft_length, context_length, pass, component, kind, dtype; time [s]; flop [FLOP] and
        bytes of device memory [B]; arithmetic_intensity [FLOP/B] and flops_per_s [FLOP/s], which
        was attained; peak_flops_per_s [FLOP/s] and peak_bytes_per_s [B/s] of the data sheet, and
        the two times the efficiencies of the kernels, fitted_flops_per_s and fitted_bytes_per_s.
        What the host adds is the component host. Numbers that mean nothing are NaN.

    Notes
    -----
    Time has launches and communication in it, so that a component stays below its roofs.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="mixtral-8x7b", hardware="h200_sxm", drafter="ngram", draft_length=3,
    ...             batch_size=1, acceptance=0.6, stack="datasheet")
    >>> table = pass_components(p)
    >>> verify = table[table["pass"] == "verify"]
    >>> bool(np.isclose(verify["time"].sum(), p.verify_time))
    True
    >>> float(verify.set_index("component").loc["routed_experts", "arithmetic_intensity"].round(2))
    1.72
    """
    import pandas as pd

    p, shape = prediction, prediction.batch_size.shape
    names = ("batch_size", "draft_length", "context_length")
    points: dict[str, Any] = {name: np.ravel(getattr(p, name)).astype(int) for name in names}
    points["point"] = np.arange(p.batch_size.size)
    works = step_work(
        p.deployment,
        batch_size=p.batch_size,
        draft_length=p.draft_length,
        verify_tokens=p.verify_tokens,
        context_length=p.context_length,
    )
    parts = []
    for told, time in p.times.passes.items():
        work = works[told]
        columns = {
            name: _columns(part, time.components[name].total_time, p.deployment)
            for name, part in work.components.items()
        }
        if np.any(time.overhead_time):
            columns["host"] = {"kind": "host", "time": time.overhead_time, "flop": 0.0}
        for component, values in columns.items():
            flat = {n: np.ravel(np.broadcast_to(v, shape)) for n, v in values.items()}
            parts.append(pd.DataFrame(points | {"pass": told, "component": component} | flat))
    table = pd.concat(parts, ignore_index=True)
    return table.sort_values("point", kind="stable", ignore_index=True).drop(columns="point")


def _columns(work: Work, seconds: Any, deployment: Deployment) -> dict[str, Any]:
    """Return what a component does, and the roofs above it."""
    kernels = deployment.kernels.parameters(work.kind, work.stored_dtype, work.dtype)
    peak_bytes = deployment.hardware.memory.peak_bytes_per_s
    peak_flops = deployment.hardware.peak_flops_per_s(work.dtype)
    moved = np.asarray(work.weight_bytes + work.activation_bytes + work.kv_bytes)
    flop = np.asarray(work.flop)
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity, attained = flop / moved, flop / seconds
    return {
        "kind": work.kind,
        "dtype": work.dtype,
        "time": seconds,
        "flop": flop,
        "bytes": moved,
        "arithmetic_intensity": np.where(moved > 0, intensity, np.nan),
        "flops_per_s": attained,
        "peak_flops_per_s": peak_flops,
        "peak_bytes_per_s": peak_bytes,
        "fitted_flops_per_s": kernels.compute_efficiency * peak_flops,
        "fitted_bytes_per_s": kernels.memory_efficiency * peak_bytes,
    }
