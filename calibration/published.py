"""Calibrate everything that ships on published tables: profiles, typical kernels and engines.

Usage: python calibration/published.py [FOLDER]. Writes the tables to FOLDER (default: a temporary
one) and the profiles to where they ship, by the commands of calibration/README.md.
"""

import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from links import fit_links
from sparse_attention import add_sparse_attention

from specmodel.algebra.roofline import KernelParameters
from specmodel.base.files import write_text
from specmodel.base.records import toml_text
from specmodel.calibrate.datasets import source_name
from specmodel.calibrate.fitting.kernels import PARAMETERS, judge, normal_spreads, shape_errors
from specmodel.calibrate.fitting.result import rounded
from specmodel.calibrate.measurements import groups, read_measurements
from specmodel.calibrate.published import NORMS, STACKS
from specmodel.calibrate.published_mixers import RECURRENCES
from specmodel.cli import main as command
from specmodel.records.hardware import HardwareProfile, load_hardware
from specmodel.records.kernels import KINDS, FittedStack, KernelFit, fitted_dtype

ROOT = Path(__file__).parents[1]
PROFILES, RECORDS = ROOT / "hw_profiles", ROOT / "specmodel/records/data"
SAME_CHIP = {"a100_sxm_80gb": "a800_sxm_80gb"}
"""Devices measured, and another of the same chip and memory that takes the fit too."""
NORMS_ARE = f"; norms as quantisation of {' '.join(NORMS)}"
RECURRENCES_ARE = f"; recurrences of {RECURRENCES[0]} " + " and ".join(
    f"{name} {version}" for name, version in RECURRENCES[1].items()
)
OF_THEIR_OWN = {
    "latent_attention": ("NVIDIA L40S", "NVIDIA RTX PRO 6000 Blackwell Server"),
    "recurrence": ("NVIDIA L40S",),
    "prompt_attention": ("NVIDIA L40S", "NVIDIA RTX PRO 6000 Blackwell Server"),
    "latent_prompt_attention": ("NVIDIA RTX PRO 6000 Blackwell Server",),
}
"""Devices whose fits of a kind stand for no other: latent attention runs there by kernels that
compute at an eighth of the peak, no timing of a recurrence on L40S shows its launch, and peaks of
arithmetic are so low there that exponentials of prompts cost nothing beside it."""
SHARPNESS = 4.0
"""Exponent of typical kernels [-]."""
ENGINES = {
    "vllm-moesd-2025": {
        "stack": "vllm",
        "version": "vLLM of 2025, its version not published",
        "table": "moesd_vllm_a800.csv",
        "name": "vLLM of the MoESD paper (2025)",
        "vary": ["draft_kernel_time", "reject_time_per_request", "reject_time_per_token"],
        "leave_out": ["target", "draft_length", "data"],
        "source": "MoESD (arXiv:2505.19645), Table 1: peak speedups on 2 A800",
    },
    "sglang": {
        "stack": "sglang",
        "version": "SGLang of late 2025, speculation without overlap",
        "table": "sglang_h200.csv",
        "name": "SGLang",
        "vary": ["pass_time", "draft_pass_time", "reject_time"],
        "leave_out": ["target"],
        "source": "published EAGLE-3 runs on H200, concurrency 8, seven benchmarks",
    },
}


class Fitted(NamedTuple):
    """A table of measurements and the stack that was fitted to it."""

    hardware: HardwareProfile
    table: pd.DataFrame
    stack: FittedStack


def run(*words: str | Path) -> None:
    print("$ specmodel", *words, flush=True)
    status = command([*map(str, words)])
    if status:
        raise SystemExit(status)


def fit_profile(folder: Path, hardware: str, stack: str, version: str) -> Fitted:
    """Write the table of a stack, and fit it into the profile of its device and of twins."""
    path, profile = folder / f"{hardware}_{stack}.csv", PROFILES / f"{hardware}.toml"
    run("dataset", hardware, stack, version, "--output", path)
    table, others = read_measurements(path), STACKS[hardware, stack, version]
    source = source_name() + "".join(f", {kind} of {v}" for kind, v in others.items())
    source += NORMS_ARE if "elementwise" in set(table["component"]) else ""
    source += RECURRENCES_ARE if "recurrence" in set(table["component"]) else ""
    run("fit", path, "--hardware", profile, "--output", profile, "--source", source)
    if hardware in SAME_CHIP:
        twin = PROFILES / f"{SAME_CHIP[hardware]}.toml"
        source = f"{source_name()}, measured on {hardware}, which has the same chip and memory"
        run("fit", path, "--hardware", twin, "--measured-on", hardware, "--output", twin,
            "--source", source)  # fmt: skip
    record = load_hardware(profile)
    return Fitted(record, table, record.fitted[stack])


def typical_stack(fitted: list[Fitted], today: str) -> FittedStack:
    """Return kernels with the geometric means of fitted parameters.

    Their errors and spreads are those on the rows of each device by the mean of the others: what to
    expect on a device that nothing was measured on.
    """
    devices = sorted({entry.hardware.name for entry in fitted})
    have = {kind: [entry for entry in fitted if stands_for_others(kind, entry)] for kind in KINDS}
    fits = {kind: typical_fit(kind, entries) for kind, entries in have.items() if entries}
    computing = {"compute_efficiency": fits["gemm"].compute_efficiency}
    fits["attention"] = fits["attention"].model_copy(update=computing)
    source = (
        f"geometric means of fits on {', '.join(devices)}; errors leave one device out{NORMS_ARE}"
        f"{RECURRENCES_ARE}"
    )
    kinds = {kind: {fitted_dtype(kind): fit} for kind, fit in fits.items()}
    return FittedStack(version=today, source=source, date=today, **kinds)


def stands_for_others(kind: str, entry: Fitted) -> bool:
    """Tell whether the fit of a kind on a device says something of other devices."""
    is_fitted = fitted_dtype(kind) in getattr(entry.stack, kind)
    return is_fitted and entry.hardware.name not in OF_THEIR_OWN.get(kind, ())


def typical_fit(kind: str, fitted: list[Fitted]) -> KernelFit:
    judged = pd.concat([left_out(kind, entry, fitted) for entry in fitted], ignore_index=True)
    common, row = normal_spreads(-np.log1p(judged["error"]), judged["shape"])
    return KernelFit(
        **{"memory_efficiency": 1.0} | means(kind, fitted),
        sharpness=SHARPNESS,
        arithmetic_dtype="bf16",
        num_points=0,
        num_judged=len(judged),
        is_held_out=True,
        **shape_errors(judged),
        shape_spread=common,
        row_spread=row,
        varied=[],
        covariance=[],
    )


def left_out(kind: str, entry: Fitted, fitted: list[Fitted]) -> pd.DataFrame:
    """Judge the rows of one table by the mean of the fits on other devices."""
    others = [other for other in fitted if other.hardware.name != entry.hardware.name]
    parameters = KernelParameters(**means(kind, others), sharpness=SHARPNESS)
    parts = {(part, dtype): rows for part, dtype, rows in groups(entry.table)}
    rows = parts[kind, fitted_dtype(kind)].query("role == 'judge'")
    device = f"{entry.hardware.name} {rows['stack'].iloc[0]}/"
    return judge(kind, rows, entry.hardware, parameters).assign(shape=device + rows["shape"])


def means(kind: str, fitted: list[Fitted]) -> dict[str, float]:
    """Return geometric means, over the stacks of a device first: each device counts once."""
    names = list(PARAMETERS[kind])
    fits = [getattr(entry.stack, kind)[fitted_dtype(kind)] for entry in fitted]
    logs = pd.DataFrame(np.log([[getattr(fit, name) for name in names] for fit in fits]))
    devices = [entry.hardware.name for entry in fitted]
    typical = np.exp(logs.groupby(devices).mean().mean())
    return dict(zip(names, [rounded(value, 4) for value in typical], strict=True))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fit_links()
    fitted = [fit_profile(folder, *stack) for stack in STACKS]
    typical = typical_stack(fitted, date.today().isoformat())
    write_text(RECORDS / "stacks/typical.toml", toml_text(typical) + "\n")
    add_sparse_attention()
    for name, engine in ENGINES.items():
        vary = [word for overhead in engine["vary"] for word in ("--vary", overhead)]
        leave = [word for column in engine["leave_out"] for word in ("--leave-out", column)]
        run("fit", "engine", ROOT / "calibration/tables" / engine["table"],
            "--output", RECORDS / f"engines/{name}.toml", "--name", engine["name"],
            "--stack", engine["stack"], "--source", engine["source"],
            "--version", engine["version"], *vary, *leave)  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
