"""Make a profile with fitted kernels from a file of timings, and check the timings and fits."""

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

DRIFT = 0.1  # above this drift of the references over a run, a device is flagged [-]
MISSED = 0.2  # above this mean error of a fit, its kind gets a warning [-]
AGREEING = 0.25
"""If two halves of the repeats differ by less than this share of the mean error, the error is not
noise: the kernels do not follow the law [-]."""

_FASTEST_PCIE = 7e10


class Calibration(Struct, frozen=True, kw_only=True, eq=False):
    """A profile fitted to timings, and what the timings say about their own quality."""

    text: str  # in TOML
    fits: Fittings
    noise: Mapping[str, float]  # how well repeats of a point agree, from `noise` [-]
    launch_times: Mapping[str, float]  # time of a trivial kernel, eager and in a graph [s]
    skipped: Mapping[str, str]  # points that could not be timed, and why
    link: Link | None  # fitted to timed all-reduces
    flags: Sequence[str]  # reasons to doubt all timings
    doubtful: Mapping[str, str]  # kinds whose timings should be repeated, and why


def check_output(output: str | Path) -> Path:
    """Return the path of the CSV with the timings of a profile.

    Raise an InputError if the profile exists without its CSV: it would be overwritten.
    """
    path = Path(output)
    if path.suffix != ".toml":
        raise InputError("output", str(output), "a .toml file")
    if not path.parent.is_dir():
        raise InputError("output", str(output), "a file in a folder that exists")
    rows = path.with_suffix(".csv")
    if path.exists() and not rows.exists():
        expected = f"The measurements of this profile, {rows.name}, are missing. Choose a new file."
        raise InputError("output", str(output), expected)
    return rows


def calibrate_rows(
    path: str | Path, info: DeviceInfo, *, date: str, hardware: str | Path | None = None
) -> Calibration:
    """Fit kernels to a file of timings, and add them to the profile of the device.

    The profile is the one that `hardware` names, or else the shipped profile of the device. If
    there is neither, the profile is new, and its peaks are the best measured values.
    """
    rows = read_rows(path)
    timed, noted = rows[rows["note"].isna()], rows[rows["note"].notna()]
    start = hardware or (info.hardware if info.hardware in list_hardware() else None)
    if start is None:
        profile = measured_profile(timed, info)
        text = toml_text(profile) + "\n"
    else:
        profile, text = load_hardware(start), hardware_text(start)
    refused: dict[tuple[str, str], InputError] = {}
    fits, doubts = fit_kernels(check_measurements(rows), profile, refused), dict[str, list[str]]()
    for (kind, dtype), error in refused.items():
        if not fits:
            raise error
        doubts.setdefault(kind, []).append(f"missing in the profile{_in(dtype)} ({error})")
    broken = _missed(timed, fits, doubts)
    source = f"specmodel calibrate, {info.name}, driver {info.driver}"
    stack = fitted_stack(fits, version=info.version, source=source, date=date)
    moved = drift(timed)
    sessions = json.loads(Path(path).with_suffix(".json").read_text(encoding="utf-8"))["sessions"]
    flags = [*dict.fromkeys(f for each in sessions for f in each.get("flags", [])), *broken]
    if abs(moved) > DRIFT:
        flags.append(f"drift: reference times moved {moved:+.0%} in the last third of the rows")
    return Calibration(
        text=with_stack(text, info.timed.stack.fitted_as, replace(stack, is_measured_here=True)),
        fits=fits,
        noise=noise(timed),
        launch_times=launch_times(timed),
        skipped=dict(zip(noted["point"], noted["note"], strict=True)),
        link=measured_link(timed),
        flags=flags,
        doubtful={kind: "; ".join(reasons) for kind, reasons in doubts.items()},
    )


def _missed(timed: pd.DataFrame, fits: Fittings, doubts: dict[str, list[str]]) -> list[str]:
    """Return a sentence for each kind and dtype that does not follow its law.

    Those whose timings are noisy are added to `doubts`.
    """
    broken = list[str]()
    kinds = [kind for kind, _ in fits]
    for kind, dtype, own in groups(timed[timed["component"].isin(kinds)]):
        error = fits[kind, dtype].fit.mean_error if (kind, dtype) in fits else 0.0
        if error <= MISSED:
            continue
        missed = (
            f"fitted{_in(dtype)} with a mean error of {error:.0%} (2 to 10 % on an idle machine)"
        )
        is_late = own["repeat"] > own["repeat"].median()
        differ = _halves_differ(own["latency"], own["point"], is_late)
        halves = f"earlier and later repeats differ by {differ:.1%}"
        if differ < AGREEING * error:
            law = "the kernels do not follow the law of the fit"
            broken.append(f"{kind} is {missed}. As {halves}, noise is not the cause: {law}")
        else:
            doubts.setdefault(kind, []).append(f"{missed}; {halves}, so the timings are noisy")
    return broken


def _in(dtype: str) -> str:
    """Return the words for a dtype that is not the usual one of its kind."""
    return "" if dtype in DTYPES else f" in {dtype}"


def noise(timed: pd.DataFrame) -> dict[str, float]:
    """Return how well the repeats of a point agree, as medians over points [-].

    `raw` is the relative standard deviation of times, and `ratio` that of ratios to the reference.
    `split_half` is the relative difference between the median ratios of odd and even repeats.
    """
    timed = timed[timed["latency"] != timed["reference_latency"]]
    ratio = timed["latency"] / timed["reference_latency"]
    timed = timed.assign(ratio=ratio, is_odd=timed["repeat"] % 2 == 1)
    points = timed.groupby("point")[["latency", "ratio"]]
    raw, ratio_noise = (points.std() / points.mean()).median()
    split = _halves_differ(timed["ratio"], timed["point"], timed["is_odd"])
    return {"raw": float(raw), "ratio": float(ratio_noise), "split_half": split}


def _halves_differ(values: pd.Series, points: pd.Series, is_second: pd.Series) -> float:
    """Return the relative difference between the medians of two halves of the repeats [-].

    It is the median over points. `is_second` says which half a repeat belongs to.
    """
    medians = values.groupby([points, is_second]).median().unstack()
    medians = medians.reindex(columns=[True, False])  # if only one repeat succeeded, half is empty
    split = (medians[True] - medians[False]).abs() / medians.mean(axis=1)
    return float(split.median())


def drift(timed: pd.DataFrame) -> float:
    """Return the relative growth of references from the first third of repeats to the last [-]."""
    timed = timed[timed["component"] != ALL_REDUCE]
    third = (timed["repeat"] * 3) // (timed["repeat"].max() + 1)
    medians = timed.groupby(["group", third])["reference_latency"].median().unstack()
    return float((medians.iloc[:, -1] / medians.iloc[:, 0] - 1).median())


def measured_profile(timed: pd.DataFrame, info: DeviceInfo) -> HardwareProfile:
    """Return a profile of a device without a data sheet: its peaks are the best measured rates."""
    if not (timed["component"] == "gemm").any():
        expected = "Peaks need timed matrix products. Run again with `again='gemm'`."
        raise InputError("hardware", "no timed gemm", expected)
    streamed, computed = _peaks(timed, info.dtype)
    source = f"measured: the fastest of the suite on {info.name}, torch {info.torch}"
    link = measured_link(timed)
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
    """Return the fastest reading [B/s], and the fastest product of each arithmetic dtype [FLOP/s].

    `dtype` is the dtype of rows without one.
    """
    streamed = [_fastest(timed[timed["component"] == COPY], "bytes", by=2)]
    computed = dict[str, float]()
    products = timed[timed["component"] == "gemm"]
    names = ["activation_dtype", "weight_dtype"]
    dtypes = products.reindex(columns=names).astype("string").fillna(dtype)
    for (activation, stored), rows in products.groupby([dtypes[name] for name in names]):
        matrix = "input_size", "output_size"
        streamed.append(_fastest(rows, *matrix, by=BYTES_PER_ELEMENT[str(stored)]))
        arithmetic = wider_dtype(str(activation), str(stored))
        rate = _fastest(rows, "num_tokens", *matrix, by=2)
        computed[arithmetic] = max(rate, computed.get(arithmetic, 0.0))
    return float(np.nanmax(streamed)), computed


def _fastest(rows: pd.DataFrame, *sizes: str, by: float) -> float:
    """Return the largest product of sizes and `by` per second, from each point's median time."""
    medians = pd.Series(numbers(rows, "latency")).groupby(rows["point"].to_numpy())
    amount = by * np.prod([numbers(rows, name) for name in sizes], axis=0)
    return float((amount / medians.transform("median")).max())


def measured_link(timed: pd.DataFrame) -> Link | None:
    """Return the link fitted to timed all-reduces over all GPUs, or None without such rows."""
    reduced = timed[timed["component"] == ALL_REDUCE]
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

    The bandwidth is that of one direction, and hops are assumed to cost nothing. The fit minimises
    relative errors, as times span five decades. With errors in seconds, the largest tensors alone
    would determine the latency.
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
        raise InputError(f"{ARGUMENT}.bytes", size.tolist(), f"{ALL_REDUCE} of two or more sizes")
    shares = [ranks.all_reduce(int(n), int(n)).link_share for n in num_gpus]
    parts = np.stack([1 / latency, size * shares / latency], axis=1)
    scale = np.linalg.norm(parts, axis=0)
    fixed, per_byte = nnls(parts / scale, np.ones(len(parts)))[0] / scale
    if per_byte == 0:
        raise InputError(f"{ARGUMENT}.latency", latency.tolist(), "times that grow with the size")
    return float(fixed), float(1 / per_byte)


def launch_times(timed: pd.DataFrame) -> dict[str, float]:
    """Return the time of a trivial kernel that is launched eagerly and from a graph [s]."""
    launches = timed[timed["component"] == LAUNCH]
    medians = launches.groupby("graphs")["latency"].median()
    return {name: float(medians[key]) for key, name in LAUNCHED_AS.items() if key in medians}
