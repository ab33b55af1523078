"""How much of the package is crossed by a prediction: functions, files, depth and calls.

Run by hand: python tests/benchmarks/crossed.py [-v]
Three walks in a process that has imported all it needs: `predict(MODEL, GPU)` of a deployment that
is new, its records read anew; a second prediction of one that is known, with another batch size
and context; and the command `predict MODEL GPU`, typed again. Of predictions speedup and best draft
length are read. Functions are those with a
name: expressions and comprehensions count as calls alone. With -v, each function with its calls,
and the deepest stack. Exits 1 where the worst case of a walk is above a bound; bounds are a tenth
above what was counted when they were set.
"""

import io
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType

import specmodel
from specmodel import cli, predict
from specmodel.core.base import records
from specmodel.core.cost import where

PACKAGE = f"{Path(specmodel.__file__).parent}/"
BOUNDS = {
    "new deployment": {"functions": 510, "files": 73, "depth": 24, "calls": 12500},
    "known deployment": {"functions": 166, "files": 32, "depth": 19, "calls": 1150},
    "predict MODEL GPU": {"functions": 645, "files": 98, "depth": 34, "calls": 21500},
}
COMMON = {"engine": "vllm", "hardware": "h100_sxm", "draft_length": 3, "acceptance": 0.7}
CASES = (
    {"target": "qwen3-30b-a3b", "drafter": "ngram", "tensor_parallel": 1},
    {"target": "deepseek-v3", "drafter": "mtp", "tensor_parallel": 8},
    {"target": "qwen3.5-397b-a17b", "drafter": "mtp", "tensor_parallel": 8},
)


class Crossing:
    """The functions of the package that run, their numbers of calls, and the deepest stack."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.stack: list[tuple[str, str]] = []
        self.deepest: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or event not in ("call", "return"):
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
        named = [name for _, name in self.calls if not name.endswith(">")]
        return {
            "functions": len(named),
            "files": len({file for file, _ in self.calls}),
            "depth": len(self.deepest),
            "calls": self.calls.total(),
        }


def walked(walk: Callable[[], object]) -> Crossing:
    """Return the functions that a call runs."""
    crossing = Crossing()
    sys.setprofile(crossing)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return crossing


def read(**case: object) -> None:
    """Predict a case, and read the columns that are computed when they are read."""
    prediction = predict(**case)
    prediction.speedup, prediction.best_draft_length  # noqa: B018 - see above


def new(case: dict[str, object]) -> Crossing:
    """Return the functions of the first prediction of a deployment."""
    read(target=case["target"], hardware="b200")  # imports
    for kept in (records._shipped, where._kept):
        kept.cache_clear()
    return walked(lambda: read(target=case["target"], hardware="h200"))


def crossed(case: dict[str, object]) -> Crossing:
    """Return the functions of a second prediction."""
    case = COMMON | case
    read(**case, batch_size=4, context_length=1000)
    return walked(lambda: read(**case, batch_size=8, context_length=2000))


def typed(case: dict[str, object]) -> Crossing:
    """Return the functions of the command when it is run again."""
    command = ["predict", str(case["target"]), "h200"]
    with redirect_stdout(io.StringIO()):
        assert cli.main(command) == 0
        return walked(lambda: cli.main(command))


WALKS = dict(zip(BOUNDS, (new, crossed, typed), strict=True))


def main(*, verbose: bool) -> bool:
    """Print the counts of all walks; return whether they are within their bounds."""
    is_within = True
    for walk, bounds in BOUNDS.items():
        for case in CASES:
            crossing = WALKS[walk](case)
            counts = crossing.counts()
            is_within &= all(counts[name] <= bound for name, bound in bounds.items())
            numbers = ", ".join(f"{name} {count}" for name, count in counts.items())
            print(f"{walk}, {case['target']}, {case['drafter']}: {numbers}")
            if verbose:
                for (file, name), calls in sorted(crossing.calls.items()):
                    print(f"{calls:6d} {file} {name}")
                print(*(f"{file} {name}" for file, name in crossing.deepest), sep="\n  -> ")
    return is_within


if __name__ == "__main__":
    sys.exit(not main(verbose="-v" in sys.argv))
