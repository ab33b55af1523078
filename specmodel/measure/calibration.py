"""From a file of rows to a profile with fitted kernels, and what is to be said of both."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specmodel.fitting.kernels import KernelFitting, fit_kernels, fitted_stack
from specmodel.hardware import load_hardware
from specmodel.measure.device import STACK, DeviceInfo
from specmodel.measure.results import (
    Noise,
    launch_times,
    measured_profile,
    noise,
    read_rows,
)
from specmodel.measurements import check_measurements
from specmodel.profiles import hardware_text, with_stack
from specmodel.records import toml_text


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
    """

    text: str
    fits: Mapping[tuple[str, str], KernelFitting]
    noise: Noise
    launch_times: Mapping[str, float]
    skipped: Mapping[str, str]


def calibrate(
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
    return Calibration(
        text=with_stack(text, STACK, stack),
        fits=fits,
        noise=noise(rows),
        launch_times=launch_times(rows),
        skipped=dict(zip(noted["point"], noted["note"], strict=True)),
    )
