"""Change the source a little and run the tests, to see which changes they notice.

    python tests/mutants.py --seed 1 --count 40

A mutant is a copy of the checkout in which one operator, comparison, sign, number or minimum is
changed. The tests of a mutant have `--limit` seconds. If they pass, the mutant has survived. Then a
test is missing, or no test can notice the change, and `mutants_equivalent.txt` says why.
"""

import argparse
import ast
import copy
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

OPERATORS = {
    "Add": "Sub", "Sub": "Add", "Mult": "Div", "Div": "Mult", "Pow": "Mult", "FloorDiv": "Mult",
    "Mod": "FloorDiv", "Lt": "LtE GtE", "LtE": "Lt Gt", "Gt": "GtE LtE", "GtE": "Gt Lt",
    "Eq": "NotEq", "NotEq": "Eq", "In": "NotIn", "NotIn": "In", "Is": "IsNot", "IsNot": "Is",
    "And": "Or", "Or": "And", "USub": "UAdd",
}  # fmt: skip
"""The operators that replace each operator, by their names in `ast`; others stay."""
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
TESTED = ("algebra", "layers", "cost", "prediction", "models", "drafters", "machines", "plan")
"""Rooms whose tests run, in this order."""
LEFT_OUT = ("test_predictions.py", "test_frozen.py")
"""Tests against earlier output of the package, which notice every change and explain none."""


class Mutant(NamedTuple):
    """A change of a file: its path, its number among the changes of the file, and its text."""

    path: Path
    number: int
    words: str


def sites(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed, without messages, annotations, imports and `__all__`."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from sites(child)


def changes_of(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield the changes of one node: a field and its new value."""
    match node:
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() | ast.UnaryOp():
            for name in OPERATORS.get(type(node.op).__name__, "").split():
                yield "op", getattr(ast, name)()
        case ast.Compare():
            for i, old in enumerate(node.ops):
                for name in OPERATORS[type(old).__name__].split():
                    yield "ops", [*node.ops[:i], getattr(ast, name)(), *node.ops[i + 1 :]]
        case ast.Constant(value=float(x)):
            yield "value", 2 * x or 1.0
        case ast.Constant(value=int(n)) if not isinstance(n, bool):
            yield "value", n + 1
        case ast.Name(id="min" | "max" as name):
            yield "id", NAMES[name]
        case ast.Attribute(attr=name) if name in NAMES:
            yield "attr", NAMES[name]


def all_changes(tree: ast.Module) -> list[tuple[ast.AST, str, object]]:
    """Return the changes of a file in the order of its lines: nodes, fields and new values."""
    found = [(node, *change) for node in sites(tree) for change in changes_of(node)]
    return sorted(found, key=lambda change: (change[0].lineno, change[0].col_offset))


def all_mutants(tree: Path, rooms: list[str]) -> list[Mutant]:
    """Return the mutants of the rooms, the files sorted by path."""
    mutants: list[Mutant] = []
    files = (file for room in rooms for file in (tree / "specmodel" / room).rglob("*.py"))
    for file in sorted(files):
        path, source = file.relative_to(tree), file.read_text()
        for number, (node, field, value) in enumerate(all_changes(ast.parse(source))):
            changed = copy.copy(node)
            setattr(changed, field, value)
            change = " -> ".join(ast.unparse(each).split("\n")[0][:70] for each in (node, changed))
            line = source.splitlines()[node.lineno - 1].strip()
            words = f"#{len(mutants)} {path}:{node.lineno}  {change}  in  {line}"
            mutants.append(Mutant(path, number, words))
    return mutants


def stages(path: Path) -> list[list[str]]:
    """Return the tests to run for a change of this file in two stages, the nearest first."""
    near = [str(path), *(f"tests/{room}" for room in TESTED if room in path.parts)]
    rest = [f"tests/{room}" for room in TESTED]
    return [near, [name for name in rest if name not in near]]


def run_tests(tree: Path, names: list[str], limit: float) -> str:
    """Return the first failure, or nothing; a run that needs more than 8 GiB fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += [f"--ignore-glob=*/{name}" for name in LEFT_OUT]
    most, paths = (2**33, 2**33), {"PYTHONPATH": f"{tree}:{tree / 'calibration'}"}
    paths["PYTHONDONTWRITEBYTECODE"] = "1"  # compiled files may look as new as a changed source
    try:
        done = subprocess.run(
            [*command, *names],
            cwd=tree,
            env=os.environ | paths,
            stdout=subprocess.PIPE,
            timeout=limit,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, most),
        )
    except subprocess.TimeoutExpired:
        return "time limit"
    if done.returncode == 0:
        return ""
    lines = done.stdout.decode().splitlines()
    failed = (line[:100] for line in lines if line.startswith(("FAILED", "ERROR")))
    return next(failed, f"exit status {done.returncode}")


def first_failure(tree: Path, mutant: Mutant | None, limit: float) -> str:
    """Return the first failure with this mutant in a copy, and restore the file."""
    file = tree / (mutant.path if mutant else "specmodel/__init__.py")
    parsed = ast.parse(source := file.read_text())
    if mutant:
        node, field, value = all_changes(parsed)[mutant.number]
        setattr(node, field, value)
    file.write_text(ast.unparse(parsed))
    until = time.monotonic() + limit
    runs = stages(file.relative_to(tree))
    failures = (run_tests(tree, names, until - time.monotonic()) for names in runs)
    try:
        return next(filter(None, failures), "")
    finally:
        file.write_text(source)


def main() -> None:
    """Draw mutants, run the tests on each, print which survived."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    for name, value in {"seed": 1, "count": 40, "jobs": 1, "limit": 900}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument(
        "--rooms", default="core/algebra,core/layers,core/cost", help="folders of specmodel/"
    )
    parser.add_argument("--list", action="store_true", help="print the drawn ones, run nothing")
    parser.add_argument("--only", type=int, nargs="+", metavar="INDEX", help="these, none drawn")
    given = parser.parse_args()
    tree, copies = Path(__file__).parents[1], SimpleQueue[Path]()
    mutants = all_mutants(tree, given.rooms.split(","))
    drawn = sorted(random.Random(given.seed).sample(range(len(mutants)), given.count))
    chosen = [mutants[index] for index in given.only or drawn]
    if given.list:
        print(*(mutant.words for mutant in chosen), sep="\n")
        return

    def is_killed(mutant: Mutant | None) -> bool:
        copied, start = copies.get(), time.monotonic()
        failed = first_failure(copied, mutant, given.limit)
        copies.put(copied)
        words, seconds = mutant.words if mutant else "no change", time.monotonic() - start
        print("killed" if failed else "SURVIVED", words, f" {seconds:.0f} s ", failed, flush=True)
        return bool(failed)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        ignore = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis")
        for job in range(given.jobs):
            copies.put(Path(shutil.copytree(tree, Path(folder) / f"copy{job}", ignore=ignore)))
        if is_killed(None):
            sys.exit("the tests fail without any change")
        killed = sum(pool.map(is_killed, chosen))
    print(f"killed {killed} of {len(chosen)}, {killed / len(chosen):.0%}; {len(mutants)} in all")


if __name__ == "__main__":
    main()
