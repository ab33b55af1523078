"""Compile functions with numba if it is installed; each is written once, for Python and numba.

Python calls the functions with objects, whose attributes are numbers or lists of numbers. numba
calls them with NumPy records that have fields of the same names.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from types import FunctionType
from typing import Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

Function = Callable[..., Any]

WORTH_COMPILING = 1_000_000
"""Least output tokens for which numba is imported, if it is installed [token].

Python needs about 3 seconds for them. numba needs half a second to be ready, and 5 seconds the
first time.
"""


def has_numba() -> bool:
    """Return whether numba is installed."""
    return find_spec("numba") is not None


def is_worth_compiling(tokens: float) -> bool:
    """Return whether numba is installed and compiling saves time for so many tokens [token]."""
    return tokens >= WORTH_COMPILING and has_numba()


@cache
def compiled_function(function: Function, given: tuple[Function, ...]) -> Function | None:
    """Return a function compiled by numba, cached, or None if numba is not installed.

    The one or two functions in `given` are bound as its first arguments. All functions that it
    calls are inlined. None of them may allocate memory.
    """
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError:
        return None
    parts = _parts((function, *given))
    # nothing is allocated, so references to arrays need not be counted, which takes most time
    for part in parts:
        register_jitable(_nrt=False, forceinline=True, no_cfunc_wrapper=True)(part)
    texts = {inspect.getsource(sys.modules[part.__module__]) for part in parts}
    stamp = hashlib.sha256("".join(sorted(texts)).encode()).hexdigest()
    first, *more = given
    second = more[0] if more else first

    # numba looks up cached code by the source of one file and by the variables that a function
    # encloses; the function therefore encloses a stamp of all files that are compiled
    def with_one(*arguments: Any) -> None:
        if stamp != "":
            function(first, *arguments)

    def with_both(*arguments: Any) -> None:
        if stamp != "":
            function(first, second, *arguments)

    entry = with_both if more else with_one
    # the index of numba's cache must not refer to functions of an older version
    entry.__qualname__ += f"_{stamp[:12]}"
    njit = cast(Any, numba.njit)  # whose types lack `_nrt`
    try:
        compiled = njit(cache=True, nogil=True, _nrt=False)(entry)
    except RuntimeError:  # there is no folder for the machine code
        return cast(Function, njit(nogil=True, _nrt=False)(entry))
    _forgive(compiled._cache)
    return cast(Function, compiled)


def _forgive(cache: Any) -> None:
    """Recompile if numba's cache cannot be read, and continue if it cannot be written."""
    load, save = cache.load_overload, cache.save_overload

    def load_if_whole(*of: Any) -> Any:
        found = None
        try:
            found = load(*of)
        except Exception:  # a broken file may raise anything
            with suppress(OSError):
                cache.flush()
        if found is None and sys.stderr.isatty():
            sys.stderr.write("specmodel: numba compiles the loop, once: a few seconds\n")
        return found

    def save_if_possible(*of: Any) -> None:
        with suppress(Exception):
            save(*of)

    cache.load_overload, cache.save_overload = load_if_whole, save_if_possible


def _parts(functions: Collection[Function]) -> list[Function]:
    """Return functions, and all functions that they call by a name in their modules."""
    found: dict[Function, None] = {}
    waiting = [*functions]
    while waiting:
        function = cast(FunctionType, waiting.pop())
        if function not in found:
            found[function] = None
            named = map(function.__globals__.get, function.__code__.co_names)
            waiting += [part for part in named if isinstance(part, FunctionType)]
    return [*found]


def records(objects: Sequence[Any]) -> NDArray[Any]:
    """Return objects of one class as records of their attributes: numbers, and lists of numbers.

    Lists are padded to a power of two, so numba compiles few sizes.
    """
    found = np.zeros(len(objects), np.dtype(_fields(objects), align=True))
    for record, each in zip(found, objects, strict=True):
        _fill(record, each)
    return found


def _fields(objects: Sequence[Any]) -> list[tuple[Any, ...]]:
    fields: list[tuple[Any, ...]] = []
    first = objects[0]
    for name, value in (asdict(first) if isinstance(first, Struct) else vars(first)).items():
        if isinstance(value, list):
            longest = max(len(getattr(each, name)) for each in objects)
            fields.append((name, type(value[0]), 1 << max(3, (longest - 1).bit_length())))
        elif isinstance(value, bool | int | float):
            fields.append((name, type(value)))
        elif isinstance(value, Struct):
            fields.append((name, _fields([value])))
    return fields


def _fill(record: Any, given: Any) -> None:
    for name in record.dtype.names:
        value = getattr(given, name)
        if isinstance(value, list):
            record[name][: len(value)] = value
        elif isinstance(value, Struct):
            _fill(record[name], value)
        else:
            record[name] = value


def as_lists(part: Any) -> Any:
    """Return an array, or each array in a tuple, as the type that Python indexes fastest."""
    if isinstance(part, np.ndarray):
        return part.tobytes() if part.dtype == np.uint8 else part.tolist()
    if not isinstance(part, tuple):
        return part
    made = map(as_lists, part)
    return type(part)(*made) if hasattr(part, "_fields") else tuple(made)
