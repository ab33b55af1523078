"""Fits and errors in words and tables, and figures to files: returns text, prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from specmodel.base.text import Columns, align, wrap

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.calibrate.fitting import EngineFitting, KernelFitting
    from specmodel.calibrate.measure.calibration import Calibration
    from specmodel.records.hardware import Link


def fit_text(fits: Mapping[tuple[str, str], KernelFitting]) -> str:
    """Return fitted parameters, errors and warnings, a block for each kind and dtype."""
    blocks = []
    for (kind, dtype), fitting in fits.items():
        fit = fitting.fit
        title = (
            f"{kind} {dtype}: {fit.num_points} points fitted, {fit.num_judged} judged: error "
            f"{fit.mean_error:.1%} mean over shapes, {fit.median_error:.1%} median, "
            f"{fit.percentile_90_error:.1%} 90th percentile"
        )
        values = fitting.result.parameters | {"sharpness": fit.sharpness}
        lines = [wrap(title), *(f"  {name} = {value:.4g}" for name, value in values.items())]
        lines += [wrap(f"  Warning: {warning}.") for warning in fitting.result.warnings]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def left_out_text(fits: Mapping[tuple[str, str], KernelFitting]) -> str:
    """Return the errors on shapes left out of the fits, in one sentence."""
    told = [
        f"{kind} {fitting.fit.mean_error:.1%} (median {fitting.fit.median_error:.1%})"
        for (kind, _), fitting in fits.items()
        if fitting.fit.is_held_out
    ]
    return wrap(f"Mean error on shapes left out of the fit: {', '.join(told) or 'none was'}.")


def calibration_text(made: Calibration, timed: int, total: int) -> str:
    """Return what a calibration was made of: timings, noise, launches, what was skipped or flagged.

    Parameters
    ----------
    made
        The calibration.
    timed, total
        Timings taken in this run, and in all [-].

    Returns
    -------
    str
        Lines for people.
    """
    noise = made.noise
    lines = [
        f"{total} timings, {timed} of them now. Repeats of a point differ by {noise.raw:.1%}, "
        f"their ratios to a reference timed right before and after by {noise.ratio:.1%}, medians "
        f"of odd and of even repeats by {noise.split_half:.1%}."
    ]
    launches = [f"{value * 1e6:.2g} us {how}" for how, value in made.launch_times.items()]
    if launches:
        lines.append(f"A kernel that does nothing takes {', '.join(launches)}.")
    if made.links:
        known, found = made.links
        text = f"All-reduce over {found.num_gpus} GPUs: {_link(found)}"
        lines.append(f"{text}; the profile has {_link(known)}." if known else f"{text}.")
    lines += [f"Warning: {flag}." for flag in made.flags]
    if made.skipped:
        reasons = ", ".join(sorted(set(made.skipped.values())))
        names = ", ".join(list(made.skipped)[:3])
        lines.append(f"Warning: {len(made.skipped)} points skipped ({reasons}), such as {names}.")
    return "\n".join(wrap(line) for line in lines)


def _link(link: Link) -> str:
    fixed = link.collective_latency + 2 * (link.num_gpus - 1) * link.hop_latency
    return f"{fixed * 1e6:.3g} us and {link.peak_bytes_per_s / 1e9:.4g} GB/s"


def engine_text(fitting: EngineFitting) -> str:
    """Return fitted overheads, errors and warnings."""
    fit = fitting.profile.fit
    seconds = [f"  {name} = {value:.4g} s" for name, value in fitting.result.parameters.items()]
    lines = [f"{fitting.profile.name}: {fitting.result.num_points} points", *seconds]
    lines.append(f"  mean error {fitting.result.mean_error:.1%}")
    for column, error in (fit.left_out_error if fit else {}).items():
        lines.append(f"  mean error with each {column} left out in turn {error:.1%}")
    lines += [wrap(f"  Warning: {warning}.") for warning in fitting.result.warnings]
    return "\n".join(lines)


def error_text(errors: pd.DataFrame) -> str:
    """Return errors by component and tokens as an aligned table."""
    shares = ("mean_error", "median_error", "percentile_90_error", "bias")
    titles = {"percentile_90_error": "90 %", "mean_error": "mean", "median_error": "median"}
    columns: Columns = []
    for name in errors:
        form = "{:.1%}" if name in shares else "{}"
        cells = [form.format(value) for value in errors[name]]
        columns.append((titles.get(str(name), str(name)), cells))
    return align(columns, left=["component", "dtype", "rows"])
