"""From rows to a profile: what the peaks are taken to be, and how noisy the machine was."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.base.records import build
from specmodel.base.tables import read_table
from specmodel.calibrate.measure.collectives import fit_link
from specmodel.calibrate.measure.device import DeviceInfo
from specmodel.calibrate.measure.suite import DTYPE
from specmodel.records.hardware import HardwareProfile, Link

_FASTEST_PCIE = 7e10


@dataclass(frozen=True)
class Noise:
    """How well repeats of a point agree, medians over points.

    Parameters
    ----------
    raw
        Standard deviation over mean of the times of a point [-].
    ratio
        The same of their ratios to the reference [-].
    split_half
        Difference between the medians of odd and of even repeats, over their mean [-].
    """

    raw: float
    ratio: float
    split_half: float


def read_rows(path: str | Path) -> pd.DataFrame:
    """Return all rows of a file that `session.run_suite` wrote, with what was skipped.

    Parameters
    ----------
    path
        The CSV.

    Returns
    -------
    pandas.DataFrame
        Unchecked; `measurements.check_measurements` takes it.
    """
    text = ("component", "hardware", "stack", "version", "role", "point", "group", "note")
    return read_table(path, text)


def noise(rows: pd.DataFrame) -> Noise:
    """Return how well repeats agree.

    Parameters
    ----------
    rows
        As `read_rows` returns them.

    Returns
    -------
    Noise
        Medians over points that have several repeats.
    """
    timed = rows[rows["note"].isna() & (rows["latency"] != rows["reference_latency"])]
    timed = timed.assign(ratio=timed["latency"] / timed["reference_latency"])
    by_point = timed.groupby("point")
    half = timed.assign(is_odd=timed["repeat"] % 2 == 1)
    medians = half.groupby(["point", "is_odd"])["ratio"].median().unstack()
    split = (medians[True] - medians[False]).abs() / medians.mean(axis=1)
    return Noise(
        raw=float((by_point["latency"].std() / by_point["latency"].mean()).median()),
        ratio=float((by_point["ratio"].std() / by_point["ratio"].mean()).median()),
        split_half=float(split.median()),
    )


def drift(rows: pd.DataFrame) -> float:
    """Return by how much references grew from the first to the last third of the repeats [-].

    Parameters
    ----------
    rows
        As `read_rows` returns them, in the order of measurement.

    Returns
    -------
    float
        Median over groups of the ratio, less one [-].
    """
    timed = rows[rows["note"].isna() & (rows["component"] != "all_reduce")]
    third = (timed["repeat"] * 3) // (timed["repeat"].max() + 1)
    medians = timed.groupby(["group", third])["reference_latency"].median().unstack()
    return float((medians.iloc[:, -1] / medians.iloc[:, 0] - 1).median())


def measured_profile(rows: pd.DataFrame, info: DeviceInfo) -> HardwareProfile:
    """Return a hardware profile whose peaks are the best that was measured.

    Parameters
    ----------
    rows
        As `read_rows` returns them.
    info
        The device.

    Returns
    -------
    HardwareProfile
        For a device that no data sheet is at hand of; fits add what is achieved of the peaks.
    """
    timed = rows[rows["note"].isna()]
    medians = timed.groupby("point").median(numeric_only=True)
    component = timed.groupby("point")["component"].first()
    copied = medians[component == "copy"]
    products = medians[component == "gemm"]
    size = products["input_size"] * products["output_size"]
    streamed = [2 * copied["bytes"] / copied["latency"], 2 * size / products["latency"]]
    computed = 2 * products["num_tokens"] * size / products["latency"]
    source = f"measured: the fastest of the suite on {info.name}, torch {info.torch}"
    link = measured_link(rows)
    data = {
        "schema_version": 1,
        "name": info.name,
        "link": link.model_dump() if link else None,
        "kind": "cpu" if info.kind == "cpu" else "gpu",
        "num_multiprocessors": info.num_multiprocessors,
        "memory": {
            "capacity_bytes": info.capacity_bytes,
            "peak_bytes_per_s": _rounded(max(part.max() for part in streamed)),
            "l2_bytes": info.l2_bytes,
            "source": source,
        },
        "dtype": {DTYPE: {"peak_flops_per_s": _rounded(computed.max()), "source": source}},
    }
    return build(HardwareProfile, data, "hardware")


def measured_link(rows: pd.DataFrame) -> Link | None:
    """Return the link that timed all-reduces show; None if there were none.

    Parameters
    ----------
    rows
        As `read_rows` returns them.

    Returns
    -------
    Link or None
        Hops take no time of their own: its latency is that of all the GPUs there were.
    """
    reduced = rows[rows["component"] == "all_reduce"]
    if reduced.empty:
        return None
    latency, bytes_per_s = fit_link(reduced)
    count = int(reduced["num_gpus"].max())
    return Link(
        kind="nvlink" if bytes_per_s > _FASTEST_PCIE else "pcie",
        num_gpus=count,
        peak_bytes_per_s=_rounded(bytes_per_s),
        collective_latency=_rounded(latency),
        hop_latency=0.0,
        source=f"measured: all-reduces over {count} GPUs",
        latency_source="the same",
    )


def launch_times(rows: pd.DataFrame) -> dict[str, float]:
    """Return the time of a kernel that does next to nothing, eagerly and in a graph [s]."""
    launches = rows[(rows["component"] == "launch") & rows["note"].isna()]
    medians = launches.groupby("graphs")["latency"].median()
    names = {0: "eager", 1: "graph"}
    return {name: float(medians[graphs]) for graphs, name in names.items() if graphs in medians}


def _rounded(value: float) -> float:
    return float(np.format_float_positional(value, precision=4, fractional=False))
