"""Whether two checkouts give the same numbers, at random points of everything that ships.

Run by hand: python tests/benchmarks/agree.py OTHER [points, default 100000]
OTHER is the folder of a checkout, such as a clone of an earlier commit. Every shipped model meets
every engine and every kind of drafter on a random GPU; all columns are compared. Above a relative
difference of 1e-12 it exits 1.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[2]
BOUND = 1e-12

ASKED = """
import pickle, sys
import numpy as np
from specmodel import InputError, list_architectures, list_engines, list_hardware, predict

count, output = int(sys.argv[1]), sys.argv[2]
models, gpus = list_architectures(), [name for name in list_hardware() if "cpu" not in name]
drafters = ["ngram", "suffix", "eagle", "eagle3", "mtp", "parallel", "p-eagle", "dflash", "dspark"]
places = [(m, e, d) for m in models for e in list_engines() for d in drafters]
each = -(-count // len(places))
generator, found = np.random.default_rng(7), {}
for place in places:
    model, engine, drafter = place
    degrees = [(1, 1), (2, 1), (8, 1), (4, 4), (2, 8)]
    (tensor, expert), gpu = degrees[generator.integers(5)], gpus[generator.integers(len(gpus))]
    points = dict(
        batch_size=generator.integers(1, 1000, each), draft_length=generator.integers(1, 8, each),
        context_length=generator.integers(0, 200_000, each), acceptance=generator.random(each))
    if generator.random() < 0.3:
        points |= dict(prompt_length=generator.integers(1, 20_000, each), output_length=300)
    asked = dict(target=model, engine=engine, drafter=drafter, hardware=gpu) | points
    degrees = dict(tensor_parallel=tensor, expert_parallel=expert)
    own = dict(state_rollback="replay") if generator.random() < 0.3 else {}
    for changes in (degrees | own, own, {}):
        try:
            found[place] = predict(**asked, **changes).columns()
            break
        except InputError as error:
            found[place] = str(error)
with open(output, "wb") as file:
    pickle.dump(found, file)
"""


def asked(tree: Path, count: int, folder: Path) -> dict:
    """Return what a checkout answers, columns or the message of an error, by what was asked."""
    output = folder / f"{len(list(folder.iterdir()))}.pickle"
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", ASKED, str(count), str(output)]
    subprocess.run(command, env=environment, cwd=tree, check=True)
    return pickle.loads(output.read_bytes())


def difference(ours, theirs) -> float:
    """Return the largest relative difference of two answers [-]."""
    import numpy as np

    if isinstance(ours, str) or isinstance(theirs, str):
        return 0.0 if ours == theirs else np.inf
    worst = 0.0
    for name, value in theirs.items():
        if value.dtype.kind in "fiu":
            is_same = (ours[name] == value) | (np.isnan(ours[name]) & np.isnan(value))
            # rates are compared with 1: those near 0 are differences of nearly equal times
            is_rate = name.endswith("acceptance_rate")
            scale = np.where((value == 0) | is_rate, 1.0, np.abs(value))
            worst = max(worst, float(np.max(np.where(is_same, 0, abs(ours[name] - value) / scale))))
        elif not (ours[name] == value).all():
            worst = np.inf
    return worst


def main(other: Path, count: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (asked(tree, count, Path(folder)) for tree in (HERE, other))
    differences = {place: difference(ours[place], answer) for place, answer in theirs.items()}
    refused = sum(isinstance(answer, str) for answer in theirs.values())
    print(f"{len(theirs)} of model, engine and drafter, {refused} of them refused by both;")
    for place, found in sorted(differences.items(), key=lambda item: -item[1])[:8]:
        print(f"{found:.2g}", *place)
    return max(differences.values()) <= BOUND


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    sys.exit(not main(Path(sys.argv[1]), count))
