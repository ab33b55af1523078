"""Calibrate everything that ships on published tables: profiles, typical kernels and engines.

Usage: python calibration/published.py [FOLDER]. Writes the tables to FOLDER (default: a temporary
one) and the profiles to where they ship, by the commands of calibration/README.md.
"""

import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from specmodel.base.files import write_text
from specmodel.base.records import toml_text
from specmodel.calibrate.datasets import source_name
from specmodel.calibrate.fitting import FittedTable, typical_stack
from specmodel.calibrate.measurements import read_measurements
from specmodel.calibrate.published import STACKS
from specmodel.records.hardware import load_hardware

ROOT = Path(__file__).parents[1]
PROFILES, PACKAGE, TABLES = ROOT / "hw_profiles", ROOT / "specmodel", ROOT / "calibration/tables"
SAME_CHIP = {"a800_sxm_80gb": "a100_sxm_80gb"}
ENGINES = {
    "vllm": {
        "table": "moesd_vllm_a800.csv",
        "name": "vLLM of the MoESD paper (2025)",
        "vary": ["draft_kernel_time", "reject_time_per_request", "reject_time_per_token"],
        "leave_out": ["target", "draft_length", "data"],
        "source": "MoESD (arXiv:2505.19645), Table 1: peak speedups on 2 A800",
    },
    "sglang": {
        "table": "sglang_h200.csv",
        "name": "SGLang",
        "vary": ["pass_time", "draft_pass_time", "reject_time"],
        "leave_out": ["target"],
        "source": "published EAGLE-3 runs on H200, concurrency 8, seven benchmarks",
    },
}


def run(*words: str | Path) -> None:
    print("$ specmodel", *words, flush=True)
    subprocess.run([sys.executable, "-c", "from specmodel.cli import run; raise SystemExit(run())",
                    *map(str, words)], check=True)  # fmt: skip


def main(folder: Path) -> None:
    paths = {}
    for hardware, stack, version in STACKS:
        paths[hardware, stack] = path = folder / f"{hardware}_{stack}.csv"
        profile = PROFILES / f"{hardware}.toml"
        run("dataset", hardware, stack, version, "--output", path)
        others = STACKS[hardware, stack, version]
        source = source_name() + "".join(f", {kind} of {v}" for kind, v in others.items())
        run("fit", path, "--hardware", profile, "--output", profile, "--source", source)
        for twin, chip in SAME_CHIP.items():
            if chip == hardware:
                copy = PROFILES / f"{twin}.toml"
                source = f"{source_name()}, measured on {chip}, which has the same chip and memory"
                run("fit", path, "--hardware", copy, "--measured-on", chip, "--output", copy,
                    "--source", source)  # fmt: skip
    fitted = []
    for (hardware, stack), path in paths.items():
        record = load_hardware(PROFILES / f"{hardware}.toml")
        table = read_measurements(path)
        fitted.append(FittedTable(hardware=record, table=table, stack=record.fitted[stack]))
    today = date.today().isoformat()
    typical = typical_stack(fitted, version=today, date=today)
    write_text(PACKAGE / "stacks/typical.toml", toml_text(typical) + "\n")
    for name, engine in ENGINES.items():
        vary = [word for overhead in engine["vary"] for word in ("--vary", overhead)]
        leave = [word for column in engine["leave_out"] for word in ("--leave-out", column)]
        run("fit", "engine", TABLES / engine["table"], "--output", PACKAGE / f"engines/{name}.toml",
            "--name", engine["name"], "--stack", name, "--source", engine["source"],
            *vary, *leave)  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
