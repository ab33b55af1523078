"""How much of the package one warm prediction crosses: functions, files, depth and calls.

Run by hand: python tests/benchmarks/crossed.py [-v]
The deployment is known from a first call; the second has another batch size and context, and its
speedup and best draft length are read. With -v, each function with its calls, and the deepest
stack. Exits 1 where the worst of three deployments is above a bound.
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import specmodel
from specmodel import predict

PACKAGE = f"{Path(specmodel.__file__).parent}/"
BOUNDS = {"functions": 164, "files": 28, "depth": 17, "calls": 1018}
COMMON = {"engine": "vllm", "hardware": "h100_sxm", "draft_length": 3, "acceptance": 0.7}
CASES = (
    {"target": "qwen3-30b-a3b", "drafter": "ngram"},
    {"target": "deepseek-v3", "drafter": "mtp", "tensor_parallel": 8},
    {"target": "qwen3.5-397b-a17b", "drafter": "mtp", "tensor_parallel": 8},
)


class Crossing:
    """Functions of the package that run, with their calls, and the deepest stack of them."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.stack: list[tuple[str, str]] = []
        self.deepest: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        is_own = file.startswith(PACKAGE) and not file.endswith("base/classes.py")  # of records
        if not is_own or event not in ("call", "return"):
            return
        file = file.removeprefix(PACKAGE)
        if event == "return":
            self.stack.pop()
            return
        place = file, frame.f_code.co_qualname
        self.calls[place] += 1
        self.stack.append(place)
        if len(self.stack) > len(self.deepest):
            self.deepest = list(self.stack)

    def counts(self) -> dict[str, int]:
        return {
            "functions": len(self.calls),
            "files": len({file for file, _ in self.calls}),
            "depth": len(self.deepest),
            "calls": self.calls.total(),
        }


def crossed(case: dict[str, object]) -> Crossing:
    """Return what a second prediction crosses."""
    first = predict(batch_size=4, context_length=1000, **COMMON, **case)
    first.speedup, first.best_draft_length  # noqa: B018 - computed when read
    crossing = Crossing()
    sys.setprofile(crossing)
    try:
        second = predict(batch_size=8, context_length=2000, **COMMON, **case)
        second.speedup, second.best_draft_length  # noqa: B018 - computed when read
    finally:
        sys.setprofile(None)
    return crossing


def main(*, verbose: bool) -> bool:
    found = []
    for case in CASES:
        crossing = crossed(case)
        found.append(crossing.counts())
        print(
            case["target"], case["drafter"], *(f"{n} {v}" for n, v in found[-1].items()), sep=", "
        )
        if verbose:
            for (file, name), calls in sorted(crossing.calls.items()):
                print(f"{calls:6d} {file} {name}")
            print(*(f"{file} {name}" for file, name in crossing.deepest), sep="\n  -> ")
    worst = {name: max(counts[name] for counts in found) for name in BOUNDS}
    return all(worst[name] <= bound for name, bound in BOUNDS.items())


if __name__ == "__main__":
    sys.exit(not main(verbose="-v" in sys.argv))
