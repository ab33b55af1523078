"""Fit everything that ships to published tables: profiles, typical kernels and engines.

Usage: python calibration/all_published.py [FOLDER]. Runs the commands of calibration/README.md.
Writes the tables to FOLDER (default: a temporary folder), and the profiles into the package.
"""

import itertools
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dataset import write_dataset
from fallbacks import with_fits, write_rankings
from links import fit_links
from overheads import main as fit_overheads
from program import carry_out
from published.datasets import source_name
from published.mixers import KIMI_RECURRENCES
from published.tables import STACKS
from sparse_attention import OPERATIONS, add_sparse_attention
from specmodel.calibrate.measure.measurements import read_measurements
from specmodel.cli import main as command
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.core.machines.fallbacks import stack_kernels
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.machines.kernels import TYPICAL, KernelFit, load_typical
from specmodel.core.machines.profiles import with_stack
from typical import KIMI_IS, NORMS_ARE, RECURRENCES_ARE, Fitted, typical_stack

ROOT = Path(__file__).parents[1]
PROFILES, RECORDS = ROOT / "hw_profiles", ROOT / "specmodel/core/machines/data"
SAME_CHIP = {"a100_sxm_80gb": "a800_sxm_80gb"}
"""Measured devices, and a device with the same chip and memory that uses the same fit."""
SAME_KERNELS = {"rtx_5090": "rtx_pro_6000"}
"""Devices without measurements, and the device whose kernels they run (compute capability 12). They
use its shares of the peak for their own peaks, with the errors of kernels of other devices."""
ERRORS = ("mean_error", "median_error", "percentile_90_error", "shape_spread", "row_spread")
"""Errors of a fit that are no smaller on a device that it was not measured on."""
ENGINES: dict[str, dict[str, Any]] = {
    "vllm-moesd-2025": {
        "stack": "vllm",
        "version": "vLLM of 2025, version not published",
        "table": "moesd_vllm_a800.csv",
        "name": "vLLM of the MoESD paper (2025)",
        "vary": ["draft_kernel_time", "reject_time_per_request", "reject_time_per_token"],
        "leave_out": ["target", "draft_length", "data"],
        "source": "MoESD (arXiv:2505.19645), Table 1: peak speedups on 2 A800",
    }
}


def run(*words: str | Path) -> None:
    print("$ specmodel", *words, flush=True)
    status = command([*map(str, words)])
    if status:
        raise SystemExit(status)


def fit_profile(folder: Path, hardware: str, stack: str, version: str) -> Fitted:
    """Write the table of a stack, and fit it into the profile of its device and of twins."""
    path, profile = folder / f"{hardware}_{stack}.csv", PROFILES / f"{hardware}.toml"
    print(write_dataset(hardware, stack, version, str(path)), flush=True)
    table, others = read_measurements(path), STACKS[hardware, stack, version]
    source = source_name() + "".join(f", {kind} of {v}" for kind, v in others.items())
    source += NORMS_ARE if "elementwise" in set(table["component"]) else ""
    source += RECURRENCES_ARE if "recurrence" in set(table["component"]) else ""
    if "kimi_recurrence" in set(table["component"]):
        source += KIMI_IS.format(stack=stack, version=KIMI_RECURRENCES[stack])
    run("fit", "kernels", path, "--hardware", profile, "--output", profile, "--source", source)
    if hardware in SAME_CHIP:
        twin = PROFILES / f"{SAME_CHIP[hardware]}.toml"
        source = f"{source_name()}, measured on {hardware}, which has the same chip and memory"
        run("fit", "kernels", path, "--hardware", twin, "--measured-on", hardware, "--output", twin,
            "--source", source)  # fmt: skip
    record = load_hardware(profile)
    return Fitted(record, table, record.fitted[stack])


def lend_kernels(hardware: str, owner: str) -> None:
    """Write the stacks of a device into the profile of one that runs the same kernels."""
    path, typical = PROFILES / f"{hardware}.toml", stack_kernels(TYPICAL, load_typical())
    for name, stack in load_hardware(PROFILES / f"{owner}.toml").fitted.items():
        lent: dict[str, dict[str, KernelFit]] = {}
        for kind, dtype, fit in stack.fits():
            place = typical.place(kind, dtype)
            elsewhere = typical.fits[place[0]][place[1]] if place else fit
            errors = {name: max(getattr(fit, name), getattr(elsewhere, name)) for name in ERRORS}
            lent.setdefault(kind, {})[dtype] = fit.with_changes("fit", errors)
        source = f"{stack.source}; measured on {owner}, whose kernels run here"
        changed = replace(with_fits(stack, lent), source=source, lent_by=owner)
        write_text(path, with_stack(path.read_text(encoding="utf-8"), name, changed))


def fit_device(folder: Path, device: str) -> list[Fitted]:
    """Fit the stacks of a device one after another, as all write to its profile."""
    return [fit_profile(folder, *stack) for stack in STACKS if stack[0] == device]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fit_links()
    devices = list(dict.fromkeys(device for device, _, _ in STACKS))
    with ProcessPoolExecutor(min(len(devices), os.cpu_count() or 1)) as workers:
        of_devices = workers.map(fit_device, itertools.repeat(folder), devices)
        fitted = list(itertools.chain.from_iterable(of_devices))
    typical = typical_stack(fitted, date.today().isoformat())
    write_text(RECORDS / "stacks/typical.toml", toml_text(typical) + "\n")
    write_rankings(fitted)
    add_sparse_attention(*OPERATIONS)
    for hardware, owner in SAME_KERNELS.items():
        lend_kernels(hardware, owner)
    for name, engine in ENGINES.items():
        vary = [f"--vary={overhead}" for overhead in engine["vary"]]
        leave = [f"--leave-out={column}" for column in engine["leave_out"]]
        table, output = ROOT / "calibration/tables" / engine["table"], RECORDS / "engines"
        told = [f"--{key}={engine[key]}" for key in ("name", "stack", "source", "version")]
        words = [str(table), f"--output={output}/{name}.toml", *told, *vary, *leave]
        print("$ python calibration/overheads.py", *words, flush=True)
        if status := carry_out(fit_overheads, words):
            raise SystemExit(status)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
