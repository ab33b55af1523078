"""The loop with an engine that nobody here wrote: vLLM on a CPU, measured, fitted and predicted.

Steps, each a command of this file, with the same FOLDER (from a checkout; the extras calibrate,
engine and plots):

    specmodel calibrate --device cpu --output FOLDER/cpu.toml  # a FOLDER that exists
    python calibration/real_engine.py models FOLDER    # random weights: an MoE and its drafter
    python calibration/real_engine.py measure FOLDER   # serves them with vLLM, length by length
    python calibration/real_engine.py judge FOLDER     # fits a third of it, predicts the rest
    python calibration/real_engine.py schedule FOLDER  # schedules draft lengths, serves by that

`models --kind hybrid` makes a target of gated delta nets instead, which brings its drafter.
`measure` starts and ends a server for each draft length and runs `specmodel measure-engine` on it,
and goes on where it was interrupted. --command starts vLLM in another way, as from an environment
of its own, or another program; what is not known here goes to `measure-engine`. `schedule` serves
by FOLDER/schedule.json if there is one, for a schedule of one's own.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import random_hybrid
import random_moe
from real_judge import drafter_named, judge, judge_schedule, measured_acceptance
from specmodel.base.files import write_text

LENGTHS, BATCHES, PROMPTS, OUTPUT = (0, 1, 2, 3, 4, 5), (1, 2, 4, 8, 16), (128, 1024), 96
PORT = 8321
SERVE = (
    "vllm serve {folder}/target --port {port} --served-model-name target --dtype bfloat16"
    " --max-model-len 2048 --max-num-seqs 16 --no-enable-prefix-caching"
)
"""How the target is served; --speculative-config follows where it drafts."""
READY = 1200.0
"""Longest wait for a server [s]."""
KINDS = {"moe": random_moe, "hybrid": random_hybrid}
"""Modules that make models."""


def drafter(folder: Path) -> dict[str, Any]:
    """Return what vLLM is told of the drafter."""
    name = drafter_named(folder)
    if name == "mtp":
        return {"method": name}
    return {"method": "draft_model", "model": str(Path(name).parent)}


def started(folder: Path, command: str, drafts: Mapping[str, Any]) -> str:
    """Return the command, as typed in a shell, that starts a server which drafts so."""
    length = drafts.get("num_speculative_tokens", 0)
    words = command.format(folder=folder, port=PORT, draft_length=length)
    if length and "{draft_length}" not in command:
        words += f" --speculative-config '{json.dumps({**drafter(folder), **drafts})}'"
    return words


@contextmanager
def served(command: str, log: Path) -> Iterator[None]:
    """Run a server until it is no longer needed, from when it answers."""
    with (
        log.open("ab") as out,
        subprocess.Popen(shlex.split(command), stdout=out, stderr=out) as process,
    ):
        try:
            end = time.monotonic() + READY
            while not _answers():
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"no server: see the end of {log}\n  {command}")
                time.sleep(1.0)
            yield
        finally:
            process.terminate()
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://localhost:{PORT}/v1/models", timeout=5.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def measure(folder: Path, command: str, lengths: Sequence[int], more: Sequence[str]) -> None:
    """Serve with each draft length and measure; what is there already is not measured again."""
    for length in lengths:
        drafts = {"num_speculative_tokens": length} if length else {}
        _measured(folder, command, drafts, f"served.{length}.csv", more)


def schedule(folder: Path, command: str, more: Sequence[str]) -> None:
    """Write a schedule for the engine as fitted, unless there is one, and measure it served so."""
    path = folder / "schedule.json"
    if not path.exists():
        rates = measured_acceptance(folder)
        ask = [
            *(sys.executable, "-m", "specmodel", "schedule", "--for", "vllm", "--fragment-only"),
            *("--target", f"{folder}/target/config.json", "--engine", f"{folder}/engine.toml"),
            *("--drafter", drafter_named(folder), "--hardware", f"{folder}/cpu.toml"),
            *("--stack", "torch", "--context-length", ",".join(map(str, PROMPTS))),
            *("--acceptance-by-position", ",".join(f"{rate:.4f}" for rate in rates)),
            *("--max-draft-length", str(len(rates)), "--max-batch-size", str(max(BATCHES))),
        ]
        done = subprocess.run(ask, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(done.returncode)
        write_text(path, done.stdout)
    drafts = json.loads(path.read_text())
    _measured(folder, command, drafts, "served.schedule.csv", more)


def _measured(
    folder: Path, command: str, drafts: Mapping[str, Any], name: str, more: Sequence[str]
) -> None:
    """Start a server that drafts so, and measure it."""
    length, told = drafts.get("num_speculative_tokens", 0), drafter(folder)
    ask = [
        *(sys.executable, "-m", "specmodel", "measure-engine", f"http://localhost:{PORT}"),
        *("--output", f"{folder}/{name}", "--wait", "0", "--draft-length", str(length)),
        *("--concurrency", ",".join(map(str, BATCHES)), "--output-length", str(OUTPUT)),
        *("--prompt-length", ",".join(map(str, PROMPTS)), "--token-ids", "3:8191"),
        *("--temperature", "0", "--method", drafts.get("method", told["method"])),
        *("--requests", "1", *more),
    ]
    with served(started(folder, command, drafts), folder / "server.log"):
        status = subprocess.run(ask, check=False).returncode
    if status:
        raise SystemExit(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("step", choices=["models", "measure", "judge", "schedule"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=list(KINDS), default="moe", help="of models")
    parser.add_argument("--damping", type=float, help="of layers whose outputs it makes small")
    parser.add_argument(
        "--command", default=SERVE, help="that serves: vLLM, or with {draft_length}"
    )
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="to draft; 0: plain")
    parser.add_argument("--engine", default="vllm", help="profile to start from")
    given, more = parser.parse_known_args()
    folder = given.folder.resolve()
    if given.step == "models":
        kind = KINDS[given.kind]
        if kind is random_hybrid and drafter_named(folder) != "mtp":
            raise SystemExit(f"{folder}: expected a folder without the drafter of another target")
        damping = kind.DAMPING if given.damping is None else given.damping
        kind.models(folder, damping=damping)
    elif given.step == "measure":
        measure(folder, given.command, [int(n) for n in given.lengths.split(",")], more)
    elif given.step == "judge":
        print(judge(folder, given.engine))
        if (folder / "served.schedule.csv").exists():
            print(judge_schedule(folder))
    else:
        schedule(folder, given.command, more)
        print(judge_schedule(folder))


if __name__ == "__main__":
    main()
