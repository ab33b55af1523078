"""From a file of rows to a profile with fitted kernels, and what is to be said of both."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specmodel.base.errors import InputError
from specmodel.base.records import toml_text
from specmodel.calibrate.fitting.kernels import KernelFitting, fit_kernels, fitted_stack
from specmodel.calibrate.measure.device import STACK, DeviceInfo
from specmodel.calibrate.measure.results import (
    Noise,
    drift,
    launch_times,
    measured_link,
    measured_profile,
    noise,
    read_rows,
)
from specmodel.calibrate.measurements import check_measurements
from specmodel.records.hardware import Link, load_hardware
from specmodel.records.profiles import hardware_text, with_stack

DRIFT = 0.1
"""Drift of the references over a run from which a device is flagged [-]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """A profile made of rows.

    Parameters
    ----------
    text
        The profile as TOML.
    fits
        Fits by kind and dtype, with their errors.
    noise
        How well repeats agree.
    launch_times
        Of a kernel that does next to nothing, eagerly and in a graph [s].
    skipped
        Points that could not be timed, and why.
    links
        Link of the profile and the one that all-reduces show, where there were several GPUs.
    flags
        What speaks against the timings: a device that was busy, throttled or drifted.
    """

    text: str
    fits: Mapping[tuple[str, str], KernelFitting]
    noise: Noise
    launch_times: Mapping[str, float]
    skipped: Mapping[str, str]
    links: tuple[Link | None, Link] | None
    flags: Sequence[str]


def check_output(output: str | Path) -> Path:
    """Return where the rows of a profile are, if it can be written.

    Parameters
    ----------
    output
        The profile.

    Returns
    -------
    Path
        A CSV beside it.

    Raises
    ------
    InputError
        If it is no TOML file, its folder is missing, or a profile is there that has no rows
        beside it and so was not made of rows.
    """
    path = Path(output)
    if path.suffix != ".toml":
        raise InputError("output", str(output), "a .toml file")
    if not path.parent.is_dir():
        raise InputError("output", str(output), "a file in a folder that exists")
    rows = path.with_suffix(".csv")
    if path.exists() and not rows.exists():
        expected = f"a new file, or one whose rows {rows.name} are beside it; this one is kept"
        raise InputError("output", str(output), expected)
    return rows


def calibrate_rows(
    path: str | Path, info: DeviceInfo, *, date: str, hardware: str | Path | None = None
) -> Calibration:
    """Fit kernels to the rows of a file and add them to the profile of the device.

    Parameters
    ----------
    path
        As `session.run_suite` wrote it.
    info
        The device.
    date
        Day of the fit, as 2026-11-21.
    hardware
        Profile to start from; by default the one that ships for the device, or one whose peaks
        are the best that was measured.

    Returns
    -------
    Calibration
        The profile and its errors.

    Raises
    ------
    InputError
        If the rows do not do, or there is no such profile.
    """
    rows = read_rows(path)
    if hardware is None and info.is_shipped:
        hardware = info.hardware
    if hardware is None:
        profile = measured_profile(rows, info)
        text = toml_text(profile) + "\n"
    else:
        profile, text = load_hardware(hardware), hardware_text(hardware)
    fits = fit_kernels(check_measurements(rows), profile)
    source = f"specmodel calibrate, {info.name}, driver {info.driver}"
    stack = fitted_stack(fits, version=info.torch, source=source, date=date)
    noted = rows[rows["note"].notna()]
    link, moved = measured_link(rows), drift(rows)
    flags = _session_flags(Path(path).with_suffix(".json"))
    if abs(moved) > DRIFT:
        flags.append(f"drifted: references took {moved:+.0%} in the last third of the rows")
    return Calibration(
        text=with_stack(text, STACK, stack),
        fits=fits,
        noise=noise(rows),
        launch_times=launch_times(rows),
        skipped=dict(zip(noted["point"], noted["note"], strict=True)),
        links=(profile.link, link) if link else None,
        flags=flags,
    )


def _session_flags(path: Path) -> list[str]:
    """Return what the sessions of a file of rows recorded against them, each once."""
    if not path.exists():
        return []
    sessions = json.loads(path.read_text(encoding="utf-8"))["sessions"]
    return list(dict.fromkeys(flag for session in sessions for flag in session.get("flags", [])))
