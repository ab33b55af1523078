"""Turn a file of timings into a profile with fitted kernels, and check both."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from specmodel.calibrate.fit.kernels import Fittings, fit_kernels, fitted_stack
from specmodel.calibrate.fit.result import rounded
from specmodel.calibrate.measure.kernels.device import DeviceInfo
from specmodel.calibrate.measure.kernels.rows import read_rows
from specmodel.calibrate.measure.kernels.suite import ALL_REDUCE, COPY, DTYPES, LAUNCH, LAUNCHED_AS
from specmodel.calibrate.measure.measurements import check_measurements, groups
from specmodel.core.algebra import ranks
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import as_table, build, toml_text
from specmodel.core.base.tables import ARGUMENT, numbers
from specmodel.core.layers.work import wider_dtype
from specmodel.core.machines.hardware import HardwareProfile, Link, list_hardware, load_hardware
from specmodel.core.machines.profiles import hardware_text, with_stack

DRIFT = 0.1  # drift of the references over a run from which a device is flagged [-]
MISSED = 0.2  # mean error of a fit from which a kind is warned of [-]
AGREEING = 0.25  # share of it by which halves of repeats differ at most if the law is wrong [-]

_FASTEST_PCIE = 7e10


class Calibration(Struct, frozen=True, kw_only=True, eq=False):
    """A profile made of timings."""

    text: str  # in TOML
    fits: Fittings
    noise: Mapping[str, float]  # how well repeats of a point agree, as `noise` has it [-]
    launch_times: Mapping[str, float]  # of a kernel that does next to nothing, by how [s]
    skipped: Mapping[str, str]  # points that could not be timed, and why
    link: Link | None  # as all-reduces show it
    flags: Sequence[str]  # what speaks against the timings
    doubtful: Mapping[str, str]  # kinds whose timings should be repeated, and why


def check_output(output: str | Path) -> Path:
    """Return the CSV of timings next to a profile; never replace a profile without timings."""
    path = Path(output)
    if path.suffix != ".toml":
        raise InputError("output", str(output), "a .toml file")
    if not path.parent.is_dir():
        raise InputError("output", str(output), "a file in a folder that exists")
    rows = path.with_suffix(".csv")
    if path.exists() and not rows.exists():
        expected = f"a new file: {rows.name}, which belongs to this profile, is missing"
        raise InputError("output", str(output), expected)
    return rows


def calibrate_rows(
    path: str | Path, info: DeviceInfo, *, date: str, hardware: str | Path | None = None
) -> Calibration:
    """Fit kernels to a file of timings, and add them to the profile of the device.

    The profile is the one that `hardware` names, or else the shipped one for the device. Without
    either, it is a new one whose peaks are the best measured values.
    """
    rows = read_rows(path)
    start = hardware or (info.hardware if info.hardware in list_hardware() else None)
    if start is None:
        profile = measured_profile(rows, info)
        text = toml_text(profile) + "\n"
    else:
        profile, text = load_hardware(start), hardware_text(start)
    fits, doubtful = _fit_what_can_be(check_measurements(rows), profile)
    broken = _missed(rows, fits, doubtful)
    source = f"specmodel calibrate, {info.name}, driver {info.driver}"
    stack = fitted_stack(fits, version=info.version, source=source, date=date)
    noted = rows[rows["note"].notna()]
    moved = drift(rows)
    sessions = json.loads(Path(path).with_suffix(".json").read_text(encoding="utf-8"))["sessions"]
    flags = [*dict.fromkeys(f for each in sessions for f in each.get("flags", [])), *broken]
    if abs(moved) > DRIFT:
        flags.append(f"drifted: references took {moved:+.0%} in the last third of the rows")
    return Calibration(
        text=with_stack(text, info.timed.stack.fitted_as, replace(stack, is_measured_here=True)),
        fits=fits,
        noise=noise(rows),
        launch_times=launch_times(rows),
        skipped=dict(zip(noted["point"], noted["note"], strict=True)),
        link=measured_link(rows),
        flags=flags,
        doubtful=doubtful,
    )


def _fit_what_can_be(
    table: pd.DataFrame, profile: HardwareProfile
) -> tuple[Fittings, dict[str, str]]:
    """Return fits, and by kind why it has none."""
    doubtful, kept = dict[str, str](), table
    try:
        fits = fit_kernels(table, profile)
    except InputError:
        for kind, dtype, part in groups(table):
            try:
                fit_kernels(part, profile)
            except InputError as error:
                kept = kept.drop(part.index)
                if kept.empty:
                    raise
                of = "" if dtype in DTYPES else f" in {dtype}"
                doubtful[kind] = f"not in the profile{of} ({error})"
        fits = fit_kernels(kept, profile)
    return fits, doubtful


def _missed(rows: pd.DataFrame, fits: Fittings, doubtful: dict[str, str]) -> list[str]:
    """Return a sentence for each kind whose law does not hold; add kinds of noise to `doubtful`."""
    broken = list[str]()
    for (kind, _), fitting in fits.items():
        if (error := fitting.fit.mean_error) <= MISSED:
            continue
        missed = f"missed by {error:.0%} on average (2 to 10 % on a quiet machine)"
        timed = rows[rows["note"].isna() & (rows["component"] == kind)]
        is_late = timed["repeat"] > timed["repeat"].median()
        differ = _halves_differ(timed["latency"], timed["point"], is_late)
        halves = f"earlier and later repeats differ by {differ:.1%}"
        if differ < AGREEING * error:
            broken.append(f"{kind} is {missed}, and {halves}: no noise, the law does not hold here")
        else:
            doubtful[kind] = f"{missed}, and {halves}: noise"
    return broken


def noise(rows: pd.DataFrame) -> dict[str, float]:
    """Return how well repeats of a point agree: relative differences, medians over points [-].

    `raw` and `ratio` are standard deviations of times and of their ratios to the reference,
    `split_half` is the difference between the medians of odd and of even repeats.
    """
    timed = rows[rows["note"].isna() & (rows["latency"] != rows["reference_latency"])]
    ratio = timed["latency"] / timed["reference_latency"]
    timed = timed.assign(ratio=ratio, is_odd=timed["repeat"] % 2 == 1)
    points = timed.groupby("point")[["latency", "ratio"]]
    raw, ratio_noise = (points.std() / points.mean()).median()
    split = _halves_differ(timed["ratio"], timed["point"], timed["is_odd"])
    return {"raw": float(raw), "ratio": float(ratio_noise), "split_half": split}


def _halves_differ(values: pd.Series, points: pd.Series, is_second: pd.Series) -> float:
    """Return how far medians of two halves of each point's repeats differ, median of points [-]."""
    medians = values.groupby([points, is_second]).median().unstack()
    medians = medians.reindex(columns=[True, False])  # all repeats but the first may have failed
    split = (medians[True] - medians[False]).abs() / medians.mean(axis=1)
    return float(split.median())


def drift(rows: pd.DataFrame) -> float:
    """Return by how much references grew from the first third of repeats to the last [-]."""
    timed = rows[rows["note"].isna() & (rows["component"] != ALL_REDUCE)]
    third = (timed["repeat"] * 3) // (timed["repeat"].max() + 1)
    medians = timed.groupby(["group", third])["reference_latency"].median().unstack()
    return float((medians.iloc[:, -1] / medians.iloc[:, 0] - 1).median())


_RATED = {COPY: ("bytes",), "gemm": ("num_tokens", "input_size", "output_size")}
"""What the best rates of a device without a data sheet are taken from, by component."""


def measured_profile(rows: pd.DataFrame, info: DeviceInfo) -> HardwareProfile:
    """Return a profile of a device without a data sheet, with the best measured rates as peaks."""
    timed = rows[rows["note"].isna()]
    if not (timed["component"] == "gemm").any():
        expected = "timed matrix products for the peaks: run again with `again='gemm'`"
        raise InputError("hardware", "no timed gemm", expected)
    streamed, computed = _peaks(timed, info.dtype)
    source = f"measured: the fastest of the suite on {info.name}, torch {info.torch}"
    link = measured_link(rows)
    data = {
        "schema_version": 1,
        "name": info.name,
        "link": as_table(link) if link else None,
        "kind": "cpu" if info.kind == "cpu" else "gpu",
        "num_multiprocessors": info.num_multiprocessors,
        "compute_capability": info.compute_capability,
        "memory": {
            "capacity_bytes": info.capacity_bytes,
            "peak_bytes_per_s": rounded(streamed, 4),
            "l2_bytes": info.l2_bytes,
            "source": source,
        },
        "dtype": {
            dtype: {"peak_flops_per_s": rounded(peak, 4), "source": source}
            for dtype, peak in computed.items()
        },
    }
    return build(HardwareProfile, data, "hardware")


def _peaks(timed: pd.DataFrame, dtype: str) -> tuple[float, dict[str, float]]:
    """Return the fastest reading [B/s], and the fastest products by dtype of their arithmetic.

    Rows that tell no dtype have `dtype`; rates of arithmetic are in [FLOP/s].
    """
    copied = _medians(timed, COPY)
    streamed, computed = [(2 * copied["bytes"] / copied["latency"]).max()], dict[str, float]()
    products = timed[timed["component"] == "gemm"]
    names = ["activation_dtype", "weight_dtype"]
    dtypes = products.reindex(columns=names).astype("string").fillna(dtype)
    for (activation, stored), rows in products.groupby([dtypes[name] for name in names]):
        middle = _medians(rows, "gemm")
        per_s = middle["input_size"] * middle["output_size"] / middle["latency"]
        streamed.append(BYTES_PER_ELEMENT[str(stored)] * per_s.max())
        arithmetic = wider_dtype(str(activation), str(stored))
        rate = float((2 * middle["num_tokens"] * per_s).max())
        computed[arithmetic] = max(rate, computed.get(arithmetic, 0.0))
    return float(np.nanmax(streamed)), computed


def _medians(timed: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return medians over the repeats of each point of a component, of what it is rated by."""
    rows = timed[timed["component"] == kind]
    # of other components, one cell of text makes a column of text
    columns = {name: numbers(rows, name) for name in (*_RATED[kind], "latency")}
    return pd.DataFrame(columns).groupby(rows["point"].to_numpy()).median()


def measured_link(rows: pd.DataFrame) -> Link | None:
    """Return the link that timed all-reduces show, with the latency of all GPUs, or None."""
    reduced = rows[rows["component"] == ALL_REDUCE]
    if reduced.empty:
        return None
    latency, bytes_per_s = fit_link(reduced)
    count = int(reduced["num_gpus"].max())
    return Link(
        kind="nvlink" if bytes_per_s > _FASTEST_PCIE else "pcie",
        num_gpus=count,
        peak_bytes_per_s=rounded(bytes_per_s, 4),
        collective_latency=rounded(latency, 4),
        hop_latency=0.0,
        source=f"measured: all-reduces over {count} GPUs",
        latency_source="the same",
    )


def fit_link(rows: pd.DataFrame) -> tuple[float, float]:
    """Return the ``collective_latency`` [s] and ``peak_bytes_per_s`` [B/s] of a timed link.

    The bandwidth is that of one direction; hops are taken to cost nothing. Relative errors are
    minimised, as times span five decades and errors in seconds would leave the latency to the
    largest.
    """
    from scipy.optimize import nnls

    checked = pd.DataFrame({
        "num_gpus": numbers(rows, "num_gpus", minimum=2, whole=True),
        "bytes": numbers(rows, "bytes"),
        "latency": numbers(rows, "latency"),
    })  # fmt: skip
    medians = checked.groupby(["num_gpus", "bytes"], as_index=False).median()
    num_gpus, size, latency = medians.to_numpy().T
    if len(medians) < 2:
        raise InputError(f"{ARGUMENT}.bytes", size.tolist(), f"{ALL_REDUCE} of at least two sizes")
    shares = [ranks.all_reduce(int(n), int(n)).link_share for n in num_gpus]
    parts = np.stack([1 / latency, size * shares / latency], axis=1)
    scale = np.linalg.norm(parts, axis=0)
    fixed, per_byte = nnls(parts / scale, np.ones(len(parts)))[0] / scale
    if per_byte == 0:
        raise InputError(f"{ARGUMENT}.latency", latency.tolist(), "times that grow with the bytes")
    return float(fixed), float(1 / per_byte)


def launch_times(rows: pd.DataFrame) -> dict[str, float]:
    """Return the time of a kernel that does next to nothing, eagerly and in a graph [s]."""
    launches = rows[(rows["component"] == LAUNCH) & rows["note"].isna()]
    medians = launches.groupby("graphs")["latency"].median()
    known = {name: graphs for graphs, name in LAUNCHED_AS.items() if graphs in medians}
    return {name: float(medians[graphs]) for name, graphs in known.items()}
