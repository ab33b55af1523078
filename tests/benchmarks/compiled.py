"""What predictions of unrelated points would gain if their passes were compiled.

Run by hand, with numba: python tests/benchmarks/compiled.py
No formula is written again: arrays that note what is done with them go through the program once,
and the notes become one loop, which numba compiles. What it gives must be equal to the last digits.
Not part of the package: `docs/accuracy.md` says why.
"""

import math
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from specmodel import predict
from specmodel.algebra import roofline
from specmodel.cost import blocks

COUNT = 200_000
GENERATOR = np.random.default_rng(0)
POINTS: dict[str, Any] = {
    "batch_size": GENERATOR.integers(1, 257, COUNT),
    "draft_length": GENERATOR.integers(1, 8, COUNT),
    "context_length": GENERATOR.integers(100, 8001, COUNT),
    "acceptance": GENERATOR.random(COUNT),
}
DEPLOYMENTS: tuple[dict[str, Any], ...] = (
    {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "a800_sxm_80gb"},
    {"target": "mixtral-8x7b", "drafter": "ngram", "hardware": "h100_sxm"},
)
OUTPUTS = ("forward_time", "step_time")
SIGNS = {np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/", np.power: "**"} | {
    np.greater: ">", np.less: "<", np.equal: "==", np.not_equal: "!=", np.bitwise_or: "|"
}  # fmt: skip

as_array = np.asarray


class Noted(np.ndarray[Any, Any]):
    """Numbers of some points, and the name that they have in the loop."""

    lines: dict[str, str] = {}  # noqa: RUF012 - what each name of the loop is made of
    name = ""

    def __array_finalize__(self, whole: Any) -> None:
        self.name = getattr(whole, "name", "")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [as_array(value) for value in inputs]
        where, out = options.pop("where", None), options.pop("out", None)
        if method != "__call__":
            return getattr(ufunc, method)(*plain, **options)
        told = [written(value) for value in inputs]
        if ufunc is np.power and (doublings := math.log2(float(told[1]))).is_integer():
            found = inputs[0]
            for _ in range(abs(int(doublings))):
                found = np.square(found) if doublings > 0 else np.sqrt(found)
            return found
        if ufunc in (np.maximum, np.minimum):
            text = f"{told[0]} if {told[0]} {'><'[ufunc is np.minimum]} {told[1]} else {told[1]}"
        elif ufunc is np.square:
            text = f"{told[0]} * {told[0]}"
        elif ufunc in SIGNS:
            text = f" {SIGNS[ufunc]} ".join(told)
        else:
            text = f"{'-' if ufunc is np.negative else f'np.{ufunc.__name__}'}({told[0]})"
        found = noted(ufunc(*plain), text)
        return found if where is None else np.where(where, found, out[0])

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        if function is np.where:
            condition, first, second = map(written, given)
            text = f"{first} if {condition} else {second}"
            return noted(np.where(*map(as_array, given)), text)
        if function in (np.zeros_like, np.ones_like):
            return function(as_array(given[0]))
        return super().__array_function__(function, types, given, options)


def noted(values: Any, text: str) -> Noted:
    """Return numbers with a name for what they are made of."""
    array = as_array(values).view(Noted)
    array.name = Noted.lines.setdefault(text, f"t{len(Noted.lines)}")
    return array


def written(value: Any) -> str:
    """Return what stands for a value in the loop: a name, or the number that all points have."""
    if isinstance(value, Noted) and value.name:
        return value.name
    (number,) = set(as_array(value).ravel().tolist())
    return repr(number)


def loop_of(times: blocks.BlockedTimes) -> tuple[str, list[Any]]:
    """Return the passes of a deployment as a function on arrays, and these arrays."""
    few, cuts, places = slice(0, 4096), times._cuts, times._distinct.places
    given: dict[bytes, Any] = {}

    def named(array: Any) -> Any:
        if not np.ndim(array) or (array == array.flat[0]).all():
            return as_array(array).flat[0] if np.ndim(array) else array
        place = [*given].index(array.tobytes()) if array.tobytes() in given else len(given)
        given[array.tobytes()] = array
        return noted(cuts.cut(array, few), f"a{place}[i]")

    def gathered(own: Any, array: Any, *_: Any) -> Any:
        return named(np.broadcast_to(array, own.shape)[places] if np.ndim(array) else array)

    Noted.lines = {}
    taken = {name: named(array) for name, array in times._taken.items()}
    with (
        mock.patch.object(
            np, "asarray", lambda x, *a: x if isinstance(x, Noted) else as_array(x, *a)
        ),
        mock.patch.object(blocks.Distinct, "cut", gathered),
        mock.patch.object(blocks.BlockedTimes, "_cut", return_value=taken),
        mock.patch.object(roofline, "_NEGLIGIBLE", 0.0),  # which holds for these points alone
    ):
        found = times._totals_of(few)
    names = [f"a{i}" for i in range(len(given))]
    body = [f"        {name} = {text}" for text, name in Noted.lines.items()]
    body += [f"        {name}[i] = {found[name].name}" for name in OUTPUTS]
    head = f"def loop({', '.join([*names, *OUTPUTS])}):\n    for i in range({OUTPUTS[0]}.size):\n"
    return head + "\n".join(body), [*given.values()]


def seconds(function: Callable[[], Any]) -> float:
    """Return the least CPU seconds of some calls."""
    found = []
    for _ in range(7):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


def compiled(source: str, arrays: list[Any]) -> tuple[dict[str, Any], float, float]:
    """Return what a loop gives, and the seconds that it takes and that numba took for it."""
    import llvmlite.binding

    # so that it takes eight points at once, for which it else looks at fewer arrays
    llvmlite.binding.set_option("", "-runtime-memory-check-threshold=2000")
    import numba

    scope: dict[str, Any] = {"np": np}
    exec(source, scope)
    loop = numba.njit(error_model="numpy")(scope["loop"])
    made = {name: np.empty(COUNT) for name in OUTPUTS}
    start = time.process_time()
    loop(*arrays, *made.values())
    compiling = time.process_time() - start
    return made, seconds(lambda: loop(*arrays, *made.values())), compiling


def told(own: dict[str, Any]) -> str:
    """Return what compiled passes of a deployment would gain, in a line."""
    asked = own | {"engine": "vllm", "tensor_parallel": 2} | POINTS
    times = predict(**asked).evaluation.times
    kept = times._totals
    made, loop, compiling = compiled(*loop_of(times))
    for name, values in made.items():
        np.testing.assert_allclose(values, np.broadcast_to(kept[name], COUNT), rtol=1e-13)
    whole = seconds(lambda: predict(**asked).speedup)

    def known(own: Any, block: slice) -> dict[str, Any]:
        _ = own._free  # which is no part of the loop
        return {name: own._cuts.cut(kept[name], block) for name in OUTPUTS}

    with mock.patch.object(blocks.BlockedTimes, "_totals_of", known):
        rest = seconds(lambda: predict(**asked).speedup)
    each = [1e9 * part / COUNT for part in (whole, whole - rest, loop)]
    worth = compiling / (whole - rest - loop) * COUNT / 1e6
    return (
        f"{own['target']} {each[0]:.0f} ns a point, {each[1]:.0f} in passes, {each[2]:.0f} if"
        f" compiled: {whole / (rest + loop):.1f} x in all, after {compiling:.1f} s,"
        f" which pay from {worth:.0f} M points on"
    )


if __name__ == "__main__":
    for deployment in DEPLOYMENTS:
        print(told(deployment))
