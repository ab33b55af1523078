"""Functions written once, for Python as it stands, compiled by numba where it is installed."""

import hashlib
import inspect
import sys
from collections.abc import Callable, Collection
from typing import Any, cast

Function = Callable[..., Any]


def compiled_function(
    function: Callable[..., None], parts: Collection[Function], hot: Collection[Function]
) -> Callable[..., None] | None:
    """Return a function as numba compiles it, or None where numba is not installed.

    `parts` are all functions that run in it, itself included; those that are `hot` are copied to
    where they are called. Nothing in them may allocate.
    """
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError:
        return None
    # nothing is allocated, so that references to arrays need not be counted, which takes most time
    for part in parts:
        register_jitable(_nrt=False, inline="always" if part in hot else "never")(part)
    entry = _stamped(function, _stamp(parts))
    njit = cast(Any, numba.njit)  # whose types lack `_nrt`
    try:
        compiled: Callable[..., None] = njit(cache=True, _nrt=False)(entry)
    except RuntimeError:  # there is no folder to keep machine code in
        compiled = njit(_nrt=False)(entry)
    return compiled


def _stamped(function: Callable[..., None], stamp: str) -> Callable[..., None]:
    """Return a function whose kept machine code is found again by a stamp.

    Numba finds code that it kept by the source of one file and by what a function encloses; the
    stamp, which is of all files that are compiled, is enclosed.
    """

    def stamped(*arguments: Any) -> None:
        if stamp != "":
            function(*arguments)

    return stamped


def _stamp(parts: Collection[Function]) -> str:
    """Return a digest of the source of all that is compiled."""
    modules = {sys.modules[part.__module__] for part in parts}
    texts = sorted(inspect.getsource(module) for module in modules)
    return hashlib.sha256("".join(texts).encode()).hexdigest()
